//! The playground: one stock sold in three ways, with faults, for people to watch.
//!
//! A [`Run`] sells its own stock with several instances at once, while [`Fault`]s strike them. The
//! [`Playground`] has one run at a time and remembers the latest ones.

mod book;
mod conduct;
mod crowd;
mod curve;
mod instance;
mod pauses;
mod plan;
mod refused;
mod report;
mod run;
mod stage;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

pub use self::curve::{POINTS_MAX, Point};
pub use self::plan::{Fault, Mode, Plan};
pub use self::refused::Refused;
pub use self::report::{
    FaultReport, InstanceReport, InstanceState, RunList, RunReport, RunState, RunUpdate,
};
pub use self::run::Run;
use self::stage::{Place, Stage};

/// How many runs are remembered.
pub const RUNS_MAX: usize = 20;
/// How many points a curve has when several are shown.
const POINTS_SHOWN: usize = 200;

/// Starts runs and remembers the latest ones.
pub struct Playground {
    /// Where the runs take place. They contain passwords and must not be shown.
    urls: Vec<String>,
    /// One run at a time.
    turn: Arc<Semaphore>,
    /// The newest last.
    runs: Mutex<VecDeque<Arc<Run>>>,
    /// Receives updates of runs.
    listener: Box<run::Listener>,
}

impl Playground {
    /// A playground in the store at these URLs. `listener` receives updates of each run several times
    /// a second.
    pub fn new(
        urls: &[String],
        listener: impl Fn(&RunUpdate) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            urls: urls.to_vec(),
            turn: Arc::new(Semaphore::new(1)),
            runs: Mutex::default(),
            listener: Box::new(listener),
        })
    }

    /// Whether runs stay inside this process and put no load on a server.
    pub fn is_memory(&self) -> bool {
        let mut urls = self.urls.iter();
        urls.all(|url| url.trim().starts_with("memory:"))
    }

    /// Puts a stock on sale and starts the run. It ends when all buyers were served or `stop` is
    /// cancelled, and leaves nothing in the store.
    ///
    /// # Errors
    ///
    /// If the plan is out of its limits, another run is in progress, or the store is unavailable.
    ///
    /// # Cancel safety
    /// Safe: a started run continues.
    pub async fn begin(
        self: &Arc<Self>,
        plan: Plan,
        stop: CancellationToken,
    ) -> Result<Arc<Run>, Refused> {
        plan.check()?;
        if plan.mode == Mode::Script && self.urls.len() > 1 {
            let detail = "a script needs one server, because it cannot span several";
            return Err(Refused::Invalid(detail.to_owned()));
        }
        let turn = self.take_turn()?;
        let playground = Arc::clone(self);
        // A separate task: even if the caller goes away, the stock must be removed from sale.
        let begun = tokio::spawn(async move { playground.open(plan, stop, turn).await }).await;
        begun.map_err(|_| Refused::Internal)?
    }

    /// Waits until no run is in progress.
    pub async fn settle(&self) {
        drop(self.turn.acquire().await);
    }

    /// Lists the last runs, newest first.
    pub fn list(&self) -> RunList {
        let runs: Vec<Arc<Run>> = self.runs().iter().rev().cloned().collect();
        let report = |run: &Arc<Run>| run.report_with_curve(POINTS_SHOWN);
        RunList {
            runs: runs.iter().map(report).collect(),
        }
    }

    /// Finds a run by its id, unless it was forgotten.
    pub fn find(&self, id: &str) -> Option<Arc<Run>> {
        self.runs().iter().find(|run| run.id == id).cloned()
    }

    async fn open(
        self: Arc<Self>,
        plan: Plan,
        stop: CancellationToken,
        turn: OwnedSemaphorePermit,
    ) -> Result<Arc<Run>, Refused> {
        let id = format!("play-{:08x}", rand::random::<u32>());
        let place = Place::new(&self.urls, &id, &plan);
        let opened = Stage::open(place, plan.stock).await;
        let stage = opened.map_err(Refused::Store)?;
        let run = Run::new(&id, plan, stop);
        self.remember(&run);
        let conducted = Arc::clone(&run);
        tokio::spawn(async move {
            conduct::conduct(&conducted, &stage, &*self.listener).await;
            // Released before the last update, so that a listener can start the next run at once.
            drop(turn);
            conducted.send_update(&*self.listener);
        });
        Ok(run)
    }

    fn remember(&self, run: &Arc<Run>) {
        let mut runs = self.runs();
        if runs.len() == RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(Arc::clone(run));
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_turn(&self) -> Result<OwnedSemaphorePermit, Refused> {
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        turn.map_err(|_| {
            let running = self.runs().back().map(|run| run.id.clone());
            Refused::Running(running)
        })
    }
}

/// Without the passwords.
impl fmt::Debug for Playground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Playground").finish_non_exhaustive()
    }
}
