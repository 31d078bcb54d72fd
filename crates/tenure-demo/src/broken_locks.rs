//! Home-made locks, each with a flaw: one stock sold under successive versions of them.
//!
//! From [`Step::V0`] without a lock to [`Step::V4`], each version fixes the flaw of the previous one and
//! has another. [`Trouble`] triggers the flaw.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::item::UNITS;
use crate::naive;
use crate::plain_store::PlainStore;

/// How long an order takes between reading the stock and writing it.
const THINKING: Duration = Duration::from_millis(1);
/// The timeout of the locks that have one, and the duration of an order that exceeds it.
const LEASE: Duration = Duration::from_secs(1);
const TOO_SLOW: Duration = Duration::from_millis(1_500);

/// A stock and a home-made lock for each step.
pub struct BrokenLocks {
    store: PlainStore,
}

/// A version of the home-made lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read, minus one, write.
    V0,
    /// `SETNX`, and `DEL` at the end.
    V1,
    /// Also deletes the key after an exception.
    V2,
    /// Adds a timeout, in a second command.
    V3,
    /// Sets key and timeout in one command.
    V4,
}

/// A fault injected into an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The order fails after the stock was decremented.
    Exception,
    /// The process dies right after acquiring the lock.
    Crash,
    /// The order takes longer than the timeout.
    Slow,
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// One unit was sold, and this many are left.
    Sold(i64),
    /// No unit was left.
    SoldOut,
    /// Another order has the lock, or had it and never released it.
    Locked,
    /// Describes the injected fault.
    Broken(&'static str),
}

impl BrokenLocks {
    /// Opens the store at `url`. Fills the stock unless another instance has already done so.
    pub async fn open(url: &str) -> Result<Self> {
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

    /// Orders one unit, and injects `trouble`.
    ///
    /// # Errors
    ///
    /// If the store is unavailable.
    pub async fn order(&self, step: Step, trouble: Option<Trouble>) -> Result<Came> {
        match step {
            Step::V0 => self.sell(step, trouble).await,
            Step::V1 => self.v1(trouble).await,
            Step::V2 => self.v2(trouble).await,
            Step::V3 => self.v3(trouble).await,
            Step::V4 => self.v4(trouble).await,
        }
    }

    /// If anything fails before `DEL`, the lock stays forever.
    async fn v1(&self, trouble: Option<Trouble>) -> Result<Came> {
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

    /// Survives an exception, but a process that dies leaves the lock forever.
    async fn v2(&self, trouble: Option<Trouble>) -> Result<Came> {
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

    /// A process that dies between the two commands leaves the lock forever.
    async fn v3(&self, trouble: Option<Trouble>) -> Result<Came> {
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

    /// Every lock expires, but an order that is too slow deletes the next holder's lock.
    async fn v4(&self, trouble: Option<Trouble>) -> Result<Came> {
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
    async fn sell(&self, step: Step, trouble: Option<Trouble>) -> Result<Came> {
        if trouble == Some(Trouble::Crash) {
            return Ok(DIED);
        }
        let is_slow = trouble == Some(Trouble::Slow);
        let thinking = if is_slow { TOO_SLOW } else { THINKING };
        let (stock, left) = (step.stock(), self.left(step).await?);
        let Some(left) = naive::sell_one(&self.store, &stock, left, thinking).await? else {
            return Ok(Came::SoldOut);
        };
        if trouble == Some(Trouble::Exception) {
            return Ok(Came::Broken(
                "injected fault: the order failed after the stock was decremented",
            ));
        }
        Ok(Came::Sold(left))
    }

    /// Units left in the stock of a step.
    ///
    /// # Errors
    ///
    /// If the store is unavailable.
    pub async fn left(&self, step: Step) -> Result<i64> {
        let found = self.store.get(&step.stock()).await?;
        // A value that is not a number counts as sold out.
        Ok(found.and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

impl fmt::Debug for BrokenLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokenLocks")
    }
}

const DIED: Came = Came::Broken("injected fault: the process died right after acquiring the lock");

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

    /// Parses `v0` to `v4`.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.word() == word)
    }

    fn stock(self) -> String {
        format!("tenure-demo:{}:stock", self.word())
    }

    fn lock(self) -> String {
        format!("tenure-demo:{}:lock", self.word())
    }
}

/// The value of the lock: a random thread id.
fn me() -> String {
    format!("{:016x}", rand::random::<u64>())
}
