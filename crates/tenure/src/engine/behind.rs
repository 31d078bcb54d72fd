//! Those who stand behind the head of a line.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::line::ASK_MIN;
use super::lines::Waiter;
use crate::moment::Moment;
use crate::owner::Holds;

/// A queue whose members may leave from the middle: a hole stays, and their place in the order of
/// limits goes, so that neither costs more with a long line.
#[derive(Default)]
pub(super) struct Behind {
    /// By number, which only grows.
    queue: VecDeque<(u64, Option<Waiter>)>,
    limits: BTreeSet<(Moment, u64)>,
}

impl Behind {
    pub(super) fn join(&mut self, number: u64, waiter: Waiter) {
        self.limits
            .extend(limit(&waiter).map(|limit| (limit, number)));
        self.queue.push_back((number, Some(waiter)));
    }

    /// Takes the first one out.
    pub(super) fn next(&mut self) -> Option<Waiter> {
        while let Some((number, waiter)) = self.queue.pop_front() {
            if let Some(waiter) = waiter {
                self.forget_limit(number, &waiter);
                return Some(waiter);
            }
        }
        None
    }

    /// Takes out the one with this number, if it is here.
    pub(super) fn leave(&mut self, number: u64) -> Option<Waiter> {
        let at = self.at(number)?;
        let waiter = self.queue.get_mut(at)?.1.take()?;
        self.forget_limit(number, &waiter);
        // Holes at the front would otherwise stay until the head is served.
        while matches!(self.queue.front(), Some((_, None))) {
            self.queue.pop_front();
        }
        Some(waiter)
    }

    /// Takes out one whose limit has passed.
    pub(super) fn next_too_late(&mut self, now: Moment) -> Option<Waiter> {
        let &(limit, number) = self.limits.first()?;
        (now >= limit).then(|| self.leave(number)).flatten()
    }

    /// The numbers of all waiters of one owner.
    pub(super) fn numbers_of(&self, owner: &Arc<Holds>) -> Vec<u64> {
        let is_theirs = |waiter: &Waiter| {
            let theirs = waiter.owner.as_ref();
            theirs.is_some_and(|theirs| Arc::ptr_eq(theirs, owner))
        };
        let waiters = self.queue.iter();
        let theirs = waiters.filter(|(_, waiter)| waiter.as_ref().is_some_and(is_theirs));
        theirs.map(|(number, _)| *number).collect()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Waiter> {
        self.queue.get(self.at(number)?)?.1.as_ref()
    }

    /// When the next limit passes.
    pub(super) fn next_limit(&self) -> Option<Moment> {
        self.limits.first().map(|(limit, _)| *limit)
    }

    fn at(&self, number: u64) -> Option<usize> {
        let at = self
            .queue
            .binary_search_by_key(&number, |(number, _)| *number);
        at.ok()
    }

    fn forget_limit(&mut self, number: u64, waiter: &Waiter) {
        if let Some(limit) = limit(waiter) {
            self.limits.remove(&(limit, number));
        }
    }
}

/// One whose limit has passed already is still asked for once, if it is its turn soon.
fn limit(waiter: &Waiter) -> Option<Moment> {
    waiter.limit.map(|limit| limit.max(waiter.joined + ASK_MIN))
}
