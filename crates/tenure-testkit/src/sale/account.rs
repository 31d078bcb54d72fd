//! The operations of the clients and the answers they got.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;

use super::recorder::{self, Entry};
use crate::history::line::{self, words};
use crate::history::{Fault, Millis, nemesis};

/// All recorded operations of one run.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// The operations, ordered by the time of sending.
    pub operations: Vec<Operation>,
    /// The injected faults, ordered by their start.
    pub faults: Vec<Fault>,
}

/// One operation of a client, from the request to the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The process.
    pub client: u64,
    /// The kind of request.
    pub kind: Kind,
    /// The item.
    pub item: String,
    /// The buyer.
    pub buyer: String,
    /// The buyer's id of the request.
    pub request: String,
    /// The number of units.
    pub units: u64,
    /// The order that it refers to or created.
    pub order: Option<String>,
    /// Just before the request was sent.
    pub sent_ns: u64,
    /// Just after the answer came; `None` without an answer.
    pub received_ns: Option<u64>,
    /// The answer.
    pub answer: Answer,
    /// The reason for a refusal, or the state of the order.
    pub word: String,
}

words! {
    /// The kind of a request.
    #[derive(Hash)]
    pub enum Kind {
        /// Places an order.
        Ask = "ask",
        /// Queries an order.
        Look = "look",
        /// Pays for an order.
        Pay = "pay",
        /// Cancels an order.
        Cancel = "cancel",
    }
}

words! {
    /// The answer to a request.
    #[derive(Hash)]
    pub enum Answer {
        /// A new order exists.
        Accepted = "accepted",
        /// The order existed already.
        Replayed = "replayed",
        /// Refused; the word is the reason.
        Refused = "refused",
        /// The word is the state of the order.
        State = "state",
        /// Done; the word is the new state of the order, if known.
        Done = "done",
        /// No answer, or an inconclusive one: it may have been done.
        Unknown = "unknown",
    }
}

impl Account {
    /// Reads all files that recorders and a nemesis wrote into `dir`. A request of a killed client without
    /// an answer counts as unknown.
    pub fn load(dir: &Path) -> Self {
        let mut account = Self::default();
        let files = fs::read_dir(dir)
            .unwrap_or_else(|error| panic!("failed to read `{}`: {error}", dir.display()));
        for file in files {
            let path = file.expect("failed to read a directory entry").path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(recorder::EXTENSION) => account.operations.extend(joined(line::load(&path))),
                Some(nemesis::EXTENSION) => account.faults.extend(line::load::<Fault>(&path)),
                _ => {}
            }
        }
        account.sort();
        account
    }

    /// A hand-made account.
    pub fn new(operations: Vec<Operation>) -> Self {
        let mut account = Self {
            operations,
            faults: Vec::new(),
        };
        account.sort();
        account
    }

    /// The number of operations with this kind and answer.
    pub fn count(&self, kind: Kind, answer: Answer) -> usize {
        let matching =
            |operation: &&Operation| operation.kind == kind && operation.answer == answer;
        self.operations.iter().filter(matching).count()
    }

    /// Requests with an unknown outcome: an answer was lost, and no later answer settles it. Each once.
    pub fn unresolved(&self) -> Vec<&Operation> {
        let mut open: HashMap<_, &Operation> = HashMap::new();
        for operation in self
            .operations
            .iter()
            .filter(|operation| operation.kind == Kind::Ask)
        {
            if operation.settles() {
                open.remove(&operation.key());
            } else if operation.answer == Answer::Unknown {
                open.insert(operation.key(), operation);
            }
        }
        let mut open: Vec<&Operation> = open.into_values().collect();
        open.sort_by_key(|operation| operation.sent_ns);
        open
    }

    fn sort(&mut self) {
        self.operations.sort_by_key(|operation| operation.sent_ns);
        self.faults.sort_by_key(|fault| fault.start_ns);
    }
}

impl Operation {
    /// Identifies a request: its id is unique per item and buyer.
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.item, &self.buyer, &self.request)
    }

    /// Whether this answer settles the outcome of the request, however often it was sent before. A gate
    /// that is busy or must be rebuilt only reports that nothing was done this time.
    pub fn settles(&self) -> bool {
        match self.answer {
            Answer::Unknown => false,
            Answer::Refused => !["busy", "stale-epoch"].contains(&self.word.as_str()),
            _ => true,
        }
    }

    /// Whether the answer confirms an order for this request.
    pub fn is_order(&self) -> bool {
        self.kind == Kind::Ask && matches!(self.answer, Answer::Accepted | Answer::Replayed)
    }
}

impl fmt::Display for Operation {
    /// One line, times in milliseconds of the monotonic clock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {}: {} {} of `{}` for `{}` as `{}` at {}..",
            self.client,
            self.kind,
            self.units,
            self.item,
            self.buyer,
            self.request,
            Millis(self.sent_ns),
        )?;
        match self.received_ns {
            Some(received_ns) => write!(f, "{} ms", Millis(received_ns))?,
            None => f.write_str("never")?,
        }
        write!(f, " -> {} {}", self.answer, self.word)?;
        match &self.order {
            Some(order) => write!(f, " (`{order}`)"),
            None => Ok(()),
        }
    }
}

/// Joins requests with their answers.
fn joined(entries: Vec<Entry>) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut asked = HashMap::new();
    for entry in entries {
        match entry {
            Entry::Sent { number, operation } => {
                asked.insert(number, operations.len());
                operations.push(operation);
            }
            Entry::Received {
                number,
                answer,
                word,
                order,
                at_ns,
            } => {
                let operation: &mut Operation = &mut operations[asked[&number]];
                operation.received_ns = Some(at_ns);
                operation.answer = answer;
                operation.word = word;
                operation.order = order.or(operation.order.take());
            }
        }
    }
    operations
}
