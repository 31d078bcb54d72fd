//! The Rust peers, each with its own defaults, as its documentation shows it.

pub mod rlock;
pub mod rslock;
