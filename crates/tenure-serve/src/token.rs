//! The secret that requests send.

use std::fmt;

use axum::http::HeaderValue;
use subtle::ConstantTimeEq;

/// The secret that requests send.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The secret in plain text.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The header `authorization`, marked as sensitive.
    pub fn header(&self) -> HeaderValue {
        let header = HeaderValue::try_from(format!("Bearer {}", self.0));
        let mut header = header.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        header.set_sensitive(true);
        header
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}
