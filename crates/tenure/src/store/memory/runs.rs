//! Runs of a schedule: the machine's steps on what is known of them. Pure, as the machine that this is
//! part of.

use super::machine::{Machine, micros};
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::{RunRequest, RunState, RunStep};

/// The last run for a fire time.
#[derive(Debug)]
pub(super) struct RunRecord {
    run: LeaseId,
    is_completed: bool,
    pub(super) end_us: u64,
}

impl Machine {
    /// Takes a step of a run, and returns what is known after it.
    pub(crate) fn run_step(&mut self, now_us: u64, request: &RunRequest) -> RunState {
        let (name, run) = (&request.held.name, &request.held.id);
        let end_us = |remember| now_us + micros(remember);
        match request.step {
            RunStep::Look => self.run_state(now_us, name),
            RunStep::Begin { retry, remember } => {
                let holder = self.run_holder(now_us, name);
                if holder.as_ref() != Some(run) {
                    return RunState::NotHeld(holder);
                }
                match self.run_record(now_us, name) {
                    Some(last) if last.is_completed => RunState::Completed(last.run.clone()),
                    Some(last) if last.run != *run && !retry => RunState::Ended(last.run.clone()),
                    _ => {
                        self.record_run(name, run, false, end_us(remember));
                        RunState::Running(run.clone())
                    }
                }
            }
            RunStep::Complete { remember } => {
                let known = self.run_record(now_us, name).map(|record| &record.run);
                if known.is_some_and(|known| known != run) {
                    return RunState::NotHeld(known.cloned());
                }
                let is_known = known.is_some();
                let holder = self.run_holder(now_us, name);
                if !is_known && holder.as_ref() != Some(run) {
                    return RunState::NotHeld(holder);
                }
                self.record_run(name, run, true, end_us(remember));
                RunState::Completed(run.clone())
            }
            RunStep::Forget => {
                let is_ours = |record: &RunRecord| record.run == *run && !record.is_completed;
                if self.run_record(now_us, name).is_some_and(is_ours) {
                    self.runs.remove(name);
                }
                self.run_state(now_us, name)
            }
        }
    }

    fn run_state(&mut self, now_us: u64, name: &LockName) -> RunState {
        let holder = self.run_holder(now_us, name);
        match (self.run_record(now_us, name), holder) {
            (Some(last), _) if last.is_completed => RunState::Completed(last.run.clone()),
            (_, Some(holder)) => RunState::Running(holder),
            (Some(last), None) => RunState::Ended(last.run.clone()),
            (None, None) => RunState::New,
        }
    }

    fn run_record(&self, now_us: u64, name: &LockName) -> Option<&RunRecord> {
        let record = self.runs.get(name)?;
        (record.end_us > now_us).then_some(record)
    }

    fn record_run(&mut self, name: &LockName, run: &LeaseId, is_completed: bool, end_us: u64) {
        let record = RunRecord {
            run: run.clone(),
            is_completed,
            end_us,
        };
        self.runs.insert(name.clone(), record);
    }

    /// Who holds the lock of a run, as its key says.
    fn run_holder(&mut self, now_us: u64, name: &LockName) -> Option<LeaseId> {
        let found = self.inspect(now_us, name)?;
        Some(found.id)
    }
}
