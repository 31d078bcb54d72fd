//! The store on one Redis server.
//!
//! This directory is the only place that knows the Redis client crate.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub(crate) use self::ballot::{Ballot, Sent, TakenBack, Vote};
pub use self::client::{Client, Command, Dedicated};
pub use self::script::Script;
pub use self::value::Value;

pub(crate) use self::link::Connection;
use self::node::{Line, Node};
use self::reign::TooYoung;
use self::routes::Routes;
use self::script::LockScripts;
use self::server::Server;
use self::transaction::Transaction;
use crate::error::Result;
use crate::layout::Layout;
use crate::lease::{ClientId, LeaseId};
use crate::moment::{Clock, Moment};
use crate::name::LockName;
use crate::pending::Pending;
use crate::seeded::{Bug, bug};
use crate::stats::Stats;
use crate::store::{
    AskedHere, Attempt, Attempted, BoxFuture, Event, Failure, Found, Held, Landing, Record,
    RecordChange, RecordWritten, Release, Renewed, SILENCE_LIMIT, Store, Turn, Watched,
};
use crate::url::{RedisTarget, SentinelTarget};

mod ballot;
mod client;
mod confirmation;
mod exclusive;
mod lane;
mod layout;
mod link;
mod listener;
mod node;
mod place;
mod records;
mod refusal;
mod reign;
mod renewal;
mod reply;
mod routes;
mod script;
mod sentinel;
mod server;
mod silence;
mod socket;
mod transaction;
mod value;

/// How often an attempt may be told that it is late before the clocks are called unreasonable.
const LATE_MAX: usize = 3;

pub(crate) struct RedisStore {
    routes: Routes,
    layout: Layout,
    clock: Clock,
    stats: Arc<Stats>,
    told_of_tracking: AtomicBool,
    /// How long a new master gives no new locks.
    after_failover: OnceLock<Duration>,
}

/// A script to be run where a lock is.
struct Question<'a> {
    name: &'a LockName,
    /// How many replicas will have to confirm what it writes.
    replicas: u32,
    /// Set if it asks for a new lock, which a master that is too young does not give.
    grants: Option<&'a TooYoung>,
    script: &'a Script,
    keys: &'a [String],
}

impl<'a> Question<'a> {
    fn about(lease: &'a Held, script: &'a Script, keys: &'a [String]) -> Self {
        Self {
            name: &lease.name,
            replicas: lease.replicas,
            grants: None,
            script,
            keys,
        }
    }

    fn for_new(self, too_young: &'a TooYoung) -> Self {
        Self {
            grants: Some(too_young),
            ..self
        }
    }
}

/// What a script said, when it was asked, and on which connection.
struct Answer {
    reply: Value,
    sent_at: Moment,
    /// The latest moment by the server's clock that the question carried.
    latest_us: u64,
    connection: Line,
}

impl RedisStore {
    /// Must be called on the engine. With a runtime, callers who run there are served by it.
    pub(crate) fn new(
        target: RedisTarget,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let server = Server::new(target, Arc::clone(&stats));
        Self::on(server, stats, runtime)
    }

    /// On whichever server the sentinels call the master. Must be called on the engine.
    pub(crate) fn by_sentinels(
        target: SentinelTarget,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let server = Server::master_of(target, Arc::clone(&stats));
        Self::on(server, stats, runtime)
    }

    fn on(server: Arc<Server>, stats: Arc<Stats>, runtime: Option<Handle>) -> Arc<Self> {
        let layout = server.target.layout();
        let routes = Routes::One(Node::new(server, runtime));
        Arc::new(Self {
            routes,
            layout,
            clock: Clock::Boot,
            stats,
            told_of_tracking: AtomicBool::new(false),
            after_failover: OnceLock::new(),
        })
    }

