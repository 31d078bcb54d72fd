//! A small client for things other than locks: the same connections, scripts and errors that the
//! store uses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::arguments::Arguments;
use super::channels::Channels;
use super::cluster::{Cluster, Route};
use super::command::{Cmd, Pipeline};
use super::connection::{Connection, SendOptions};
use super::node::Node;
use super::reconnect::Reconnector;
use super::routes::Routes;
use super::script::Script;
use super::script_call::ScriptCall;
use super::server::{Server, ServerInfo};
use super::value::Value;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::moment::{Clock, Moment};
use crate::prefix::Prefix;
use crate::settings::UNREACHABLE_AFTER_DEFAULT;
use crate::stats::Stats;
use crate::store::Failure;
use crate::url::Target;

/// A connection to Redis that reconnects by itself. Cheap to clone, usable from any executor.
///
/// Nothing is ever sent twice: if a reply is lost, the call fails with [`ErrorKind::Unavailable`],
/// and the caller decides whether to retry. Dropping a future does not undo what was sent.
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
    routes: Arc<Routes>,
    /// Its address, for messages.
    target: Arc<str>,
    prefix: Prefix,
    limit: Duration,
}

/// A command with its arguments.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is run"]
pub struct Command {
    parts: Vec<Vec<u8>>,
}

/// A dedicated connection, for commands that block it, such as `XREAD BLOCK` or `WAIT`.
#[derive(Clone)]
pub struct Dedicated {
    engine: Engine,
    connection: Arc<Connection>,
    server: Arc<Server>,
}

