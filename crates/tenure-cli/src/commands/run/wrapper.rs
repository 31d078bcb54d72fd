//! The wrapper: holds the lock, and lets the warden know how long the command may run.

use std::env;
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tenure::{ErrorKind, Guard, Lock, Locks, Released};
use tenure_view::output::complain;
use tenure_view::time;

use super::options::{OnLost, Plan, Talk, WhenBusy};
use super::running::{self, Finished};
use super::signals::{self, Signals};
use super::terminal::Terminal;
use super::waiting::{self, Outcome};
use super::{talk, tree};
use crate::exit::{Exit, Failed};

/// How long to wait for the last requests to the server.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(800);

/// Acquires the lock, runs the command, releases the lock.
pub async fn run(plan: &Plan) -> Result<Exit> {
    tree::adopt_orphans().context("cannot become a subreaper")?;
    let mut signals = Signals::catch()?;
    let connecting = async {
        tokio::time::sleep(plan.jitter.mul_f64(rand::random())).await;
        plan.server.connect_for_one().await
    };
    let locks = tokio::select! {
        signal = signals.next_end() => return Ok(Exit::Signal(signals::number(signal))),
        locks = connecting => locks?,
    };
    let exit = take_and_run(plan, &locks, &mut signals).await;
    locks.shutdown(SHUTDOWN_LIMIT).await;
    exit
}

async fn take_and_run(plan: &Plan, locks: &Locks, signals: &mut Signals) -> Result<Exit> {
    let begun = Instant::now();
    let lock = lock(plan, locks);
    let acquiring = async {
        refuse_own(plan, &lock).await?;
        waiting::acquire(plan, locks, &lock).await
    };
    let outcome = tokio::select! {
        // Dropping it leaves the queue; `shutdown` waits for that.
        signal = signals.next_end() => return Ok(Exit::Signal(signals::number(signal))),
        outcome = acquiring => outcome.with_context(|| failed(plan))?,
    };
    let guard = match outcome {
        Outcome::Acquired(guard) => guard,
        Outcome::Busy { holder, waited } => {
            return Ok(not_acquired(plan, holder.as_deref(), waited));
        }
    };
    if plan.talk == Talk::Verbose {
        let waited = time::show(begun.elapsed());
        let fence = guard.fence();
        complain(format_args!(
            "tenure: `{}` acquired after {waited} (fence {fence})",
            plan.name
        ));
    }
    let held_since = Instant::now();
    if plan.is_renewed {
        // A lock that another process has just passed on is first held for two seconds at most. If
        // this fails, the command is ended like any that has lost its lock.
        let _ = guard.ensure(plan.ttl / 2).await;
    }
    // Dropped by a panic, it would release the lock while the command is still alive.
    let guard = ManuallyDrop::new(guard);
    let finished = start_and_watch(plan, &guard, signals).await;
    let guard = ManuallyDrop::into_inner(guard);
    let held = held_since.elapsed();
    match finished {
        Ok(finished) => release_or_detach(plan, guard, &finished, held).await,
        Err(error) => {
            // Nothing ran, or all of it has ended.
            let _ = guard.release().await;
            Err(error)
        }
    }
}

fn lock(plan: &Plan, locks: &Locks) -> Lock {
    let lock = locks.lock(&plan.name);
    let lock = if plan.is_renewed {
        lock.ttl(plan.ttl)
    } else {
        lock.ttl(plan.ttl).no_renewal()
    };
    let note = |lock: Lock, (key, value): &(String, String)| lock.meta(key, value);
    plan.meta.iter().fold(lock, note)
}

/// A command that runs under this very lock would wait for itself.
async fn refuse_own(plan: &Plan, lock: &Lock) -> Result<()> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let Some(own) = variable("TENURE_LEASE") else {
        return Ok(());
    };
    if variable("TENURE_NAME").as_deref() != Some(plan.name.as_str()) {
        return Ok(());
    }
    let holder = waiting::look(lock).await;
    if holder.is_some_and(|holder| holder.lease.as_str() == own) {
        return Err(Failed::usage(
            "it is held by the `tenure run` that runs this command, which would wait for itself; \
             remove one of the two",
        )
        .into());
    }
    Ok(())
}

