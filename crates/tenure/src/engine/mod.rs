//! The thread behind every client, with a small runtime of its own.
//!
//! Everything that waits for time runs here, and everything that talks to a store, except for the
//! first attempt and a plain release, which the caller's own task sends (`fast_path.rs`). So renewal
//! continues while the caller's runtime is blocked, guards may be dropped anywhere, and any executor
//! can poll the futures that callers await.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind, Result};

pub(crate) mod acquire_several;
pub(crate) mod adopt;
pub(crate) mod attempt;
pub(crate) mod change_mode;
pub(crate) mod client_record;
mod current_holder;
pub(crate) mod detached;
pub(crate) mod fast_path;
pub(crate) mod hand_off;
pub(crate) mod health;
pub(crate) mod heartbeat;
pub(crate) mod keep;
pub(crate) mod kept_leases;
pub(crate) mod latch;
pub(crate) mod list;
pub(crate) mod local_queue;
pub(crate) mod observe;
pub(crate) mod observers;
pub(crate) mod once;
pub(crate) mod proclaim;
pub(crate) mod release;
pub(crate) mod release_several;
pub(crate) mod renew_detached;
pub(crate) mod resize;
pub(crate) mod retry;
pub(crate) mod reuse;
mod shutdown;
pub(crate) mod try_acquire;
pub(crate) mod watchdog;

/// A running engine. It ends when the last clone is gone and what was begun for it is done.
#[derive(Clone)]
pub(crate) struct Engine {
    /// One channel for all: under load the thread is woken once for many pieces of work. Spawning
    /// from outside would cost a system call each time.
    inbox: mpsc::UnboundedSender<EngineMessage>,
}

enum EngineMessage {
    Work(Work),
    /// What to finish before the thread ends.
    OnStop(Work),
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Engine {
    pub(crate) fn start() -> Result<Self> {
        let failed = |error: io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                "cannot start the background thread: out of threads or file descriptors?",
            )
            .caused_by(error)
        };
        let (started, starting) = std::sync::mpsc::channel();
        let (inbox, messages) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("tenure".to_owned())
            // The runtime is made and dropped there: the caller's thread may belong to another
            // one, where dropping a runtime panics.
            .spawn(
                move || match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => {
                        let _ = started.send(Ok(()));
                        run_thread(&runtime, messages);
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                },
            )
            .map_err(failed)?;
        let started = starting.recv().map_err(io::Error::other);
        started.and_then(|started| started).map_err(failed)?;
        Ok(Self { inbox })
    }

    /// Runs `work` on the engine and forgets it. Never blocks, and needs no runtime.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.send(EngineMessage::Work(Box::pin(work)));
    }

    /// Runs `work` on the engine and waits for it, from any executor. If the waiting future is
    /// dropped, the work continues, and its result is dropped on the engine.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.spawn(async move {
            // If the caller is gone, the result cleans up after itself when it is dropped.
            let _ = reply.send(work.await);
        });
        answer.await.map_err(|_| Error::closed())
    }

    /// What to finish before the thread ends.
    pub(crate) fn on_stop(&self, on_stop: impl Future<Output = ()> + Send + 'static) {
        self.send(EngineMessage::OnStop(Box::pin(on_stop)));
    }

    fn send(&self, message: EngineMessage) {
        // The thread lives as long as there is a sender.
        let _ = self.inbox.send(message);
    }
}

/// Runs the work until the last sender is gone, then the final work.
fn run_thread(runtime: &Runtime, mut messages: mpsc::UnboundedReceiver<EngineMessage>) {
    runtime.block_on(async {
        let mut on_stop = None;
        while let Some(message) = messages.recv().await {
            match message {
                EngineMessage::Work(work) => drop(tokio::spawn(work)),
                EngineMessage::OnStop(work) => on_stop = Some(work),
            }
        }
        if let Some(on_stop) = on_stop {
            on_stop.await;
        }
    });
}
