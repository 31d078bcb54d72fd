//! The wrapper: holds the lock or the permit, and lets the warden know how long the command may run.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tenure::{ErrorKind, Holder, LeaseId, LockName, Locks, Mode, Released};
use tenure_view::output::complain;
use tenure_view::time;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::held_locks::HeldLocks;
use super::options::{OnLost, Plan, Talk, WhenBusy};
use super::running::{self, Finished};
use super::signals::{self, Signals};
use super::terminal::Terminal;
use super::waiting::{self, Holding, Outcome};
use super::wanted::{Acquired, Wanted};
use super::{environment, talk, tree};
use crate::exit::{Exit, Failed};
use crate::server::PASSWORD;

/// How long the exit of a command that has ended may be held up by the release.
const RELEASE_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait for the end of a warden that has said its last word.
const REAP_WITHIN: Duration = Duration::from_millis(500);
/// How long to wait for the last requests to the server.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_millis(800);

/// Acquires the lock, runs the command, releases the lock.
pub async fn run(plan: &Plan) -> Result<Exit> {
    tree::adopt_orphans().context("cannot become a subreaper")?;
    let mut signals = Signals::catch()?;
    let connecting = async {
        tokio::time::sleep(plan.jitter.mul_f64(rand::random())).await;
        Wanted::connect(plan).await
    };
    let (locks, wanted) = tokio::select! {
        signal = signals.next_end() => return Ok(Exit::Signal(signals::number(signal))),
        connected = connecting => connected?,
    };
    let exit = take_and_run(plan, &locks, &wanted, &mut signals).await;
    locks.shutdown(SHUTDOWN_LIMIT).await;
    exit
}

async fn take_and_run(
    plan: &Plan,
    locks: &Locks,
    wanted: &Wanted,
    signals: &mut Signals,
) -> Result<Exit> {
    let begun = Instant::now();
    let acquiring = async {
        refuse_own(plan, locks).await?;
        waiting::acquire(plan, locks, wanted).await
    };
    let outcome = tokio::select! {
        // Dropping it leaves the queue; `shutdown` waits for that.
        signal = signals.next_end() => return Ok(Exit::Signal(signals::number(signal))),
        outcome = acquiring => outcome.map_err(|error| failed(plan, error))?,
    };
    let guard = match outcome {
        Outcome::Acquired(guard) => guard,
        Outcome::Busy { holder, waited } => {
            return Ok(not_acquired(plan, holder.as_deref(), waited));
        }
    };
    if plan.talk == Talk::Verbose {
        report_acquired(guard.held(), begun.elapsed());
    }
    let held_since = Instant::now();
    if plan.is_renewed {
        // A lock that another process has just passed on is first held for two seconds at most. If
        // this fails, the command is ended like any that has lost its lock.
        let _ = guard.ensure(plan.ttl / 2).await;
    }
    // Dropped by a panic, it would release the lock while the command is still alive.
    let guard = ManuallyDrop::new(guard);
    let finished = start_and_watch(plan, guard.held(), signals).await;
    let guard = ManuallyDrop::into_inner(guard);
    let held = held_since.elapsed();
    match finished {
        Ok(mut finished) => {
            let exit = release_or_detach(plan, guard, &finished, held).await;
            reap(finished.reaped.take()).await;
            exit
        }
        Err(error) => {
            // Nothing ran, or all of it has ended.
            let _ = guard.release().await;
            Err(error)
        }
    }
}

