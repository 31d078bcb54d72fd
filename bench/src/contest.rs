//! Many tasks on one name, with no work inside: who gets how many turns, and after what wait.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_view::timings::Timings;
use tokio::task::JoinSet;

use crate::contender::Contender;

/// When turns count. The tasks begin before it, so that all of them stand in line when it opens.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub begin: Instant,
    pub end: Instant,
}

/// How a contest went.
#[derive(Debug)]
pub struct Contest {
    /// Turns of each task.
    pub turns: Vec<u64>,
    /// How often the next holder was another task than the last.
    pub changes: u64,
    /// Waits from the call to the guard.
    pub waits: Timings,
    /// How long turns counted.
    pub length: Duration,
    last: Option<usize>,
}

impl Window {
    pub fn after(warm_up: Duration, length: Duration) -> Self {
        let begin = Instant::now() + warm_up;
        let end = begin + length;
        Self { begin, end }
    }
}

impl Contest {
    pub fn empty(tasks: usize, length: Duration) -> Self {
        Self {
            turns: vec![0; tasks],
            changes: 0,
            waits: Timings::new(),
            length,
            last: None,
        }
    }

    pub fn turns(&self) -> u64 {
        self.turns.iter().sum()
    }

    pub fn turns_per_second(&self) -> f64 {
        self.turns() as f64 / self.length.as_secs_f64()
    }

    pub fn changes_per_second(&self) -> f64 {
        self.changes as f64 / self.length.as_secs_f64()
    }

    /// The most turns of a task by the fewest of one.
    pub fn shares(&self) -> f64 {
        let most = self.turns.iter().max().copied().unwrap_or_default();
        let fewest = self.turns.iter().min().copied().unwrap_or_default();
        most as f64 / fewest as f64
    }

    /// The wait that this many per cent of the turns did not exceed, in milliseconds.
    pub fn wait_ms(&self, percentile: f64) -> f64 {
        self.waits.percentile(percentile).as_secs_f64() * 1e3
    }

    fn turn(&mut self, task: usize, wait: Duration) {
        self.turns[task] += 1;
        self.changes += u64::from(self.last.replace(task) != Some(task));
        self.waits.note(wait);
    }
}

/// Lets `tasks` tasks take and release one lock as fast as they can.
pub async fn run(contender: &impl Contender, name: &str, tasks: usize, window: Window) -> Contest {
    let length = window.end - window.begin;
    let book = Arc::new(Mutex::new(Contest::empty(tasks, length)));
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let contestant = Contestant {
            contender: contender.clone(),
            name: name.to_owned(),
            task,
            window,
            book: Arc::clone(&book),
        };
        running.spawn(contestant.run());
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no task panics");
    }
    let book = Arc::into_inner(book).expect("all tasks have ended");
    book.into_inner().expect("no task panicked")
}

struct Contestant<C> {
    contender: C,
    name: String,
    task: usize,
    window: Window,
    book: Arc<Mutex<Contest>>,
}

impl<C: Contender> Contestant<C> {
    async fn run(self) {
        loop {
            let asked = Instant::now();
            let held = self.contender.acquire(&self.name).await;
            let granted = Instant::now();
            if granted >= self.window.begin && granted < self.window.end {
                // Whoever holds the lock is alone with the book: a lock that is found taken here
                // did not exclude, and its figures are worth nothing.
                let mut book = self.book.try_lock().expect("two hold the lock at once");
                book.turn(self.task, granted - asked);
            }
            self.contender.release(held).await;
            if granted >= self.window.end {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contest_knows_its_shares_and_changes() {
        let mut contest = Contest::empty(2, Duration::from_secs(2));
        for task in [0, 0, 1, 0] {
            contest.turn(task, Duration::from_millis(1));
        }
        assert_eq!((contest.turns(), contest.changes), (4, 3));
        assert!((contest.shares() - 3.0).abs() < 1e-9);
        assert!((contest.turns_per_second() - 2.0).abs() < 1e-9);
        assert!((contest.wait_ms(50.0) - 1.0).abs() < 0.01);
    }
}
