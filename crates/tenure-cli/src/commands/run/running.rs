//! While the command runs: the lease, the signals, the terminal and the warden.

use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tenure::{LockName, LostReason};
use tenure_view::time;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};

use super::boot_clock::{Alarm, BootTime};
use super::environment;
use super::held_locks::HeldLocks;
use super::options::{OnLost, Plan};
use super::signals::{self, Signals};
use super::talk::{Hearing, How, News, Order, Saying, Schedule};
use super::teller::Teller;
use super::terminal::{self, Terminal};
use super::tree::{self, Reaped};
use crate::exit::{Exit, Failed};

/// A second INT or TERM within this time means that the first was not enough.
const IMPATIENCE: Duration = Duration::from_secs(2);
/// How long a warden may be silent, at least and at most. Answering is all it has to do.
const SILENCE_MIN: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How many messages may be unanswered while nothing is wrong.
const UNANSWERED_USUAL: u32 = 3;
/// How long a warden may take to kill processes when it is ordered to do so at once.
const KILL_MAX: Duration = Duration::from_secs(1);
/// How long to read the last messages of the warden before this process takes over its work.
const LAST_WORD: Duration = Duration::from_millis(5);
/// How long to wait until messages are printed: at the end, and before this process stops itself,
/// because a stopped process cannot print.
const PRINT_MAX: Duration = Duration::from_secs(1);
const PRINT_MAX_STOPPED: Duration = Duration::from_secs(3);

/// The warden, from the wrapper's side.
pub struct Warden {
    pub pid: Pid,
    pub hearing: Hearing<News>,
    pub saying: Saying,
}

/// The result: no process of the command is left.
#[derive(Debug)]
pub struct Finished {
    how: Option<How>,
    why: Option<Why>,
    is_lost: bool,
    /// Whether this process was asked to end meanwhile.
    was_asked_to_end: bool,
    /// Resolves when the warden is gone.
    pub reaped: Option<oneshot::Receiver<()>>,
}

/// Why the command did not end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Lost,
    MaxTime,
    /// It was sent a second time.
    Impatience(u8),
    WardenGone,
}

/// Supervises the command until no process of it is left.
pub async fn watch(
    plan: &Plan,
    guard: HeldLocks<'_>,
    signals: &mut Signals,
    warden: Warden,
    terminal: Option<Terminal>,
) -> Result<Finished> {
    // Before the command starts, every child but the warden was there before: a shell that became
    // this process by `exec` leaves its children to it.
    let mut strangers = tree::children();
    strangers.retain(|child| *child != warden.pid);
    let mut running = Running {
        plan,
        guard,
        warden,
        strangers,
        terminal,
        teller: Teller::default(),
        margin: (plan.ttl / 10).clamp(Duration::from_millis(30), Duration::from_secs(1)),
        takeover: Alarm::new()?,
        dead_by: None,
        unanswered: 0,
        group: None,
        is_lost: false,
        is_stopped: false,
        own_stop: false,
        wanted_terminal: None,
        last_end: None,
        asked_by: None,
        how: None,
        why: None,
    };
    let done = match running.start()? {
        Next::GoOn => running.work(signals).await,
        Next::Done => Ok(()),
    };
    if done.is_err() {
        // Whatever went wrong: no process may be left when the lock is released.
        running.end_without_warden().await?;
    }
    running.take_terminal();
    running.teller.finish(PRINT_MAX).await;
    done?;
    Ok(Finished {
        how: running.how,
        why: running.why,
        is_lost: running.is_lost,
        was_asked_to_end: running.asked_by.is_some(),
        reaped: None,
    })
}

impl Finished {
    /// Whether the lock was lost and the loss was reported.
    pub fn knows_of_loss(&self) -> bool {
        self.is_lost || self.why == Some(Why::Lost)
    }

    /// Whether the command ended by itself, and nobody wanted this process to end.
    pub fn ended_by_itself(&self) -> bool {
        self.why.is_none() && !self.was_asked_to_end
    }

