use serde_json::json;

use super::Service;
use super::locks::{acquire, listed};

/// To look for a long text costs time for each lock, on a thread that other requests need.
#[tenure_testkit::test]
fn a_text_that_no_lock_can_have_is_refused() {
    let service = Service::start(&[]);
    let long = "x".repeat(513);
    for (path, what) in [
        ("locks?q", "`q`"),
        ("locks?prefix", "`prefix`"),
        ("locks?cursor", "`cursor`"),
        ("events?prefix", "`prefix`"),
        ("events?topics", "`topics`"),
    ] {
        let refused = service.get(&format!("/api/v1/{path}={long}"));
        let refused = refused.is_problem(422, "invalid")["detail"].to_string();
        assert!(
            refused.contains(what) && refused.contains("at most"),
            "{refused}"
        );
    }
    // Two bytes each.
    let encoded = "%C3%A9".repeat(256);
    for path in ["q", "prefix", "cursor"] {
        service
            .get(&format!("/api/v1/locks?{path}={encoded}"))
            .is(200);
    }
}

#[tenure_testkit::test]
fn a_long_query_of_any_request_is_refused() {
    let service = Service::start(&[]);
    let long = "x".repeat(60_000);
    for path in [
        "locks?q",
        "locks/n/lease?lease_id",
        "stats?window",
        "items/sku-7/orders?state",
    ] {
        let path = format!("/api/v1/{path}={long}");
        let method = if path.contains("lease") {
            "DELETE"
        } else {
            "GET"
        };
        let refused = service.send(method, &path, &[], "");
        let refused = refused.is_problem(422, "invalid")["detail"].to_string();
        assert!(
            refused.contains("`query`") && refused.contains("8192"),
            "{refused}"
        );
    }
}

#[tenure_testkit::test]
fn a_text_is_found_whatever_its_case() {
    let service = Service::start(&[]);
    acquire(&service, "Gr%C3%B6%C3%9Fe:1", &json!({}));
    listed(&service, "Größe:1");
    for (query, expected) in [("GR%C3%96%C3%9FE", 1), ("gr%C3%B6%C3%9Fe", 1), ("gross", 0)] {
        let found = service
            .get(&format!("/api/v1/locks?q={query}"))
            .is(200)
            .json();
        assert_eq!(found["total"], expected, "{query}");
    }
}
