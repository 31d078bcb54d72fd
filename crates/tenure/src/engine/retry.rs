//! Looking again while the server does not answer.

use std::time::Duration;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::store::Failure;

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks until there is an answer, an error that looking again will not mend, or no time left. For
/// what changes nothing.
pub(crate) async fn read<T, F>(core: &Core, read: impl Fn(Moment) -> F) -> Result<T>
where
    F: Future<Output = Result<T, Failure>>,
{
    let limit = core.clock.now() + core.settings.unreachable_after;
    loop {
        let failure = match read(limit).await {
            Ok(seen) => return Ok(seen),
            Err(failure) => failure,
        };
        if core.is_closed() {
            return Err(Error::closed());
        }
        if !failure.transient || core.clock.now() + PAUSE >= limit {
            return Err(failure.error);
        }
        core.clock.sleep_until(core.clock.now() + PAUSE).await;
    }
}
