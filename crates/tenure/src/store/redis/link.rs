//! One connection to one server that comes back by itself.
//!
//! A command is sent at most once: the client crate never repeats it. When no answer comes, the
//! caller learns on which connection the command travelled, so that it can clean up in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection};
use ::redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, RedisError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::place::Place;
use super::refusal;
use super::reign::{Reign, Settled};
use super::script::{self, Script};
use super::server::{self, Server, ServerInfo};
use super::silence;
use super::silence::Silence;
use super::socket::Socket;
use super::transaction::Known;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::moment::{Clock, Moment};
use crate::seeded::{Bug, bug};
use crate::store::{Failure, Landing, SILENCE_LIMIT};
use crate::url::{Address, RedisTarget};

/// How long connecting may take, greetings included.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long after a failed attempt the next one waits.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Enough for a thousand concurrent callers to share one write.
const PIPELINE_BUFFER: usize = 2_048;
/// How far a fence may be below the server's clock where it counts by that: our reckoning of the clock
/// may be this far ahead.
const FENCE_LAG_US: u64 = 1_000;

/// A place for one connection.
#[derive(Clone)]
pub(crate) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    server: Arc<Server>,
    state: watch::Sender<State>,
    /// Where messages of the server go that answer no command.
    pushes: Option<mpsc::UnboundedSender<PushInfo>>,
    /// What to send first on a new connection; a refusal of it does not end the connection.
    greeting: Option<fn() -> Cmd>,
    /// Whether the greeting was accepted on the present connection.
    greeted: AtomicBool,
    /// The engine, if connections are made and driven elsewhere.
    engine: Option<Handle>,
}

enum State {
    Idle,
    Failed { at: Moment, failure: Failure },
    Connecting,
    Live(Arc<Connection>),
}

/// An established connection.
pub(crate) struct Connection {
    pub(crate) id: u64,
    inner: MultiplexedConnection,
    server: Arc<Server>,
    /// Where it leads.
    target: Arc<RedisTarget>,
    /// Cancelled when nothing more is expected of this connection.
    given_up: CancellationToken,
    silence: Silence,
    known: Known,
    reign: Reign,
    /// Since when answers are owed, in nanoseconds of the boot clock; 0 if none are.
    owes_since: AtomicU64,
    /// The server's clock less ours, in microseconds.
    clock_offset_us: AtomicI64,
    /// What the server's clock showed when the connection was made.
    made_us: AtomicU64,
}

impl Link {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self::build(server, None, None, None)
    }

    /// A link whose connections are driven by whatever runtime they are asked for on.
    pub(crate) fn driven_elsewhere(server: Arc<Server>, engine: Handle) -> Self {
        Self::build(server, None, None, Some(engine))
    }

    /// A link whose server may also speak unasked.
    pub(crate) fn with_pushes(
        server: Arc<Server>,
        pushes: mpsc::UnboundedSender<PushInfo>,
        greeting: Option<fn() -> Cmd>,
    ) -> Self {
        Self::build(server, Some(pushes), greeting, None)
    }

    fn build(
        server: Arc<Server>,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
        greeting: Option<fn() -> Cmd>,
        engine: Option<Handle>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                server,
                state: watch::Sender::new(State::Idle),
                pushes,
                greeting,
                greeted: AtomicBool::new(false),
                engine,
            }),
        }
    }

    /// The connection that is there now, if any.
    pub(crate) fn live(&self) -> Option<Arc<Connection>> {
        match &*self.shared.state.borrow() {
            State::Live(connection) if !connection.is_broken() => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// Whether the server accepted what was sent first.
    pub(crate) fn is_greeted(&self) -> bool {
        self.shared.greeted.load(Ordering::Relaxed)
    }

    /// A connection, made if there is none.
    pub(crate) async fn connection(&self, limit: Moment) -> Result<Arc<Connection>, Failure> {
        let mut states = self.shared.state.subscribe();
        let asked_at = self.now();
        loop {
            if let Some(connection) = self.live() {
                return Ok(connection);
            }
            if let Some(failure) = self.recent_failure(asked_at) {
                return Err(failure);
            }
            states.mark_unchanged();
            self.begin_connecting();
            let left = limit.saturating_since(self.now());
            if tokio::time::timeout(left, states.changed()).await.is_err() {
                return Err(Failure::not_sent(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "could not connect to `{}` in time: is the host right, is a firewall in \
                         between, and does the port speak TLS exactly if the URL does?",
                        self.shared.server
                    ),
                )));
            }
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.shared.server.clock.now()
    }

    /// A failure that answers a caller who began to ask at `asked_at`: it came later, or so
    /// shortly before that trying again would only make noise.
    fn recent_failure(&self, asked_at: Moment) -> Option<Failure> {
        match &*self.shared.state.borrow() {
            State::Failed { at, failure } if *at + CONNECT_PAUSE > asked_at => {
                Some(failure.share())
            }
            _ => None,
        }
    }

    /// Makes a connection if there is none, in the background.
    pub(super) fn begin_connecting(&self) {
        let begun = self.shared.state.send_if_modified(|state| {
            let idle = match state {
                State::Connecting => false,
                State::Live(connection) => connection.is_broken(),
                State::Idle | State::Failed { .. } => true,
            };
            if idle {
                *state = State::Connecting;
            }
            idle
        });
        if begun {
            let shared = Arc::clone(&self.shared);
            // On its own task: a caller with little time must not end an attempt that others
            // wait for.
            tokio::spawn(async move { shared.connect().await });
        }
    }
}

