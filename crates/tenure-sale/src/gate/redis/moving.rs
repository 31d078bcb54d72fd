//! Moving units from one shelf to another, and saying when nothing is left on any.
//!
//! | step | where | what is written |
//! |---|---|---|
//! | give | on the shelf that has some | less stock, and a note: the number of the move, to whom, how many |
//! | receive | on the shelf that lacks some | more stock, and the number, so that it is done once |
//! | conclude | on the first again | the note is struck out |
//!
//! Whoever dies in between leaves the note, and whoever finds it does the rest. No unit is lost or
//! doubled, whoever does what how often; the lock is there so that those who want the last units do
//! not take them from each other for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Guard, Tenure};
use tokio::sync::OnceCell;
use tracing::debug;

use super::shelves::{Shelf, Shelves};
use super::standing::{Given, Look};
use super::{RedisGate, not_understood, script, whole, words};
use crate::error::{Error, Result};
use crate::failpoint::{bug, failpoint};

/// How long a buyer is kept while others take what was brought.
pub(super) const BRING_MAX: Duration = Duration::from_secs(3);
/// How often shelves are looked at that do not come to rest.
const LOOKS_MAX: u32 = 16;
/// How long a process that died keeps the others waiting.
const LOCK_TTL: Duration = Duration::from_secs(1);
/// How long to wait for the lock: longer than one who died has it.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// What came of looking for units elsewhere.
#[derive(Debug)]
pub(super) enum Brought {
    /// Some are here, or were: ask again. With the lock, if this process took it.
    Here(Option<Guard>),
    /// There was a moment since the question in which all shelves together had so few.
    SoldOut { left: u64 },
    /// A shelf must be loaded first.
    Stale,
    /// It could not be said in time.
    Busy,
}

/// The same, for those who share it.
#[derive(Clone, Copy, Debug)]
enum Found {
    Here,
    SoldOut { left: u64 },
    Stale,
    Busy,
}

/// Those who look for units in this process.
#[derive(Debug, Default)]
pub(super) struct Moves {
    // A std mutex, not an async one: nobody waits while it is held.
    turns: Mutex<HashMap<Arc<Shelf>, Arc<Turn>>>,
    /// Where the locks are, if they are not there yet.
    url: Option<String>,
    /// Without locks units are moved too, but those who want the last ones may go on for long.
    locks: OnceCell<Tenure>,
}

/// Those who look for units for one shelf: who comes while one looks shares the next look.
#[derive(Debug, Default)]
struct Turn {
    /// How many have asked so far.
    asked: AtomicU64,
    state: tokio::sync::Mutex<TurnState>,
}

#[derive(Debug, Default)]
struct TurnState {
    /// So many of them are served by a look that began after they asked.
    served: u64,
    /// What it found.
    found: Option<Result<Found>>,
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

    fn turn(&self, home: &Arc<Shelf>) -> Arc<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(home) {
            return Arc::clone(turn);
        }
        Arc::clone(turns.entry(Arc::clone(home)).or_default())
    }

    async fn lock(&self, item: &str) -> Result<Locked> {
        let locks = match (self.locks.get(), &self.url) {
            (Some(locks), _) => locks,
            (None, None) => return Ok(Locked::Free),
            (None, Some(url)) => {
                let connecting = || Tenure::builder(url).name("tenure-sale").connect();
                let locks = self.locks.get_or_try_init(connecting).await;
                locks.map_err(|error| Error::store("cannot reach the locks of the gate", error))?
            }
        };
        let lock = locks.lock(format!("sale:{{{item}}}:move")).ttl(LOCK_TTL);
        match lock.acquire_within(LOCK_WAIT_MAX).await {
            Ok(guard) => Ok(Locked::Ours(guard)),
            Err(error) if error.kind() == tenure::ErrorKind::Busy => Ok(Locked::Busy),
            Err(error) => {
                let wanted = format!("cannot take the lock to move units of `{item}`");
                Err(Error::store(wanted, error))
            }
        }
    }
}

enum Locked {
    Ours(Guard),
    /// Nobody locks here.
    Free,
    Busy,
}

