//! A gate on Redis: single, behind sentinels, or a cluster. All keys of an item share a slot.

mod entry;
mod keys;
mod queue;
mod readers;
mod script;

use std::sync::Arc;

use tenure::Fence;
use tenure::redis::{Client, Script, Value};

use self::keys::{Keys, answer, answer_field, order_id, push_request};
use self::readers::Readers;
use super::clock::{micros, millis};
use super::combiner::{Call, Combiner};
use super::fold::Fold;
use super::reference;
use super::{Applied, Load, Remembered, Standing, Taken};
use crate::entry::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::item::{ItemState, Terms};
use crate::ledger::Change;
use crate::order::{Answer, OrderId, Outcome, Request};

/// Buyers and answers of one call while loading: others want the server in between.
const LOADED_AT_ONCE: usize = 500;
/// No arguments.
const NONE: &[&str] = &[];

#[derive(Clone, Debug)]
pub(super) struct RedisGate {
    redis: Client,
    asks: Combiner<Asking>,
    readers: Arc<Readers>,
}

impl RedisGate {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let redis = Client::connect(url).await;
        let redis = redis.map_err(|error| Error::store("cannot reach the gate", error))?;
        Ok(Self::on(redis))
    }

    pub(super) fn on(redis: Client) -> Self {
        Self {
            asks: Combiner::new(Asking(redis.clone())),
            readers: Arc::default(),
            redis,
        }
    }

    pub(super) async fn ask(&self, request: &Request) -> Result<Answer> {
        self.asks.ask(request).await
    }

    pub(super) async fn standing(&self, item: &str) -> Result<Option<Standing>> {
        let keys = Keys::of(item);
        let keys = [&keys.gate, &keys.orders, &keys.dead];
        let reply = self.script(item, &script::STANDING, &keys, NONE).await?;
        if reply.is_nil() {
            return Ok(None);
        }
        let standing = standing(reply.as_array().unwrap_or_default());
        let standing = standing.ok_or_else(|| not_understood(item, &reply))?;
        Ok(Some(standing))
    }

    pub(super) async fn apply(
        &self,
        item: &str,
        epoch: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Applied> {
        let fold = Fold::of(item, after, changes)?;
        let mut arguments = vec![
            epoch.to_string(),
            after.to_string(),
            fold.to.to_string(),
            fold.units.to_string(),
            fold.state.map_or("", ItemState::word).to_owned(),
            fold.terms.map_or("", |_| "1").to_owned(),
        ];
        arguments.extend(fold.terms.map_or_else(Default::default, terms));
        for (buyer, units) in &fold.buyers {
            arguments.extend([(*buyer).to_owned(), units.to_string()]);
        }
        let keys = Keys::of(item);
        let keys = [&keys.gate, &keys.buyers, &keys.answers];
        let reply = self.script(item, &script::APPLY, &keys, &arguments).await?;
        match words(&reply) {
            (Some("done"), _) => Ok(Applied::Done),
            (Some("stale"), _) => Ok(Applied::Stale),
            (Some("at"), Some(number)) => Ok(Applied::At(whole(item, number)?)),
            _ => Err(not_understood(item, &reply)),
        }
    }

    pub(super) async fn take(&self, item: &str, wanted: &Wanted) -> Result<Taken> {
        let reference = reference(item, wanted)?;
        let (units, buyer) = match wanted {
            Wanted::Order { units, buyer, .. } | Wanted::Again { units, buyer, .. } => {
                (*units, buyer.as_str())
            }
            Wanted::Withdrawal { units, .. } => (*units, ""),
        };
        let mut arguments = vec![reference.clone(), units.to_string(), buyer.to_owned()];
        arguments.extend(entry::fields(wanted));
        let keys = Keys::of(item);
        let keys = [&keys.gate, &keys.buyers, &keys.answers, &keys.orders];
        let reply = self.script(item, &script::TAKE, &keys, &arguments).await?;
        let parts = words(&reply);
        let order = |id: &Value| read_order(item, id);
        match parts {
            (Some("queued"), Some(id)) => Ok(Taken::Queued(order(id)?)),
            (Some("replayed"), Some(id)) => Ok(Taken::Replayed(order(id)?)),
            (Some("conflict"), Some(_)) => Err(super::other_units(item, &reference)),
            (Some("sold out"), Some(left)) => Ok(Taken::SoldOut {
                left: whole(item, left)?,
            }),
            (Some("limit"), _) => Ok(Taken::LimitReached),
            (Some("busy"), _) => Ok(Taken::Busy),
            (Some("no item"), _) => Ok(Taken::NoItem),
            (Some("stale"), _) => Ok(Taken::StaleEpoch),
            _ => Err(not_understood(item, &reply)),
        }
    }

    pub(super) async fn begin_load(&self, item: &str, epoch: u64, fence: Fence) -> Result<bool> {
        let keys = Keys::of(item);
        let keys = [&keys.gate, &keys.buyers, &keys.answers, &keys.orders];
        let arguments = [epoch.to_string(), fence.to_string()];
        let reply = self
            .script(item, &script::BEGIN_LOAD, &keys, &arguments)
            .await?;
        match words(&reply) {
            (Some("begun"), _) => Ok(true),
            (Some("refused"), _) => Ok(false),
            (Some("foreign"), Some(id)) => Err(super::foreign_id(item, epoch, id)),
            _ => Err(not_understood(item, &reply)),
        }
    }

    pub(super) async fn load_buyers(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        buyers: &[(String, u64)],
        answers: &[Remembered],
    ) -> Result<bool> {
        for buyers in buyers.chunks(LOADED_AT_ONCE) {
            if !self.load_some(item, epoch, fence, buyers, &[]).await? {
                return Ok(false);
            }
        }
        for answers in answers.chunks(LOADED_AT_ONCE) {
            if !self.load_some(item, epoch, fence, &[], answers).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn load_some(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        buyers: &[(String, u64)],
        answers: &[Remembered],
    ) -> Result<bool> {
        let head = [
            epoch.to_string(),
            fence.to_string(),
            buyers.len().to_string(),
        ];
        let mut arguments: Vec<Vec<u8>> = head.map(String::into_bytes).into();
        for (buyer, units) in buyers {
            arguments.extend([buyer.clone().into(), units.to_string().into()]);
        }
        for known in answers {
            arguments.push(answer_field(&known.buyer, &known.request));
            arguments.push(answer(&known.order, known.units).into());
        }
        let keys = Keys::of(item);
        let keys = [&keys.gate, &keys.buyers, &keys.answers];
        self.yes(item, &script::LOAD_BUYERS, &keys, &arguments)
            .await
    }

    pub(super) async fn finish_load(&self, item: &str, load: &Load) -> Result<bool> {
        let mut arguments = vec![
            load.epoch.to_string(),
            load.fence.to_string(),
            load.state.word().to_owned(),
            optional(load.left),
            load.change.to_string(),
        ];
        arguments.extend(terms(&load.terms));
        let keys = Keys::of(item);
        let keys = [&keys.gate, &keys.buyers, &keys.answers];
        self.yes(item, &script::FINISH_LOAD, &keys, &arguments)
            .await
    }

    pub(super) async fn forget(&self, item: &str) -> Result<bool> {
        let Keys {
            gate,
            buyers,
            answers,
            orders,
            dead,
        } = &Keys::of(item);
        let keys = [gate, buyers, answers, orders, dead];
        let forgotten = self.yes(item, &script::FORGET, &keys, NONE).await?;
        if forgotten {
            self.readers.forget(item);
        }
        Ok(forgotten)
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

    /// Runs a script that answers 1 or 0.
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

/// How requests that travel together reach the server.
#[derive(Clone, Debug)]
pub(super) struct Asking(Client);

impl Call for Asking {
    async fn call(&self, item: &str, requests: &[Request]) -> Result<Vec<Answer>> {
        let keys = Keys::of(item);
        let keys = [&keys.gate, &keys.buyers, &keys.answers, &keys.orders];
        let mut arguments = Vec::with_capacity(4 * requests.len());
        for request in requests {
            push_request(&mut arguments, request);
        }
        let reply = self.0.script(&script::ASK, &keys, &arguments).await;
        let reply = reply.map_err(|error| unanswered(item, error))?;
        let parts = reply.as_array().unwrap_or_default();
        if parts.len() != 3 * requests.len() {
            return Err(not_understood(item, &reply));
        }
        let answers = parts.chunks_exact(3).map(|parts| read_answer(item, parts));
        answers
            .collect::<Option<_>>()
            .ok_or_else(|| not_understood(item, &reply))
    }
}

fn read_answer(item: &str, parts: &[Value]) -> Option<Answer> {
    let order = || order_id(item, parts[1].as_str()?);
    let outcome = match parts[0].as_str()? {
        "accepted" => Outcome::Accepted(order()?),
        "replayed" => Outcome::Replayed(order()?),
        "conflict" => Outcome::Conflict(order()?),
        "no item" => Outcome::NoItem,
        "stale" => Outcome::StaleEpoch,
        "not started" => Outcome::NotStarted,
        "ended" => Outcome::Ended,
        "paused" => Outcome::Paused,
        "limit" => Outcome::LimitReached,
        "busy" => Outcome::Busy,
        "sold out" => Outcome::SoldOut,
        _ => return None,
    };
    let left = match parts[2].as_str()? {
        "" => None,
        left => Some(left.parse().ok()?),
    };
    Some(Answer { outcome, left })
}

fn standing(parts: &[Value]) -> Option<Standing> {
    let [current, state, epoch, left, change, queued, pending, dead] = parts else {
        return None;
    };
    let number = |value: &Value| u64::try_from(value.as_int()?).ok();
    let left = match left.as_str()? {
        "" => None,
        left => Some(left.parse().ok()?),
    };
    Some(Standing {
        current: current.as_int()? == 1,
        state: ItemState::of_word(state.as_str()?),
        epoch: number(epoch)?,
        left,
        change: number(change).unwrap_or_default(),
        queued: number(queued)?,
        queued_units: None,
        pending: number(pending)?,
        dead: number(dead)?,
    })
}

/// Terms as the scripts want them, in this order.
fn terms(terms: &Terms) -> [String; 6] {
    [
        optional(terms.starts_at.map(micros)),
        optional(terms.ends_at.map(micros)),
        optional(terms.limit_per_buyer),
        terms.units_per_order.to_string(),
        terms.backlog_max.to_string(),
        millis(terms.answers_kept).to_string(),
    ]
}

fn optional(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// A word and what belongs to it.
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

/// The failure of an order that was asked for: what is known of it?
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
            "the gate of `{item}` gave no answer, and what became of the order is unknown: ask again \
             with the same request id"
        )
    };
    Error::store(message, error)
}

fn not_understood(item: &str, value: &Value) -> Error {
    let message = format!("cannot understand the answer `{value}` of the gate of `{item}`");
    Error::new(ErrorKind::Protocol, message)
}
