//! A gate on Redis: standalone, Sentinel or Cluster. All keys of an item share a slot; for a spread
//! item, all keys of a shelf.

mod alive;
mod asking;
mod before;
mod entry;
mod keys;
mod loading;
mod moving;
mod pairing;
mod queue;
mod readers;
mod script;
mod shelves;
mod standing;
mod turn;

use std::sync::Arc;

use tenure::Tenure;
use tenure::redis::{Client, Command, Script, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::asking::Asking;
use self::keys::order_id;
use self::moving::{BRING_MAX, Brought, Moves};
use self::readers::Readers;
use self::shelves::{Shelf, Shelves, Spreads};
use super::checks::reference;
use super::clock::{micros, millis};
use super::combiner::Combiner;
use super::fold::Fold;
use super::outcome::{Applied, Taken};
use crate::change::Change;
use crate::entry::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::item::{ItemState, TERM_MAX, Terms};
use crate::order::{Answer, OrderId, Outcome, Request};

/// No arguments.
const NONE: &[&str] = &[];
/// How often a call retries after learning that an item's spread is different.
const LEARNS_MAX: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct RedisGate {
    redis: Client,
    asks: Combiner<Asking>,
    readers: Arc<Readers>,
    spreads: Arc<Spreads>,
    moves: Arc<Moves>,
}

impl RedisGate {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let redis = Client::connect(url).await;
        let redis = redis.map_err(|error| Error::store("cannot connect to the gate", error))?;
        let mut gate = Self::on(redis);
        gate.moves = Arc::new(Moves::at(url));
        Ok(gate)
    }

    pub(super) fn on(redis: Client) -> Self {
        let spreads = Arc::new(Spreads::under(redis.prefix()));
        Self {
            asks: Combiner::new(Asking {
                redis: redis.clone(),
                spreads: Arc::clone(&spreads),
            }),
            readers: Arc::default(),
            moves: Arc::default(),
            spreads,
            redis,
        }
    }

    pub(super) fn with_locks(mut self, locks: Tenure) -> Self {
        self.moves = Arc::new(Moves::under(locks));
        self
    }

    pub(super) async fn ask(&self, request: &Request) -> Result<Answer> {
        let item = request.item();
        let mut learns = 0;
        loop {
            let shelves = self.spreads.known_or_one(item);
            let answer = if shelves.is_spread() {
                // Boxed: its future is large, and most orders have none.
                Box::pin(self.ask_spread(&shelves, request)).await?
            } else {
                self.asks.ask(shelves.first(), request).await?
            };
            if answer.outcome == Outcome::StaleEpoch
                && self.spreads.known_or_one(item).spread() != shelves.spread()
            {
                learns += 1;
                if learns < LEARNS_MAX {
                    continue;
                }
            }
            return Ok(answer);
        }
    }

    async fn ask_spread(&self, shelves: &Shelves, request: &Request) -> Result<Answer> {
        let end = Instant::now() + BRING_MAX;
        let home = shelves.home(request.buyer());
        // Kept until the next attempt, so that the units are not taken meanwhile.
        let mut lock = None;
        loop {
            let mut answer = self.asks.ask(home, request).await?;
            drop(lock.take());
            // The units left on one shelf are not meaningful.
            answer.left = None;
            if answer.outcome != Outcome::SoldOut {
                return Ok(answer);
            }
            match self.bring(shelves, home, request.wanted()).await? {
                Brought::Here(_) if Instant::now() >= end => answer.outcome = Outcome::Busy,
                Brought::Here(guard) => {
                    lock = guard;
                    continue;
                }
                Brought::SoldOut { left } => answer.left = Some(left),
                Brought::Stale => answer.outcome = Outcome::StaleEpoch,
                Brought::Busy => answer.outcome = Outcome::Busy,
            }
            return Ok(answer);
        }
    }

    pub(super) async fn take(&self, item: &str, wanted: &Wanted) -> Result<Taken> {
        let reference = reference(item, wanted)?;
        let end = Instant::now() + BRING_MAX;
        let mut learns = 0;
        let mut lock = None;
        loop {
            let shelves = self.spreads.known_or_one(item);
            let shelf = match wanted {
                Wanted::Again { buyer, .. } => shelves.home(buyer),
                _ => shelves.first(),
            };
            let taken = self.take_at(shelf, &reference, wanted).await?;
            drop(lock.take());
            let Some(taken) = taken else {
                learns += 1;
                if learns < LEARNS_MAX {
                    continue;
                }
                return Ok(Taken::StaleEpoch);
            };
            if !shelves.is_spread() || !matches!(taken, Taken::SoldOut { .. }) {
                return Ok(taken);
            }
            match self.bring(&shelves, shelf, wanted.units()).await? {
                Brought::Here(_) if Instant::now() >= end => return Ok(Taken::Busy),
                Brought::Here(guard) => lock = guard,
                Brought::SoldOut { left } => return Ok(Taken::SoldOut { left }),
                Brought::Stale => return Ok(Taken::StaleEpoch),
                Brought::Busy => return Ok(Taken::Busy),
            }
        }
    }

    /// `None` if the item's spread is different from what was known.
    async fn take_at(
        &self,
        shelf: &Shelf,
        reference: &str,
        wanted: &Wanted,
    ) -> Result<Option<Taken>> {
        let item = shelf.item.as_str();
        let (units, buyer) = match wanted {
            Wanted::Order { units, buyer, .. } | Wanted::Again { units, buyer, .. } => {
                (*units, buyer.as_str())
            }
            Wanted::Withdrawal { units, .. } => (*units, ""),
        };
        let mut arguments = vec![
            reference.to_owned(),
            units.to_string(),
            buyer.to_owned(),
            shelf.place.of.to_string(),
            shelf.place.nth.to_string(),
        ];
        arguments.extend(entry::fields(wanted));
        let keys = &shelf.keys;
        let keys = [&keys.gate, &keys.buyers, &keys.answers, &keys.orders];
        let reply = self.script(item, &script::TAKE, &keys, &arguments).await?;
        let order = |id: &Value| read_order(item, id);
        let taken = match words(&reply) {
            (Some("queued"), Some(id)) => Taken::Queued(order(id)?),
            (Some("replayed"), Some(id)) => Taken::Replayed(order(id)?),
            (Some("conflict"), Some(_)) => return Err(super::checks::other_units(item, reference)),
            (Some("sold out"), Some(left)) => Taken::SoldOut {
                left: whole(item, left)?,
            },
            (Some("limit"), _) => Taken::LimitReached,
            (Some("busy"), _) => Taken::Busy,
            (Some("no item"), _) => Taken::NoItem,
            (Some("stale"), _) => Taken::StaleEpoch,
            (Some("spread"), Some(spread)) => {
                self.spreads.learn(item, whole(item, spread)?);
                return Ok(None);
            }
            _ => return Err(not_understood(item, &reply)),
        };
        Ok(Some(taken))
    }

    /// Shelf 0 is updated last, so all others have reached at least its change.
    pub(super) async fn apply(
        &self,
        item: &str,
        epoch: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Applied> {
        // Before anything is sent: whether they are consecutive, and how many units they are.
        Fold::of(item, super::spread::Place::ONLY, after, changes)?;
        let shelves = self.shelves(item).await?;
        if shelves.is_spread() {
            // Whether it would succeed, before the others are updated.
            match self.apply_at(shelves.first(), epoch, after, &[]).await? {
                Applied::Done => {}
                other => return Ok(other),
            }
        }
        for shelf in shelves.all().iter().skip(1) {
            match self.apply_rest(shelf, epoch, after, changes).await? {
                Applied::Done => {}
                other => return Ok(other),
            }
        }
        self.apply_at(shelves.first(), epoch, after, changes).await
    }

    /// Sends a shelf the changes that it has not received from another relay, or from one that
    /// died.
    async fn apply_rest(
        &self,
        shelf: &Shelf,
        epoch: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Applied> {
        let last = changes.last().map_or(after, |change| change.number);
        let mut at = after;
        loop {
            let told = changes.partition_point(|change| change.number <= at);
            let applied = self.apply_at(shelf, epoch, at, &changes[told..]).await?;
            match applied {
                Applied::At(number) if number >= last => return Ok(Applied::Done),
                Applied::At(number) if number > at => at = number,
                // Shelf 0 is updated last: one that is behind it was not left so by us.
                Applied::At(_) => return Ok(Applied::Stale),
                applied => return Ok(applied),
            }
        }
    }

    async fn apply_at(
        &self,
        shelf: &Shelf,
        epoch: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Applied> {
        let item = shelf.item.as_str();
        let fold = Fold::of(item, shelf.place, after, changes)?;
        let mut arguments = vec![
            epoch.to_string(),
            after.to_string(),
            fold.to.to_string(),
            fold.units.to_string(),
            fold.state.map_or("", ItemState::word).to_owned(),
            fold.terms.map_or("", |_| "1").to_owned(),
        ];
        arguments.extend(fold.terms.map_or_else(Default::default, terms));
        arguments.push(shelf.place.of.to_string());
        for (buyer, units) in &fold.buyers {
            arguments.extend([(*buyer).to_owned(), units.to_string()]);
        }
        let keys = [&shelf.keys.gate, &shelf.keys.buyers, &shelf.keys.answers];
        let reply = self.script(item, &script::APPLY, &keys, &arguments).await?;
        match words(&reply) {
            (Some("done"), _) => Ok(Applied::Done),
            (Some("stale"), _) => Ok(Applied::Stale),
            (Some("at"), Some(number)) => Ok(Applied::At(whole(item, number)?)),
            (Some("spread"), Some(spread)) => {
                self.spreads.learn(item, whole(item, spread)?);
                Ok(Applied::Stale)
            }
            _ => Err(not_understood(item, &reply)),
        }
    }

    /// The shelves of an item; one if the gate does not know it.
    async fn shelves(&self, item: &str) -> Result<Shelves> {
        let loaded = self.loaded_shelves(item).await?;
        Ok(loaded.unwrap_or_else(|| self.spreads.known_or_one(item)))
    }

    /// The shelves of an item; `None` if the gate does not know it. Only these are read: the first
    /// shelf has the same keys whatever the spread is, but an entry is another order with another
    /// spread.
    async fn loaded_shelves(&self, item: &str) -> Result<Option<Shelves>> {
        if let Some(known) = self.spreads.known(item) {
            return Ok(Some(known));
        }
        let one = self.spreads.known_or_one(item);
        let gate = &one.first().keys.gate;
        let asking = Command::new("HMGET").arg(gate).arg("epoch").arg("spread");
        let reply = self.redis.run(asking).await;
        let reply = reply.map_err(|error| failed(item, error))?;
        let spread = match reply.as_array().unwrap_or_default() {
            [epoch, _] if epoch.is_nil() => return Ok(None),
            [_, spread] if spread.is_nil() => 1,
            [_, spread] => whole(item, spread)?,
            _ => return Err(not_understood(item, &reply)),
        };
        Ok(Some(self.spreads.learn(item, spread)))
    }

    /// Calls all shelves concurrently, and returns the replies in their order.
    async fn on_each<T, Calling>(
        &self,
        shelves: &Shelves,
        call: impl Fn(Self, Arc<Shelf>) -> Calling,
    ) -> Result<Vec<T>>
    where
        T: Send + 'static,
        Calling: Future<Output = Result<T>> + Send + 'static,
    {
        if let [only] = shelves.all() {
            return Ok(vec![call(self.clone(), Arc::clone(only)).await?]);
        }
        let mut calls = JoinSet::new();
        for shelf in shelves.all() {
            let (nth, call) = (shelf.place.nth, call(self.clone(), Arc::clone(shelf)));
            calls.spawn(async move { (nth, call.await) });
        }
        let mut said = Vec::with_capacity(calls.len());
        while let Some(ended) = calls.join_next().await {
            let item = &shelves.first().item;
            let (nth, answer) = ended.map_err(|_| {
                let message =
                    format!("the gate of `{item}` was not called: the runtime is shutting down");
                Error::new(ErrorKind::Store, message)
            })?;
            said.push((nth, answer?));
        }
        said.sort_unstable_by_key(|(nth, _)| *nth);
        Ok(said.into_iter().map(|(_, answer)| answer).collect())
    }

    async fn script(
        &self,
        item: &str,
        script: &Script,
        keys: &[&String],
        arguments: &[impl AsRef<[u8]>],
    ) -> Result<Value> {
        let reply = self.redis.script(script, keys, arguments).await;
        reply.map_err(|error| failed(item, error))
    }

    /// Runs a script that returns 1 or 0.
    async fn yes(
        &self,
        item: &str,
        script: &Script,
        keys: &[&String],
        arguments: &[impl AsRef<[u8]>],
    ) -> Result<bool> {
        let reply = self.script(item, script, keys, arguments).await?;
        match reply.as_int() {
            Some(number @ 0..=1) => Ok(number == 1),
            _ => Err(not_understood(item, &reply)),
        }
    }
}

/// The terms as script arguments, in this order.
fn terms(terms: &Terms) -> [String; 7] {
    [
        optional(terms.starts_at.map(micros)),
        optional(terms.ends_at.map(micros)),
        optional(terms.limit_per_buyer),
        terms.units_per_order.to_string(),
        terms.backlog_max.to_string(),
        // Older ledgers may have a longer time than numbers can express here.
        millis(terms.answers_kept.min(TERM_MAX)).to_string(),
        optional(terms.pay_within.map(millis)),
    ]
}

fn optional(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// A word and its arguments.
fn words(reply: &Value) -> (Option<&str>, Option<&Value>) {
    let parts = reply.as_array().unwrap_or_default();
    (parts.first().and_then(Value::as_str), parts.get(1))
}

fn whole(item: &str, value: &Value) -> Result<u64> {
    let number = value.as_int().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| not_understood(item, value))
}

fn read_order(item: &str, value: &Value) -> Result<OrderId> {
    let order = value.as_str().and_then(|id| order_id(item, id));
    order.ok_or_else(|| not_understood(item, value))
}

fn failed(item: &str, error: tenure::Error) -> Error {
    Error::store(format!("the gate of `{item}` failed"), error)
}

/// The error of a request, with what is known about its outcome.
fn unanswered(item: &str, error: tenure::Error) -> Error {
    use tenure::ErrorKind as Kind;
    let refused = matches!(
        error.kind(),
        Kind::Denied | Kind::OutOfMemory | Kind::ReadOnly | Kind::Unsupported | Kind::NotALock
    );
    let message = if refused {
        format!("the gate of `{item}` refused, and nothing was ordered")
    } else {
        format!(
            "the gate of `{item}` did not reply, and the outcome of the order is unknown: try \
             again with the same request id"
        )
    };
    Error::store(message, error)
}

fn not_understood(item: &str, value: &Value) -> Error {
    let message = format!("unexpected reply `{value}` from the gate of `{item}`");
    Error::new(ErrorKind::Protocol, message)
}
