//! How batched requests reach the server.

use std::sync::Arc;

use tenure::redis::{Client, Value};

use super::keys::{order_id, push_request};
use super::shelves::{Shelf, Spreads};
use super::{not_understood, script, unanswered};
use crate::error::Result;
use crate::gate::combiner::Call;
use crate::order::{Answer, Outcome, Request};

#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) redis: Client,
    pub(super) spreads: Arc<Spreads>,
}

impl Call for Asking {
    type Place = Arc<Shelf>;

    /// If the item has a different spread than was known, the new one is stored, and all are stale.
    async fn call(&self, shelf: &Arc<Shelf>, requests: &[Request]) -> Result<Vec<Answer>> {
        let (item, keys) = (shelf.item.as_str(), &shelf.keys);
        let keys = [&keys.gate, &keys.buyers, &keys.answers, &keys.orders];
        let mut arguments = Vec::with_capacity(2 + 4 * requests.len());
        arguments.push(shelf.place.of.to_string().into());
        arguments.push(shelf.place.nth.to_string().into());
        for request in requests {
            push_request(&mut arguments, request);
        }
        let reply = self.redis.script(&script::ASK, &keys, &arguments).await;
        let reply = reply.map_err(|error| unanswered(item, error))?;
        let parts = reply.as_array().unwrap_or_default();
        if parts.len() != 3 * requests.len() {
            return Err(not_understood(item, &reply));
        }
        let read = |parts| self.read_answer(item, parts);
        let answers = parts.chunks_exact(3).map(read);
        answers
            .collect::<Option<_>>()
            .ok_or_else(|| not_understood(item, &reply))
    }
}

impl Asking {
    fn read_answer(&self, item: &str, parts: &[Value]) -> Option<Answer> {
        if parts[0].as_str()? == "spread" {
            self.spreads.learn(item, parts[2].as_str()?.parse().ok()?);
            return Some(Answer {
                outcome: Outcome::StaleEpoch,
                left: None,
            });
        }
        read_answer(item, parts)
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
