//! One run, from its beginning to its end.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tenure_view::time::moment;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Refused;
use super::book::Book;
use super::crowd::Crowd;
use super::instance;
use super::plan::{Fault, Plan};
use super::report::{RunReport, RunState, RunUpdate};
use super::stage::Stage;
use super::still::Stillness;

/// How long a run may take, whatever was planned.
const RUN_MAX: Duration = Duration::from_mins(5);
/// How long the instances may take to end once they are asked to.
const END_WITHIN: Duration = Duration::from_secs(1);
/// How often the stock is looked at, and how many looks make one message.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS_TOLD: u32 = 2;
/// More faults than these show nothing new.
const FAULTS_MAX: usize = 50;

/// Hears how runs go on.
pub(super) type Listener = dyn Fn(&RunUpdate) + Send + Sync;

/// One run, shared by all who take part in it.
#[derive(Debug)]
pub struct Run {
    pub(crate) id: String,
    pub(crate) plan: Plan,
    pub(crate) seed: u32,
    started_at: String,
    /// Cancelled when it is to end before all buyers were served.
    pub(crate) stop: CancellationToken,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) stillness: Arc<Stillness>,
    // Std mutexes, not async ones: no call waits while they are held.
    book: Mutex<Book>,
    /// What is to be done to a holder, with its number in the book.
    armed: Mutex<VecDeque<(Fault, usize)>>,
}

impl Run {
    pub(crate) fn new(id: &str, plan: Plan, stop: CancellationToken) -> Arc<Self> {
        let run = Self {
            id: id.to_owned(),
            seed: plan.seed.unwrap_or_else(rand::random),
            started_at: moment(SystemTime::now()),
            stop,
            crowd: Crowd::new(plan.buyers),
            stillness: Arc::default(),
            book: Mutex::new(Book::open(&plan)),
            armed: Mutex::default(),
            plan,
        };
        if let Some(fault) = run.plan.fault {
            let number = run.book().expect_fault(fault);
            run.armed().push_back((fault, number));
        }
        Arc::new(run)
    }

    /// Ends it before its time. Ending one that is over changes nothing.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Whether it goes on.
    pub fn is_running(&self) -> bool {
        self.book().state == RunState::Running
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without its curve.
    pub fn report(&self) -> RunReport {
        self.report_of(&self.book())
    }

    /// With at most so many points of its curve.
    pub fn report_with_curve(&self, most: usize) -> RunReport {
        let book = self.book();
        let mut report = self.report_of(&book);
        report.curve = Some(book.curve.points(most));
        report
    }

    /// Has this happen to the next holder.
    ///
    /// # Errors
    ///
    /// If the run is over, or had enough faults.
    pub fn arm(&self, fault: Fault) -> Result<(), Refused> {
        let mut book = self.book();
        let refuse = |why: &str| {
            let detail = format!("nothing can be done to `{}`: {why}", self.id);
            Err(Refused::Conflict(detail))
        };
        if book.state != RunState::Running {
            return refuse("it is over");
        }
        if book.fault_count() >= FAULTS_MAX {
            return refuse("it had enough faults to show everything");
        }
        let number = book.expect_fault(fault);
        self.armed().push_back((fault, number));
        Ok(())
    }

    /// The first fault of those that `fits` can be done now.
    pub(crate) fn next_fault(&self, fits: impl Fn(Fault) -> bool) -> Option<(Fault, usize)> {
        let mut armed = self.armed();
        let place = armed.iter().position(|(fault, _)| fits(*fault))?;
        armed.remove(place)
    }

    /// It cannot go on. Who says so first is believed.
    pub(crate) fn fail(&self, detail: String) {
        self.book().fail(detail);
        self.stop.cancel();
    }

    fn report_of(&self, book: &Book) -> RunReport {
        book.report(&self.id, &self.plan, self.seed, &self.started_at)
    }

    fn armed(&self) -> MutexGuard<'_, VecDeque<(Fault, usize)>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells how far it is, and what the curve got since the last time.
    fn tell(&self, listener: &Listener) {
        let mut book = self.book();
        let curve_tail = book.curve.take_tail();
        let run = self.report_of(&book);
        drop(book);
        listener(&RunUpdate { run, curve_tail });
    }
}

/// Sells until every buyer was served or the run is stopped, counts, and leaves nothing behind.
pub(super) async fn hold(run: &Arc<Run>, stage: &Stage, listener: &Listener) {
    tokio::select! {
        () = sell(run, stage) => {}
        () = look(run, stage, listener) => {}
    }
    match stage.left().await {
        Ok(left) => run.book().left = left,
        Err(error) => run.fail(format!("cannot count what is left: {error:#}")),
    }
    let swept = stage.clear().await;
    if let Err(error) = swept {
        run.fail(format!("{error:#}"));
    }
    let mut book = run.book();
    book.note_point(&run.plan);
    book.close(run.stop.is_cancelled());
}

/// Tells how it ended.
pub(super) fn tell_end(run: &Run, listener: &Listener) {
    run.tell(listener);
}

/// All instances sell until they are done.
async fn sell(run: &Arc<Run>, stage: &Stage) {
    let instances = 0..run.plan.instances;
    let instances = instances.map(|number| instance::start(run, stage.place(), number));
    let mut selling = pin!(join_all(instances));
    tokio::select! {
        _ = &mut selling => return,
        () = run.stop.cancelled() => {}
        () = tokio::time::sleep(RUN_MAX) => {
            run.book().detail.get_or_insert_with(|| "a run ends after five minutes".to_owned());
            run.stop.cancel();
        }
    }
    run.stillness.end();
    let _ = tokio::time::timeout(END_WITHIN, selling).await;
}

/// Draws the curve and tells how far the run is, for as long as it goes on.
async fn look(run: &Run, stage: &Stage, listener: &Listener) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u32.. {
        looks.tick().await;
        // Who sells learns of a store that is away, and says so.
        let left = stage.left().await.ok();
        let mut book = run.book();
        book.left = left.unwrap_or(book.left);
        book.note_point(&run.plan);
        drop(book);
        if number % LOOKS_TOLD == 0 {
            run.tell(listener);
        }
    }
}
