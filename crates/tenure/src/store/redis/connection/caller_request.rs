//! Sends requests from the caller's own task, on any executor: without timers.

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, Pipeline, RedisError};

use super::Connection;
use super::request::{eval, is_unknown_script};
use super::timing::call_of;
use crate::error::ErrorKind;
use crate::store::redis::script::Script;
use crate::store::redis::server_error;
use crate::store::redis::value::Value;
use crate::store::{Failure, InFlight};
use crate::timings::Call;

impl Connection {
    /// Like [`script`](Connection::script), but from any executor: instead of a timer, the response
    /// timeout of the connection ends it.
    pub(crate) async fn script_on_caller<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        arguments: &[A],
        latest_us: u64,
    ) -> Result<Value, Failure> {
        let by_hash = eval("EVALSHA", script.hash(), keys, arguments);
        let mut reply = self.run_on_caller(&by_hash, latest_us).await;
        if reply.as_ref().is_err_and(is_unknown_script) {
            let by_text = eval("EVAL", script.code(), keys, arguments);
            reply = self.run_on_caller(&by_text, latest_us).await;
        }
        reply.map_err(|failure| self.mark_partial(failure, latest_us))
    }

    /// Runs a transaction, from `MULTI` to `EXEC`, like
    /// [`script_on_caller`](Connection::script_on_caller). Returns the replies of its commands.
    pub(in crate::store::redis) async fn run_all_on_caller(
        &self,
        transaction: &Pipeline,
        in_flight: InFlight,
    ) -> Result<Vec<Value>, Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let sending = inner.req_packed_commands(transaction, 0, transaction.len());
        let reply = self.await_reply_on_caller(sending, in_flight).await;
        // Transactions are only used to acquire locks.
        self.finish_call(&start, || Call::Acquire, &reply);
        let mut replies = reply?.into_iter();
        if let Some(Err(error)) = replies.next().map(::redis::Value::extract_error) {
            // Without `MULTI`, the commands ran one by one.
            return Err(self.failure_from(&error, Some(in_flight)));
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
                    // A user that may begin a transaction but not end it would stay in it for ever.
                    self.close();
                }
                refused
            }
            None => Ok(Vec::new()),
        }
    }

    async fn run_on_caller(&self, command: &Cmd, latest_us: u64) -> Result<Value, Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let sending = inner.req_packed_command(command);
        let reply = self
            .await_reply_on_caller(sending, self.in_flight(latest_us))
            .await;
        let reply = reply.and_then(|value| self.check_error(value));
        self.finish_call(&start, || call_of(command), &reply);
        reply
    }

    /// Waits for a reply without a timer.
    async fn await_reply_on_caller<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        in_flight: InFlight,
    ) -> Result<T, Failure> {
        let awaited = self.response_watch.expect_reply(&self.server.clock);
        let reply = tokio::select! {
            biased;
            reply = reply => reply,
            () = self.closed.cancelled() => {
                return Err(server_error::no_reply(&self.target, Some(in_flight)));
            }
        };
        match reply {
            Ok(value) => {
                awaited.answered();
                Ok(value)
            }
            Err(error) => {
                let failure = self.failure_from(&error, Some(in_flight));
                if failure.in_flight.is_some() {
                    self.close();
                }
                Err(failure)
            }
        }
    }
}
