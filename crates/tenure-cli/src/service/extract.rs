//! What a request brings, or a problem that says what is wrong with it.

use axum::body::Bytes;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{Kind, Problem};

/// The body, as JSON. An empty body is `{}`: every field of it may have a default.
#[derive(Debug)]
pub struct Body<T>(pub T);

/// The body as it is, for those who speak another language.
#[derive(Debug)]
pub struct Raw(pub Bytes);

/// The parameters after the question mark.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// The parameters in the path.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
        let headers = request.headers();
        let length = headers.get(CONTENT_LENGTH).map(|it| it.as_bytes() == b"0");
        let is_empty = length.unwrap_or(!headers.contains_key(TRANSFER_ENCODING));
        if is_empty && !headers.contains_key(CONTENT_TYPE) {
            let empty = serde_json::from_str("{}");
            let refuse =
                |error| Problem::new(Kind::MALFORMED, format!("the body is empty: {error}"));
            return empty.map(Self).map_err(refuse);
        }
        let read = axum::Json::<T>::from_request(request, state).await;
        read.map(|axum::Json(body)| Self(body))
            .map_err(|refused| of_body(&refused))
    }
}

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|refused| {
            let kind = match refused.status() {
                StatusCode::PAYLOAD_TOO_LARGE => Kind::TOO_LARGE,
                _ => Kind::MALFORMED,
            };
            Problem::new(kind, refused.body_text())
        })
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let refuse = |refused: QueryRejection| Problem::new(Kind::MALFORMED, refused.body_text());
        read.map(|axum::extract::Query(query)| Self(query))
            .map_err(refuse)
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let refuse = |refused: PathRejection| Problem::new(Kind::MALFORMED, refused.body_text());
        read.map(|axum::extract::Path(path)| Self(path))
            .map_err(refuse)
    }
}

fn of_body(refused: &JsonRejection) -> Problem {
    let kind = match refused.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Kind::MEDIA_TYPE,
        StatusCode::PAYLOAD_TOO_LARGE => Kind::TOO_LARGE,
        StatusCode::UNPROCESSABLE_ENTITY => Kind::INVALID,
        _ => Kind::MALFORMED,
    };
    Problem::new(kind, refused.body_text())
}
