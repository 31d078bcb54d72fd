//! A master, its replicas, and the sentinels that choose the next master.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::{ClientKind, RedisServer, Sentinels};

use super::replication::Cut;
use super::service::{is_used, served};
use super::{Kind, random_time, short_time};

/// How long a failover may take, and all that follows from it: some seconds where there is room.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// For writes that do not reach a replica which is cut off.
const LAG_MS: std::ops::Range<u64> = 100..400;
const PRIORITY_BEST: u32 = 1;
const PRIORITY_DEFAULT: u32 = 100;

/// Does it, undoes it; true if clients were hit.
pub(super) fn strike(kind: Kind, sentinels: &Sentinels, rng: &mut StdRng) -> bool {
    match kind {
        Kind::PauseSentinel => on_sentinel(sentinels, rng, |sentinel, rng| {
            sentinel.pause();
            thread::sleep(random_time(rng));
            sentinel.resume();
        }),
        Kind::KillSentinel => on_sentinel(sentinels, rng, |sentinel, rng| {
            sentinel.kill();
            thread::sleep(random_time(rng));
            sentinel.restart();
        }),
        Kind::PauseReplica => on_replica(sentinels, rng, |replica, rng| {
            replica.pause();
            thread::sleep(random_time(rng));
            replica.resume();
        }),
        Kind::KillReplica => on_replica(sentinels, rng, |replica, rng| {
            replica.kill();
            thread::sleep(random_time(rng));
            replica.restart();
        }),
        Kind::PauseServer => pause_briefly(sentinels.master(), rng),
        Kind::ScriptFlush => flush_scripts(sentinels.master()),
        Kind::KillConnections => sentinels.master().kill_clients(ClientKind::Normal) > 0,
        Kind::KillSubscribers => sentinels.master().kill_clients(ClientKind::Pubsub) > 0,
        Kind::PlannedFailover => planned(sentinels),
        Kind::KillMaster => kill_master(sentinels, Vec::new(), rng),
        Kind::CutThenKill => {
            let master = sentinels.master();
            let replicas = sentinels.replicas();
            let cuts: Option<Vec<_>> = replicas.iter().map(|it| Cut::between(it, master)).collect();
            let Some(cuts) = cuts else {
                return no_effect(sentinels);
            };
            thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
            kill_master(sentinels, cuts, rng)
        }
        Kind::PromoteLagging => promote_lagging(sentinels, rng),
        other => unreachable!("`{}` is not done to sentinels", other.name()),
    }
}

/// A pause too short to count as a failure.
pub(super) fn pause_briefly(server: &RedisServer, rng: &mut StdRng) -> bool {
    server.pause();
    thread::sleep(short_time(rng));
    server.resume();
    is_used(server)
}

pub(super) fn flush_scripts(server: &RedisServer) -> bool {
    server.script_flush();
    is_used(server) && server.stat("number_of_cached_scripts") > 0
}

/// Breaks one sentinel; true if clients listened to it.
fn on_sentinel(
    sentinels: &Sentinels,
    rng: &mut StdRng,
    strike: impl FnOnce(&RedisServer, &mut StdRng),
) -> bool {
    let sentinel = sentinels.sentinels().choose(rng).unwrap();
    let listeners = sentinel
        .client()
        .command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    strike(sentinel, rng);
    sentinels.wait_until_settled(SETTLE_LIMIT) && !listeners.text().is_empty()
}

/// Breaks one replica; true if it missed something.
fn on_replica(
    sentinels: &Sentinels,
    rng: &mut StdRng,
    strike: impl FnOnce(&RedisServer, &mut StdRng),
) -> bool {
    let replicas = sentinels.replicas();
    let replica = replicas.choose(rng).unwrap();
    let before = served(sentinels.master());
    strike(replica, rng);
    let missed = served(sentinels.master()) > before;
    sentinels.wait_until_settled(SETTLE_LIMIT) && missed
}

fn planned(sentinels: &Sentinels) -> bool {
    let was_used = is_used(sentinels.master());
    let old = sentinels.begin_failover();
    let new = sentinels.wait_for_failover(old, SETTLE_LIMIT);
    let is_used_now = is_used(new);
    sentinels.wait_until_settled(SETTLE_LIMIT) && was_used && is_used_now
}

/// Kills the master, and brings it back when there is another one, as well as links that were cut.
fn kill_master(sentinels: &Sentinels, cuts: Vec<Cut<'_>>, rng: &mut StdRng) -> bool {
    let was_used = is_used(sentinels.master());
    let old = sentinels.kill_master();
    let new = sentinels.wait_for_failover(old, SETTLE_LIMIT);
    drop(cuts);
    let is_used_now = is_used(new);
    thread::sleep(random_time(rng));
    old.restart();
    sentinels.wait_until_settled(SETTLE_LIMIT) && was_used && is_used_now
}

/// The sentinels did something by themselves, and what was planned makes no sense any more.
fn no_effect(sentinels: &Sentinels) -> bool {
    sentinels.wait_until_settled(SETTLE_LIMIT);
    false
}

/// Has a replica promoted that lacks what another has.
fn promote_lagging(sentinels: &Sentinels, rng: &mut StdRng) -> bool {
    let master = sentinels.master();
    let replicas = sentinels.replicas();
    let lagging = *replicas.choose(rng).unwrap();
    let at = sentinels.index_of(lagging);
    sentinels.set_priority(at, PRIORITY_BEST);
    let took_effect = match Cut::between(lagging, master) {
        Some(cut) => {
            thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
            kill_master(sentinels, vec![cut], rng)
        }
        None => no_effect(sentinels),
    };
    let was_promoted = sentinels.index_of(sentinels.master()) == at;
    lagging.set_config("replica-priority", &PRIORITY_DEFAULT.to_string());
    took_effect && was_promoted
}

/// Has a replica that lags take the place of a master that runs. It takes turns: the one that reigned
/// before the last time comes again.
pub(super) fn depose(sentinels: &Sentinels, rng: &mut StdRng) -> bool {
    let master = sentinels.master();
    let lagging = *sentinels
        .replicas()
        .first()
        .expect("there are two replicas");
    let at = sentinels.index_of(lagging);
    sentinels.set_priority(at, PRIORITY_BEST);
    let took_effect = match Cut::between(lagging, master) {
        Some(cut) => {
            thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
            let was_used = is_used(master);
            let old = sentinels.begin_failover();
            let new = sentinels.wait_for_failover(old, SETTLE_LIMIT);
            drop(cut);
            sentinels.wait_until_settled(SETTLE_LIMIT) && was_used && new.port() == lagging.port()
        }
        None => no_effect(sentinels),
    };
    lagging.set_config("replica-priority", &PRIORITY_DEFAULT.to_string());
    took_effect
}
