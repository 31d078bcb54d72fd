//! The API description: `/openapi.json`.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi as Document, Server};

/// Title and description.
#[derive(OpenApi)]
#[openapi(info(
    title = "Tenure",
    description = "Distributed locks and flash sales over HTTP. Every error is \
                   `application/problem+json`. Any request may also fail with 400 (malformed), \
                   401 (no token), 403 (not allowed), 405, 408 (body too slow), 413 (body too \
                   large), 415 (not JSON), 422 (invalid value), 429 (too many requests) or 503 \
                   (backend unavailable, with `Retry-After`). If the service has a token, send \
                   it as `Authorization: Bearer TOKEN`.",
    license(name = "MIT OR Apache-2.0")
))]
pub(crate) struct Description;

/// Serves the document at `/openapi.json`.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(
    mut document: Document,
    base: &str,
) -> Router<S> {
    name_operations(&mut document);
    document.servers = (!base.is_empty()).then(|| vec![Server::new(base)]);
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", bearer);
    // A service without a token requires none.
    let none = SecurityRequirement::default();
    let token = SecurityRequirement::new("token", Vec::<String>::new());
    document.security = Some(vec![token, none]);
    let text: Arc<str> = document.to_json().unwrap_or_default().into();
    let show = move || {
        let text = Arc::clone(&text);
        async move {
            let kind = HeaderValue::from_static("application/json");
            ([(header::CONTENT_TYPE, kind)], text.to_string())
        }
    };
    Router::new().route("/openapi.json", get(show))
}

/// Names each operation after its method and path, as in `put_locks_name_lease`: handlers of
/// different areas have the same names, and generated clients need unique ones.
fn name_operations(document: &mut Document) {
    for (path, item) in &mut document.paths.paths {
        let words = path
            .trim_start_matches("/api/v1")
            .replace(['{', '}', '.'], "");
        let words = words.replace('/', "_");
        let each = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("delete", &mut item.delete),
            ("patch", &mut item.patch),
        ];
        for (method, operation) in each {
            if let Some(operation) = operation {
                operation.operation_id = Some(format!("{method}{words}"));
            }
        }
    }
}
