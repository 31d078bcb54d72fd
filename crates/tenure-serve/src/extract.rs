//! The parts of a request, or a problem that says what is wrong with them.

use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use crate::problem::{Kind, Problem};
use crate::state::AppState;

/// The longest query, in bytes. The ids of leases of other libraries can be long.
const QUERY_MAX: usize = 8_192;
/// The longest text to search for, in bytes: that of the longest name.
pub(crate) const TEXT_MAX: usize = 512;
/// How long a client may take to send a body.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The body, as JSON. An empty body is `{}`: every field of it may have a default.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

/// The body as bytes, for formats other than our JSON.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) Bytes);

/// The parameters after the question mark.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

/// The parameters in the path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        let kind = request.headers().get(CONTENT_TYPE).map(is_json);
        let Raw(body) = Raw::from_request(request, app).await?;
        if kind.is_none() && body.is_empty() {
            return parse(b"{}").map(Self);
        }
        if kind != Some(true) {
            let detail = "the request body is not JSON: send it with `content-type: \
                          application/json`";
            return Err(Problem::new(Kind::MEDIA_TYPE, detail));
        }
        parse(&body).map(Self)
    }
}

/// Reads an object. serde would accept a list too, as the fields in order.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let read = match serde_json::from_slice(body) {
        Ok(read) => read,
        Err(_) => parse_in_detail(body)?,
    };
    if body.trim_ascii_start().first() == Some(&b'[') {
        let detail = "the request body is a list, expected an object";
        return Err(Problem::new(Kind::INVALID, detail));
    }
    Ok(read)
}

/// Parses it again to find the field that failed. Tracking the path costs more than the parsing
/// itself, so only errors pay for it.
fn parse_in_detail<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader);
    let read = read.map_err(|error| {
        let kind = match error.inner().classify() {
            Category::Data => Kind::INVALID,
            Category::Io | Category::Syntax | Category::Eof => Kind::MALFORMED,
        };
        Problem::new(kind, format!("cannot read the request body: {error}"))
    })?;
    let refuse = |error| {
        Problem::new(
            Kind::MALFORMED,
            format!("cannot read the request body: {error}"),
        )
    };
    reader.end().map_err(refuse)?;
    Ok(read)
}

/// Whether it is `application/json` or `application/…+json`.
fn is_json(kind: &HeaderValue) -> bool {
    if kind == "application/json" {
        return true;
    }
    let kind = kind.to_str().unwrap_or_default().split(';').next();
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

impl FromRequest<AppState> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        let body = Limited::new(request.into_body(), app.settings.limits.max_body);
        let Ok(read) = timeout(BODY_WITHIN, body.collect()).await else {
            let detail = format!("the request body did not arrive within {BODY_WITHIN:?}");
            return Err(Problem::new(Kind::TOO_SLOW, detail));
        };
        let read = read.map_err(|error| {
            let kind = if error.is::<LengthLimitError>() {
                Kind::TOO_LARGE
            } else {
                Kind::MALFORMED
            };
            Problem::new(kind, format!("cannot read the request body: {error}"))
        })?;
        Ok(Self(read.to_bytes()))
    }
}

/// Refuses a text that is longer than anything it could mean: to look for it costs time for each lock.
pub(crate) fn check_length(what: &str, text: &str, bytes_max: usize) -> Result<(), Problem> {
    let bytes = text.len();
    if bytes <= bytes_max {
        return Ok(());
    }
    let detail = format!("`{what}` has {bytes} bytes: at most {bytes_max} are allowed");
    Err(Problem::new(Kind::INVALID, detail))
}

/// The problem for an unreadable part of the request, with its root cause.
fn unread(part: &str, refused: &dyn Error) -> Problem {
    let mut cause = refused;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Problem::new(Kind::MALFORMED, format!("cannot read the {part}: {cause}"))
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        check_length("query", parts.uri.query().unwrap_or_default(), QUERY_MAX)?;
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let refuse = |refused: QueryRejection| unread("query", &refused);
        read.map(|axum::extract::Query(query)| Self(query))
            .map_err(refuse)
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let refuse = |refused: PathRejection| unread("path", &refused);
        read.map(|axum::extract::Path(path)| Self(path))
            .map_err(refuse)
    }
}
