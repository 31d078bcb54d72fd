//! Background tasks. A task that panics, or ends before the service stops, is started again.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tenure_view::holders::printable;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::log::Log;

/// The pause before a task is started again: it doubles with each failure in a row.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A task that has run for this long no longer counts as failing.
const STEADY_AFTER: Duration = Duration::from_secs(5);

/// The background tasks of a service.
#[derive(Debug)]
pub(crate) struct Background {
    /// Tasks that failed, and have not run steadily since.
    failing: Mutex<BTreeSet<&'static str>>,
    restarts: Family<TaskLabels, Counter<u64, AtomicU64>>,
    log: Log,
    /// Cancelled when the service stops.
    stop: CancellationToken,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    task: &'static str,
}

impl Background {
    pub(crate) fn new(registry: &mut Registry, log: Log, stop: CancellationToken) -> Arc<Self> {
        let restarts = Family::default();
        let help = "Background tasks that failed and were started again";
        registry.register("tenure_background_restarts", help, restarts.clone());
        Arc::new(Self {
            failing: Mutex::default(),
            restarts,
            log,
            stop,
        })
    }

    /// Runs this work until the service stops, again after each failure.
    pub(crate) fn run<W>(
        self: &Arc<Self>,
        task: &'static str,
        work: impl Fn() -> W + Send + 'static,
    ) -> JoinHandle<()>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        // So that the metric exists before the first failure.
        drop(self.restarts.get_or_create(&TaskLabels { task }));
        let background = Arc::clone(self);
        tokio::spawn(async move { background.supervise(task, work).await })
    }

    /// The tasks that failed, and have not run steadily since.
    pub(crate) fn failing(&self) -> Vec<&'static str> {
        self.failures().iter().copied().collect()
    }

    async fn supervise<W>(&self, task: &'static str, work: impl Fn() -> W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let mut pause = PAUSE_MIN;
        loop {
            let mut running = tokio::spawn(work());
            let ended = if let Ok(ended) = timeout(STEADY_AFTER, &mut running).await {
                ended
            } else {
                self.failures().remove(task);
                pause = PAUSE_MIN;
                running.await
            };
            if self.stop.is_cancelled() {
                return;
            }
            self.note(task, ended, pause);
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn note(&self, task: &'static str, ended: Result<(), JoinError>, pause: Duration) {
        self.failures().insert(task);
        self.restarts.get_or_create(&TaskLabels { task }).inc();
        let cause = match ended.map_err(JoinError::try_into_panic) {
            Err(Ok(panic)) => format!("panicked: {}", message(panic.as_ref())),
            Ok(()) | Err(Err(_)) => "ended unexpectedly".to_owned(),
        };
        self.log.line(format_args!(
            "tenure: background task `{task}` {cause}; it starts again in {pause:?}"
        ));
    }

    fn failures(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message of a panic, on one line.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    printable(text.unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Lines = Arc<Mutex<Vec<String>>>;

    fn background() -> (Arc<Background>, Lines) {
        let lines = Lines::default();
        let written = Arc::clone(&lines);
        let log = Log::new(move |line| written.lock().unwrap().push(line.to_owned()));
        let mut registry = Registry::default();
        (
            Background::new(&mut registry, log, CancellationToken::new()),
            lines,
        )
    }

    fn restarts(background: &Background, task: &'static str) -> u64 {
        let counter = background.restarts.get_or_create(&TaskLabels { task });
        counter.get()
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_or_ends_starts_again_and_is_told() {
        let (background, lines) = background();
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&starts);
        let task = background.run("trial", move || {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match number {
                    0 => panic!("the first\nfails"),
                    1 => {}
                    _ => std::future::pending().await,
                }
            }
        });
        // Time is simulated: the pauses are 100 and 200 ms, and it is steady after five seconds.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        assert_eq!(background.failing(), ["trial"]);
        sleep(STEADY_AFTER).await;
        assert!(background.failing().is_empty());
        assert_eq!(restarts(&background, "trial"), 2);
        let expected = [
            "tenure: background task `trial` panicked: the first\\nfails; it starts again in 100ms",
            "tenure: background task `trial` ended unexpectedly; it starts again in 200ms",
        ];
        assert_eq!(*lines.lock().unwrap(), expected);
        background.stop.cancel();
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_with_the_service_is_not_started_again() {
        let (background, lines) = background();
        let stop = background.stop.clone();
        let task = background.run("trial", move || stop.clone().cancelled_owned());
        background.stop.cancel();
        task.await.unwrap();
        assert_eq!(restarts(&background, "trial"), 0);
        assert!(lines.lock().unwrap().is_empty());
    }
}
