//! A [tower](https://docs.rs/tower) layer that holds one of Tenure's locks around a request.
//!
//! ```
//! use axum::{Extension, Router, routing::post};
//! use tenure::{Fence, Tenure};
//! use tenure_tower::LockLayer;
//!
//! # async fn example() -> Result<(), tenure::Error> {
//! let tenure = Tenure::connect("memory://").await?;
//! // One request at a time for each path, in all processes.
//! let lock = LockLayer::new(tenure.as_locks(), |request| Some(request.uri.path().to_owned()));
//! let app: Router = Router::new()
//!     .route("/orders/{id}", post(async |Extension(fence): Extension<Fence>| {
//!         format!("UPDATE orders … WHERE fence <= {fence}")
//!     }))
//!     .layer(lock);
//! # drop(app);
//! # Ok(()) }
//! ```
//!
//! - A lock that is held is answered with `423`, and `application/problem+json` that tells the
//!   holder; with [`wait`](LockLayer::wait), after that time.
//! - The lock is released when the response has been sent, or when the request is dropped, for
//!   example because its client has gone.
//! - If the lock is lost, the inner call is dropped and answered with `503`; a response that is being
//!   sent breaks off.
//! - The fence is an extension of the request.

mod body;
mod layer;
mod problem;
mod service;

pub use self::body::LockedBody;
pub use self::layer::LockLayer;
pub use self::service::LockService;
