//! The store on one Redis server.
//!
//! This directory is the only place that knows the Redis client crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::Pipeline;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub use self::client::{Client, Command, Dedicated};
pub use self::script::Script;
pub use self::value::Value;

use self::lane::Lane;
use self::link::{Connection, Link};
use self::listener::Listener;
use self::script::LockScripts;
use self::server::Server;
use self::transaction::Transaction;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::lease::{ClientId, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::stats::Stats;
use crate::store::{
    AskedHere, Attempt, Attempted, BoxFuture, Event, Failure, Found, Held, Landing, Record,
    RecordChange, RecordWritten, Release, Renewed, SILENCE_LIMIT, Store, Turn, Watched,
};
use crate::url::RedisTarget;

mod client;
mod lane;
mod layout;
mod link;
mod listener;
mod refusal;
mod reply;
mod script;
mod server;
mod silence;
mod socket;
mod transaction;
mod value;

/// The index of client records.
const CLIENTS_KEY: &str = "tenure:clients";
/// How often an attempt may be told that it is late before the clocks are called unreasonable.
const LATE_MAX: usize = 3;

pub(crate) struct RedisStore {
    server: Arc<Server>,
    commands: Link,
    lane: Option<Lane>,
    listener: Arc<Listener>,
    stats: Arc<Stats>,
    told_of_tracking: AtomicBool,
}

impl RedisStore {
    /// Must be called on the engine. With a runtime, callers who run there are served by it.
    pub(crate) fn new(
        target: RedisTarget,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let server = Server::new(target, Arc::clone(&stats));
        Arc::new(Self {
            commands: Link::new(Arc::clone(&server)),
            lane: runtime.map(|runtime| Lane::new(Arc::clone(&server), runtime)),
            listener: Listener::new(Arc::clone(&server)),
            server,
            stats,
            told_of_tracking: AtomicBool::new(false),
        })
    }

    fn layout(&self) -> Layout {
        self.server.target.layout()
    }

    fn scripts(&self) -> &'static LockScripts {
        self.layout().scripts()
    }

    /// Connects, so that a wrong address or password is found at once.
    pub(crate) async fn reach(&self, limit: Moment) -> Result<(), Failure> {
        self.commands.connection(limit).await?;
        match &self.lane {
            Some(lane) => lane.reach().await,
            None => Ok(()),
        }
    }

    /// A connection for a question that the caller's own task asks.
    fn connection_here(&self) -> Option<Arc<Connection>> {
        let lane = self.lane.as_ref().and_then(Lane::here);
        lane.or_else(|| self.commands.live())
    }

    /// No command waits longer than a silent connection is believed in.
    fn command_limit(&self, limit: Moment) -> Moment {
        limit.min(self.server.clock.now() + SILENCE_LIMIT)
    }

    async fn try_acquire(&self, attempt: &Attempt, limit: Moment) -> Result<Attempted, Failure> {
        let name = &attempt.held.name;
        let arguments =
            |connection: &Connection, latest_us| acquire_arguments(attempt, connection, latest_us);
        let layout = self.layout();
        let read = |reply: &Value, sent_at| reply::attempt(layout, name, sent_at, reply);
        let keys = acquire_keys(layout, attempt);
        self.in_time(&self.scripts().acquire, &keys, arguments, read, limit)
            .await
    }

    /// Asks on the caller's own task.
    async fn try_acquire_here(
        &self,
        connection: Arc<Connection>,
        attempt: &Attempt,
        latest_us: u64,
    ) -> Result<Attempted, Failure> {
        let sent_at = self.server.clock.now();
        let keys = acquire_keys(self.layout(), attempt);
        let arguments = acquire_arguments(attempt, &connection, latest_us);
        let reply = connection
            .script_here(&self.scripts().acquire, &keys, &arguments, latest_us)
            .await?;
        let sent_at = if bug(Bug::DeadlineFromReply) {
            self.server.clock.now()
        } else {
            sent_at
        };
        let name = &attempt.held.name;
        let attempted =
            reply::attempt(self.layout(), name, sent_at, &reply)?.map_err(|server_us| {
                // The engine asks again.
                connection.set_clock(sent_at, server_us);
                refusal::silence(&self.server.target, None)
            })?;
        connection.known().note(name, &attempted);
        Ok(attempted)
    }

    async fn try_release_here(
        &self,
        connection: Arc<Connection>,
        lease: &Held,
        leaving: Option<&LeaseId>,
    ) -> Result<Release, Failure> {
        if bug(Bug::ReleaseInTwoSteps) {
            let limit = self.command_limit(self.server.clock.now() + SILENCE_LIMIT);
            return release_in_two_steps(&connection, lease, limit).await;
        }
        let (keys, arguments) = (
            release_keys(lease),
            self.layout().release_arguments(lease, leaving),
        );
        let reply = connection
            .script_here(&self.scripts().release, &keys, &arguments, 0)
            .await?;
        reply::release(self.layout(), &lease.name, &reply)
    }

    async fn try_turn(
        &self,
        lease: &Held,
        fences: u32,
        place: Option<&LeaseId>,
        limit: Moment,
    ) -> Result<Turn, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.commands.connection(limit).await?;
        let mut keys = vec![
            lease.name.as_str().to_owned(),
            self.layout().fence_key(&lease.name),
            lease.name.neighbour("queue"),
        ];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        let mut arguments = vec![
            lease.id.as_str().to_owned(),
            place.map_or("", LeaseId::as_str).to_owned(),
            lease.ttl.as_millis().to_string(),
            fences.to_string(),
            connection.made_us().to_string(),
        ];
        arguments.extend(self.layout().turn_arguments(lease));
        let sent_at = self.server.clock.now();
        let reply = connection
            .script(&self.scripts().turn, &keys, &arguments, limit, 0)
            .await?;
        reply::turn(self.layout(), &lease.name, sent_at, &reply)
    }

    async fn try_adopt(
        &self,
        from: &LeaseId,
        lease: &Held,
        limit: Moment,
    ) -> Result<Renewed, Failure> {
        let keys = [lease.name.as_str().to_owned(), lease.name.neighbour("meta")];
        let arguments = |_: &Connection, latest_us: u64| {
            vec![
                from.as_str().to_owned(),
                lease.id.as_str().to_owned(),
                lease.ttl.as_millis().to_string(),
                latest_us.to_string(),
            ]
        };
        let read = |reply: &Value, sent_at| reply::adoption(reply, sent_at);
        self.in_time(&self.scripts().adopt, &keys, arguments, read, limit)
            .await
    }

    /// Runs a script that carries its latest moment: if it runs later, it changes nothing, and
    /// says so by an inner `Err` with the server's time.
    async fn in_time<T>(
        &self,
        script: &Script,
        keys: &[String],
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        read: impl Fn(&Value, Moment) -> Result<Result<T, u64>, Failure>,
        limit: Moment,
    ) -> Result<T, Failure> {
        let connection = self.commands.connection(limit).await?;
        for _ in 0..LATE_MAX {
            let sent_at = self.server.clock.now();
            let limit = self.command_limit(limit);
            let latest_us = connection.server_us(limit);
            let arguments = arguments(&connection, latest_us);
            let reply = connection
                .script(script, keys, &arguments, limit, latest_us)
                .await?;
            let sent_at = if bug(Bug::DeadlineFromReply) {
                self.server.clock.now()
            } else {
                sent_at
            };
            match read(&reply, sent_at)? {
                Ok(answer) => return Ok(answer),
                Err(_) if self.server.clock.now() >= limit => {
                    return Err(refusal::silence(&self.server.target, None));
                }
                // The server's clock was set forward since we asked for it.
                Err(server_us) => connection.set_clock(sent_at, server_us),
            }
        }
        Err(Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the clock of `{}` runs too fast to be followed",
                self.server.target
            ),
        )))
    }

    /// The connection to renew on: the one that tracks, if the lease is watched, because its own
    /// renewals are no news to it.
    async fn renewing(
        &self,
        watched: bool,
        limit: Moment,
    ) -> Result<(Arc<Connection>, bool), Failure> {
        if watched
            && self.listener.link.is_greeted()
            && let Some(connection) = self.listener.link.live()
        {
            return Ok((connection, true));
        }
        Ok((self.commands.connection(limit).await?, false))
    }

    async fn try_renew(
        &self,
        lease: &Held,
        watched: bool,
        limit: Moment,
    ) -> Result<Renewed, Failure> {
        let limit = self.command_limit(limit);
        let (connection, tracked) = self.renewing(watched, limit).await?;
        let mut keys = vec![lease.name.as_str().to_owned()];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        let arguments = [lease.id.as_str(), &lease.ttl.as_millis().to_string(), "0"];
        let sent_at = self.server.clock.now();
        if tracked {
            // `CLIENT CACHING` is about the command that follows it: both go out in one piece.
            let mut pipeline = Pipeline::new();
            pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            self.add_renewal(&mut pipeline, lease, tracked);
            let replies = connection.run_all(&pipeline, limit).await?;
            // Anything else: the script is not known there, for example. Ask the plain way.
            if let Some(reply @ Value::Array(_)) = replies.get(1) {
                return reply::renewal(reply, sent_at);
            }
        }
        let connection = self.commands.connection(limit).await?;
        let reply = connection
            .script(&self.scripts().renew, &keys, &arguments, limit, 0)
            .await?;
        reply::renewal(&reply, sent_at)
    }

    /// Renews several leases in one piece. An answer that is none says nothing of the others.
    async fn try_renew_all(
        &self,
        leases: Vec<&Held>,
        watched: bool,
        limit: Moment,
    ) -> Result<Vec<Option<Renewed>>, Failure> {
        let limit = self.command_limit(limit);
        let (connection, tracked) = self.renewing(watched, limit).await?;
        let mut pipeline = Pipeline::with_capacity(leases.len() * 2);
        for lease in &leases {
            if tracked {
                pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            }
            self.add_renewal(&mut pipeline, lease, tracked);
        }
        let sent_at = self.server.clock.now();
        let replies = connection.run_all(&pipeline, limit).await?;
        let replies = replies.chunks(if tracked { 2 } else { 1 });
        let read = |replies: &[Value]| match replies.last() {
            Some(reply @ Value::Array(_)) => reply::renewal(reply, sent_at).ok(),
            _ => None,
        };
        Ok(replies.map(read).collect())
    }

    fn add_renewal(&self, pipeline: &mut Pipeline, lease: &Held, tracked: bool) {
        let evalsha = pipeline.cmd("EVALSHA").arg(self.scripts().renew.hash());
        evalsha.arg(1 + usize::from(lease.has_meta));
        evalsha.arg(lease.name.as_str());
        if lease.has_meta {
            evalsha.arg(lease.name.neighbour("meta"));
        }
        let ttl_ms = u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX);
        evalsha.arg(lease.id.as_str()).arg(ttl_ms);
        evalsha.arg(u8::from(tracked));
    }

    async fn try_watch(&self, lease: &Held, limit: Moment) -> Result<Watched, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.listener.link.connection(limit).await?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
        self.layout().ask_for(lease, &mut pipeline);
        let replies = connection.run_all(&pipeline, limit).await?;
        if let Some(Value::Error(error)) = replies.first() {
            self.tell_of_tracking(error);
        }
        let answers = replies.get(1..).unwrap_or_default();
        let watched = self.layout().read_answers(lease, answers);
        watched.map_err(|error| Failure::not_sent(Error::new(ErrorKind::Unavailable, error)))
    }

    /// Says once that leases cannot be watched: tracking itself was refused, or `CLIENT CACHING`.
    fn tell_of_tracking(&self, error: &str) {
        if !self.told_of_tracking.swap(true, Ordering::Relaxed) {
            self.stats.tracking_refused();
            tracing::warn!(
                server = %self.server.target, error,
                "redis.tracking_refused: a forced release will be noticed at the next renewal only"
            );
        }
    }

    async fn try_release(
        &self,
        connection: &Connection,
        lease: &Held,
        leaving: Option<&LeaseId>,
        limit: Moment,
    ) -> Result<Release, Failure> {
        if bug(Bug::ReleaseInTwoSteps) {
            return release_in_two_steps(connection, lease, limit).await;
        }
        let (keys, arguments) = (
            release_keys(lease),
            self.layout().release_arguments(lease, leaving),
        );
        let reply = connection
            .script(&self.scripts().release, &keys, &arguments, limit, 0)
            .await?;
        reply::release(self.layout(), &lease.name, &reply)
    }

    /// Releases, and answers whether that was late enough for the attempt not to land any more.
    async fn try_cancel(
        &self,
        lease: &Held,
        landing: Landing,
        limit: Moment,
    ) -> Result<Option<Duration>, Failure> {
        let limit = self.command_limit(limit);
        let lane = self.lane.as_ref().zip(landing.connection);
        if let Some(connection) = lane.and_then(|(lane, id)| lane.with_id(id)) {
            // Behind the attempt, on the same connection. If its runtime does not drive it any
            // more, the next time it is broken.
            self.try_release(&connection, lease, None, limit).await?;
            return Ok(None);
        }
        let connection = self.commands.connection(limit).await?;
        if landing.connection == Some(connection.id) || bug(Bug::CancelOnOtherConnection) {
            self.try_release(&connection, lease, None, limit).await?;
            return Ok(None);
        }
        // The clock is read before the release: so the release came later than what it shows.
        let asked_at = self.server.clock.now();
        let time = connection.run(&::redis::cmd("TIME"), limit, 0).await?;
        let now_us =
            link::micros(&time).ok_or_else(|| Failure::refused(time.unexpected("TIME")))?;
        connection.set_clock(asked_at, now_us);
        self.try_release(&connection, lease, None, limit).await?;
        let early_us = (landing.latest_us + 1).saturating_sub(now_us);
        Ok((early_us > 0).then(|| Duration::from_micros(early_us)))
    }

    async fn try_look(&self, name: &LockName, limit: Moment) -> Result<Option<Found>, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.commands.connection(limit).await?;
        let keys = [
            name.as_str().to_owned(),
            self.layout().fence_key(name),
            name.neighbour("meta"),
        ];
        let reply = connection
            .script(&self.scripts().look, &keys, &[""; 0], limit, 0)
            .await?;
        reply::look(self.layout(), name, reply)
    }

    async fn try_write_record(
        &self,
        client: ClientId,
        change: &RecordChange,
        limit: Moment,
    ) -> Result<RecordWritten, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.commands.connection(limit).await?;
        let key = format!("tenure:client:{client}");
        let ttl_ms = change.ttl.as_millis().to_string();
        if change.ttl.is_zero() {
            connection
                .run(::redis::cmd("DEL").arg(&key), limit, 0)
                .await?;
        } else {
            let mode = if change.all { "all" } else { "changes" };
            let mut arguments = vec![
                ttl_ms.clone(),
                mode.to_owned(),
                change.set.len().to_string(),
            ];
            for (field, value) in &change.set {
                arguments.extend([field.clone(), value.clone()]);
            }
            arguments.extend(change.removed.iter().cloned());
            let reply = connection
                .script(&script::RECORD, &[&key], &arguments, limit, 0)
                .await?;
            if reply.as_int() != Some(1) {
                return Ok(RecordWritten::Missing);
            }
        }
        let arguments = [client.to_string(), ttl_ms];
        connection
            .script(&script::CLIENTS, &[CLIENTS_KEY], &arguments, limit, 0)
            .await?;
        Ok(RecordWritten::Yes)
    }

    async fn try_records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> Result<Vec<Record>, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.commands.connection(limit).await?;
        let clients = if let Some(client) = only {
            vec![client]
        } else {
            let reply = connection
                .script(&script::CLIENTS, &[CLIENTS_KEY], &["", "0"], limit, 0)
                .await?;
            let ids = reply.as_array().unwrap_or_default().iter();
            ids.filter_map(|id| ClientId::parse(id.as_str()?)).collect()
        };
        if clients.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        for client in &clients {
            pipeline
                .cmd("HGETALL")
                .arg(format!("tenure:client:{client}"));
        }
        let replies = connection.run_all(&pipeline, limit).await?;
        let records = clients.into_iter().zip(replies.iter().map(reply::pairs));
        Ok(records.filter(|(_, record)| !record.is_empty()).collect())
    }
}

