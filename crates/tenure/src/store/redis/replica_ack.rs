//! Waits until replicas have acknowledged a write.
//!
//! `WAIT` returns how many replicas have what this connection wrote. That makes it unlikely that a
//! failover loses a lease, and no more: the sentinels may still promote a replica that lags.

use std::time::Duration;

use super::command::cmd;
use super::connection::{Connection, SendOptions};
use super::operation::Release;
use super::perform::Performed;
use super::redis_store::RedisStore;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, LeaseSpec, NotYet};

/// How long to wait for replicas: at least, so that a caller in a hurry asks at all, and at most,
/// so that an unreachable replica does not hold up others.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// When to retry after too few replicas have acknowledged a grant.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

impl RedisStore {
    /// Waits until replicas have the last write of this connection. It must be the connection that
    /// wrote: on another one, `WAIT` has nothing to wait for and returns at once.
    pub(super) async fn confirm(
        &self,
        connection: &Connection,
        lease: &LeaseSpec,
        latest_us: u64,
        limit: Moment,
    ) -> Result<(), Unconfirmed> {
        if lease.replicas == 0 {
            return Ok(());
        }
        let now = self.clock.now();
        let timeout = limit.saturating_since(now).clamp(WAIT_MIN, WAIT_MAX);
        let mut wait = cmd("WAIT");
        wait.arg(lease.replicas).arg(milliseconds(timeout));
        let limit = now + timeout + self.response_timeout;
        let options = SendOptions::until(limit).latest(latest_us);
        let reply = if bug(Bug::WaitOnOtherConnection) {
            let node = self.route(&lease.name)?.node;
            let other = node.commands.connection(limit).await?;
            other.run(&wait, options).await?
        } else {
            connection.run(&wait, options).await?
        };
        let unexpected = || Failure::refused(reply.unexpected("WAIT"));
        let confirmed = reply.as_int().ok_or_else(unexpected)?;
        let enough = if bug(Bug::WaitOneIsEnough) {
            1
        } else {
            lease.replicas.into()
        };
        if confirmed >= enough {
            return Ok(());
        }
        let error = too_few(&lease.name, confirmed, lease.replicas, timeout);
        Err(Unconfirmed::TooFew(error))
    }

    /// Keeps a grant that enough replicas have acknowledged, and releases any other. The leases were
    /// granted in one step, so one `WAIT` covers all.
    pub(super) async fn confirm_grant<T>(
        &self,
        granted: Performed<T>,
        leases: &[&LeaseSpec],
        limit: Moment,
    ) -> Result<Result<T, NotYet>, Failure> {
        let (connection, latest_us) = (&granted.connection, granted.latest_us);
        let Some(first) = leases.first() else {
            return Ok(Ok(granted.reply));
        };
        let unconfirmed = match self.confirm(connection, first, latest_us, limit).await {
            Ok(()) => return Ok(Ok(granted.reply)),
            Err(unconfirmed) => unconfirmed,
        };
        let in_flight = Some(connection.in_flight(latest_us));
        let error = match unconfirmed {
            // Its connection is gone: the retried release takes care of the lease.
            Unconfirmed::Unknown(failure) if failure.in_flight.is_some() => return Err(failure),
            Unconfirmed::Unknown(failure) => Err(failure),
            Unconfirmed::TooFew(error) => Ok(error),
        };
        let limit = self.clock.now() + self.response_timeout;
        let options = SendOptions::until(limit);
        let mut is_released = true;
        for lease in leases {
            let release = Release::unheard(lease);
            let released = self.try_release(connection, release, options).await;
            is_released &= released.is_ok();
        }
        if !is_released {
            // A server that was demoted meanwhile refuses the release. A retry finds the new
            // primary.
            return Err(Failure {
                error: error.unwrap_or_else(|failure: Failure| failure.error),
                transient: true,
                in_flight,
            });
        }
        Ok(Err(NotYet {
            until: self.clock.now() + AGAIN_AFTER,
            error: error?,
        }))
    }
}

/// Why a write does not count.
pub(super) enum Unconfirmed {
    TooFew(Error),
    Unknown(Failure),
}

impl From<Failure> for Unconfirmed {
    fn from(failure: Failure) -> Self {
        Self::Unknown(failure)
    }
}

impl From<Unconfirmed> for Failure {
    /// For a lease that need not be released: it continues as it was.
    fn from(unconfirmed: Unconfirmed) -> Self {
        match unconfirmed {
            Unconfirmed::TooFew(error) => Self::not_sent(error),
            Unconfirmed::Unknown(failure) => failure,
        }
    }
}

fn too_few(name: &LockName, confirmed: i64, wanted: u32, timeout: Duration) -> Error {
    Error::new(
        ErrorKind::NotReplicated,
        format!(
            "lock `{name}` needs `{wanted}` replicas, but only `{confirmed}` acknowledged it \
             within {timeout:.0?}: are they connected and keeping up?"
        ),
    )
}

/// Rounded up: `WAIT 0` would wait forever.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}
