//! The task that renews and checks leases when they are due.

use std::sync::Arc;

use super::renew_batch;
use crate::core::Core;

/// Runs what is due, as long as the engine runs.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let sooner = core.watchdog.sooner.notified();
        let (due, next) = {
            let mut due_queue = core.watchdog.due_queue();
            let now = core.clock.now();
            let due = due_queue.due(now);
            (due, due_queue.fall_asleep(now))
        };
        renew_batch::run_due(&core, due.tasks);
        drop(due.answered);
        let sleep = async {
            match next {
                Some(at) => core.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sooner => {}
            () = sleep => {}
        }
    }
}
