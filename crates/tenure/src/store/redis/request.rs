//! Runs a script on the node that has the lock.

use super::cluster::Route;
use super::connection::Connection;
use super::failover_pause::GrantPause;
use super::node::ScriptConnection;
use super::redis_store::RedisStore;
use super::script::Script;
use super::value::Value;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, LeaseSpec, RESPONSE_TIMEOUT};

/// How often a request may be rejected as late, or by another primary, before it fails.
const REJECTIONS_MAX: usize = 3;

/// A script to run on the node that has a lock.
pub(super) struct ScriptRequest<'a> {
    pub(super) name: &'a LockName,
    /// How many replicas must acknowledge what it writes.
    pub(super) replicas: u32,
    /// Set if it requests a new lock, which a primary in its failover pause does not grant.
    pub(super) grants: Option<&'a GrantPause>,
    pub(super) script: &'a Script,
    pub(super) keys: &'a [String],
}

/// The reply of a script, when it was sent, and on which connection.
pub(super) struct ScriptReply {
    pub(super) reply: Value,
    pub(super) sent_at: Moment,
    /// The latest moment by the server's clock that the request carried.
    pub(super) latest_us: u64,
    pub(super) connection: ScriptConnection,
}

/// Why a script changed nothing but can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Its latest moment had passed: the server's clock shows this, in microseconds.
    Late(u64),
    /// Another primary replied than the trusted one.
    OtherPrimary,
}

impl<'a> ScriptRequest<'a> {
    pub(super) fn for_lease(lease: &'a LeaseSpec, script: &'a Script, keys: &'a [String]) -> Self {
        Self {
            name: &lease.name,
            replicas: lease.replicas,
            grants: None,
            script,
            keys,
        }
    }

    pub(super) fn granting(self, too_young: &'a GrantPause) -> Self {
        Self {
            grants: Some(too_young),
            ..self
        }
    }
}

impl ScriptReply {
    /// Learns from a rejection, so that the next attempt can succeed.
    pub(super) fn learn_from(&self, rejection: Rejection) {
        match rejection {
            // The server's clock was set forward since we read it.
            Rejection::Late(server_us) => self.connection.set_clock(self.sent_at, server_us),
            Rejection::OtherPrimary => self.connection.trusted_primary().forget(),
        }
    }
}

impl RedisStore {
    /// Runs a script on the node that has the lock. The arguments may depend on the connection, and
    /// on the latest moment by the server's clock at which a reply is still awaited.
    pub(super) async fn run_script(
        &self,
        request: &ScriptRequest<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<ScriptReply, Failure> {
        let mut route = self.route(request.name)?;
        loop {
            let reply = self.run_script_at(&route, request, &arguments, limit).await;
            let Err(failure) = reply else { return reply };
            route = self.next_route(request.name, route, failure, limit).await?;
        }
    }

    /// Runs a script that carries its latest moment, and perhaps the primary that may grant. If it
    /// runs later, or on another primary, it changes nothing and is retried.
    pub(super) async fn run_before_deadline<T>(
        &self,
        request: &ScriptRequest<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        read: impl Fn(&ScriptReply) -> Result<Result<T, Rejection>, Failure>,
        limit: Moment,
    ) -> Result<(T, ScriptReply), Failure> {
        let mut tries = 0;
        loop {
            let reply = self.run_script(request, &arguments, limit).await?;
            let rejection = match read(&reply)? {
                Ok(read) => return Ok((read, reply)),
                Err(rejection) => rejection,
            };
            reply.learn_from(rejection);
            tries += 1;
            if self.clock.now() >= limit.min(reply.sent_at + RESPONSE_TIMEOUT) {
                return Err(reply.connection.too_late());
            }
            if tries == REJECTIONS_MAX {
                return Err(match rejection {
                    Rejection::Late(_) => reply.connection.clock_runs_away(),
                    Rejection::OtherPrimary => reply.connection.primaries_change(),
                });
            }
        }
    }

    async fn run_script_at(
        &self,
        route: &Route,
        request: &ScriptRequest<'_>,
        arguments: &impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<ScriptReply, Failure> {
        let connection = route
            .node
            .script_connection(request.replicas, limit)
            .await?;
        self.check_failover_pause(request, &route.node, &connection, limit)
            .await?;
        let sent_at = self.clock.now();
        let limit = self.command_limit(limit);
        let latest_us = connection.server_us(limit);
        let arguments = arguments(&connection, latest_us);
        let ScriptRequest { script, keys, .. } = request;
        let reply = connection
            .script_routed(route.asking, script, keys, &arguments, limit, latest_us)
            .await?;
        Ok(ScriptReply {
            reply,
            sent_at: self.sent_at(sent_at),
            latest_us,
            connection,
        })
    }

    pub(super) fn sent_at(&self, sent_at: Moment) -> Moment {
        if bug(Bug::DeadlineFromReply) {
            return self.clock.now();
        }
        sent_at
    }
}
