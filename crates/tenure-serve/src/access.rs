//! Access checks: the token, the host name, and requests from pages of other sites.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use crate::connections::Peer;
use crate::limits::Limits;
use crate::problem::{Kind, Problem};
use crate::settings::Access;

impl Access {
    /// Refuses administration unless it is allowed.
    pub(crate) fn check_admin(&self) -> Result<(), Problem> {
        if self.admin {
            return Ok(());
        }
        let detail = "administration is off: start `tenure serve` with --allow-admin";
        Err(Problem::new(Kind::FORBIDDEN, detail))
    }
}

/// Whether a request is accepted.
pub(crate) fn admit(access: &Access, limits: &Limits, request: &Request) -> Result<(), Problem> {
    let path = request.uri().path();
    // A supervisor must not restart the service because of too many other requests.
    let is_supervising = ["/livez", "/readyz"].contains(&path);
    if let Some(from) = Peer::of(request.extensions())
        && !is_supervising
    {
        limits.admit(from.ip())?;
    }
    if access.token.is_none() {
        check_host(access, request.headers())?;
    }
    // The page and its files hold no secrets, and supervisors need the health checks.
    if !is_guarded(path) {
        return Ok(());
    }
    // The load-test endpoint orders by GET.
    let is_order = path.starts_with("/order/");
    check_origin(request.headers(), is_order)?;
    check_token(access, request.headers())?;
    let is_change = !request.method().is_safe() || is_order;
    if access.read_only && is_change {
        let detail = "read-only: the service was started with --read-only";
        return Err(Problem::new(Kind::FORBIDDEN, detail));
    }
    Ok(())
}

fn is_guarded(path: &str) -> bool {
    ["/api/", "/order/", "/metrics"]
        .iter()
        .any(|guarded| path.starts_with(guarded))
}

fn check_token(access: &Access, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(token) = &access.token else {
        return Ok(());
    };
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|given| given.to_str().ok());
    let given = given.and_then(|given| {
        let (scheme, secret) = given.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(secret.trim())
    });
    match given {
        Some(given) if token.is(given) => Ok(()),
        Some(_) => Err(Problem::new(Kind::UNAUTHORIZED, "invalid token")),
        None => Err(Problem::new(
            Kind::UNAUTHORIZED,
            "missing token: send it as `Authorization: Bearer TOKEN`",
        )),
    }
}

/// Refuses cross-site requests of browsers. With a GET, browsers without `Sec-Fetch-Site` send no
/// `Origin` either: where a GET changes something, `Referer` is checked too.
fn check_origin(headers: &HeaderMap, with_referer: bool) -> Result<(), Problem> {
    let of = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_referred = with_referer && headers.contains_key(header::REFERER);
    let is_ours = match (of("sec-fetch-site"), of("origin")) {
        (Some(site), _) => ["same-origin", "none"].contains(&site),
        (None, Some(origin)) => {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_some() && host == of("host")
        }
        (None, None) => true,
    };
    let refers_here = || {
        let page = of("referer").and_then(|page| page.parse::<Uri>().ok());
        let host = page.as_ref().and_then(Uri::authority);
        host.is_some_and(|host| of("host").is_some_and(|own| *host == *own))
    };
    if is_ours && (!is_referred || refers_here()) {
        return Ok(());
    }
    let detail =
        "refused: the request comes from a page of another site; open the service's own page";
    Err(Problem::new(Kind::FOREIGN_ORIGIN, detail))
}

/// Refuses unknown host names: otherwise a page of another site could point its own name to this
/// address and share its origin (DNS rebinding).
fn check_host(access: &Access, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(host) = host else {
        return Ok(());
    };
    if plain_host(host).is_some_and(|name| name == "localhost" || name.parse::<IpAddr>().is_ok()) {
        return Ok(());
    }
    let name = host.parse::<Uri>().ok();
    let name = name.as_ref().and_then(Uri::host).unwrap_or(host);
    let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
    let is_known = name.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || access
            .host_names
            .iter()
            .any(|known| known.eq_ignore_ascii_case(&name));
    if is_known {
        return Ok(());
    }
    let detail = format!(
        "unknown host name `{name}`: start `tenure serve` with --host-name {name}, or with a token"
    );
    Err(Problem::new(Kind::FOREIGN_ORIGIN, detail))
}

/// The name in `name` or `name:port`, if there is nothing unusual about it: most requests need no
/// parser for URIs.
fn plain_host(host: &str) -> Option<&str> {
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    let is_plain = name.bytes().all(is_name) && port.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then_some(name)
}

/// What browsers may do with a response: next to nothing.
const PROTECTION: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Adds the headers that restrict what browsers may do with a response.
pub(crate) fn protect(headers: &mut HeaderMap) {
    // With `cache-control`, and capacity for the headers that the connection adds.
    headers.reserve(PROTECTION.len() + 3);
    for (name, value) in PROTECTION {
        headers.insert(name, value);
    }
    let uncached = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(uncached);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_hosts_are_read_without_a_parser() {
        assert_eq!(plain_host("localhost"), Some("localhost"));
        assert_eq!(plain_host("localhost:8080"), Some("localhost"));
        assert_eq!(plain_host("127.0.0.1:80"), Some("127.0.0.1"));
        for strange in [
            "localhost:80@evil",
            "a@localhost",
            "[::1]:80",
            "localhost:x",
            "a b",
        ] {
            assert_eq!(plain_host(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_host_of_another_site_is_refused_however_it_is_written() {
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            check_host(&Access::default(), &headers).is_ok()
        };
        for ours in [
            "localhost",
            "localhost:1",
            "127.0.0.1",
            "[::1]:80",
            "x.localhost",
            "LOCALHOST",
        ] {
            assert!(check(ours), "{ours}");
        }
        for other in [
            "evil",
            "evil:80",
            "localhost:80@evil",
            "localhost.evil",
            "127.0.0.1.evil",
        ] {
            assert!(!check(other), "{other}");
        }
    }
}
