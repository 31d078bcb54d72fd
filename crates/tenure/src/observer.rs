//! An observer of an election.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::client_handle::ClientHandle;
use crate::engine::observe::Report;
use crate::error::{Error, Result};
use crate::leader::{LastReport, Leader};

/// Reports who leads: first the present leader, then each change. [`Election::observe`] makes one.
///
/// [`Election::observe`]: crate::Election::observe
///
/// It reports *nobody* too, and each new [value](crate::Leadership::proclaim). Terms never go back. Only
/// the latest state counts: who calls [`next`](Observer::next) rarely does not see what was between. The
/// server tells of changes; every third of the ttl the observer looks by itself, because a message may be
/// lost. A change is reported within milliseconds, and the death of a leader when its lease ends.
///
/// What it reports may be over by the next line of your program: who acts as the leader must check the
/// term where it matters.
pub struct Observer {
    /// It keeps the client alive.
    _client: Arc<ClientHandle>,
    reports: watch::Receiver<Report>,
    /// What was returned last; nothing after an error.
    returned: LastReport,
}

impl Observer {
    pub(crate) fn new(client: Arc<ClientHandle>, reports: watch::Receiver<Report>) -> Self {
        Self {
            _client: client,
            reports,
            returned: LastReport::Nothing,
        }
    }

    /// Waits for the next report: the leader, or `None` if nobody leads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store has not replied for as
    /// long as [`unreachable_after`](crate::Builder::unreachable_after) allows, and the error of a store
    /// that refuses the request. Then it is unknown who leads. The observer goes on: the next call waits
    /// until the store replies again. After [`ErrorKind::Closed`](crate::ErrorKind::Closed) nothing
    /// follows.
    ///
    /// # Cancel safety
    ///
    /// Safe: no report is lost.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            self.reports.changed().await.map_err(|_| Error::closed())?;
            let report = self.reports.borrow_and_update();
            match &*report {
                Report::Nothing => {}
                Report::Failed(error) => {
                    self.returned = LastReport::Nothing;
                    return Err(error.share());
                }
                Report::Leader(leader) => {
                    if !self.returned.is(leader.as_ref()) {
                        self.returned.set(leader.as_ref());
                        return Ok(leader.clone());
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("returned", &self.returned)
            .finish_non_exhaustive()
    }
}
