//! Sends requests to a server, and waits for the reply until a deadline.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, Pipeline, RedisError};

use super::Connection;
use super::timing::{call_of, call_of_all};
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::script::Script;
use crate::store::redis::server_error;
use crate::store::redis::value::Value;
use crate::store::{Failure, RESPONSE_TIMEOUT};

impl Connection {
    /// Sends one command and waits for its reply.
    pub(crate) async fn run(
        &self,
        command: &Cmd,
        limit: Moment,
        latest_us: u64,
    ) -> Result<Value, Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let reply = self.await_reply(inner.req_packed_command(command), limit, latest_us);
        let reply = reply.await.and_then(|value| self.check_error(value));
        self.finish_call(&start, || call_of(command), &reply);
        reply
    }

    /// Sends a command, perhaps about keys of a slot that is migrating to this node. `ASKING`
    /// applies to the next command, so both are sent together.
    pub(in crate::store::redis) async fn run_routed(
        &self,
        asking: bool,
        command: &Cmd,
        limit: Moment,
        latest_us: u64,
    ) -> Result<Value, Failure> {
        if !asking || bug(Bug::AskWithoutAsking) {
            return self.run(command, limit, latest_us).await;
        }
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let reply = inner.req_packed_commands(&pipeline, 0, 2);
        let reply = self.await_reply(reply, limit, latest_us).await;
        let reply = reply
            .and_then(|mut values| self.check_error(values.pop().unwrap_or(::redis::Value::Nil)));
        self.finish_call(&start, || call_of(command), &reply);
        reply
    }

    /// Sends several commands together and waits for all replies.
    pub(crate) async fn run_all(
        &self,
        pipeline: &Pipeline,
        limit: Moment,
    ) -> Result<Vec<Value>, Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let reply = inner.req_packed_commands(pipeline, 0, pipeline.len());
        let reply = self.await_reply(reply, limit, 0).await;
        self.finish_call(&start, || call_of_all(pipeline), &reply);
        Ok(reply?.into_iter().map(Value::of).collect())
    }

    /// Runs a script by its hash, with its text if the server does not know it.
    pub(crate) async fn script<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        arguments: &[A],
        limit: Moment,
        latest_us: u64,
    ) -> Result<Value, Failure> {
        self.script_routed(false, script, keys, arguments, limit, latest_us)
            .await
    }

    /// Runs a script, perhaps on keys of a slot that is migrating to this node.
    pub(in crate::store::redis) async fn script_routed<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        asking: bool,
        script: &Script,
        keys: &[K],
        arguments: &[A],
        limit: Moment,
        latest_us: u64,
    ) -> Result<Value, Failure> {
        let by_hash = eval("EVALSHA", script.hash(), keys, arguments);
        let mut reply = self.run_routed(asking, &by_hash, limit, latest_us).await;
        if reply.as_ref().is_err_and(is_unknown_script) {
            let by_text = eval("EVAL", script.code(), keys, arguments);
            reply = self.run_routed(asking, &by_text, limit, latest_us).await;
        }
        reply.map_err(|failure| self.mark_partial(failure, latest_us))
    }

    /// Waits for a reply, tracks since when the server owes one, and closes the connection when it
    /// fails or times out.
    pub(super) async fn await_reply<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        limit: Moment,
        latest_us: u64,
    ) -> Result<T, Failure> {
        let target = &self.target;
        let in_flight = self.in_flight(latest_us);
        let sent_at = self.server.clock.now();
        let awaited = sent_at.as_nanos().max(1);
        let _ = self.reply_owed_since.compare_exchange(
            0,
            awaited,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let left = limit.saturating_since(sent_at);
        let reply = async {
            tokio::select! {
                biased;
                reply = tokio::time::timeout(left, reply) => reply.ok(),
                () = self.closed.cancelled() => None,
            }
        };
        match reply.await {
            Some(Ok(value)) => {
                self.reply_owed_since.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Some(Err(error)) => {
                let failure = self.failure_from(&error, Some(in_flight));
                if failure.in_flight.is_some() {
                    self.close();
                } else {
                    self.reply_owed_since.store(0, Ordering::Relaxed);
                }
                Err(failure)
            }
            None => {
                self.close_if_silent();
                Err(server_error::no_reply(target, Some(in_flight)))
            }
        }
    }

    fn close_if_silent(&self) {
        let reply_owed_since = self.reply_owed_since.load(Ordering::Relaxed);
        let silent = self
            .server
            .clock
            .now()
            .saturating_since(Moment::from_nanos(reply_owed_since));
        if reply_owed_since > 0 && silent + Duration::from_millis(5) >= RESPONSE_TIMEOUT {
            self.close();
        }
    }

    /// A script that failed midway may have changed something: marks the failure accordingly.
    pub(super) fn mark_partial(&self, mut failure: Failure, latest_us: u64) -> Failure {
        if failure.in_flight.is_none()
            && server_error::reply_of(&failure)
                .is_some_and(|reply| server_error::ran_partly(&reply))
        {
            failure.in_flight = Some(self.in_flight(latest_us));
        }
        failure
    }
}

pub(super) fn eval<K: AsRef<[u8]>, A: AsRef<[u8]>>(
    command: &str,
    script: &str,
    keys: &[K],
    arguments: &[A],
) -> Cmd {
    let mut command = ::redis::cmd(command);
    command.arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_ref());
    }
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command
}

pub(super) fn is_unknown_script(failure: &Failure) -> bool {
    server_error::reply_of(failure).is_some_and(|reply| reply.starts_with("NOSCRIPT"))
}
