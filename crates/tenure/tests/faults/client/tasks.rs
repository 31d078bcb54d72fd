//! The work of a process with an async runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure::{ErrorKind, Guard, Lock, Locks, Owner, Tenure, Unordered};
use tenure_testkit::history::{Outcome, now_ns};

use super::permits::PermitWorker;
use super::tally::Kind;
use super::track::{Track, complain_if_wrong, outcome, settle};
use super::{
    CROWD_TASKS, Context, Eager, End, REST_TICK, Role, SHUTDOWN_LIMIT, Way, Wish, connect,
};

const HOT_TASKS: usize = 2;
/// So many that there is mostly one to hand the lock on to.
const BRISK_TASKS: usize = 4;
const COLD_TASKS: usize = 7;
const FAIR_TASKS: usize = 2;
const PERMIT_TASKS: usize = 2;
const AFTER_FAILURE: Duration = Duration::from_millis(3);
/// How often a holder looks at what it believes.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What `acquire_within` may take beyond its limit by its own account.
const WITHIN_EXTRA: Duration = Duration::from_millis(200);

pub fn run(context: &Arc<Context>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    // Permits and order are a `Tenure`'s only.
    let with_manner = Some(&context.manner);
    let connected = connect(context, || {
        runtime.block_on(async {
            if let Some(tenure) = context.access.connect_to_one(with_manner).await? {
                return Ok((tenure.as_locks().clone(), Some(tenure)));
            }
            Ok((context.access.connect(with_manner).await?, None))
        })
    });
    let Some((locks, tenure)) = connected else {
        return;
    };
    let tenure = tenure.filter(|_| context.access.counts_and_orders());
    println!("id {}", locks.id());
    let tasks: Vec<_> = (0..)
        .zip(eagers(context.role, tenure.is_some()))
        .map(|(number, eager)| {
            let rng = context.seed.part(number).rng();
            if let (Eager::Permits, Some(tenure)) = (eager, &tenure) {
                let worker = PermitWorker::new(context, number, tenure, rng);
                return runtime.spawn(worker.run());
            }
            let worker = Worker {
                context: Arc::clone(context),
                task: number,
                owner: locks.owner(),
                locks: locks.clone(),
                tenure: tenure.clone(),
                rng,
            };
            runtime.spawn(worker.run(eager))
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            // A panic has been printed, and the test process reads that.
            let _ = task.await;
        }
        let waiting = wait_to_the_end(&locks);
        tokio::time::sleep(Duration::from_millis(
            context.seed.rng().random_range(0..50),
        ))
        .await;
        let timed = context.tally.begin(Kind::Shutdown);
        for lease in locks.shutdown(SHUTDOWN_LIMIT).await {
            println!("left {lease:?}");
        }
        timed.end(SHUTDOWN_LIMIT);
        for waiter in waiting {
            if let Ok(Err(error)) = waiter.await
                && error.kind() != ErrorKind::Closed
            {
                complain_if_wrong("waiting to the end", &error);
            }
        }
    });
}

/// What the tasks of a process want.
fn eagers(role: Role, counts_and_orders: bool) -> Vec<Eager> {
    if role == Role::Crowd {
        return vec![Eager::Crowd; CROWD_TASKS];
    }
    let of_each = [
        (Eager::Hot, HOT_TASKS),
        (Eager::Brisk, BRISK_TASKS),
        (Eager::No, COLD_TASKS),
        (Eager::Fair, if counts_and_orders { FAIR_TASKS } else { 0 }),
        (
            Eager::Permits,
            if counts_and_orders { PERMIT_TASKS } else { 0 },
        ),
    ];
    let of_each = of_each.into_iter();
    of_each
        .flat_map(|(eager, count)| vec![eager; count])
        .collect()
}

