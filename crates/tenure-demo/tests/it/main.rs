//! The demonstrations on memory and on a real server.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

/// The three ways side by side.
mod ways;
