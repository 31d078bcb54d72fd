//! What a sale shows of itself: the same for the command and for the service.

mod item;
mod letter;
mod order;
mod report;

use std::time::SystemTime;

pub use self::item::{ShownItem, ShownStats};
pub use self::letter::{Decided, ShownLetter};
pub use self::order::{ShownCount, ShownOrder, outcome_word};
pub use self::report::{ShownReport, ShownVerdict};

/// A moment for people and programs: RFC 3339, UTC.
pub fn at(moment: SystemTime) -> String {
    humantime::format_rfc3339_millis(moment).to_string()
}

/// A number, or that there is none.
pub fn or_dash(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}
