//! Moving units between shelves, and determining when none are left.
//!
//! | step | where | what is written |
//! |---|---|---|
//! | give | on the shelf that has units | less stock, and a note: the number of the move, the receiver, how many |
//! | receive | on the shelf that needs units | more stock, and the number, so that it happens once |
//! | conclude | on the first shelf again | the note is deleted |
//!
//! A process that dies in between leaves the note, and any process that finds it finishes the move.
//! No unit is lost or duplicated, regardless of who does each step and how often. The lock only
//! keeps processes that want the last units from taking them from each other forever.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{Guard, Tenure};
use tokio::sync::OnceCell;
use tracing::debug;

use super::shelves::{Shelf, Shelves};
use super::standing::{Look, Move};
use super::turn::Turn;
use super::{RedisGate, not_understood, script, whole, words};
use crate::error::{Error, Result};
use crate::failpoint::{bug, failpoint};
use crate::names::lock_name;

/// How long a buyer waits while others take the units that were brought.
pub(super) const BRING_MAX: Duration = Duration::from_secs(3);
/// How often shelves that keep changing are read again.
const LOOKS_MAX: u32 = 16;
/// How long a process that died blocks the others.
const LOCK_TTL: Duration = Duration::from_secs(1);
/// How long to wait for the lock: longer than the lock of a process that died.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// The result of looking for units on other shelves.
#[derive(Debug)]
pub(super) enum Brought {
    /// Some are here, or were: try again. With the lock, if this process acquired it.
    Here(Option<Guard>),
    /// At some moment since the request, all shelves together had this few.
    SoldOut { left: u64 },
    /// A shelf must be loaded first.
    Stale,
    /// The result was not known in time.
    Busy,
}

/// The result of reading all shelves, for all callers that wait for it.
#[derive(Clone, Debug)]
enum Seen {
    /// The units of each, starting with the first. Enough for the caller that read them.
    Some(Arc<[u64]>),
    /// At some moment since they asked, all shelves together had this few.
    SoldOut {
        left: u64,
    },
    Stale,
    Busy,
}

/// The result of fetching units to a shelf, for all callers that wait there.
#[derive(Clone, Copy, Debug)]
enum Fetched {
    Here,
    Stale,
    Busy,
}

/// The searches for units in this process.
#[derive(Debug, Default)]
pub(super) struct Moves {
    // Std mutexes, not async ones: they are never held across an await.
    /// The searches, by item: *sold out* is the same for all shelves.
    looks: Mutex<HashMap<String, Arc<Turn<Seen>>>>,
    /// The fetches, by destination shelf.
    fetches: Mutex<HashMap<Arc<Shelf>, Arc<Turn<Fetched>>>>,
    /// Where to connect for the locks, if not connected yet.
    url: Option<String>,
    /// Without locks units are moved too, but processes that want the last ones may compete for
    /// long.
    locks: OnceCell<Tenure>,
}

impl Moves {
    pub(super) fn at(url: &str) -> Self {
        Self {
            url: Some(url.to_owned()),
            ..Self::default()
        }
    }

    pub(super) fn under(locks: Tenure) -> Self {
        Self {
            locks: OnceCell::new_with(Some(locks)),
            ..Self::default()
        }
    }

    /// Drops the searches for units of this item; later ones start again.
    pub(super) fn forget(&self, item: &str) {
        held(&self.looks).remove(item);
        held(&self.fetches).retain(|home, _| home.item != item);
    }

    fn looking(&self, item: &str) -> Arc<Turn<Seen>> {
        let mut looks = held(&self.looks);
        if let Some(turn) = looks.get(item) {
            return Arc::clone(turn);
        }
        Arc::clone(looks.entry(item.to_owned()).or_default())
    }

    fn fetching(&self, home: &Arc<Shelf>) -> Arc<Turn<Fetched>> {
        let mut fetches = held(&self.fetches);
        if let Some(turn) = fetches.get(home) {
            return Arc::clone(turn);
        }
        Arc::clone(fetches.entry(Arc::clone(home)).or_default())
    }