/// A command that runs under one of these very locks would wait for itself.
pub async fn refuse_own(plan: &Plan, locks: &Locks) -> Result<()> {
    for (name, lease) in environment::own_locks() {
        if !plan.names.contains(&name) {
            continue;
        }
        let holder = waiting::look(&locks.lock(&name)).await;
        let is_own = |holder: &Holder| {
            let leases = holder.reader_leases.iter().chain([&holder.lease]);
            leases.map(LeaseId::as_str).any(|id| id == lease)
        };
        // A reader beside a reader does not wait.
        // Nor does a command beside another one with a permit.
        let waits_alone = plan.mode == Mode::Exclusive || plan.limit == Some(1);
        let waits = |holder: &Holder| holder.readers == 0 || waits_alone;
        if holder.is_some_and(|holder| is_own(&holder) && waits(&holder)) {
            let which = match plan.names.len() {
                1 => "it".to_owned(),
                _ => format!("`{name}`"),
            };
            return Err(Failed::usage(format!(
                "{which} is held by the `tenure run` that runs this command, which would wait for \
                 itself; remove one of the two"
            ))
            .into());
        }
    }
    Ok(())
}

fn report_acquired(held: HeldLocks<'_>, waited: Duration) {
    let waited = time::show(waited);
    let slot = held
        .slot()
        .map_or_else(String::new, |slot| format!("slot {slot}, "));
    for (name, fence, _) in held.each() {
        complain(format_args!(
            "tenure: `{name}` acquired after {waited} ({slot}fence {fence})"
        ));
    }
}

fn failed(plan: &Plan, error: anyhow::Error) -> anyhow::Error {
    let kind = error.downcast_ref().map(tenure::Error::kind);
    if plan.limit.is_some() && matches!(kind, Some(ErrorKind::Mismatch | ErrorKind::NotALock)) {
        // It names the semaphore itself.
        return error;
    }
    let what = match (plan.limit, plan.names.len()) {
        (Some(_), _) => "a permit of",
        (None, 1) => "lock",
        (None, _) => "locks",
    };
    error.context(format!("cannot acquire {what} {}", plan.shown()))
}

fn not_acquired(plan: &Plan, holder: Option<&Holding>, waited: Duration) -> Exit {
    let WhenBusy::End(exit) = plan.when_busy else {
        return Exit::Done;
    };
    if plan.talk == Talk::Quiet {
        return exit;
    }
    let holder = match holder {
        Some(Holding { name, holder }) => {
            format!("`{name}` is held by {}", waiting::describe(holder))
        }
        None if plan.names.len() == 1 => format!("{} was held", plan.shown()),
        None => format!("one of {} was held", plan.shown()),
    };
    let patience = if plan.wait == Some(Duration::ZERO) {
        "did not wait".to_owned()
    } else {
        format!("gave up after {}", time::show(waited))
    };
    complain(format_args!("tenure: {holder}; {patience}"));
    exit
}

/// Starts the warden, and with it the command, and supervises both until no process is left.
pub async fn start_and_watch(
    plan: &Plan,
    guard: HeldLocks<'_>,
    signals: &mut Signals,
) -> Result<Finished> {
    let mut command = Command::new("/proc/self/exe");
    for variable in environment::of_other_locks() {
        command.env_remove(variable);
    }
    // The command gets no password: it and all that it starts would show it in their environments.
    command.env_remove(PASSWORD);
    command.arg0("tenure").arg("warden");
    command.arg("--program").arg(&plan.program.path);
    command.arg("--called").arg(&plan.program.called);
    // In its own group: signals of the terminal or a shell are not for the warden.
    command.process_group(0);
    let mut tail = plan.program.arguments.clone();
    tail.insert(0, "--".into());
    command.arg("--socket");
    let (warden, hearing, saying) = talk::start(command, tail)
        .await
        .context("cannot start a warden for the command")?;
    // A command that reads a pipe and writes to the terminal, as a pager does, needs its keys too. If it
    // writes to a pipe as well, the terminal may be for another command of the pipeline.
    let is_on_terminal = io::stdin().is_terminal() || io::stdout().is_terminal();
    let terminal = Terminal::open().filter(|_| plan.foreground || is_on_terminal);
    let mut child = warden;
    let warden = running::Warden {
        pid: rustix::process::Pid::from_child(&child),
        hearing,
        saying,
    };
    let mut finished = running::watch(plan, guard, signals, warden, terminal).await?;
    // The warden ends after its last message. If nobody waited for it, each command would leave a
    // zombie where PID 1 does not wait for strangers. On a thread, because a warden that was stopped
    // must not hold up the release.
    let (tell, reaped) = oneshot::channel();
    let waiting = move || {
        let _ = child.wait();
        let _ = tell.send(());
    };
    let _ = thread::Builder::new().spawn(waiting);
    finished.reaped = Some(reaped);
    Ok(finished)
}

