//! Says again and again that a gate is in use, and notices when another has taken its place.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, error, info};

use super::UNUSED;
use crate::core::Core;
use crate::error::Result;
use crate::gate::Pair;

/// How often.
const BEAT: Duration = Duration::from_secs(2);

/// Until the sale is gone.
pub(crate) async fn keep(core: Arc<Core>) {
    let Some(pair) = &core.pairing.pair else {
        return;
    };
    let beating = async {
        loop {
            sleep(BEAT).await;
            if let Err(error) = beat(&core, pair).await {
                debug!(%error, "cannot say that the gate is in use");
            }
        }
    };
    core.gone.run_until_cancelled(beating).await;
}

async fn beat(core: &Core, pair: &Pair) -> Result<()> {
    let found = core.gate.pair().await?;
    if found.is_none() {
        info!("the gate lost its data, and gets its id again");
        core.gate.set_pair(pair).await?;
    }
    // It may have got another id meanwhile.
    let here = found.as_ref().unwrap_or(pair);
    let is_ours = here.ledger == pair.ledger && core.ledger.see_gate(&here.gate, UNUSED).await?;
    let was_replaced = core.pairing.replaced.swap(!is_ours, Ordering::Relaxed);
    if !is_ours && !was_replaced {
        error!(
            ledger = ?core.ledger,
            "another gate is used with this ledger: nothing more is sold here"
        );
    }
    Ok(())
}
