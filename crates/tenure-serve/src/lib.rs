//! Tenure's service: locks and flash sales over HTTP, and a page that shows them.
//!
//! `tenure serve` is this crate behind a command line. Another program can use the same service: as
//! an [`axum::Router`] below a path of its own, or on a listener.
//!
//! ```
//! use axum::Router;
//! use axum::routing::get;
//! use tenure::{Locks, Tenure};
//! use tenure_serve::{App, Parts, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure::Error> {
//! let url = "memory://shop";
//! // A lease must keep its id: no hand-off inside the process.
//! let tenure = Tenure::builder(url).hand_off(false).connect().await?;
//! let settings = Settings {
//!     base_path: "/tenure".to_owned(),
//!     ..Settings::default()
//! };
//! let app = App::new(settings, Parts::new(tenure.as_locks().clone(), [url]));
//!
//! // The page is at `/tenure/`, the API at `/tenure/api/v1`, its description at
//! // `/tenure/openapi.json`.
//! let router: Router = Router::new()
//!     .route("/hello", get(|| async { "hello" }))
//!     .merge(app.router());
//! let background = tokio::spawn({
//!     let app = app.clone();
//!     async move { app.run_background().await }
//! });
//! # drop(router);
//! // … `axum::serve(listener, router)` …
//! app.stop();
//! background.await.expect("the background work does not panic");
//! # Ok(()) }
//! ```
//!
//! A program that has nothing else to serve calls [`App::serve`] with a listener, for example from
//! [`bind`]. That also limits connections, slow requests and the time to stop.
//!
//! # Who may do what
//!
//! [`Access`] decides: a token, the host names that the service accepts without one, and whether
//! administration or any change is allowed. The default is strict: no administration, and without a
//! token only requests to this machine's own names.

mod about;
mod access;
mod app;
mod background;
mod connections;
mod event_stream;
mod events;
mod extract;
mod feed;
mod health;
mod http_metrics;
mod limits;
mod listen;
mod lock_board;
mod locks;
mod log;
mod metrics;
mod middleware;
mod openapi;
mod page;
mod parts;
mod places;
mod playground;
mod problem;
mod process_metrics;
mod responses;
mod sales;
mod settings;
mod state;
mod stats;
mod store_server;
mod token;

pub use tenure_demo::broken_locks::BrokenLocks;

pub use self::app::App;
pub use self::listen::bind;
pub use self::log::Log;
pub use self::parts::Parts;
pub use self::settings::{Access, LimitSettings, Settings};
pub use self::token::Token;
