//! The service: acquires the lock, calls the inner service, and leaves the lock to the response.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tenure::{Guard, Lock, Unordered};
use tower_service::Service;

use crate::body::LockedBody;
use crate::layer::LockLayer;
use crate::problem;

/// A service whose requests hold a lock. Made by [`LockLayer`].
#[derive(Clone, Debug)]
pub struct LockService<S, F> {
    pub(crate) inner: S,
    pub(crate) layer: LockLayer<F>,
}

impl<S, F, B, R> Service<Request<B>> for LockService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Parts) -> Option<String>,
    B: Send + 'static,
    R: Body + Send,
{
    type Response = Response<LockedBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // This one is ready, its clone may not be.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let (parts, body) = request.into_parts();
        let lock = self.layer.lock_of(&parts);
        let request = Request::from_parts(parts, body);
        Box::pin(async move {
            match lock {
                Some(lock) => call_under(lock, inner, request).await,
                None => without_lock(inner, request).await,
            }
        })
    }
}

async fn without_lock<S, B, R: Body>(
    mut inner: S,
    request: Request<B>,
) -> Result<Response<LockedBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    let response = inner.call(request).await?;
    Ok(response.map(LockedBody::free))
}

async fn call_under<S, B, R: Body>(
    lock: Lock<Unordered>,
    mut inner: S,
    mut request: Request<B>,
) -> Result<Response<LockedBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    let guard = match lock.acquire().await {
        Ok(guard) => guard,
        Err(error) => return Ok(problem::of(&error)),
    };
    request.extensions_mut().insert(guard.fence());
    match unless_lost(&guard, inner.call(request)).await {
        Some(Ok(response)) if guard.is_valid() => {
            Ok(response.map(|body| LockedBody::under(guard, body)))
        }
        Some(Err(error)) => Err(error),
        // What it says cannot be trusted.
        Some(Ok(_)) | None => Ok(problem::lost(&guard)),
    }
}

/// What the call returns; `None` if the lock was lost before.
async fn unless_lost<T>(guard: &Guard, call: impl Future<Output = T>) -> Option<T> {
    let (mut lost, mut call) = (pin!(guard.lost()), pin!(call));
    poll_fn(|context| {
        if lost.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        call.as_mut().poll(context).map(Some)
    })
    .await
}
