//! The ledger's server.

use std::thread;

use rand::rngs::StdRng;
use tenure_testkit::PostgresServer;

use super::{Kind, random_time};

/// Does it, undoes it. Consumers ask the ledger all the time, so each takes effect.
pub(super) fn strike(kind: Kind, server: &PostgresServer, rng: &mut StdRng) -> bool {
    match kind {
        Kind::RestartLedger => {
            server.stop();
            thread::sleep(random_time(rng) / 4);
            server.start_again();
        }
        Kind::KillLedger => {
            server.kill();
            thread::sleep(random_time(rng) / 4);
            server.start_again();
        }
        Kind::PauseLedger => {
            server.pause();
            thread::sleep(random_time(rng));
            server.resume();
        }
        other => unreachable!("`{}` is not done to the ledger", other.name()),
    }
    true
}