fn failed(plan: &Plan) -> String {
    format!("cannot acquire lock `{}`", plan.name)
}

fn not_acquired(plan: &Plan, holder: Option<&tenure::Holder>, waited: Duration) -> Exit {
    let WhenBusy::End(exit) = plan.when_busy else {
        return Exit::Done;
    };
    if plan.talk == Talk::Quiet {
        return exit;
    }
    let name = &plan.name;
    let holder = match holder {
        Some(holder) => format!("is held by {}", waiting::describe(holder)),
        None => "was held".to_owned(),
    };
    let patience = if plan.wait == Some(Duration::ZERO) {
        "did not wait".to_owned()
    } else {
        format!("gave up after {}", time::show(waited))
    };
    complain(format_args!("tenure: `{name}` {holder}; {patience}"));
    exit
}

/// Starts the warden, and with it the command, and supervises both until no process is left.
async fn start_and_watch(plan: &Plan, guard: &Guard, signals: &mut Signals) -> Result<Finished> {
    let mut command = Command::new("/proc/self/exe");
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
    let terminal = Terminal::open().filter(|_| plan.foreground || io::stdin().is_terminal());
    let warden = running::Warden {
        pid: rustix::process::Pid::from_child(&warden),
        hearing,
        saying,
    };
    running::watch(plan, guard, signals, warden, terminal).await
}

/// Releases the lock if it is still held, or detaches the lease for the rest of `--at-least`.
async fn release_or_detach(
    plan: &Plan,
    guard: Guard,
    finished: &Finished,
    held: Duration,
) -> Result<Exit> {
    let name = &plan.name;
    let rest = plan.at_least.saturating_sub(held);
    if !rest.is_zero() && guard.is_valid() {
        return Ok(detach(plan, guard, finished, rest.max(tenure::TTL_MIN)).await);
    }
    match guard.release().await {
        Ok(Released::AlreadyGone) => return Ok(ended_unprotected(plan, finished)),
        Ok(Released::Unknown) if !finished.knows_of_loss() && plan.talk != Talk::Quiet => {
            let ttl = time::show(plan.ttl);
            complain(format_args!(
                "tenure: unknown whether `{name}` was released: the server did not respond; it \
                 expires within {ttl}"
            ));
        }
        Ok(Released::WasHeld) if plan.talk == Talk::Verbose => complain(format_args!(
            "tenure: released `{name}` after {}",
            time::show(held)
        )),
        Ok(_) => {}
        Err(error) => complain(format_args!("tenure: cannot release `{name}`: {error}")),
    }
    Ok(finished.exit(plan))
}

/// The lease expired before the command finished.
fn ended_unprotected(plan: &Plan, finished: &Finished) -> Exit {
    if finished.knows_of_loss() {
        return finished.exit(plan);
    }
    let name = &plan.name;
    complain(format_args!(
        "tenure: lost `{name}` before the command finished: it was not protected to its end"
    ));
    match plan.on_lost {
        OnLost::Kill => plan.lost_exit,
        OnLost::Warn => finished.exit(plan),
    }
}

/// Detaches the lease for `rest`, without waiting for its end.
async fn detach(plan: &Plan, guard: Guard, finished: &Finished, rest: Duration) -> Exit {
    let name = &plan.name;
    let shown = time::show(rest);
    match guard.detach_for(rest).await {
        // A client of several servers has a longest ttl.
        Ok(lease) if lease.ttl() < rest => complain(format_args!(
            "tenure: cannot keep `{name}` for {shown} more: the longest ttl there is {}",
            time::show(lease.ttl())
        )),
        Ok(_) if plan.talk == Talk::Verbose => {
            complain(format_args!(
                "tenure: `{name}` stays locked for {shown} more"
            ));
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Lost => return ended_unprotected(plan, finished),
        Err(error) => complain(format_args!(
            "tenure: cannot keep `{name}` for {shown} more: {error}"
        )),
    }
    finished.exit(plan)
}
