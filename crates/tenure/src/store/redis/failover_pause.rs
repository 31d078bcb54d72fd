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

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, SendOptions};
use super::node::Node;
use super::perform::Unperformed;
use super::redis_store::RedisStore;
use super::script;
use super::script_call::ScriptCall;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, NotYet};

/// The reply of reign.lua.
struct PrimaryAge {
    primary: Arc<str>,
    lasted: Duration,
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

    /// Fails if the primary is still in its pause and may not grant this lock.
    pub(super) async fn check_failover_pause(
        &self,
        name: &LockName,
        node: &Arc<Node>,
        connection: &Connection,
        limit: Moment,
    ) -> Result<(), Unperformed> {
        let Some(wait) = self.after_failover.get() else {
            return Ok(());
        };
        if self.granting_primary(connection).is_some() {
            return Ok(());
        }
        let call =
            ScriptCall::new(&script::REIGN).key(self.keys.reign(self.routes.reign_tag(node)));
        let reply = connection
            .script(&call, SendOptions::until(limit))
            .await
            .map_err(|failure| explain(connection, failure))?;
        let reign = read(&reply).ok_or_else(|| Failure::refused(reply.unexpected("reign.lua")))?;
        if reign.lasted >= *wait {
            connection.trusted_primary().set(Some(reign.primary));
            return Ok(());
        }
        let left = wait.saturating_sub(reign.lasted);
        Err(Unperformed::Paused(NotYet {
            until: self.clock.now() + left,
            error: still_paused_error(name, connection, reign.lasted, left),
        }))
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
            "lock `{name}` is not granted yet: `{}` has been the primary for only {reigned:.1?}, \
             and leases of its predecessor may last for another {left:.1?}",
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
            "cannot determine how long `{}` has been the primary, which `after_failover` needs: \
             grant this user permission for INFO",
            connection.target()
        ),
    );
    Failure::refused(error.caused_by(failure.error))
}
