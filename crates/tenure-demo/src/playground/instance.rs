//! A selling process, played by a thread with its own runtime and clients.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::book::Sold;
use super::crowd::Buyer;
use super::plan::{Fault, Mode};
use super::report::InstanceState;
use super::run::Run;
use super::stage::{Place, Till};
use crate::runtime;
use crate::ways::{Closed, Counter, Deal};

/// A selling instance.
struct Instance {
    run: Arc<Run>,
    /// Counted from 0.
    number: usize,
    till: Till,
    /// Cancelled when it is killed or the run is stopped.
    ended: CancellationToken,
}

/// Starts an instance. The returned channel closes when it ends.
pub(crate) fn start(run: &Arc<Run>, place: &Place, number: u64) -> oneshot::Receiver<()> {
    let (alive, ended) = oneshot::channel();
    let (run, place) = (Arc::clone(run), place.clone());
    let failed_run = Arc::clone(&run);
    let started = thread::Builder::new()
        .name(format!("shop-{}", number + 1))
        .spawn(move || {
            if let Err(error) = runtime::block_on(live(&run, &place, number)) {
                run.fail(format!("{error:#}"));
            }
            drop(alive);
        });
    if let Err(error) = started {
        failed_run.fail(format!("cannot start a thread: {error}"));
    }
    ended
}

async fn live(run: &Arc<Run>, place: &Place, number: u64) -> Result<()> {
    let opened = tokio::select! {
        opened = place.open(number + 1) => opened?,
        () = run.stop.cancelled() => return Ok(()),
    };
    let instance = Arc::new(Instance {
        run: Arc::clone(run),
        number: usize::try_from(number)?,
        till: opened,
        ended: run.stop.child_token(),
    });
    let mut serving = JoinSet::new();
    for _ in 0..run.plan.share(number) {
        serving.spawn(Arc::clone(&instance).serve());
    }
    let mut served = Ok(());
    while let Some(ended) = serving.join_next().await {
        served = served.and(ended?);
        if served.is_err() {
            instance.ended.cancel();
        }
    }
    instance.till.close().await;
    served
}

impl Instance {
    /// Serves one buyer after another until no more come.
    async fn serve(self: Arc<Self>) -> Result<()> {
        loop {
            let next = tokio::select! {
                biased;
                () = self.ended.cancelled() => None,
                next = self.run.crowd.next() => next,
            };
            let Some(buyer) = next else {
                return Ok(());
            };
            self.attend(buyer).await?;
            // The embedded store never waits: yield to other tasks here.
            tokio::task::yield_now().await;
        }
    }

    async fn attend(&self, buyer: Buyer) -> Result<()> {
        let asked = Instant::now();
        let (counter, fault) = self.choose();
        let begun = tokio::select! {
            biased;
            begun = counter.begin() => begun?,
            () = self.ended.cancelled() => return Ok(()),
        };
        let closed = match begun {
            Some(deal) => self.conclude(deal, &buyer, fault).await?,
            None => Some(Closed::SoldOut),
        };
        self.note(buyer, closed, asked.elapsed());
        Ok(())
    }

    /// Chooses the counter for the next buyer. To drop renewals, the lease must be taken without them.
    fn choose(&self) -> (&Counter, Option<(Fault, usize)>) {
        if let Some(locked) = &self.till.locked
            && let Some(fault) = self.run.next_fault(|fault| fault == Fault::DropRenewals)
        {
            return (&locked.unrenewed, Some(fault));
        }
        (&self.till.counter, None)
    }

    /// Does the work of an order and closes it, unless a fault strikes its holder. Returns `None` if the
    /// buyer gets no answer.
    async fn conclude(
        &self,
        deal: Deal,
        buyer: &Buyer,
        fault: Option<(Fault, usize)>,
    ) -> Result<Option<Closed>> {
        if deal.guard().is_some() {
            self.run.book().taken();
        }
        let is_fit = |fault| fault != Fault::DropRenewals || self.till.locked.is_none();
        match fault.or_else(|| self.run.next_fault(is_fit)) {
            Some((Fault::PauseHolder, number)) => self.pause(deal, buyer, number).await,
            Some((Fault::KillHolder, number)) if self.dies(number) => {
                deal.abandon()?;
                Ok(None)
            }
            Some((Fault::DropRenewals, number)) if deal.guard().is_some() => {
                self.outlive(&deal, number).await;
                Ok(None)
            }
            Some((Fault::DropRenewals, number)) => {
                let text = "nothing to drop: there are no renewals without a lock";
                self.run.book().strike(number, text.to_owned());
                self.work(deal, buyer).await
            }
            Some((Fault::KillHolder, _)) | None => self.work(deal, buyer).await,
        }
    }

