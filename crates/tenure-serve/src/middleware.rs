//! The middleware of every request: access checks, metrics and the headers of the response. It is
//! one layer whose future is not boxed: each further layer would cost a request about as much as
//! reading its body.

use std::convert::Infallible;
use std::future::{self, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::access;
use crate::http_metrics::RouteMeter;
use crate::problem::{Kind, Problem};
use crate::state::AppState;

/// The caller's id of a request, returned unchanged with the response.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The layer.
#[derive(Clone)]
pub(crate) struct RequestLayer(pub(crate) AppState);

/// The inner service inside the layer.
#[derive(Clone)]
pub(crate) struct RequestService<S> {
    app: AppState,
    inner: S,
}

/// A request in progress.
pub(crate) struct RequestFuture<F> {
    answer: Answer<F>,
    meter: Arc<RouteMeter>,
    begun: Instant,
    /// The caller's id of it.
    id: Option<HeaderValue>,
}

enum Answer<F> {
    Comes(F),
    /// The request was refused.
    Refused(Ready<Result<Response, Infallible>>),
}

impl<S> Layer<S> for RequestLayer {
    type Service = RequestService<S>;

    fn layer(&self, inner: S) -> RequestService<S> {
        let app = self.0.clone();
        RequestService { app, inner }
    }
}

impl<S> Service<Request> for RequestService<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response;
    type Error = Infallible;
    type Future = RequestFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let begun = Instant::now();
        // Counted by its route, never by its path.
        let route = request.extensions().get::<MatchedPath>();
        let route = route.map_or("none", MatchedPath::as_str);
        let app = &self.app;
        let meter = app.metrics.of_route(route, request.method());
        let id = request.headers().get(REQUEST_ID).cloned();
        let answer = match access::admit(&app.settings.access, &app.limits, &request) {
            Ok(()) => Answer::Comes(self.inner.call(request)),
            Err(problem) => Answer::Refused(future::ready(Ok(problem.into_response()))),
        };
        RequestFuture {
            answer,
            meter,
            begun,
            id,
        }
    }
}

impl<F> Future for RequestFuture<F>
where
    F: Future<Output = Result<Response, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = match &mut self.answer {
            Answer::Comes(answer) => ready!(Pin::new(answer).poll(context)),
            Answer::Refused(refusal) => ready!(Pin::new(refusal).poll(context)),
        };
        let mut response = answered.map(as_problem)?;
        let headers = response.headers_mut();
        access::protect(headers);
        if let Some(id) = self.id.take() {
            headers.insert(REQUEST_ID, id);
        }
        self.meter.count(response.status(), self.begun.elapsed());
        Poll::Ready(Ok(response))
    }
}

/// Adds a body to refusals of the router itself.
fn as_problem(response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let detail = "method not allowed: see /openapi.json";
    let mut problem = Problem::new(Kind::METHOD_NOT_ALLOWED, detail).into_response();
    if let Some(allowed) = response.headers().get(header::ALLOW) {
        let allowed = allowed.clone();
        problem.headers_mut().insert(header::ALLOW, allowed);
    }
    problem
}
