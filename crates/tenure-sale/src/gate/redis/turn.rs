//! A turn: many callers want the same result, and one computes it for all that arrived before it
//! began.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::error::Result;

/// Callers that want the same result: those that arrive while one searches share the next search.
#[derive(Debug)]
pub(super) struct Turn<T> {
    /// How many callers have asked so far.
    asked: AtomicU64,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// This many of them are served by a search that began after they asked.
    served: u64,
    /// The result.
    found: Option<Result<T>>,
}

impl<T: Clone> Turn<T> {
    /// The result of a search that began after this call, by another caller or by `search` itself.
    /// The second part of the result is for its caller alone.
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
