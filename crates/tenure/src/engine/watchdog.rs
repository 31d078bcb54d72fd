//! The watchdog: renews what is held, and tells the holder when it is lost.
//!
//! One task for all leases of a client. It sleeps until the next lease needs something: a renewal
//! at a third of its ttl, a look whether it is still there, its deadline, its longest hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::belief::Belief;
use crate::core::Core;
use crate::guard::LostReason;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, Renewed, Watched};

/// A lease of this age is watched: the store tells when its key changes. Most locks are held for
/// less, and cost nothing more.
const WATCH_AFTER: Duration = Duration::from_secs(1);
/// How long to wait after a failed renewal: a tenth of what is left, within these bounds.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(500);
/// A moment that has always passed.
const AT_ONCE: Moment = Moment::from_nanos(0);

/// How many leases are asked for in one piece.
const BATCH: usize = 128;
/// How many such pieces are under way at once.
const BATCHES: usize = 8;

/// All leases of a client that a guard holds.
#[derive(Default)]
pub(crate) struct Watchdog {
    /// A std mutex: nothing is awaited, and nobody is woken, while it is held.
    roster: Mutex<Roster>,
    /// The first thing to do has changed.
    sooner: Notify,
    /// Whose turn it is to ask.
    renewals: Turns,
    looks: Turns,
}

/// Whose turn it is to ask, for each place in the store: one that does not answer must not delay what
/// is asked of the others.
#[derive(Default)]
struct Turns(Mutex<HashMap<u64, Arc<Semaphore>>>);

impl Turns {
    async fn wait(&self, place: u64) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let place = places.entry(place);
            Arc::clone(place.or_insert_with(|| Arc::new(Semaphore::new(BATCHES))))
        };
        semaphore.acquire_owned().await.ok()
    }
}

/// What each lease needs, and when.
#[derive(Default)]
struct Roster {
    /// By number, which only grows: so the oldest are first.
    leases: BTreeMap<u64, Care>,
    /// Which leases have a name. Mostly one: a second while the guard of a lost one still lives.
    by_name: HashMap<LockName, Vec<u64>>,
    /// When each lease needs something next, the earliest first.
    schedule: BTreeSet<(Moment, u64)>,
    /// When the watchdog will look next, whatever happens. It need not be woken for what is due
    /// later: most leases are gone by then.
    asleep_until: Option<Moment>,
}

/// What the watchdog knows of one lease.
struct Care {
    belief: Arc<Belief>,
    /// Its place in the schedule; none once it is lost.
    scheduled: Option<Moment>,
    renewal: Errand,
    look: Errand,
    /// Whether the store will tell when the key changes.
    watched: bool,
    /// Whether the loss has been noticed: nothing more is to be done.
    lost: bool,
    /// Who waits for a renewal to be tried, and whether that has just happened.
    waiting: Vec<oneshot::Sender<()>>,
    renewal_tried: bool,
}

/// A question to the store: when to ask, and whether an answer is still awaited.
#[derive(Default)]
struct Errand {
    due: Option<Moment>,
    under_way: bool,
}

/// What is to be done once the roster is no longer locked.
#[derive(Default)]
struct Due {
    tasks: Vec<Task>,
    /// Callers who need not wait any longer.
    answered: Vec<oneshot::Sender<()>>,
}

/// Something to do for a lease.
enum Task {
    Renew { belief: Arc<Belief>, watched: bool },
    Look(Arc<Belief>),
    Lose(Arc<Belief>, LostReason),
}

impl Watchdog {
    pub(crate) fn look_after(&self, belief: &Arc<Belief>) {
        let mut roster = self.roster();
        roster.enter(Care::new(Arc::clone(belief)));
        self.wake_if_sooner(&roster);
    }

