//! One master after the other, whatever chooses it: Sentinel, a cluster, or the test.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_testkit::{Proxy, eventually};

use super::{Kind, Lane, cluster, sentinel, short_time};
use crate::client::HOT;
use crate::fleet::Slot;
use crate::stage::Stage;

/// One of so many clients is idle while masters come and go.
const IDLE_EVERY: usize = 3;
/// Until a client that was told to rest has let go of nearly everything.
const UNTIL_IDLE: Duration = Duration::from_millis(900);
/// What a client asks, once it has been greeted, reaches the server so much later: in time, but hardly.
const STALL_MS: std::ops::Range<u64> = 200..1_800;
const NOTICE_LIMIT: Duration = Duration::from_secs(2);
/// How long a process may take to start and to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

impl Lane<'_> {
    pub(super) fn on_reign(&self, kind: Kind, rng: &mut StdRng) -> bool {
        match kind {
            Kind::SwapServer => self.promote_lagging(rng),
            Kind::ThereAndBack => self.there_and_back(rng),
            Kind::StallThenPromote => self.stall_then_promote(rng),
            Kind::HideNewMaster => self.hide(rng, |fronts, master| fronts != master),
            Kind::HideOldMaster => self.hide(rng, |fronts, master| fronts == master),
            other => unreachable!("`{}` is not done to masters", other.name()),
        }
    }

    /// A copy that lags takes its master's place, which keeps working for a moment.
    fn promote_lagging(&self, rng: &mut StdRng) -> bool {
        match self.fleet.stage {
            Stage::Pair(pair) => self.swap(pair, rng),
            Stage::Sentinel(sentinels) => sentinel::depose(sentinels, rng),
            Stage::Cluster(cluster) => cluster::depose(cluster, HOT, rng),
            Stage::Single(_) | Stage::Redlock(_) => unreachable!("there is no replica to promote"),
        }
    }

    /// A master is deposed and promoted again. Some clients have known it for long, rest meanwhile
    /// and ask it again just then, when others still hold what its successor gave them.
    fn there_and_back(&self, rng: &mut StdRng) -> bool {
        let idle: Vec<&Slot> = self.fleet.slots.iter().step_by(IDLE_EVERY).collect();
        for slot in &idle {
            slot.tell("rest");
        }
        thread::sleep(UNTIL_IDLE);
        let there = self.promote_lagging(rng);
        let wait = self.fleet.clients.after_failover.unwrap_or_default();
        thread::sleep(wait + Duration::from_millis(500) + short_time(rng));
        let back = self.promote_lagging(rng);
        for slot in &idle {
            slot.tell("work");
        }
        there && back
    }

    /// A client whose questions reach the server late while it connects must not think that the
    /// server's clock is ahead: its fences would be, and those of the next master lower.
    fn stall_then_promote(&self, rng: &mut StdRng) -> bool {
        let slot = &self.fleet.slots[rng.random_range(0..self.fleet.slots.len())];
        let fronts = self.fleet.stage.data_fronts();
        let by = Duration::from_millis(rng.random_range(STALL_MS));
        {
            let mut running = slot.running();
            let fault = self.log.kill_client(running.number);
            running.process.kill();
            fault.end(true);
            let proxies = &slot.proxies[fronts];
            let requests = || {
                let counts = proxies.iter().map(Proxy::counts);
                counts.map(|counts| counts.request_chunks).sum::<u64>()
            };
            let before = requests();
            let stall = |proxy: &Proxy| proxy.delay_later_requests(by);
            proxies.iter().for_each(stall);
            self.fleet.replace(slot, &mut running);
            // The greeting went on at once; what is delayed is there.
            eventually(CONNECT_LIMIT, || requests() >= before + 2);
            thread::sleep(by * self.steps_to_connect() + short_time(rng));
            proxies.iter().for_each(Proxy::heal);
            // Soon: what it thinks of the clock must not have been made good by anything.
            let works = || self.fleet.operations_of(&mut running) > 0;
            eventually(NOTICE_LIMIT, works);
        }
        self.promote_lagging(rng)
    }

    /// How often a client waits for an answer until it has connected: in a cluster it meets one node,
    /// asks it for the map, and meets the others.
    fn steps_to_connect(&self) -> u32 {
        match self.fleet.stage {
            Stage::Cluster(_) => 3,
            _ => 1,
        }
    }

    /// Some clients cannot reach some servers while a master is replaced: only the old one, or only
    /// the new one. Sentinels can be reached by all.
    fn hide(&self, rng: &mut StdRng, is_hidden: impl Fn(usize, usize) -> bool) -> bool {
        let stage = self.fleet.stage;
        let (master, shard) = match stage {
            Stage::Sentinel(it) => (it.master(), it.servers().iter().collect()),
            Stage::Cluster(it) => (it.master_of_key(HOT), it.shard_of(it.master_of_key(HOT))),
            _ => unreachable!("servers are not named here"),
        };
        let master = stage.front_of(master);
        let shard = shard.into_iter().map(|server| stage.front_of(server));
        let hidden: Vec<usize> = shard.filter(|front| is_hidden(*front, master)).collect();
        let first = rng.random_range(0..2);
        let slots = self.fleet.slots.iter().skip(first).step_by(2);
        let links: Vec<&Proxy> = slots
            .flat_map(|slot| hidden.iter().map(|front| &slot.proxies[*front]))
            .collect();
        for link in &links {
            link.black_hole();
        }
        let took_effect = self.promote_lagging(rng);
        for link in &links {
            link.heal();
        }
        took_effect
    }
}
