//! Answers of the layer itself: `application/problem+json`, RFC 9457, as `tenure serve` gives them.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use tenure::{Error, ErrorKind, Guard, Holder};

use crate::body::LockedBody;

/// The answer to a request whose lock could not be acquired.
pub(crate) fn of<B>(error: &Error) -> Response<LockedBody<B>> {
    let (status, code, title) = match error.kind() {
        ErrorKind::Busy => (StatusCode::LOCKED, "busy", "the lock is held"),
        ErrorKind::InvalidName => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "invalid value"),
        ErrorKind::NotALock => (StatusCode::CONFLICT, "not_a_lock", "the key is not a lock"),
        ErrorKind::InvalidSetting | ErrorKind::Unsupported => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "internal error",
        ),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "a backend is unavailable",
        ),
    };
    let mut problem = problem(status, code, title, &error.to_string());
    if let Some(holder) = error.holder() {
        problem["holder"] = described(holder);
    }
    response(status, &problem)
}

/// The answer to a request that lost its lock.
pub(crate) fn lost<B>(guard: &Guard) -> Response<LockedBody<B>> {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let detail = format!(
        "the lock `{}` was lost while the request was served, and it was stopped: look what it has \
         done before you repeat it",
        guard.name()
    );
    let problem = problem(status, "lock_lost", "the lock was lost", &detail);
    response(status, &problem)
}

fn problem(status: StatusCode, code: &str, title: &str, detail: &str) -> Value {
    json!({
        "type": format!("urn:tenure:{code}"),
        "code": code,
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    })
}

/// Who holds the lock, and for how long at least.
fn described(holder: &Holder) -> Value {
    let who = holder.client.as_ref().map(|client| {
        let name = client.name.as_ref();
        name.unwrap_or(&client.host).clone()
    });
    let left_ms = holder.remaining.as_ref().map(Duration::as_millis);
    let left_ms = left_ms.and_then(|ms| u64::try_from(ms).ok());
    json!({ "who": who, "left_ms": left_ms, "meta": holder.meta })
}

fn response<B>(status: StatusCode, problem: &Value) -> Response<LockedBody<B>> {
    let mut response = Response::new(LockedBody::problem(problem.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/problem+json");
    headers.insert(CONTENT_TYPE, kind);
    if problem["code"] == "unavailable" {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