    /// Ends the care for a lease that its holder lets go.
    pub(crate) fn forget(&self, number: u64) {
        if bug(Bug::RenewalAfterRelease) {
            return;
        }
        let care = self.roster().leave(number);
        // Whoever waits for a renewal of it is woken by this: after the roster is unlocked.
        drop(care);
    }

    /// Looks after the next holder's belief in the same lease. False if the lease is lost, or the
    /// last holder's care has ended: then there is nothing to hand off.
    pub(crate) fn hand_over(&self, from: &Arc<Belief>, to: &Arc<Belief>) -> bool {
        let mut roster = self.roster();
        let care = roster.leases.get(&from.number);
        let is_lost = |care: &Care| care.lost && !bug(Bug::HandOffLost);
        let cared_for = care.is_some_and(|care| !is_lost(care) && Arc::ptr_eq(&care.belief, from));
        if cared_for && !bug(Bug::HandOffNotRenewed) {
            // Nobody waits for a renewal of what is let go.
            let _ = roster.update(from.number, |care| care.belief = Arc::clone(to));
            // Since the last holder let go it may have been taken for over.
            self.wake_if_sooner(&roster);
        }
        cared_for
    }

    /// Takes note that the store no longer has a lease. Whoever holds it now must be told.
    fn lost(&self, number: u64) -> Option<Arc<Belief>> {
        let mut roster = self.roster();
        let care = roster.leases.get_mut(&number)?;
        care.lost = true;
        Some(Arc::clone(&care.belief))
    }

    /// The belief of whoever holds a lease by now.
    fn present(&self, belief: &Arc<Belief>) -> Arc<Belief> {
        let roster = self.roster();
        let care = roster.leases.get(&belief.number);
        care.map_or_else(|| Arc::clone(belief), |care| Arc::clone(&care.belief))
    }

