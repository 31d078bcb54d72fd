//! Keeps a lease that nobody waits for, so that the next caller of this process gets it without a
//! request to the store.
//!
//! The keeper sends nothing when it keeps a lease or uses it again: to the store the lease is held.
//! Its id tells others that it may be kept. Who finds the lock busy with such a lease asks its
//! client by a message, and the client lets the lease go: at once if no caller holds it, otherwise
//! at the next release. Without a message it is let go when its keep time is over.

use std::sync::Arc;
use std::time::Duration;

use super::kept_leases::{Hearing, KeptLease};
use crate::backoff::Backoff;
use crate::belief::Belief;
use crate::core::Core;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::seeded::{Bug, bug};

/// How long after it was first kept a lease is watched. Most are used again or let go by then, and
/// cost nothing extra.
const WATCH_AFTER: Duration = Duration::from_millis(10);
/// How long a caller that does not wait gives a keeper to let the lock go.
pub(crate) const ASK_WAIT: Duration = Duration::from_millis(20);

/// Keeps a lease that its holder just released and that no caller of this process waits for. False
/// if it must be released.
pub(super) fn try_keep(core: &Core, belief: &Arc<Belief>) -> bool {
    if belief.keep.is_none() {
        return false;
    }
    let kept = keep(core, belief);
    if !kept {
        core.kept.forget(belief);
    }
    kept
}

fn keep(core: &Core, belief: &Arc<Belief>) -> bool {
    let now = core.clock.now();
    let until = belief.kept_until(now).filter(|_| core.kept.hears());
    let Some(until) = until else { return false };
    // Before it is kept: who takes it must find it in the watchdog.
    if !core.watchdog.keep(belief, now + WATCH_AFTER) {
        return false;
    }
    let lease = KeptLease::new(belief, now, until);
    if !core.kept.insert(lease, || core.is_closed()) {
        return false;
    }
    // A caller that joined its queue meanwhile did not find the lease here. Who joins later does,
    // when the store says that the lock is busy.
    if core.queues.is_waited_for(&belief.held.name) && core.kept.take_back(belief) {
        return false;
    }
    core.stats.kept();
    true
}

/// Another client, or another caller of this one, asks for a lock that this client holds or keeps.
pub(crate) fn on_asked(core: &Arc<Core>, name: &LockName, lease: &LeaseId) {
    if lease.keeper() != Some(core.id) || bug(Bug::AskIgnored) {
        return;
    }
    if let Some(kept) = core.kept.take_asked(name, lease) {
        core.stats.let_go();
        let_go(core, vec![kept]);
    }
}

/// Messages may have been missed, and someone may have asked.
pub(crate) fn let_go_all(core: &Arc<Core>) {
    let_go(core, core.kept.take_all());
}

/// Asks the client that may keep this lease to let it go. Must be called on the engine. Returns
/// whether the lock may be free soon.
pub(super) fn ask(core: &Arc<Core>, name: &LockName, holder: &LeaseId) -> bool {
    let Some(keeper) = holder.keeper() else {
        return false;
    };
    if keeper == core.id {
        // If a caller here holds it, its release finds those who wait here.
        let kept = core.kept.take_lease(name, holder);
        let is_kept = kept.is_some();
        let_go(core, kept.into_iter().collect());
        return is_kept;
    }
    let (core, name, holder) = (Arc::clone(core), name.clone(), holder.clone());
    tokio::spawn(async move {
        let limit = core.clock.now() + core.settings.response_timeout;
        // If it is refused or lost, the keeper lets the lock go by itself.
        let _ = core.store.ask(&name, &holder, limit).await;
    });
    true
}

/// Lets leases go when their time is over. Runs as long as the engine.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let (due, next) = core.kept.take_due(core.clock.now());
        let_go(&core, due);
        let sleep = async {
            match next {
                Some(at) => core.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = core.kept.wait_for_sooner() => {}
            () = sleep => {}
        }
    }
}

/// Makes this client hear who wants its leases. Until then it keeps none.
pub(crate) async fn listen(core: Arc<Core>) {
    let name = LockName::of_keeper(core.id);
    let mut backoff = Backoff::ACQUIRE;
    while !core.is_closed() {
        let limit = core.clock.now() + core.settings.unreachable_after;
        match core.store.subscribe(&name, limit).await {
            Ok(()) => return core.kept.set_hearing(Hearing::Yes),
            Err(failure) if failure.transient => {}
            Err(failure) => {
                core.stats.messages_refused();
                tracing::warn!(
                    error = %failure.error,
                    "lock.not_kept: this client may not hear who wants its locks, and keeps none"
                );
                return;
            }
        }
        let again_at = core.clock.now() + backoff.next();
        core.clock.sleep_until(again_at).await;
    }
}

/// Releases leases that were kept. Must be called on the engine.
fn let_go(core: &Arc<Core>, leases: Vec<KeptLease>) {
    for KeptLease { belief, .. } in leases {
        core.untrack(&belief);
        core.kept.forget(&belief);
        let request = core.release_request(&belief, None);
        core.release_started(&request.lease.name);
        tokio::spawn(core.release_task(request, None));
    }
}
