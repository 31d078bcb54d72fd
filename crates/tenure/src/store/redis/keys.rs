//! The keys and channels of a store, each with the client's prefix.
//!
//! Nothing else makes a [`Key`], so that no script gets one without its prefix.

use super::layout::Topic;
use crate::layout::Layout;
use crate::lease::ClientId;
use crate::name::{LockName, RESERVED_PREFIX, hash_tag};
use crate::prefix::Prefix;
use crate::seeded::{Bug, bug};
use crate::url::RedisTarget;

/// How the keys of a store are named.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    pub(super) layout: Layout,
    pub(super) prefix: Prefix,
}

/// A key in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Keys {
    /// As the URL of a server says.
    pub(super) fn of(target: &RedisTarget) -> Self {
        Self {
            layout: target.layout(),
            prefix: target.prefix.clone().unwrap_or_default(),
        }
    }

    /// The key of a lock itself.
    pub(super) fn lock(&self, name: &LockName) -> Key {
        Key(self.lock_parts(name).concat())
    }

    /// The parts of that key, for those who write it elsewhere.
    pub(super) fn lock_parts<'a>(&'a self, name: &'a LockName) -> [&'a str; 2] {
        [self.prefix.as_str(), name.as_str()]
    }

    /// The lock with this key.
    pub(super) fn name_of(&self, key: &str) -> Option<LockName> {
        LockName::new(key.strip_prefix(self.prefix.as_str())?).ok()
    }

    /// The keys of the queue: its waiters in order, and when each was last alive.
    pub(super) fn queue(&self, name: &LockName) -> [Key; 2] {
        ["queue", "alive"].map(|role| self.neighbour(name, role))
    }

    /// The keys of a semaphore beside its own: leases, slots, slots that were given back, and what
    /// waiters want.
    pub(super) fn permits(&self, name: &LockName) -> [Key; 4] {
        ["permits", "slots", "unused", "wanted"].map(|role| self.neighbour(name, role))
    }

    /// A key of Tenure's in the same slot as the lock itself.
    pub(super) fn neighbour(&self, name: &LockName, role: &str) -> Key {
        Key(self.neighbour_parts(name, role).concat())
    }

    /// The lock whose [`neighbour`](Keys::neighbour) this key is.
    pub(super) fn name_of_neighbour(&self, key: &str, role: &str) -> Option<LockName> {
        let own = key.strip_prefix(self.prefix.as_str())?;
        let rest = own.strip_prefix(RESERVED_PREFIX)?.strip_prefix(role)?;
        let rest = rest.strip_prefix('=').unwrap_or(rest).strip_prefix(':')?;
        let bare = rest.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let names = [Some(rest), bare].into_iter().flatten();
        let mut names = names.filter_map(|key| self.name_of(key));
        names.find(|name| self.neighbour(name, role).as_str() == key)
    }

    /// The parts of that key, for those who write it elsewhere.
    pub(super) fn neighbour_parts<'a>(&'a self, name: &'a LockName, role: &'a str) -> [&'a str; 7] {
        let prefix = self.prefix.as_str();
        let tag = hash_tag(name.as_str().as_bytes());
        // `{n}` must not share its related keys with `n`. With a prefix it cannot.
        let is_all_tag = tag.is_some_and(|tag| tag.len() + 2 == prefix.len() + name.as_str().len());
        let (before, after) = match tag {
            Some(_) if is_all_tag => ("=:", ""),
            Some(_) => (":", ""),
            None => (":{", "}"),
        };
        let first = if bug(Bug::NeighbourWithoutPrefix) && role == "alive" {
            ""
        } else {
            prefix
        };
        [
            first,
            RESERVED_PREFIX,
            role,
            before,
            prefix,
            name.as_str(),
            after,
        ]
    }

    /// The key of a lock's own fence counter.
    pub(super) fn counter(&self, name: &LockName) -> Key {
        match self.layout {
            Layout::Native => self.neighbour(name, "fences"),
            Layout::Redisson => self.of_redisson("redisson_lock_token", name),
        }
    }

    /// The key of the fence that a node of a Redlock stores.
    pub(super) fn fence(&self, name: &LockName) -> Key {
        match self.layout {
            Layout::Native => self.neighbour(name, "fence"),
            Layout::Redisson => self.of_redisson("redisson_lock_token", name),
        }
    }

    /// The fence counter of all locks of a database, where one call may have keys in several slots.
    pub(super) fn shared_counter(&self) -> Key {
        Key(self.shared_counter_parts().concat())
    }

    /// The parts of that key, for those who write it elsewhere.
    pub(super) fn shared_counter_parts(&self) -> [&str; 2] {
        [self.prefix.as_str(), "tenure:fences"]
    }

    /// The channels for waiters of a lock. Ours comes first: release.lua takes a subscriber of
    /// Redisson's channel alone for a Redisson client.
    pub(super) fn channels(&self, name: &LockName) -> Vec<(String, Topic)> {
        let mut channels = vec![(self.wake_channel(name), Topic::Turn)];
        if self.layout == Layout::Redisson {
            channels.push((self.redisson_channel(name), Topic::Free));
        }
        channels
    }

    /// The channel of Tenure's waiters. Scripts make it from the key of the queue.
    pub(super) fn wake_channel(&self, name: &LockName) -> String {
        self.neighbour(name, "wake").0
    }

    pub(super) fn redisson_channel(&self, name: &LockName) -> String {
        self.of_redisson("redisson_lock__channel", name).0
    }

    /// The index of client records.
    pub(super) fn clients(&self) -> Key {
        self.own("clients")
    }

    /// The record of a client.
    pub(super) fn client(&self, client: ClientId) -> Key {
        self.own(&format!("client:{client}"))
    }

    /// Since when a server has been the primary; in a cluster, with the tag of one of its slots.
    pub(super) fn reign(&self, tag: Option<u32>) -> Key {
        match tag {
            None => self.own("reign"),
            Some(tag) => self.own(&format!("reign:{{{tag}}}")),
        }
    }

    /// Since when each node of a Redlock has been running, by run id.
    pub(super) fn nodes(&self) -> Key {
        self.own("nodes")
    }

    /// The longest ttl of any lease of a Redlock, in milliseconds, if that is longer than usual.
    pub(super) fn longest_ttl(&self) -> Key {
        self.own("longest-ttl")
    }

    /// A key of Tenure's that belongs to no lock.
    fn own(&self, role: &str) -> Key {
        Key([self.prefix.as_str(), RESERVED_PREFIX, role].concat())
    }

    /// By Redisson's rule, which looks for a `{` where ours looks for a whole hash tag. Its `NameMapper`
    /// puts the prefix before the name, and so not before this.
    fn of_redisson(&self, role: &str, name: &LockName) -> Key {
        let prefix = &self.prefix;
        Key(if name.as_str().contains('{') {
            format!("{role}:{prefix}{name}")
        } else {
            format!("{role}:{{{prefix}{name}}}")
        })
    }
}

