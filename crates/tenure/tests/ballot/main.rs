//! The ballot model: a model checker tries every order of events among a few nodes and clients of
//! Redlock, and fences must only grow.
//!
//! ```text
//! cargo test -p tenure --test ballot -- --nocapture
//! TENURE_LONG=1 cargo test --release -p tenure --test ballot -- --nocapture
//! ```
//!
//! Compare `node.rs` with the scripts of a node (`vote.lua`, `release.lua`, `repair.lua`), then
//! `rule.rs`. What comes of it is in docs/testing.md, why fences are made this way in
//! docs/decisions/0009.
#![expect(
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test program: it talks by printing and has no public interface"
)]

/// The steps that can be taken.
mod action;
/// How a model is explored, and what is said about it.
mod check;
/// What can happen next.
mod choices;
/// The model that is checked.
mod model;
/// The rule of one node.
mod node;
/// What must hold.
mod property;
/// The schemes and flaws that the model must refute.
mod refuted;
/// What a node's rule leaves open.
mod rule;
/// The ballot, and the schemes it is compared with.
mod scheme;
/// What the model must find to be sound.
mod sound;
/// What is remembered of nodes and acquisitions.
mod state;
/// What happens then.
mod steps;
/// Counterexamples in words.
mod trace;
/// What may happen to nodes and messages.
mod world;
