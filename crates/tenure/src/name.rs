//! The name of a lock, and the names of its related keys in Redis.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// The longest name, in bytes. Redis accepts keys up to 512 MiB, but such a key blocks the server
/// for seconds and is unreadable in a log.
pub const NAME_BYTES_MAX: usize = 512;

/// The longest fire time of a schedule, in bytes.
const FIRE_TIME_BYTES_MAX: usize = 128;

/// Keys with this prefix belong to Tenure itself.
const RESERVED_PREFIX: &str = "tenure:";

/// The name of a lock: 1 to 512 bytes of UTF-8.
///
/// Names that begin with `tenure:` are refused, because those are Tenure's own keys. So are names
/// that contain a `}` but no hash tag, because the related keys of such a lock could not share its
/// slot in a Redis Cluster. The rules are the same for every store, so a name that works in a test
/// works in production.
///
/// ```
/// use tenure::LockName;
///
/// assert!(LockName::new("order:1001").is_ok());
/// assert!(LockName::new("{tenant-7}:report").is_ok());
/// assert!(LockName::new("").is_err());
/// assert!(LockName::new("half}tag").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Validates `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), naming the rule that was broken.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        check(name)?;
        Ok(Self(name.into()))
    }

    /// The same for a name that is shared already.
    pub(crate) fn from_shared(name: &Arc<str>) -> Result<Self, Error> {
        check(name)?;
        Ok(Self(Arc::clone(name)))
    }

    /// The name, as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name under which a client hears who wants the leases that it keeps. No lock: only its wake
    /// channel is used.
    pub(crate) fn of_keeper(client: impl fmt::Display) -> Self {
        Self(format!("keeper:{client}").into())
    }

    /// The name of the lock of a run: of one fire time of a schedule.
    ///
    /// # Errors
    ///
    /// As for [`new`](LockName::new), and
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if the fire time could not be told
    /// from the name, or not be read in a listing.
    pub(crate) fn of_run(schedule: &str, fire_time: &str) -> Result<Self, Error> {
        check(schedule)?;
        let is_allowed = |it: char| !it.is_control() && !['@', '{', '}'].contains(&it);
        if fire_time.is_empty()
            || fire_time.len() > FIRE_TIME_BYTES_MAX
            || !fire_time.chars().all(is_allowed)
        {
            let shown: String = fire_time.chars().take(64).collect();
            return Err(Error::invalid_setting(
                "the fire time",
                shown.escape_debug(),
                "use 1 to 128 bytes without `@`, `{`, `}` and control characters",
            ));
        }
        Self::new(format!("{schedule}@{fire_time}"))
    }

    /// The key beside the lock of a run, with what is known of such runs.
    pub(crate) fn run_record_key(&self) -> String {
        self.neighbour("once")
    }

    /// The key beside a latch, with the parties that have arrived.
    pub(crate) fn arrived_key(&self) -> String {
        self.neighbour("arrived")
    }

    /// The keys of the queue: its waiters in order, and when each was last alive.
    pub(crate) fn queue_keys(&self) -> [String; 2] {
        ["queue", "alive"].map(|role| self.neighbour(role))
    }

    /// The keys of a semaphore beside its own: leases, slots, slots that were given back, and what
    /// waiters want.
    pub(crate) fn permit_keys(&self) -> [String; 4] {
        ["permits", "slots", "unused", "wanted"].map(|role| self.neighbour(role))
    }

    /// A key of Tenure's in the same slot as the lock itself.
    pub(crate) fn neighbour(&self, role: &str) -> String {
        self.neighbour_parts(role).concat()
    }

    /// The lock whose [`neighbour`](LockName::neighbour) this key is.
    pub(crate) fn of_neighbour(key: &str, role: &str) -> Option<Self> {
        let rest = key.strip_prefix(RESERVED_PREFIX)?.strip_prefix(role)?;
        let rest = rest.strip_prefix('=').unwrap_or(rest).strip_prefix(':')?;
        let bare = rest.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let names = [Some(rest), bare].into_iter().flatten();
        let mut names = names.filter_map(|name| Self::new(name).ok());
        names.find(|name| name.neighbour(role) == key)
    }

    /// The parts of that key, for those who write it elsewhere.
    pub(crate) fn neighbour_parts<'a>(&'a self, role: &'a str) -> [&'a str; 5] {
        let tag = hash_tag(self.0.as_bytes());
        // `{n}` must not share its related keys with `n`.
        let is_all_tag = tag.is_some_and(|tag| tag.len() + 2 == self.0.len());
        let (before, after) = match tag {
            Some(_) if is_all_tag => ("=:", ""),
            Some(_) => (":", ""),
            None => (":{", "}"),
        };
        ["tenure:", role, before, &self.0, after]
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Whether this can be the name of a lock.
fn check(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid_name(name, "it is empty: use 1 to 512 bytes"));
    }
    if name.len() > NAME_BYTES_MAX {
        let cause = format!(
            "it has {} bytes and at most {NAME_BYTES_MAX} are allowed: shorten or hash it",
            name.len()
        );
        return Err(Error::invalid_name(name, &cause));
    }
    if name.starts_with(RESERVED_PREFIX) {
        return Err(Error::invalid_name(
            name,
            "names with the prefix `tenure:` are Tenure's own keys: choose another prefix",
        ));
    }
    if name.contains('}') && hash_tag(name.as_bytes()).is_none() {
        return Err(Error::invalid_name(
            name,
            "it contains a `}` but no hash tag, so its keys could not share a slot: \
                 write `{tag}` or remove the `}`",
        ));
    }
    Ok(())
}

