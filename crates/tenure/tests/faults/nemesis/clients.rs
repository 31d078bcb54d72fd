//! Clients, and the connections they have.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::{Counts, Proxy, eventually};

use super::{Kind, Lane, random_time};
use crate::client::TTL_MAX_MS;
use crate::fleet::{Fleet, Slot};
use crate::stage::Stage;

/// How long to look for signs that a fault was noticed.
const NOTICE_LIMIT: Duration = Duration::from_millis(500);

impl Lane<'_> {
    /// Pauses or kills a process.
    pub(super) fn on_process(&self, kind: Kind, slot: &Slot, rng: &mut StdRng) -> bool {
        let mut running = slot.running();
        let before = self.fleet.activity(slot, &mut running);
        if kind == Kind::KillClient {
            let fault = self.log.kill_client(running.number);
            running.process.kill();
            // It had sent something: it was at work.
            let was_at_work = before > 0;
            fault.end(was_at_work);
            self.fleet.replace(slot, &mut running);
            return was_at_work;
        }
        let fault = self.log.pause_client(running.number);
        running.process.pause();
        let length_ms = rng.random_range(TTL_MAX_MS / 2..TTL_MAX_MS * 2);
        thread::sleep(Duration::from_millis(length_ms));
        running.process.resume();
        let works_on = eventually(NOTICE_LIMIT, || {
            self.fleet.activity(slot, &mut running) > before
        });
        fault.end(works_on);
        works_on
    }
}

/// Some connections of some clients: to one of several servers mostly, now and then to more.
pub(super) fn some_connections<'a>(fleet: &'a Fleet<'_>, rng: &mut StdRng) -> Vec<&'a Proxy> {
    let count = rng.random_range(1..=3);
    let slots: Vec<&Slot> = fleet.slots.sample(rng, count).collect();
    let mut proxies = Vec::new();
    for slot in slots {
        if matches!(fleet.stage, Stage::Sentinel(_) | Stage::Cluster(_)) && rng.random_bool(0.7) {
            // Others have little to say.
            let busiest = slot
                .proxies
                .iter()
                .max_by_key(|it| it.counts().open_connections);
            proxies.extend(busiest);
            continue;
        }
        let servers = if rng.random_bool(0.7) {
            1
        } else {
            rng.random_range(1..=slot.proxies.len())
        };
        proxies.extend(slot.proxies.sample(rng, servers));
    }
    proxies
}

/// Breaks these connections for a while; true if bytes went the broken way.
pub(super) fn on_connections(kind: Kind, proxies: &[&Proxy], rng: &mut StdRng) -> bool {
    let before: Vec<Counts> = proxies.iter().map(|proxy| proxy.counts()).collect();
    for proxy in proxies {
        begin(kind, proxy, rng);
    }
    let armed = matches!(
        kind,
        Kind::Reset | Kind::ResetAfterRequest | Kind::CutRequest
    );
    if !armed {
        thread::sleep(random_time(rng));
    }
    let hit = |proxy: &Proxy, before: Counts| match kind {
        Kind::HoldReplies | Kind::DropReplies => proxy.counts().reply_chunks > before.reply_chunks,
        Kind::Refuse => proxy.counts().open_connections < before.open_connections,
        _ if armed => proxy.counts().connections > before.connections,
        _ => sent_more(proxy, before),
    };
    let any_hit = || {
        proxies
            .iter()
            .zip(&before)
            .any(|(proxy, before)| hit(proxy, *before))
    };
    let took_effect = if armed {
        eventually(NOTICE_LIMIT, any_hit)
    } else {
        any_hit()
    };
    for proxy in proxies {
        proxy.heal();
    }
    took_effect
}

fn begin(kind: Kind, proxy: &Proxy, rng: &mut StdRng) {
    let delay = Duration::from_millis(rng.random_range(5..300));
    match kind {
        Kind::HoldRequests => proxy.hold_requests(),
        Kind::HoldReplies => proxy.hold_replies(),
        Kind::DropRequests => proxy.drop_requests(),
        Kind::DropReplies => proxy.drop_replies(),
        Kind::BlackHole => proxy.black_hole(),
        Kind::Reset => proxy.reset_all(),
        Kind::ResetAfterRequest => proxy.reset_after_request(),
        Kind::CutRequest => proxy.cut_request_after(rng.random_range(0..200)),
        Kind::Delay if rng.random_bool(0.5) => proxy.delay_requests(delay),
        Kind::Delay => proxy.delay_replies(delay),
        Kind::Dribble if rng.random_bool(0.5) => {
            proxy.dribble_requests(Duration::from_micros(100));
        }
        Kind::Dribble => proxy.dribble_replies(Duration::from_micros(100)),
        Kind::Refuse => {
            proxy.refuse();
            proxy.reset_all();
        }
        other => unreachable!("`{}` is not done to connections", other.name()),
    }
}

fn sent_more(proxy: &Proxy, before: Counts) -> bool {
    proxy.counts().request_chunks > before.request_chunks
}
