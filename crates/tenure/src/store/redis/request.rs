//! A script, asked where the lock is.

use super::RedisStore;
use super::cluster::Route;
use super::connection::Connection;
use super::failover_pause::GrantPause;
use super::node::ScriptConnection;
use super::script::Script;
use super::value::Value;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, LeaseSpec, SILENCE_LIMIT};

/// How often an attempt may be told that it is late, or that another master answers, before it fails.
const DECLINED_MAX: usize = 3;

/// A script to be run where a lock is.
pub(super) struct ScriptRequest<'a> {
    pub(super) name: &'a LockName,
    /// How many replicas will have to confirm what it writes.
    pub(super) replicas: u32,
    /// Set if it asks for a new lock, which a master that is too young does not give.
    pub(super) grants: Option<&'a GrantPause>,
    pub(super) script: &'a Script,
    pub(super) keys: &'a [String],
}

/// What a script said, when it was asked, and on which connection.
pub(super) struct ScriptReply {
    pub(super) reply: Value,
    pub(super) sent_at: Moment,
    /// The latest moment by the server's clock that the question carried.
    pub(super) latest_us: u64,
    pub(super) connection: ScriptConnection,
}

/// Why a script changed nothing, though it could be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Its latest moment had passed: the server's clock shows this, in microseconds.
    Late(u64),
    /// Another master answered than the one that is known to be old enough to grant.
    OtherMaster,
}

impl<'a> ScriptRequest<'a> {
    pub(super) fn about(lease: &'a LeaseSpec, script: &'a Script, keys: &'a [String]) -> Self {
        Self {
            name: &lease.name,
            replicas: lease.replicas,
            grants: None,
            script,
            keys,
        }
    }

    pub(super) fn for_new(self, too_young: &'a GrantPause) -> Self {
        Self {
            grants: Some(too_young),
            ..self
        }
    }
}

impl ScriptReply {
    /// Learns from a script that changed nothing, so that the next attempt can succeed.
    pub(super) fn note(&self, declined: Rejection) {
        match declined {
            // The server's clock was set forward since we asked for it.
            Rejection::Late(server_us) => self.connection.set_clock(self.sent_at, server_us),
            Rejection::OtherMaster => self.connection.settled().forget(),
        }
    }
}

impl RedisStore {
    /// Runs a script where the lock is. The arguments may depend on the connection, and on the
    /// latest moment by the server's clock at which an answer is still waited for.
    pub(super) async fn ask(
        &self,
        question: &ScriptRequest<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<ScriptReply, Failure> {
        let mut way = self.way(question.name)?;
        loop {
            let answer = self.ask_at(&way, question, &arguments, limit).await;
            let Err(failure) = answer else { return answer };
            way = self.onward(question.name, way, failure, limit).await?;
        }
    }

    /// Runs a script that carries its latest moment, and perhaps the master that may grant. If it
    /// runs later, or on another master, it changes nothing, and says so by an inner `Err`.
    pub(super) async fn in_time<T>(
        &self,
        question: &ScriptRequest<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        read: impl Fn(&ScriptReply) -> Result<Result<T, Rejection>, Failure>,
        limit: Moment,
    ) -> Result<(T, ScriptReply), Failure> {
        let mut tries = 0;
        loop {
            let answer = self.ask(question, &arguments, limit).await?;
            let declined = match read(&answer)? {
                Ok(read) => return Ok((read, answer)),
                Err(declined) => declined,
            };
            answer.note(declined);
            tries += 1;
            if self.clock.now() >= limit.min(answer.sent_at + SILENCE_LIMIT) {
                return Err(answer.connection.too_late());
            }
            if tries == DECLINED_MAX {
                return Err(match declined {
                    Rejection::Late(_) => answer.connection.clock_runs_away(),
                    Rejection::OtherMaster => answer.connection.masters_change(),
                });
            }
        }
    }

    async fn ask_at(
        &self,
        way: &Route,
        question: &ScriptRequest<'_>,
        arguments: &impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<ScriptReply, Failure> {
        let connection = way.node.line(question.replicas, limit).await?;
        self.check_reign(question, &way.node, &connection, limit)
            .await?;
        let sent_at = self.clock.now();
        let limit = self.command_limit(limit);
        let latest_us = connection.server_us(limit);
        let arguments = arguments(&connection, latest_us);
        let ScriptRequest { script, keys, .. } = question;
        let reply = connection
            .script_by(way.asking, script, keys, &arguments, limit, latest_us)
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
