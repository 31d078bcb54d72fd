//! Records the operations of a client of a sale.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::account::{Answer, Kind, Operation};
use crate::history::line::{Fields, Line, Log, Writer};
use crate::history::now_ns;

pub(super) const EXTENSION: &str = "operations";

/// Writes a client's operations to its own file: the request before it is sent and the answer before
/// the client acts on it, each with one plain `write`, so that `kill -9` loses nothing.
#[derive(Debug)]
pub struct Recorder {
    client: u64,
    log: Log,
    numbers: AtomicU64,
}

/// A recorded request; [`answered`](Self::answered) records the answer. If dropped instead, the answer
/// is unknown.
#[derive(Debug)]
#[must_use = "if dropped, the answer is unknown"]
pub struct PendingOperation<'a> {
    recorder: &'a Recorder,
    number: u64,
}

impl Recorder {
    /// Creates the recorder of the process `client` in `dir`; panics if there is one already.
    #[track_caller]
    pub fn create(dir: &Path, client: u64) -> Self {
        Self {
            client,
            log: Log::create(&dir.join(format!("client-{client}.{EXTENSION}"))),
            numbers: AtomicU64::new(0),
        }
    }

    /// Records a request for an order, before it is sent.
    pub fn ask(&self, item: &str, buyer: &str, request: &str, units: u64) -> PendingOperation<'_> {
        self.begin(Kind::Ask, item, buyer, request, units, None)
    }

    /// Records a request about an existing order, before it is sent: a query, a payment, a cancellation.
    pub fn about(&self, kind: Kind, item: &str, order: &str) -> PendingOperation<'_> {
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
    ) -> PendingOperation<'_> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let operation = Operation {
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
        self.log.write(&Entry::Sent { number, operation });
        PendingOperation {
            recorder: self,
            number,
        }
    }
}

impl PendingOperation<'_> {
    /// Records the answer, which came now. `word` is the reason for a refusal, or the state of the
    /// order.
    pub fn answered(self, answer: Answer, word: &str, order: Option<&str>) {
        self.recorder.log.write(&Entry::Received {
            number: self.number,
            answer,
            word: word.into(),
            order: order.map(ToOwned::to_owned),
            at_ns: now_ns(),
        });
    }
}

/// One line: a request or an answer.
pub(super) enum Entry {
    Sent {
        number: u64,
        operation: Operation,
    },
    Received {
        number: u64,
        answer: Answer,
        word: String,
        order: Option<String>,
        at_ns: u64,
    },
}

impl Line for Entry {
    fn encode(&self) -> String {
        match self {
            Self::Sent { number, operation } => Writer::default()
                .field("sent")
                .field(number)
                .field(operation.client)
                .field(operation.kind)
                .text(&operation.item)
                .text(&operation.buyer)
                .text(&operation.request)
                .field(operation.units)
                .text(operation.order.as_deref().unwrap_or_default())
                .field(operation.sent_ns)
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
        let entry_kind: String = fields.value()?;
        let number = fields.value()?;
        if entry_kind == "received" {
            return Some(Self::Received {
                number,
                answer: fields.value()?,
                word: fields.text()?,
                order: some(fields.text()?),
                at_ns: fields.value()?,
            });
        }
        let operation = Operation {
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
        Some(Self::Sent { number, operation })
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
    fn records_are_read_back_and_a_missing_answer_is_unknown() {
        let dir = tempfile::tempdir().expect("a directory");
        let recorder = Recorder::create(dir.path(), 7);
        let accepted = recorder.ask("it\tem", "ann", "1", 2);
        accepted.answered(Answer::Accepted, "", Some("it.1.1"));
        let looked = recorder.about(Kind::Look, "it\tem", "it.1.1");
        looked.answered(Answer::State, "reserved", None);
        drop(recorder.ask("it\tem", "bob", "1", 1));
        let account = Account::load(dir.path());
        assert_eq!(account.operations.len(), 3);
        let first = &account.operations[0];
        assert_eq!((first.item.as_str(), first.units), ("it\tem", 2));
        assert_eq!(first.order.as_deref(), Some("it.1.1"));
        assert_eq!(account.operations[1].word, "reserved");
        assert_eq!(account.operations[1].order.as_deref(), Some("it.1.1"));
        let unresolved = account.unresolved();
        assert_eq!(unresolved.len(), 1);
        assert_eq!(unresolved[0].buyer, "bob");
        assert!(unresolved[0].received_ns.is_none());
        // A busy gate does not settle earlier requests.
        let busy = recorder.ask("it\tem", "bob", "1", 1);
        busy.answered(Answer::Refused, "busy", None);
        assert_eq!(Account::load(dir.path()).unresolved().len(), 1);
        let sold_out = recorder.ask("it\tem", "bob", "1", 1);
        sold_out.answered(Answer::Refused, "sold-out", None);
        assert_eq!(Account::load(dir.path()).unresolved().len(), 0);
    }
}
