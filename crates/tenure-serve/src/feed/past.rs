//! The last messages of a feed.

use std::collections::VecDeque;

use super::Message;

/// How many messages a reader may be behind before it gets a new snapshot, and how many bytes they may
/// have together.
pub(super) const BEHIND_MAX: usize = 1_024;
const BYTES_MAX: usize = 16 << 20;

/// The last messages. Their numbers begin with 1.
#[derive(Debug, Default)]
pub(super) struct Past {
    messages: VecDeque<Message>,
    bytes: usize,
    /// The number of messages before them.
    before: u64,
}

/// What comes after a message.
pub(super) enum Next {
    Message(Message),
    Nothing,
    /// It is not kept any more.
    Missed,
}

impl Past {
    /// The number of the last message.
    pub(super) fn last(&self) -> u64 {
        self.before + self.messages.len() as u64
    }

    pub(super) fn push(&mut self, message: Message) {
        self.bytes += message.len();
        self.messages.push_back(message);
        while self.messages.len() > BEHIND_MAX
            || (self.bytes > BYTES_MAX && self.messages.len() > 1)
        {
            let oldest = self.messages.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.len());
            self.before += 1;
        }
    }

    /// Whether all messages after this number are kept.
    pub(super) fn is_known(&self, number: u64) -> bool {
        (self.before..=self.last()).contains(&number)
    }

    /// The message after this number.
    pub(super) fn after(&self, number: u64) -> Next {
        let behind = number.checked_sub(self.before);
        let Some(behind) = behind.and_then(|behind| usize::try_from(behind).ok()) else {
            return Next::Missed;
        };
        let message = self.messages.get(behind).cloned();
        message.map_or(Next::Nothing, Next::Message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_known_unless_it_is_too_much() {
        let mut past = Past::default();
        let message = || Message::now("changed", "", &0);
        for _ in 0..BEHIND_MAX {
            past.push(message());
        }
        let last = BEHIND_MAX as u64;
        assert!(past.is_known(0) && past.is_known(last) && !past.is_known(last + 1));
        assert!(matches!(past.after(last), Next::Nothing));
        past.push(message());
        assert!(!past.is_known(0) && past.is_known(1));
        assert!(matches!(past.after(0), Next::Missed));
        assert!(matches!(past.after(1), Next::Message(_)));
    }

    #[test]
    fn long_messages_are_kept_up_to_a_limit() {
        let mut past = Past::default();
        let long = "x".repeat(1 << 20);
        for _ in 0..100 {
            past.push(Message::now("changed", "", &long));
        }
        assert!(
            past.bytes <= BYTES_MAX && past.messages.len() >= 15,
            "{}",
            past.bytes
        );
        assert_eq!(past.last(), 100);
        let longer = "x".repeat(2 * BYTES_MAX);
        past.push(Message::now("changed", "", &longer));
        assert_eq!(past.messages.len(), 1);
    }
}
