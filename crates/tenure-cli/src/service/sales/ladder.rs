//! The notes' ladder: one stock sold under successive home-made locks, each with its flaw. For people
//! to break; nothing of it touches the sale.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use utoipa::{IntoParams, ToSchema};

use super::super::App;
use super::super::answers;
use super::super::extract::{Path, Query};
use super::super::problem::{Kind, Problem};
use super::asking::CHANGE_WITHIN;
use super::demo::UNITS;
use super::refusal::SOLD_OUT;
use super::submit_order::sold_message;
use crate::plain_store::PlainStore;

/// How long an order takes between reading the stock and writing it.
const THINKING: Duration = Duration::from_millis(1);
/// The time-out of the locks that have one, and how long an order takes that is too slow for it.
const LEASE: Duration = Duration::from_secs(1);
const TOO_SLOW: Duration = Duration::from_millis(1_500);

/// Where the ladder stands: a stock and a lock for each of its steps.
pub struct Ladder {
    store: PlainStore,
}

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Read, minus one, write.
    V0,
    /// `SETNX`, and `DEL` at the end.
    V1,
    /// And the end comes also after an exception.
    V2,
    /// And a time-out, in a second command.
    V3,
    /// In one command.
    V4,
}

/// What goes wrong on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Trouble {
    /// The order fails after the stock was taken.
    Exception,
    /// The process dies as soon as it has the lock.
    Crash,
    /// The order takes longer than the time-out.
    Slow,
}

/// What is to go wrong.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Wish {
    /// `exception`, `crash` or `slow`; nothing, if nothing is said.
    #[param(value_type = Option<String>)]
    trouble: Option<Trouble>,
}

/// What was sold, and by whom.
#[derive(Debug, Serialize, ToSchema)]
pub struct Sold {
    #[schema(example = "sold one, 4999 left, served by port 8081")]
    message: String,
    /// What this order has left of the stock.
    left: i64,
    port: u16,
}

/// What came of an order.
enum Came {
    Sold(i64),
    SoldOut,
    Locked,
    Broken(&'static str),
}

/// Orders one unit under one of the notes' locks. In demo mode only.
#[utoipa::path(get, path = "/submitOrder/{step}", tag = "load tests",
    params(("step" = String, Path, description = "`v0` without a lock to `v4`"), Wish),
    responses((status = 200, description = "Sold", body = Sold),
        (status = 403, description = "This service only shows", body = Problem),
        (status = 404, description = "Not in demo mode, or no such step", body = Problem),
        (status = 423, description = "`busy`: somebody has the lock, perhaps for ever", body = Problem),
        (status = 503, description = "The trouble that was asked for, or the store is away",
            body = Problem),
        answers::SoldOut))]
pub async fn get(
    State(app): State<App>,
    Path(step): Path<String>,
    Query(wish): Query<Wish>,
) -> Result<Json<Sold>, Problem> {
    order(&app, &step, wish.trouble).await
}

/// The same.
#[utoipa::path(post, path = "/submitOrder/{step}", tag = "load tests",
    params(("step" = String, Path, description = "`v0` without a lock to `v4`"), Wish),
    responses((status = 200, description = "Sold", body = Sold),
        (status = 404, description = "Not in demo mode, or no such step", body = Problem),
        (status = 423, description = "`busy`: somebody has the lock, perhaps for ever", body = Problem),
        (status = 503, description = "The trouble that was asked for, or the store is away",
            body = Problem),
        answers::SoldOut))]
pub async fn post(
    State(app): State<App>,
    Path(step): Path<String>,
    Query(wish): Query<Wish>,
) -> Result<Json<Sold>, Problem> {
    order(&app, &step, wish.trouble).await
}

async fn order(app: &App, step: &str, trouble: Option<Trouble>) -> Result<Json<Sold>, Problem> {
    let port = app.settings.address.port();
    let Some(ladder) = &app.shop.ladder else {
        let detail = "the notes' broken locks are served in demo mode only: start `tenure serve` \
                      with --demo, and one Redis or none";
        return Err(Problem::new(Kind::NOT_FOUND, detail).with("port", port));
    };
    let Some(step) = Step::of_word(step) else {
        let detail = "there is no such step: the notes' locks are `v0` to `v4`";
        return Err(Problem::new(Kind::NOT_FOUND, detail).with("port", port));
    };
    let ordering = async {
        let came = ladder.order(step, trouble).await?;
        Ok((came, ladder.left(step).await?))
    };
    let done: anyhow::Result<(Came, i64)> = match timeout(CHANGE_WITHIN, ordering).await {
        Ok(done) => done,
        Err(late) => Err(late.into()),
    };
    let (came, left) = done.map_err(|error| {
        let detail = format!("the store of the demo does not serve: {error:#}");
        let problem = Problem::new(Kind::UNAVAILABLE, detail).with("port", port);
        problem.retry_after(Duration::from_secs(1))
    })?;
    came.told(left, port)
}

