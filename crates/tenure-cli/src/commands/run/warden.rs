//! The warden: parent and subreaper of the command. It needs no server, and ends every descendant
//! when the lease may end, or when the wrapper is gone.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};

use super::boot_clock::{Alarm, BootTime};
use super::program::Program;
use super::signals;
use super::talk::{self, Hearing, How, News, Order, Saying, Schedule};
use super::terminal::Terminal;
use super::tree::{self, Reaped};

/// How long processes that outlive the command may take to exit before they get TERM.
const LINGER: Duration = Duration::from_millis(100);
const SHELL: &str = "/bin/sh";
const ENOEXEC: i32 = 8;

/// Guards `program` for the wrapper that listens at `socket`.
pub async fn guard(socket: &str, program: &Program) -> Result<()> {
    signals::survive()?;
    // For process listings. It is only a name.
    let _ = fs::write("/proc/self/comm", "tenure-warden");
    tree::adopt_orphans().context("cannot become a subreaper")?;
    let Some((mut hearing, mut saying)) = talk::answer(socket)? else {
        return Ok(());
    };
    let Some(Order::Start {
        environment,
        schedule,
        kill_after_ms,
        wait_all,
        foreground,
    }) = hearing.next().await?
    else {
        // The wrapper is gone, or changed its mind.
        return Ok(());
    };
    if schedule.is_over() {
        // Wrapper or machine was paused after the lock was acquired.
        saying.say(&News::TooLate);
        saying.say_all().await;
        return Ok(());
    }
    let mut children = signals::children()?;
    let group = match spawn(program, &environment) {
        Ok(group) => group,
        Err(error) => {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let cause = error.to_string();
            saying.say(&News::NotStarted { cause, is_missing });
            saying.say_all().await;
            return Ok(());
        }
    };
    let mut warden = Warden {
        saying,
        group,
        is_reaped: false,
        terminal: Terminal::open(),
        schedule,
        kill_after: Duration::from_millis(kill_after_ms),
        wait_all,
        outlived_at: None,
        end_at: None,
        is_alone: false,
        forbidden: None,
    };
    if foreground {
        warden.give_terminal();
    }
    let group = group.as_raw_nonzero().get();
    warden.saying.say(&News::Started { group });
    warden.watch(&mut hearing, &mut children).await
}

struct Warden {
    saying: Saying,
    /// The command, which leads its group.
    group: Pid,
    /// The command was reaped, so its pid may be reused for another group.
    is_reaped: bool,
    terminal: Option<Terminal>,
    schedule: Schedule,
    kill_after: Duration,
    wait_all: bool,
    /// When processes that outlive the command get TERM.
    outlived_at: Option<BootTime>,
    /// All got TERM, and are killed at this moment.
    end_at: Option<BootTime>,
    /// The wrapper is gone.
    is_alone: bool,
    /// A process that we may not kill; the wrapper knows.
    forbidden: Option<Pid>,
}

impl Warden {
    async fn watch(
        &mut self,
        hearing: &mut Hearing<Order>,
        children: &mut tokio::signal::unix::Signal,
    ) -> Result<()> {
        let mut alarm = Alarm::new().context("cannot set an alarm")?;
        let mut rounds = 0;
        loop {
            if self.reap() {
                self.saying.say(&News::AllGone);
                self.saying.say_all().await;
                return Ok(());
            }
            if self.kill_at().is_some_and(BootTime::has_come) {
                self.kill();
                tokio::time::sleep(tree::pause_after_killing(rounds)).await;
                rounds += 1;
                continue;
            }
            alarm.set(self.next_moment())?;
            tokio::select! {
                biased;
                () = alarm.rung() => self.look_at_the_time(),
                _ = children.recv() => {}
                order = hearing.next(), if !self.is_alone => match order? {
                    Some(order) => self.obey(&order)?,
                    None => self.go_on_alone(),
                },
                () = self.saying.say_more(), if self.saying.has_unsaid() => {}
            }
        }
    }

    /// Reaps ended children; true if none is left.
    fn reap(&mut self) -> bool {
        loop {
            match tree::reap() {
                Reaped::Child(pid, status) if pid == self.group && !self.is_reaped => {
                    self.changed(status);
                }
                Reaped::Child(..) => {}
                Reaped::NoChange => return false,
                Reaped::NoChild => return true,
            }
        }
    }

    fn changed(&mut self, status: WaitStatus) {
        if let Some(signal) = status.stopping_signal() {
            self.stopped(signal);
            return;
        }
        let Some(how) = How::of(status) else { return };
        self.is_reaped = true;
        if !self.wait_all {
            self.outlived_at = Some(BootTime::now().plus(LINGER));
        }
        self.saying.say(&News::Ended(how));
    }

