//! Writes down what a client of a sale does.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::account::{Answer, Deed, Kind};
use crate::history::line::{Fields, Line, Log, Writer};
use crate::history::now_ns;

pub(super) const EXTENSION: &str = "deeds";

/// Writes a client's deeds to a file of its own: the question before it leaves and the answer before
/// anything follows from it, each with one plain `write`, so that `kill -9` loses nothing.
#[derive(Debug)]
pub struct Recorder {
    client: u64,
    log: Log,
    numbers: AtomicU64,
}

/// A question that was written down; [`told`](Self::told) writes the answer. Dropped without, the
/// answer is unknown.
#[derive(Debug)]
#[must_use = "dropped at once the answer is unknown"]
pub struct Asked<'a> {
    recorder: &'a Recorder,
    number: u64,
}

impl Recorder {
    /// A recorder for the process `client`, writing into `dir`; panics if there was one already.
    #[track_caller]
    pub fn create(dir: &Path, client: u64) -> Self {
        Self {
            client,
            log: Log::create(&dir.join(format!("client-{client}.{EXTENSION}"))),
            numbers: AtomicU64::new(0),
        }
    }

    /// A request for an order is about to leave.
    pub fn ask(&self, item: &str, buyer: &str, request: &str, units: u64) -> Asked<'_> {
        self.begin(Kind::Ask, item, buyer, request, units, None)
    }

    /// A question about an order that exists is about to leave: a look at it, a payment, a
    /// cancellation.
    pub fn about(&self, kind: Kind, item: &str, order: &str) -> Asked<'_> {
        self.begin(kind, item, "", "", 0, Some(order.to_owned()))
    }

    fn begin(
        &self,
        kind: Kind,
        item: &str,
        buyer: &str,
        request: &str,
        units: u64,
        order: Option<String>,
    ) -> Asked<'_> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let deed = Deed {
            client: self.client,
            kind,
            item: item.into(),
            buyer: buyer.into(),
            request: request.into(),
            units,
            order,
            sent_ns: now_ns(),
            received_ns: None,
            answer: Answer::Unknown,
            word: String::new(),
        };
        self.log.write(&Half::Sent { number, deed });
        Asked {
            recorder: self,
            number,
        }
    }
}

impl Asked<'_> {
    /// The answer came: takes the time and writes. `word` is the reason of a refusal, or the state of
    /// the order.
    pub fn told(self, answer: Answer, word: &str, order: Option<&str>) {
        self.recorder.log.write(&Half::Received {
            number: self.number,
            answer,
            word: word.into(),
            order: order.map(ToOwned::to_owned),
            at_ns: now_ns(),
        });
    }
}

/// What one line says.
pub(super) enum Half {
    Sent {
        number: u64,
        deed: Deed,
    },
    Received {
        number: u64,
        answer: Answer,
        word: String,
        order: Option<String>,
        at_ns: u64,
    },
}

impl Line for Half {
    fn encode(&self) -> String {
        match self {
            Self::Sent { number, deed } => Writer::default()
                .field("sent")
                .field(number)
                .field(deed.client)
                .field(deed.kind)
                .text(&deed.item)
                .text(&deed.buyer)
                .text(&deed.request)
                .field(deed.units)
                .text(deed.order.as_deref().unwrap_or_default())
                .field(deed.sent_ns)
                .end(),
            Self::Received {
                number,
                answer,
                word,
                order,
                at_ns,
            } => Writer::default()
                .field("received")
                .field(number)
                .field(answer)
                .text(word)
                .text(order.as_deref().unwrap_or_default())
                .field(at_ns)
                .end(),
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let which: String = fields.value()?;
        let number = fields.value()?;
        if which == "received" {
            return Some(Self::Received {
                number,
                answer: fields.value()?,
                word: fields.text()?,
                order: some(fields.text()?),
                at_ns: fields.value()?,
            });
        }
        let deed = Deed {
            client: fields.value()?,
            kind: fields.value()?,
            item: fields.text()?,
            buyer: fields.text()?,
            request: fields.text()?,
            units: fields.value()?,
            order: some(fields.text()?),
            sent_ns: fields.value()?,
            received_ns: None,
            answer: Answer::Unknown,
            word: String::new(),
        };
        Some(Self::Sent { number, deed })
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::Account;
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_was_not_told_is_unknown() {
        let dir = tempfile::tempdir().expect("a directory");
        let recorder = Recorder::create(dir.path(), 7);
        let told = recorder.ask("it\tem", "ann", "1", 2);
        told.told(Answer::Accepted, "", Some("it.1.1"));
        let looked = recorder.about(Kind::Look, "it\tem", "it.1.1");
        looked.told(Answer::State, "reserved", None);
        drop(recorder.ask("it\tem", "bob", "1", 1));
        let account = Account::load(dir.path());
        assert_eq!(account.deeds.len(), 3);
        let first = &account.deeds[0];
        assert_eq!((first.item.as_str(), first.units), ("it\tem", 2));
        assert_eq!(first.order.as_deref(), Some("it.1.1"));
        assert_eq!(account.deeds[1].word, "reserved");
        assert_eq!(account.deeds[1].order.as_deref(), Some("it.1.1"));
        let unresolved = account.unresolved();
        assert_eq!(unresolved.len(), 1);
        assert_eq!(unresolved[0].buyer, "bob");
        assert!(unresolved[0].received_ns.is_none());
        // To be told that the gate is busy says nothing of what was asked before.
        let busy = recorder.ask("it\tem", "bob", "1", 1);
        busy.told(Answer::Refused, "busy", None);
        assert_eq!(Account::load(dir.path()).unresolved().len(), 1);
        let sold_out = recorder.ask("it\tem", "bob", "1", 1);
        sold_out.told(Answer::Refused, "sold-out", None);
        assert_eq!(Account::load(dir.path()).unresolved().len(), 0);
    }
}
