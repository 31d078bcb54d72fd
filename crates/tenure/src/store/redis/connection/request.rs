//! Sends requests to a server and waits for the replies.
//!
//! There is one way for all requests. Those of the engine wait until a deadline; those of a caller's
//! own task have no timer and wait until the connection times out.

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, Pipeline, RedisError};

use super::Connection;
use super::send_options::{ReplyWait, SendOptions};
use super::timing::{call_of, call_of_all};
use crate::error::ErrorKind;
use crate::seeded::{Bug, bug};
use crate::store::Failure;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::server_error;
use crate::store::redis::value::Value;
use crate::timings::Call;

impl Connection {
    /// Sends one command and waits for its reply.
    pub(crate) async fn run(&self, command: &Cmd, options: SendOptions) -> Result<Value, Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let reply = if options.asking && !bug(Bug::AskWithoutAsking) {
            // `ASKING` applies to the next command, so both are sent together.
            let mut pipeline = Pipeline::with_capacity(2);
            pipeline.cmd("ASKING").add_command(command.clone());
            let replies = inner.req_packed_commands(&pipeline, 0, 2);
            let replies = self.await_reply(replies, options).await;
            replies.map(|mut values| values.pop().unwrap_or(::redis::Value::Nil))
        } else {
            let reply = inner.req_packed_command(command);
            self.await_reply(reply, options).await
        };
        let reply = reply.and_then(|value| self.check_error(value));
        self.finish_call(&start, || call_of(command), &reply);
        reply
    }

    /// Sends several commands together and waits for all replies.
    pub(crate) async fn run_all(
        &self,
        pipeline: &Pipeline,
        options: SendOptions,
    ) -> Result<Vec<Value>, Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let replies = inner.req_packed_commands(pipeline, 0, pipeline.len());
        let replies = self.await_reply(replies, options).await;
        self.finish_call(&start, || call_of_all(pipeline), &replies);
        Ok(replies?.into_iter().map(Value::of).collect())
    }

    /// Runs a transaction, from `MULTI` to `EXEC`. Returns the replies of its commands.
    pub(in crate::store::redis) async fn run_transaction(
        &self,
        transaction: &Pipeline,
        options: SendOptions,
    ) -> Result<Vec<Value>, Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let replies = inner.req_packed_commands(transaction, 0, transaction.len());
        let replies = self.await_reply(replies, options).await;
        // Transactions are only used to acquire locks.
        self.finish_call(&start, || Call::Acquire, &replies);
        let mut replies = replies?.into_iter();
        if let Some(Err(error)) = replies.next().map(::redis::Value::extract_error) {
            // Without `MULTI`, the commands ran one by one.
            return Err(self.failure_from(&error, Some(self.in_flight(options.latest_us))));
        }
        let whole = replies.next_back();
        for queued in replies {
            // A command that cannot be queued makes `EXEC` do nothing, and its error tells why.
            self.check_error(queued)?;
        }
        match whole {
            Some(::redis::Value::Array(values)) => Ok(values.into_iter().map(Value::of).collect()),
            Some(value) => {
                let refused = self.check_error(value).map(|value| vec![value]);
                if refused
                    .as_ref()
                    .is_err_and(|it| it.error.kind() == ErrorKind::Denied)
                {
                    // A user that may begin a transaction but not end it would stay in it forever.
                    self.close();
                }
                refused
            }
            None => Ok(Vec::new()),
        }
    }

    /// Runs a script by its hash, with its text if the server does not know it.
    pub(crate) async fn script<T: AsRef<[u8]>>(
        &self,
        call: &ScriptCall<'_, T>,
        options: SendOptions,
    ) -> Result<Value, Failure> {
        let mut reply = self.run(&call.by_hash(), options).await;
        if reply.as_ref().is_err_and(is_unknown_script) {
            reply = self.run(&call.by_text(), options).await;
        }
        reply.map_err(|failure| self.mark_partial(failure, options.latest_us))
    }

    /// Waits for a reply, and closes the connection when it fails or times out.
    pub(super) async fn await_reply<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        options: SendOptions,
    ) -> Result<T, Failure> {
        let clock = &self.server.clock;
        let has_timer = options.wait != ReplyWait::ResponseTimeout;
        let awaited = self.response_watch.expect_reply(clock, has_timer);
        let reply = async {
            match options.wait {
                ReplyWait::Until(limit) => {
                    let left = limit.saturating_since(awaited.sent_at);
                    tokio::time::timeout(left, reply).await.ok()
                }
                ReplyWait::ResponseTimeout => Some(reply.await),
            }
        };
        let reply = tokio::select! {
            biased;
            reply = reply => reply,
            () = self.closed.cancelled() => None,
        };
        let in_flight = self.in_flight(options.latest_us);
        match reply {
            Some(Ok(value)) => {
                awaited.answered();
                Ok(value)
            }
            Some(Err(error)) => {
                let failure = self.failure_from(&error, Some(in_flight));
                if failure.in_flight.is_some() {
                    self.close();
                } else {
                    awaited.answered();
                }
                Err(failure)
            }
            None => {
                if self
                    .response_watch
                    .is_overdue(clock.now(), self.target.response_timeout)
                {
                    self.close();
                }
                Err(server_error::no_reply(&self.target, Some(in_flight)))
            }
        }
    }

    /// A script that failed midway may have changed something: marks the failure accordingly.
    fn mark_partial(&self, mut failure: Failure, latest_us: u64) -> Failure {
        if failure.in_flight.is_none()
            && server_error::reply_of(&failure)
                .is_some_and(|reply| server_error::ran_partly(&reply))
        {
            failure.in_flight = Some(self.in_flight(latest_us));
        }
        failure
    }
}

fn is_unknown_script(failure: &Failure) -> bool {
    server_error::reply_of(failure).is_some_and(|reply| reply.starts_with("NOSCRIPT"))
}
