//! The playground: one stock sold in three ways, with faults, for people to watch.
//!
//! A [`Run`] sells a stock of its own, by several instances at once, while [`Fault`]s strike them. The
//! [`Playground`] has one run at a time and remembers the last ones.

mod book;
mod crowd;
mod curve;
mod instance;
mod plan;
mod refused;
mod report;
mod run;
mod stage;
mod still;

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
/// How many points a curve has where several are shown.
const POINTS_SHOWN: usize = 200;

/// What the playground remembers.
pub struct Playground {
    /// Where the runs take place, with passwords: not to be shown.
    urls: Vec<String>,
    /// One run at a time.
    turn: Arc<Semaphore>,
    /// The newest last.
    runs: Mutex<VecDeque<Arc<Run>>>,
    /// Hears how runs go on.
    listener: Box<run::Listener>,
}

impl Playground {
    /// A playground in the store that these URLs name. `listener` hears how each run goes on, several
    /// times a second.
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

    /// Whether runs stay inside this process, and make no load on a server.
    pub fn is_memory(&self) -> bool {
        let mut urls = self.urls.iter();
        urls.all(|url| url.trim().starts_with("memory:"))
    }

    /// Brings a stock on sale and lets the run begin. It ends when all buyers were served or `stop` is
    /// cancelled, and leaves nothing in the store.
    ///
    /// # Errors
    ///
    /// If the plan is out of its limits, another run goes on, or the store cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Safe: a run that was begun goes on.
    pub async fn begin(
        self: &Arc<Self>,
        plan: Plan,
        stop: CancellationToken,
    ) -> Result<Arc<Run>, Refused> {
        plan.check()?;
        if plan.mode == Mode::Script && self.urls.len() > 1 {
            let detail = "cannot sell by script here: one step needs one server, and no script \
                          spans several";
            return Err(Refused::Invalid(detail.to_owned()));
        }
        let turn = self.take_turn()?;
        let playground = Arc::clone(self);
        // A task of its own: the caller may go away, and what was brought on sale must be taken off.
        let begun = tokio::spawn(async move { playground.open(plan, stop, turn).await }).await;
        begun.map_err(|_| Refused::Internal)?
    }

    /// Waits until no run goes on.
    pub async fn settle(&self) {
        drop(self.turn.acquire().await);
    }

    /// The last runs, the newest first.
    pub fn list(&self) -> RunList {
        let runs: Vec<Arc<Run>> = self.runs().iter().rev().cloned().collect();
        let report = |run: &Arc<Run>| run.report_with_curve(POINTS_SHOWN);
        RunList {
            runs: runs.iter().map(report).collect(),
        }
    }

    /// A run by its id, unless it was forgotten.
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
        let holding = Arc::clone(&run);
        tokio::spawn(async move {
            run::hold(&holding, &stage, &*self.listener).await;
            // Who hears that it is over can begin the next one.
            drop(turn);
            run::tell_end(&holding, &*self.listener);
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
