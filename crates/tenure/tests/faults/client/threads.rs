//! The work of a process without an async runtime.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use tenure::ErrorKind;
use tenure::blocking::{Guard, Lock, Locks};
use tenure_testkit::history::Outcome;

use super::tally::Kind;
use super::track::{Track, complain_if_wrong, outcome, settle};
use super::{
    CROWD_TASKS, Context, Eager, End, REST_TICK, Role, SHUTDOWN_LIMIT, Way, Wish, connect,
};

/// One of them wants the hot lock, two the brisk one.
const THREADS: u64 = 7;
const AFTER_FAILURE: Duration = Duration::from_millis(3);
/// How often a holder looks at what it believes.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const WITHIN_EXTRA: Duration = Duration::from_millis(200);

pub fn run(context: &Arc<Context>) {
    let connected = connect(context, || {
        context.access.connect_blocking(Some(&context.manner))
    });
    let Some(locks) = connected else { return };
    println!("id {}", locks.id());
    let threads = match context.role {
        Role::Work => THREADS,
        Role::Crowd => CROWD_TASKS as u64,
    };
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let worker = Worker {
                context: Arc::clone(context),
                task: number,
                locks: locks.clone(),
                rng: context.seed.part(number).rng(),
            };
            let eager = match number {
                _ if context.role == Role::Crowd => Eager::Crowd,
                0 => Eager::Hot,
                1 | 2 => Eager::Brisk,
                _ => Eager::No,
            };
            thread::spawn(move || worker.run(eager))
        })
        .collect();
    for thread in threads {
        // A panic has been printed, and the test process reads that.
        let _ = thread.join();
    }
    let timed = context.tally.begin(Kind::Shutdown);
    for lease in locks.shutdown(SHUTDOWN_LIMIT) {
        println!("left {lease:?}");
    }
    timed.end(SHUTDOWN_LIMIT);
}

struct Worker {
    context: Arc<Context>,
    task: u64,
    locks: Locks,
    rng: StdRng,
}

impl Worker {
    fn run(mut self, eager: Eager) {
        while !self.context.finish.is_cancelled() {
            if self.context.rests() {
                thread::sleep(REST_TICK);
                continue;
            }
            let handed_off = self.locks.stats().handed_off;
            self.context.tally.note_handed_off(handed_off);
            let wish = Wish::for_one(eager, &self.context, &mut self.rng);
            let lock = self.locks.lock(&wish.lock);
            let lock = if wish.fixed {
                lock.ttl(wish.ttl).no_renewal()
            } else {
                lock.ttl(wish.ttl)
            };
            let lock = if wish.replicas > 0 {
                lock.replicas(wish.replicas)
            } else {
                lock
            };
            match self.acquire(&lock, &wish) {
                Some((guard, track)) => self.hold(&lock, &wish, guard, track),
                None => thread::sleep(AFTER_FAILURE),
            }
        }
    }

    fn acquire(&self, lock: &Lock<tenure::Unordered>, wish: &Wish) -> Option<(Guard, Track)> {
        let context = &self.context;
        let call = context.recorder.acquire(self.task, &wish.lock);
        let result = match wish.way {
            Way::Try | Way::Cancel(_) => {
                let timed = context.tally.begin(Kind::TryAcquire);
                let result = lock.try_acquire();
                timed.end(context.manner.unreachable_after);
                result
            }
            Way::Within(_) | Way::Wait => {
                // Nothing can call a thread back that waits without limit.
                let limit = match wish.way {
                    Way::Within(limit) => limit,
                    _ => Duration::from_secs(1),
                };
                let timed = context.tally.begin(Kind::AcquireWithin);
                let result = lock.clone().wait(limit).acquire();
                timed.end(limit + WITHIN_EXTRA);
                result.map(Some)
            }
        };
        settle(context, self.task, call, result)
    }

    fn hold(&self, lock: &Lock<tenure::Unordered>, wish: &Wish, guard: Guard, mut track: Track) {
        // The register is left to processes that can watch their guard meanwhile.
        let mut chain = vec![guard];
        for _ in 0..wish.nested {
            self.context.tally.count(Kind::Reenter);
            match lock.acquire() {
                Ok(guard) => {
                    track.reentered(&guard);
                    chain.push(guard);
                }
                Err(error) if error.kind() == ErrorKind::Lost => {}
                Err(error) => println!("wrong: a nested acquire failed: {error}"),
            }
        }
        self.sleep(wish.hold, &chain[0], &mut track);
        while chain.len() > 1 {
            drop(chain.swap_remove(0));
            track.left();
        }
        let Some(guard) = chain.pop() else { return };
        if wish.ensures && !wish.fixed {
            let timed = self.context.tally.begin(Kind::Ensure);
            let _ = guard.ensure(wish.ttl / 2);
            timed.end(wish.ttl);
        }
        self.end(wish, guard, track);
    }

    fn sleep(&self, length: Duration, guard: &Guard, track: &mut Track) {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.context.finish.is_cancelled() {
            track.look(guard);
            thread::sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now())));
        }
    }

    fn end(&self, wish: &Wish, guard: Guard, mut track: Track) {
        let call = track.releasing(&guard);
        if let End::Drop = wish.end {
            self.context.tally.count(Kind::Drop);
            drop(guard);
            return call.end(Outcome::Unknown);
        }
        let timed = self.context.tally.begin(Kind::Release);
        let released = guard.release();
        timed.end(self.context.manner.unreachable_after);
        if let Err(error) = &released {
            complain_if_wrong("release", error);
        }
        call.end(outcome(&released));
    }
}