    /// Whether this process was asked to end by a signal.
    pub fn was_asked_to_end(&self) -> bool {
        self.was_asked_to_end
    }

    pub fn exit(&self, plan: &Plan) -> Exit {
        match (self.why, self.how) {
            (Some(Why::Lost), _) => plan.lost_exit,
            (Some(Why::MaxTime), _) => Exit::TimedOut,
            (Some(Why::Impatience(signal)), _) | (None, Some(How::Signal(signal))) => {
                Exit::Signal(signal)
            }
            (Some(Why::WardenGone), _) | (None, None) => Exit::Internal,
            (None, Some(How::Code(code))) => Exit::Code(code),
        }
    }
}

struct Running<'a> {
    plan: &'a Plan,
    guard: HeldLocks<'a>,
    warden: Warden,
    /// Children of this process that do not belong to the command.
    strangers: Vec<Pid>,
    /// If the command may have it.
    terminal: Option<Terminal>,
    teller: Teller,
    /// The time between the end of the command and the deadline of the lease.
    margin: Duration,
    /// When to do the warden's work if it has not.
    takeover: Alarm,
    /// When the warden must have ended all processes as ordered.
    dead_by: Option<BootTime>,
    /// How many messages the warden has not answered yet.
    unanswered: u32,
    group: Option<Pid>,
    /// The lock is lost, and the loss was reported.
    is_lost: bool,
    /// The command was stopped, and this process with it.
    is_stopped: bool,
    /// The next TSTP comes from this process itself.
    own_stop: bool,
    /// The signal that stopped the command when it wanted a terminal that we do not have, once it
    /// was reported.
    wanted_terminal: Option<i32>,
    last_end: Option<Instant>,
    /// The first signal that asks this process to end.
    asked_by: Option<Signal>,
    how: Option<How>,
    why: Option<Why>,
}

/// What to do after an event.
enum Next {
    GoOn,
    Done,
}

