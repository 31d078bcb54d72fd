//! Arguments of a script, encoded as they are sent.

use std::fmt;

use super::command::append_bulk;

/// Arguments for [`Client::script_with`](super::Client::script_with).
///
/// They are encoded when they are added, into one buffer. So a caller that joins the arguments of
/// many requests into one call copies bytes, and allocates nothing for each of them.
///
/// ```
/// use tenure::redis::Arguments;
///
/// let mut one = Arguments::new();
/// one.push("buyer").push("request");
/// let mut all = Arguments::new();
/// all.append(&one).append(&one);
/// assert_eq!(all.len(), 4);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Each as a bulk string.
    words: Vec<u8>,
    count: usize,
}

impl Arguments {
    /// No arguments yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No arguments yet, with space for this many bytes: those of the arguments, and about eight
    /// more for each.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            words: Vec::with_capacity(bytes),
            count: 0,
        }
    }

    /// Adds an argument.
    pub fn push(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        append_bulk(&mut self.words, argument.as_ref());
        self.count += 1;
        self
    }

    /// Adds all arguments of `others`, after these.
    pub fn append(&mut self, others: &Self) -> &mut Self {
        self.words.extend_from_slice(&others.words);
        self.count += others.count;
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes they take on the way.
    pub fn bytes(&self) -> usize {
        self.words.len()
    }

    /// As they are sent.
    pub(super) fn words(&self) -> &[u8] {
        &self.words
    }
}

/// How many there are. They may be anything.
impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arguments({})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::cmd;
    use super::*;

    #[test]
    fn they_are_what_single_arguments_would_be() {
        let anything = b"\r\n$3\r\n\0\xff";
        let (mut one, mut more) = (Arguments::new(), Arguments::with_capacity(100));
        one.push("a").push(anything);
        more.push("").append(&one).push(String::from("b"));
        let mut together = cmd("X");
        together.append(&more);
        let mut singly = cmd("X");
        singly.arg("").arg("a").arg(&anything[..]).arg("b");
        let (mut encoded, mut expected) = (Vec::new(), Vec::new());
        together.encode(&mut encoded);
        singly.encode(&mut expected);
        assert_eq!(encoded, expected);
        assert_eq!((more.len(), one.len()), (4, 2));
        assert!(!more.is_empty() && Arguments::new().is_empty());
        assert!(more.bytes() > one.bytes());
    }
}
