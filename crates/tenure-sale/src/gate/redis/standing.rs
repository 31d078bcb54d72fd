//! The gate's state of an item, summed over its shelves.

use tenure::redis::{Command, Value};

use super::keys::GROUP;
use super::shelves::{Shelf, Shelves};
use super::{NONE, RedisGate, failed, not_understood, script};
use crate::error::Result;
use crate::failpoint::bug;
use crate::gate::standing::{Ends, Given, ShelfStanding, Standing};
use crate::item::ItemState;
use crate::order::OrderId;

/// One read of a shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) shelf: ShelfStanding,
    /// The number of shelves of the item, according to this one.
    spread: Option<u64>,
    /// Keys that hold something else than what the gate writes there.
    foreign: Vec<String>,
    /// Whether it was stopped.
    stopped: bool,
    /// The ends of its queue.
    pub(super) ends: Ends,
    /// The units that have arrived since it was loaded: its stock only grows by these.
    pub(super) came: Option<u64>,
    /// The units that it gave to another shelf, if that move is not concluded.
    pub(super) given: Option<Move>,
}

/// A recorded move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) number: u64,
    pub(super) to: u64,
    pub(super) units: u64,
}

impl RedisGate {
    pub(in crate::gate) async fn standing(&self, item: &str) -> Result<Option<Standing>> {
        let mut shelves = self.spreads.known_or_one(item);
        let mut looks = self.look(&shelves).await?;
        if let Some(Some(first)) = looks.first()
            && let Some(spread) = first.spread.filter(|spread| *spread != shelves.spread())
        {
            shelves = self.spreads.learn(item, spread);
            looks = self.look(&shelves).await?;
        }
        if looks.iter().all(Option::is_none) {
            return Ok(None);
        }
        let queues = looks.iter().map(|look| match look {
            Some(look) => look.ends,
            None => Ends::default(),
        });
        let queues = queues.collect();
        let stopped = looks.iter().flatten().any(|look| look.stopped);
        let known = looks.into_iter().flatten();
        let (known, foreign): (Vec<_>, Vec<_>) =
            known.map(|look| (look.shelf, look.foreign)).unzip();
        let standing = match &known[..] {
            [only] if !shelves.is_spread() => plain(only),
            _ => together(known, shelves.spread()),
        };
        Ok(Some(Standing {
            foreign: foreign.concat(),
            stopped,
            queues,
            ..standing
        }))
    }

    pub(in crate::gate) async fn sells(&self, order: &OrderId) -> Result<Option<Given>> {
        let shelves = self.shelves(order.item()).await?;
        let shelf = shelves.of_order(order);
        let Some(look) = self.look_at(shelf).await? else {
            return Ok(None);
        };
        let Some(spread) = look.spread else {
            return Ok(None);
        };
        if spread != shelves.spread() {
            // It was another shelf.
            self.spreads.learn(order.item(), spread);
            return Ok(None);
        }
        let sells = look.shelf.current && look.shelf.state.is_some();
        if !sells || look.shelf.epoch != order.epoch() {
            return Ok(None);
        }
        if order.number() / spread >= look.ends.given(order.epoch()) {
            return Ok(Some(Given::Never));
        }
        let id = shelf.entry_of(order);
        let command = Command::new("XPENDING").arg(&shelf.keys.orders).arg(GROUP);
        let command = command.arg(&id).arg(&id).arg(1);
        let reply = self.redis.run(command).await;
        let reply = reply.map_err(|error| failed(order.item(), error))?;
        let is_held = !reply.as_array().unwrap_or_default().is_empty();
        Ok(Some(if is_held { Given::Held } else { Given::Gone }))
    }

    /// Reads all shelves; `None` for those that do not know the item.
    pub(super) async fn look(&self, shelves: &Shelves) -> Result<Vec<Option<Look>>> {
        self.on_each(
            shelves,
            |gate, shelf| async move { gate.look_at(&shelf).await },
        )
        .await
    }

    async fn look_at(&self, shelf: &Shelf) -> Result<Option<Look>> {
        let item = shelf.item.as_str();
        let reply = self
            .script(item, &script::STANDING, &shelf.keys.all(), NONE)
            .await?;
        if reply.is_nil() {
            return Ok(None);
        }
        let look = read(shelf, reply.as_array().unwrap_or_default());
        let look = look.ok_or_else(|| not_understood(item, &reply))?;
        Ok(Some(look))
    }
}