    /// Processes an order without faults.
    async fn work(&self, deal: Deal, buyer: &Buyer) -> Result<Option<Closed>> {
        let time = self.work_of(buyer.number);
        if self.run.plan.mode != Mode::Script && !time.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = self.ended.cancelled() => return Ok(None),
            }
        }
        Ok(Some(deal.close(&name_of(buyer)).await?))
    }

    /// Between 0.5 and 1.5 times the planned time; deterministic for a seed.
    fn work_of(&self, buyer: u64) -> Duration {
        let mean_us = self.run.plan.work_ms * 1_000;
        let share = mixed(u64::from(self.run.seed) << 32 | buyer) % 1_001;
        Duration::from_micros(mean_us / 2 + mean_us * share / 1_000)
    }

    /// The whole instance pauses longer than its lease, and then continues as if nothing had
    /// happened.
    async fn pause(&self, deal: Deal, buyer: &Buyer, number: usize) -> Result<Option<Closed>> {
        self.block(&deal, number);
        let closed = deal.close(&name_of(buyer)).await?;
        let what = after_pause(closed, self.run.plan.mode);
        self.run.book().append_effect(number, &what);
        Ok(Some(closed))
    }

    /// Blocks this thread, and with it the runtime and all its buyers.
    fn block(&self, deal: &Deal, number: usize) {
        let length = self.run.plan.ttl() * 3 / 2 + Duration::from_millis(200);
        let (instance, millis) = (self.number + 1, length.as_millis());
        let fence = deal.guard().map(tenure::Guard::fence);
        let holding = fence.map_or_else(String::new, |fence| format!(" with fence {fence}"));
        let text = format!("instance {instance} paused for {millis} ms{holding}");
        let lock = self.till.locked.as_ref().map(|locked| &locked.lock);
        let now_is = |state| self.run.book().instance_is(self.number, state);
        self.run.book().strike(number, text);
        now_is(InstanceState::Paused);
        self.run.pauses.halt(lock, length);
        now_is(InstanceState::Selling);
    }

    /// Works until its guard reports the lost lock, because nothing renews the lease.
    async fn outlive(&self, deal: &Deal, number: usize) {
        let Some(guard) = deal.guard() else {
            return;
        };
        let (instance, begun) = (self.number + 1, Instant::now());
        let text = format!("instance {instance} keeps working without renewals");
        self.run.book().strike(number, text);
        tokio::select! {
            _ = guard.lost() => {}
            () = self.ended.cancelled() => return,
        }
        let after = begun.elapsed().as_millis();
        let mut book = self.run.book();
        book.lost += 1;
        book.append_effect(
            number,
            &format!("; after {after} ms its guard reported the lost lock, and it sold nothing"),
        );
    }

    /// Kills the instance, unless it is the last one.
    fn dies(&self, number: usize) -> bool {
        let instance = self.number + 1;
        let mut book = self.run.book();
        if book.living() == 1 {
            book.strike(
                number,
                format!("skipped: instance {instance} is the only one"),
            );
            return false;
        }
        let what = match self.run.plan.mode {
            Mode::Lock => "died holding the lock without releasing it",
            Mode::Naive => "died between read and write: nothing was written",
            Mode::Script => "died: with a script it held nothing",
        };
        book.strike(number, format!("instance {instance} {what}"));
        book.instance_is(self.number, InstanceState::Killed);
        if self.run.plan.mode == Mode::Lock {
            book.orphan(number);
        }
        drop(book);
        self.ended.cancel();
        true
    }

    fn note(&self, buyer: Buyer, closed: Option<Closed>, after: Duration) {
        let mut book = self.run.book();
        match closed {
            Some(Closed::Sold { unit }) => book.sold(Sold {
                buyer: buyer.number,
                unit,
                instance: self.number,
            }),
            Some(Closed::SoldOut) => book.sold_out += 1,
            // No answer: the buyer retries at another instance.
            Some(Closed::Stale { .. }) => {
                book.refused_stale += 1;
                return;
            }
            None => return,
        }
        book.answered(after);
        drop(book);
        buyer.answered();
    }
}

/// Describes the outcome of an order whose instance was paused.
fn after_pause(closed: Closed, mode: Mode) -> String {
    match (closed, mode) {
        (Closed::Stale { seen }, _) => {
            format!("; its write was refused: the stock had already seen fence {seen}")
        }
        (Closed::SoldOut, _) => "; everything was sold by then".to_owned(),
        (Closed::Sold { .. }, Mode::Naive) => {
            "; then it wrote back its old value, so sold units were sold again".to_owned()
        }
        (Closed::Sold { .. }, Mode::Lock) => {
            "; no other client had written, and it sold".to_owned()
        }
        (Closed::Sold { .. }, Mode::Script) => {
            "; no client waited for it: a script holds nothing".to_owned()
        }
    }
}

fn name_of(buyer: &Buyer) -> String {
    format!("buyer-{}", buyer.number)
}

/// Spreads consecutive numbers over all 64 bits (the finalizer of splitmix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