impl Store for RedisStore {
    fn start(&self, _client: ClientId, events: mpsc::UnboundedSender<Event>) {
        self.listener.start(events);
    }

    fn acquire<'a>(
        &'a self,
        attempt: &'a Attempt,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Attempted, Failure>> {
        Box::pin(self.try_acquire(attempt, limit))
    }

    fn acquire_here<'a>(&'a self, attempt: &'a Attempt) -> Option<AskedHere<'a>> {
        let connection = self.connection_here()?;
        if self.layout() == Layout::Native && connection.known().suits(attempt) {
            let transaction = Transaction::new(&connection, attempt);
            let landing = transaction.landing;
            let asking = async move { transaction.run(&connection, attempt).await };
            return Some((Some(landing), Box::pin(asking)));
        }
        let latest_us = connection.server_us(self.server.clock.now() + SILENCE_LIMIT);
        let landing = connection.landing(latest_us);
        let asking = self.try_acquire_here(connection, attempt, latest_us);
        Some((Some(landing), Box::pin(asking)))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Held,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Renewed, Failure>> {
        Box::pin(self.try_renew(lease, watched, limit))
    }

    fn renew_all<'a>(
        &'a self,
        leases: Vec<&'a Held>,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<Renewed>>, Failure>> {
        Box::pin(self.try_renew_all(leases, watched, limit))
    }

    fn adopt<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a Held,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Renewed, Failure>> {
        Box::pin(self.try_adopt(from, lease, limit))
    }

    fn watch<'a>(
        &'a self,
        lease: &'a Held,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Watched, Failure>> {
        Box::pin(self.try_watch(lease, limit))
    }

    fn release<'a>(
        &'a self,
        lease: &'a Held,
        leaving: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Release, Failure>> {
        Box::pin(async move {
            let limit = self.command_limit(limit);
            let connection = self.commands.connection(limit).await?;
            self.try_release(&connection, lease, leaving, limit).await
        })
    }

    fn turn<'a>(
        &'a self,
        lease: &'a Held,
        fences: u32,
        place: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Turn, Failure>> {
        Box::pin(self.try_turn(lease, fences, place, limit))
    }

    fn release_here<'a>(
        &'a self,
        lease: &'a Held,
        leaving: Option<&'a LeaseId>,
    ) -> Option<BoxFuture<'a, Result<Release, Failure>>> {
        let connection = self.connection_here()?;
        Some(Box::pin(self.try_release_here(connection, lease, leaving)))
    }

    fn cancel<'a>(
        &'a self,
        lease: &'a Held,
        landing: Landing,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<Duration>, Failure>> {
        Box::pin(self.try_cancel(lease, landing, limit))
    }

    fn look<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<Found>, Failure>> {
        Box::pin(self.try_look(name, limit))
    }

    fn listen<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move { self.listener.listen(name, self.command_limit(limit)).await })
    }

    fn unlisten<'a>(&'a self, name: &'a LockName, limit: Moment) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.listener
                .unlisten(name, self.command_limit(limit))
                .await;
        })
    }

    fn write_record<'a>(
        &'a self,
        client: ClientId,
        change: &'a RecordChange,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RecordWritten, Failure>> {
        Box::pin(self.try_write_record(client, change, limit))
    }

    fn records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> BoxFuture<'_, Result<Vec<Record>, Failure>> {
        Box::pin(self.try_records(only, limit))
    }
}