    fn scripts(&self) -> &'static LockScripts {
        self.layout.scripts()
    }

    /// Connects, so that a wrong address or password is found at once.
    pub(crate) async fn reach(&self, limit: Moment) -> Result<(), Failure> {
        for node in self.routes.all() {
            node.reach(limit).await?;
        }
        Ok(())
    }

    /// No command waits longer than a silent connection is believed in.
    fn command_limit(&self, limit: Moment) -> Moment {
        limit.min(self.clock.now() + SILENCE_LIMIT)
    }

    /// Runs a script where the lock is. The arguments may depend on the connection, and on the
    /// latest moment by the server's clock at which an answer is still waited for.
    async fn ask(
        &self,
        question: &Question<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<Answer, Failure> {
        let node = self.routes.node(question.name)?;
        let connection = node.line(question.replicas, limit).await?;
        self.check_reign(question, &connection, limit).await?;
        let sent_at = self.clock.now();
        let limit = self.command_limit(limit);
        let latest_us = connection.server_us(limit);
        let arguments = arguments(&connection, latest_us);
        let Question { script, keys, .. } = question;
        let reply = connection
            .script(script, keys, &arguments, limit, latest_us)
            .await?;
        Ok(Answer {
            reply,
            sent_at: self.sent_at(sent_at),
            latest_us,
            connection,
        })
    }

    fn sent_at(&self, sent_at: Moment) -> Moment {
        if bug(Bug::DeadlineFromReply) {
            return self.clock.now();
        }
        sent_at
    }

    async fn try_acquire(&self, attempt: &Attempt, limit: Moment) -> Result<Attempted, Failure> {
        let name = &attempt.held.name;
        let arguments =
            |connection: &Connection, latest_us| acquire_arguments(attempt, connection, latest_us);
        let read = |answer: &Answer| reply::attempt(self.layout, name, answer);
        let keys = acquire_keys(self.layout, attempt);
        let too_young = TooYoung::default();
        let question = Question::about(&attempt.held, &self.scripts().acquire, &keys);
        let question = question.for_new(&too_young);
        let (attempted, answer) = match self.in_time(&question, arguments, read, limit).await {
            Ok(answered) => answered,
            Err(failure) => return too_young.take().map(Attempted::NotYet).ok_or(failure),
        };
        if !matches!(attempted, Attempted::Granted { .. }) {
            return Ok(attempted);
        }
        let (connection, latest_us) = (&answer.connection, answer.latest_us);
        self.confirm_grant(connection, &attempt.held, attempted, latest_us, limit)
            .await
    }

    /// Asks on the caller's own task.
    async fn try_acquire_here(
        &self,
        connection: Arc<Connection>,
        attempt: &Attempt,
        latest_us: u64,
    ) -> Result<Attempted, Failure> {
        let sent_at = self.clock.now();
        let keys = acquire_keys(self.layout, attempt);
        let arguments = acquire_arguments(attempt, &connection, latest_us);
        let reply = connection
            .script_here(&self.scripts().acquire, &keys, &arguments, latest_us)
            .await?;
        let answer = Answer {
            reply,
            sent_at: self.sent_at(sent_at),
            latest_us,
            connection: Line::Shared(connection),
        };
        let name = &attempt.held.name;
        let attempted = reply::attempt(self.layout, name, &answer)?.map_err(|server_us| {
            // The engine asks again.
            answer.connection.set_clock(sent_at, server_us);
            answer.connection.too_late()
        })?;
        answer.connection.known().note(name, &attempted);
        Ok(attempted)
    }

    async fn try_release_here(
        &self,
        connection: Arc<Connection>,
        lease: &Held,
        leaving: Option<&LeaseId>,
    ) -> Result<Release, Failure> {
        if bug(Bug::ReleaseInTwoSteps) {
            let limit = self.command_limit(self.clock.now() + SILENCE_LIMIT);
            return release_in_two_steps(&connection, lease, limit).await;
        }
        let (keys, arguments) = (
            release_keys(lease),
            self.layout.release_arguments(lease, leaving),
        );
        let reply = connection
            .script_here(&self.scripts().release, &keys, &arguments, 0)
            .await?;
        reply::release(self.layout, &lease.name, &reply)
    }

    async fn try_turn(
        &self,
        lease: &Held,
        fences: u32,
        place: Option<&LeaseId>,
        limit: Moment,
    ) -> Result<Turn, Failure> {
        let mut keys = vec![
            lease.name.as_str().to_owned(),
            self.layout.fence_key(&lease.name),
            lease.name.neighbour("queue"),
        ];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        let arguments = |connection: &Connection, _| {
            let mut arguments = vec![
                lease.id.as_str().to_owned(),
                place.map_or("", LeaseId::as_str).to_owned(),
                lease.ttl.as_millis().to_string(),
                fences.to_string(),
                connection.made_us().to_string(),
            ];
            arguments.extend(self.layout.turn_arguments(lease));
            arguments
        };
        let question = Question::about(lease, &self.scripts().turn, &keys);
        let answer = self.ask(&question, arguments, limit).await?;
        let turn = reply::turn(self.layout, &lease.name, answer.sent_at, &answer.reply)?;
        if matches!(turn, Turn::Again { .. }) {
            // Otherwise it is released: it has not gone to anybody else.
            let (connection, latest_us) = (&answer.connection, answer.latest_us);
            self.confirm(connection, lease, latest_us, limit).await?;
        }
        Ok(turn)
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
        // Somebody else may have adopted it, and this master not have heard of that.
        let too_young = TooYoung::default();
        let question = Question::about(lease, &self.scripts().adopt, &keys).for_new(&too_young);
        let adopting = self.in_time(&question, arguments, reply::adoption, limit);
        let (renewed, answer) = adopting.await?;
        if matches!(renewed, Renewed::Until { .. }) {
            let (connection, latest_us) = (&answer.connection, answer.latest_us);
            let confirmed = self.confirm(connection, lease, latest_us, limit).await;
            // It goes by our id by now: whoever gives up must give it back.
            let landing = Some(connection.landing(latest_us));
            confirmed.map_err(|unconfirmed| Failure {
                landing,
                ..unconfirmed.into()
            })?;
        }
        Ok(renewed)
    }

    /// Runs a script that carries its latest moment: if it runs later, it changes nothing, and
    /// says so by an inner `Err` with the server's time.
    async fn in_time<T>(
        &self,
        question: &Question<'_>,
        arguments: impl Fn(&Connection, u64) -> Vec<String>,
        read: impl Fn(&Answer) -> Result<Result<T, u64>, Failure>,
        limit: Moment,
    ) -> Result<(T, Answer), Failure> {
        let mut tries = 0;
        loop {
            let answer = self.ask(question, &arguments, limit).await?;
            match read(&answer)? {
                Ok(read) => return Ok((read, answer)),
                // The server's clock was set forward since we asked for it.
                Err(server_us) => answer.connection.set_clock(answer.sent_at, server_us),
            }
            tries += 1;
            if self.clock.now() >= limit.min(answer.sent_at + SILENCE_LIMIT) {
                return Err(answer.connection.too_late());
            }
            if tries == LATE_MAX {
                return Err(answer.connection.clock_runs_away());
            }
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
            self.layout.release_arguments(lease, leaving),
        );
        let reply = connection
            .script(&self.scripts().release, &keys, &arguments, limit, 0)
            .await?;
        reply::release(self.layout, &lease.name, &reply)
    }

    /// Releases, and answers whether that was late enough for the attempt not to land any more.
    async fn try_cancel(
        &self,
        lease: &Held,
        landing: Landing,
        limit: Moment,
    ) -> Result<Option<Duration>, Failure> {
        let limit = self.command_limit(limit);
        let node = self.routes.node(&lease.name)?;
        if let Some(connection) = node.lane_with_id(landing.connection) {
            // Behind the attempt, on the same connection. If its runtime does not drive it any
            // more, the next time it is broken.
            self.try_release(&connection, lease, None, limit).await?;
            return Ok(None);
        }
        let connection = node.commands.connection(limit).await?;
        if landing.connection == Some(connection.id) || bug(Bug::CancelOnOtherConnection) {
            self.try_release(&connection, lease, None, limit).await?;
            return Ok(None);
        }
        // The clock is read before the release: so the release came later than what it shows.
        let asked_at = self.clock.now();
        let time = connection.run(&::redis::cmd("TIME"), limit, 0).await?;
        let now_us =
            link::micros(&time).ok_or_else(|| Failure::refused(time.unexpected("TIME")))?;
        connection.set_clock(asked_at, now_us);
        self.try_release(&connection, lease, None, limit).await?;
        let early_us = (landing.latest_us + 1).saturating_sub(now_us);
        Ok((early_us > 0).then(|| Duration::from_micros(early_us)))
    }

    async fn try_look(&self, name: &LockName, limit: Moment) -> Result<Option<Found>, Failure> {
        let keys = [
            name.as_str().to_owned(),
            self.layout.fence_key(name),
            name.neighbour("meta"),
        ];
        let look = &self.scripts().look;
        let question = Question {
            name,
            replicas: 0,
            grants: None,
            script: look,
            keys: &keys,
        };
        let answer = self.ask(&question, |_, _| Vec::new(), limit).await?;
        reply::look(self.layout, name, answer.reply)
    }
}

