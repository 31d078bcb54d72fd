//! A master, its replicas, and the sentinels that choose the next master. Hazards that need them
//! carry their numbers here.

use std::time::Duration;

use tenure::{Builder, Tenure};
use tenure_testkit::{RedisServer, Sentinels};

use crate::stage::ms;

/// Locks are held, waited for and lost across a failover.
mod failover;
/// What a client does while a master is moved, and how fast.
mod following;
/// Several clients at work, and what they did is checked.
mod load;
/// A master that has just begun to reign gives no new locks.
mod reign;
/// What replicas confirm.
mod replicas;
/// All of them speak TLS.
mod tls;
/// Sentinels and masters that cannot be reached, or want something else.
mod trouble;

/// How long a failover may take on a crowded machine.
const FAILOVER_LIMIT: Duration = Duration::from_secs(20);
/// Long enough that a lease is there when its master has been replaced.
const TTL: Duration = ms(15_000);

/// A deployment whose replicas can be cut off.
fn fragile() -> Sentinels {
    Sentinels::builder().proxied_replication().start()
}

fn builder(sentinels: &Sentinels) -> Builder {
    Tenure::builder(sentinels.url()).unreachable_after(FAILOVER_LIMIT)
}

async fn client(sentinels: &Sentinels) -> Tenure {
    builder(sentinels).connect().await.unwrap()
}

/// The value of a key.
fn value_at(server: &RedisServer, key: &str) -> Option<String> {
    let reply = server.client().command(&["GET", key]);
    (!reply.is_nil()).then(|| reply.text().to_owned())
}

/// Does something that takes a while and blocks, while the tasks of the test continue.
fn meanwhile<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Kills the master before the last writes are replicated, and waits for the next.
fn kill_unheard(sentinels: &Sentinels) -> &RedisServer {
    meanwhile(|| {
        let old = sentinels.kill_master();
        sentinels.wait_for_failover(old, FAILOVER_LIMIT)
    })
}
