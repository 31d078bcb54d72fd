//! What `/metrics` says of requests.

use serde_json::json;

use super::Service;

#[tenure_testkit::test]
fn requests_are_counted_by_route_method_and_status() {
    let service = Service::start(&[]);
    for _ in 0..2 {
        service.get("/livez").is(200);
    }
    let lock = "/api/v1/locks/a%3Ab";
    service.post(lock, &json!({})).is(201);
    service.post(lock, &json!({})).is(423);
    service.post(lock, &json!({"ttl_ms": 1})).is(422);
    service.get("/nothing/here").is(404);
    service.delete("/livez").is(405);
    service.send("BREW", "/livez", &[], "").is(405);
    let refused = [("host", "elsewhere.example")];
    service.send("GET", "/livez", &refused, "").is(403);
    let metrics = service.get("/metrics").is(200).text.clone();
    let lock = "/api/v1/locks/{name}";
    for (route, method, status, count) in [
        ("/livez", "GET", 200, 2),
        ("/livez", "GET", 403, 1),
        ("/livez", "DELETE", 405, 1),
        ("/livez", "other", 405, 1),
        (lock, "POST", 201, 1),
        (lock, "POST", 423, 1),
        (lock, "POST", 422, 1),
        ("none", "GET", 404, 1),
    ] {
        let labels = format!(r#"route="{route}",method="{method}",status="{status}""#);
        let line = format!("tenure_http_requests_total{{{labels}}} {count}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    for (route, method, count) in [("/livez", "GET", 3), (lock, "POST", 3)] {
        let labels = format!(r#"route="{route}",method="{method}""#);
        let line = format!("tenure_http_request_duration_seconds_count{{{labels}}} {count}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}