/// Callers that wait when the client is shut down: they must not stay in the store's queue.
fn wait_to_the_end(locks: &Locks) -> Vec<tokio::task::JoinHandle<tenure::Result<()>>> {
    let waiter = |number| {
        let lock = locks.lock(if number == 0 {
            super::HOT
        } else {
            super::BRISK
        });
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    };
    (0..4).map(waiter).collect()
}

struct Worker {
    context: Arc<Context>,
    task: u64,
    locks: Locks,
    tenure: Option<Tenure>,
    owner: Owner<Unordered>,
    rng: StdRng,
}

impl Worker {
    async fn run(mut self, eager: Eager) {
        while !self.context.finish.is_cancelled() {
            if self.context.rests() {
                tokio::time::sleep(REST_TICK).await;
                continue;
            }
            let handed_off = self.locks.stats().handed_off;
            self.context.tally.note_handed_off(handed_off);
            let wish = Wish::for_one(eager, &self.context, &mut self.rng);
            if let (true, Some(tenure)) = (wish.fair, &self.tenure) {
                let lock = tenure.lock(&wish.lock).fair();
                self.take_turn(lock, wish).await;
                continue;
            }
            // A lock of the owner would wait for an earlier hold of this task to be released.
            let lock = if wish.nested > 0 {
                self.owner.lock(&wish.lock)
            } else {
                self.locks.lock(&wish.lock)
            };
            self.take_turn(lock, wish).await;
        }
    }

    /// Acquires the lock once, and holds it for a while.
    async fn take_turn<D: Clone>(&mut self, lock: Lock<D>, wish: Wish) {
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
        match self.acquire(&lock, &wish).await {
            Some((guard, track)) => self.hold(&lock, &wish, guard, track).await,
            // A server that refuses at once shall not be asked in a tight loop.
            None => tokio::time::sleep(AFTER_FAILURE).await,
        }
    }

    async fn acquire<D: Clone>(&self, lock: &Lock<D>, wish: &Wish) -> Option<(Guard, Track)> {
        let context = &self.context;
        let call = context.recorder.acquire(self.task, &wish.lock);
        let finish = context.finish.cancelled();
        let patience = context.manner.unreachable_after;
        let result = match wish.way {
            Way::Try => {
                let timed = context.tally.begin(Kind::TryAcquire);
                let result = lock.try_acquire().await;
                timed.end(patience);
                result
            }
            Way::Within(limit) => {
                let timed = context.tally.begin(Kind::AcquireWithin);
                let result = lock.clone().wait(limit).acquire().await;
                timed.end(limit + WITHIN_EXTRA);
                result.map(Some)
            }
            Way::Wait => {
                context.tally.count(Kind::Acquire);
                tokio::select! {
                    result = lock.acquire() => result.map(Some),
                    // Dropped here: the call is recorded as cancelled.
                    () = finish => return None,
                }
            }
            Way::Cancel(after) => {
                context.tally.count(Kind::Cancel);
                tokio::time::timeout(after, lock.acquire())
                    .await
                    .ok()?
                    .map(Some)
            }
        };
        settle(context, self.task, call, result)
    }

    async fn hold<D>(&mut self, lock: &Lock<D>, wish: &Wish, guard: Guard, mut track: Track) {
        if wish.changes_register {
            self.change_register(&guard, &mut track).await;
        }
        let mut chain = vec![guard];
        for _ in 0..wish.nested {
            self.context.tally.count(Kind::Reenter);
            match lock.try_acquire().await {
                Ok(Some(guard)) => {
                    track.reentered(&guard);
                    chain.push(guard);
                }
                Ok(None) => println!("wrong: a nested acquire found the lock busy"),
                // The lease was lost: never papered over by a fresh one.
                Err(error) if error.kind() == ErrorKind::Lost => {}
                Err(error) => println!("wrong: a nested acquire failed: {error}"),
            }
        }
        let cut_short = self.context.finish.clone();
        let holding = async {
            tokio::select! {
                () = tokio::time::sleep(wish.hold) => {}
                () = cut_short.cancelled() => {}
            }
        };
        watching(&chain[0], &mut track, holding).await;
        if wish.ensures && !wish.fixed {
            self.ensure(&chain[0], &mut track, wish.ttl).await;
        }
        // In any order; the last one that goes ends the hold.
        while chain.len() > 1 {
            let guard = chain.swap_remove(self.rng.random_range(0..chain.len()));
            drop(guard);
            track.left();
        }
        let Some(guard) = chain.pop() else { return };
        // Once more at the end, when the lease may well be lost: the fence must show.
        if wish.changes_register && self.rng.random_bool(0.3) {
            self.change_register(&guard, &mut track).await;
        }
        if wish.detaches && wish.nested == 0 && !wish.fixed {
            self.detach(wish, guard, track).await;
        } else {
            self.end(wish, guard, track).await;
        }
    }

