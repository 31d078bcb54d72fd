//! A script, asked where the lock is.

use super::RedisStore;
use super::cluster::Way;
use super::connection::Connection;
use super::node::Line;
use super::reign::TooYoung;
use super::script::Script;
use super::value::Value;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, Held, SILENCE_LIMIT};

/// How often an attempt may be told that it is late before the clocks are called unreasonable.
const LATE_MAX: usize = 3;

/// A script to be run where a lock is.
pub(super) struct Question<'a> {
    pub(super) name: &'a LockName,
    /// How many replicas will have to confirm what it writes.
    pub(super) replicas: u32,
    /// Set if it asks for a new lock, which a master that is too young does not give.
    pub(super) grants: Option<&'a TooYoung>,
    pub(super) script: &'a Script,
    pub(super) keys: &'a [String],
}

/// What a script said, when it was asked, and on which connection.
pub(super) struct Answer {
    pub(super) reply: Value,
    pub(super) sent_at: Moment,
    /// The latest moment by the server's clock that the question carried.
    pub(super) latest_us: u64,
    pub(super) connection: Line,
}

impl<'a> Question<'a> {
    pub(super) fn about(lease: &'a Held, script: &'a Script, keys: &'a [String]) -> Self {
        Self {
            name: &lease.name,
            replicas: lease.replicas,
            grants: None,
            script,
            keys,
        }
    }

    pub(super) fn for_new(self, too_young: &'a TooYoung) -> Self {
        Self {
            grants: Some(too_young),
            ..self
        }
    }
}

impl RedisStore {
    /// Runs a script where the lock is. The arguments may depend on the connection, and on the
    /// latest moment by the server's clock at which an answer is still waited for.
    pub(super) async fn ask(
        &self,
        question: &Question<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<Answer, Failure> {
        let mut way = self.way(question.name)?;
        loop {
            let answer = self.ask_at(&way, question, &arguments, limit).await;
            let Err(failure) = answer else { return answer };
            way = self.onward(question.name, way, failure, limit).await?;
        }
    }

    /// Runs a script that carries its latest moment: if it runs later, it changes nothing, and
    /// says so by an inner `Err` with the server's time.
    pub(super) async fn in_time<T>(
        &self,
        question: &Question<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        read: impl Fn(&Answer) -> Result<Result<T, u64>, Failure>,
        limit: Moment,
    ) -> Result<(T, Answer), Failure> {
        let mut tries = 0;
        loop {
            let answer = self.ask(question, &arguments, limit).await?;
            match read(&answer)? {
                Ok(read) => return Ok((read, answer)),
                // The server's clock was set forward since we asked for it.
                Err(server_us) => answer.connection.set_clock(answer.sent_at, server_us),
            }
            tries += 1;
            if self.clock.now() >= limit.min(answer.sent_at + SILENCE_LIMIT) {
                return Err(answer.connection.too_late());
            }
            if tries == LATE_MAX {
                return Err(answer.connection.clock_runs_away());
            }
        }
    }

    async fn ask_at(
        &self,
        way: &Way,
        question: &Question<'_>,
        arguments: &impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<Answer, Failure> {
        let connection = way.node.line(question.replicas, limit).await?;
        self.check_reign(question, &way.node, &connection, limit)
            .await?;
        let sent_at = self.clock.now();
        let limit = self.command_limit(limit);
        let latest_us = connection.server_us(limit);
        let arguments = arguments(&connection, latest_us);
        let Question { script, keys, .. } = question;
        let reply = connection
            .script_by(way.asking, script, keys, &arguments, limit, latest_us)
            .await?;
        Ok(Answer {
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
