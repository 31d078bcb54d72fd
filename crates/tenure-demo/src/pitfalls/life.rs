//! How those who take part live, and die.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tenure::Guard;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The moment at which a process dies.
pub(crate) struct Death {
    strikes: Arc<Notify>,
}

impl Death {
    /// Nothing after this ever happens.
    pub(crate) async fn strikes(&self) {
        self.strikes.notify_one();
        std::future::pending::<()>().await;
    }
}

/// Lives until death strikes: what was written by then stays, whatever was to follow is never done.
pub(crate) async fn dies(life: impl AsyncFnOnce(Death) -> Result<()>) -> Result<()> {
    let struck = Arc::new(Notify::new());
    let death = Death {
        strikes: Arc::clone(&struck),
    };
    tokio::select! {
        lived = life(death) => lived,
        () = struck.notified() => Ok(()),
    }
}

/// The process that has this guard dies. What it leaves in the store is a lease that nobody renews.
pub(crate) fn process_dies(guard: Guard) -> Result<()> {
    let _nobody_takes_it_up = guard.detach()?;
    Ok(())
}

/// Several of the same, each a task of its own, and what came of them.
pub(crate) async fn together<T, F>(lives: impl IntoIterator<Item = F>) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut tasks: JoinSet<Result<T>> = lives.into_iter().collect();
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        results.push(ended??);
    }
    Ok(results)
}

/// A time for people.
pub(crate) fn shown(time: Duration) -> String {
    if time < Duration::from_millis(1) {
        format!("{} µs", time.as_micros())
    } else if time < Duration::from_millis(100) {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
