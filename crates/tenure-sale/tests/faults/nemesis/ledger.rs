//! The ledger's server.

use std::thread;

use rand::rngs::StdRng;
use tenure_testkit::PostgresServer;

use super::{Kind, random_time};

const END_CONNECTIONS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
     AND backend_type = 'client backend'";

/// Does it, undoes it. Consumers ask the ledger all the time, so whatever stops it takes effect.
pub(super) fn strike(kind: Kind, server: &PostgresServer, rng: &mut StdRng) -> bool {
    match kind {
        Kind::KillLedger => {
            server.kill();
            thread::sleep(random_time(rng) / 4);
            server.restart();
            true
        }
        Kind::PauseLedger => {
            server.pause();
            thread::sleep(random_time(rng));
            server.resume();
            true
        }
        Kind::EndLedgerConnections => server.run_sql(END_CONNECTIONS) != "0",
        other => unreachable!("`{}` is not done to the ledger", other.name()),
    }
}
