//! The connection that the server speaks on unasked: wake-ups for waiters, and word of watched
//! leases that changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ::redis::{Cmd, PushInfo, PushKind};
use tokio::sync::mpsc;

use super::layout::Topic;
use super::link::{Connection, Link};
use super::server::Server;
use super::value::Value;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Event, Failure};

/// How often a listener asks whether the connection is still there. A half-open one says nothing.
const HEARTBEAT: Duration = Duration::from_secs(3);
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait before connecting again, when it did not work.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Listener {
    pub(super) link: Link,
    server: Arc<Server>,
    /// Channels that somebody waits on, by channel.
    channels: Mutex<HashMap<String, Channel>>,
    pushes: Mutex<Option<mpsc::UnboundedReceiver<PushInfo>>>,
    events: OnceLock<mpsc::UnboundedSender<Event>>,
    /// The lock of which the last message said that it is free, and who of ours is next. release.lua
    /// tells Redisson's waiters right behind it.
    opened: Mutex<Option<LockName>>,
}

/// A channel, and how many lines of waiters need it.
struct Channel {
    name: LockName,
    topic: Topic,
    uses: usize,
}

impl Listener {
    pub(super) fn new(server: Arc<Server>) -> Arc<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let link = Link::with_pushes(Arc::clone(&server), sender, tracking);
        Arc::new(Self {
            link,
            server,
            channels: Mutex::default(),
            pushes: Mutex::new(Some(receiver)),
            events: OnceLock::new(),
            opened: Mutex::default(),
        })
    }

    /// Begins to pass on what the server says. Must be called on the engine.
    pub(super) fn start(self: &Arc<Self>, events: mpsc::UnboundedSender<Event>) {
        let pushes = lock(&self.pushes).take();
        if let Some(pushes) = pushes
            && self.events.set(events).is_ok()
        {
            tokio::spawn(pass_on(Arc::clone(self), pushes));
        }
    }

    pub(super) async fn listen(&self, name: &LockName, limit: Moment) -> Result<(), Failure> {
        let connection = self.link.connection(limit).await?;
        let mut heard = Vec::new();
        for (channel, topic) in self.server.target.layout().channels(name) {
            // Known before the server confirms: its first message may come right behind.
            self.know(&channel, name, topic);
            let confirmed = connection.subscribe(&channel, limit).await;
            heard.push(channel);
            if confirmed.is_err() {
                self.leave(heard, limit).await;
                return confirmed;
            }
        }
        Ok(())
    }

    pub(super) async fn unlisten(&self, name: &LockName, limit: Moment) {
        let channels = self.server.target.layout().channels(name).into_iter();
        self.leave(channels.map(|(channel, _)| channel).collect(), limit)
            .await;
    }

    /// Takes back one use of each channel, the last one first.
    async fn leave(&self, channels: Vec<String>, limit: Moment) {
        for channel in channels.iter().rev() {
            if self.forget(channel)
                && let Some(connection) = self.link.live()
            {
                // If it fails, the connection is gone and the subscription with it.
                let _ = connection.unsubscribe(channel, limit).await;
            }
        }
    }

    /// Adds one use of a channel.
    fn know(&self, channel: &str, name: &LockName, topic: Topic) {
        let mut channels = lock(&self.channels);
        let known = channels.entry(channel.to_owned());
        let known = known.or_insert_with(|| Channel {
            name: name.clone(),
            topic,
            uses: 0,
        });
        known.uses += 1;
    }

    /// Takes back one use of a channel; true if that was the last.
    fn forget(&self, channel: &str) -> bool {
        let mut channels = lock(&self.channels);
        let Some(known) = channels.get_mut(channel) else {
            return false;
        };
        known.uses -= 1;
        let last = known.uses == 0;
        if last {
            channels.remove(channel);
        }
        last
    }

    /// Brings a new connection to where the old one was; false if that one failed too.
    async fn catch_up(&self, connection: &Connection) -> bool {
        let channels: Vec<String> = lock(&self.channels).keys().cloned().collect();
        for channel in channels {
            let limit = self.server.clock.now() + HEARTBEAT_LIMIT;
            match connection.subscribe(&channel, limit).await {
                Err(failure) if failure.transient => return false,
                // One that is refused meanwhile must not cost the others their messages.
                Ok(()) | Err(_) => {}
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
            PushKind::Message => self.on_message(push.data),
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
        let known = lock(&self.channels)
            .get(channel)
            .map(|known| (known.topic, known.name.clone()));
        let event = known.and_then(|(topic, name)| topic.event(name, message));
        if let Some(event) = event
            && !self.is_echo(&event)
        {
            self.tell(event);
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
    loop {
        let push = tokio::select! {
            biased;
            push = tokio::time::timeout(HEARTBEAT, pushes.recv()) => push,
            () = given_up(&listener, hears_all) => {
                hears_all = Some(come_back(&listener).await);
                continue;
            }
        };
        let lost = match push {
            Ok(None) => return,
            // It may be the end of an older connection: asking tells.
            Ok(Some(push)) if push.kind == PushKind::Disconnection => !answers(&listener).await,
            Ok(Some(push)) => {
                listener.on_push(push);
                false
            }
            Err(_) => {
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