/// The part of `key` that Redis Cluster hashes, if it is not the whole key: the text between the
/// first `{` and the next `}`, if not empty.
pub(crate) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let after = &key[open + 1..];
    let end = after.iter().position(|byte| *byte == b'}')?;
    (end > 0).then_some(&after[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text that determines the slot of a key.
    fn hashed(key: &str) -> &[u8] {
        hash_tag(key.as_bytes()).unwrap_or(key.as_bytes())
    }

    proptest! {
        /// H27: for any name, its related keys hash like the lock itself, and two names never share
        /// a related key.
        #[test]
        fn h27_neighbours_share_the_slot_and_are_injective(a in "[a{}: é]{1,8}", b in "[a{}: é]{1,8}") {
            let (a, b) = (LockName::new(&a), LockName::new(&b));
            if let Ok(a) = &a {
                let fence = a.neighbour("fence");
                prop_assert_eq!(hashed(&fence), hashed(a.as_str()));
                prop_assert_eq!(LockName::of_neighbour(&fence, "fence"), Some(a.clone()));
                prop_assert_eq!(LockName::of_neighbour(&fence, "fenc"), None);
            }
            if let (Ok(a), Ok(b)) = (&a, &b)
                && a != b
            {
                prop_assert_ne!(a.neighbour("fence"), b.neighbour("fence"));
            }
        }
    }

    #[test]
    fn h27_a_name_that_is_all_tag_has_neighbours_of_its_own() {
        let neighbour = |name: &str| LockName::new(name).unwrap().neighbour("fence");
        assert_eq!(neighbour("n"), "tenure:fence:{n}");
        assert_eq!(neighbour("{n}"), "tenure:fence=:{n}");
        assert_eq!(neighbour("{n}:"), "tenure:fence:{n}:");
    }

    #[test]
    fn h26_names_have_a_longest_length() {
        assert!(LockName::new("n".repeat(NAME_BYTES_MAX)).is_ok());
        let error = LockName::new("n".repeat(NAME_BYTES_MAX + 1)).unwrap_err();
        assert!(error.to_string().contains("513 bytes"), "{error}");
    }

    #[test]
    fn a_run_has_the_name_of_its_schedule_and_its_fire_time() {
        let name = |schedule, fire_time| LockName::of_run(schedule, fire_time);
        let plain = name("nightly", "2026-03-01T03:00Z").unwrap();
        assert_eq!(plain.as_str(), "nightly@2026-03-01T03:00Z");
        assert_eq!(
            plain.run_record_key(),
            "tenure:once:{nightly@2026-03-01T03:00Z}"
        );
        // One schedule and its fire time cannot be taken for another.
        assert_eq!(name("a@b", "c").unwrap().as_str(), "a@b@c");
        let error = name("a", "b@c").unwrap_err().to_string();
        assert!(error.contains("`b@c` as the fire time"), "{error}");
        let long = "x".repeat(129);
        for fire_time in ["", "a\nb", "{a}", &long] {
            let error = name("nightly", fire_time).unwrap_err().to_string();
            assert!(error.contains("1 to 128 bytes"), "{error}");
        }
        assert!(name("", "c").unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn refused_names_say_which_rule_they_broke() {
        for (name, cause) in [
            ("", "empty"),
            ("a}b", "hash tag"),
            ("{}", "hash tag"),
            ("tenure:fence:{x}", "Tenure's own keys"),
        ] {
            let error = LockName::new(name).unwrap_err();
            assert!(error.to_string().contains(cause), "{name}: {error}");
        }
    }
}
