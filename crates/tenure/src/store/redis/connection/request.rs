//! Sends requests to a server and waits for the replies.
//!
//! There is one way for all requests. Those of the engine wait until a deadline; those of a caller's
//! own task have no timer and wait until the connection times out.

use super::Connection;
use super::send_options::{ReplyWait, SendOptions};
use super::timing::{call_of, call_of_all};
use crate::seeded::{Bug, bug};
use crate::store::Failure;
use crate::store::redis::command::{Cmd, Pipeline};
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::server_error;
use crate::store::redis::value::Value;
use crate::store::redis::wire::{ReadBy, Reply, WireError};

impl Connection {
    /// Sends one command and waits for its reply.
    pub(crate) async fn run(&self, command: &Cmd, options: SendOptions) -> Result<Value, Failure> {
        let start = self.start_call();
        let reply = if options.asking && !bug(Bug::AskWithoutAsking) {
            // `ASKING` applies to the next command, so both are sent together.
            let mut pipeline = Pipeline::new();
            pipeline.cmd("ASKING");
            pipeline.add_command(command.clone());
            let replies = self.await_reply(self.wire.run_all(&pipeline), options);
            let replies = replies.await;
            replies.map(|mut values| values.pop().unwrap_or(Value::Nil))
        } else {
            let read_by = match options.wait {
                ReplyWait::ResponseTimeout => ReadBy::Caller,
                ReplyWait::Until(_) => ReadBy::Driver,
            };
            let reply = self.wire.run(command, read_by);
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
        let start = self.start_call();
        let replies = self.await_reply(self.wire.run_all(pipeline), options);
        let replies = replies.await;
        self.finish_call(&start, || call_of_all(pipeline), &replies);
        replies
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
    pub(in crate::store::redis) async fn await_reply<T>(
        &self,
        reply: impl Future<Output = Reply<T>>,
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
        let reply = reply.await;
        let in_flight = self.in_flight(options.latest_us);
        match reply {
            Some(Ok(value)) => {
                awaited.answered();
                Ok(value)
            }
            Some(Err(WireError::Closed)) => {
                Err(server_error::no_reply(&self.target, Some(in_flight)))
            }
            Some(Err(error)) => {
                self.close();
                Err(server_error::from_wire(
                    &self.target,
                    &error,
                    Some(in_flight),
                ))
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
