//! What a gate promises, in memory and on every kind of Redis.

/// The closed set of answers.
mod answers;
/// Where the contract runs.
mod stage;

/// Runs a test on every kind of gate.
macro_rules! on_every_gate {
    ($($(#[$attribute:meta])* $test:ident;)*) => {
        on_every_gate!(@ memory Memory: $($test)*);
        on_every_gate!(@ redis Redis: $($test)*);
        on_every_gate!(@ sentinel Sentinel: $($test)*);
        on_every_gate!(@ cluster Cluster: $($test)*);
    };
    (@ $module:ident $kind:ident: $($test:ident)*) => {
        mod $module {
            use crate::gate::stage::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(Kind::$kind).await;
            })*
        }
    };
}
use on_every_gate;
