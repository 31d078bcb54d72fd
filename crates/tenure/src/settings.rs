//! The settings of a client, with their defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::name::LockName;
use crate::prefix::Prefix;
use crate::seeded::{Bug, bug};
use crate::sharded::Sharded;

/// The default lease duration without renewal.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long a call retries while the server cannot be reached.
pub(crate) const UNREACHABLE_AFTER_DEFAULT: Duration = Duration::from_secs(5);
/// How long a connection that owes a reply may stay silent.
pub(crate) const RESPONSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// How long a server may take to reply. Votes of a Redlock must not be older than a fraction of the
/// time for which a restarted node has no vote.
const RESPONSE_TIMEOUT_MIN: Duration = Duration::from_millis(100);
const RESPONSE_TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// The shortest time to keep a lease. Below it, nothing is gained.
const KEEP_MIN: Duration = Duration::from_millis(1);
/// How many times in a row a lock may be handed off.
const HAND_OFF_TURNS_MAX: u32 = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    /// How long a server may take to reply.
    pub(crate) response_timeout: Duration,
    pub(crate) unreachable_after: Duration,
    pub(crate) hand_off: HandOff,
    /// How many replicas must acknowledge a lock that does not set its own number.
    pub(crate) replicas: u32,
    /// For how long leases are kept, for locks that do not set their own time; zero for not at all.
    pub(crate) keep: Duration,
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
    /// What everything begins with that the client writes.
    pub(crate) prefix: Prefix,
    /// How the waiters of a cluster are woken, if the builder says it.
    pub(crate) sharded: Option<Sharded>,
    /// The client's name in listings.
    pub(crate) name: Option<String>,
    /// Further information about the client in listings.
    pub(crate) about: BTreeMap<String, String>,
}

/// How far a lock may be handed off within the process before other processes get their turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOff {
    pub(crate) on: bool,
    /// How many times in a row.
    pub(crate) turns: u32,
    /// For how long after the grant by the store.
    pub(crate) time: Duration,
}

