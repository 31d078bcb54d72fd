//! Error responses: `application/problem+json`, RFC 9457.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Why a request failed. `code` is for programs, `detail` for people.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// `urn:tenure:` and the code.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: Box<str>,
    /// The code for programs.
    #[schema(example = "busy")]
    code: &'static str,
    /// The code in a few words.
    title: &'static str,
    /// The HTTP status.
    #[schema(example = 423)]
    status: u16,
    /// What failed, and what to do about it.
    detail: String,
    /// Further fields, such as `holder`, `ticket` or `waited_ms`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: Map<String, Value>,
    #[serde(skip)]
    retry_after: Option<Duration>,
}

/// A kind of problem: status, code and title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
}

/// One line for each kind.
macro_rules! kinds {
    ($($name:ident = $status:ident, $code:literal, $title:literal;)*) => {
        impl Kind {
            $(pub(crate) const $name: Self = Self { status: StatusCode::$status, code: $code, title: $title };)*
        }
    };
}

kinds! {
    MALFORMED = BAD_REQUEST, "malformed", "malformed request";
    INVALID = UNPROCESSABLE_ENTITY, "invalid", "invalid value";
    UNAUTHORIZED = UNAUTHORIZED, "unauthorized", "missing or invalid token";
    FORBIDDEN = FORBIDDEN, "forbidden", "not allowed";
    FOREIGN_ORIGIN = FORBIDDEN, "foreign_origin", "cross-origin request refused";
    NOT_FOUND = NOT_FOUND, "not_found", "not found";
    METHOD_NOT_ALLOWED = METHOD_NOT_ALLOWED, "method_not_allowed", "method not allowed";
    TOO_SLOW = REQUEST_TIMEOUT, "too_slow", "the request body was too slow";
    TOO_LARGE = PAYLOAD_TOO_LARGE, "too_large", "the request body is too large";
    MEDIA_TYPE = UNSUPPORTED_MEDIA_TYPE, "media_type", "the request body is not JSON";
    TOO_MANY = TOO_MANY_REQUESTS, "too_many", "too many requests";
    BUSY = LOCKED, "busy", "the lock is held";
    LEASE_GONE = GONE, "lease_gone", "the lease has ended";
    LEASE_CHANGED = CONFLICT, "lease_changed", "the lock has another lease";
    NOT_A_LOCK = CONFLICT, "not_a_lock", "the key is not a lock";
    CONFLICT = CONFLICT, "conflict", "conflict";
    UNAVAILABLE = SERVICE_UNAVAILABLE, "unavailable", "a backend is unavailable";
    STOPPING = SERVICE_UNAVAILABLE, "stopping", "the service is shutting down";
    INTERNAL = INTERNAL_SERVER_ERROR, "internal", "internal error";
}

impl Kind {
    /// A kind that only one area uses.
    pub(crate) const fn new(status: StatusCode, code: &'static str, title: &'static str) -> Self {
        Self {
            status,
            code,
            title,
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        self.status
    }
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:tenure:{}", kind.code).into(),
            code: kind.code,
            title: kind.title,
            status: kind.status.as_u16(),
            detail: detail.into(),
            more: Map::new(),
            retry_after: None,
        }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, field: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.more.insert(field.to_owned(), value);
        }
        self
    }

    /// Puts a consequence in front of the detail.
    pub(crate) fn causing(mut self, what: &str) -> Self {
        self.detail = format!("{what}: {}", self.detail);
        self
    }

    /// When to retry. The header has whole seconds.
    pub(crate) fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        let is_away = self.status() == StatusCode::SERVICE_UNAVAILABLE;
        if let Some(pause) = self.retry_after.or(is_away.then_some(RETRY_AFTER)) {
            let seconds = pause.as_secs() + u64::from(pause.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"tenure\""),
            );
        }
        response
    }
}

/// When to retry a backend that is unavailable.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl From<tenure::Error> for Problem {
    fn from(error: tenure::Error) -> Self {
        use tenure::ErrorKind as Is;
        let kind = match error.kind() {
            Is::InvalidName | Is::InvalidSetting => Kind::INVALID,
            Is::Busy => Kind::BUSY,
            Is::Lost => Kind::LEASE_GONE,
            Is::NotALock => Kind::NOT_A_LOCK,
            Is::Closed => Kind::STOPPING,
            Is::Unavailable
            | Is::ReadOnly
            | Is::OutOfMemory
            | Is::NotReplicated
            | Is::Denied
            | Is::Unsupported
            | Is::Protocol => Kind::UNAVAILABLE,
            _ => Kind::INTERNAL,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<tenure_sale::Error> for Problem {
    fn from(error: tenure_sale::Error) -> Self {
        use tenure_sale::ErrorKind as Is;
        let kind = match error.kind() {
            Is::InvalidItem
            | Is::InvalidBuyer
            | Is::InvalidRequest
            | Is::InvalidSetting
            | Is::InvalidUnits => Kind::INVALID,
            Is::InvalidOrder | Is::NoItem | Is::NoOrder | Is::NotLoaded => Kind::NOT_FOUND,
            Is::ItemExists | Is::Conflict | Is::AlreadyLoaded => Kind::CONFLICT,
            Is::Stale | Is::LedgerInUse | Is::Ledger | Is::LedgerDenied | Is::Store => {
                Kind::UNAVAILABLE
            }
            _ => Kind::INTERNAL,
        };
        Self::new(kind, error.to_string())
    }
}
