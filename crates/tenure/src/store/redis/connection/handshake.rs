//! The handshake on a new connection: who is there, and is that server fit for locks.

use super::Connection;
use crate::error::{Error, ErrorKind};
use crate::moment::{Clock, Moment};
use crate::store::Failure;
use crate::store::redis::command::{Cmd, Pipeline};
use crate::store::redis::server::ServerInfo;
use crate::store::redis::value::Value;
use crate::store::redis::wire::ReadBy;
use crate::store::redis::{script, server_error};

impl Connection {
    /// Logs in, selects the protocol and the database, and tells the server who we are.
    pub(in crate::store::redis) async fn log_in(&self) -> Result<(), Failure> {
        let target = &self.target;
        let mut pipeline = Pipeline::new();
        let hello = pipeline.cmd("HELLO").arg("3");
        if let Some(password) = &target.password {
            let user = target.user.as_deref().unwrap_or("default");
            hello.arg("AUTH").arg(user).arg(password.reveal());
        }
        pipeline.cmd("SELECT").arg(target.database);
        // Redis 7.2 shows these in `CLIENT LIST`. Older servers refuse them, which does no harm.
        for (field, value) in [
            ("LIB-NAME", env!("CARGO_PKG_NAME")),
            ("LIB-VER", env!("CARGO_PKG_VERSION")),
        ] {
            pipeline.cmd("CLIENT").arg(["SETINFO", field, value]);
        }
        let replies = self.wire.run_all(&pipeline).await;
        let replies =
            replies.map_err(|error| server_error::from_wire(&self.target, &error, None))?;
        if let Some(Value::Error(error)) = replies.first() {
            let is_old = error.starts_with("NOPROTO") || error.contains("unknown command");
            return Err(if is_old {
                server_error::without_resp3(&self.target, error)
            } else {
                self.failure_from_reply(error)
            });
        }
        match replies.get(1) {
            Some(Value::Error(error)) if target.database > 0 => Err(self.failure_from_reply(error)),
            _ => Ok(()),
        }
    }

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
        let replies = self.wire.run_all(&pipeline).await;
        let replies =
            replies.map_err(|error| server_error::from_wire(&self.target, &error, None))?;
        let mut replies = replies.into_iter();
        let info = replies.next().unwrap_or(Value::Nil);
        if let Value::Error(error) = &info
            && !error.starts_with("NOPERM")
        {
            return Err(self.failure_from_reply(error));
        }
        let info = ServerInfo::parse(info.as_str().unwrap_or_default());
        self.server.check_fit(&info)?;
        if info.in_cluster {
            self.server.wants_one_slot();
        }
        let time = replies.next();
        self.note_clock(asked_at, time.as_ref().and_then(Value::as_server_time_us));
        if self.server.moves() {
            self.check_role(&info, replies.next())?;
        }
        Ok(())
    }

    /// Sends the setup command. Returns whether the server accepts it.
    pub(in crate::store::redis) async fn run_setup(&self, command: &Cmd) -> bool {
        let reply = self.wire.run(command, ReadBy::Driver).await;
        reply.is_ok_and(|reply| reply.error().is_none())
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
        match server_us {
            Some(server_us) => self.set_clock(asked_at, server_us),
            None => self.guess_clock(asked_at, Clock::Boot.wall_micros()),
        }
    }
}