impl Settings {
    /// The name, if a lock of this client may have it: together with the prefix it must be allowed too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    pub(crate) fn allowed(&self, name: LockName) -> Result<LockName> {
        self.prefix.check_name(&name)?;
        Ok(name)
    }

    /// Whether calls last at least for the response timeout. A shorter limit needs a timer, which a
    /// caller's own task does not have.
    pub(crate) fn is_patient(&self) -> bool {
        self.unreachable_after >= self.response_timeout
    }

    /// # Errors
    ///
    /// If the response timeout is out of range.
    pub(crate) fn check_response_timeout(&self) -> Result<()> {
        let timeout = self.response_timeout;
        if (RESPONSE_TIMEOUT_MIN..=RESPONSE_TIMEOUT_MAX).contains(&timeout) {
            return Ok(());
        }
        let (value, cause) = (format!("{timeout:?}"), "it must be from 100 ms to 5 s");
        Err(Error::invalid_setting("response_timeout", value, cause))
    }

    /// # Errors
    ///
    /// If replicas must acknowledge a lock, but the store has none.
    pub(crate) fn check_replicas(&self, replicas: u32) -> Result<()> {
        if replicas == 0 || self.replicates {
            return Ok(());
        }
        let cause = "this store has no replicas: `memory://` has no servers, and Redlock nodes are \
                     independent of each other";
        Err(Error::invalid_setting(
            "the number of replicas",
            replicas,
            cause,
        ))
    }

    /// How many replicas must confirm a detached lease: as many as when it was granted, or more if this
    /// client demands more for all its locks.
    ///
    /// # Errors
    ///
    /// If this store has no replicas.
    pub(crate) fn replicas_of(&self, lease: &Lease) -> Result<u32> {
        let replicas = if bug(Bug::DetachedWithoutReplicas) {
            self.replicas
        } else {
            lease.replicas.max(self.replicas)
        };
        self.check_replicas(replicas)?;
        Ok(replicas)
    }

    /// # Errors
    ///
    /// If readers cannot share a lock on this deployment.
    pub(crate) fn check_shared(&self) -> Result<()> {
        let cause = if self.longest_ttl.is_some() {
            "readers cannot share a lock of a Redlock"
        } else if self.layout == Layout::Redisson {
            "readers cannot share a lock in Redisson's layout: use the layout `native`"
        } else {
            return Ok(());
        };
        Err(Error::invalid_setting("the mode", Mode::Shared, cause))
    }

    /// # Errors
    ///
    /// If there are no fair locks in this mode, or on this deployment.
    pub(crate) fn check_fair(&self, mode: Mode) -> Result<()> {
        let cause = if mode != Mode::Exclusive {
            "a fair lock cannot be shared: remove `fair` or `shared`"
        } else if self.longest_ttl.is_some() {
            "a Redlock has no fair locks: its servers have no common queue"
        } else if self.layout == Layout::Redisson {
            "there are no fair locks in Redisson's layout: use the layout `native`"
        } else {
            return Ok(());
        };
        Err(Error::invalid_setting("the order", "fair", cause))
    }

    /// # Errors
    ///
    /// If there are no semaphores on this deployment.
    pub(crate) fn check_semaphores(&self) -> Result<()> {
        let cause = if self.longest_ttl.is_some() {
            "a Redlock has no semaphores: no majority of its nodes can count permits"
        } else if self.layout == Layout::Redisson {
            "there are no semaphores in Redisson's layout: use the layout `native`"
        } else {
            return Ok(());
        };
        Err(Error::invalid_setting("the mode", Mode::Permit, cause))
    }

    /// # Errors
    ///
    /// If runs of schedules are not remembered on this deployment.
    pub(crate) fn check_once(&self, schedule: &str) -> Result<()> {
        let cause = if self.longest_ttl.is_some() {
            "a Redlock remembers no runs: a node that lost its data would let one begin again"
        } else if self.layout == Layout::Redisson {
            "runs are not remembered in Redisson's layout: use the layout `native`"
        } else {
            return Ok(());
        };
        Err(Error::invalid_setting("a schedule", schedule, cause))
    }

    /// # Errors
    ///
    /// If there are no latches on this deployment.
    pub(crate) fn check_latches(&self, name: &str) -> Result<()> {
        let cause = if self.longest_ttl.is_some() {
            "a Redlock has no latches: different majorities of its nodes have seen different parties"
        } else if self.layout == Layout::Redisson {
            "there are no latches in Redisson's layout: use the layout `native`"
        } else {
            return Ok(());
        };
        Err(Error::invalid_setting("a latch", name, cause))
    }

    /// For how long a lease of this ttl is kept after its grant, if at all: as its lock asks, or as
    /// the client does for every lock.
    ///
    /// # Errors
    ///
    /// If the lock's time is out of range, or if this deployment cannot keep leases.
    pub(crate) fn keep_time(
        &self,
        asked: Option<Duration>,
        ttl: Duration,
    ) -> Result<Option<Duration>> {
        if let Some(keep) = asked {
            self.check_keep(keep, ttl)?;
        }
        // The client's time may be meant for longer leases.
        let keep = asked.unwrap_or_else(|| self.keep.min(ttl / 2));
        Ok(Some(keep).filter(|keep| !keep.is_zero()))
    }

    /// # Errors
    ///
    /// If a time to keep leases is out of range, or if this deployment cannot keep leases.
    pub(crate) fn check_keep(&self, keep: Duration, ttl: Duration) -> Result<()> {
        let refused = |cause: &str| {
            let value = format!("{keep:?}");
            Err(Error::invalid_setting("the time to keep", value, cause))
        };
        if keep.is_zero() {
            Ok(())
        } else if self.longest_ttl.is_some() {
            refused(
                "a Redlock keeps no leases: they are on several servers, and the messages of one \
                 would not tell whether another client is in need of a majority",
            )
        } else if keep < KEEP_MIN || keep > ttl / 2 {
            refused("it must be from 1 ms to half of the ttl, or zero to keep no lease")
        } else {
            Ok(())
        }
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
                "the client's `longest_ttl` is {longest:?}, because a restarted node has no vote \
                 for that long: raise it when connecting"
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
            refused("there is no failover: omit it with `memory://` and Redlock")
        } else if ttl > wait {
            refused(&format!(
                "leases of {ttl:?} may outlast it, and a new primary would grant the lock a second \
                 time: raise it, or use a shorter ttl"
            ))
        } else {
            Ok(())
        }
    }
}

impl HandOff {
    /// # Errors
    ///
    /// If a limit is out of range.
    pub(crate) fn check(self) -> Result<()> {
        if self.turns > HAND_OFF_TURNS_MAX {
            let turns = self.turns.to_string();
            let cause = "at most 10000 are allowed, so that other processes get their turn";
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
            response_timeout: RESPONSE_TIMEOUT_DEFAULT,
            unreachable_after: UNREACHABLE_AFTER_DEFAULT,
            hand_off: HandOff::default(),
            replicas: 0,
            keep: Duration::ZERO,
            after_failover: None,
            replicates: false,
            longest_ttl: None,
            runtime: None,
            layout: Layout::Native,
            prefix: Prefix::default(),
            sharded: None,
            name: None,
            about: BTreeMap::new(),
        }
    }
}
