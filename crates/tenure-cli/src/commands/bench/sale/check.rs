//! Checks the sale: compares the responses with gate and ledger.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::instance::Instance;
use super::tally::Tally;
use crate::exit::{Exit, Failed};

/// How long the queue may take to be written to the ledger.
const SETTLED_WITHIN: Duration = Duration::from_mins(1);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long to wait until the numbers add up: returned units reach the gate a moment later.
const ADDED_UP_WITHIN: Duration = Duration::from_secs(3);
/// The states of orders whose units were returned.
const RETURNED: [&str; 3] = ["cancelled", "expired", "paid-unfulfilled"];

/// The item before the load.
#[derive(Debug)]
pub struct Before {
    item: String,
    books: Books,
}

/// One condition that must hold.
#[derive(Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub holds: bool,
    /// With its numbers.
    pub told: String,
}

/// The service's state of an item.
#[derive(Clone, Debug, Deserialize)]
struct Books {
    /// Null if unlimited.
    total: Option<u64>,
    sold: u64,
    gate: Gate,
    #[serde(default)]
    orders: Vec<Count>,
}

/// Units of orders in one state.
#[derive(Clone, Debug, Deserialize)]
struct Count {
    state: String,
    units: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Gate {
    left: Option<u64>,
    queued: u64,
}

/// The service's verdict on all orders of an item.
#[derive(Debug, Deserialize)]
struct Verdict {
    holds: bool,
    settled: bool,
}

impl Before {
    /// Reads the item, which must exist.
    pub async fn look(instance: &Instance, item: &str) -> Result<Self> {
        let books = Books::ask(instance, item).await?;
        Ok(Self {
            item: item.to_owned(),
            books,
        })
    }

    /// Compares the responses with gate and ledger once the queue is empty.
    pub async fn check(&self, instances: &[Instance], tally: &Tally) -> Result<Vec<Check>> {
        let verdict = self.settled(instances).await?;
        let after = self.added_up(instances).await?;
        let accepted = tally.order_ids.len() as u64;
        let unknown = tally.unknown.len() as u64;
        Ok(vec![
            given_once(&tally.order_ids),
            self.within_stock(&after, accepted),
            self.as_answered(&after, accepted, unknown),
            adds_up(&after),
            Check {
                name: "verify",
                holds: verdict.holds && verdict.settled,
                told: match (verdict.holds, verdict.settled) {
                    (true, true) => "gate, queue and ledger agree".to_owned(),
                    (true, false) => "the queue is not empty: is a consumer running?".to_owned(),
                    (false, _) => format!("they disagree: see `tenure sale verify {}`", self.item),
                },
            },
        ])
    }

    /// The verdict of the service once every order is in the ledger, or after a time limit.
    async fn settled(&self, instances: &[Instance]) -> Result<Verdict> {
        let (end, path) = (Instant::now() + SETTLED_WITHIN, path(&self.item, "verify"));
        for turn in 0.. {
            let instance = &instances[turn % instances.len()];
            let asked = instance.get(&path).await;
            let verdict = asked.and_then(|asked| read::<Verdict>(instance, &path, asked));
            match verdict {
                Ok(verdict) if verdict.settled && verdict.holds || Instant::now() > end => {
                    return Ok(verdict);
                }
                Err(error) if Instant::now() > end => return Err(error),
                _ => tokio::time::sleep(LOOK_AGAIN_AFTER).await,
            }
        }
        unreachable!("it counts without end")
    }

