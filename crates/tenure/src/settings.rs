//! The settings of a client, with their defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::sharded::Sharded;

/// How long a lease lasts without renewal, unless a lock says otherwise.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long a call waits for a server that cannot be reached.
pub(crate) const UNREACHABLE_AFTER_DEFAULT: Duration = Duration::from_secs(5);
/// How often a lock may be handed off in a row.
const HAND_OFF_TURNS_MAX: u32 = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) unreachable_after: Duration,
    pub(crate) hand_off: HandOff,
    /// How many replicas must confirm a lock that does not say otherwise.
    pub(crate) replicas: u32,
    /// How long a new primary grants no new locks.
    pub(crate) after_failover: Option<Duration>,
    /// Whether the store has replicas that can acknowledge writes.
    pub(crate) replicates: bool,
    /// The longest ttl that a lock may have, where that must be known.
    pub(crate) longest_ttl: Option<Duration>,
    /// The runtime whose callers drive a connection themselves.
    pub(crate) runtime: Option<Handle>,
    /// The layout, which determines the form of lease ids.
    pub(crate) layout: Layout,
    /// How the waiters of a cluster are woken, if the builder says it.
    pub(crate) sharded: Option<Sharded>,
    /// What the user calls this client in listings.
    pub(crate) name: Option<String>,
    /// What the user says about it there.
    pub(crate) about: BTreeMap<String, String>,
}

/// How far a lock may be handed off inside the process before other processes get their turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOff {
    pub(crate) on: bool,
    /// How often in a row.
    pub(crate) turns: u32,
    /// For how long since the store granted it.
    pub(crate) time: Duration,
}

impl Settings {
    /// # Errors
    ///
    /// If replicas are to confirm a lock where there are none.
    pub(crate) fn check_replicas(&self, replicas: u32) -> Result<()> {
        if replicas == 0 || self.replicates {
            return Ok(());
        }
        let cause = "there are none to ask: `memory://` has no servers, and those of Redlock are \
                     independent of each other";
        Err(Error::invalid_setting(
            "the number of replicas",
            replicas,
            cause,
        ))
    }

    /// # Errors
    ///
    /// If a lease of this length would outlast the time for which a node has no vote.
    pub(crate) fn check_longest(&self, ttl: Duration) -> Result<()> {
        let Some(longest) = self.longest_ttl.filter(|longest| ttl > *longest) else {
            return Ok(());
        };
        Err(Error::invalid_setting(
            "ttl",
            format!("{ttl:?}"),
            &format!(
                "the client's `longest_ttl` is {longest:?}, because a node that has restarted has \
                 no vote for this long: raise it when connecting"
            ),
        ))
    }

    /// # Errors
    ///
    /// If a lease of this length would outlast the pause after a failover.
    pub(crate) fn check_pause(&self, ttl: Duration) -> Result<()> {
        let Some(wait) = self.after_failover else {
            return Ok(());
        };
        let refused = |cause: &str| {
            let wait = format!("{wait:?}");
            Err(Error::invalid_setting("after_failover", wait, cause))
        };
        if !self.replicates {
            refused("nothing could fail over: leave it out with `memory://` and Redlock")
        } else if ttl > wait {
            refused(&format!(
                "leases of {ttl:?} may be believed for longer, and a new master would grant the \
                 lock a second time: wait longer, or use a shorter ttl"
            ))
        } else {
            Ok(())
        }
    }
}

impl HandOff {
    /// # Errors
    ///
    /// If a bound is out of its limits.
    pub(crate) fn check(self) -> Result<()> {
        if self.turns > HAND_OFF_TURNS_MAX {
            let turns = self.turns.to_string();
            let cause = "at most 10000 are allowed, or other processes would never get their turn";
            return Err(Error::invalid_setting("hand_off_turns", turns, cause));
        }
        Ok(())
    }

    /// How many fences a grant may use: one for its holder, one for each hand-off.
    pub(crate) fn fences(self) -> u32 {
        if self.on { self.turns + 1 } else { 1 }
    }
}

impl Default for HandOff {
    fn default() -> Self {
        Self {
            on: true,
            turns: 256,
            time: Duration::from_millis(10),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: TTL_DEFAULT,
            unreachable_after: UNREACHABLE_AFTER_DEFAULT,
            hand_off: HandOff::default(),
            replicas: 0,
            after_failover: None,
            replicates: false,
            longest_ttl: None,
            runtime: None,
            layout: Layout::Native,
            sharded: None,
            name: None,
            about: BTreeMap::new(),
        }
    }
}
