//! Tenure itself, through its public API, as a program would use it.

use std::time::Duration;

use tenure::{Guard, Released, Tenure};
use tokio::runtime::Handle;

use crate::contender::{Contender, TTL};

/// A client of its own.
#[derive(Clone)]
pub struct Ours(Tenure);

/// Whether a lock may pass from task to task inside the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    On,
    Off,
}

impl HandOff {
    /// For the command line of a child.
    pub fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }

    pub fn of(word: &str) -> Self {
        match word {
            "on" => Self::On,
            "off" => Self::Off,
            _ => panic!("hand-off is `on` or `off`, not `{word}`"),
        }
    }
}

impl Ours {
    /// A client whose connection the present runtime drives, as the floor's is.
    pub async fn connect(url: &str, hand_off: HandOff) -> Self {
        let builder = Tenure::builder(url).ttl(TTL);
        let builder = builder.hand_off(hand_off == HandOff::On);
        let builder = builder.runtime(Handle::current());
        Self(builder.connect().await.expect("tenure could not connect"))
    }

    /// A client that keeps its leases for this long.
    pub async fn connect_keeping(url: &str, keep: Duration) -> Self {
        let builder = Tenure::builder(url).ttl(TTL).keep(keep);
        Self(builder.connect().await.expect("tenure could not connect"))
    }

    /// A client with all settings as they are by default: its own thread drives the connection.
    pub async fn connect_by_default(url: &str) -> Self {
        let builder = Tenure::builder(url).ttl(TTL);
        Self(builder.connect().await.expect("tenure could not connect"))
    }
}

impl Contender for Ours {
    type Held = Guard;

    async fn acquire(&self, name: &str) -> Guard {
        let guard = self.0.lock(name).acquire().await;
        guard.expect("tenure could not acquire")
    }

    async fn release(&self, guard: Guard) {
        let released = guard.release().await.expect("tenure could not release");
        assert_eq!(released, Released::WasHeld, "a lease was lost");
    }
}
