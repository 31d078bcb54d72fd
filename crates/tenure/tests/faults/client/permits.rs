//! Callers that want permits of a semaphore.
//!
//! A slot is written down as a lock of its own, `<semaphore>#<number>`, so that all that holds for an
//! exclusive lock is checked for each slot. The whole permit is written down under the semaphore's name.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure::{Permit, Tenure};
use tenure_testkit::history::{Mode, Outcome, Pending};

use super::tally::Kind;
use super::track::{Track, outcome, settle};
use super::{Context, End, PERMITS, PERMITS_MAX, REST_TICK, SEMAPHORE_COUNT, Way, Wish};

const AFTER_FAILURE: Duration = Duration::from_millis(3);
/// How often a holder looks at what it believes.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What an acquire with a limit may take beyond it by its own account.
const WITHIN_EXTRA: Duration = Duration::from_millis(200);

pub struct PermitWorker {
    context: Arc<Context>,
    task: u64,
    tenure: Tenure,
    rng: StdRng,
}

impl PermitWorker {
    pub fn new(context: &Arc<Context>, task: u64, tenure: &Tenure, rng: StdRng) -> Self {
        Self {
            context: Arc::clone(context),
            task,
            tenure: tenure.clone(),
            rng,
        }
    }

    pub async fn run(mut self) {
        while !self.context.finish.is_cancelled() {
            if self.context.rests() {
                tokio::time::sleep(REST_TICK).await;
                continue;
            }
            let name = format!("{PERMITS}{}", self.rng.random_range(0..SEMAPHORE_COUNT));
            let count = if self.rng.random_bool(0.3) { 2 } else { 1 };
            let wish = Wish {
                lock: name,
                ..Wish::fair(&mut self.rng)
            };
            match self.acquire(&wish, count).await {
                Some(permit) => self.hold(&wish, permit).await,
                None => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
    }

    /// The permit, and what is written down about it: as a whole, and each slot.
    async fn acquire(&self, wish: &Wish, count: u32) -> Option<(Permit, Vec<Track>)> {
        let (context, recorder) = (&self.context, &self.context.recorder);
        let semaphore = self.tenure.semaphore(&wish.lock, PERMITS_MAX).ttl(wish.ttl);
        let semaphore = if wish.fixed {
            semaphore.no_renewal()
        } else {
            semaphore
        };
        let call = recorder.acquire(self.task, &wish.lock).mode(Mode::Permit);
        let asked_ns = call.called_ns();
        let result = match wish.way {
            Way::Try => {
                let timed = context.tally.begin(Kind::TryAcquire);
                let result = semaphore.try_acquire_many(count).await;
                timed.end(context.manner.unreachable_after);
                result
            }
            Way::Within(limit) => {
                let timed = context.tally.begin(Kind::AcquireWithin);
                let result = semaphore.wait(limit).acquire_many(count).await;
                timed.end(limit + WITHIN_EXTRA);
                result.map(Some)
            }
            Way::Wait => {
                context.tally.count(Kind::Acquire);
                tokio::select! {
                    result = semaphore.acquire_many(count) => result.map(Some),
                    // Dropped here: the call is recorded as cancelled.
                    () = context.finish.cancelled() => return None,
                }
            }
            Way::Cancel(after) => {
                context.tally.count(Kind::Cancel);
                let acquiring = semaphore.acquire_many(count);
                let acquired = tokio::time::timeout(after, acquiring).await;
                acquired.ok()?.map(Some)
            }
        };
        let (permit, whole) = settle(context, self.task, call, result)?;
        let mut tracks = vec![whole];
        for slot in permit.slots() {
            let name = format!("{}#{slot}", wish.lock);
            let call = recorder.acquire(self.task, &name).called_at(asked_ns);
            tracks.push(Track::begin_as(context, self.task, call, &permit, name));
        }
        Some((permit, tracks))
    }

    async fn hold(&mut self, wish: &Wish, (permit, mut tracks): (Permit, Vec<Track>)) {
        let end = tokio::time::Instant::now() + wish.hold;
        while tokio::time::Instant::now() < end && !self.context.finish.is_cancelled() {
            let nap = LOOK_EVERY.min(end.saturating_duration_since(tokio::time::Instant::now()));
            let is_lost = tokio::select! {
                biased;
                _ = permit.lost() => true,
                () = tokio::time::sleep(nap) => false,
            };
            for track in &mut tracks {
                track.observe(&permit);
            }
            if is_lost {
                tracks.iter_mut().for_each(Track::lost);
                break;
            }
        }
        let calls: Vec<Pending<'_>> = tracks
            .iter_mut()
            .map(|track| track.releasing(&permit))
            .collect();
        let end = match wish.end {
            End::Drop | End::ReleaseCancelled => {
                self.context.tally.count(Kind::Drop);
                drop(permit);
                Outcome::Unknown
            }
            End::Release => {
                let timed = self.context.tally.begin(Kind::Release);
                let released = permit.release().await;
                timed.end(self.context.manner.unreachable_after);
                outcome(&released)
            }
        };
        for call in calls {
            call.end(end);
        }
    }
}