impl Key {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(layout: Layout, prefix: &str) -> Keys {
        let prefix = Prefix::parse(prefix).unwrap();
        Keys { layout, prefix }
    }

    /// The text that determines the slot of a key.
    fn hashed(key: &Key) -> &[u8] {
        hash_tag(key.as_ref()).unwrap_or(key.as_ref())
    }

    proptest! {
        /// H27: for any name, its related keys hash like the lock itself, and two names never share
        /// a related key.
        #[test]
        fn h27_neighbours_share_the_slot_and_are_injective(
            a in "[a{}: é]{1,8}", b in "[a{}: é]{1,8}", prefix in "[a:=é]{0,4}",
        ) {
            let keys = keys(Layout::Native, &prefix);
            let (a, b) = (LockName::new(&a), LockName::new(&b));
            if let Ok(a) = &a {
                let fence = keys.neighbour(a, "fence");
                prop_assert!(fence.as_str().starts_with(&prefix));
                let lock = keys.lock(a);
                prop_assert_eq!(hashed(&fence), hashed(&lock));
                prop_assert_eq!(keys.name_of_neighbour(fence.as_str(), "fence"), Some(a.clone()));
                prop_assert_eq!(keys.name_of_neighbour(fence.as_str(), "fenc"), None);
                prop_assert_eq!(keys.name_of(lock.as_str()), Some(a.clone()));
            }
            if let (Ok(a), Ok(b)) = (&a, &b)
                && a != b
            {
                prop_assert_ne!(keys.neighbour(a, "fence"), keys.neighbour(b, "fence"));
            }
        }
    }

    #[test]
    fn h27_a_name_that_is_all_tag_has_neighbours_of_its_own() {
        let keys = keys(Layout::Native, "");
        let neighbour = |name: &str| keys.neighbour(&LockName::new(name).unwrap(), "fence").0;
        assert_eq!(neighbour("n"), "tenure:fence:{n}");
        assert_eq!(neighbour("{n}"), "tenure:fence=:{n}");
        assert_eq!(neighbour("{n}:"), "tenure:fence:{n}:");
    }

    #[test]
    fn a_prefix_comes_first_and_belongs_to_the_name() {
        let keys = keys(Layout::Native, "t:");
        let name = |name: &str| LockName::new(name).unwrap();
        assert_eq!(keys.lock(&name("n")).0, "t:n");
        assert_eq!(keys.neighbour(&name("n"), "meta").0, "t:tenure:meta:{t:n}");
        assert_eq!(
            keys.neighbour(&name("{n}"), "meta").0,
            "t:tenure:meta:t:{n}"
        );
        assert_eq!(keys.wake_channel(&name("n")), "t:tenure:wake:{t:n}");
        assert_eq!(keys.shared_counter().0, "t:tenure:fences");
        assert_eq!(keys.reign(Some(7)).0, "t:tenure:reign:{7}");
        assert_eq!(keys.name_of("n"), None);
    }

    #[test]
    fn redissons_keys_are_named_by_redissons_rule() {
        for (prefix, name, key) in [
            ("", "orders", "redisson_lock_token:{orders}"),
            ("", "a{b}c", "redisson_lock_token:a{b}c"),
            ("", "{x}", "redisson_lock_token:{x}"),
            ("", "a name: é", "redisson_lock_token:{a name: é}"),
            ("", "x{y", "redisson_lock_token:x{y"),
            ("t:", "orders", "redisson_lock_token:{t:orders}"),
            ("t:", "a{b}c", "redisson_lock_token:t:a{b}c"),
        ] {
            let (keys, name) = (keys(Layout::Redisson, prefix), LockName::new(name).unwrap());
            assert_eq!(keys.fence(&name).0, key);
            assert_eq!(keys.counter(&name).0, key);
        }
    }
}
