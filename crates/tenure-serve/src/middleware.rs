//! What every request passes: who may come in, what is counted of it, and what its answer says to
//! browsers. One layer for all of that, whose future is no box: each further one would cost a request
//! about as much as reading its body does.

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
use crate::app::AppState;
use crate::metrics::RouteMeter;
use crate::problem::{Kind, Problem};

/// By which callers know an answer again: given back as it came.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The layer.
#[derive(Clone)]
pub(crate) struct RequestLayer(pub(crate) AppState);

/// What is behind it.
#[derive(Clone)]
pub(crate) struct RequestService<S> {
    app: AppState,
    inner: S,
}

/// A request that came in.
pub(crate) struct RequestFuture<F> {
    answer: Answer<F>,
    meter: Arc<RouteMeter>,
    begun: Instant,
    /// What the caller calls it.
    id: Option<HeaderValue>,
}

enum Answer<F> {
    Comes(F),
    /// It was not let in.
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
        // Under the route that it matched, never under its path.
        let route = request.extensions().get::<MatchedPath>();
        let route = route.map_or("none", MatchedPath::as_str);
        let meter = self.app.metrics.of_route(route, request.method());
        let id = request.headers().get(REQUEST_ID).cloned();
        let answer = match access::admit(&self.app, &request) {
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

/// Gives those refusals a body that come from the router itself.
fn as_problem(response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let detail = "this path has no such method: see /openapi.json";
    let mut told = Problem::new(Kind::METHOD_NOT_ALLOWED, detail).into_response();
    if let Some(allowed) = response.headers().get(header::ALLOW) {
        let allowed = allowed.clone();
        told.headers_mut().insert(header::ALLOW, allowed);
    }
    told
}
