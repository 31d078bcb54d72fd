//! Many tasks, each on a name of its own.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::contender::Contender;

/// The tasks, and the names of their locks.
pub struct Many<'a, N> {
    runtime: &'a Runtime,
    tasks: usize,
    /// How long they run at a time.
    slice: Duration,
    name_of: N,
}

impl<'a, N: Fn(usize) -> String> Many<'a, N> {
    pub fn new(runtime: &'a Runtime, (tasks, slice): (usize, Duration), name_of: N) -> Self {
        Self {
            runtime,
            tasks,
            slice,
            name_of,
        }
    }

    /// Acquires and releases per second, by all tasks together.
    pub fn pairs_per_second(&self, contender: &impl Contender) -> f64 {
        let begun = Instant::now();
        let end = begun + self.slice;
        let task = |number: usize| {
            let (contender, name) = (contender.clone(), (self.name_of)(number));
            self.runtime.spawn(async move {
                let mut count = 0_u64;
                while Instant::now() < end {
                    let held = contender.acquire(&name).await;
                    contender.release(held).await;
                    count += 1;
                }
                count
            })
        };
        let running: Vec<_> = (0..self.tasks).map(task).collect();
        let counts = running.into_iter().map(|task| self.runtime.block_on(task));
        let pairs: u64 = counts.map(|count| count.expect("no task panics")).sum();
        pairs as f64 / begun.elapsed().as_secs_f64()
    }
}
