//! The relay: sends the ledger's changes to the gate, each exactly once.
//!
//! The gate stores the number of the last change it applied and advances it by compare-and-set. So
//! any number of relays may run at once and die at any moment.

pub(crate) mod turns;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::debug;

use crate::core::Core;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::gate::Applied;
use crate::rebuild::{self, Need};

use self::turns::Place;

/// Changes sent in one step.
const PAGE: usize = 200;

/// The result of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relayed {
    /// The gate has all changes that existed when the relay began.
    Done,
    /// The gate must be rebuilt, which will cover the changes.
    Stale,
}

/// Sends all pending changes to the gate of `item`.
pub(crate) async fn relay(core: &Arc<Core>, item: &str) -> Result<Relayed> {
    let turn = core.relays.turn(item);
    let ticket = turn.asked.fetch_add(1, Ordering::SeqCst) + 1;
    let mut state = turn.state.lock().await;
    if state.served >= ticket {
        return Ok(Relayed::Done);
    }
    let served = turn.asked.load(Ordering::SeqCst);
    let relayed = run(core, item, &mut state.place).await?;
    if relayed == Relayed::Done {
        state.served = served;
    }
    Ok(relayed)
}

/// As [`relay`], for callers that do not depend on it: consumers will retry if this fails.
pub(crate) async fn relay_if_possible(core: &Arc<Core>, item: &str) {
    if let Err(error) = relay(core, item).await {
        debug!(item, %error, "changes could not be sent to the gate yet");
    }
}

async fn run(core: &Arc<Core>, item: &str, known: &mut Option<Place>) -> Result<Relayed> {
    // The position of the gate in an earlier run may be outdated.
    let mut may_be_old = known.is_some();
    loop {
        let Some(place) = place(core, item, known).await? else {
            return Ok(Relayed::Stale);
        };
        let changes = core.ledger.changes(item, place.change, PAGE).await?;
        let Some(last) = changes.last().map(|change| change.number) else {
            return Ok(Relayed::Done);
        };
        if changes[0].number > place.change + 1 {
            // Changes that were not sent have been deleted.
            *known = None;
            rebuild::in_background(core, item, Need::Change(last)).await?;
            continue;
        }
        failpoint("relay.before_apply");
        let told = core.gate.apply(item, place.epoch, place.change, &changes);
        match told.await? {
            Applied::Done => {
                core.counters.relayed.add(changes.len());
                *known = Some(Place {
                    change: last,
                    ..place
                });
            }
            Applied::At(change) => *known = Some(Place { change, ..place }),
            Applied::Stale if may_be_old => {
                *known = None;
                may_be_old = false;
            }
            Applied::Stale => {
                // A limit per buyer was introduced, and the gate does not know what buyers have.
                *known = None;
                rebuild::in_background(core, item, Need::Change(last)).await?;
            }
        }
    }
}

/// The gate's position; `None` if it must be rebuilt first.
async fn place(core: &Core, item: &str, known: &mut Option<Place>) -> Result<Option<Place>> {
    if known.is_none() {
        let standing = core.gate.standing(item).await?;
        let standing = standing.filter(|standing| standing.current && standing.state.is_some());
        *known = standing.map(|standing| Place {
            epoch: standing.epoch,
            change: standing.change,
        });
    }
    Ok(*known)
}
