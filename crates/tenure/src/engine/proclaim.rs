//! Proclaims a leader's value.

use super::retry::Retry;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::store::{Proclamation, WatchReply};

/// Changes the value of a leader, while its lease holds the lock.
pub(crate) async fn proclaim(core: &Core, proclamation: Proclamation) -> Result<()> {
    let name = &proclamation.held.name;
    let mut retry = Retry::new(core);
    loop {
        match core.store.proclaim(&proclamation, retry.limit).await {
            Ok(WatchReply::Held) => {
                // Observers of this client: the server does not tell a client of what it changed
                // itself.
                core.observers.changed(name);
                return Ok(());
            }
            Ok(WatchReply::NotHeld(not_held)) => {
                // The holder learns of the loss the usual way, but at once.
                core.watchdog.recheck(name);
                return Err(Error::lost(name, not_held.reason()));
            }
            Err(failure) => retry.after(failure).await?,
        }
    }
}
