//! Runs of a schedule: records that one begins or has completed, and reads what is known.

use std::sync::Arc;
use std::time::Duration;

use super::retry::Retry;
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::seeded::{Bug, bug};
use crate::store::{LeaseSpec, NotHeld, RunRequest, RunState, RunStep};

/// Reads what is known of the runs that have this lock.
pub(crate) async fn look(core: &Core, held: LeaseSpec) -> Result<RunState> {
    let step = RunStep::Look;
    take_step(core, RunRequest { held, step }).await
}

/// Records that the run of this guard begins.
///
/// # Errors
///
/// If it is not known whether it begins, or if the lock was lost. Then the record is erased, if possible,
/// and the lock is released.
pub(crate) async fn begin(
    guard: Guard,
    retry: bool,
    remember: Duration,
) -> Result<Result<UnclaimedRun, RunState>> {
    let core = Arc::clone(&guard.client().core);
    let held = guard.belief().held.clone();
    let name = held.name.clone();
    let run = UnclaimedRun { guard: Some(guard) };
    let step = RunStep::Begin { retry, remember };
    match take_step(&core, RunRequest { held, step }).await? {
        RunState::Running(_) => Ok(Ok(run)),
        RunState::NotHeld(taken_by) => {
            core.watchdog.recheck(&name);
            Err(Error::lost(&name, NotHeld { taken_by }.reason()))
        }
        other => {
            if let Some(guard) = run.claim() {
                // Others wait for the lock, to be told the same.
                let _ = guard.release().await;
            }
            Ok(Err(other))
        }
    }
}

/// Records that the run of this guard has completed, and releases its lock.
pub(crate) async fn complete(guard: Guard, remember: Duration) -> Result<()> {
    let core = Arc::clone(&guard.client().core);
    let held = guard.belief().held.clone();
    let name = held.name.clone();
    let step = RunStep::Complete { remember };
    match take_step(&core, RunRequest { held, step }).await? {
        RunState::Completed(_) => {
            // It is recorded, whatever becomes of the lock.
            let _ = guard.release().await;
            Ok(())
        }
        refused => {
            let cause = match refused {
                RunState::NotHeld(Some(other)) => format!("another has begun since, `{other}`"),
                _ => "its lease has ended, and it is not remembered any more".to_owned(),
            };
            let text = format!("cannot record that the run `{name}` has completed: {cause}");
            Err(Error::new(ErrorKind::Lost, text))
        }
    }
}

/// A run on its way to its caller. If that one is gone, the run never began.
pub(crate) struct UnclaimedRun {
    guard: Option<Guard>,
}

impl UnclaimedRun {
    /// The guard, for the caller.
    pub(crate) fn claim(mut self) -> Option<Guard> {
        self.guard.take()
    }
}

impl Drop for UnclaimedRun {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else {
            return;
        };
        if bug(Bug::OnceUnclaimedBegan) {
            return;
        }
        let client = Arc::clone(guard.client());
        let pending = client.core.pending.begin();
        client.engine.spawn(async move {
            let held = guard.belief().held.clone();
            let step = RunStep::Forget;
            // Before the release: the next run must not find this one.
            let _ = take_step(&guard.client().core, RunRequest { held, step }).await;
            drop(guard);
            drop(pending);
        });
    }
}

/// Repeats the step until there is a reply or no time left. A repetition finds what it did.
async fn take_step(core: &Core, request: RunRequest) -> Result<RunState> {
    let mut retry = Retry::new(core);
    loop {
        match core.store.run_step(&request, retry.limit).await {
            Ok(state) => return Ok(state),
            Err(failure) => retry.after(failure).await?,
        }
    }
}
