//! Rebuilding the gate of an item from the ledger.
//!
//! | step | why |
//! |---|---|
//! | acquire the lock | its fence distinguishes this rebuild from an older, paused one, at the gate and in the ledger |
//! | begin a load | the gate accepts nothing from now on, so draining ends |
//! | drain the queue | accepted orders are committed to the ledger, not lost |
//! | next epoch in the ledger | entries of older epochs are refused from now on |
//! | load buyers and answers, finish | the gate sells again, under the new epoch |

pub(crate) mod background;
mod drain;
pub(crate) mod put_back;
pub(crate) mod running;

use std::sync::Arc;
use std::time::Duration;

use tenure::Guard;
use tracing::{info, warn};

use self::drain::drain;
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::{bug, failpoint};
use crate::gate::Load;
use crate::item::ItemState;
use crate::ledger::What;
use crate::lost;
use crate::names::lock_name;

/// How long a rebuild that died blocks the next one. The lock is renewed while the process lives.
const LOCK_TTL: Duration = Duration::from_secs(5);
/// How long to wait for a rebuild by another process: longer than the lock of one that died.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often an overtaken load is retried.
const TRIES_MAX: u32 = 8;
/// This many of those tries wait for a moment in which no buyer releases units. Without such a
/// moment, the gate counts fewer units for some buyers than they have; the ledger has the correct
/// number.
const STRICT_TRIES: u32 = 3;
/// After a server restart, the first caller finds this many dead connections: the gate's, the
/// reader's, and the lock's.
const CONNECTIONS: u32 = 3;
/// Buyers and answers per step of a load: the server is blocked during a step.
const PAGE: usize = 500;

/// What the rebuild must achieve; nothing is done if that is already the case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// The gate sells what the ledger has.
    Current,
    /// The gate is at this change or a later one.
    Change(u64),
    /// Rebuild in any case.
    Always,
    /// The same, and an operator has decided it: also if the ledger was put back.
    Decided,
}

/// Rebuilds, and continues if the caller is dropped: an abandoned load would leave a gate that
/// refuses orders.
pub(crate) async fn in_background(core: &Arc<Core>, item: &str, need: Need) -> Result<()> {
    let (on_core, name) = (Arc::clone(core), item.to_owned());
    let running = tokio::spawn(async move {
        let gone = on_core.gone.clone();
        let rebuilding = rebuild(&on_core, &name, need);
        gone.run_until_cancelled(rebuilding).await
    });
    match running.await {
        Ok(Some(done)) => done,
        Ok(None) | Err(_) => Err(stale(item, "the sale was closed meanwhile")),
    }
}

/// Rebuilds under the lock, which all processes of a sale share.
pub(crate) async fn rebuild(core: &Core, item: &str, need: Need) -> Result<()> {
    let mut done = tries(core, item, need).await;
    for _ in 0..CONNECTIONS {
        if !matches!(&done, Err(error) if error.kind() == ErrorKind::Store) {
            break;
        }
        done = tries(core, item, need).await;
    }
    if let Err(error) = &done {
        core.counters.rebuilds_failed.one();
        warn!(item, %error, "the gate was not rebuilt");
    }
    done
}

async fn tries(core: &Core, item: &str, need: Need) -> Result<()> {
    core.pairing.check()?;
    for nth in 0..TRIES_MAX {
        if is_met(core, item, need).await? {
            return Ok(());
        }
        // Acquired again for each try: no two epochs begin under one fence.
        let guard = lock(core, item).await?;
        let done = under_lock(core, item, need, &guard, nth < STRICT_TRIES).await;
        if let Err(error) = guard.release().await {
            warn!(item, %error, "the lock of a rebuild was not released: it ends by itself");
        }
        if done? {
            return Ok(());
        }
    }
    Err(stale(item, "each load was overtaken"))
}

async fn lock(core: &Core, item: &str) -> Result<Guard> {
    let lock = core.locks.lock(lock_name(item, "rebuild"));
    let acquiring = lock.ttl(LOCK_TTL).wait(LOCK_WAIT_MAX).acquire().await;
    acquiring.map_err(|error| {
        if error.kind() == tenure::ErrorKind::Busy {
            return stale(
                item,
                "another process is rebuilding it and has not finished",
            );
        }
        let wanted = format!("cannot acquire the lock to rebuild the gate of `{item}`");
        Error::store(wanted, error)
    })
}

/// `false` if it was overtaken.
async fn under_lock(
    core: &Core,
    item: &str,
    need: Need,
    guard: &Guard,
    strictly: bool,
) -> Result<bool> {
    // The previous holder of the lock may have done it.
    if is_met(core, item, need).await? {
        return Ok(true);
    }
    let Some(load) = load_once(core, item, need, guard, strictly).await? else {
        return Ok(false);
    };
    core.counters.rebuilds.one();
    info!(item, epoch = load.epoch, left = ?load.left, "the gate was rebuilt");
    Ok(true)
}

