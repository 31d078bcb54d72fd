//! What every store promises. Each case is written once and runs on each store.

mod acquire;
mod fences;
mod guards;
mod hand_off;
mod lifecycle;
mod owners;
mod records;
pub mod waiting;

/// Runs each case on every store: `contract! { case, case, ... }`.
macro_rules! contract {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case($crate::stage::Stage::memory()).await;
            })*
        }

        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case($crate::stage::Stage::redis()).await;
            })*
        }

        mod redisson {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case($crate::stage::Stage::redisson()).await;
            })*
        }
    };
}

use contract;
