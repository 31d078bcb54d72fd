//! The connection that the server speaks on unasked: wake-ups for waiters, and word of watched
//! leases that changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ::redis::{Cmd, PushInfo, PushKind};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::channels::Channels;
use super::connection::Connection;
use super::reconnect::Reconnector;
use super::server::Server;
use super::value::Value;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Event, Failure};

/// How often a listener asks whether the connection is still there. A half-open one says nothing.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// The same while nobody attends: no lease is held, and whoever waits has others before it, who would
/// ask. Seldom enough for a crowd, often enough for whatever forgets connections that are idle.
const HEARTBEAT_CALM: Duration = Duration::from_secs(30);
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait before connecting again, when it did not work.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Listener {
    /// No two of a process have the same.
    number: u64,
    pub(super) link: Reconnector,
    server: Arc<Server>,
    hears: ListenerScope,
    channels: Arc<Channels>,
    /// One word at a time, where the server may say the same unasked.
    speaking: tokio::sync::Mutex<()>,
    /// How often the server is still to confirm that a channel of a shard is no longer heard.
    leaving: Mutex<HashMap<String, usize>>,
    pushes: Mutex<Option<mpsc::UnboundedReceiver<PushInfo>>>,
    events: OnceLock<mpsc::UnboundedSender<Event>>,
    /// The lock of which the last message said that it is free, and who of ours is next. release.lua
    /// tells Redisson's waiters right behind it.
    opened: Mutex<Option<LockName>>,
    closed: CancellationToken,
}

/// What a listener is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListenerScope {
    /// Messages for all who listen, and word of watched leases.
    All,
    /// Messages in one shard of a cluster. On a connection of their own: a server that loses a slot
    /// says so unasked, and what is asked at that moment gets a wrong answer.
    Shard,
}

static LISTENERS: AtomicU64 = AtomicU64::new(0);

impl Listener {
    pub(super) fn new(
        server: Arc<Server>,
        hears: ListenerScope,
        channels: Arc<Channels>,
    ) -> Arc<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let greeting: Option<fn() -> Cmd> = match hears {
            ListenerScope::All => Some(tracking),
            ListenerScope::Shard => None,
        };
        Arc::new(Self {
            number: LISTENERS.fetch_add(1, Ordering::Relaxed),
            link: Reconnector::with_pushes(Arc::clone(&server), sender, greeting),
            server,
            hears,
            channels,
            speaking: tokio::sync::Mutex::default(),
            leaving: Mutex::default(),
            pushes: Mutex::new(Some(receiver)),
            events: OnceLock::new(),
            opened: Mutex::default(),
            closed: CancellationToken::new(),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Begins to pass on what the server says. Must be called on the engine.
    pub(super) fn start(self: &Arc<Self>, events: mpsc::UnboundedSender<Event>) {
        let pushes = lock(&self.pushes).take();
        if let Some(pushes) = pushes
            && self.events.set(events).is_ok()
        {
            let (listener, closed) = (Arc::clone(self), self.closed.clone());
            tokio::spawn(
                async move { closed.run_until_cancelled(pass_on(listener, pushes)).await },
            );
        }
    }

    /// Nobody needs this server any more.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) async fn listen(&self, name: &LockName, limit: Moment) -> Result<(), Failure> {
        let mut heard = Vec::new();
        for (channel, topic) in self.server.target.layout().channels(name) {
            // Known before the server confirms: its first message may come right behind.
            self.channels.know(&channel, name, topic, self.number);
            let confirmed = self.hear(&channel, limit).await;
            heard.push(channel);
            if confirmed.is_err() {
                self.leave(heard, limit).await;
                return confirmed;
            }
        }
        Ok(())
    }

    /// Takes back one use of each channel, the last one first.
    async fn leave(&self, channels: Vec<String>, limit: Moment) {
        for channel in channels.iter().rev() {
            if self.channels.forget(channel) == Some(self.number) {
                self.hear_no_more(channel, limit).await;
            }
        }
    }

    /// Asks the server for what is said on a channel.
    pub(super) async fn hear(&self, channel: &str, limit: Moment) -> Result<(), Failure> {
        let connection = self.link.connection(limit).await?;
        self.hear_on(&connection, channel, limit).await
    }

    async fn hear_on(
        &self,
        connection: &Connection,
        channel: &str,
        limit: Moment,
    ) -> Result<(), Failure> {
        if self.hears == ListenerScope::All {
            return connection.subscribe(channel, limit).await;
        }
        let _speaking = self.speaking.lock().await;
        connection.ssubscribe(channel, limit).await
    }

    /// Ends [`hear`](Listener::hear). If it fails, the connection is gone and the subscription with
    /// it, or the channel's slot is.
    pub(super) async fn hear_no_more(&self, channel: &str, limit: Moment) {
        let Some(connection) = self.link.live() else {
            return;
        };
        if self.hears == ListenerScope::All {
            let _ = connection.unsubscribe(channel, limit).await;
            return;
        }
        let _speaking = self.speaking.lock().await;
        *lock(&self.leaving).entry(channel.to_owned()).or_default() += 1;
        if connection.sunsubscribe(channel, limit).await.is_err() {
            self.is_left(channel);
        }
    }

    /// Whether the end of a channel was asked for, as often as it was.
    fn is_left(&self, channel: &str) -> bool {
        let mut leaving = lock(&self.leaving);
        let Some(count) = leaving.get_mut(channel) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            leaving.remove(channel);
        }
        true
    }

