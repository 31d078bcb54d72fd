//! Nodes of a Redlock that keep nothing, and whose clock is wrong when they start.

use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_testkit::{ClientKind, Proxy};

use super::{Kind, Lane};
use crate::stage::{FORGETFUL, WRONG_BY};

/// So long a node that may have forgotten something has no vote, and a little more.
const REST: Duration = Duration::from_secs(33);
/// What is left when a majority has forgotten must be enough for its rest and for some work.
const LEFT_MIN: Duration = Duration::from_secs(40);
/// Those that are restarted again and again. With the third the others are a majority, so that
/// locks can be had all the time.
const MOSTLY: &[usize] = &[FORGETFUL[0], FORGETFUL[1]];
const CORRECTED_MS: std::ops::Range<u64> = 20..600;
/// How long leases are granted by a bare majority.
const BARE_MS: std::ops::Range<u64> = 1_200..2_200;

impl Lane<'_> {
    pub(super) fn forget(&self, kind: Kind, rng: &mut StdRng) -> bool {
        match kind {
            Kind::RestartWrong => {
                let one = MOSTLY[rng.random_range(0..MOSTLY.len())];
                self.while_clients_send(one, || self.restart_wrong(&[one], rng))
            }
            Kind::ForgetBareMajority => {
                self.while_clients_send(MOSTLY[0], || self.forget_bare_majority(rng))
            }
            other => unreachable!("`{}` is not done to those that forget", other.name()),
        }
    }

    /// Leases are granted by a bare majority, most of which then forgets them, while those come
    /// back that never heard of them.
    fn forget_bare_majority(&self, rng: &mut StdRng) {
        let others = || {
            let slots = self.fleet.slots.iter();
            let proxies = slots.flat_map(|slot| slot.proxies.iter().enumerate());
            let others = proxies.filter(|(index, _)| !FORGETFUL.contains(index));
            others.map(|(_, proxy)| proxy)
        };
        others().for_each(Proxy::black_hole);
        thread::sleep(Duration::from_millis(rng.random_range(BARE_MS)));
        self.restart_with(MOSTLY, rng, || others().for_each(Proxy::heal));
    }

    /// All that keep nothing forget at once, if there is time for their rest. Nothing but exclusion
    /// can be looked at until it is over: nobody gets a lock.
    pub(super) fn forget_most(&self, rng: &mut StdRng) -> bool {
        if self.left() < LEFT_MIN {
            return false;
        }
        self.logged(Kind::ForgetMost, || {
            let begun = Instant::now();
            self.while_clients_send(FORGETFUL[0], || {
                self.restart_wrong(&FORGETFUL, rng);
                thread::sleep(REST.saturating_sub(begun.elapsed()));
            })
        })
    }

    fn restart_wrong(&self, nodes: &[usize], rng: &mut StdRng) {
        self.restart_with(nodes, rng, || ());
    }

    /// Kills these nodes and starts them with clocks that are an hour off; they are set right a
    /// moment later.
    fn restart_with(&self, nodes: &[usize], rng: &mut StdRng, meanwhile: impl FnOnce()) {
        let keepers = self.fleet.stage.keepers();
        let behind = rng.random_bool(0.7);
        let clocks: Vec<_> = FORGETFUL.iter().zip(self.clocks).collect();
        let clocks = || clocks.iter().filter(|(index, _)| nodes.contains(index));
        for index in nodes {
            keepers[*index].kill();
        }
        for (_, clock) in clocks() {
            if behind {
                clock.step_back(WRONG_BY);
            } else {
                clock.step_forward(WRONG_BY);
            }
        }
        for index in nodes {
            keepers[*index].restart();
        }
        meanwhile();
        thread::sleep(Duration::from_millis(rng.random_range(CORRECTED_MS)));
        clocks().for_each(|(_, clock)| clock.set_right());
        // Clients that connect from now on read an age that is wrong by as much.
        for index in nodes {
            keepers[*index].kill_clients(ClientKind::Normal);
        }
    }
}
