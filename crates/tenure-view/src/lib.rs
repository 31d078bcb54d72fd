//! How Tenure shows locks, sales and times.
//!
//! The command `tenure` and the service of `tenure-serve` report the same things: to programs as JSON,
//! to people in words. Both take the reports from here, so that they agree.
//!
//! ```
//! use tenure::{Locks, Tenure};
//! use tenure_view::holders;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure::Error> {
//! let tenure = Tenure::connect("memory://").await?;
//! let guard = tenure.lock("nightly").acquire().await?;
//! let report = holders::look(&tenure.as_locks().clone(), "nightly").await?;
//! assert!(report.held);
//! assert_eq!(report.lease_id, Some(guard.lease_id().to_string()));
//! println!("{}", report.lines().join("\n"));
//! # Ok(()) }
//! ```
//! [`scratch_names`] is not a view, but shared by the same programs: names of temporary locks.
//!
//! The doc comments of structs that implement [`utoipa::ToSchema`] are part of the service's `OpenAPI`
//! document.

pub mod changes;
pub mod holders;
pub mod leaders;
pub mod output;
pub mod printable;
pub mod sale;
pub mod scratch_names;
pub mod time;
pub mod timings;