    /// Whether this client holds the lock already, as far as it knows.
    pub(crate) fn cares_for(&self, name: &LockName) -> bool {
        self.roster().by_name.contains_key(name)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Belief>> {
        let roster = self.roster();
        let beliefs = roster.leases.values().map(|care| Arc::clone(&care.belief));
        beliefs.collect()
    }

    /// The oldest leases, at most so many, and how many there are.
    pub(crate) fn oldest(&self, most: usize) -> (Vec<Arc<Belief>>, usize) {
        let roster = self.roster();
        let beliefs = roster.leases.values().map(|care| Arc::clone(&care.belief));
        (beliefs.take(most).collect(), roster.leases.len())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.roster().leases.is_empty()
    }

    /// The key at this name changed: look whether the lease is still there.
    pub(crate) fn changed(&self, name: &LockName) {
        let numbers = self.roster().by_name.get(name).cloned();
        self.change(numbers.unwrap_or_default(), Care::look_again);
    }

    /// Changes may have been missed: look at all that were watched.
    pub(crate) fn missed(&self) {
        let watched = |care: &&Care| care.watched;
        let number = |care: &Care| care.belief.number;
        let numbers = self
            .roster()
            .leases
            .values()
            .filter(watched)
            .map(number)
            .collect();
        self.change(numbers, Care::look_again);
    }

    /// Renews a lease now; returns when that was tried.
    pub(crate) async fn renew_now(&self, number: u64) {
        let (done, tried) = oneshot::channel();
        let mut done = Some(done);
        self.change(vec![number], |care| {
            care.renewal.due = Some(AT_ONCE);
            care.waiting.extend(done.take());
        });
        // If nobody looks after the lease, it is lost, and the sender is gone.
        drop(done);
        let _ = tried.await;
    }

    /// Returns when no renewal of a lease is under way, which could overtake whatever is done next.
    pub(crate) async fn settled(&self, number: u64) {
        let (done, tried) = oneshot::channel();
        let mut done = Some(done);
        self.change(vec![number], |care| {
            if care.renewal.under_way {
                care.waiting.extend(done.take());
            }
        });
        drop(done);
        let _ = tried.await;
    }

    fn renewals_tried(&self, due: Vec<(u64, Option<Moment>)>) {
        let mut roster = self.roster();
        let mut answered = Vec::new();
        for (number, renew_at) in due {
            answered.extend(roster.update(number, |care| {
                care.renewal.under_way = false;
                // Whoever asked meanwhile wants a renewal that is newer than this one.
                if care.renewal.due.is_none() {
                    care.renewal.due = renew_at;
                    care.renewal_tried = true;
                }
            }));
        }
        self.wake_if_sooner(&roster);
        drop(roster);
        // They are woken by being dropped: after the roster is unlocked.
        drop(answered);
    }

    fn change(&self, numbers: Vec<u64>, mut change: impl FnMut(&mut Care)) {
        let mut roster = self.roster();
        let mut answered = Vec::new();
        for number in numbers {
            answered.extend(roster.update(number, &mut change));
        }
        drop(roster);
        // They are woken by being dropped: after the roster is unlocked.
        drop(answered);
        self.sooner.notify_one();
    }

    fn wake_if_sooner(&self, roster: &Roster) {
        let next = roster.next();
        if roster.asleep_until.is_none_or(|until| next < Some(until)) {
            self.sooner.notify_one();
        }
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does what is due, for as long as the engine runs.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let sooner = core.watchdog.sooner.notified();
        let (due, next) = {
            let mut roster = core.watchdog.roster();
            let due = roster.due(core.clock.now());
            roster.asleep_until = roster.next();
            (due, roster.asleep_until)
        };
        perform(&core, due.tasks);
        drop(due.answered);
        let sleep = async {
            match next {
                Some(at) => core.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sooner => {}
            () = sleep => {}
        }
    }
}

/// Asks in batches, and not in too many at once: each question has a limit that begins when it is
/// sent, and a client that is short of time must not let its questions grow old in a queue of its
/// own. The earliest are first.
fn perform(core: &Arc<Core>, tasks: Vec<Task>) {
    // Together goes what is confirmed by as many replicas.
    let (mut renewals, mut looks) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for task in tasks {
        match task {
            Task::Lose(..) if bug(Bug::LossNotTold) => {}
            Task::Lose(belief, reason) => lose(core, &belief, reason),
            Task::Renew { belief, watched } => {
                let together = renewals.entry((watched, belief.held.replicas));
                together.or_default().push(belief);
            }
            Task::Look(belief) => looks.push(belief),
        }
    }
    for ((watched, _), renewals) in renewals {
        for (place, batch) in batches(core, renewals) {
            tokio::spawn(renew(Arc::clone(core), place, batch, watched));
        }
    }
    for (place, batch) in batches(core, looks) {
        tokio::spawn(look(Arc::clone(core), place, batch));
    }
}

/// What may be asked in one piece, with where.
fn batches(core: &Core, beliefs: Vec<Arc<Belief>>) -> Vec<(u64, Vec<Arc<Belief>>)> {
    let mut places: BTreeMap<u64, Vec<Arc<Belief>>> = BTreeMap::new();
    for belief in beliefs {
        let place = core.store.place_of(&belief.held.name);
        places.entry(place).or_default().push(belief);
    }
    let chunks = |(place, beliefs): (u64, Vec<Arc<Belief>>)| {
        let chunks = beliefs.chunks(BATCH).map(<[_]>::to_vec);
        chunks.map(|chunk| (place, chunk)).collect::<Vec<_>>()
    };
    places.into_iter().flat_map(chunks).collect()
}

async fn renew(core: Arc<Core>, place: u64, batch: Vec<Arc<Belief>>, watched: bool) {
    let _turn = core.watchdog.renewals.wait(place).await;
    let mut alone = batch;
    if alone.len() > 1 {
        alone = renew_together(&core, alone, watched).await;
    }
    for belief in alone {
        let limit = belief.deadline();
        let result = core.store.renew(&belief.held, watched, limit).await;
        renewed(&core, vec![(belief, result)]);
    }
}

/// Renews a batch in one piece, and returns those that must be asked for by themselves.
async fn renew_together(core: &Core, batch: Vec<Arc<Belief>>, watched: bool) -> Vec<Arc<Belief>> {
    let leases = batch.iter().map(|belief| &belief.held).collect();
    let latest = batch.iter().map(|belief| belief.deadline()).max();
    let limit = latest.unwrap_or(core.clock.now());
    let answers = core.store.renew_all(leases, watched, limit).await;
    let (mut results, mut alone) = (Vec::with_capacity(batch.len()), Vec::new());
    match answers {
        Ok(mut answers) => {
            answers.resize_with(batch.len(), || None);
            for (belief, answer) in batch.into_iter().zip(answers) {
                match answer {
                    Some(answer) => results.push((belief, Ok(answer))),
                    None => alone.push(belief),
                }
            }
        }
        Err(failure) => {
            results.extend(
                batch
                    .into_iter()
                    .map(|belief| (belief, Err(failure.share()))),
            );
        }
    }
    renewed(core, results);
    alone
}

async fn look(core: Arc<Core>, place: u64, batch: Vec<Arc<Belief>>) {
    let _turn = core.watchdog.looks.wait(place).await;
    for belief in batch {
        let limit = belief.deadline();
        let result = core.store.watch(&belief.held, limit).await;
        looked(&core, &belief, &result);
    }
}

/// Takes note of what renewals came to, and when they are due again.
fn renewed(core: &Core, results: Vec<(Arc<Belief>, Result<Renewed, Failure>)>) {
    let mut due = Vec::with_capacity(results.len());
    for (belief, result) in results {
        due.push((belief.number, renew_at(core, &belief, result)));
    }
    core.watchdog.renewals_tried(due);
}

/// When a lease is to be renewed next, after this.
fn renew_at(core: &Core, belief: &Arc<Belief>, result: Result<Renewed, Failure>) -> Option<Moment> {
    let now = core.clock.now();
    // It may have been handed off meanwhile.
    let belief = core.watchdog.present(belief);
    match result {
        Ok(Renewed::Until { sent_at }) => {
            core.stats.renewed();
            core.stats
                .timings
                .renewed(belief.deadline().saturating_since(now));
            belief.extend(sent_at, now);
            Some(sent_at + belief.held.ttl / 3)
        }
        Ok(Renewed::NotHeld(not_held)) => {
            lose_present(core, belief.number, not_held.reason());
            None
        }
        Ok(Renewed::Unconfirmed(failure)) | Err(failure) => {
            core.stats.renewal_failed();
            let left = belief.deadline().saturating_since(now);
            if belief.doubt() {
                tracing::warn!(
                    lock = %belief.held.name, error = %failure.error, ?left,
                    "lock.suspect: renewal failed"
                );
            }
            Some(now + (left / 10).clamp(RETRY_MIN, RETRY_MAX))
        }
    }
}

fn looked(core: &Core, belief: &Belief, result: &Result<Watched, Failure>) {
    let now = core.clock.now();
    if let Ok(Watched::NotHeld(not_held)) = result {
        lose_present(core, belief.number, not_held.reason());
    }
    core.watchdog.change(vec![belief.number], |care| {
        care.look.under_way = false;
        care.watched = result.is_ok();
        if !care.watched {
            // Renewals go on by themselves; whether the lease can be watched is tried again, at
            // once if there is news meanwhile.
            let later = now + WATCH_AFTER;
            care.look.due = Some(care.look.due.map_or(later, |due| due.min(later)));
        }
    });
}

/// The store no longer has the lease: whoever holds it now has lost it.
fn lose_present(core: &Core, number: u64, reason: LostReason) {
    if let Some(belief) = core.watchdog.lost(number) {
        lose(core, &belief, reason);
    }
}

fn lose(core: &Core, belief: &Belief, reason: LostReason) {
    if belief.lose(reason) {
        core.stats.lost();
        tracing::error!(
            lock = %belief.held.name, lease = %belief.held.id, fence = %belief.fence, %reason,
            "lock.lost"
        );
    }
}

impl Roster {
    /// When something is to be done next.
    fn next(&self) -> Option<Moment> {
        self.schedule.first().map(|(at, _)| *at)
    }

    /// What is to be done by now, the earliest first.
    fn due(&mut self, now: Moment) -> Due {
        let mut due = Due::default();
        while let Some(&(at, number)) = self.schedule.first()
            && at <= now
        {
            let answered = self.update(number, |care| care.begin(now, &mut due.tasks));
            due.answered.extend(answered);
        }
        due
    }

    fn enter(&mut self, mut care: Care) {
        let number = care.belief.number;
        care.scheduled = care.next();
        self.schedule.extend(care.scheduled.map(|at| (at, number)));
        let name = care.belief.held.name.clone();
        self.by_name.entry(name).or_default().push(number);
        self.leases.insert(number, care);
    }

    fn leave(&mut self, number: u64) -> Option<Care> {
        let care = self.leases.remove(&number)?;
        if let Some(at) = care.scheduled {
            self.schedule.remove(&(at, number));
        }
        let name = &care.belief.held.name;
        if let Some(numbers) = self.by_name.get_mut(name) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_name.remove(name);
            }
        }
        Some(care)
    }

