//! The prefix of everything that a client writes: clients with different prefixes share nothing, and
//! an ACL can keep them apart.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::name::{LockName, NAME_BYTES_MAX, RESERVED_PREFIX};

/// What the keys and channels of a client begin with. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix(Option<Arc<str>>);

impl Prefix {
    /// # Errors
    ///
    /// The rule that it breaks.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        if text.len() >= NAME_BYTES_MAX {
            return Err("it counts towards the 512 bytes of a name, so use at most 511 bytes");
        }
        if text.contains(['{', '}']) {
            return Err(
                "it contains a brace, which would decide the slot of every lock in a \
                        Cluster: use for example `team-a:`",
            );
        }
        if text.contains(|it: char| it.is_whitespace() || it.is_control()) {
            return Err(
                "it contains a space or a control character, which no ACL pattern may have",
            );
        }
        if text.contains(RESERVED_PREFIX) {
            return Err("`tenure:` follows the prefix in Tenure's own keys: choose another one");
        }
        Ok(Self(Some(text.into())))
    }

    /// The prefix that URLs and builder set: at most one, because clients with different ones would
    /// not exclude each other.
    ///
    /// # Errors
    ///
    /// If they set different ones.
    pub(crate) fn common(said: impl IntoIterator<Item = Self>) -> Result<Self> {
        let mut said = said.into_iter();
        let first = said.next().unwrap_or_default();
        let Some(other) = said.find(|other| *other != first) else {
            return Ok(first);
        };
        let cause = format!(
            "another URL or the builder sets `{first}`, and clients with different prefixes do not \
             exclude each other: make all the same"
        );
        Err(Error::invalid_setting("the prefix", other, &cause))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether a lock may have this name: with the prefix, its key must be allowed too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    pub(crate) fn check_name(&self, name: &LockName) -> Result<()> {
        let Some(prefix) = &self.0 else {
            return Ok(());
        };
        let (prefix, name) = (&**prefix, name.as_str());
        let bytes = prefix.len() + name.len();
        if bytes > NAME_BYTES_MAX {
            let cause = format!(
                "with the prefix `{prefix}` it has {bytes} bytes and at most {NAME_BYTES_MAX} are \
                 allowed: shorten or hash it"
            );
            return Err(Error::invalid_name(name, &cause));
        }
        // Only a prefix that is shorter than this can end within it.
        if prefix.len() < RESERVED_PREFIX.len()
            && [prefix, name].concat().starts_with(RESERVED_PREFIX)
        {
            let cause = format!(
                "with the prefix `{prefix}` it begins with `tenure:`, as Tenure's own keys do: \
                 choose another name or prefix"
            );
            return Err(Error::invalid_name(name, &cause));
        }
        Ok(())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_prefixes_say_which_rule_they_broke() {
        for (text, cause) in [
            ("a{b}", "brace"),
            ("}", "brace"),
            ("team a:", "space"),
            ("a\n", "control character"),
            ("tenure:", "own keys"),
            ("x:tenure:y", "own keys"),
        ] {
            let refused = Prefix::parse(text).unwrap_err();
            assert!(refused.contains(cause), "{text}: {refused}");
        }
        assert!(Prefix::parse(&"p".repeat(512)).is_err());
        for text in ["", "team-a:", "é/", "*", "tenure", "p"] {
            assert_eq!(Prefix::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_name_is_checked_together_with_its_prefix() {
        let check = |prefix: &str, name: &str| {
            let prefix = Prefix::parse(prefix).unwrap();
            prefix.check_name(&LockName::new(name).unwrap())
        };
        assert!(check("team-a:", &"n".repeat(505)).is_ok());
        let error = check("team-a:", &"n".repeat(506)).unwrap_err().to_string();
        assert!(
            error.contains("513 bytes") && error.contains("team-a:"),
            "{error}"
        );
        let error = check("ten", "ure:fences").unwrap_err().to_string();
        assert!(error.contains("begins with `tenure:`"), "{error}");
        assert!(check("ten", "ures").is_ok());
    }
}
