//! The thread behind every client, with a small runtime of its own.
//!
//! Everything that talks to a store or waits for time runs here. So renewal goes on while the
//! caller's runtime is blocked, guards may be dropped anywhere, and the futures that callers await
//! are plain channels, which any executor can poll.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

pub(crate) mod adoption;
pub(crate) mod attempt;
mod behind;
pub(crate) mod cleaner;
mod line;
pub(crate) mod lines;
mod obstacle;
pub(crate) mod once;
pub(crate) mod pending;
pub(crate) mod record;
pub(crate) mod watchdog;

/// A running engine. It ends when the last clone is gone.
#[derive(Clone)]
pub(crate) struct Engine {
    handle: Handle,
    /// Dropped with the last clone, which ends the thread's wait.
    last: Arc<Last>,
}

struct Last {
    /// What to do before the thread ends.
    farewell: Mutex<Option<Farewell>>,
    stop: Mutex<Option<oneshot::Sender<Farewell>>>,
}

type Farewell = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Engine {
    pub(crate) fn start() -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                "cannot start the background thread: are threads or file descriptors used up?",
            )
            .caused_by(error)
        };
        let (started, starting) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<Farewell>();
        thread::Builder::new()
            .name("tenure".to_owned())
            .spawn(move || run(&started, stopped))
            .map_err(failed)?;
        let handle = starting.recv().map_err(std::io::Error::other);
        let handle = handle.and_then(|handle| handle).map_err(failed)?;
        let last = Last {
            farewell: Mutex::new(None),
            stop: Mutex::new(Some(stop)),
        };
        Ok(Self {
            handle,
            last: Arc::new(last),
        })
    }

    /// Runs `work` on the engine and forgets it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(work));
    }

    /// Runs `work` on the engine and waits for it, from any executor. If the waiting future is
    /// dropped, the work goes on, and its result is dropped on the engine.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.spawn(async move {
            // Nobody waits any more: the result cleans up after itself when it is dropped.
            let _ = reply.send(work.await);
        });
        answer.await.map_err(|_| Error::closed())
    }

    /// What to finish before the thread ends.
    pub(crate) fn on_stop(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        let mut place = self
            .last
            .farewell
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(Box::pin(farewell));
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let take = |farewell: &Mutex<Option<Farewell>>| {
            farewell
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
        };
        let farewell = take(&self.farewell).unwrap_or_else(|| Box::pin(async {}));
        let stop = self
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(stop) = stop {
            // The thread only ends by this message.
            let _ = stop.send(farewell);
        }
    }
}

/// The thread's life. The runtime is made and dropped here: a caller's thread may belong to another
/// runtime, where dropping one panics.
fn run(
    started: &std::sync::mpsc::Sender<std::io::Result<Handle>>,
    stopped: oneshot::Receiver<Farewell>,
) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(runtime.handle().clone()));
    runtime.block_on(async {
        if let Ok(farewell) = stopped.await {
            farewell.await;
        }
    });
}