/// The state of an item with one shelf.
fn plain(shelf: &ShelfStanding) -> Standing {
    Standing {
        current: shelf.current,
        state: shelf.state,
        epoch: shelf.epoch,
        left: shelf.left,
        moving: 0,
        change: shelf.change,
        queued: shelf.queued,
        queued_units: None,
        pending: shelf.pending,
        dead: shelf.dead,
        shelves: Vec::new(),
        foreign: Vec::new(),
        stopped: false,
        queues: Vec::new(),
    }
}

/// The combined state of the shelves that know the item.
fn together(shelves: Vec<ShelfStanding>, spread: u64) -> Standing {
    let all = shelves.len() as u64 == spread;
    let sum = |of: fn(&ShelfStanding) -> u64| shelves.iter().map(of).fold(0, u64::saturating_add);
    let epoch = shelves.iter().map(|shelf| shelf.epoch).max();
    let epoch = epoch.unwrap_or_default();
    let is_current = |shelf: &ShelfStanding| shelf.current && shelf.epoch == epoch;
    // The first shelf is updated last: its state is what all have reached.
    let is_loaded = all && shelves.iter().all(|shelf| shelf.state.is_some());
    let state = shelves.first().and_then(|shelf| shelf.state);
    let left: Option<u64> = shelves.iter().map(|shelf| shelf.left).sum();
    Standing {
        current: all && shelves.iter().all(is_current),
        state: state.filter(|_| is_loaded),
        epoch,
        left: left.filter(|_| is_loaded),
        moving: sum(|shelf| shelf.moving),
        change: shelves.first().map_or(0, |shelf| shelf.change),
        queued: sum(|shelf| shelf.queued),
        queued_units: None,
        pending: sum(|shelf| shelf.pending),
        dead: sum(|shelf| shelf.dead),
        shelves,
        foreign: Vec::new(),
        stopped: false,
        queues: Vec::new(),
    }
}

fn read(shelf: &Shelf, parts: &[Value]) -> Option<Look> {
    let [
        current,
        state,
        epoch,
        left,
        change,
        queued,
        pending,
        dead,
        rest @ ..,
    ] = parts
    else {
        return None;
    };
    let [spread, came, gone, given, foreign, newest, oldest] = rest else {
        return None;
    };
    let number = |value: &Value| u64::try_from(value.as_int()?).ok();
    // Empty, or a number.
    let maybe = |value: &Value| match value.as_str()? {
        "" => Some(None),
        number => Some(Some(number.parse::<u64>().ok()?)),
    };
    let given = match given.as_str()? {
        "" => None,
        given => Some(read_given(given)?),
    };
    let (left, came) = (maybe(left)?, maybe(came)?);
    let books = left.zip(came).zip(maybe(gone)?);
    let drift =
        books.map(|((left, came), gone)| i128::from(came) - i128::from(gone) - i128::from(left));
    Some(Look {
        shelf: ShelfStanding {
            nth: shelf.place.nth,
            current: current.as_int()? == 1 || bug("lost-queue-unseen"),
            state: ItemState::of_word(state.as_str()?),
            epoch: number(epoch)?,
            left,
            moving: given.map_or(0, |given| given.units),
            drift: drift.unwrap_or_default(),
            change: number(change).unwrap_or_default(),
            queued: number(queued)?,
            pending: number(pending)?,
            dead: number(dead)?,
        },
        spread: maybe(spread)?,
        stopped: state.as_str()? == "stopped",
        foreign: read_foreign(shelf, foreign.as_str()?)?,
        ends: Ends {
            newest: read_id(newest.as_str()?),
            oldest: read_id(oldest.as_str()?),
        },
        came,
        given,
    })
}

/// An id of the queue. A new queue has the id zero, which is nobody's.
fn read_id(text: &str) -> Option<(u64, u64)> {
    let (epoch, place) = text.split_once('-')?;
    let id = (epoch.parse().ok()?, place.parse().ok()?);
    (id != (0, 0)).then_some(id)
}

/// The keys with these indexes, which start at one.
fn read_foreign(shelf: &Shelf, indexes: &str) -> Option<Vec<String>> {
    let keys = shelf.keys.all();
    let key = |index: &str| {
        let nth = index.parse::<usize>().ok()?.checked_sub(1)?;
        Some((*keys.get(nth)?).clone())
    };
    indexes.split_whitespace().map(key).collect()
}

fn read_given(text: &str) -> Option<Move> {
    let mut parts = text.split(':').map(|part| part.parse().ok());
    let given = Move {
        number: parts.next()??,
        to: parts.next()??,
        units: parts.next()??,
    };
    parts.next().is_none().then_some(given)
}
