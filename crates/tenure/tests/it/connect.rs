//! How to connect: TLS, sockets, users, databases.

/// `tenure::redis`, the small client for what stands beside locks.
mod client;
/// Certificates that are trusted, demanded, wrong or missing.
mod tls;
/// Everything a URL can say about one server without TLS.
mod urls;