    async fn lock(&self, item: &str) -> Result<Locked> {
        let locks = match (self.locks.get(), &self.url) {
            (Some(locks), _) => locks,
            (None, None) => return Ok(Locked::Free),
            (None, Some(url)) => {
                let connecting = || Tenure::builder(url).name("tenure-sale").connect();
                let locks = self.locks.get_or_try_init(connecting).await;
                locks
                    .map_err(|error| Error::store("cannot connect to the gate for locks", error))?
            }
        };
        let lock = locks.lock(lock_name(item, "move")).ttl(LOCK_TTL);
        match lock.wait(LOCK_WAIT_MAX).acquire().await {
            Ok(guard) => Ok(Locked::Ours(guard)),
            Err(error) if error.kind() == tenure::ErrorKind::Busy => Ok(Locked::Busy),
            Err(error) => {
                let wanted = format!("cannot acquire the lock to move units of `{item}`");
                Err(Error::store(wanted, error))
            }
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Locked {
    Ours(Guard),
    /// No locks here.
    Free,
    Busy,
}

impl RedisGate {
    /// Makes sure that this many units are on a shelf, or finds that there are not enough.
    pub(super) async fn bring(
        &self,
        shelves: &Shelves,
        home: &Arc<Shelf>,
        units: u64,
    ) -> Result<Brought> {
        if bug("sold-out-at-home") {
            return Ok(Brought::SoldOut { left: 0 });
        }
        let looking = self.moves.looking(&home.item);
        let (seen, _) = looking.share(self.search(shelves, units)).await?;
        match seen {
            Seen::Some(each) => {
                let nth = usize::try_from(home.place.nth).ok();
                let here = nth.and_then(|nth| each.get(nth));
                let is_here = here.is_some_and(|here| *here >= units);
                // Try again; also if it was only enough for another caller.
                if is_here || sum(each.iter().copied()) < units {
                    return Ok(Brought::Here(None));
                }
            }
            Seen::SoldOut { left } if units > left => return Ok(Brought::SoldOut { left }),
            // That was too few for another caller.
            Seen::SoldOut { .. } => {}
            Seen::Stale => return Ok(Brought::Stale),
            Seen::Busy => return Ok(Brought::Busy),
        }
        let fetching = self.moves.fetching(home);
        let fetched = fetching.share(self.fetch(shelves, home, units)).await?;
        Ok(match fetched {
            (Fetched::Here, guard) => Brought::Here(guard),
            (Fetched::Stale, _) => Brought::Stale,
            (Fetched::Busy, _) => Brought::Busy,
        })
    }

    /// Finishes moves that another process began and abandoned.
    pub(in crate::gate) async fn finish_moves(&self, item: &str) -> Result<()> {
        let shelves = self.shelves(item).await?;
        if shelves.is_spread() {
            let looks = self.look(&shelves).await?;
            if let Some(looks) = all_current(looks) {
                self.finish(&shelves, &looks).await?;
            }
        }
        Ok(())
    }

    /// Checks whether all shelves together have this many.
    async fn search(&self, shelves: &Shelves, units: u64) -> Result<(Seen, Option<Guard>)> {
        for _ in 0..LOOKS_MAX {
            let Some(first) = all_current(self.look(shelves).await?) else {
                return Ok((Seen::Stale, None));
            };
            if self.finish(shelves, &first).await? {
                continue;
            }
            let each = first.iter().map(|look| look.shelf.left.unwrap_or_default());
            let left = sum(each.clone());
            if left >= units {
                return Ok((Seen::Some(each.collect()), None));
            }
            let Some(second) = all_current(self.look(shelves).await?) else {
                return Ok((Seen::Stale, None));
            };
            // Stock only grows by arrivals: if none arrived, no shelf had more than in the first
            // read, at the moment between the two reads.
            let grown = |look: &Look| (look.shelf.epoch, look.came);
            if first.iter().map(grown).eq(second.iter().map(grown)) {
                return Ok((Seen::SoldOut { left }, None));
            }
        }
        Ok((Seen::Busy, None))
    }

    /// Brings units from other shelves, under the lock.
    async fn fetch(
        &self,
        shelves: &Shelves,
        home: &Shelf,
        units: u64,
    ) -> Result<(Fetched, Option<Guard>)> {
        let guard = match self.moves.lock(&home.item).await? {
            Locked::Ours(guard) => Some(guard),
            Locked::Free => None,
            Locked::Busy => return Ok((Fetched::Busy, None)),
        };
        // The previous holder of the lock may have changed everything.
        let Some(looks) = all_current(self.look(shelves).await?) else {
            return Ok((Fetched::Stale, None));
        };
        if self.finish(shelves, &looks).await? {
            return Ok((Fetched::Here, guard));
        }
        let mut has = 0;
        let mut others = Vec::new();
        for look in looks {
            let left = look.shelf.left.unwrap_or_default();
            if look.shelf.nth == home.place.nth {
                has = left;
            } else if let Some(shelf) = shelves.nth(look.shelf.nth) {
                others.push((left, shelf, look.shelf.epoch));
            }
        }
        // The shelf with the most units first.
        others.sort_unstable_by_key(|(left, ..)| std::cmp::Reverse(*left));
        for (_, giver, epoch) in others {
            if has >= units {
                break;
            }
            let Some(more) = self.move_from(giver, home, epoch, units - has).await? else {
                return Ok((Fetched::Stale, None));
            };
            has = has.saturating_add(more);
        }
        Ok((Fetched::Here, guard))
    }

    /// Moves the wanted number, or half of what is there; returns how many. `None` if a shelf is
    /// stale.
    async fn move_from(
        &self,
        giver: &Shelf,
        home: &Shelf,
        epoch: u64,
        wanted: u64,
    ) -> Result<Option<u64>> {
        let item = giver.item.as_str();
        let arguments = [epoch, home.place.nth, wanted].map(|number| number.to_string());
        let keys = [&giver.keys.gate];
        let reply = self.script(item, &script::GIVE, &keys, &arguments).await?;
        let parts = reply.as_array().unwrap_or_default();
        let given = match (words(&reply).0, parts) {
            (Some("given"), [_, number, units]) => Move {
                number: whole(item, number)?,
                to: home.place.nth,
                units: whole(item, units)?,
            },
            // A process without the lock: the next caller sees the note and finishes the move.
            (Some("none" | "under way"), _) => return Ok(Some(0)),
            (Some("stale"), _) => return Ok(None),
            _ => return Err(not_understood(item, &reply)),
        };
        failpoint("move.after_give");
        debug!(
            item,
            from = giver.place.nth,
            to = given.to,
            given.units,
            "units move"
        );
        let arrived = self.hand_over(giver, home, epoch, given).await?;
        Ok(arrived.then_some(given.units))
    }

    /// Finishes all moves that were seen; returns whether there were any.
    async fn finish(&self, shelves: &Shelves, looks: &[Look]) -> Result<bool> {
        let mut any = false;
        for look in looks {
            let Some(given) = look.given else {
                continue;
            };
            if let Some((giver, home)) = shelves.nth(look.shelf.nth).zip(shelves.nth(given.to)) {
                any = true;
                self.hand_over(giver, home, look.shelf.epoch, given).await?;
            }
        }
        Ok(any)
    }

    /// Receives the given units, and deletes the note. `false` if the shelf is stale.
    async fn hand_over(
        &self,
        giver: &Shelf,
        home: &Shelf,
        epoch: u64,
        given: Move,
    ) -> Result<bool> {
        let item = giver.item.as_str();
        let arguments = [epoch, giver.place.nth, given.number, given.units];
        let arguments = arguments.map(|number| number.to_string());
        let keys = [&home.keys.gate];
        let reply = self
            .script(item, &script::RECEIVE, &keys, &arguments)
            .await?;
        match words(&reply).0 {
            Some("received" | "before") => {}
            Some("stale") => return Ok(false),
            _ => return Err(not_understood(item, &reply)),
        }
        failpoint("move.after_receive");
        let arguments = [epoch, given.number].map(|number| number.to_string());
        let keys = [&giver.keys.gate];
        self.yes(item, &script::CONCLUDE, &keys, &arguments).await?;
        Ok(true)
    }
}

fn sum(units: impl Iterator<Item = u64>) -> u64 {
    units.fold(0, u64::saturating_add)
}

/// The shelves, if all of them sell, under one epoch.
fn all_current(looks: Vec<Option<Look>>) -> Option<Vec<Look>> {
    let looks: Vec<Look> = looks.into_iter().collect::<Option<_>>()?;
    let epoch = looks.first()?.shelf.epoch;
    let sells = |look: &Look| {
        let shelf = &look.shelf;
        shelf.current && shelf.state.is_some() && shelf.epoch == epoch
    };
    looks.iter().all(sells).then_some(looks)
}
