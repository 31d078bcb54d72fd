//! A small client for building things beside locks: the same connection, scripts and errors that
//! the store uses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Pipeline;

use super::link::{Connection, Link};
use super::script::Script;
use super::server::{Server, ServerInfo};
use super::value::Value;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::moment::Moment;
use crate::settings::UNREACHABLE_AFTER_DEFAULT;
use crate::stats::Stats;
use crate::store::Failure;
use crate::url::Target;

/// A connection to Redis that comes back by itself. Cheap to clone, usable from any executor.
///
/// Nothing is ever sent twice: when an answer is lost, the call fails with
/// [`ErrorKind::Unavailable`], and whether to repeat it is the caller's decision. Dropping a future
/// does not take back what was sent.
///
/// ```no_run
/// use tenure::redis::{Client, Command, Script};
///
/// # async fn example() -> Result<(), tenure::Error> {
/// let redis = Client::connect("redis://127.0.0.1/").await?;
/// redis.run(Command::new("SET").arg("stock:{7}").arg(100)).await?;
/// let take = Script::new("#!lua\nreturn redis.call('DECRBY', KEYS[1], ARGV[1])");
/// let left = redis.script(&take, &["stock:{7}"], &["1"]).await?;
/// assert_eq!(left.as_int(), Some(99));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    engine: Engine,
    server: Arc<Server>,
    link: Link,
    limit: Duration,
}

/// A command with its arguments.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is run"]
pub struct Command {
    parts: Vec<Vec<u8>>,
}

/// A connection of its own, for commands that block it, such as `XREAD BLOCK` or `WAIT`.
#[derive(Clone)]
pub struct Dedicated {
    engine: Engine,
    connection: Arc<Connection>,
    server: Arc<Server>,
}

impl Client {
    /// Connects to the server that `url` names. The URL is that of
    /// [`Tenure::connect`](crate::Tenure::connect), without `memory://`.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        let target = Target::parse(url.as_ref())?;
        let stats = Arc::new(Stats::default());
        let engine = Engine::start()?;
        let server = match target {
            Target::Redis(target) => Server::new(target, stats),
            Target::Sentinel(target) => {
                let beginning = async move { Server::master_of(target, stats) };
                engine.run(beginning).await?
            }
            Target::Cluster(_) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "cannot run commands on a Cluster yet: connect to one server with `redis://`, or \
                     to a master by its sentinels",
                ));
            }
            Target::Memory { .. } => {
                return Err(Error::new(
                    ErrorKind::InvalidUrl,
                    "cannot run commands on `memory://`: there is no server",
                ));
            }
        };
        let client = Self {
            engine,
            link: Link::new(Arc::clone(&server)),
            server,
            limit: UNREACHABLE_AFTER_DEFAULT,
        };
        client.on_connection(|_, _| async { Ok(()) }).await?;
        Ok(client)
    }

    /// Runs one command.
    pub async fn run(&self, command: Command) -> Result<Value> {
        self.on_connection(move |connection, limit| async move {
            connection.run(&command.into_cmd(), limit, 0).await
        })
        .await
    }

    /// Runs several commands in one round trip. A command that fails gives a [`Value::Error`] in
    /// its place.
    pub async fn run_all(&self, commands: Vec<Command>) -> Result<Vec<Value>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.on_connection(move |connection, limit| async move {
            let mut pipeline = Pipeline::new();
            for command in commands {
                pipeline.add_command(command.into_cmd());
            }
            connection.run_all(&pipeline, limit).await
        })
        .await
    }

    /// Runs a script on keys that share a slot.
    pub async fn script<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        arguments: &[A],
    ) -> Result<Value> {
        let script = script.clone();
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        let arguments: Vec<Vec<u8>> = arguments
            .iter()
            .map(|argument| argument.as_ref().to_vec())
            .collect();
        self.on_connection(move |connection, limit| async move {
            connection
                .script(&script, &keys, &arguments, limit, 0)
                .await
        })
        .await
    }

    /// A connection of its own.
    pub async fn dedicated(&self) -> Result<Dedicated> {
        let link = Link::new(Arc::clone(&self.server));
        let limit = self.server.clock.now() + self.limit;
        let connecting = async move { link.connection(limit).await };
        let connection = self.engine.run(connecting).await?;
        Ok(Dedicated {
            engine: self.engine.clone(),
            connection: connection.map_err(|failure| failure.error)?,
            server: Arc::clone(&self.server),
        })
    }

    /// The identity of the server's process: another one after every restart and failover. `None`
    /// where the user may not ask for it.
    pub async fn run_id(&self) -> Result<Option<String>> {
        // Asked each time: what the connection was told at first may be about an ended process.
        let info = self.run(Command::new("INFO").arg("server")).await;
        match info {
            Ok(info) => Ok(ServerInfo::parse(info.as_str().unwrap_or_default()).run_id),
            Err(error) if error.kind() == ErrorKind::Denied => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn on_connection<T, F>(
        &self,
        work: impl FnOnce(Arc<Connection>, Moment) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let link = self.link.clone();
        let limit = self.server.clock.now() + self.limit;
        let running = async move {
            let connection = link.connection(limit).await?;
            work(connection, limit).await
        };
        let result = self.engine.run(running).await?;
        result.map_err(|failure: Failure| failure.error)
    }
}

impl Command {
    /// A command without arguments yet.
    pub fn new(name: &str) -> Self {
        Self {
            parts: vec![name.as_bytes().to_vec()],
        }
    }

    /// Adds an argument: text or a number.
    pub fn arg(self, argument: impl std::fmt::Display) -> Self {
        self.bytes(format!("{argument}"))
    }

    /// Adds an argument of any bytes.
    pub fn bytes(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.parts.push(argument.into());
        self
    }

    fn into_cmd(self) -> ::redis::Cmd {
        let mut command = ::redis::Cmd::new();
        for part in self.parts {
            command.arg(part);
        }
        command
    }
}

impl Dedicated {
    /// Runs a command that may block for a while, and waits at most `limit` for it. Afterwards the
    /// connection may still be blocked: drop it.
    pub async fn run(&self, command: Command, limit: Duration) -> Result<Value> {
        let connection = Arc::clone(&self.connection);
        let limit = self.server.clock.now() + limit;
        let running = async move { connection.run(&command.into_cmd(), limit, 0).await };
        let result = self.engine.run(running).await?;
        result.map_err(|failure| failure.error)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.server)
    }
}

impl fmt::Debug for Dedicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dedicated({})", self.server)
    }
}