impl Store for RedisStore {
    fn start(&self, _: ClientId, events: mpsc::UnboundedSender<Event>, _: Pending) {
        for node in self.routes.all() {
            node.listener.start(events.clone());
        }
    }

    fn acquire<'a>(
        &'a self,
        attempt: &'a Attempt,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Attempted, Failure>> {
        Box::pin(self.try_acquire(attempt, limit))
    }

    fn acquire_here<'a>(&'a self, attempt: &'a Attempt) -> Option<AskedHere<'a>> {
        if attempt.held.replicas > 0 {
            // The caller's own connection is shared, and replicas take their time.
            return None;
        }
        let connection = self
            .routes
            .node(&attempt.held.name)
            .ok()?
            .connection_here()?;
        if !self.may_grant(&connection) {
            return None;
        }
        if self.layout == Layout::Native && connection.known().suits(attempt) {
            let transaction = Transaction::new(&connection, attempt);
            let landing = transaction.landing;
            let asking = async move { transaction.run(&connection, attempt).await };
            return Some((Some(landing), Box::pin(asking)));
        }
        let latest_us = connection.server_us(self.clock.now() + SILENCE_LIMIT);
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
            let node = self.routes.node(&lease.name)?;
            let connection = node.commands.connection(limit).await?;
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
        let connection = self.routes.node(&lease.name).ok()?.connection_here()?;
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
        Box::pin(async move {
            let node = self.routes.node(name)?;
            node.listener.listen(name, self.command_limit(limit)).await
        })
    }

    fn unlisten<'a>(&'a self, name: &'a LockName, limit: Moment) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Ok(node) = self.routes.node(name) {
                let limit = self.command_limit(limit);
                node.listener.unlisten(name, limit).await;
            }
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
