//! Those who stand behind the head of a line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::line::ASK_MIN;
use super::lines::Waiter;
use crate::moment::Moment;
use crate::owner::Holds;

/// A queue whose members may leave from the middle, and by their limits.
#[derive(Default)]
pub(super) struct Behind {
    /// By number, which only grows: so this is the order of arrival.
    queue: BTreeMap<u64, Waiter>,
    limits: BTreeSet<(Moment, u64)>,
}

impl Behind {
    pub(super) fn join(&mut self, number: u64, waiter: Waiter) {
        self.limits
            .extend(limit(&waiter).map(|limit| (limit, number)));
        self.queue.insert(number, waiter);
    }

    /// Takes the first one out.
    pub(super) fn next(&mut self) -> Option<Waiter> {
        let number = *self.queue.first_key_value()?.0;
        self.leave(number)
    }

    /// Takes out the one with this number, if it is here.
    pub(super) fn leave(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.queue.remove(&number)?;
        if let Some(limit) = limit(&waiter) {
            self.limits.remove(&(limit, number));
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
        let theirs = self.queue.iter().filter(|(_, waiter)| is_theirs(waiter));
        theirs.map(|(number, _)| *number).collect()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Waiter> {
        self.queue.get(&number)
    }

    /// When the next limit passes.
    pub(super) fn next_limit(&self) -> Option<Moment> {
        self.limits.first().map(|(limit, _)| *limit)
    }
}

/// One whose limit has passed already is still asked for once, if it is its turn soon.
fn limit(waiter: &Waiter) -> Option<Moment> {
    waiter.limit.map(|limit| limit.max(waiter.joined + ASK_MIN))
}
