//! The name of a lock, and the keys that stand beside it in Redis.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// The longest name, in bytes. Redis would take 512 MiB; one such key blocks the server for
/// seconds, and no one can read it in a log.
pub const NAME_BYTES_MAX: usize = 512;

/// Keys that begin like this belong to Tenure itself.
const RESERVED_PREFIX: &str = "tenure:";

/// The name of a lock: 1 to 512 bytes of UTF-8.
///
/// Refused are names that begin with `tenure:` (those are Tenure's own keys) and names that hold
/// a `}` but no hash tag, because the keys beside such a lock could not share its slot in a
/// Redis Cluster. The rule is the same for every store, so a name that works in a test works in
/// production.
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
    /// Checks `name` and keeps it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), saying which rule was broken.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::invalid_name(
                name,
                "it is empty: a lock needs a name of 1 to 512 bytes",
            ));
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
                "names beginning with `tenure:` are Tenure's own keys: choose another prefix",
            ));
        }
        if name.contains('}') && hash_tag(name.as_bytes()).is_none() {
            return Err(Error::invalid_name(
                name,
                "it holds a `}` but no hash tag, so its keys could not share a slot: \
                 write `{tag}` or leave the `}` out",
            ));
        }
        Ok(Self(name.into()))
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key of Tenure's that lives in the same slot as the lock itself.
    pub(crate) fn neighbour(&self, role: &str) -> String {
        let tag = hash_tag(self.0.as_bytes());
        // `{n}` must not share its neighbours with `n`.
        let is_all_tag = tag.is_some_and(|tag| tag.len() + 2 == self.0.len());
        if is_all_tag {
            format!("tenure:{role}=:{}", self.0)
        } else if tag.is_some() {
            format!("tenure:{role}:{}", self.0)
        } else {
            format!("tenure:{role}:{{{}}}", self.0)
        }
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

/// The part of `key` that Redis Cluster hashes, if it is not the whole key: what stands between
/// the first `{` and the next `}`, when that is not empty.
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

    /// What decides the slot of a key.
    fn hashed(key: &str) -> &[u8] {
        hash_tag(key.as_bytes()).unwrap_or(key.as_bytes())
    }

    proptest! {
        /// H27: whatever the name, its neighbours hash like the lock itself, and two names never
        /// share a neighbour.
        #[test]
        fn h27_neighbours_share_the_slot_and_are_injective(a in "[a{}: é]{1,8}", b in "[a{}: é]{1,8}") {
            let (a, b) = (LockName::new(&a), LockName::new(&b));
            if let Ok(a) = &a {
                let fence = a.neighbour("fence");
                prop_assert_eq!(hashed(&fence), hashed(a.as_str()));
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