    /// Changes what is known of a lease, and its place in the schedule with it. Returns the callers
    /// who need not wait any longer: the renewal was tried, or will never be.
    fn update(&mut self, number: u64, change: impl FnOnce(&mut Care)) -> Vec<oneshot::Sender<()>> {
        let Some(care) = self.leases.get_mut(&number) else {
            return Vec::new();
        };
        let before = care.scheduled;
        change(care);
        care.scheduled = care.next();
        let answered = if std::mem::take(&mut care.renewal_tried) || care.scheduled.is_none() {
            std::mem::take(&mut care.waiting)
        } else {
            Vec::new()
        };
        if care.scheduled != before {
            let after = care.scheduled;
            before.map(|at| self.schedule.remove(&(at, number)));
            self.schedule.extend(after.map(|at| (at, number)));
        }
        answered
    }
}

impl Errand {
    fn at(due: Option<Moment>) -> Self {
        Self {
            due,
            under_way: false,
        }
    }

    /// When to ask. What became due while an answer is awaited is asked afterwards.
    fn next(&self) -> Option<Moment> {
        self.due.filter(|_| !self.under_way)
    }

    /// Takes note that the question is asked now, if it is due.
    fn begins(&mut self, now: Moment) -> bool {
        let begins = self.next().is_some_and(|due| due <= now);
        if begins {
            self.due = None;
            self.under_way = true;
        }
        begins
    }
}

