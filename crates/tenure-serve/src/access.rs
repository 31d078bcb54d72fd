//! Who may ask: the token, the name the service was called by, and pages of other sites.

use std::fmt;
use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use subtle::ConstantTimeEq;

use crate::app::AppState;
use crate::connections::Peer;
use crate::problem::{Kind, Problem};
use crate::settings::Access;

/// The secret that requests bring.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The secret, as it is.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The header `authorization` that requests bring, marked as never to be shown.
    pub fn header(&self) -> HeaderValue {
        let header = HeaderValue::try_from(format!("Bearer {}", self.0));
        let mut header = header.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        header.set_sensitive(true);
        header
    }

    /// Whether it is the same, in a time that does not tell how much of it is.
    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

impl Access {
    /// Refuses administration where it was not allowed.
    pub(crate) fn check_admin(&self) -> Result<(), Problem> {
        if self.admin {
            return Ok(());
        }
        let detail = "administration is off: start `tenure serve` with --allow-admin";
        Err(Problem::new(Kind::FORBIDDEN, detail))
    }
}

/// Whether a request may come in.
pub(crate) fn admit(app: &AppState, request: &Request) -> Result<(), Problem> {
    let (access, path) = (&app.settings.access, request.uri().path());
    // Supervisors must not take it for dead because others ask too much.
    let is_supervising = ["/livez", "/readyz"].contains(&path);
    if let Some(from) = Peer::of(request.extensions())
        && !is_supervising
    {
        app.limits.admit(from.ip())?;
    }
    if access.token.is_none() {
        check_host(access, request.headers())?;
    }
    // The page and its files are the same for everybody and hold nothing secret; that the process
    // is alive is for supervisors.
    if !is_guarded(path) {
        return Ok(());
    }
    // The notes order by GET.
    let is_order = path.starts_with("/order/");
    check_origin(request.headers(), is_order)?;
    check_token(access, request.headers())?;
    let is_change = !request.method().is_safe() || is_order;
    if access.read_only && is_change {
        let detail = "this service only shows: it was started with --read-only";
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
        Some(_) => Err(Problem::new(
            Kind::UNAUTHORIZED,
            "the token is not the one that this service was started with",
        )),
        None => Err(Problem::new(
            Kind::UNAUTHORIZED,
            "a token is needed: send it as `Authorization: Bearer TOKEN`",
        )),
    }
}

/// Refuses what a page of another site makes a browser send. With a GET, browsers that know nothing of
/// `Sec-Fetch-Site` send no `Origin` either: where a GET changes something, `Referer` is heard too.
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
        "refused, because a page of another site asks for it: open this service's own page";
    Err(Problem::new(Kind::FOREIGN_ORIGIN, detail))
}

/// Refuses to be called by a foreign name: otherwise a page of another site could have its own name
/// point here, and would be of the same origin.
fn check_host(access: &Access, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(host) = host else {
        return Ok(());
    };
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
        "refused to be called `{name}`: start `tenure serve` with --host-name {name}, or with a token"
    );
    Err(Problem::new(Kind::FOREIGN_ORIGIN, detail))
}

/// What browsers may do with an answer: next to nothing.
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

/// Has an answer say what browsers may do with it.
pub(crate) fn protect(headers: &mut HeaderMap) {
    // With `cache-control`, and room for what the connection adds.
    headers.reserve(PROTECTION.len() + 3);
    for (name, value) in PROTECTION {
        headers.insert(name, value);
    }
    let uncached = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(uncached);
}
