//! The page in a real browser, over the real command and a real Redis. Table of contents:

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test that panics has failed, figures are told, and a test binary has no public interface"
)]

/// What has happened, before the page was opened and since.
mod activity;
/// A browser, for one test at a time.
mod browser;
/// A browser that is open, shared by the tests that take turns with it.
mod driver;
/// A lock on the page: it appears, its bar moves, it goes.
mod locks;
/// Thousands of locks.
mod many;
/// One lock: its holder, and ending its lease.
mod one;
/// The flash sale.
mod sale;
/// Pictures for the documents.
mod screenshots;
/// The service and the commands that take locks.
mod service;
/// Tokens.
mod token;
/// Everything that goes away and comes back.
mod trouble;
/// All views: what they load, what they say, where they are served.
mod views;
