//! Whether a primary has been in charge long enough to grant new locks.
//!
//! A promoted replica may not know the last locks of its predecessor, and a restarted server may
//! have forgotten them. A client that sets `after_failover` gets no new lock from such a server
//! until every lease of its predecessor has expired. The start of the pause is stored in Redis, so
//! that later clients agree.
//!
//! A connection does not prove who is at its other end: a primary may be demoted and promoted
//! again, and a proxy may switch servers, while the socket stays open. So a client remembers which
//! primary it trusts, by run id and replication id, and the granting script compares that with the
//! server it runs on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use super::node::Node;
use super::redis_store::RedisStore;
use super::request::ScriptRequest;
use super::script;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, NotYet};

/// Filled in if a request must wait: until when, and why.
#[derive(Default)]
pub(super) struct GrantPause(Mutex<Option<NotYet>>);

const NO_ARGUMENTS: [&str; 0] = [];

/// The reply of reign.lua.
struct PrimaryAge {
    primary: Arc<str>,
    lasted: Duration,
}

impl GrantPause {
    pub(super) fn take(&self) -> Option<NotYet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, not_yet: NotYet) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(not_yet);
    }
}

impl RedisStore {
    /// From now on no primary grants new locks until it has been in charge this long.
    pub(crate) fn pause_after_failover(&self, wait: Duration) {
        // Set once, before the first lock is acquired.
        let _ = self.after_failover.set(wait);
    }

    pub(super) fn pauses_after_failover(&self) -> bool {
        self.after_failover.get().is_some()
    }

    /// The only primary that may grant, for the script to compare: empty if any may. `None` if none
    /// is trusted yet.
    pub(super) fn granting_primary(&self, connection: &Connection) -> Option<String> {
        if !self.pauses_after_failover() || bug(Bug::ReignIgnored) {
            return Some(String::new());
        }
        let primary = connection.trusted_primary().primary();
        primary.map(|primary| primary.to_string())
    }

    /// Fails if this request is for a new lock and the primary is still in its pause. Leaves the
    /// end of the pause in the request.
    pub(super) async fn check_failover_pause(
        &self,
        request: &ScriptRequest<'_>,
        node: &Arc<Node>,
        connection: &Connection,
        limit: Moment,
    ) -> Result<(), Failure> {
        let (Some(pause), Some(wait)) = (request.grants, self.after_failover.get()) else {
            return Ok(());
        };
        if self.granting_primary(connection).is_some() {
            return Ok(());
        }
        let key = self.routes.reign_key(node);
        let reply = connection
            .script(&script::REIGN, &[key], &NO_ARGUMENTS, limit, 0)
            .await
            .map_err(|failure| explain(connection, failure))?;
        let reign = read(&reply).ok_or_else(|| Failure::refused(reply.unexpected("reign.lua")))?;
        if reign.lasted >= *wait {
            connection.trusted_primary().set(Some(reign.primary));
            return Ok(());
        }
        let left = wait.saturating_sub(reign.lasted);
        let error = || still_paused_error(request.name, connection, reign.lasted, left);
        pause.note(NotYet {
            until: self.clock.now() + left,
            error: error(),
        });
        Err(Failure::not_sent(error()))
    }
}

fn read(reply: &Value) -> Option<PrimaryAge> {
    let [primary, since, now] = reply.as_array()? else {
        return None;
    };
    let number = |value: &Value| u64::try_from(value.as_int()?).ok();
    Some(PrimaryAge {
        primary: Arc::from(primary.as_str()?),
        lasted: Duration::from_micros(number(now)?.saturating_sub(number(since)?)),
    })
}

fn still_paused_error(
    name: &LockName,
    connection: &Connection,
    reigned: Duration,
    left: Duration,
) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "lock `{name}` is not granted yet: `{}` has been the master for {reigned:.1?} only, and \
             leases of its predecessor may last for {left:.1?} more",
            connection.target()
        ),
    )
}

/// Names the permission that is most likely missing.
fn explain(connection: &Connection, failure: Failure) -> Failure {
    if failure.error.kind() != ErrorKind::Denied {
        return failure;
    }
    let error = Error::new(
        ErrorKind::Denied,
        format!(
            "cannot tell since when `{}` has been the master, as `after_failover` needs: give this \
             user the right to INFO",
            connection.target()
        ),
    );
    Failure::refused(error.caused_by(failure.error))
}
