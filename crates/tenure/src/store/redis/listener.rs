//! The connection for pub/sub messages and for invalidations of watched leases.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::channels::Channels;
use super::command::{Cmd, cmd};
use super::connection::Connection;
use super::reconnect::Reconnector;
use super::server::Server;
use super::told_offer::ToldOffer;
use super::wire::Push;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Event, Failure, OfferedGrant};

/// How often to ping. A half-open connection shows no error by itself.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// The same while no message is needed: no lease is held, and every waiter has others ahead that
/// would poll. Rare enough for a crowd, often enough to keep idle connections alive.
const HEARTBEAT_IDLE: Duration = Duration::from_secs(30);
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(2);
/// The server's clock is read again when the last reading is older than this: the older it is, the
/// less an offer is worth.
const CLOCK_READ_AFTER: Duration = Duration::from_secs(1);
/// How long to wait before reconnecting.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Listener {
    /// Unique in the process.
    number: u64,
    pub(super) reconnector: Reconnector,
    server: Arc<Server>,
    scope: ListenerScope,
    channels: Arc<Channels>,
    pushes: Mutex<Option<mpsc::UnboundedReceiver<Push>>>,
    events: OnceLock<mpsc::UnboundedSender<Event>>,
    /// The lock that the last message reported as free, together with our next waiter. release.lua
    /// publishes to Redisson's waiters right after it.
    opened: Mutex<Option<LockName>>,
    is_reading_clock: AtomicBool,
    closed: CancellationToken,
}

/// What a listener subscribes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListenerScope {
    /// Messages to all subscribers, and invalidations.
    All,
    /// Messages in one shard of a cluster. On a connection of their own: a server that loses a slot
    /// pushes an unsubscribe, and a command sent at that moment gets a wrong reply.
    Shard,
}

static LISTENERS: AtomicU64 = AtomicU64::new(0);

