//! The service as other programs use it. The command's tests have what it does.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

/// Background work that fails.
mod background;
/// Mounted below a path of another program.
mod mounted;
