//! The current faults of a proxy.

use std::time::Duration;

use super::Direction;

/// All faults of a proxy; none by default.
#[derive(Debug, Default)]
pub(super) struct Modes {
    pub(super) requests: Flow,
    pub(super) replies: Flow,
    /// Equal-length replacements in replies.
    pub(super) rewrites: Vec<(Vec<u8>, Vec<u8>)>,
    /// Like `rewrites`, but not a fault: they stay when faults end.
    pub(super) translations: Vec<(Vec<u8>, Vec<u8>)>,
    /// Armed: the connection that next sends these bytes is reset when the server replies.
    pub(super) reset_after: Option<Vec<u8>>,
    /// Armed: the connection that sends next is reset after this many bytes.
    pub(super) cut_after: Option<usize>,
    pub(super) refusing: bool,
}

/// Faults of one direction; zero durations are no fault.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flow {
    pub(super) held: bool,
    pub(super) dropped: bool,
    pub(super) delay: Duration,
    /// The first chunk of a connection is not delayed.
    pub(super) delay_spares_first: bool,
    pub(super) dribble: Duration,
}

impl Modes {
    /// Whether bytes are dropped in any direction.
    pub(super) fn is_dropping(&self) -> bool {
        self.requests.dropped || self.replies.dropped
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        *self = Self {
            translations: std::mem::take(&mut self.translations),
            ..Self::default()
        };
    }

    pub(super) fn flow(&self, direction: Direction) -> &Flow {
        match direction {
            Direction::Requests => &self.requests,
            Direction::Replies => &self.replies,
        }
    }

    /// Whether these requests match [`Modes::reset_after`]; disarms it if so.
    pub(super) fn take_reset(&mut self, requests: &[u8]) -> bool {
        let armed_for = |pattern: &Vec<u8>| find(requests, pattern).is_some();
        self.reset_after
            .take_if(|pattern| armed_for(pattern))
            .is_some()
    }

    pub(super) fn rewrite(&self, replies: &mut [u8]) {
        for (from, to) in self.rewrites.iter().chain(&self.translations) {
            let mut start = 0;
            while let Some(at) = find(&replies[start..], from) {
                replies[start + at..][..to.len()].copy_from_slice(to);
                start += at + to.len();
            }
        }
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    if pattern.is_empty() {
        return Some(0);
    }
    let mut windows = bytes.windows(pattern.len());
    windows.position(|window| window == pattern)
}
