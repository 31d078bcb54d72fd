//! How each layout encodes a lock: scripts, messages, and what its key has.

use std::time::Duration;

use super::command::Pipeline;
use super::keys::Key;
use super::script::{self, LockScripts};
use super::told_offer::ToldOffer;
use super::value::Value;
use crate::layout::Layout;
use crate::lease::LeaseId;
use crate::name::{LockName, hash_tag};
use crate::store::{Event, LeaseSpec, NotHeld, OfferedGrant, WatchReply};

/// Prefix of a Redlock node's message, before the number of subscribers and the id of the released
/// lease.
const FREE: &str = "free ";
/// Prefix of a message to the waiter that holds back, before its lease id.
const OPEN: &str = "open ";
/// Prefix of a message with the milliseconds for which a lock is reserved for the next waiter:
/// shorter than usual, because that waiter may be dead.
const BRIEF: &str = "brief ";
/// Prefix of a message to a client that may keep a lease, before the lease id and the lock's name.
const ASK: &str = "ask ";
/// Redisson's message when a lock was released. It has other messages for other objects.
const UNLOCKED: &str = "0";

/// The kind of messages on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// Ours: whose turn it is.
    Turn,
    /// Redisson's: the lock is free.
    Free,
}

impl Layout {
    /// The scripts of a lock. With messages to one shard of a cluster, or to all subscribers.
    pub(super) fn scripts(self, sharded: bool) -> &'static LockScripts {
        match (self, sharded) {
            (Self::Native, false) => &script::NATIVE,
            (Self::Native, true) => &script::NATIVE_SHARDED,
            (Self::Redisson, false) => &script::REDISSON,
            (Self::Redisson, true) => &script::REDISSON_SHARDED,
        }
    }

    /// Whether the keys of this lock are in different slots. Only Redisson's rule does that: it
    /// takes a lone `{` for a hash tag.
    pub(super) fn splits(self, name: &LockName) -> bool {
        let name = name.as_str();
        self == Self::Redisson && name.contains('{') && hash_tag(name.as_bytes()).is_none()
    }

    /// Checks that the lease still exists, with commands that client tracking follows.
    pub(super) fn add_watch_commands(self, key: &Key, id: &LeaseId, pipeline: &mut Pipeline) {
        let key = key.as_str();
        match self {
            Self::Native => {
                pipeline.cmd("GET").arg(key);
            }
            Self::Redisson => {
                pipeline.cmd("HGET").arg(key).arg(id.as_str());
                pipeline.cmd("HKEYS").arg(key);
            }
        }
    }

    /// Reads the replies to [`add_watch_commands`](Layout::add_watch_commands); `Err` for an error
    /// that tells nothing about the lease.
    pub(super) fn read_watch_replies(
        self,
        lease: &LeaseSpec,
        answers: &[Value],
    ) -> Result<WatchReply, String> {
        let first = answers.first().unwrap_or(&Value::Nil);
        if let Value::Error(error) = first
            && !error.starts_with("WRONGTYPE")
        {
            return Err(error.clone());
        }
        let (is_held, holder) = match self {
            Self::Native => (first.lossy().as_deref() == Some(lease.id.as_str()), first),
            Self::Redisson => {
                let fields = answers.get(1).and_then(Value::as_array).unwrap_or_default();
                let others = |field: &&Value| field.as_str() != Some(lease.id.as_str());
                // Redisson's read-write lock has an extra field `mode`, which is not a holder.
                let other = fields.iter().rfind(others);
                let is_held = first.lossy().is_some() && other.is_none();
                (is_held, other.unwrap_or(&Value::Nil))
            }
        };
        Ok(if is_held {
            WatchReply::Held
        } else {
            WatchReply::NotHeld(NotHeld {
                taken_by: holder.lossy().map(LeaseId::new),
            })
        })
    }
}

impl Topic {
    /// What a message means, if anything; `to_grant` says what an offer is worth.
    pub(super) fn event(
        self,
        name: LockName,
        message: &str,
        to_grant: impl FnOnce(ToldOffer) -> Option<OfferedGrant>,
    ) -> Option<Event> {
        if let (Self::Turn, Some(freed)) = (self, message.strip_prefix(FREE)) {
            let (listeners, lease) = freed.split_once(' ')?;
            return Some(Event::Freed {
                name,
                lease: LeaseId::new(lease),
                listeners: listeners.parse().ok()?,
            });
        }
        if let (Self::Turn, Some(ms)) = (self, message.strip_prefix(BRIEF)) {
            let lasts = Duration::from_millis(ms.parse().ok()?);
            return Some(Event::ShortOffer { name, lasts });
        }
        if let (Self::Turn, Some(asked)) = (self, message.strip_prefix(ASK)) {
            let (lease, name) = asked.split_once(' ')?;
            return Some(Event::Asked {
                name: LockName::new(name).ok()?,
                lease: LeaseId::new(lease),
            });
        }
        match (self, message.strip_prefix(OPEN)) {
            (Self::Turn, Some(next)) => Some(Event::Opened {
                name,
                next: Some(LeaseId::new(next)),
            }),
            (Self::Turn, None) => {
                let (offered_to, told) = ToldOffer::parse(message);
                Some(Event::Offered {
                    name,
                    offered_to,
                    grant: told.and_then(to_grant),
                })
            }
            (Self::Free, _) if message == UNLOCKED => Some(Event::Opened { name, next: None }),
            (Self::Free, _) => None,
        }
    }
}

/// The message that asks for a lock.
pub(super) fn ask_message(name: &LockName, holder: &LeaseId) -> String {
    format!("{ASK}{holder} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lone_brace_splits_the_keys_of_a_lock_and_only_by_redissons_rule() {
        for (name, split) in [
            ("x{y", true),
            ("{", true),
            ("x", false),
            ("x{y}", false),
            ("}x{y}", false),
        ] {
            let name = LockName::new(name).unwrap();
            assert_eq!(Layout::Redisson.splits(&name), split, "{name}");
            assert!(!Layout::Native.splits(&name), "{name}");
        }
    }

    #[test]
    fn a_brief_offer_says_how_long_it_lasts() {
        let heard = |message| Topic::Turn.event(LockName::new("n").unwrap(), message, |_| None);
        let lasts = Duration::from_millis(500);
        assert!(
            matches!(heard("brief 500"), Some(Event::ShortOffer { lasts: told, .. }) if told == lasts)
        );
        for other in ["brief ", "brief x", "brief -1", "brief 1.5"] {
            assert!(heard(other).is_none(), "{other}");
        }
    }

    #[test]
    fn only_the_message_of_a_lock_says_that_it_is_free() {
        let heard = |message| Topic::Free.event(LockName::new("n").unwrap(), message, |_| None);
        assert!(matches!(heard("0"), Some(Event::Opened { next: None, .. })));
        for other in ["1", "00", "-1", "", "x", "open 0"] {
            assert!(heard(other).is_none(), "{other}");
        }
    }
}