    /// Brings a new connection to where the old one was; false if that one failed too.
    async fn catch_up(&self, connection: &Connection) -> bool {
        lock(&self.leaving).clear();
        for channel in self.channels.heard_by(self.number) {
            let limit = self.server.clock.now() + HEARTBEAT_LIMIT;
            match self.hear_on(connection, &channel, limit).await {
                Err(failure) if failure.transient => return false,
                // One that is refused meanwhile must not cost the others their messages.
                Err(_) => self.channels.lost(&channel, self.number),
                Ok(()) => {}
            }
        }
        self.tell(Event::Missed);
        true
    }

    fn tell(&self, event: Event) {
        let missed = matches!(event, Event::Missed) && bug(Bug::MissedMessages);
        if let Some(events) = self.events.get().filter(|_| !missed) {
            // Nobody hears it when the client is closing.
            let _ = events.send(event);
        }
    }

    fn on_push(&self, push: PushInfo) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => self.on_message(push.data),
            PushKind::SUnsubscribe => self.on_unsubscription(push.data),
            PushKind::Invalidate => self.on_invalidation(push.data),
            _ => {}
        }
    }

    fn on_message(&self, data: Vec<::redis::Value>) {
        let mut parts = data.into_iter().map(Value::of);
        let (Some(channel), Some(message)) = (parts.next(), parts.next()) else {
            return;
        };
        let (Some(channel), Some(message)) = (channel.as_str(), message.as_str()) else {
            return;
        };
        let event = self.channels.event(channel, message);
        if let Some(event) = event
            && !self.is_echo(&event)
        {
            self.tell(event);
        }
    }

    /// A channel of the shard is no longer heard. Unless we asked for that, its slot has moved.
    fn on_unsubscription(&self, data: Vec<::redis::Value>) {
        let channel = data.into_iter().next().map(Value::of);
        let Some(channel) = channel.as_ref().and_then(Value::as_str) else {
            return;
        };
        if !self.is_left(channel) && !bug(Bug::SunsubscribeIgnored) {
            self.channels.lost(channel, self.number);
        }
    }

    /// Whether a message only repeats for Redisson's waiters what the one before it told ours: that
    /// the lock is free, and who of ours is next.
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

    /// The keys that changed; none when the server dropped everything it knew.
    fn on_invalidation(&self, data: Vec<::redis::Value>) {
        let keys = data.into_iter().next().map(Value::of);
        let Some(Value::Array(keys)) = keys else {
            return self.tell(Event::Missed);
        };
        for name in keys.iter().filter_map(Value::as_str) {
            if let Ok(name) = LockName::new(name) {
                self.tell(Event::Changed { name });
            }
        }
    }
}

/// OPTIN: only keys that are read after `CLIENT CACHING YES` are followed. NOLOOP: renewals of
/// this very connection are no news.
fn tracking() -> Cmd {
    let mut command = ::redis::cmd("CLIENT");
    command.arg(&["TRACKING", "ON", "OPTIN", "NOLOOP"]);
    command
}

/// Reads what the server says, and sees to it that the connection comes back. Ends with the
/// engine.
async fn pass_on(listener: Arc<Listener>, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
    // The connection that hears all it should. Whoever made the first one subscribed on it.
    let mut hears_all = None;
    let mut quiet = Duration::ZERO;
    loop {
        let push = tokio::select! {
            biased;
            push = tokio::time::timeout(HEARTBEAT, pushes.recv()) => push,
            () = given_up(&listener, hears_all) => {
                hears_all = Some(come_back(&listener).await);
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
            // It may be the end of an older connection: asking tells.
            Ok(Some(push)) if push.kind == PushKind::Disconnection => !answers(&listener).await,
            Ok(Some(push)) => {
                listener.on_push(push);
                false
            }
            Err(_) if quiet < HEARTBEAT_CALM && !listener.channels.is_attended() => false,
            Err(_) => {
                quiet = Duration::ZERO;
                let silent = hears_all.is_some() && !answers(&listener).await;
                if silent {
                    // It may not come back soon, and nobody else has noticed.
                    listener.tell(Event::Missed);
                }
                silent
            }
        };
        let present = listener.link.live().map(|connection| connection.id);
        let replaced = hears_all.is_some() && present != hears_all;
        hears_all = if lost || replaced {
            Some(come_back(&listener).await)
        } else {
            present
        };
    }
}

/// Waits until the connection that heard all is given up, by whomever: its master was deposed, or
/// it owed an answer for too long.
async fn given_up(listener: &Listener, hears_all: Option<u64>) {
    match listener.link.live() {
        Some(connection) => connection.given_up().await,
        None if hears_all.is_some() => {}
        None => std::future::pending().await,
    }
}

/// Whether there is a connection and it answers. One that does not is given up by asking.
async fn answers(listener: &Listener) -> bool {
    let Some(connection) = listener.link.live() else {
        return false;
    };
    let limit = listener.server.clock.now() + HEARTBEAT_LIMIT;
    connection
        .run(&::redis::cmd("PING"), limit, 0)
        .await
        .is_ok()
}

/// Connects until that works, and returns which connection hears everything again.
async fn come_back(listener: &Listener) -> u64 {
    let mut told = false;
    loop {
        let limit = listener.server.clock.now() + HEARTBEAT_LIMIT;
        if let Ok(connection) = listener.link.connection(limit).await
            && listener.catch_up(&connection).await
        {
            return connection.id;
        }
        if !told {
            // Those who sleep must learn that nobody will wake them.
            listener.tell(Event::Missed);
            told = true;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