impl Care {
    fn new(belief: Arc<Belief>) -> Self {
        let renew_at = belief.acquired_at + belief.held.ttl / 3;
        Self {
            scheduled: None,
            renewal: Errand::at(belief.renewed.then_some(renew_at)),
            look: Errand::at(Some(belief.acquired_at + WATCH_AFTER)),
            watched: false,
            lost: false,
            waiting: Vec::new(),
            renewal_tried: false,
            belief,
        }
    }

    /// When this lease needs something next; never again once it is lost.
    fn next(&self) -> Option<Moment> {
        let let_go = self.belief.no_longer_held().is_cancelled();
        if self.lost || (let_go && !bug(Bug::RenewalAfterRelease)) {
            return None;
        }
        let needs = [
            Some(self.belief.deadline()),
            self.renewal.next(),
            self.look.next(),
            self.belief.max_hold_at(),
        ];
        needs.into_iter().flatten().min()
    }

    /// Begins what is due.
    fn begin(&mut self, now: Moment, tasks: &mut Vec<Task>) {
        if let Some(reason) = self.lost_by(now) {
            self.lost = true;
            return tasks.push(Task::Lose(Arc::clone(&self.belief), reason));
        }
        if self.renewal.begins(now) {
            tasks.push(Task::Renew {
                belief: Arc::clone(&self.belief),
                watched: self.watched,
            });
        }
        if self.look.begins(now) {
            tasks.push(Task::Look(Arc::clone(&self.belief)));
        }
    }

