//! The channels that somebody waits on, and who hears them.
//!
//! One list for all nodes of a store: in a cluster a channel is heard where its lock is, and that
//! changes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::layout::Topic;
use crate::name::LockName;
use crate::store::{Event, NeedsMessages};

#[derive(Default)]
pub(super) struct Channels {
    known: Mutex<HashMap<String, Channel>>,
    /// A channel may be heard by nobody, or by somebody who is no longer told.
    astray: Notify,
    /// Whether somebody must learn soon that nothing is heard any more.
    attention: OnceLock<NeedsMessages>,
}

/// A channel, and how many lines of waiters need it.
struct Channel {
    name: LockName,
    topic: Topic,
    uses: usize,
    /// The number of the listener.
    heard_by: Option<u64>,
}

/// Nobody waits on the channel any more.
pub(super) struct Unneeded;

impl Channels {
    /// Takes note whom to ask whether somebody attends.
    pub(super) fn attend(&self, attention: NeedsMessages) {
        // A store begins once.
        let _ = self.attention.set(attention);
    }

    /// Whether somebody must learn soon that nothing is heard any more. Yes, as long as nobody said no.
    pub(super) fn is_attended(&self) -> bool {
        self.attention.get().is_none_or(|attention| attention())
    }

    /// Adds one use of a channel that this listener is about to hear.
    pub(super) fn know(&self, channel: &str, name: &LockName, topic: Topic, listener: u64) {
        let mut known = self.known();
        let channel = known.entry(channel.to_owned()).or_insert_with(|| Channel {
            name: name.clone(),
            topic,
            uses: 0,
            heard_by: None,
        });
        channel.uses += 1;
        channel.heard_by = Some(listener);
    }

    /// Takes back one use of a channel. If that was the last, answers who hears it still.
    pub(super) fn forget(&self, channel: &str) -> Option<u64> {
        let mut known = self.known();
        let uses = &mut known.get_mut(channel)?.uses;
        *uses -= 1;
        if *uses > 0 {
            return None;
        }
        known.remove(channel)?.heard_by
    }

    /// What a message on a channel means, if anything.
    pub(super) fn event(&self, channel: &str, message: &str) -> Option<Event> {
        let (topic, name) = {
            let known = self.known();
            let channel = known.get(channel)?;
            (channel.topic, channel.name.clone())
        };
        topic.event(name, message)
    }

    /// What this listener hears.
    pub(super) fn heard_by(&self, listener: u64) -> Vec<String> {
        self.not_right(|_, heard_by| heard_by != Some(listener))
    }

    /// The channels of which it is not right who hears them.
    pub(super) fn not_right(&self, right: impl Fn(&str, Option<u64>) -> bool) -> Vec<String> {
        let known = self.known();
        let wrong = known
            .iter()
            .filter(|(channel, it)| !right(channel, it.heard_by));
        wrong.map(|(channel, _)| channel.clone()).collect()
    }

    /// Takes note that a listener hears a channel no more.
    pub(super) fn lost(&self, channel: &str, listener: u64) {
        self.not_heard(channel, listener);
        self.look();
    }

    /// The same, of a listener that could not hear it.
    pub(super) fn not_heard(&self, channel: &str, listener: u64) {
        if let Some(channel) = self.known().get_mut(channel)
            && channel.heard_by == Some(listener)
        {
            channel.heard_by = None;
        }
    }

    /// Takes note that a listener hears a channel from now on. Answers who heard it before.
    pub(super) fn heard(&self, channel: &str, listener: u64) -> Result<Option<u64>, Unneeded> {
        let mut known = self.known();
        let channel = known.get_mut(channel).ok_or(Unneeded)?;
        Ok(channel.heard_by.replace(listener))
    }

    /// The lock that a channel is about; `None` if nobody needs it any more.
    pub(super) fn name_of(&self, channel: &str) -> Option<LockName> {
        let known = self.known();
        known.get(channel).map(|channel| channel.name.clone())
    }

    /// Who hears what may not be right any more.
    pub(super) fn look(&self) {
        self.astray.notify_one();
    }

    /// Waits for [`look`](Channels::look).
    pub(super) async fn astray(&self) {
        self.astray.notified().await;
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
