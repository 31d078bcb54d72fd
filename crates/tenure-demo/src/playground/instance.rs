//! One of the processes that sell: a thread with a runtime and clients of its own.

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

/// One of the processes that sell.
struct Instance {
    run: Arc<Run>,
    /// From 0 on.
    number: usize,
    till: Till,
    /// Cancelled when it is killed, or the run is stopped.
    ended: CancellationToken,
}

/// Starts one. What is returned ends with it.
pub(crate) fn start(run: &Arc<Run>, place: &Place, number: u64) -> oneshot::Receiver<()> {
    let (alive, ended) = oneshot::channel();
    let (run, place) = (Arc::clone(run), place.clone());
    let its_run = Arc::clone(&run);
    let started = thread::Builder::new()
        .name(format!("shop-{}", number + 1))
        .spawn(move || {
            if let Err(error) = runtime::block_on(live(&run, &place, number)) {
                run.fail(format!("{error:#}"));
            }
            drop(alive);
        });
    if let Err(error) = started {
        its_run.fail(format!("cannot start a thread: {error}"));
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
    /// Serves one buyer after the other until no more come.
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
            // The store in this process answers at once: others get their turn here.
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

    /// With which counter to serve the next buyer: a lease that nothing renews is taken as such.
    fn choose(&self) -> (&Counter, Option<(Fault, usize)>) {
        if let Some(locked) = &self.till.locked
            && let Some(fault) = self.run.next_fault(|fault| fault == Fault::DropRenewals)
        {
            return (&locked.unrenewed, Some(fault));
        }
        (&self.till.counter, None)
    }

    /// Does the work of an order and closes it, unless something is done to its holder. `None` if the
    /// buyer has no answer.
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
                let told = "nothing to drop: without a lock nothing is renewed";
                self.run.book().strike(number, told.to_owned());
                self.work(deal, buyer).await
            }
            Some((Fault::KillHolder, _)) | None => self.work(deal, buyer).await,
        }
    }

    /// What an order is without faults.
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

    /// Between half and one and a half of what was planned, the same for the same seed.
    fn work_of(&self, buyer: u64) -> Duration {
        let mean_us = self.run.plan.work_ms * 1_000;
        let share = mixed(u64::from(self.run.seed) << 32 | buyer) % 1_001;
        Duration::from_micros(mean_us / 2 + mean_us * share / 1_000)
    }

    /// The whole instance stands still for longer than its lease, and then goes on as if nothing were.
    async fn pause(&self, deal: Deal, buyer: &Buyer, number: usize) -> Result<Option<Closed>> {
        self.stand_still(&deal, number);
        let closed = deal.close(&name_of(buyer)).await?;
        let what = after_pause(closed, self.run.plan.mode);
        self.run.book().tell(number, &what);
        Ok(Some(closed))
    }

    /// Blocks this thread, and with it the runtime and everybody whom it serves.
    fn stand_still(&self, deal: &Deal, number: usize) {
        let length = self.run.plan.ttl() * 3 / 2 + Duration::from_millis(200);
        let (instance, millis) = (self.number + 1, length.as_millis());
        let fence = deal.guard().map(tenure::Guard::fence);
        let holding = fence.map_or_else(String::new, |fence| format!(" with fence {fence}"));
        let told = format!("instance {instance} stood still for {millis} ms{holding}");
        let lock = self.till.locked.as_ref().map(|locked| &locked.lock);
        let now_is = |state| self.run.book().instance_is(self.number, state);
        self.run.book().strike(number, told);
        now_is(InstanceState::Paused);
        self.run.stillness.halt(lock, length);
        now_is(InstanceState::Selling);
    }

    /// Works until its guard says that the lock is lost: nothing renewed the lease.
    async fn outlive(&self, deal: &Deal, number: usize) {
        let Some(guard) = deal.guard() else {
            return;
        };
        let (instance, begun) = (self.number + 1, Instant::now());
        let told = format!("instance {instance} works on while nothing renews its lease");
        self.run.book().strike(number, told);
        tokio::select! {
            _ = guard.lost() => {}
            () = self.ended.cancelled() => return,
        }
        let after = begun.elapsed().as_millis();
        let mut book = self.run.book();
        book.lost += 1;
        book.tell(
            number,
            &format!(
                "; after {after} ms its guard said that the lock is lost, and it sold nothing"
            ),
        );
    }

    /// The instance ends here and now, unless nobody would be left.
    fn dies(&self, number: usize) -> bool {
        let instance = self.number + 1;
        let mut book = self.run.book();
        if book.living() == 1 {
            book.strike(
                number,
                format!("not done: instance {instance} is the only one"),
            );
            return false;
        }
        let what = match self.run.plan.mode {
            Mode::Lock => "ended while it held the lock, which nobody let go of",
            Mode::Naive => "ended between reading and writing: nothing was written",
            Mode::Script => "ended: by script it held nothing",
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
            // Without an answer: it comes again, to whoever is there.
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

/// What came of an order whose instance had stood still.
fn after_pause(closed: Closed, mode: Mode) -> String {
    match (closed, mode) {
        (Closed::Stale { seen }, _) => {
            format!("; its write was refused: the stock had seen fence {seen}")
        }
        (Closed::SoldOut, _) => "; by then everything was sold".to_owned(),
        (Closed::Sold { .. }, Mode::Naive) => {
            "; then it wrote back what it had read, and units that were sold came back".to_owned()
        }
        (Closed::Sold { .. }, Mode::Lock) => {
            "; nobody else had been at the stock, and it sold".to_owned()
        }
        (Closed::Sold { .. }, Mode::Script) => {
            "; nobody waited for it: by script there is nothing to hold".to_owned()
        }
    }
}

fn name_of(buyer: &Buyer) -> String {
    format!("buyer-{}", buyer.number)
}

/// Spreads numbers that follow each other over all 64 bits (the finalizer of splitmix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
