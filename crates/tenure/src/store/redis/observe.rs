//! Reads who holds a lock, and has the server tell when that changes.

use super::cluster::Route;
use super::command::Pipeline;
use super::connection::{Connection, SendOptions};
use super::operation::{Inspect, Operation};
use super::redis_store::RedisStore;
use super::value::Value;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Failure, LockState};

impl RedisStore {
    /// Reads by the connection for invalidations: the server remembers that it read the lock and its
    /// metadata, and sends a push when one of them changes, once. If that is not possible now, it
    /// only reads.
    pub(super) async fn try_observe(
        &self,
        name: &LockName,
        limit: Moment,
    ) -> Result<Option<LockState>, Failure> {
        let limit = self.command_limit(limit);
        let mut route = self.route(name)?;
        loop {
            if route.asking {
                // `ASKING` and `CLIENT CACHING` cannot both apply to one command.
                return self.try_inspect(name, limit).await;
            }
            match self.observe_at(&route, name, limit).await {
                Ok(Some(state)) => return Ok(state),
                Ok(None) => return self.try_inspect(name, limit).await,
                Err(failure) => route = self.next_route(name, route, failure, limit).await?,
            }
        }
    }

    /// The outer `None` if the server refuses to run the script here: for example, it does not know it.
    async fn observe_at(
        &self,
        route: &Route,
        name: &LockName,
        limit: Moment,
    ) -> Result<Option<Option<LockState>>, Failure> {
        let connection = route.node.listener.reconnector.connection(limit).await?;
        let look = Inspect(name);
        let mut reply = self.look_tracked(&connection, &look, false, limit).await?;
        if reply
            .error()
            .is_some_and(|error| error.starts_with("NOSCRIPT"))
        {
            reply = self.look_tracked(&connection, &look, true, limit).await?;
        }
        if let Some(error) = reply.error() {
            // The slot has moved, or this user lacks a permission: what a plain look reports.
            self.routes.note_error_reply(&route.node, error);
            return Ok(None);
        }
        let read = look.read(&self.reply(reply, self.clock.now()))?;
        Ok(read.ok())
    }

    async fn look_tracked(
        &self,
        connection: &Connection,
        look: &Inspect<'_>,
        by_text: bool,
        limit: Moment,
    ) -> Result<Value, Failure> {
        let call = self.plain_call(look);
        let mut pipeline = Pipeline::with_capacity(2);
        // It applies to the next command.
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
        pipeline.add_command(if by_text {
            call.by_text()
        } else {
            call.by_hash()
        });
        let options = SendOptions::until(limit);
        let mut replies = connection.run_all(&pipeline, options).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }
}
