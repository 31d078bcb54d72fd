//! Counts votes: whether a majority voted for the same block of fences, and if not, why.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::lease::LeaseId;
use crate::seeded::{Bug, bug};
use crate::store::redis::Vote;
use crate::store::{Busy, Failure};

/// A day in microseconds: how far above its clock a node accepts a fence.
pub(super) const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// The votes of one round.
pub(super) struct VoteCount {
    majority: usize,
    /// How many were asked and have not replied.
    waiting: usize,
    granted: usize,
    stale: Vec<u64>,
    busy: Vec<Busy>,
    failures: Vec<Failure>,
    /// The highest fence that any node reported.
    pub(super) floor: u64,
}

/// The result of a round.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Not decided yet.
    Open,
    Won,
    /// Enough nodes would have accepted a greater block.
    TooLow,
    /// Another lease has a majority, or so many nodes that no other can have one.
    Held(Busy),
    /// No lease has a majority: several clients tried at once, or one left some nodes behind. The
    /// lease with the most nodes.
    Split(Option<Busy>),
    /// Too few nodes replied.
    Failed(Failure),
}

impl VoteCount {
    /// A round in which `asked` of all nodes are asked.
    pub(super) fn new(nodes: usize, asked: usize) -> Self {
        let of = if bug(Bug::RedlockMajorityOfAsked) {
            asked
        } else {
            nodes
        };
        Self {
            majority: majority(of),
            waiting: asked,
            granted: 0,
            stale: Vec::new(),
            busy: Vec::new(),
            failures: Vec::new(),
            floor: 0,
        }
    }