impl RedisGate {
    /// Sees to it that so many units are on a shelf, or finds out that there are not so many.
    pub(super) async fn bring(
        &self,
        shelves: &Shelves,
        home: &Arc<Shelf>,
        units: u64,
    ) -> Result<Brought> {
        let turn = self.moves.turn(home);
        let ticket = turn.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut state = turn.state.lock().await;
        if state.served >= ticket
            && let Some(found) = &state.found
        {
            return match found {
                // That was too few for somebody else.
                Ok(Found::SoldOut { left }) if units <= *left => Ok(Brought::Here(None)),
                Ok(found) => Ok(found.brought(None)),
                Err(error) => Err(error.shared()),
            };
        }
        let served = turn.asked.load(Ordering::SeqCst);
        let found = self.search(shelves, home, units).await;
        state.served = served;
        match found {
            Ok((found, guard)) => {
                state.found = Some(Ok(found));
                Ok(found.brought(guard))
            }
            Err(error) => {
                state.found = Some(Err(error.shared()));
                Err(error)
            }
        }
    }

    /// Finishes what somebody began who is gone.
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

    async fn search(
        &self,
        shelves: &Shelves,
        home: &Shelf,
        units: u64,
    ) -> Result<(Found, Option<Guard>)> {
        if bug("sold-out-at-home") {
            return Ok((Found::SoldOut { left: 0 }, None));
        }
        for _ in 0..LOOKS_MAX {
            let Some(first) = all_current(self.look(shelves).await?) else {
                return Ok((Found::Stale, None));
            };
            if self.finish(shelves, &first).await? {
                continue;
            }
            let here = |look: &&Look| look.shelf.nth == home.place.nth;
            let here = first.iter().find(here).and_then(|look| look.shelf.left);
            if here.is_some_and(|left| left >= units) {
                return Ok((Found::Here, None));
            }
            let left = first.iter().filter_map(|look| look.shelf.left);
            let left = left.fold(0, u64::saturating_add);
            if left >= units {
                return self.fetch(shelves, home, units).await;
            }
            let Some(second) = all_current(self.look(shelves).await?) else {
                return Ok((Found::Stale, None));
            };
            // Stock grows only by what these count: if none has grown, all had no more than they had
            // at first, at the moment between the looks.
            let grown = |look: &Look| (look.shelf.epoch, look.shelf.change, look.arrivals);
            if first.iter().map(grown).eq(second.iter().map(grown)) {
                return Ok((Found::SoldOut { left }, None));
            }
        }
        Ok((Found::Busy, None))
    }

    /// Brings units from other shelves, under the lock.
    async fn fetch(
        &self,
        shelves: &Shelves,
        home: &Shelf,
        units: u64,
    ) -> Result<(Found, Option<Guard>)> {
        let guard = match self.moves.lock(&home.item).await? {
            Locked::Ours(guard) => Some(guard),
            Locked::Free => None,
            Locked::Busy => return Ok((Found::Busy, None)),
        };
        // Whoever had the lock before may have changed everything.
        let Some(looks) = all_current(self.look(shelves).await?) else {
            return Ok((Found::Stale, None));
        };
        if self.finish(shelves, &looks).await? {
            return Ok((Found::Here, guard));
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
        // The richest first.
        others.sort_unstable_by_key(|(left, ..)| std::cmp::Reverse(*left));
        for (_, giver, epoch) in others {
            if has >= units {
                break;
            }
            let Some(more) = self.move_from(giver, home, epoch, units - has).await? else {
                return Ok((Found::Stale, None));
            };
            has = has.saturating_add(more);
        }
        Ok((Found::Here, guard))
    }

    /// Moves what is wanted, or half of what is there; returns how much. `None` if a shelf is stale.
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
            (Some("given"), [_, number, units]) => Given {
                number: whole(item, number)?,
                to: home.place.nth,
                units: whole(item, units)?,
            },
            // Somebody without the lock: who comes next sees the note, and finishes it.
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

    /// Finishes all moves that were seen; whether there were any.
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

    /// Lets units that were given arrive, and strikes the note out. `false` if the shelf is stale.
    async fn hand_over(
        &self,
        giver: &Shelf,
        home: &Shelf,
        epoch: u64,
        given: Given,
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

impl Found {
    fn brought(self, guard: Option<Guard>) -> Brought {
        match self {
            Self::Here => Brought::Here(guard),
            Self::SoldOut { left } => Brought::SoldOut { left },
            Self::Stale => Brought::Stale,
            Self::Busy => Brought::Busy,
        }
    }
}

/// The shelves if all of them sell, under one epoch.
fn all_current(looks: Vec<Option<Look>>) -> Option<Vec<Look>> {
    let looks: Vec<Look> = looks.into_iter().collect::<Option<_>>()?;
    let epoch = looks.first()?.shelf.epoch;
    let sells = |look: &Look| {
        let shelf = &look.shelf;
        shelf.current && shelf.state.is_some() && shelf.epoch == epoch
    };
    looks.iter().all(sells).then_some(looks)
}