impl Listener {
    pub(super) fn new(
        server: Arc<Server>,
        scope: ListenerScope,
        channels: Arc<Channels>,
    ) -> Arc<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let setup: Option<fn() -> Cmd> = match scope {
            ListenerScope::All => Some(tracking),
            ListenerScope::Shard => None,
        };
        Arc::new(Self {
            number: LISTENERS.fetch_add(1, Ordering::Relaxed),
            reconnector: Reconnector::with_pushes(Arc::clone(&server), sender, setup),
            server,
            scope,
            channels,
            pushes: Mutex::new(Some(receiver)),
            events: OnceLock::new(),
            opened: Mutex::default(),
            is_reading_clock: AtomicBool::new(false),
            closed: CancellationToken::new(),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Starts to forward what the server sends. Must be called on the engine.
    pub(super) fn start(self: &Arc<Self>, events: mpsc::UnboundedSender<Event>) {
        let pushes = lock(&self.pushes).take();
        if let Some(pushes) = pushes
            && self.events.set(events).is_ok()
        {
            let (listener, closed) = (Arc::clone(self), self.closed.clone());
            tokio::spawn(async move { closed.run_until_cancelled(run(listener, pushes)).await });
        }
    }

    /// This server is no longer needed.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) async fn subscribe(&self, name: &LockName, limit: Moment) -> Result<(), Failure> {
        let mut subscribed = Vec::new();
        let channels = self.channels.of_lock(&self.server.keys, name);
        for (channel, topic) in channels {
            // Added before the server confirms: its first message may follow at once.
            self.channels.add(&channel, name, topic, self.number);
            let confirmed = self.subscribe_channel(&channel, limit).await;
            subscribed.push(channel);
            if confirmed.is_err() {
                self.unsubscribe_channels(subscribed, limit).await;
                return confirmed;
            }
        }
        Ok(())
    }

    /// Removes one use of each channel, the last one first.
    async fn unsubscribe_channels(&self, channels: Vec<String>, limit: Moment) {
        for channel in channels.iter().rev() {
            if self.channels.remove(channel) == Some(self.number) {
                self.unsubscribe_channel(channel, limit).await;
            }
        }
    }

    /// Subscribes to one channel.
    pub(super) async fn subscribe_channel(
        &self,
        channel: &str,
        limit: Moment,
    ) -> Result<(), Failure> {
        let connection = self.reconnector.connection(limit).await?;
        self.subscribe_on(&connection, channel, limit).await?;
        if needs_new_reading(&connection, self.server.clock.now()) {
            // For the first offer. If it fails, the waiter accepts that as it would without.
            let _ = connection.read_clock(limit).await;
        }
        Ok(())
    }

    async fn subscribe_on(
        &self,
        connection: &Connection,
        channel: &str,
        limit: Moment,
    ) -> Result<(), Failure> {
        let sharded = self.scope == ListenerScope::Shard;
        connection.subscribe(channel, sharded, limit).await
    }

    /// Ends [`subscribe_channel`](Listener::subscribe_channel). If it fails, the connection or the
    /// channel's slot is gone, and the subscription with it.
    pub(super) async fn unsubscribe_channel(&self, channel: &str, limit: Moment) {
        let Some(connection) = self.reconnector.live() else {
            return;
        };
        let sharded = self.scope == ListenerScope::Shard;
        let _ = connection.unsubscribe(channel, sharded, limit).await;
    }

    /// Subscribes a new connection to all channels of the old one; false if the new one failed too.
    async fn resubscribe(&self, connection: &Connection) -> bool {
        for channel in self.channels.channels_of(self.number) {
            let limit = self.server.clock.now() + HEARTBEAT_LIMIT;
            match self.subscribe_on(connection, &channel, limit).await {
                Err(failure) if failure.transient => return false,
                // A refused channel must not cost the others their messages.
                Err(_) => self.channels.subscription_lost(&channel, self.number),
                Ok(()) => {}
            }
        }
        self.emit(Event::MessagesLost);
        true
    }

    fn emit(&self, event: Event) {
        let missed = matches!(event, Event::MessagesLost) && bug(Bug::MissedMessages);
        if let Some(events) = self.events.get().filter(|_| !missed) {
            // The client may be closing.
            let _ = events.send(event);
        }
    }

    fn on_push(&self, push: Push) {
        match push {
            Push::Message { channel, message } => self.on_message(&channel, &message),
            Push::ShardUnsubscribed(channel) => self.on_shard_unsubscribed(&channel),
            Push::Invalidated(keys) => self.on_invalidation(keys),
            // These only make the listener check its connection.
            Push::Confirmed | Push::Disconnected => {}
        }
    }

    fn on_message(&self, channel: &str, message: &str) {
        let event = self
            .channels
            .event(channel, message, |told| self.grant_of(told));
        if let Some(event) = event
            && !self.is_echo(&event)
        {
            self.emit(event);
        }
    }

    /// What an offer is worth that was just heard, by the clock of the server that sent it.
    fn grant_of(&self, told: ToldOffer) -> Option<OfferedGrant> {
        let reading = self.reconnector.live()?.last_clock_reading()?;
        told.grant(reading, self.server.clock.now())
    }

    /// The server ended a subscription to a shard channel: its slot has moved.
    fn on_shard_unsubscribed(&self, channel: &str) {
        if !bug(Bug::SunsubscribeIgnored) {
            self.channels.subscription_lost(channel, self.number);
        }
    }

    /// Whether a message only repeats for Redisson's waiters what the previous one told ours: that
    /// the lock is free, and who is next.
    fn is_echo(&self, event: &Event) -> bool {
        let mut opened = lock(&self.opened);
        match (event, opened.take()) {
            (Event::Opened { name, next: None }, before) => before.as_ref() == Some(name),
            (Event::Opened { name, .. }, _) => {
                *opened = Some(name.clone());
                false
            }
            _ => false,
        }
    }

    /// The keys that changed; none when the server flushed its tracking table.
    fn on_invalidation(&self, keys: Option<Vec<String>>) {
        let Some(keys) = keys else {
            return self.emit(Event::MessagesLost);
        };
        for key in keys {
            // An observer reads the metadata too, for the leader's value.
            let name = self.server.keys.name_of_neighbour(&key, "meta");
            if let Some(name) = name.or_else(|| self.server.keys.name_of(&key)) {
                self.emit(Event::Changed { name });
            }
        }
    }
}

/// OPTIN: only keys read after `CLIENT CACHING YES` are tracked. NOLOOP: our own renewals cause no
/// invalidation.
fn tracking() -> Cmd {
    let mut command = cmd("CLIENT");
    command.arg(["TRACKING", "ON", "OPTIN", "NOLOOP"]);
    command
}

/// Reads what the server sends, and keeps the connection up. Ends with the engine.
async fn run(listener: Arc<Listener>, mut pushes: mpsc::UnboundedReceiver<Push>) {
    // The connection that has all subscriptions. The first one was subscribed when it was made.
    let mut subscribed_on = None;
    let mut quiet = Duration::ZERO;
    loop {
        let push = tokio::select! {
            biased;
            push = tokio::time::timeout(HEARTBEAT, pushes.recv()) => push,
            () = connection_closed(&listener, subscribed_on) => {
                subscribed_on = Some(reconnect(&listener).await);
                continue;
            }
        };
        quiet = if push.is_err() {
            quiet + HEARTBEAT
        } else {
            Duration::ZERO
        };
        let lost = match push {
            Ok(None) => return,
            // It may be the end of an older connection: a ping tells.
            Ok(Some(Push::Disconnected)) => !is_alive(&listener).await,
            Ok(Some(push)) => {
                listener.on_push(push);
                refresh_clock(&listener);
                false
            }
            Err(_) if quiet < HEARTBEAT_IDLE && !listener.channels.needs_messages() => false,
            Err(_) => {
                quiet = Duration::ZERO;
                let silent = subscribed_on.is_some() && !is_alive(&listener).await;
                if silent {
                    // It may stay away for a while, and nothing else has noticed.
                    listener.emit(Event::MessagesLost);
                }
                silent
            }
        };
        let present = listener.reconnector.live().map(|connection| connection.id);
        let replaced = subscribed_on.is_some() && present != subscribed_on;
        subscribed_on = if lost || replaced {
            Some(reconnect(&listener).await)
        } else {
            present
        };
    }
}

/// Waits until the subscribed connection is closed, for any reason: its primary was replaced, or a
/// reply timed out.
async fn connection_closed(listener: &Listener, subscribed_on: Option<u64>) {
    match listener.reconnector.live() {
        Some(connection) => connection.closed().await,
        None if subscribed_on.is_some() => {}
        None => std::future::pending().await,
    }
}

/// Whether there is a connection that replies. One that does not is closed by the attempt.
async fn is_alive(listener: &Listener) -> bool {
    let Some(connection) = listener.reconnector.live() else {
        return false;
    };
    let limit = listener.server.clock.now() + HEARTBEAT_LIMIT;
    // Any reply would do; this one also tells what offers are worth.
    connection.read_clock(limit).await
}

/// Reads the server's clock in the background, if the last reading is no longer new.
fn refresh_clock(listener: &Arc<Listener>) {
    let now = listener.server.clock.now();
    let Some(connection) = listener.reconnector.live() else {
        return;
    };
    if needs_new_reading(&connection, now)
        && !listener.is_reading_clock.swap(true, Ordering::Relaxed)
    {
        let listener = Arc::clone(listener);
        tokio::spawn(async move {
            connection.read_clock(now + HEARTBEAT_LIMIT).await;
            listener.is_reading_clock.store(false, Ordering::Relaxed);
        });
    }
}

/// Whether the server's clock should be read again. A user that may not read it is not asked.
fn needs_new_reading(connection: &Connection, now: Moment) -> bool {
    let reading = connection.last_clock_reading();
    reading.is_some_and(|reading| now >= reading.asked_at + CLOCK_READ_AFTER)
}

/// Reconnects until it works, and returns the connection that has all subscriptions again.
async fn reconnect(listener: &Listener) -> u64 {
    let mut reported = false;
    loop {
        let limit = listener.server.clock.now() + HEARTBEAT_LIMIT;
        if let Ok(connection) = listener.reconnector.connection(limit).await
            && listener.resubscribe(&connection).await
        {
            return connection.id;
        }
        if !reported {
            // Sleeping waiters must learn that no message will wake them.
            listener.emit(Event::MessagesLost);
            reported = true;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
