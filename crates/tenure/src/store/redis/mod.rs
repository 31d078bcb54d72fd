//! The store on one Redis server, or on the nodes of a Redis Cluster.
//!
//! This directory is the only place that knows the Redis client crate.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub(crate) use self::ballot::{Ballot, Bounds, Sent, TakenBack, Vote};
pub use self::client::{Client, Command, Dedicated};
pub use self::script::Script;
pub use self::value::Value;

use self::channels::Channels;
use self::cluster::{Cluster, Way};
pub(crate) use self::link::Connection;
use self::node::{Line, Node};
use self::reign::TooYoung;
use self::routes::Routes;
use self::script::LockScripts;
use self::server::Server;
use self::transaction::Transaction;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::lease::{ClientId, LeaseId};
use crate::moment::{Clock, Moment};
use crate::name::LockName;
use crate::pending::Pending;
use crate::seeded::{Bug, bug};
use crate::stats::Stats;
use crate::store::{
    AskedHere, Attempt, Attempted, BoxFuture, Event, Failure, Found, Held, Landing, Looked, Record,
    RecordChange, RecordWritten, Release, Renewed, SILENCE_LIMIT, Store, Turn, Watched,
};
use crate::url::{RedisTarget, SentinelTarget};

mod ballot;
mod channels;
mod client;
mod cluster;
mod confirmation;
mod exclusive;
mod lane;
mod layout;
mod link;
mod listener;
mod looking;
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
    /// What waiters hear, on whichever node.
    channels: Arc<Channels>,
    layout: Layout,
    /// Whether messages stay in the shard of their lock.
    sharded: bool,
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
        Self::on_one(server, stats, runtime)
    }

    /// On whichever server the sentinels call the master. Must be called on the engine.
    pub(crate) fn by_sentinels(
        target: SentinelTarget,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let server = Server::master_of(target, Arc::clone(&stats));
        Self::on_one(server, stats, runtime)
    }

    /// On the cluster that these nodes belong to. Must be called on the engine.
    pub(crate) fn in_cluster(
        nodes: Vec<RedisTarget>,
        sharded: bool,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let layout = nodes.first().map(RedisTarget::layout).unwrap_or_default();
        let channels = Arc::new(Channels::default());
        let (for_nodes, heard) = (Arc::clone(&stats), Arc::clone(&channels));
        let cluster = Cluster::new(nodes, sharded, for_nodes, runtime, heard);
        Self::on(Routes::Cluster(cluster), channels, layout, sharded, stats)
    }

    fn on_one(server: Arc<Server>, stats: Arc<Stats>, runtime: Option<Handle>) -> Arc<Self> {
        let layout = server.target.layout();
        let channels = Arc::new(Channels::default());
        let routes = Routes::One(Node::new(server, runtime, &channels));
        Self::on(routes, channels, layout, false, stats)
    }

    fn on(
        routes: Routes,
        channels: Arc<Channels>,
        layout: Layout,
        sharded: bool,
        stats: Arc<Stats>,
    ) -> Arc<Self> {
        Arc::new(Self {
            routes,
            channels,
            layout,
            sharded,
            clock: Clock::Boot,
            stats,
            told_of_tracking: AtomicBool::new(false),
            after_failover: OnceLock::new(),
        })
    }

    fn scripts(&self) -> &'static LockScripts {
        self.layout.scripts(self.sharded)
    }

    /// Connects, so that a wrong address or password is found at once.
    pub(crate) async fn reach(&self, limit: Moment) -> Result<(), Failure> {
        self.routes.reach(limit).await
    }

    /// The way to the node that has this lock, as far as is known.
    fn way(&self, name: &LockName) -> Result<Way, Failure> {
        if matches!(self.routes, Routes::Cluster(_)) && self.layout.splits(name) {
            let cause = "it holds a `{` but no hash tag, and Redisson would spread such a lock over \
                         several slots of the cluster: write `{tag}` or leave the `{` out";
            return Err(Failure::refused(Error::invalid_name(name.as_str(), cause)));
        }
        self.routes.way(name.as_str())
    }

    /// Where to go on after a failure of a question about this lock, if there is somewhere.
    async fn onward(
        &self,
        name: &LockName,
        way: Way,
        failure: Failure,
        limit: Moment,
    ) -> Result<Way, Failure> {
        self.routes.onward(name.as_str(), way, failure, limit).await
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
        let mut way = self.way(question.name)?;
        loop {
            let answer = self.ask_at(&way, question, &arguments, limit).await;
            let Err(failure) = answer else { return answer };
            way = self.onward(question.name, way, failure, limit).await?;
        }
    }

    async fn ask_at(
        &self,
        way: &Way,
        question: &Question<'_>,
        arguments: &impl Fn(&Connection, u64) -> Vec<String>,
        limit: Moment,
    ) -> Result<Answer, Failure> {
        let connection = way.node.line(question.replicas, limit).await?;
        self.check_reign(question, &way.node, &connection, limit)
            .await?;
        let sent_at = self.clock.now();
        let limit = self.command_limit(limit);
        let latest_us = connection.server_us(limit);
        let arguments = arguments(&connection, latest_us);
        let Question { script, keys, .. } = question;
        let reply = connection
            .script_by(way.asking, script, keys, &arguments, limit, latest_us)
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
                connection.fence_floor_us().to_string(),
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
        asking: bool,
        lease: &Held,
        leaving: Option<&LeaseId>,
        limit: Moment,
    ) -> Result<Release, Failure> {
        if bug(Bug::ReleaseInTwoSteps) {
            return release_in_two_steps(connection, lease, limit).await;
        }
        let release = &self.scripts().release;
        let (keys, arguments) = (
            release_keys(lease),
            self.layout.release_arguments(lease, leaving),
        );
        let reply = connection
            .script_by(asking, release, &keys, &arguments, limit, 0)
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
        let same = landing.connection;
        if let Some((node, connection)) = same.and_then(|id| self.routes.connection_with_id(id)) {
            // Behind the attempt, on the same connection. If its runtime does not drive it any
            // more, the next time it is broken.
            let released = self
                .try_release(&connection, false, lease, None, limit)
                .await;
            return match released {
                Ok(_) => Ok(None),
                // Any answer shows that the attempt has been served. Either it was refused as this
                // was, or its lease has moved along with the slot: it is where the slot is now.
                Err(failure) if matches!(self.routes, Routes::Cluster(_)) => {
                    let failure = self.routes.noted(&node, failure);
                    if failure.landing.is_some() || !failure.transient {
                        return Err(failure);
                    }
                    self.release_where_it_is(lease, None, limit).await?;
                    Ok(None)
                }
                Err(failure) => Err(failure),
            };
        }
        if bug(Bug::CancelOnOtherConnection) {
            self.release_where_it_is(lease, None, limit).await?;
            return Ok(None);
        }
        self.cancel_by_the_clock(lease, landing, limit).await
    }

    /// The connection of the attempt is gone, so only its latest moment says when it can no longer
    /// land. That is a moment of the clock of the node that it was sent to. In a cluster the slot may
    /// be another node's by now, whose clock is another one. Then the attempt is refused wherever it
    /// lands, because the slot has left; unless it came back within the second that an attempt may
    /// travel, and even then its lease ends by itself, and nobody believes in it.
    async fn cancel_by_the_clock(
        &self,
        lease: &Held,
        landing: Landing,
        limit: Moment,
    ) -> Result<Option<Duration>, Failure> {
        let mut way = self.way(&lease.name)?;
        let now_us = loop {
            match self.release_after_time(&way, lease, limit).await {
                Ok(now_us) => break now_us,
                Err(failure) => way = self.onward(&lease.name, way, failure, limit).await?,
            }
        };
        let early_us = (landing.latest_us + 1).saturating_sub(now_us);
        Ok((early_us > 0).then(|| Duration::from_micros(early_us)))
    }

    /// Reads the clock of a node, in microseconds, then releases there: so the release came later than
    /// what the clock showed.
    async fn release_after_time(
        &self,
        way: &Way,
        lease: &Held,
        limit: Moment,
    ) -> Result<u64, Failure> {
        let connection = way.node.commands.connection(limit).await?;
        let asked_at = self.clock.now();
        let time = connection.run(&::redis::cmd("TIME"), limit, 0).await?;
        let now_us =
            link::micros(&time).ok_or_else(|| Failure::refused(time.unexpected("TIME")))?;
        connection.set_clock(asked_at, now_us);
        self.try_release(&connection, way.asking, lease, None, limit)
            .await?;
        Ok(now_us)
    }

    async fn release_where_it_is(
        &self,
        lease: &Held,
        leaving: Option<&LeaseId>,
        limit: Moment,
    ) -> Result<Release, Failure> {
        let limit = self.command_limit(limit);
        let mut way = self.way(&lease.name)?;
        loop {
            let answer = self.release_at(&way, lease, leaving, limit).await;
            let Err(failure) = answer else { return answer };
            way = self.onward(&lease.name, way, failure, limit).await?;
        }
    }

    async fn release_at(
        &self,
        way: &Way,
        lease: &Held,
        leaving: Option<&LeaseId>,
        limit: Moment,
    ) -> Result<Release, Failure> {
        let connection = way.node.commands.connection(limit).await?;
        self.try_release(&connection, way.asking, lease, leaving, limit)
            .await
    }
}

