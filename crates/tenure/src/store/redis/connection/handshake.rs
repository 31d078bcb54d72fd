//! The handshake on a new connection: who is there, and is that server fit for locks.

use ::redis::{Cmd, Pipeline};

use super::Connection;
use crate::error::{Error, ErrorKind};
use crate::moment::{Clock, Moment};
use crate::store::Failure;
use crate::store::redis::server::ServerInfo;
use crate::store::redis::value::Value;
use crate::store::redis::{script, server_error};

impl Connection {
    /// Learns the server's version, clock and settings, and loads the scripts. What the user may
    /// not read stays unknown.
    pub(in crate::store::redis) async fn handshake(&self) -> Result<(), Failure> {
        if self.server.is_sentinel() {
            return Ok(());
        }
        let mut pipeline = Pipeline::new();
        pipeline.cmd("INFO");
        pipeline.cmd("TIME");
        if self.server.moves() {
            pipeline.cmd("ROLE");
        }
        for (_, script) in script::all(self.server.scripts()) {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.code());
        }
        let asked_at = self.server.clock.now();
        let replies = self
            .inner
            .clone()
            .send_packed_commands(&pipeline, 0, pipeline.len())
            .await
            .map_err(|error| server_error::from_error(&self.target, &error, None))?;
        let mut replies = replies.into_iter();
        let info = replies.next().unwrap_or(::redis::Value::Nil);
        if let Err(error) = info.clone().extract_error()
            && error.code() != Some("NOPERM")
        {
            return Err(server_error::from_error(&self.target, &error, None));
        }
        let info = ServerInfo::parse(Value::of(info).as_str().unwrap_or_default());
        self.server.check_fit(&info)?;
        let time = replies.next().map(Value::of);
        self.note_clock(asked_at, time.as_ref().and_then(Value::as_server_time_us));
        if self.server.moves() {
            self.check_role(&info, replies.next().map(Value::of))?;
        }
        Ok(())
    }

    /// Sends the setup command. Returns whether the server accepts it.
    pub(in crate::store::redis) async fn run_setup(&self, command: &Cmd) -> bool {
        let answer = self.inner.clone().send_packed_command(command).await;
        answer.and_then(::redis::Value::extract_error).is_ok()
    }

    /// Refuses a replica where the primary is wanted: the sentinels may be behind. If the user may
    /// not read the role, the first write shows it.
    fn check_role(&self, info: &ServerInfo, role: Option<Value>) -> Result<(), Failure> {
        let role = role.and_then(|role| role.as_array()?.first()?.lossy());
        let role = role.or_else(|| info.role.clone());
        if role.is_none_or(|role| role == "master") {
            return Ok(());
        }
        Err(Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "`{}` is a replica, but the Sentinels of `{}` report it as the primary: a \
                 failover may be in progress",
                self.target, self.server
            ),
        )))
    }

    /// Notes the server's clock at the start of the connection.
    fn note_clock(&self, asked_at: Moment, server_us: Option<u64>) {
        let server_us = server_us.unwrap_or_else(|| Clock::Boot.wall_micros());
        self.set_clock(asked_at, server_us);
    }
}