    fn lost_by(&self, now: Moment) -> Option<LostReason> {
        if now >= self.belief.deadline() {
            return Some(LostReason::Expired);
        }
        let max_hold_at = self.belief.max_hold_at();
        max_hold_at
            .is_some_and(|at| now >= at)
            .then_some(LostReason::MaxHold)
    }

    fn look_again(&mut self) {
        self.watched = false;
        self.look.due = Some(AT_ONCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::belief::Grant;
    use crate::lease::{ClientId, Fence, LeaseId};
    use crate::settings::HandOff;
    use crate::store::Held;

    /// So short that its renewal comes before anybody looks at it.
    const TTL: Duration = Duration::from_secs(2);
    const START: Moment = Moment::from_nanos(1_000);

    fn belief() -> Arc<Belief> {
        Arc::new(Belief::new(Grant {
            number: 1,
            held: Held {
                name: LockName::new("n").unwrap(),
                id: LeaseId::fresh(crate::layout::Layout::Native, &ClientId::fresh(), 1, TTL),
                ttl: TTL,
                has_meta: false,
                replicas: 0,
            },
            fence: Fence::new(1),
            fences: 3,
            sent_at: START,
            renewed: true,
            max_hold: None,
            meta: Arc::default(),
            landing: None,
        }))
    }

    fn next_turn(belief: &Belief) -> Arc<Belief> {
        let next = belief.next_turn(&HandOff::default(), START);
        Arc::new(next.unwrap())
    }

    /// What the watchdog's task does before it sleeps.
    fn falls_asleep(watchdog: &Watchdog) -> Option<Moment> {
        let mut roster = watchdog.roster();
        roster.asleep_until = roster.next();
        roster.asleep_until
    }

    #[test]
    fn a_lease_goes_on_being_renewed_when_it_is_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.look_after(&first);
        let renews_at = falls_asleep(&watchdog);
        assert_eq!(renews_at, Some(START + TTL / 3));
        let second = next_turn(&first);
        assert!(first.end());
        assert!(watchdog.hand_over(&first, &second));
        assert_eq!(falls_asleep(&watchdog), renews_at);
    }

    /// The watchdog may look just between the two, and see that the first has let go.
    #[test]
    fn the_watchdog_is_woken_if_it_had_given_up_the_lease() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.look_after(&first);
        let second = next_turn(&first);
        assert!(first.end());
        watchdog.change(vec![1], |_| {});
        assert_eq!(falls_asleep(&watchdog), None);
        assert!(is_woken(&watchdog), "by the change");
        assert!(watchdog.hand_over(&first, &second));
        assert!(
            is_woken(&watchdog),
            "it sleeps, and nobody renews the lease"
        );
        assert_eq!(falls_asleep(&watchdog), Some(START + TTL / 3));
    }

    /// Whether somebody has woken the watchdog since.
    fn is_woken(watchdog: &Watchdog) -> bool {
        let woken = std::pin::pin!(watchdog.sooner.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        woken.poll(&mut context).is_ready()
    }

    #[test]
    fn a_lost_lease_is_not_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.look_after(&first);
        let second = next_turn(&first);
        assert!(watchdog.lost(1).is_some());
        assert!(first.end());
        assert!(!watchdog.hand_over(&first, &second));
    }

    #[test]
    fn a_lease_that_is_no_longer_looked_after_is_not_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        let second = next_turn(&first);
        assert!(!watchdog.hand_over(&first, &second));
    }
}
