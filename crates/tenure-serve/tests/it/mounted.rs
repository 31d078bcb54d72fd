//! Mounted below a path of another program.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode, header};
use axum::routing::get;
use http_body_util::BodyExt as _;
use tenure::{Locks, Tenure};
use tenure_serve::{Access, App, Parts, Settings};
use tower_service::Service as _;

async fn app(url: &str, access: Access) -> App {
    let tenure = Tenure::builder(url).hand_off(false).connect().await;
    let settings = Settings {
        access,
        base_path: "/tenure".to_owned(),
        ..Settings::default()
    };
    App::new(
        settings,
        Parts::new(Locks::clone(tenure.unwrap().as_locks()), [url]),
    )
}

fn mount(app: &App) -> Router {
    let own = Router::new().route("/hello", get(|| async { "hello" }));
    own.merge(app.router())
}

pub(super) async fn ask(
    router: &Router,
    method: Method,
    path: &str,
    body: &str,
) -> (StatusCode, Bytes) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "127.0.0.1:8080")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_owned()));
    let response = router.clone().call(request.unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap();
    (status, body.to_bytes())
}

#[tokio::test]
async fn it_answers_below_its_path_and_nowhere_else() {
    let app = app("memory://mounted", Access::default()).await;
    let router = mount(&app);
    let get = |path| ask(&router, Method::GET, path, "");
    let (status, page) = get("/tenure/").await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.starts_with(b"<!doctype html>"), "{page:?}");
    assert_eq!(get("/tenure").await.0, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(get("/tenure/api/v1/about").await.0, StatusCode::OK);
    let (status, problem) = get("/tenure/nothing").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(String::from_utf8_lossy(&problem).contains("not_found"));
    // The other program's own paths are left alone.
    assert_eq!(get("/hello").await.1, "hello");
    let (status, body) = get("/nothing").await;
    assert_eq!((status, body.len()), (StatusCode::NOT_FOUND, 0));
}

#[tokio::test]
async fn locks_are_taken_and_ended_by_an_administrator_from_an_unknown_address() {
    let admin = Access {
        admin: true,
        ..Access::default()
    };
    let app = app("memory://mounted-admin", admin).await;
    let router = mount(&app);
    let wish = r#"{"ttl_ms": 30000}"#;
    let (status, lease) = ask(&router, Method::POST, "/tenure/api/v1/locks/nightly", wish).await;
    assert_eq!(status, StatusCode::CREATED, "{lease:?}");
    let lease: serde_json::Value = serde_json::from_slice(&lease).unwrap();
    let id = lease["lease_id"].as_str().unwrap();
    let path = format!("/tenure/api/v1/locks/nightly?lease_id={id}&force=true");
    let (status, body) = ask(&router, Method::DELETE, &path, "").await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{body:?}");
}

#[tokio::test]
async fn the_background_work_ends_once_it_is_stopped() {
    let app = app("memory://mounted-stop", Access::default()).await;
    let running = tokio::spawn({
        let app = app.clone();
        async move { app.run_background().await }
    });
    app.stop();
    let ended = tokio::time::timeout(Duration::from_secs(10), running).await;
    ended.unwrap().unwrap();
}