impl Shared {
    async fn connect(&self) {
        let attempt = tokio::time::timeout(CONNECT_LIMIT, self.try_connect());
        let state = match attempt.await {
            Ok(Ok(connection)) => {
                let connection = Arc::new(connection);
                silence::listen_for(&connection, self.engine.as_ref());
                State::Live(connection)
            }
            Ok(Err(failure)) => self.failed(failure),
            Err(_) => self.failed(refusal::silence(&*self.server, None)),
        };
        self.state.send_replace(state);
    }

    fn failed(&self, failure: Failure) -> State {
        tracing::debug!(server = %self.server, error = %failure.error, "redis.unreachable");
        State::Failed {
            at: self.server.clock.now(),
            failure,
        }
    }

    async fn try_connect(&self) -> Result<Connection, Failure> {
        let mut config = config();
        if let Some(pushes) = &self.pushes {
            config = config.set_push_sender(pushes.clone());
        }
        let place = self.server.locate().await?;
        let inner = open(&place.target, config).await?;
        let connection = Connection::new(&self.server, &place, inner);
        connection.introduce().await?;
        if let Some(greeting) = self.greeting {
            let accepted = connection
                .inner
                .clone()
                .send_packed_command(&greeting())
                .await;
            let accepted = accepted.and_then(::redis::Value::extract_error).is_ok();
            self.greeted.store(accepted, Ordering::Relaxed);
        }
        Ok(connection)
    }
}

/// A connection that the present runtime drives.
async fn open(
    target: &RedisTarget,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Failure> {
    let refused = |error: RedisError| refusal::failure(target, &error, None);
    if let Address::Tls { .. } = target.address {
        let client = server::client(target)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        return connecting.await.map_err(refused);
    }
    let socket = Socket::open(&target.address).await;
    let socket = socket.map_err(|error| refused(error.into()))?;
    let greeting = server::greeting(target);
    let connecting = MultiplexedConnection::new_with_config(&greeting, socket, config);
    let (connection, driver) = connecting.await.map_err(refused)?;
    // It ends when the last handle of the connection is gone.
    tokio::spawn(driver);
    Ok(connection)
}

/// Deadlines are ours: the driver's would hide whether a command was carried out.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
}

