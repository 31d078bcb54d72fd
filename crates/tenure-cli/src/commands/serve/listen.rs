//! Where the service listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::net::TcpListener;

use crate::exit::{Exit, Failed};

/// A port, or an address and a port.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let text = text.replace("localhost:", "127.0.0.1:");
    text.parse().map_err(|_| {
        "expected a port like 8080, or an address and a port like 127.0.0.1:8080".into()
    })
}

/// The prefix of every path: starts with a slash and does not end with one.
pub fn base_path(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_.~".contains(letter);
    if path.is_empty() || (path.starts_with('/') && path.chars().all(is_plain)) {
        return Ok(path.to_owned());
    }
    Err("expected a path like /tenure".into())
}

/// Refuses to listen on other interfaces without a token, unless it is explicitly allowed.
pub fn check(address: SocketAddr, is_open: bool) -> Result<()> {
    if address.ip().is_loopback() || is_open {
        return Ok(());
    }
    Err(Failed::usage(format!(
        "refusing to listen on `{address}` without a token: other machines can reach it; give \
         --token-file or TENURE_TOKEN, or --without-token to allow every request"
    ))
    .into())
}

pub fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let failed = |error: io::Error| {
        Failed::new(
            Exit::Unavailable,
            format!("cannot listen on `{address}`: {error}; choose another address with --listen"),
        )
    };
    let listener = tenure_serve::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_addresses_are_understood() {
        for (text, whole) in [
            ("8081", "127.0.0.1:8081"),
            (":8081", "127.0.0.1:8081"),
            ("localhost:1", "127.0.0.1:1"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(parse(text).map(|it| it.to_string()), Ok(whole.to_owned()));
        }
        for text in ["", "host", "127.0.0.1", "99999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
