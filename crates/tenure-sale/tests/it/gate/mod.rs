//! What a gate promises, in memory and on every kind of Redis.

/// The closed set of answers, and what is checked before what.
mod answers;
/// Changes of the ledger that are sent to the gate.
mod apply;
/// What a broken, full or foreign server does to the gate, and what not.
mod broken;
/// Loading an item: who may, and what it does.
mod loading;
/// Gates compared with each other, by random steps.
mod model;
/// The queue between gate and ledger.
mod queue;
/// What an order costs the server.
mod room;
/// Units that lie on several shelves.
mod spread;
/// Where the contract runs.
mod stage;
/// Servers that were restarted or replaced.
mod successors;
/// Units for what is no buyer's order.
mod taking;

/// Runs a test on every kind of gate.
macro_rules! on_every_gate {
    ($($(#[$attribute:meta])* $test:ident;)*) => {
        on_every_gate!(@ memory Memory: $($test)*);
        on_every_gate!(@ redis Redis: $($test)*);
        on_every_gate!(@ sentinel Sentinel: $($test)*);
        on_every_gate!(@ cluster Cluster: $($test)*);
        on_every_gate!(@ memory_spread MemorySpread: $($test)*);
        on_every_gate!(@ redis_spread RedisSpread: $($test)*);
        on_every_gate!(@ cluster_spread ClusterSpread: $($test)*);
    };
    (@ $module:ident $kind:ident: $($test:ident)*) => {
        mod $module {
            use crate::gate::stage::Kind;
            $(#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(Kind::$kind).await;
            })*
        }
    };
}
use on_every_gate;
