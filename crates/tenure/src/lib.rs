//! Distributed locks on Redis that never lie about who holds what.
//!
#![doc = include_str!("docs/tour.md")]

mod backoff;
mod belief;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod candidates;
mod client;
mod client_handle;
#[cfg(feature = "serde")]
mod config;
mod core;
mod election;
mod engine;
mod error;
mod guard;
mod hold;
mod holder;
mod holds;
mod latch;
mod layout;
mod leader;
mod leadership;
mod lease;
mod lock;
mod locks;
mod mode;
mod moment;
mod multi_guard;
mod multi_lock;
mod name;
mod observer;
mod once;
mod order;
mod owner;
mod pending_work;
mod permit;
mod prefix;
mod redlock;
mod run;
mod seeded;
mod semaphore;
mod settings;
mod sharded;
mod standing;
mod stats;
mod store;
mod timings;
mod unchanged;
mod url;
mod waiting_caller;

pub use tokio_util::sync::CancellationToken;

pub use crate::builder::Builder;
pub use crate::candidates::Candidate;
pub use crate::client::Tenure;
#[cfg(feature = "serde")]
pub use crate::config::Config;
pub use crate::election::Election;
pub use crate::error::{Advice, Error, ErrorKind, Result};
pub use crate::guard::Guard;
pub use crate::holder::{ClientRecord, Holder, LeaseRecord, Listed, Listing, Slots};
pub use crate::latch::{Latch, PARTIES_MAX};
pub use crate::layout::Layout;
pub use crate::leader::Leader;
pub use crate::leadership::Leadership;
pub use crate::lease::{ClientId, Fence, Lease, LeaseId, TTL_MAX, TTL_MIN};
pub use crate::lock::Lock;
pub use crate::locks::Locks;
pub use crate::mode::Mode;
pub use crate::moment::{ManualClock, Moment};
pub use crate::multi_guard::MultiGuard;
pub use crate::multi_lock::{MultiLock, NAMES_MAX};
pub use crate::name::{LockName, NAME_BYTES_MAX};
pub use crate::observer::Observer;
pub use crate::once::{Once, OnceState, Start};
pub use crate::order::{Ordered, Unordered};
pub use crate::owner::Owner;
pub use crate::permit::Permit;
pub use crate::redlock::Redlock;
pub use crate::run::Run;
pub use crate::semaphore::{PERMITS_MAX, Semaphore};
pub use crate::sharded::Sharded;
pub use crate::standing::{LostReason, Released, Resigned, Standing};
pub use crate::stats::StatsSnapshot;
pub use crate::timings::{Call, CallOutcome, CallTimings, Distribution, TimingsSnapshot};
pub use crate::unchanged::Unchanged;
pub use crate::url::masked_url;

pub mod redis {
    //! Redis access for code built on top of the locks: connect, run a command or a script, block
    //! on a dedicated connection, read the server's run id. Tenure's own stores use it too.

    pub use crate::store::redis::{Arguments, Client, Command, Dedicated, Script, Value};
}
