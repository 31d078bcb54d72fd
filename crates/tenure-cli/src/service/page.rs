//! The page: files that are part of the program.

use axum::Router;

use super::App;

/// The page and its files, under `/`.
pub fn routes() -> Router<App> {
    Router::new()
}