impl Connection {
    fn new(server: &Arc<Server>, place: &Place, inner: MultiplexedConnection) -> Self {
        Self {
            id: server.next_connection_id(),
            inner,
            server: Arc::clone(server),
            target: Arc::clone(&place.target),
            given_up: place.left.child_token(),
            silence: Silence::default(),
            known: Known::default(),
            reign: Reign::default(),
            owes_since: AtomicU64::new(0),
            clock_offset_us: AtomicI64::new(0),
            made_us: AtomicU64::new(0),
        }
    }

    /// Learns the server's version, clock and settings, and loads the scripts. What the user may
    /// not ask stays unknown.
    async fn introduce(&self) -> Result<(), Failure> {
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
            .map_err(|error| refusal::failure(&self.target, &error, None))?;
        let mut replies = replies.into_iter();
        let info = replies.next().unwrap_or(::redis::Value::Nil);
        if let Err(error) = info.clone().extract_error()
            && error.code() != Some("NOPERM")
        {
            return Err(refusal::failure(&self.target, &error, None));
        }
        let info = ServerInfo::parse(Value::of(info).as_str().unwrap_or_default());
        self.server.admit(&info)?;
        let time = replies.next().map(Value::of);
        self.note_clock(asked_at, time.as_ref().and_then(micros));
        self.reign.note(&info, self.made_us());
        if self.server.moves() {
            self.check_role(&info, replies.next().map(Value::of))?;
        }
        Ok(())
    }

