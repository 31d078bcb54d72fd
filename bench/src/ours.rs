//! Tenure itself, through its public API, as a program would use it.

use tenure::{Guard, Released, Tenure};

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
    pub async fn connect(url: &str, hand_off: HandOff) -> Self {
        let builder = Tenure::builder(url).ttl(TTL);
        let builder = builder.hand_off(hand_off == HandOff::On);
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
