//! How to connect: TLS, sockets, users, databases.

/// `tenure::redis`, the small Redis client for code next to the locks.
mod client;
/// Certificates that are trusted, demanded, wrong or missing.
mod tls;
/// Everything a URL can say about one server without TLS.
mod urls;
