//! Which gate and which ledger belong together.
//!
//! Both have an id, the ledger in a table and the gate in a key, and each knows the other's. So a
//! process that names the wrong Redis database is refused when it starts, instead of selling the
//! same units a second time or stopping the gate of another shop.
//!
//! A gate that lost its data is not a wrong one: the processes that use it give it its id again, and
//! if there are none, it gets a new one. So a gate without an id is the right one unless another
//! gate is in use: each process says so in the ledger again and again.

pub(crate) mod keep;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::bug;
use crate::gate::{Gate, Pair};
use crate::ledger::Ledger;

/// A gate that was not used for this long may be replaced by another one.
pub(crate) const UNUSED: Duration = Duration::from_secs(10);
/// How long to wait for that, if nobody says that the other gate is in use.
const PATIENCE: Duration = Duration::from_secs(13);
/// Longer than processes that run need to give a gate its id again.
const MARKED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// The pair that a sale belongs to; none if its gate or its ledger is in memory, as part of its
/// process.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    pair: Option<Pair>,
    /// Whether another gate has taken this one's place.
    replaced: AtomicBool,
}

impl Pairing {
    /// Finds out whether this gate is that of this ledger.
    pub(crate) async fn of(gate: &Gate, ledger: &Ledger) -> Result<Self> {
        if gate.is_memory() || bug("wrong-gate-unseen") {
            return Ok(Self::default());
        }
        if ledger.is_in_memory() {
            // It will never come back to a gate that knows it.
            return match gate.pair().await? {
                Some(_) => Err(of_another_ledger()),
                None => Ok(Self::default()),
            };
        }
        let pair = find(gate, ledger).await?;
        Ok(Self {
            pair: Some(pair),
            replaced: AtomicBool::new(false),
        })
    }

    /// Fails if another gate has taken this one's place.
    pub(crate) fn check(&self) -> Result<()> {
        if self.replaced.load(Ordering::Relaxed) {
            let message = "this gate is no longer that of its ledger, which is used with another \
                           Redis database by now: name that one, or stop what uses it";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(())
    }
}

async fn find(gate: &Gate, ledger: &Ledger) -> Result<Pair> {
    let begun = Instant::now();
    loop {
        let known = ledger.paired(&new_id()).await?;
        let ledgers = known.ledger;
        match gate.pair().await? {
            Some(pair) if pair.ledger != ledgers => return Err(of_another_ledger()),
            Some(pair) if ledger.see_gate(&pair.gate, UNUSED).await? => return Ok(pair),
            Some(_) => {}
            // The ledger first: a gate that is refused is left as it was.
            None => {
                let pair = Pair {
                    ledger: ledgers,
                    gate: new_id(),
                };
                if ledger.see_gate(&pair.gate, UNUSED).await? {
                    gate.set_pair(&pair).await?;
                    continue;
                }
            }
        }
        let waited = begun.elapsed();
        let is_in_use = known.seen_ago < waited && waited >= MARKED;
        if is_in_use || waited >= PATIENCE {
            return Err(has_another_gate());
        }
        sleep(PAUSE).await;
    }
}

fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn of_another_ledger() -> Error {
    let message = "cannot use this gate with this ledger: its Redis database belongs to another \
                   ledger; name another database, or delete the key `tenure:sale:gate` there if \
                   that ledger is gone for good";
    Error::new(ErrorKind::Conflict, message)
}

fn has_another_gate() -> Error {
    let message = "cannot use this ledger with this gate: another Redis database is its gate, and \
                   is in use; name that one, or stop the processes that use it";
    Error::new(ErrorKind::LedgerInUse, message)
}