/// `None` if it was overtaken.
async fn load_once(
    core: &Core,
    item: &str,
    need: Need,
    guard: &Guard,
    strictly: bool,
) -> Result<Option<Load>> {
    let (gate, ledger, fence) = (&core.gate, &core.ledger, guard.fence());
    // In this order: the ledger is always ahead of a gate that was loaded from it.
    let standing = gate.standing(item).await?;
    let known = core.item(item).await?;
    if known.state == ItemState::Draft {
        let message = format!("cannot load the gate with `{item}`: it is a draft, open it first");
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    let standing = standing.unwrap_or_default();
    if !standing.foreign.is_empty() {
        warn!(item, keys = ?standing.foreign, "keys of the gate hold something else: they are deleted");
    }
    let is_ahead = put_back::is_ahead(&standing, &known);
    if is_ahead && !matches!(need, Need::Decided) {
        return Err(put_back::told(&known, &standing));
    }
    // Under the next epoch, unless another rebuild gets in first.
    let newest = put_back::newest_epoch(&standing).max(known.epoch);
    let next = (newest + 1).max(standing.epoch);
    if !gate.begin_load(item, next, fence, known.spread).await? {
        return Err(overtaken(core, item).await);
    }
    if is_ahead {
        ledger.adopt(item, newest).await?;
    }
    if !bug("rebuild-without-drain") {
        drain(core, item, guard).await?;
    }
    if is_ahead {
        put_back::remember(core, item).await?;
    }
    ledger.end_epoch(item, &gate.ended(item).await?).await?;
    let load = ledger.next_epoch_from(item, fence, next).await?;
    failpoint("rebuild.after_epoch");
    lost::find_before_load(core, item).await;
    if !gate
        .begin_load(item, load.epoch, fence, load.spread)
        .await?
    {
        return Err(overtaken(core, item).await);
    }
    failpoint("rebuild.after_begin_load");
    let loaded = (bug("rebuild-without-buyers") || load_buyers(core, item, &load).await?)
        && (bug("rebuild-without-answers") || load_answers(core, item, &load).await?);
    if !loaded || strictly && buyers_changed(core, item, &load).await? {
        return Ok(None);
    }
    still_ours(item, guard)?;
    Ok(gate.finish_load(item, &load).await?.then_some(load))
}

async fn load_buyers(core: &Core, item: &str, load: &Load) -> Result<bool> {
    if load.terms.limit_per_buyer.is_none() {
        return Ok(true);
    }
    let mut after: Option<String> = None;
    loop {
        let page = core.ledger.buyers(item, after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else {
            return Ok(true);
        };
        after = Some(last.clone());
        let (epoch, fence) = (load.epoch, load.fence);
        if !core
            .gate
            .load_buyers(item, epoch, fence, &page, &[])
            .await?
        {
            return Ok(false);
        }
    }
}

async fn load_answers(core: &Core, item: &str, load: &Load) -> Result<bool> {
    let within = load.terms.answers_kept;
    let mut after = None;
    loop {
        let page = core.ledger.answers(item, within, after.as_ref(), PAGE);
        let page = page.await?;
        let Some(last) = page.last() else {
            return Ok(true);
        };
        after = Some(last.order.clone());
        let (epoch, fence) = (load.epoch, load.fence);
        if !core
            .gate
            .load_buyers(item, epoch, fence, &[], &page)
            .await?
        {
            return Ok(false);
        }
    }
}

/// Whether a buyer released units while pages were read. The relay will send that change to the
/// gate as well, which would lower the buyer's count a second time.
async fn buyers_changed(core: &Core, item: &str, load: &Load) -> Result<bool> {
    if load.terms.limit_per_buyer.is_none() {
        return Ok(false);
    }
    let since = core.ledger.changes(item, load.change, PAGE).await?;
    let releases = |what: &What| matches!(what, What::Released { .. } | What::Refused { .. });
    Ok(since.len() == PAGE || since.iter().any(|change| releases(&change.what)))
}

/// Whether nothing has to be done.
pub(crate) async fn is_met(core: &Core, item: &str, need: Need) -> Result<bool> {
    if matches!(need, Need::Always | Need::Decided) {
        return Ok(false);
    }
    let Some(standing) = core.gate.standing(item).await? else {
        return Ok(false);
    };
    let sells = standing.current && standing.state.is_some();
    Ok(match need {
        Need::Change(number) => sells && standing.change >= number,
        _ => sells && core.item(item).await?.epoch == standing.epoch,
    })
}

fn still_ours(item: &str, guard: &Guard) -> Result<()> {
    if guard.is_valid() {
        return Ok(());
    }
    Err(stale(item, "the lock was lost meanwhile"))
}

/// Why the gate refused a load.
async fn overtaken(core: &Core, item: &str) -> Error {
    // In this order: the ledger is always ahead of a gate that was loaded from it.
    let standing = core.gate.standing(item).await;
    let known = core.item(item).await;
    let (Ok(Some(standing)), Ok(known)) = (standing, known) else {
        return stale(item, "the gate or the ledger is not responding");
    };
    if put_back::is_ahead(&standing, &known) {
        return put_back::told(&known, &standing);
    }
    stale(item, "a later rebuild came first")
}

fn stale(item: &str, cause: &str) -> Error {
    let message = format!("the gate of `{item}` was not rebuilt: {cause}; try again in a moment");
    Error::new(ErrorKind::Stale, message)
}
