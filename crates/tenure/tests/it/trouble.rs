//! Bad input and servers in trouble: the error, its text, and what remains.

/// Servers that go away: while connecting, waiting, holding.
mod gone;
/// Names, settings and URLs that are refused before anything is sent.
mod input;
/// Passwords, commands, keys and channels that the server refuses.
mod permissions;
/// Passwords never reach a text.
mod secrets;
/// Servers that are there and cannot serve.
mod unfit;
