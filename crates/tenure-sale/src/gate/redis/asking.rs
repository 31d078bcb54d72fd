//! How batched requests reach the server.

use std::sync::Arc;

use tenure::redis::{Arguments, Client, Value};

use super::keys::{order_id, request_arguments};
use super::shelves::{Shelf, Spreads};
use super::{not_understood, script, unanswered};
use crate::error::Result;
use crate::gate::combiner::Call;
use crate::order::{Answer, Outcome, Request};

#[derive(Debug)]
pub(super) struct Asking {
    pub(super) redis: Client,
    pub(super) spreads: Arc<Spreads>,
}

/// A request as it waits and travels.
#[derive(Debug)]
pub(super) struct PackedRequest {
    arguments: Arguments,
    units: u64,
}

impl Call for Asking {
    type Place = Shelf;
    type Packed = PackedRequest;

    fn item(shelf: &Shelf) -> &str {
        &shelf.item
    }

    fn pack(&self, request: &Request) -> PackedRequest {
        PackedRequest {
            arguments: request_arguments(request),
            units: request.wanted(),
        }
    }

    /// If the item has a different spread than was known, the new one is stored, and all are stale.
    async fn call(&self, shelf: &Shelf, requests: &[PackedRequest]) -> Result<Vec<Answer>> {
        let (item, keys) = (shelf.item.as_str(), &shelf.keys);
        let keys = [&keys.gate, &keys.buyers, &keys.answers, &keys.orders];
        let bytes: usize = requests.iter().map(|it| it.arguments.bytes()).sum();
        let mut arguments = Arguments::with_capacity(bytes + 32);
        arguments.push(shelf.place.of.to_string());
        arguments.push(shelf.place.nth.to_string());
        for request in requests {
            arguments.append(&request.arguments);
        }
        let reply = self.redis.script_with(&script::ASK, &keys, arguments).await;
        let reply = reply.map_err(|error| unanswered(item, error))?;
        self.read_answers(item, requests, &reply)
            .ok_or_else(|| not_understood(item, &reply))
    }
}

impl Asking {
    fn read_answers(
        &self,
        item: &str,
        requests: &[PackedRequest],
        reply: &Value,
    ) -> Option<Vec<Answer>> {
        let mut lines = reply.as_str()?.split('\n');
        let mut left = match lines.next()? {
            "" => None,
            left => Some(left.parse::<u64>().ok()?),
        };
        let mut answers = Vec::with_capacity(requests.len());
        for (request, line) in requests.iter().zip(&mut lines) {
            let outcome = match line.strip_prefix("spread ") {
                Some(spread) => {
                    self.spreads.learn(item, spread.parse().ok()?);
                    Outcome::StaleEpoch
                }
                None => read_outcome(item, line)?,
            };
            if let (Some(units), Outcome::Accepted(_)) = (&mut left, &outcome) {
                *units = units.checked_sub(request.units)?;
            }
            let left = left.filter(|_| outcome != Outcome::StaleEpoch);
            answers.push(Answer { outcome, left });
        }
        (answers.len() == requests.len() && lines.next().is_none()).then_some(answers)
    }
}

fn read_outcome(item: &str, line: &str) -> Option<Outcome> {
    // Most lines are the number of an accepted order.
    if line.as_bytes().first()?.is_ascii_digit() {
        return order_id(item, line).map(Outcome::Accepted);
    }
    Some(match line {
        "no item" => Outcome::NoItem,
        "stale" => Outcome::StaleEpoch,
        "not started" => Outcome::NotStarted,
        "ended" => Outcome::Ended,
        "paused" => Outcome::Paused,
        "limit" => Outcome::LimitReached,
        "busy" => Outcome::Busy,
        "sold out" => Outcome::SoldOut,
        _ => {
            let (word, order) = line.split_once(' ')?;
            let order = order_id(item, order)?;
            match word {
                "replayed" => Outcome::Replayed(order),
                "conflict" => Outcome::Conflict(order),
                _ => return None,
            }
        }
    })
}