impl Ladder {
    /// With the whole stock, unless another instance has begun on this server before.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let store = if url.starts_with("memory:") {
            PlainStore::in_memory()
        } else {
            PlainStore::connect(url).await?
        };
        for step in Step::ALL {
            store.set_nx(&step.stock(), &UNITS.to_string()).await?;
        }
        Ok(Self { store })
    }

    async fn order(&self, step: Step, trouble: Option<Trouble>) -> anyhow::Result<Came> {
        match step {
            Step::V0 => self.sell(step, trouble).await,
            Step::V1 => self.v1(trouble).await,
            Step::V2 => self.v2(trouble).await,
            Step::V3 => self.v3(trouble).await,
            Step::V4 => self.v4(trouble).await,
        }
    }

    /// Whatever goes wrong before `DEL`, the lock stays for ever.
    async fn v1(&self, trouble: Option<Trouble>) -> anyhow::Result<Came> {
        let lock = Step::V1.lock();
        if !self.store.set_nx(&lock, &me()).await? {
            return Ok(Came::Locked);
        }
        let came = self.sell(Step::V1, trouble).await?;
        if let Came::Broken(_) = came {
            return Ok(came);
        }
        self.store.del(&lock).await?;
        Ok(came)
    }

    /// An exception does no harm, but a process that dies leaves the lock for ever.
    async fn v2(&self, trouble: Option<Trouble>) -> anyhow::Result<Came> {
        let lock = Step::V2.lock();
        if !self.store.set_nx(&lock, &me()).await? {
            return Ok(Came::Locked);
        }
        if trouble == Some(Trouble::Crash) {
            return Ok(DIED);
        }
        let came = self.sell(Step::V2, trouble).await;
        self.store.del(&lock).await?;
        came
    }

    /// A process that dies between the two commands leaves the lock for ever.
    async fn v3(&self, trouble: Option<Trouble>) -> anyhow::Result<Came> {
        let lock = Step::V3.lock();
        if !self.store.set_nx(&lock, &me()).await? {
            return Ok(Came::Locked);
        }
        if trouble == Some(Trouble::Crash) {
            return Ok(DIED);
        }
        self.store.expire(&lock, LEASE).await?;
        let came = self.sell(Step::V3, trouble).await;
        self.store.del(&lock).await?;
        came
    }

    /// Nobody is locked out for ever; but whoever was too slow deletes the lock of the next.
    async fn v4(&self, trouble: Option<Trouble>) -> anyhow::Result<Came> {
        let lock = Step::V4.lock();
        if !self.store.set_nx_px(&lock, &me(), LEASE).await? {
            return Ok(Came::Locked);
        }
        if trouble == Some(Trouble::Crash) {
            return Ok(DIED);
        }
        let came = self.sell(Step::V4, trouble).await;
        self.store.del(&lock).await?;
        came
    }

    /// Read, minus one, write.
    async fn sell(&self, step: Step, trouble: Option<Trouble>) -> anyhow::Result<Came> {
        if trouble == Some(Trouble::Crash) {
            return Ok(DIED);
        }
        let left = self.left(step).await?;
        if left <= 0 {
            return Ok(Came::SoldOut);
        }
        let is_slow = trouble == Some(Trouble::Slow);
        sleep(if is_slow { TOO_SLOW } else { THINKING }).await;
        let left = left - 1;
        self.store.set(&step.stock(), &left.to_string()).await?;
        if trouble == Some(Trouble::Exception) {
            return Ok(Came::Broken(
                "the order failed after the stock was taken, as asked for",
            ));
        }
        Ok(Came::Sold(left))
    }

    async fn left(&self, step: Step) -> anyhow::Result<i64> {
        let found = self.store.get(&step.stock()).await?;
        // Whoever changes it by hand has sold it out.
        Ok(found.and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

impl fmt::Debug for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ladder")
    }
}

const DIED: Came = Came::Broken("the process died as soon as it had the lock, as asked for");

impl Came {
    fn told(self, left: i64, port: u16) -> Result<Json<Sold>, Problem> {
        let later = Duration::from_secs(1);
        let problem = match self {
            Self::Sold(left) => {
                let message = sold_message(1, u64::try_from(left).ok(), port);
                return Ok(Json(Sold {
                    message,
                    left,
                    port,
                }));
            }
            Self::SoldOut => {
                let message = format!("sold out, served by port {port}");
                let detail = "the stock of this step is sold out: delete the keys \
                              `tenure-demo:*` and start `tenure serve` again";
                Problem::new(SOLD_OUT, detail).with("message", message)
            }
            Self::Locked => {
                let message = format!("locked, {left} left, served by port {port}");
                let detail = "another order has the lock, or had it and never let it go";
                let problem = Problem::new(Kind::BUSY, detail).with("message", message);
                problem.retry_after(later)
            }
            Self::Broken(what) => Problem::new(Kind::UNAVAILABLE, what).retry_after(later),
        };
        Err(problem.with("left", left).with("port", port))
    }
}

impl Step {
    const ALL: [Self; 5] = [Self::V0, Self::V1, Self::V2, Self::V3, Self::V4];

    fn word(self) -> &'static str {
        match self {
            Self::V0 => "v0",
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.word() == word)
    }

    fn stock(self) -> String {
        format!("tenure-demo:{}:stock", self.word())
    }

    fn lock(self) -> String {
        format!("tenure-demo:{}:lock", self.word())
    }
}

/// Who locks: the notes use the id of the thread.
fn me() -> String {
    format!("{:016x}", rand::random::<u64>())
}