/// Waits until the warden of a command is gone, but not for one that was stopped.
pub async fn reap(reaped: Option<oneshot::Receiver<()>>) {
    if let Some(reaped) = reaped {
        let _ = timeout(REAP_WITHIN, reaped).await;
    }
}

/// Releases the locks that are still held, or detaches their leases for the rest of `--at-least`.
async fn release_or_detach(
    plan: &Plan,
    guard: Acquired,
    finished: &Finished,
    held: Duration,
) -> Result<Exit> {
    let rest = plan.at_least.saturating_sub(held);
    if !rest.is_zero() && guard.held().is_valid() {
        return Ok(detach(plan, guard, finished, rest.max(tenure::TTL_MIN)).await);
    }
    // Dropped after that, it goes on in the background until the client is shut down.
    let released = match timeout(RELEASE_WITHIN, guard.release()).await {
        Ok(Ok(released)) => released,
        Ok(Err(error)) => {
            let names = plan.shown();
            complain(format_args!("tenure: cannot release {names}: {error}"));
            return Ok(finished.exit(plan));
        }
        Err(_) => {
            if !finished.knows_of_loss() && plan.talk != Talk::Quiet {
                report_unknown(plan, &plan.shown());
            }
            return Ok(finished.exit(plan));
        }
    };
    let mut exit = None;
    for (name, released) in released {
        match released {
            Released::AlreadyGone => exit = exit.or(Some(ended_unprotected(plan, &name, finished))),
            Released::Unknown if !finished.knows_of_loss() && plan.talk != Talk::Quiet => {
                report_unknown(plan, &format!("`{name}`"));
            }
            Released::WasHeld if plan.talk == Talk::Verbose => complain(format_args!(
                "tenure: released `{name}` after {}",
                time::show(held)
            )),
            _ => {}
        }
    }
    Ok(exit.unwrap_or_else(|| finished.exit(plan)))
}

fn report_unknown(plan: &Plan, names: &str) {
    let ttl = time::show(plan.ttl);
    complain(format_args!(
        "tenure: unknown whether {names} was released: the server did not respond; it expires within \
         {ttl}"
    ));
}

/// The lease expired before the command finished.
fn ended_unprotected(plan: &Plan, name: &LockName, finished: &Finished) -> Exit {
    if finished.knows_of_loss() {
        return finished.exit(plan);
    }
    complain(format_args!(
        "tenure: lost `{name}` before the command finished: it was not protected to its end"
    ));
    match plan.on_lost {
        OnLost::Kill => plan.lost_exit,
        OnLost::Warn => finished.exit(plan),
    }
}

/// Detaches the leases for `rest`, without waiting for their end.
async fn detach(plan: &Plan, guard: Acquired, finished: &Finished, rest: Duration) -> Exit {
    let mut exit = None;
    for guard in guard.into_guards() {
        let name = guard.name().clone();
        let shown = time::show(rest);
        match guard.detach_for(rest).await {
            // A client of several servers has a longest ttl.
            Ok(lease) if lease.ttl() < rest => complain(format_args!(
                "tenure: cannot keep `{name}` for {shown} more: the longest ttl there is {}",
                time::show(lease.ttl())
            )),
            Ok(_) if plan.talk == Talk::Verbose => complain(format_args!(
                "tenure: `{name}` stays locked for {shown} more"
            )),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Lost => {
                exit = exit.or(Some(ended_unprotected(plan, &name, finished)));
            }
            Err(error) => complain(format_args!(
                "tenure: cannot keep `{name}` for {shown} more: {error}"
            )),
        }
    }
    exit.unwrap_or_else(|| finished.exit(plan))
}
