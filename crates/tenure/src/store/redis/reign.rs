//! Whether a master has reigned for long enough to give new locks.
//!
//! A replica that is promoted may not have heard of the last locks of its master, and a server that
//! restarts may have forgotten them. Whoever asks for it (`after_failover`) gets no new lock from such
//! a one until every lease of its predecessor has ended. Since when it reigns is kept in Redis, so
//! that it holds for clients that come later, too.
//!
//! A connection leads to one process, so what was found out once holds for as long as it lasts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use super::node::Node;
use super::question::Question;
use super::server::ServerInfo;
use super::value::Value;
use super::{RedisStore, script};
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, NotYet};

/// `master_replid2` of a server that was never promoted.
const NO_PREDECESSOR: &str = "0000000000000000000000000000000000000000";

/// What a connection knows of the reign of the master that it leads to.
#[derive(Default)]
pub(super) struct Reign {
    of: OnceLock<Master>,
    /// Known to have lasted for long enough.
    settled: AtomicBool,
}

struct Master {
    /// Its run id, and its replication id, which changes with each promotion: a server may come to
    /// reign a second time.
    identity: String,
    /// The server's time in us since when it has reigned for certain.
    certain_us: Option<u64>,
}

/// The master whose reign is known to have lasted for long enough, by all connections to it.
#[derive(Default)]
pub(super) struct Settled(Mutex<Option<String>>);

/// Where a question that must wait leaves until when.
#[derive(Default)]
pub(super) struct TooYoung(Mutex<Option<NotYet>>);

impl Reign {
    /// Takes note of which master this is. `made_us` is the server's time when it said so.
    pub(super) fn note(&self, info: &ServerInfo, made_us: u64) {
        let (Some(run_id), Some(replid)) = (&info.run_id, &info.replication_id) else {
            return;
        };
        let promoted = info.predecessor_id.as_deref() != Some(NO_PREDECESSOR);
        let age_us = u64::try_from(info.uptime.as_micros()).unwrap_or(0);
        let _ = self.of.set(Master {
            identity: format!("{run_id}:{replid}"),
            // A server that was promoted does not say when.
            certain_us: (!promoted).then(|| made_us.saturating_sub(age_us)),
        });
    }

    pub(super) fn is_settled(&self, known: &Settled) -> bool {
        self.settled.load(Ordering::Relaxed) || self.look_up(known)
    }

    /// Whether another connection to the same master has found out.
    fn look_up(&self, known: &Settled) -> bool {
        let known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = self
            .of
            .get()
            .is_some_and(|of| known.as_ref() == Some(&of.identity));
        if settled {
            self.settled.store(true, Ordering::Relaxed);
        }
        settled
    }

    fn settle(&self, known: &Settled) {
        self.settled.store(true, Ordering::Relaxed);
        let identity = self.of.get().map(|of| of.identity.clone());
        *known.0.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

impl TooYoung {
    pub(super) fn take(&self) -> Option<NotYet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, not_yet: NotYet) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(not_yet);
    }
}

impl RedisStore {
    /// From now on no master gives new locks before it has reigned for so long.
    pub(crate) fn pause_after_failover(&self, wait: Duration) {
        // Said once, before anybody asks for a lock.
        let _ = self.after_failover.set(wait);
    }

    /// Whether this connection can be asked for a new lock without further ado.
    pub(super) fn may_grant(&self, connection: &Connection) -> bool {
        self.after_failover.get().is_none() || connection.may_grant()
    }

    /// Fails if this question is for a new lock and the master at the end of the connection is too
    /// young to give one. Until when is left with the question.
    pub(super) async fn check_reign(
        &self,
        question: &Question<'_>,
        node: &Arc<Node>,
        connection: &Connection,
        limit: Moment,
    ) -> Result<(), Failure> {
        let (Some(too_young), Some(wait)) = (question.grants, self.after_failover.get()) else {
            return Ok(());
        };
        if connection.may_grant() || bug(Bug::ReignIgnored) {
            return Ok(());
        }
        let of = connection.reign().of.get();
        let of = of.ok_or_else(|| who_knows(connection))?;
        let certain = of.certain_us.map_or_else(String::new, |us| us.to_string());
        let key = self.routes.reign_key(node);
        let arguments = [of.identity.as_str(), &certain];
        let reply = connection
            .script(&script::REIGN, &[key], &arguments, limit, 0)
            .await?;
        let (since_us, now_us) =
            read(&reply).ok_or_else(|| Failure::refused(reply.unexpected("reign.lua")))?;
        let reigned = Duration::from_micros(now_us.saturating_sub(since_us));
        if reigned >= *wait {
            connection.reign().settle(connection.settled());
            return Ok(());
        }
        let left = wait.saturating_sub(reigned);
        let error = || young(question.name, connection, reigned, left);
        too_young.note(NotYet {
            until: self.clock.now() + left,
            error: error(),
        });
        Err(Failure::not_sent(error()))
    }
}

fn read(reply: &Value) -> Option<(u64, u64)> {
    let [since, now] = reply.as_array()? else {
        return None;
    };
    let number = |value: &Value| u64::try_from(value.as_int()?).ok();
    Some((number(since)?, number(now)?))
}

fn young(name: &LockName, connection: &Connection, reigned: Duration, left: Duration) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "lock `{name}` is not granted yet: `{}` has been the master for {reigned:.1?} only, and \
             leases of its predecessor may last for {left:.1?} more",
            connection.target()
        ),
    )
}

fn who_knows(connection: &Connection) -> Failure {
    Failure::refused(Error::new(
        ErrorKind::Denied,
        format!(
            "cannot tell since when `{}` has been the master, as `after_failover` needs: give this \
             user the right to INFO",
            connection.target()
        ),
    ))
}