    /// The state of the item, once it adds up or after a time limit.
    async fn added_up(&self, instances: &[Instance]) -> Result<Books> {
        let end = Instant::now() + ADDED_UP_WITHIN;
        loop {
            let books = self.ask_any(instances).await?;
            if adds_up(&books).holds || Instant::now() > end {
                return Ok(books);
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    /// One of the instances may be gone.
    async fn ask_any(&self, instances: &[Instance]) -> Result<Books> {
        let mut asked = Books::ask(&instances[0], &self.item).await;
        for instance in &instances[1..] {
            if asked.is_err() {
                asked = Books::ask(instance, &self.item).await;
            }
        }
        asked
    }

    fn within_stock(&self, after: &Books, accepted: u64) -> Check {
        let left = self.books.gate.left;
        let (returned, added) = (self.returned(after), self.added(after));
        let told = match left {
            Some(left) => format!(
                "accepted {accepted}, and {left} were left before{}{}",
                more(returned, "came back"),
                more(added, "were added")
            ),
            None => format!("accepted {accepted} of an unlimited item"),
        };
        let there_were = |left: u64| i128::from(left) + returned + added;
        Check {
            name: "not oversold",
            holds: left.is_none_or(|left| i128::from(accepted) <= there_were(left)),
            told,
        }
    }

    fn as_answered(&self, after: &Books, accepted: u64, unknown: u64) -> Check {
        let returned = self.returned(after);
        let sold = after.taken() - self.books.taken();
        let unanswered = more(unknown.into(), "unknown");
        let back = more(returned, "came back");
        let (least, most) = (i128::from(accepted), i128::from(accepted + unknown));
        Check {
            name: "as answered",
            holds: (least..=most).contains(&(sold + returned)),
            told: format!("accepted {accepted}{unanswered}{back}, and the ledger has {sold} more"),
        }
    }

    /// Units that were returned during the load, of any order; negative if late payments bought
    /// more again.
    fn returned(&self, after: &Books) -> i128 {
        after.returned() - self.books.returned()
    }

    /// Units by which the stock was raised during the load.
    fn added(&self, after: &Books) -> i128 {
        let totals = after.total.zip(self.books.total);
        totals.map_or(0, |(after, before)| i128::from(after) - i128::from(before))
    }
}

impl Books {
    async fn ask(instance: &Instance, item: &str) -> Result<Self> {
        let path = path(item, "stats");
        read(instance, &path, instance.get(&path).await?)
    }

    /// Units that left the gate and were not returned.
    fn taken(&self) -> i128 {
        i128::from(self.sold) + i128::from(self.gate.queued)
    }

    fn returned(&self) -> i128 {
        let returned = |count: &&Count| RETURNED.contains(&count.state.as_str());
        let counts = self.orders.iter().filter(returned);
        counts.map(|count| i128::from(count.units)).sum()
    }
}

/// A part of a sentence, omitted for zero.
fn more(count: i128, of: &str) -> String {
    match count {
        0 => String::new(),
        count => format!(", {count} {of}"),
    }
}

fn given_once(order_ids: &[String]) -> Check {
    let different: HashSet<&String> = order_ids.iter().collect();
    let (orders, different) = (order_ids.len(), different.len());
    Check {
        name: "no order twice",
        holds: orders == different,
        told: format!("{orders} orders, {different} different ids"),
    }
}

fn adds_up(after: &Books) -> Check {
    let Books {
        total, sold, gate, ..
    } = *after;
    let queued = gate.queued;
    let Some((total, left)) = total.zip(gate.left) else {
        let told = format!("sold {sold} + queued {queued} of an unlimited item");
        return Check {
            name: "adds up",
            holds: true,
            told,
        };
    };
    let holds = total == left + queued + sold;
    let sign = if holds { "=" } else { "≠" };
    Check {
        name: "adds up",
        holds,
        told: format!("total {total} {sign} left {left} + queued {queued} + sold {sold}"),
    }
}

fn path(item: &str, of: &str) -> String {
    format!("/api/v1/items/{item}/{of}")
}

/// Reads the response, or says why there is none.
fn read<T: serde::de::DeserializeOwned>(
    instance: &Instance,
    path: &str,
    (status, body): (u16, serde_json::Value),
) -> Result<T> {
    if status == 200 {
        return Ok(serde_json::from_value(body)?);
    }
    let exit = match status {
        401 | 403 => Exit::Denied,
        404 | 422 => Exit::Usage,
        _ => Exit::Unavailable,
    };
    let why = body["detail"].as_str().unwrap_or("no details");
    let message = format!("`{}{path}` returned {status}: {why}", instance.url);
    Err(Failed::new(exit, message).into())
}
