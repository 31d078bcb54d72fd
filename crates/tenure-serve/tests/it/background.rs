//! Background work that fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use tenure::{Locks, Tenure};
use tenure_serve::{App, Log, Parts, Settings};
use tenure_testkit::{RedisServer, eventually};

use super::mounted::ask;

const SOON: Duration = Duration::from_secs(30);

/// The program's own function for the log panics in the middle of a poll of all locks.
#[tenure_testkit::test]
fn a_task_that_panics_is_told_and_starts_again() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = RedisServer::start();
    let url = server.url();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&lines);
    let log = Log::new(move |line| {
        written.lock().unwrap().push(line.to_owned());
        assert!(!line.contains("Redis is not responding"), "a broken log");
    });
    let tenure = Tenure::builder(&url).hand_off(false);
    let tenure = runtime.block_on(tenure.connect()).unwrap();
    let settings = Settings {
        log,
        ..Settings::default()
    };
    let parts = Parts::new(Locks::clone(tenure.as_locks()), [url]);
    let app = App::new(settings, parts);
    let router = app.router();
    let running = runtime.spawn({
        let app = app.clone();
        async move { app.run_background().await }
    });
    let get = |path: &str| {
        let (status, body) = runtime.block_on(ask(&router, Method::GET, path, ""));
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let has = |path: &str, text: &str| get(path).1.contains(text);
    assert!(eventually(SOON, || has("/metrics", "tenure_redis_up{")));
    server.pause();
    let told = "background task `locks` panicked: a broken log";
    let is_told = || lines.lock().unwrap().iter().any(|line| line.contains(told));
    assert!(eventually(SOON, is_told), "{:?}", lines.lock());
    server.resume();
    let failing = r#"{"status":"degraded","failing":["locks"]}"#;
    assert!(
        eventually(SOON, || has("/readyz", failing)),
        "{:?}",
        get("/readyz")
    );
    assert_eq!(get("/livez").0, StatusCode::OK);
    let metrics = get("/metrics").1;
    let restarts = "tenure_background_restarts_total{task=\"locks\"} 1";
    assert!(metrics.contains(restarts), "{metrics}");
    // It polls again, and is well after a while.
    let is_well = || has("/readyz", r#"{"status":"ok"}"#);
    assert!(eventually(SOON, is_well), "{:?}", get("/readyz"));
    let is_seen = || {
        lines
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains("Redis is back"))
    };
    assert!(eventually(SOON, is_seen), "{:?}", lines.lock());
    app.stop();
    runtime.block_on(running).unwrap();
}