    fn stopped(&mut self, signal: i32) {
        let wanted_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw);
        let has_terminal = self
            .terminal
            .as_ref()
            .is_some_and(|it| it.is_of(self.group));
        if wanted_terminal.contains(&signal) && has_terminal {
            // It wanted the terminal before it was given to it.
            self.signal(Signal::CONT);
        } else {
            self.saying.say(&News::Stopped(signal));
        }
    }

    fn obey(&mut self, order: &Order) -> Result<()> {
        match order {
            Order::Start { .. } => bail!("the wrapper sent a second command"),
            Order::Keep(schedule) => {
                self.schedule = *schedule;
                self.saying.say(&News::Kept);
            }
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(*number) {
                    self.signal(signal);
                }
            }
            Order::Continue { foreground } => {
                if *foreground {
                    self.give_terminal();
                }
                self.signal(Signal::CONT);
            }
            Order::End { kill_at } => self.end(*kill_at),
        }
        Ok(())
    }

    /// The wrapper was killed. The lease lasts for a while, in which no other client can acquire
    /// the lock: the command may use it to terminate cleanly.
    fn go_on_alone(&mut self) {
        self.is_alone = true;
        self.end(BootTime::now().plus(self.kill_after));
    }

    fn look_at_the_time(&mut self) {
        if self.end_at.is_some() {
            return;
        }
        if self.schedule.term_at.is_some_and(BootTime::has_come) {
            self.saying.say(&News::Ending);
            let kill_at = self.schedule.kill_at;
            self.end(kill_at.unwrap_or_else(BootTime::now));
        } else if self.outlived_at.is_some_and(BootTime::has_come) {
            let count = tree::descendants(&[]).len();
            self.saying.say(&News::Outlived(count));
            self.end(BootTime::now().plus(self.kill_after));
        }
    }

    /// Sends TERM to all, and kills them at that moment.
    fn end(&mut self, kill_at: BootTime) {
        let is_first = self.end_at.is_none();
        self.end_at = Some(self.end_at.map_or(kill_at, |known| known.min(kill_at)));
        if is_first && !kill_at.has_come() {
            // A stopped process would not get the signal.
            tree::signal_all(&[Signal::TERM, Signal::CONT], &[]);
        }
    }

    fn kill(&mut self) {
        // The group in one step, then the processes that left it.
        if !self.is_reaped {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
        let forbidden = tree::signal_all(&[Signal::KILL], &[]);
        if let Some(pid) = forbidden.filter(|_| self.forbidden.is_none()) {
            self.forbidden = forbidden;
            let pid = pid.as_raw_nonzero().get();
            self.saying.say(&News::Forbidden(pid));
        }
    }

    fn kill_at(&self) -> Option<BootTime> {
        let moments = [self.end_at, self.schedule.kill_at];
        moments.into_iter().flatten().min()
    }

    fn next_moment(&self) -> Option<BootTime> {
        let to_tell = [self.schedule.term_at, self.outlived_at];
        let to_tell = to_tell.into_iter().flatten().min();
        let to_tell = to_tell.filter(|_| self.end_at.is_none());
        to_tell.into_iter().chain(self.kill_at()).min()
    }

    /// Signals the command's group. A process that has ended needs no signal.
    fn signal(&self, signal: Signal) {
        if self.is_reaped {
            tree::signal_group(self.group, signal);
        } else {
            let _ = kill_process_group(self.group, signal);
        }
    }

    fn give_terminal(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| !self.is_reaped) {
            terminal.give_to(self.group);
        }
    }
}

impl How {
    /// `None` if it has not ended.
    pub fn of(status: WaitStatus) -> Option<Self> {
        let small = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Self::Code(small(code))),
            (_, Some(signal)) => Some(Self::Signal(small(signal))),
            _ => None,
        }
    }
}

/// Starts the command in its own group.
fn spawn(program: &Program, environment: &[(String, String)]) -> io::Result<Pid> {
    let start = |mut command: Command| {
        command.process_group(0).envs(environment.iter().cloned());
        // Reaped by `tree::reap`, like every other child.
        command.spawn().map(|child| Pid::from_child(&child))
    };
    let mut command = Command::new(&program.path);
    command.arg0(&program.called).args(&program.arguments);
    match start(command) {
        Err(error) if error.raw_os_error() == Some(ENOEXEC) => {
            // A script without `#!` is run by the shell.
            let mut command = Command::new(SHELL);
            command.arg(&program.path).args(&program.arguments);
            start(command)
        }
        started => started,
    }
}