/// The keys that acquire.lua touches, all in one slot. Most attempts need two of them.
fn acquire_keys(layout: Layout, attempt: &Attempt) -> Vec<String> {
    let name = &attempt.held.name;
    let mut keys = vec![name.as_str().to_owned(), layout.fence_key(name)];
    if attempt.queue || attempt.held.has_meta {
        keys.push(name.neighbour("queue"));
    }
    if attempt.held.has_meta {
        keys.push(name.neighbour("meta"));
    }
    keys
}

/// A seeded bug: what every tutorial warns of.
async fn release_in_two_steps(
    connection: &Connection,
    lease: &Held,
    limit: Moment,
) -> Result<Release, Failure> {
    let command = |word| ::redis::cmd(word).arg(lease.name.as_str()).clone();
    let found = connection.run(&command("GET"), limit, 0).await?;
    if found.as_str() != Some(lease.id.as_str()) {
        return Ok(Release::NotHeld);
    }
    connection.run(&command("DEL"), limit, 0).await?;
    Ok(Release::WasHeld { offered_to: None })
}

fn release_keys(lease: &Held) -> Vec<String> {
    let name = &lease.name;
    let mut keys = vec![name.as_str().to_owned(), name.neighbour("queue")];
    if lease.has_meta {
        keys.push(name.neighbour("meta"));
    }
    keys
}

fn acquire_arguments(attempt: &Attempt, connection: &Connection, latest_us: u64) -> Vec<String> {
    let mut arguments = vec![
        attempt.held.id.as_str().to_owned(),
        attempt.held.ttl.as_millis().to_string(),
        latest_us.to_string(),
        attempt.fences.to_string(),
        connection.made_us().to_string(),
    ];
    if attempt.queue || attempt.held.has_meta {
        arguments.push(if attempt.queue { "queue" } else { "" }.to_owned());
    }
    for (field, value) in attempt.meta.iter() {
        arguments.extend([field.clone(), value.clone()]);
    }
    arguments
}
