//! Sales, shown the same by the command and the service.

mod dead_letter;
mod item;
mod order;
mod report;

use std::time::{Duration, SystemTime};

pub use self::dead_letter::{Decided, ShownLetter};
pub use self::item::{ShownGate, ShownItem, ShownShelf, ShownStats};
pub use self::order::{ShownCount, ShownOrder, outcome_word};
pub use self::report::{ShownReport, ShownVerdict};

/// The last second of the year 9999: RFC 3339 has no later one.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// A moment for people and programs: RFC 3339, UTC.
pub fn at(moment: SystemTime) -> String {
    let shown = moment.min(SystemTime::UNIX_EPOCH + LAST_SECOND);
    humantime::format_rfc3339_millis(shown).to_string()
}

/// A number, or a dash.
pub fn or_dash(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_that_has_no_text_is_the_last_that_has_one() {
        let day = Duration::from_hours(24);
        let shown = at(SystemTime::UNIX_EPOCH + day);
        assert_eq!(shown, "1970-01-02T00:00:00.000Z");
        let shown = at(SystemTime::UNIX_EPOCH + day * 100_000_000);
        assert_eq!(shown, "9999-12-31T23:59:59.000Z");
    }
}