    async fn ensure(&self, guard: &Guard, track: &mut Track, ttl: Duration) {
        let timed = self.context.tally.begin(Kind::Ensure);
        let _ = watching(guard, track, guard.ensure(ttl / 2)).await;
        timed.end(ttl);
    }

    /// Reads, works, and writes one more, whether the lock is still held or not: that is what the
    /// fence is for.
    async fn change_register(&mut self, guard: &Guard, track: &mut Track) {
        let (context, fence) = (Arc::clone(&self.context), track.fence());
        let work = Duration::from_micros(self.rng.random_range(0..3_000));
        // On a thread of its own: a client paused in the middle keeps the file locked.
        let changing = tokio::task::spawn_blocking(move || {
            let work = || std::thread::sleep(work);
            // Stale is as good: the register has refused us.
            let _ = context.register.increment(context.number, fence, work);
        });
        let _ = watching(guard, track, changing).await;
    }

    async fn detach(&mut self, wish: &Wish, guard: Guard, mut track: Track) {
        self.context.tally.count(Kind::Detach);
        track.look(&guard);
        let at_ns = now_ns();
        let Ok(lease) = guard.detach() else {
            track.lost();
            return track.ended(at_ns);
        };
        let detached = track.detached(lease, at_ns);
        if self.rng.random_bool(0.5) {
            // The lease may expire meanwhile, and another client may get the lock.
            tokio::time::sleep(wish.ttl.mul_f64(self.rng.random_range(0.0..1.5))).await;
        }
        let timed = self.context.tally.begin(Kind::Adopt);
        let adopted = self.locks.adopt(&detached.lease).await;
        timed.end(self.context.manner.unreachable_after);
        match adopted {
            Ok(guard) => {
                let Some(mut track) = detached.adopted(&guard) else {
                    return;
                };
                watching(&guard, &mut track, tokio::time::sleep(wish.hold / 2)).await;
                self.end(wish, guard, track).await;
            }
            Err(error) => {
                complain_if_wrong("adopt", &error);
                detached.abandoned();
            }
        }
    }

    async fn end(&self, wish: &Wish, guard: Guard, mut track: Track) {
        let call = track.releasing(&guard);
        match wish.end {
            End::Release => {
                let timed = self.context.tally.begin(Kind::Release);
                let released = guard.release().await;
                timed.end(self.context.manner.unreachable_after);
                if let Err(error) = &released {
                    complain_if_wrong("release", error);
                }
                call.end(outcome(&released));
            }
            End::Drop => {
                self.context.tally.count(Kind::Drop);
                drop(guard);
                call.end(Outcome::Unknown);
            }
            End::ReleaseCancelled => {
                self.context.tally.count(Kind::Release);
                let _ = tokio::time::timeout(Duration::ZERO, guard.release()).await;
                call.end(Outcome::Unknown);
            }
        }
    }
}

/// Does `work` and writes down meanwhile what becomes of the hold.
async fn watching<T>(guard: &Guard, track: &mut Track, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            _ = guard.lost(), if !told => {
                told = true;
                track.lost();
            }
            done = &mut work => {
                track.observe(guard);
                return done;
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        track.observe(guard);
    }
}