impl Running<'_> {
    fn start(&mut self) -> Result<Next> {
        if !self.guard.is_valid() {
            return Ok(self.too_late());
        }
        self.set_takeover()?;
        let mut environment = environment::of_locks(self.guard);
        let ttl_ms = self.plan.ttl.as_millis().to_string();
        environment.push(("TENURE_TTL_MS".to_owned(), ttl_ms));
        let order = Order::Start {
            environment,
            schedule: self.schedule(),
            kill_after_ms: u64::try_from(self.plan.kill_after.as_millis()).unwrap_or(u64::MAX),
            wait_all: self.plan.wait_all,
            foreground: self.has_terminal(),
        };
        self.warden.saying.say(&order);
        Ok(Next::GoOn)
    }

    /// The lock was lost before anything ran under it.
    fn too_late(&mut self) -> Next {
        self.is_lost = true;
        self.why = Some(Why::Lost);
        let names = self.plan.shown();
        self.teller.print(format!(
            "tenure: lost {names} before the command started: it was not run"
        ));
        Next::Done
    }

    async fn work(&mut self, signals: &mut Signals) -> Result<()> {
        let (mut tick, silence_max) = self.pace();
        // None also if the clock cannot represent it.
        let max_time = self.plan.max_time;
        let max_time = max_time.and_then(|time| Instant::now().checked_add(time));
        let guard = self.guard;
        loop {
            let too_long = async move {
                match max_time {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                news = self.warden.hearing.next() => {
                    if let Next::Done = self.hear(news?).await? {
                        return Ok(());
                    }
                }
                () = self.takeover.rung() => {
                    // If this process was stopped, there may be messages that it has not read yet.
                    let news = tokio::time::timeout(LAST_WORD, self.warden.hearing.next()).await;
                    let next = match news {
                        Ok(news) => self.hear(news?).await?,
                        Err(_) => self.replace_warden("does not respond").await?,
                    };
                    if let Next::Done = next {
                        return Ok(());
                    }
                }
                signal = signals.next() => self.on_signal(signal)?,
                (name, reason) = guard.lost(), if !self.is_lost => self.lost(&name, reason)?,
                () = too_long, if self.is_timed() => {
                    self.too_long()?;
                }
                _ = tick.tick() => {
                    if self.unanswered > silence_max {
                        self.replace_warden("does not respond").await?;
                        return Ok(());
                    }
                    self.keep()?;
                }
                () = self.warden.saying.say_more(), if self.warden.saying.has_unsaid() => {}
            }
        }
    }

    /// Whether a process may run for too long: not if all are being ended anyway.
    fn is_timed(&self) -> bool {
        self.why.is_none() && (self.how.is_none() || self.plan.wait_all)
    }

    /// How often the warden is notified of renewals, and how many messages it may leave unanswered.
    /// They are counted, not timed: if this process was stopped, its warden was not silent.
    fn pace(&self) -> (tokio::time::Interval, u32) {
        let ttl = self.plan.ttl;
        let pace = (ttl / 24).clamp(Duration::from_millis(20), Duration::from_secs(1));
        let mut tick = tokio::time::interval_at(Instant::now() + pace, pace);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let silence = ttl.clamp(SILENCE_MIN, SILENCE_MAX).as_millis() / pace.as_millis().max(1);
        (tick, u32::try_from(silence).unwrap_or(u32::MAX))
    }

    /// Until when the command may currently run.
    fn schedule(&self) -> Schedule {
        if self.plan.on_lost == OnLost::Warn {
            return Schedule::default();
        }
        // Half of the margin is for the warden, the other half for this process, in case the warden
        // is gone.
        let kill_at = self.latest().minus(self.margin / 2);
        Schedule {
            kill_at: Some(kill_at),
            term_at: Some(kill_at.minus(self.plan.kill_after)),
        }
    }

    /// Sets when to do the warden's work: when it should be done according to its orders, and when
    /// the lease leaves no more time.
    fn set_takeover(&mut self) -> Result<()> {
        let is_bound = self.plan.on_lost == OnLost::Kill && !self.is_lost;
        let latest = is_bound.then(|| self.latest());
        let moments = self.dead_by.into_iter().chain(latest);
        self.takeover.set(moments.min())?;
        Ok(())
    }

    /// When all processes of the command must be dead.
    fn latest(&self) -> BootTime {
        // The clock first: then the moment is too early rather than too late.
        let now = BootTime::now();
        // A warden that answers gets half of the margin for its work; one that does not is not
        // waited for.
        let reserve = if self.unanswered > UNANSWERED_USUAL {
            self.margin
        } else {
            self.margin / 2
        };
        now.plus(self.guard.remaining()).minus(reserve)
    }

    fn keep(&mut self) -> Result<()> {
        if self.is_lost && self.plan.on_lost == OnLost::Kill {
            return Ok(());
        }
        self.set_takeover()?;
        let schedule = self.schedule();
        self.unanswered += 1;
        self.warden.saying.say(&Order::Keep(schedule));
        Ok(())
    }

    async fn hear(&mut self, news: Option<News>) -> Result<Next> {
        self.unanswered = 0;
        let Some(news) = news else {
            return self.replace_warden("is gone").await;
        };
        match news {
            News::Started { group } => self.group = Pid::from_raw(group),
            News::NotStarted { cause, is_missing } => {
                let exit = if is_missing {
                    Exit::NotFound
                } else {
                    Exit::NotRunnable
                };
                let program = self.plan.program.path.display();
                return Err(Failed::new(exit, format!("cannot run `{program}`: {cause}")).into());
            }
            News::TooLate => return Ok(self.too_late()),
            News::Kept => {}
            News::Stopped(signal) => self.stopped(signal).await?,
            News::Ending => self.losing(),
            News::Ended(how) => self.how = Some(how),
            News::Outlived(count) => self.outlived(count),
            News::AllGone => return Ok(Next::Done),
            News::Forbidden(pid) => self.forbidden(pid),
        }
        Ok(Next::GoOn)
    }

    /// The lease was not renewed in time, and the warden has started to end the command.
    fn losing(&mut self) {
        if self.why.is_some() {
            return;
        }
        self.why = Some(Why::Lost);
        let kill_after = time::show(self.plan.kill_after);
        let cause = if self.plan.is_renewed {
            "it was not renewed in time".to_owned()
        } else {
            format!("its ttl of {} is over", time::show(self.plan.ttl))
        };
        let names = self.plan.shown();
        self.teller.print(format!(
            "tenure: losing {names}: {cause}; stopping the command (TERM, then KILL in \
             {kill_after})"
        ));
    }

    fn lost(&mut self, name: &LockName, reason: LostReason) -> Result<()> {
        self.is_lost = true;
        if self.plan.on_lost == OnLost::Warn {
            self.teller.print(format!(
                "tenure: lost `{name}`: {reason}; the command keeps running without it"
            ));
            return Ok(());
        }
        if self.why.is_none() {
            self.why = Some(Why::Lost);
            self.end(self.plan.kill_after)?;
            let kill_after = time::show(self.plan.kill_after);
            self.teller.print(format!(
                "tenure: lost `{name}`: {reason}; stopping the command (TERM, then KILL in \
                 {kill_after})"
            ));
        }
        Ok(())
    }

    fn too_long(&mut self) -> Result<()> {
        self.why = Some(Why::MaxTime);
        self.end(self.plan.kill_after)?;
        let length = time::show(self.plan.max_time.unwrap_or_default());
        let kill_after = time::show(self.plan.kill_after);
        self.complain(&format!(
            "the command exceeded {length}; stopping it (TERM, then KILL in {kill_after})"
        ));
        Ok(())
    }

    fn outlived(&mut self, count: usize) {
        let kill_after = time::show(self.plan.kill_after);
        let who = match count {
            1 => "a process".to_owned(),
            _ => format!("{count} processes"),
        };
        self.complain(&format!(
            "{who} started by the command outlived it; stopping (TERM, then KILL in {kill_after}; \
             use --wait-all to wait)"
        ));
    }

    fn forbidden(&mut self, pid: i32) {
        self.complain(&format!(
            "cannot stop process {pid}, started by the command: operation not permitted"
        ));
    }

    /// Orders the warden to end all processes, and ends them itself if the warden does not.
    fn end(&mut self, kill_after: Duration) -> Result<()> {
        let kill_at = BootTime::now().plus(kill_after);
        self.dead_by = Some(kill_at.plus(KILL_MAX));
        self.set_takeover()?;
        self.warden.saying.say(&Order::End { kill_at });
        Ok(())
    }

    fn on_signal(&mut self, signal: Signal) -> Result<()> {
        if signal == Signal::TSTP && std::mem::take(&mut self.own_stop) {
            return Ok(());
        }
        if signal == Signal::CONT && std::mem::take(&mut self.is_stopped) {
            self.go_on();
            return Ok(());
        }
        if [Signal::HUP, Signal::INT, Signal::TERM].contains(&signal) {
            self.asked_by = self.asked_by.or(Some(signal));
        }
        if signal == Signal::INT || signal == Signal::TERM {
            let now = Instant::now();
            let last = self.last_end.replace(now);
            if last.is_some_and(|last| now - last < IMPATIENCE) {
                self.why = self.why.or(Some(Why::Impatience(signals::number(signal))));
                return self.end(Duration::ZERO);
            }
        }
        let order = Order::Signal(signal.as_raw());
        self.warden.saying.say(&order);
        Ok(())
    }

    /// The command was stopped. If it had the terminal, the shell must get it back: so this process
    /// stops too, and the lease is not renewed. Otherwise renewals continue.
    async fn stopped(&mut self, signal: i32) -> Result<()> {
        if self.terminal.is_none() || self.how.is_some() {
            return Ok(());
        }
        self.take_terminal();
        if terminal::is_orphaned() {
            self.stopped_alone(signal);
            return Ok(());
        }
        if self.plan.on_lost == OnLost::Kill {
            let left = self.guard.remaining();
            let left = left.saturating_sub(self.margin + self.plan.kill_after);
            let left = time::show(left);
            self.complain(&format!(
                "stopped; continue within {left}, or the command is killed"
            ));
        }
        self.teller.finish(PRINT_MAX_STOPPED).await;
        self.own_stop = true;
        self.is_stopped = true;
        terminal::stop_own_group()?;
        Ok(())
    }

    /// The command was stopped, and no shell could continue it. So this process does, unless it was
    /// stopped because it wants a terminal that we do not have: it would want it again at once.
    fn stopped_alone(&mut self, signal: i32) {
        let wanted_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw);
        if !wanted_terminal.contains(&signal) || self.has_terminal() {
            self.go_on();
        } else if self.wanted_terminal.replace(signal).is_none() {
            self.complain(
                "the command wants the terminal, which another process group has; it is suspended \
                 until it gets CONT",
            );
        }
    }

    fn go_on(&mut self) {
        let foreground = self.has_terminal();
        let order = Order::Continue { foreground };
        self.warden.saying.say(&order);
    }

    /// Whether this process has the terminal, and so may give it to the command.
    fn has_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(Terminal::is_ours)
    }

    /// Takes the terminal back, if the command has it.
    fn take_terminal(&self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group)
            && terminal.is_of(group)
        {
            terminal.take();
        }
    }

    async fn replace_warden(&mut self, why: &str) -> Result<Next> {
        let _ = kill_process(self.warden.pid, Signal::KILL);
        self.complain(&format!("the warden {why}; stopping the command directly"));
        self.end_without_warden().await?;
        Ok(Next::Done)
    }

    /// Ends all descendants from here. Without their warden they are children of this process.
    async fn end_without_warden(&mut self) -> Result<()> {
        let _ = kill_process(self.warden.pid, Signal::KILL);
        let latest = self.latest();
        let kill_at = BootTime::now().plus(self.plan.kill_after).min(latest);
        let is_held = self.guard.is_valid() && !latest.has_come();
        let why = if is_held { Why::WardenGone } else { Why::Lost };
        self.why = self.why.or(Some(why));
        let (mut is_reported, mut rounds, mut forbidden) = (false, 0, None);
        while !self.reap() {
            if kill_at.has_come() {
                // Its pid stays the group's until it is reaped.
                if let Some(group) = self.group.filter(|leader| tree::is_child(*leader)) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let found = tree::signal_all(&[Signal::KILL], &self.strangers);
                if let Some(pid) = found.filter(|_| forbidden.is_none()) {
                    forbidden = found;
                    self.forbidden(pid.as_raw_nonzero().get());
                }
            } else if !is_reported && tree::look(self.warden.pid).is_none() {
                is_reported = true;
                tree::signal_all(&[Signal::TERM, Signal::CONT], &self.strangers);
            }
            tokio::time::sleep(tree::pause_after_killing(rounds)).await;
            rounds += 1;
        }
        Ok(())
    }

    /// Reaps ended children; true if only strangers are left.
    fn reap(&mut self) -> bool {
        loop {
            match tree::reap() {
                Reaped::Child(pid, status) => {
                    let how = How::of(status);
                    if Some(pid) == self.group {
                        self.how = how.or(self.how);
                    }
                    // Its pid may be reused from now on.
                    self.strangers.retain(|it| *it != pid || how.is_none());
                }
                Reaped::NoChild => return true,
                Reaped::NoChange if self.strangers.is_empty() => return false,
                Reaped::NoChange => {
                    let mut children = tree::children();
                    // All strangers are listed, or the list could not be read.
                    let is_whole = self.strangers.iter().all(|it| children.contains(it));
                    children.retain(|child| !self.strangers.contains(child));
                    return is_whole && children.is_empty();
                }
            }
        }
    }

    fn complain(&mut self, what: &str) {
        let names = self.plan.shown();
        self.teller.print(format!("tenure: {names}: {what}"));
    }
}
