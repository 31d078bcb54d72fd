//! A turn: many want the same to be found out, and one does it for all who came before it began.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::error::Result;

/// Those who want to know the same: who comes while one looks shares the next look.
#[derive(Debug)]
pub(super) struct Turn<T> {
    /// How many have asked so far.
    asked: AtomicU64,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// So many of them are served by a look that began after they asked.
    served: u64,
    /// What it found.
    found: Option<Result<T>>,
}

impl<T: Clone> Turn<T> {
    /// What somebody found who began after this call, or what `search` finds. What it has beside is for
    /// its caller alone.
    pub(super) async fn share<Own>(
        &self,
        search: impl Future<Output = Result<(T, Option<Own>)>>,
    ) -> Result<(T, Option<Own>)> {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut state = self.state.lock().await;
        if state.served >= ticket
            && let Some(found) = &state.found
        {
            return match found {
                Ok(found) => Ok((found.clone(), None)),
                Err(error) => Err(error.shared()),
            };
        }
        let served = self.asked.load(Ordering::SeqCst);
        let found = search.await;
        state.served = served;
        state.found = Some(match &found {
            Ok((found, _)) => Ok(found.clone()),
            Err(error) => Err(error.shared()),
        });
        found
    }
}

impl<T> Default for Turn<T> {
    fn default() -> Self {
        let found = None;
        Self {
            asked: AtomicU64::new(0),
            state: Mutex::new(State { served: 0, found }),
        }
    }
}
