//! Several independent servers.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::index;
use tenure_testkit::{Counts, Proxy};

use super::{Kind, Lane, random_time};
use crate::client::TTL_MAX_MS;

impl Lane<'_> {
    /// Takes nodes of a Redlock away, and brings them back.
    pub(super) fn on_nodes(&self, kind: Kind, rng: &mut StdRng) -> bool {
        let nodes = self.fleet.stage.keepers();
        let mut at = index::sample(rng, nodes.len(), 2).into_iter();
        let (one, other) = (at.next().unwrap(), at.next().unwrap());
        match kind {
            // Longer than any lease, so that all of them have ended meanwhile.
            Kind::KillForLong => self.while_clients_send(one, || {
                nodes[one].kill();
                let away_ms = rng.random_range(TTL_MAX_MS..TTL_MAX_MS * 2);
                thread::sleep(Duration::from_millis(away_ms));
                nodes[one].restart();
            }),
            Kind::KillTwo => self.while_clients_send(one, || {
                nodes[one].kill();
                nodes[other].kill();
                thread::sleep(random_time(rng) / 2);
                nodes[one].restart();
                thread::sleep(random_time(rng) / 4);
                nodes[other].restart();
            }),
            Kind::CutServer => self.cut(one, random_time(rng)),
            other => unreachable!("`{}` is not done to nodes", other.name()),
        }
    }

    /// Parts all clients from a node; true if any of them sent it something meanwhile.
    fn cut(&self, at: usize, lasts: Duration) -> bool {
        let links = || self.fleet.slots.iter().map(|slot| &slot.proxies[at]);
        let before: Vec<Counts> = links().map(Proxy::counts).collect();
        links().for_each(Proxy::black_hole);
        thread::sleep(lasts);
        let sent = |(link, before): (&Proxy, &Counts)| {
            link.counts().request_chunks > before.request_chunks
        };
        let noticed = links().zip(&before).any(sent);
        links().for_each(Proxy::heal);
        noticed
    }
}
