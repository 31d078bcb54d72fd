//! Lost replies, retries, cancellation.
