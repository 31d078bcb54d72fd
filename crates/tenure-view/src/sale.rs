//! Sales, shown the same by the command and the service.

mod dead_letter;
mod item;
mod order;
mod report;

pub use self::dead_letter::{Decided, ShownLetter};
pub use self::item::{ShownGate, ShownItem, ShownShelf, ShownStats};
pub use self::order::{ShownCount, ShownOrder, outcome_word};
pub use self::report::{ShownReport, ShownVerdict};

/// A number, or a dash.
pub fn or_dash(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}
