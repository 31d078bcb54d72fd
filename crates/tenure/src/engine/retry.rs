//! Retries reads while the server does not reply.

use std::time::Duration;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::store::Failure;

/// How long to wait before retrying.
const PAUSE: Duration = Duration::from_millis(50);

/// Retries until there is a reply, a permanent error, or no time left. Only for calls that change
/// nothing.
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
