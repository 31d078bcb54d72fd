//! All locks as JSON, written once for all readers.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Bytes;
use tenure_view::holders::LockReport;

use crate::feed::Feed;
use crate::feed::outgoing::Outgoing;

/// All locks as JSON, separated by commas, in the order of their names. So the locks with a prefix are
/// one part of the text, and no reader needs a text of its own.
#[derive(Debug)]
pub(super) struct LocksText {
    /// When it was written.
    at: String,
    text: Arc<Bytes>,
    /// Where each lock ends.
    ends: Vec<usize>,
}

impl LocksText {
    pub(super) fn written(
        feed: &Feed,
        at: String,
        locks: impl Iterator<Item = LockReport>,
    ) -> Self {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for lock in locks {
            if !text.is_empty() {
                text.push(b',');
            }
            // A report is always JSON: its keys are texts.
            let _ = serde_json::to_writer(&mut text, &lock);
            ends.push(text.len());
        }
        let text = feed.keep(text);
        Self { at, text, ends }
    }

    /// The event `locks.snapshot` with the locks whose names have this prefix.
    pub(super) fn with_prefix<'a>(
        &self,
        prefix: &str,
        names: impl Iterator<Item = &'a String>,
        away: Option<&str>,
    ) -> Outgoing {
        let json = |text: Option<&str>| serde_json::to_string(&text).unwrap_or_default();
        let at = json(Some(&self.at));
        let head = format!("event: locks.snapshot\ndata: {{\"at\":{at},\"locks\":[");
        let tail = format!("],\"away\":{}}}\n\n", json(away));
        let (mut before, mut count) = (0, 0);
        for name in names {
            if name.starts_with(prefix) {
                count += 1;
            } else if name.as_str() < prefix {
                before += 1;
            } else {
                break;
            }
        }
        Outgoing::part(head, &self.text, self.part(before, count), tail)
    }

    /// Where so many locks after the first ones are, without the commas around them.
    fn part(&self, before: usize, count: usize) -> Range<usize> {
        let end_of = |locks: usize| locks.checked_sub(1).and_then(|last| self.ends.get(last));
        let end = end_of(before + count).copied().unwrap_or(0);
        let start = end_of(before).map_or(0, |end| end + 1);
        if count == 0 { 0..0 } else { start..end }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn locks_with_a_prefix_are_a_part_of_the_text() {
        let names = ["a", "b", "b:1", "b:2", "c", "é"];
        let names: BTreeSet<String> = names.map(str::to_owned).into();
        let locks = names
            .iter()
            .map(|name| LockReport::of_holder(name, None, &[]));
        let feed = Feed::new();
        let text = LocksText::written(&feed, "now".to_owned(), locks);
        for (prefix, expected) in [
            ("", &["a", "b", "b:1", "b:2", "c", "é"][..]),
            ("a", &["a"]),
            ("b", &["b", "b:1", "b:2"]),
            ("b:", &["b:1", "b:2"]),
            ("é", &["é"]),
            ("0", &[]),
            ("b:3", &[]),
            ("z", &[]),
        ] {
            let sent = text.with_prefix(prefix, names.iter(), Some("\"away\""));
            let sent = sent.read().unwrap();
            let data = sent.strip_prefix("event: locks.snapshot\ndata: ").unwrap();
            let data: serde_json::Value = serde_json::from_str(data.trim_end()).unwrap();
            let found = data["locks"].as_array().unwrap().iter();
            let found: Vec<_> = found.map(|lock| lock["name"].as_str().unwrap()).collect();
            assert_eq!(found, expected, "{prefix}");
            assert_eq!(
                (&data["at"], &data["away"]),
                (&"now".into(), &"\"away\"".into())
            );
        }
    }
}