impl Store for RedisStore {
    fn start(&self, _: ClientId, events: mpsc::UnboundedSender<Event>, _: Pending) {
        self.routes.start(events);
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
        let node = self.way(&attempt.held.name).ok()?.node;
        let connection = node.connection_here()?;
        if !self.may_grant(&connection) {
            return None;
        }
        let by_transaction = self.layout == Layout::Native && !connection.counts_by_clock();
        if by_transaction && connection.known().suits(attempt) {
            let transaction = Transaction::new(&connection, attempt);
            let landing = transaction.landing;
            let asking = async move {
                let attempted = transaction.run(&connection, attempt).await;
                attempted.map_err(|failure| self.routes.noted(&node, failure))
            };
            return Some((Some(landing), Box::pin(asking)));
        }
        let latest_us = connection.server_us(self.clock.now() + SILENCE_LIMIT);
        let landing = connection.landing(latest_us);
        let asking = async move {
            let attempted = self.try_acquire_here(connection, attempt, latest_us).await;
            attempted.map_err(|failure| self.routes.noted(&node, failure))
        };
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

    fn place_of(&self, name: &LockName) -> u64 {
        if bug(Bug::PlacesRenewedTogether) {
            return 0;
        }
        self.way(name).map_or(0, |way| way.node.listener.number())
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
        Box::pin(self.release_where_it_is(lease, leaving, limit))
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
        let node = self.way(&lease.name).ok()?.node;
        let connection = node.connection_here()?;
        Some(Box::pin(async move {
            let released = self.try_release_here(connection, lease, leaving).await;
            released.map_err(|failure| self.routes.noted(&node, failure))
        }))
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

    fn look_all<'a>(
        &'a self,
        names: &'a [LockName],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Looked>, Failure>> {
        Box::pin(self.try_look_all(names, limit))
    }

    fn listen<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let limit = self.command_limit(limit);
        Box::pin(async move {
            let mut way = self.way(name)?;
            loop {
                let answer = way.node.wakes.listen(name, limit).await;
                let Err(failure) = answer else { return answer };
                way = self.onward(name, way, failure, limit).await?;
            }
        })
    }

    fn unlisten<'a>(&'a self, name: &'a LockName, limit: Moment) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let limit = self.command_limit(limit);
            for (channel, _) in self.layout.channels(name).iter().rev() {
                let Some(listener) = self.channels.forget(channel) else {
                    continue;
                };
                let nodes = self.routes.all();
                let mut nodes = nodes.iter();
                if let Some(node) = nodes.find(|node| node.wakes.number() == listener) {
                    node.wakes.hear_no_more(channel, limit).await;
                }
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
        connection.fence_floor_us().to_string(),
    ];
    if attempt.queue || attempt.held.has_meta {
        arguments.push(if attempt.queue { "queue" } else { "" }.to_owned());
    }
    for (field, value) in attempt.meta.iter() {
        arguments.extend([field.clone(), value.clone()]);
    }
    arguments
}
