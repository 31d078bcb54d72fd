//! One run: the state that its instances and its conductor share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tenure_view::time::moment;
use tokio_util::sync::CancellationToken;

use super::book::Book;
use super::crowd::Crowd;
use super::pauses::Pauses;
use super::plan::{Fault, Plan};
use super::refused::Refused;
use super::report::{RunReport, RunState, RunUpdate};

/// More faults would show nothing new.
const FAULTS_MAX: usize = 50;

/// Receives updates of runs.
pub(super) type Listener = dyn Fn(&RunUpdate) + Send + Sync;

/// One run, shared by its instances and its conductor.
#[derive(Debug)]
pub struct Run {
    pub(crate) id: String,
    pub(crate) plan: Plan,
    pub(crate) seed: u32,
    started_at: String,
    /// Cancelled to end the run before all buyers were served.
    pub(crate) stop: CancellationToken,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) pauses: Arc<Pauses>,
    // Std mutexes, not async ones: no call waits while they are held.
    book: Mutex<Book>,
    /// Faults for the next holders, with their numbers in the book.
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
            pauses: Arc::default(),
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

    /// Ends it early. Does nothing if it is over.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Whether it is in progress.
    pub fn is_running(&self) -> bool {
        self.book().state == RunState::Running
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports without the curve.
    pub fn report(&self) -> RunReport {
        self.report_of(&self.book())
    }

    /// Reports with at most this many points of the curve.
    pub fn report_with_curve(&self, most: usize) -> RunReport {
        let book = self.book();
        let mut report = self.report_of(&book);
        report.curve = Some(book.curve.points(most));
        report
    }

    /// Injects a fault into the next holder.
    ///
    /// # Errors
    ///
    /// If the run is over, or has reached the maximum number of faults.
    pub fn arm(&self, fault: Fault) -> Result<(), Refused> {
        let mut book = self.book();
        let refuse = |why: &str| {
            let detail = format!("cannot inject a fault into `{}`: {why}", self.id);
            Err(Refused::Conflict(detail))
        };
        if book.state != RunState::Running {
            return refuse("the run has ended");
        }
        if book.fault_count() >= FAULTS_MAX {
            return refuse("it already has the maximum number of faults");
        }
        let number = book.expect_fault(fault);
        self.armed().push_back((fault, number));
        Ok(())
    }

    /// Takes the first requested fault that `fits` now.
    pub(crate) fn next_fault(&self, fits: impl Fn(Fault) -> bool) -> Option<(Fault, usize)> {
        let mut armed = self.armed();
        let place = armed.iter().position(|(fault, _)| fits(*fault))?;
        armed.remove(place)
    }

    /// Marks the run as failed. The first reason is kept.
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

    /// Sends an update with the new points of the curve.
    pub(super) fn send_update(&self, listener: &Listener) {
        let mut book = self.book();
        let curve_tail = book.curve.take_tail();
        let run = self.report_of(&book);
        drop(book);
        listener(&RunUpdate { run, curve_tail });
    }
}
