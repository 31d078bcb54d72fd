//! The page: files that are embedded in the program; nothing is generated at run time.

mod file;

use axum::Router;
use axum::extract::{OriginalUri, Request};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get};
use tower_service::Service as _;

use self::file::{CSS, File, HTML, JS, SVG};
use crate::extract::Path;
use crate::problem::{Kind, Problem};
use crate::state::AppState;

static INDEX: File = File::new("index.html", HTML, include_bytes!("page/index.html"));

/// The files that the page loads, relative to itself.
static ASSETS: [File; 22] = [
    File::new("style.css", CSS, include_bytes!("page/style.css")),
    File::new("icon.svg", SVG, include_bytes!("page/icon.svg")),
    File::new("theme.js", JS, include_bytes!("page/theme.js")),
    File::new("app.js", JS, include_bytes!("page/app.js")),
    File::new("about.js", JS, include_bytes!("page/about.js")),
    File::new("activity.js", JS, include_bytes!("page/activity.js")),
    File::new("api.js", JS, include_bytes!("page/api.js")),
    File::new("board.js", JS, include_bytes!("page/board.js")),
    File::new("charts.js", JS, include_bytes!("page/charts.js")),
    File::new("commands.js", JS, include_bytes!("page/commands.js")),
    File::new("dom.js", JS, include_bytes!("page/dom.js")),
    File::new("format.js", JS, include_bytes!("page/format.js")),
    File::new("lease.js", JS, include_bytes!("page/lease.js")),
    File::new("lock.js", JS, include_bytes!("page/lock.js")),
    File::new("locks.js", JS, include_bytes!("page/locks.js")),
    File::new("plot.js", JS, include_bytes!("page/plot.js")),
    File::new("rows.js", JS, include_bytes!("page/rows.js")),
    File::new("run.js", JS, include_bytes!("page/run.js")),
    File::new("sale.js", JS, include_bytes!("page/sale.js")),
    File::new("stream.js", JS, include_bytes!("page/stream.js")),
    File::new("timeline.js", JS, include_bytes!("page/timeline.js")),
    File::new("top.js", JS, include_bytes!("page/top.js")),
];

/// uPlot 1.6.32 as published, with its licence.
static UPLOT: [File; 2] = [
    File::new(
        "uplot.js",
        JS,
        include_bytes!("page/uplot/uPlot.iife.min.js"),
    ),
    File::new("uplot.css", CSS, include_bytes!("page/uplot/uPlot.min.css")),
];

/// The page and its files, under `/`.
pub(crate) fn routes() -> Router<AppState> {
    Router::new()
        .route("/", get(index))
        .route("/assets/{file}", get(asset))
}

/// All routes below a path. The path itself, with a slash, is the page.
pub(crate) fn below(base: &str, everything: Router) -> Router {
    let page = everything.clone();
    let with_slash = move |mut request: Request| {
        let mut page = page.clone();
        *request.uri_mut() = Uri::from_static("/");
        async move { page.call(request).await }
    };
    Router::new()
        .route(&format!("{base}/"), any(with_slash))
        .nest(base, everything)
}

/// The page, at an address that ends with a slash: its links are relative to that.
async fn index(OriginalUri(uri): OriginalUri, headers: HeaderMap) -> Response {
    let path = uri.path();
    if path.ends_with('/') {
        return INDEX.answer(&headers);
    }
    Redirect::temporary(&format!("{path}/")).into_response()
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let mut files = ASSETS.iter().chain(&UPLOT);
    if let Some(file) = files.find(|file| file.name == name) {
        return file.answer(&headers);
    }
    let detail = format!("file `{name}` not found");
    Problem::new(Kind::NOT_FOUND, detail).into_response()
}