impl Client {
    /// Connects to the server at `url`, which has the format of
    /// [`Tenure::connect`](crate::Tenure::connect), without `memory://`.
    ///
    /// On a Cluster a command goes to the node that has its first argument as a key, a script to
    /// the node that has its first key, and both follow redirects.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        let mut target = Target::parse(url.as_ref())?;
        let prefix = target.prefix().unwrap_or_default();
        let engine = Engine::start()?;
        let limit = UNREACHABLE_AFTER_DEFAULT;
        let connecting = async move {
            let (routes, target) = begin(target, limit)?;
            let reached = routes.connect(Clock::Boot.now() + limit).await;
            reached.map_err(|failure| failure.error)?;
            Ok::<_, Error>((Arc::new(routes), target))
        };
        let (routes, target) = engine.run(connecting).await??;
        Ok(Self {
            engine,
            routes,
            target,
            prefix,
            limit,
        })
    }

    /// The prefix that the URL sets, for the keys and channels of whoever uses this connection. They are
    /// sent as they are given: nothing adds it to them.
    pub fn prefix(&self) -> &str {
        self.prefix.as_str()
    }

    /// Runs one command.
    pub async fn run(&self, command: Command) -> Result<Value> {
        let (key, command) = (command.key(), command.into_cmd());
        let mut failed = None;
        if let Some((route, connection)) = self.caller_route(&key) {
            let sending = connection.run(&command, SendOptions::on_caller());
            // Boxed, here and below: callers keep this future in theirs.
            match Box::pin(sending).await {
                Ok(value) => return Ok(value),
                Err(failure) => failed = Some((route, failure)),
            }
        }
        let on_engine = self.on_engine(move |routes, limit| async move {
            let mut route = routes.first_route(&key, failed, limit).await?;
            loop {
                let answer = route.run(&command, limit).await;
                let Err(failure) = answer else { return answer };
                route = routes.next_route(&key, route, failure, limit).await?;
            }
        });
        Box::pin(on_engine).await
    }

    /// Runs several commands in one round trip. A command that fails returns a [`Value::Error`] in
    /// its place.
    ///
    /// On a Cluster, commands whose keys are not on the first one's node run after the others.
    pub async fn run_all(&self, commands: Vec<Command>) -> Result<Vec<Value>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.on_engine(move |routes, limit| async move { run_all(&routes, commands, limit).await })
            .await
    }

    /// Runs a script on keys that share a slot.
    pub async fn script<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        arguments: &[A],
    ) -> Result<Value> {
        let mut encoded = Arguments::new();
        for argument in arguments {
            encoded.push(argument);
        }
        self.script_with(script, keys, encoded).await
    }

    /// As [`script`](Self::script), with arguments that are encoded already.
    pub async fn script_with<K: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        arguments: Arguments,
    ) -> Result<Value> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        let key = keys.first().map_or_else(String::new, |key| text(key));
        let call = ScriptCall::with(script, keys, arguments);
        let mut failed = None;
        if let Some((route, connection)) = self.caller_route(&key) {
            let sending = connection.script(&call, SendOptions::on_caller());
            match Box::pin(sending).await {
                Ok(value) => return Ok(value),
                Err(failure) => failed = Some((route, failure)),
            }
        }
        let (script, parts) = (script.clone(), call.into_parts());
        let on_engine = self.on_engine(move |routes, limit| async move {
            let call = ScriptCall::with(&script, parts.0, parts.1);
            let mut route = routes.first_route(&key, failed, limit).await?;
            loop {
                let answer = route.script(&call, limit).await;
                let Err(failure) = answer else { return answer };
                route = routes.next_route(&key, route, failure, limit).await?;
            }
        });
        Box::pin(on_engine).await
    }

    /// The connection that the caller's own task can use, without waking the engine first: the
    /// engine only reads the reply. `None` while there is none: connecting needs the engine.
    fn caller_route(&self, key: &str) -> Option<(Route, Arc<Connection>)> {
        let route = self.routes.route(key).ok()?;
        let connection = route.node.caller_connection()?;
        Some((route, connection))
    }

    /// A dedicated connection. On a Cluster choose one: [`dedicated_to`](Client::dedicated_to).
    pub async fn dedicated(&self) -> Result<Dedicated> {
        let node = self.routes.any().map_err(|failure| failure.error)?;
        self.dedicated_at(node).await
    }

    /// A dedicated connection to the server that has this key. On a Cluster that may change: then
    /// commands on it fail, and another connection is needed.
    pub async fn dedicated_to(&self, key: impl AsRef<[u8]>) -> Result<Dedicated> {
        let route = self.routes.route(&text(key.as_ref()));
        self.dedicated_at(route.map_err(|failure| failure.error)?.node)
            .await
    }

    async fn dedicated_at(&self, node: Arc<Node>) -> Result<Dedicated> {
        let (server, limit) = (Arc::clone(&node.server), self.limit);
        let connecting = async move {
            let limit = server.clock.now() + limit;
            Reconnector::new(server).connection(limit).await
        };
        let connection = self.engine.run(connecting).await?;
        Ok(Dedicated {
            engine: self.engine.clone(),
            connection: connection.map_err(|failure| failure.error)?,
            server: Arc::clone(&node.server),
        })
    }

    /// The servers that accept writes, each as a separate client: this one, or the known primaries
    /// of a Cluster. For commands about a server instead of a key; a key that another primary has
    /// is an error there.
    pub fn masters(&self) -> Vec<Self> {
        let Routes::Cluster(cluster) = &*self.routes else {
            return vec![self.clone()];
        };
        let of = |node: Arc<Node>| Self {
            engine: self.engine.clone(),
            target: node.server.to_string().into(),
            prefix: self.prefix.clone(),
            routes: Arc::new(Routes::One(node)),
            limit: self.limit,
        };
        cluster.nodes().into_iter().map(of).collect()
    }

    /// The run id of the server's process, which changes with every restart and failover. `None` if
    /// the user has no permission to read it.
    pub async fn run_id(&self) -> Result<Option<String>> {
        self.routes.any().map_err(|failure| failure.error)?;
        // Read each time: the handshake may have been with a process that has ended.
        let info = self.run(Command::new("INFO").arg("server")).await;
        match info {
            Ok(info) => Ok(ServerInfo::parse(info.as_str().unwrap_or_default()).run_id),
            Err(error) if error.kind() == ErrorKind::Denied => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn on_engine<T, F>(
        &self,
        work: impl FnOnce(Arc<Routes>, Moment) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let limit = Clock::Boot.now() + self.limit;
        let routes = Arc::clone(&self.routes);
        let running = async move { work(routes, limit).await };
        let result = self.engine.run(running).await?;
        result.map_err(|failure: Failure| failure.error)
    }
}

/// The routes for a URL, and their name. Must be called on the engine.
fn begin(mut target: Target, limit: Duration) -> Result<(Routes, Arc<str>)> {
    // A caller's own task has no timer: its connection is what times out.
    match &mut target {
        Target::Redis(server) => server.response_timeout = limit,
        Target::Sentinel(target) => target.server.response_timeout = limit,
        Target::Cluster(target) => {
            for node in &mut target.nodes {
                node.response_timeout = limit;
            }
        }
        Target::Memory { .. } => {}
    }
    let stats = Arc::new(Stats::default());
    let channels = Arc::new(Channels::default());
    let server = match target {
        Target::Redis(target) => Server::new(target, stats),
        Target::Sentinel(target) => Server::by_sentinels(target, stats),
        Target::Cluster(target) => {
            let name = target.to_string().into();
            let cluster = Cluster::new(target.nodes, false, stats, None, channels);
            return Ok((Routes::Cluster(cluster), name));
        }
        Target::Memory { .. } => {
            return Err(Error::new(
                ErrorKind::InvalidUrl,
                "cannot run commands on `memory://`: there is no server",
            ));
        }
    };
    let name = server.to_string().into();
    Ok((Routes::One(Node::new(server, None, &channels)), name))
}

async fn run(routes: &Routes, key: &str, command: &Cmd, limit: Moment) -> Result<Value, Failure> {
    let mut route = routes.route(key)?;
    loop {
        let answer = route.run(command, limit).await;
        let Err(failure) = answer else { return answer };
        route = routes.next_route(key, route, failure, limit).await?;
    }
}

async fn run_all(
    routes: &Routes,
    commands: Vec<Command>,
    limit: Moment,
) -> Result<Vec<Value>, Failure> {
    let keys: Vec<String> = commands.iter().map(Command::key).collect();
    let commands: Vec<Cmd> = commands.into_iter().map(Command::into_cmd).collect();
    let mut pipeline = Pipeline::new();
    for command in &commands {
        pipeline.add_command(command.clone());
    }
    let node = routes.route(keys.first().map_or("", String::as_str))?.node;
    let connection = node.commands.connection(limit).await;
    let connection = connection.map_err(|failure| routes.note_failure(&node, failure))?;
    let replies = connection
        .run_all(&pipeline, SendOptions::until(limit))
        .await;
    let mut replies = replies.map_err(|failure| routes.note_failure(&node, failure))?;
    for ((key, command), reply) in keys.iter().zip(&commands).zip(&mut replies) {
        // Redirected commands did not run.
        if let Value::Error(error) = reply
            && routes.is_elsewhere(error)
        {
            *reply = match run(routes, key, command, limit).await {
                Ok(value) => value,
                Err(failure) if failure.in_flight.is_some() => return Err(failure),
                Err(failure) => Value::Error(failure.error.to_string()),
            };
        }
    }
    Ok(replies)
}

/// A key as text. If it is not text, a cluster node that does not have it redirects.
fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

impl Command {
    /// A command, without arguments yet.
    pub fn new(name: &str) -> Self {
        Self {
            parts: vec![name.as_bytes().to_vec()],
        }
    }

    /// Adds an argument: text or a number.
    pub fn arg(self, argument: impl std::fmt::Display) -> Self {
        self.bytes(format!("{argument}"))
    }

    /// Adds an argument as bytes.
    pub fn bytes(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.parts.push(argument.into());
        self
    }

    /// The key, for most commands.
    fn key(&self) -> String {
        self.parts.get(1).map_or_else(String::new, |key| text(key))
    }

    fn into_cmd(self) -> Cmd {
        let mut command = Cmd::default();
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
        let options = SendOptions::until(limit);
        let running = async move { connection.run(&command.into_cmd(), options).await };
        let result = self.engine.run(running).await?;
        result.map_err(|failure| failure.error)
    }
}

/// Its address, without user and password.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.target)
    }
}

impl fmt::Debug for Dedicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dedicated({})", self.server)
    }
}
