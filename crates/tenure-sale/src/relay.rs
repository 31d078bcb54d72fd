//! The relay: tells the gate what changed in the ledger, each change once.
//!
//! The gate keeps the number up to which it was told and moves it by compare-and-set. So any number of
//! relays may run at once and die at any moment.

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

/// Changes told in one step.
const PAGE: usize = 200;

/// Whether the gate was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relayed {
    /// It knows all that there was when the relay began.
    Done,
    /// It must be rebuilt, which will cover it.
    Stale,
}

/// Tells the gate of `item` all that it was not told.
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

/// As [`relay`], where nothing depends on it: consumers will do it if this fails.
pub(crate) async fn relay_if_possible(core: &Arc<Core>, item: &str) {
    if let Err(error) = relay(core, item).await {
        debug!(item, %error, "the gate could not be told of changes yet");
    }
}

async fn run(core: &Arc<Core>, item: &str, known: &mut Option<Place>) -> Result<Relayed> {
    // Where the gate was told to be in a former run may be long ago.
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
            // What the gate was not told is forgotten.
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
                // A limit per buyer has come, and the gate does not know what buyers have.
                *known = None;
                rebuild::in_background(core, item, Need::Change(last)).await?;
            }
        }
    }
}

/// Where the gate is; `None` if it must be rebuilt before it can be told anything.
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