    pub(super) fn count(&mut self, vote: Result<Vote, Failure>) {
        self.waiting -= 1;
        match vote {
            Ok(Vote::Granted) => self.granted += 1,
            Ok(Vote::Stale(floor)) => {
                self.floor = self.floor.max(floor);
                self.stale.push(floor);
            }
            Ok(Vote::Busy(busy, floor)) => {
                self.floor = self.floor.max(floor);
                self.busy.push(busy);
            }
            Ok(Vote::Far(_)) => self.failures.push(Failure::not_sent(Error::new(
                ErrorKind::Unavailable,
                "the fences of this lock are too far above a node's clock: do the clocks differ?",
            ))),
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Whether a majority has replied, whatever the replies are.
    pub(super) fn is_answered(&self) -> bool {
        self.granted + self.stale.len() + self.busy.len() >= self.majority
    }

    /// Whether the result is certain, or all have replied.
    pub(super) fn is_decided(&self) -> bool {
        let hopeless = self.granted + self.waiting < self.majority;
        self.granted >= self.majority || self.waiting == 0 || hopeless && self.holder().is_some()
    }

    /// The result; with `last`, although some have not replied.
    pub(super) fn verdict(&mut self, last: bool) -> Verdict {
        if self.granted >= self.majority {
            return Verdict::Won;
        }
        let hopeless = self.granted + self.waiting < self.majority;
        if !hopeless && !last {
            return Verdict::Open;
        }
        if let Some(held) = self.holder() {
            return Verdict::Held(held);
        }
        if self.waiting > 0 && hopeless && !last {
            // The rest may tell who holds it.
            return Verdict::Open;
        }
        if self.granted + self.stale.len() >= self.majority {
            return Verdict::TooLow;
        }
        // A permanent error counts for all: the key is not a lock, or the user has no permission.
        if let Some(at) = self.failures.iter().position(|it| !it.transient) {
            return Verdict::Failed(self.failures.swap_remove(at));
        }
        if self.is_answered() {
            return Verdict::Split(self.with_most_nodes());
        }
        Verdict::Failed(self.failures.pop().unwrap_or_else(no_answer))
    }

    /// The lease with so many nodes that it is the holder, and until when.
    fn holder(&self) -> Option<Busy> {
        let first = self.with_most_nodes()?;
        let nodes = self.nodes_of(&first.holder);
        (nodes.len() >= self.majority).then(|| Busy {
            // When the lease has expired on so many nodes that it has no majority any more.
            remaining: nodes.get(self.majority - 1).copied().flatten(),
            ..first
        })
    }

    fn with_most_nodes(&self) -> Option<Busy> {
        let most = self
            .busy
            .iter()
            .max_by_key(|busy| self.nodes_of(&busy.holder).len());
        most.map(|most| Busy {
            // A node whose list lacks those ahead only makes a waiter ask early.
            ask_after: self.busy.iter().filter_map(|busy| busy.ask_after).min(),
            ..most.clone()
        })
    }

    /// How long a lease still lasts on each node that has it, the longest first. No expiry: `None`,
    /// before all others.
    fn nodes_of(&self, lease: &LeaseId) -> Vec<Option<Duration>> {
        let of_lease = self.busy.iter().filter(|busy| busy.holder == *lease);
        let mut left: Vec<_> = of_lease.map(|busy| busy.remaining).collect();
        left.sort_by_key(|left| std::cmp::Reverse(left.unwrap_or(Duration::MAX)));
        left
    }
}

/// More than half.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

fn no_answer() -> Failure {
    Failure::not_sent(Error::new(
        ErrorKind::Unavailable,
        "too few nodes of the Redlock replied in time",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(holder: &str, left_ms: u64) -> Vote {
        let busy = Busy {
            holder: LeaseId::new(holder),
            remaining: Some(Duration::from_millis(left_ms)),
            ask_after: None,
        };
        Vote::Busy(busy, 7)
    }

    fn silent() -> Result<Vote, Failure> {
        Err(no_answer())
    }

    fn tally(nodes: usize, votes: Vec<Result<Vote, Failure>>) -> VoteCount {
        let mut tally = VoteCount::new(nodes, nodes);
        for vote in votes {
            tally.count(vote);
        }
        tally
    }

    #[test]
    fn a_majority_wins_before_the_last_answer() {
        let mut tally = tally(5, vec![Ok(Vote::Granted), silent(), Ok(Vote::Granted)]);
        assert!(matches!(tally.verdict(false), Verdict::Open));
        tally.count(Ok(Vote::Granted));
        assert!(matches!(tally.verdict(false), Verdict::Won));
    }

    #[test]
    fn a_majority_is_one_of_all_nodes_not_of_those_that_could_be_asked() {
        let mut tally = VoteCount::new(5, 3);
        for vote in [Ok(Vote::Granted), Ok(Vote::Granted), silent()] {
            tally.count(vote);
        }
        assert!(!matches!(tally.verdict(true), Verdict::Won));
    }

    #[test]
    fn half_of_an_even_number_is_no_majority() {
        let mut tally = tally(
            4,
            vec![Ok(Vote::Granted), Ok(Vote::Granted), silent(), silent()],
        );
        assert!(!matches!(tally.verdict(true), Verdict::Won));
    }

    #[test]
    fn the_holder_is_known_by_a_majority_and_ends_with_it() {
        let votes = vec![Ok(busy("a", 90)), Ok(busy("a", 50)), Ok(busy("a", 70))];
        let Verdict::Held(held) = tally(5, votes).verdict(false) else {
            panic!("not held");
        };
        assert_eq!(held.remaining, Some(Duration::from_millis(50)));
    }

    #[test]
    fn nobody_with_a_majority_is_a_split_vote() {
        let votes = vec![
            Ok(Vote::Granted),
            Ok(busy("a", 9)),
            Ok(busy("b", 9)),
            Ok(busy("b", 9)),
            Ok(busy("c", 9)),
        ];
        let Verdict::Split(Some(first)) = tally(5, votes).verdict(false) else {
            panic!("not split");
        };
        assert_eq!(first.holder, LeaseId::new("b"));
    }

    #[test]
    fn a_block_that_is_too_low_is_asked_for_again() {
        let votes = vec![Ok(Vote::Stale(41)), Ok(Vote::Granted), Ok(busy("a", 9))];
        let mut tally = tally(3, votes);
        assert!(matches!(tally.verdict(false), Verdict::TooLow));
        assert_eq!(tally.floor, 41);
    }

    #[test]
    fn too_few_answers_are_a_failure() {
        let mut votes = tally(3, vec![Ok(Vote::Granted), silent(), silent()]);
        assert!(matches!(votes.verdict(false), Verdict::Failed(_)));
    }
}
