//! Simulated processes and how they die.

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
    /// Never returns: nothing after this call runs.
    pub(crate) async fn strikes(&self) {
        self.strikes.notify_one();
        std::future::pending::<()>().await;
    }
}

/// Runs until death strikes. Earlier writes remain; the rest never runs.
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

/// Simulates the death of the process that holds this guard: its lease is no longer renewed.
pub(crate) fn process_dies(guard: Guard) -> Result<()> {
    let _never_adopted = guard.detach()?;
    Ok(())
}

/// Runs several futures, each in its own task, and collects their results.
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

/// Formats a duration for people.
pub(crate) fn shown(time: Duration) -> String {
    if time < Duration::from_millis(1) {
        format!("{} µs", time.as_micros())
    } else if time < Duration::from_millis(100) {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