    /// Refuses a replica where the master is wanted: the sentinels may be behind. What the user may
    /// not ask is found out by the first write.
    fn check_role(&self, info: &ServerInfo, role: Option<Value>) -> Result<(), Failure> {
        let role = role.and_then(|role| role.as_array()?.first()?.lossy());
        let role = role.or_else(|| info.role.clone());
        if role.is_none_or(|role| role == "master") {
            return Ok(());
        }
        Err(Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "`{}` is a replica, though the sentinels of `{}` call it the master: a failover \
                 may be under way",
                self.target, self.server
            ),
        )))
    }

    pub(super) fn target(&self) -> &RedisTarget {
        &self.target
    }

    /// The failure that an error inside several replies means.
    pub(super) fn refused_by(&self, error: &str) -> Failure {
        let (code, detail) = error.split_once(' ').unwrap_or((error, ""));
        refusal::of_server(&self.target, code, detail)
    }

    /// Takes note of what the server's clock shows as the connection begins.
    fn note_clock(&self, asked_at: Moment, server_us: Option<u64>) {
        let server_us = server_us.unwrap_or_else(|| Clock::Boot.wall_micros());
        self.made_us.store(server_us, Ordering::Relaxed);
        self.set_clock(asked_at, server_us);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.given_up.is_cancelled()
    }

    /// Waits until nothing more is expected of it.
    pub(super) async fn given_up(&self) {
        self.given_up.cancelled().await;
    }

    /// Whoever still waits for an answer is told that none will come.
    pub(super) fn give_up(&self) {
        self.given_up.cancel();
    }

    pub(super) fn silence(&self) -> &Silence {
        &self.silence
    }

    /// What is known of locks that can be taken without a script.
    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    /// What is known of the reign of the master that it leads to.
    pub(super) fn reign(&self) -> &Reign {
        &self.reign
    }

    /// The same for all connections to this server.
    pub(super) fn settled(&self) -> &Settled {
        &self.server.settled
    }

    /// Whether its master is known to have reigned for long enough to give new locks.
    pub(super) fn may_grant(&self) -> bool {
        self.reign.is_settled(&self.server.settled)
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.server.clock
    }

    /// What the server's clock showed when the connection was made, in microseconds.
    pub(crate) fn made_us(&self) -> u64 {
        self.made_us.load(Ordering::Relaxed)
    }

    /// A fence counter below this is new, or an old copy: then the clock is the next fence.
    ///
    /// Whatever forgets a counter mostly ends the connection too, so that its beginning will do. But
    /// a server that is deposed, and promoted again, has lost what its successor did not know, and
    /// keeps its connections. There the clock itself is the floor.
    pub(super) fn fence_floor_us(&self) -> u64 {
        let made_us = self.made_us();
        if !self.counts_by_clock() {
            return made_us;
        }
        let now_us = self.server_us(self.clock().now());
        now_us.saturating_sub(FENCE_LAG_US).max(made_us)
    }

    /// Whether fences are to be as high as the clock, each of them.
    pub(super) fn counts_by_clock(&self) -> bool {
        self.server.is_replaceable() && !bug(Bug::FenceFromOldCopy)
    }

    /// The latest that the server's clock can show at `moment`, in microseconds.
    pub(crate) fn server_us(&self, moment: Moment) -> u64 {
        let ours = i64::try_from(moment.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let theirs = ours.saturating_add(self.clock_offset_us.load(Ordering::Relaxed));
        u64::try_from(theirs).unwrap_or(0)
    }

    /// Takes note of what the server's clock showed some time after `asked_at`.
    pub(crate) fn set_clock(&self, asked_at: Moment, server_us: u64) {
        let ours = i64::try_from(asked_at.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let theirs = i64::try_from(server_us).unwrap_or(i64::MAX);
        self.clock_offset_us
            .store(theirs.saturating_sub(ours), Ordering::Relaxed);
    }

    /// The failure of a question that was carried out too late, and so changed nothing.
    pub(super) fn too_late(&self) -> Failure {
        refusal::silence(&self.target, None)
    }

    /// The failure of a question that came too late again and again.
    pub(super) fn clock_runs_away(&self) -> Failure {
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the clock of `{}` runs too fast to be followed",
                self.target
            ),
        ))
    }

    /// Sends one command and waits for its answer.
    pub(crate) async fn run(
        &self,
        command: &Cmd,
        limit: Moment,
        latest_us: u64,
    ) -> Result<Value, Failure> {
        let mut inner = self.inner.clone();
        let answer = self.answer(inner.req_packed_command(command), limit, latest_us);
        self.checked(answer.await?)
    }

    /// Sends several commands in one piece and waits for all answers.
    pub(crate) async fn run_all(
        &self,
        pipeline: &Pipeline,
        limit: Moment,
    ) -> Result<Vec<Value>, Failure> {
        let mut inner = self.inner.clone();
        let answer = inner.req_packed_commands(pipeline, 0, pipeline.len());
        let values = self.answer(answer, limit, 0).await?;
        Ok(values.into_iter().map(Value::of).collect())
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
        self.script_by(false, script, keys, arguments, limit, latest_us)
            .await
    }

    /// Runs a script, perhaps on keys whose slot is only on its way to this node.
    pub(super) async fn script_by<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        asking: bool,
        script: &Script,
        keys: &[K],
        arguments: &[A],
        limit: Moment,
        latest_us: u64,
    ) -> Result<Value, Failure> {
        let by_hash = eval("EVALSHA", script.hash(), keys, arguments);
        let mut answer = self.run_by(asking, &by_hash, limit, latest_us).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            let by_text = eval("EVAL", script.code(), keys, arguments);
            answer = self.run_by(asking, &by_text, limit, latest_us).await;
        }
        answer.map_err(|failure| self.not_half_done(failure, latest_us))
    }

    /// Sends a command, perhaps about keys whose slot is only on its way to this node. `ASKING` says
    /// so of the command that follows it: both go out in one piece.
    pub(super) async fn run_by(
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
        let mut inner = self.inner.clone();
        let answer = inner.req_packed_commands(&pipeline, 0, 2);
        let mut values = self.answer(answer, limit, latest_us).await?;
        self.checked(values.pop().unwrap_or(::redis::Value::Nil))
    }

    /// Runs a script as [`script`](Connection::script) does, but from any executor: instead of a
    /// timer it is the silence of the connection that ends it.
    pub(crate) async fn script_here<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        arguments: &[A],
        latest_us: u64,
    ) -> Result<Value, Failure> {
        let by_hash = eval("EVALSHA", script.hash(), keys, arguments);
        let mut answer = self.run_here(&by_hash, latest_us).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            let by_text = eval("EVAL", script.code(), keys, arguments);
            answer = self.run_here(&by_text, latest_us).await;
        }
        answer.map_err(|failure| self.not_half_done(failure, latest_us))
    }

    async fn run_here(&self, command: &Cmd, latest_us: u64) -> Result<Value, Failure> {
        let mut inner = self.inner.clone();
        let asking = inner.req_packed_command(command);
        let value = self.answer_here(asking, self.landing(latest_us)).await?;
        self.checked(value)
    }

    /// Runs a transaction, from its `MULTI` to its `EXEC`, as [`script_here`](Connection::script_here)
    /// runs a script. Returns what its commands answered.
    pub(super) async fn run_all_here(
        &self,
        transaction: &Pipeline,
        landing: Landing,
    ) -> Result<Vec<Value>, Failure> {
        let mut inner = self.inner.clone();
        let asking = inner.req_packed_commands(transaction, 0, transaction.len());
        let mut answers = self.answer_here(asking, landing).await?.into_iter();
        if let Some(Err(error)) = answers.next().map(::redis::Value::extract_error) {
            // Without a transaction, its commands were carried out one by one.
            return Err(self.refused(&error, Some(landing)));
        }
        let whole = answers.next_back();
        for queued in answers {
            // What cannot be queued makes the whole do nothing, and says why.
            self.checked(queued)?;
        }
        match whole {
            Some(::redis::Value::Array(values)) => Ok(values.into_iter().map(Value::of).collect()),
            Some(value) => {
                let refused = self.checked(value).map(|value| vec![value]);
                if refused
                    .as_ref()
                    .is_err_and(|it| it.error.kind() == ErrorKind::Denied)
                {
                    // Who may begin a transaction and not end it is in one for ever.
                    self.give_up();
                }
                refused
            }
            None => Ok(Vec::new()),
        }
    }

    /// Waits for an answer without a timer.
    async fn answer_here<T>(
        &self,
        answer: impl Future<Output = Result<T, RedisError>>,
        landing: Landing,
    ) -> Result<T, Failure> {
        let owed = self.silence.owe(&self.server.clock);
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.given_up.cancelled() => {
                return Err(refusal::silence(&self.target, Some(landing)));
            }
        };
        match answer {
            Ok(value) => {
                owed.answered();
                Ok(value)
            }
            Err(error) => {
                let failure = self.refused(&error, Some(landing));
                if failure.landing.is_some() {
                    self.give_up();
                }
                Err(failure)
            }
        }
    }

    /// A script that failed half-way may have changed something: its failure says where.
    fn not_half_done(&self, mut failure: Failure, latest_us: u64) -> Failure {
        if failure.landing.is_none()
            && reply_of(&failure).is_some_and(|reply| refusal::is_half_done(&reply))
        {
            failure.landing = Some(self.landing(latest_us));
        }
        failure
    }

    pub(crate) async fn subscribe(&self, channel: &str, limit: Moment) -> Result<(), Failure> {
        let mut inner = self.inner.clone();
        self.answer(inner.subscribe(channel), limit, 0).await
    }

    pub(crate) async fn unsubscribe(&self, channel: &str, limit: Moment) -> Result<(), Failure> {
        let mut inner = self.inner.clone();
        self.answer(inner.unsubscribe(channel), limit, 0).await
    }

    /// Hears what is said in the shard of this node.
    pub(super) async fn ssubscribe(&self, channel: &str, limit: Moment) -> Result<(), Failure> {
        self.confirmed("SSUBSCRIBE", channel, limit).await
    }

    pub(super) async fn sunsubscribe(&self, channel: &str, limit: Moment) -> Result<(), Failure> {
        self.confirmed("SUNSUBSCRIBE", channel, limit).await
    }

    /// Sends a word about a channel of a shard, and checks that the answer is about the same. A server
    /// that loses a slot says so unasked, and the client crate takes that for the answer to whatever
    /// was asked: then all that follow are off by one, and the connection is of no use any more.
    async fn confirmed(&self, word: &str, channel: &str, limit: Moment) -> Result<(), Failure> {
        let mut inner = self.inner.clone();
        let command = ::redis::cmd(word).arg(channel).clone();
        let answer = self.answer(inner.req_packed_command(&command), limit, 0);
        let value = answer.await?;
        if let ::redis::Value::Push { kind, data } = &value {
            let same_word = kind.to_string().eq_ignore_ascii_case(word);
            let about = data.first().cloned().map(Value::of);
            let same_channel = about.as_ref().and_then(Value::as_str) == Some(channel);
            if same_word && same_channel {
                return Ok(());
            }
        }
        let answered = self.checked(value).map(|_| {
            self.give_up();
            Failure::not_sent(Error::new(
                ErrorKind::Unavailable,
                format!("`{}` moved a slot in between", self.server.target),
            ))
        });
        Err(answered.unwrap_or_else(|refused| refused))
    }

    /// Waits for an answer, keeps the account of what the server owes, and gives the connection up
    /// when it fails or stays silent.
    async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, RedisError>>,
        limit: Moment,
        latest_us: u64,
    ) -> Result<T, Failure> {
        let target = &self.target;
        let landing = self.landing(latest_us);
        let sent_at = self.server.clock.now();
        let owed = sent_at.as_nanos().max(1);
        let _ = self
            .owes_since
            .compare_exchange(0, owed, Ordering::Relaxed, Ordering::Relaxed);
        let left = limit.saturating_since(sent_at);
        let answer = async {
            tokio::select! {
                biased;
                answer = tokio::time::timeout(left, answer) => answer.ok(),
                () = self.given_up.cancelled() => None,
            }
        };
        match answer.await {
            Some(Ok(value)) => {
                self.owes_since.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Some(Err(error)) => {
                let failure = self.refused(&error, Some(landing));
                if failure.landing.is_some() {
                    self.give_up();
                } else {
                    self.owes_since.store(0, Ordering::Relaxed);
                }
                Err(failure)
            }
            None => {
                self.give_up_if_silent();
                Err(refusal::silence(target, Some(landing)))
            }
        }
    }

    /// Where a command that was sent now may land.
    pub(super) fn landing(&self, latest_us: u64) -> Landing {
        Landing {
            connection: Some(self.id),
            latest_us,
        }
    }

    fn give_up_if_silent(&self) {
        let owes_since = self.owes_since.load(Ordering::Relaxed);
        let silent = self
            .server
            .clock
            .now()
            .saturating_since(Moment::from_nanos(owes_since));
        if owes_since > 0 && silent + Duration::from_millis(5) >= SILENCE_LIMIT {
            self.give_up();
        }
    }

    fn checked(&self, value: ::redis::Value) -> Result<Value, Failure> {
        value
            .extract_error()
            .map(Value::of)
            .map_err(|error| self.refused(&error, None))
    }

    /// What an error means. A master that has become a replica is not asked again.
    fn refused(&self, error: &RedisError, landing: Option<Landing>) -> Failure {
        let failure = refusal::failure(&self.target, error, landing);
        if failure.error.kind() != ErrorKind::ReadOnly {
            return failure;
        }
        // Should it be promoted again, it is another master.
        self.give_up();
        if !self.server.moves() {
            return failure;
        }
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "`{}` has become a replica: the sentinels of `{}` will name the new master",
                self.target, self.server
            ),
        ))
    }
}

fn eval<K: AsRef<[u8]>, A: AsRef<[u8]>>(
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

fn is_unknown_script(failure: &Failure) -> bool {
    reply_of(failure).is_some_and(|reply| reply.starts_with("NOSCRIPT"))
}

/// What the server itself said.
pub(super) fn reply_of(failure: &Failure) -> Option<String> {
    std::error::Error::source(&failure.error).map(ToString::to_string)
}

/// The reply to `TIME` as microseconds.
pub(super) fn micros(time: &Value) -> Option<u64> {
    let [seconds, micros] = time.as_array()? else {
        return None;
    };
    let part = |value: &Value| u64::try_from(value.as_int()?).ok();
    part(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(part(micros)?)
}
