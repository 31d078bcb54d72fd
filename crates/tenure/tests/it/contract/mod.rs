//! What every store promises. Each case is written once and runs on each store.

mod acquire;
mod fences;
mod guards;
mod hand_off;
mod lifecycle;
mod owners;
mod records;
pub mod waiting;

/// Runs each case on every deployment: `contract! { case, case, ... }`. Cases after `queued:` are
/// about the order of processes that wait, which a Redlock does not keep.
macro_rules! contract {
    ($($case:ident),* $(,)? $(; queued: $($queued:ident),* $(,)?)?) => {
        $crate::contract::contract!(@on memory: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on redis: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on redisson: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on sentinel: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on cluster: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on redlock_3: $($case,)*);
        $crate::contract::contract!(@on redlock_5: $($case,)*);
        $crate::contract::contract!(@on redlock_3_one_dead: $($case,)*);
        $crate::contract::contract!(@on redlock_3_one_hung: $($case,)*);
        $crate::contract::contract!(@on redlock_3_redisson: $($case,)*);
    };
    (@on $stage:ident: $($case:ident,)*) => {
        mod $stage {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case($crate::stage::Stage::$stage()).await;
            })*
        }
    };
}

use contract;
