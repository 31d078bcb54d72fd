//! Shows how home-made locks break and how Tenure's locks hold.
//!
//! Everything here is for teaching. The command `tenure demo` runs [`three_ways`] and [`pitfalls`]; the
//! service's page has the [`playground`] and the [`broken_locks`]. Nothing needs a server: on
//! `memory://` it all runs inside the process.
//!
//! ```
//! use tenure_demo::broken_locks::{BrokenLocks, Came, Step, Trouble};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! let locks = BrokenLocks::open("memory://").await?;
//! // `SETNX` and `DEL`: if the process dies in between, the lock stays forever.
//! let came = locks.order(Step::V1, Some(Trouble::Crash)).await?;
//! assert!(matches!(came, Came::Broken(_)));
//! assert!(matches!(locks.order(Step::V1, None).await?, Came::Locked));
//! # Ok(()) }
//! ```

pub mod broken_locks;
mod connect;
mod ended;
pub mod item;
mod naive;
pub mod pitfalls;
mod plain_store;
pub mod playground;
mod runtime;
pub mod three_ways;
pub mod ways;

pub use self::ended::Ended;
