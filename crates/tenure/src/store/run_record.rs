//! What a store knows of the runs for one fire time of a schedule, and the steps of a run.

use std::time::Duration;

use super::LeaseSpec;
use crate::lease::LeaseId;

/// A step of a run, or a look at what is known.
#[derive(Clone, Debug)]
pub(crate) struct RunRequest {
    /// The lease of the run. Of a look only its name matters.
    pub(crate) held: LeaseSpec,
    pub(crate) step: RunStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunStep {
    Look,
    /// Records that the run of this lease begins, for as long as `remember`. A run that ended before is
    /// followed by another only with `retry`.
    Begin {
        retry: bool,
        remember: Duration,
    },
    /// Records that it has completed, for as long as `remember`.
    Complete {
        remember: Duration,
    },
    /// Erases that it began: its caller never learned of it.
    Forget,
}

/// What is known of the runs for one fire time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// Nothing.
    New,
    /// This lease holds the lock: its run began, or is about to begin.
    Running(LeaseId),
    /// The run of this lease began and was not completed; its lease does not hold the lock any more.
    Ended(LeaseId),
    /// The run of this lease has completed.
    Completed(LeaseId),
    /// The step was refused: the lease of the run does not hold the lock, but this one or none.
    NotHeld(Option<LeaseId>),
}
