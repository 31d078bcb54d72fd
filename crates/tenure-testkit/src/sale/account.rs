//! What clients did and were told.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;

use super::recorder::{self, Half};
use crate::history::line::{self, words};
use crate::history::{Fault, Millis, nemesis};

/// Everything that clients wrote down in one run.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// What they did, ordered by the time of sending.
    pub deeds: Vec<Deed>,
    /// What was broken meanwhile, ordered by its start.
    pub faults: Vec<Fault>,
}

/// One thing that a client did, from the question to the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// The process.
    pub client: u64,
    /// What was asked for.
    pub kind: Kind,
    /// Of which item.
    pub item: String,
    /// By whom.
    pub buyer: String,
    /// The buyer's own id of the request.
    pub request: String,
    /// For how many units.
    pub units: u64,
    /// The order that it is about, or that came of it.
    pub order: Option<String>,
    /// Just before the question left.
    pub sent_ns: u64,
    /// Just after the answer came; `None` if none came.
    pub received_ns: Option<u64>,
    /// What was told.
    pub answer: Answer,
    /// The word of a refusal, or of the state that the order is in.
    pub word: String,
}

words! {
    /// What a client asked for.
    #[derive(Hash)]
    pub enum Kind {
        /// An order.
        Ask = "ask",
        /// What became of an order.
        Look = "look",
        /// To pay for an order.
        Pay = "pay",
        /// To cancel an order.
        Cancel = "cancel",
    }
}

words! {
    /// What a client was told.
    #[derive(Hash)]
    pub enum Answer {
        /// There is an order now.
        Accepted = "accepted",
        /// There was this order before.
        Replayed = "replayed",
        /// No, for the reason that the word says.
        Refused = "refused",
        /// The order is in the state that the word says.
        State = "state",
        /// It was done; the word says in which state the order is now, if that was told.
        Done = "done",
        /// No answer, or one that says nothing: it may have been done.
        Unknown = "unknown",
    }
}

impl Account {
    /// Reads all files that recorders and a nemesis have written into `dir`. What a killed client
    /// had asked and was not told is an unknown answer.
    pub fn load(dir: &Path) -> Self {
        let mut account = Self::default();
        let files = fs::read_dir(dir)
            .unwrap_or_else(|error| panic!("failed to read `{}`: {error}", dir.display()));
        for file in files {
            let path = file.expect("a directory can be read to its end").path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(recorder::EXTENSION) => account.deeds.extend(joined(line::load(&path))),
                Some(nemesis::EXTENSION) => account.faults.extend(line::load::<Fault>(&path)),
                _ => {}
            }
        }
        account.sort();
        account
    }

    /// An account made by hand.
    pub fn new(deeds: Vec<Deed>) -> Self {
        let mut account = Self {
            deeds,
            faults: Vec::new(),
        };
        account.sort();
        account
    }

    /// The number of deeds with this answer.
    pub fn count(&self, kind: Kind, answer: Answer) -> usize {
        let matching = |deed: &&Deed| deed.kind == kind && deed.answer == answer;
        self.deeds.iter().filter(matching).count()
    }

    /// Requests of which nobody knows what became of them: an answer was lost, and nobody has been
    /// told anything since that settles it. Each once.
    pub fn unresolved(&self) -> Vec<&Deed> {
        let mut open: HashMap<_, &Deed> = HashMap::new();
        for deed in self.deeds.iter().filter(|deed| deed.kind == Kind::Ask) {
            if deed.settles() {
                open.remove(&deed.key());
            } else if deed.answer == Answer::Unknown {
                open.insert(deed.key(), deed);
            }
        }
        let mut open: Vec<&Deed> = open.into_values().collect();
        open.sort_by_key(|deed| deed.sent_ns);
        open
    }

    fn sort(&mut self) {
        self.deeds.sort_by_key(|deed| deed.sent_ns);
        self.faults.sort_by_key(|fault| fault.start_ns);
    }
}

impl Deed {
    /// What a request is known by: the id is the buyer's own, for one item.
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.item, &self.buyer, &self.request)
    }

    /// Whether this answer to a request says what became of it, however often it was sent before. A
    /// gate that is busy or must be rebuilt says only that nothing was done this time.
    pub fn settles(&self) -> bool {
        match self.answer {
            Answer::Unknown => false,
            Answer::Refused => !["busy", "stale-epoch"].contains(&self.word.as_str()),
            _ => true,
        }
    }

    /// Whether an order was told to exist for this very request.
    pub fn is_order(&self) -> bool {
        self.kind == Kind::Ask && matches!(self.answer, Answer::Accepted | Answer::Replayed)
    }
}

impl fmt::Display for Deed {
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

/// Questions with their answers.
fn joined(halves: Vec<Half>) -> Vec<Deed> {
    let mut deeds = Vec::new();
    let mut asked = HashMap::new();
    for half in halves {
        match half {
            Half::Sent { number, deed } => {
                asked.insert(number, deeds.len());
                deeds.push(deed);
            }
            Half::Received {
                number,
                answer,
                word,
                order,
                at_ns,
            } => {
                let deed: &mut Deed = &mut deeds[asked[&number]];
                deed.received_ns = Some(at_ns);
                deed.answer = answer;
                deed.word = word;
                deed.order = order.or(deed.order.take());
            }
        }
    }
    deeds
}
