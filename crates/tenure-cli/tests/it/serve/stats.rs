use serde_json::{Value, json};
use tenure_testkit::{RedisServer, eventually};

use super::Service;
use super::locks::{SOON, acquire, listed, release};

#[tenure_testkit::test]
fn figures_are_kept_for_charts() {
    let service = Service::start(&[]);
    let lease = acquire(&service, "n", &json!({}));
    service.post("/api/v1/locks/n", &json!({})).is(423);
    listed(&service, "n");
    release(&service, "n", &lease).is(204);
    let stats = || service.get("/api/v1/stats?window=5m").is(200).json();
    let sum = |column: &str| -> f64 {
        let stats = stats();
        let values = stats[column].as_array().unwrap().iter();
        values.filter_map(Value::as_f64).sum()
    };
    assert!(eventually(SOON, || sum("released") > 0.5), "{}", stats());
    for (column, count) in [
        ("acquired", 1.0),
        ("busy", 1.0),
        ("released", 1.0),
        ("lost", 0.0),
    ] {
        assert!((sum(column) - count).abs() < 0.001, "{column}: {}", stats());
    }
    for column in [
        "wait_p50_ms",
        "wait_p99_ms",
        "hold_p50_ms",
        "hold_p99_ms",
        "store_ms",
    ] {
        assert!(sum(column) > 0.0, "{column}: {}", stats());
    }
    let stats = stats();
    let length = stats["at"].as_array().unwrap().len();
    for (column, values) in stats.as_object().unwrap() {
        let is_whole = values
            .as_array()
            .is_none_or(|values| values.len() == length);
        assert!(is_whole, "{column}: {stats}");
    }
    assert_eq!(stats["step_ms"], 1_000);
    for (window, step_ms) in [("1h", 10_000), ("24h", 120_000)] {
        let stats = service.get(&format!("/api/v1/stats?window={window}"));
        assert_eq!(stats.is(200).json()["step_ms"], step_ms);
    }
}

#[tenure_testkit::test]
fn metrics_have_buckets_and_no_names() {
    let service = Service::start(&[]);
    for number in 0..3 {
        let name = format!("order:{number}");
        let lease = acquire(&service, &name, &json!({"wait_ms": 10}));
        let renewal = json!({"lease_id": lease["lease_id"]});
        service
            .put(&format!("/api/v1/locks/{name}/lease"), &renewal)
            .is(200);
        release(&service, &name, &lease).is(204);
    }
    acquire(&service, "order:held", &json!({}));
    listed(&service, "order:held");
    let seen = || {
        service
            .get("/metrics")
            .text
            .contains("tenure_live_locks{kind=\"mutex\"} 1")
    };
    assert!(eventually(SOON, seen), "{}", service.get("/metrics").text);
    let metrics = service.get("/metrics").is(200).text.clone();
    for line in [
        "tenure_acquire_total{lock=\"order\",kind=\"mutex\",result=\"acquired\"} 4",
        "tenure_acquire_wait_seconds_bucket{le=\"60.0\",lock=\"order\",kind=\"mutex\",result=\"acquired\"} 4",
        "tenure_hold_seconds_bucket{le=\"3600.0\",lock=\"order\",kind=\"mutex\"} 3",
        "tenure_held{lock=\"order\",kind=\"mutex\"} 1",
        "tenure_waiting{lock=\"order\",kind=\"mutex\"} 0",
        "tenure_renew_total{lock=\"order\",result=\"ok\"} 3",
        "tenure_renew_margin_seconds_count{lock=\"order\"} 3",
        "tenure_renew_margin_seconds_bucket{le=\"30.0\",lock=\"order\"} 3",
        "tenure_renew_margin_seconds_bucket{le=\"10.0\",lock=\"order\"} 0",
        "tenure_renew_margin_ratio_bucket{le=\"+Inf\",lock=\"order\"} 3",
        "tenure_renew_margin_ratio_bucket{le=\"0.4\",lock=\"order\"} 0",
        "tenure_handover_seconds_count{kind=\"mutex\"} 0",
        "tenure_release_total{lock=\"order\",result=\"ok\"} 3",
        "tenure_queue_length{kind=\"mutex\"} 0",
        "tenure_redis_up{node=\"memory://serve\"} 1",
        "tenure_wakeups_total{source=\"push\"}",
        "tenure_wakeups_total{source=\"poll\"} 0",
        "tenure_client_events_total{event=\"record_written\"}",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_start_time_seconds ",
        "process_open_fds ",
        "process_max_fds ",
    ] {
        assert!(metrics.contains(line), "no `{line}` in\n{metrics}");
    }
    assert!(!metrics.contains("order:"), "{metrics}");
    assert!(metrics.trim_end().ends_with("# EOF"), "{metrics}");
}

#[tenure_testkit::test]
fn a_lock_that_passes_on_is_measured() {
    let service = Service::start(&[]);
    let lease = acquire(&service, "n", &json!({}));
    let wanted = json!({"wait_ms": 20_000});
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| acquire(&service, "n", &wanted));
        let waits = || service.get("/api/v1/locks/n").json()["waiting"] == 1;
        assert!(eventually(SOON, waits));
        release(&service, "n", &lease).is(204);
        release(&service, "n", &waiter.join().unwrap()).is(204);
    });
    // Acquiring a free lock is not a handover.
    let lease = acquire(&service, "n", &json!({"wait_ms": 1_000}));
    release(&service, "n", &lease).is(204);
    let metrics = service.get("/metrics").text;
    for line in [
        "tenure_handover_seconds_count{kind=\"mutex\"} 1",
        "tenure_handover_seconds_bucket{le=\"+Inf\",kind=\"mutex\"} 1",
    ] {
        assert!(metrics.contains(line), "no `{line}` in\n{metrics}");
    }
    assert!(
        !metrics.contains("tenure_redis_command_seconds_count"),
        "no server was asked"
    );
}

#[tenure_testkit::test]
fn answers_of_servers_are_measured_without_secrets() {
    let server = RedisServer::builder().password("s3cret").start();
    let service = Service::of(crate::command::tenure(&["serve"]).env("TENURE_URL", server.url()));
    let lease = acquire(&service, "order:1", &json!({}));
    release(&service, "order:1", &lease).is(204);
    let (metrics, node) = (service.get("/metrics").text, server.addr());
    for command in ["acquire", "release"] {
        let row = format!("{{command=\"{command}\",node=\"{node}\",result=\"ok\"}} 1");
        let row = format!("tenure_redis_command_seconds_count{row}");
        assert!(metrics.contains(&row), "no `{row}` in\n{metrics}");
    }
    assert!(
        metrics.contains("tenure_redis_command_seconds_bucket{le=\"0.00005\""),
        "{metrics}"
    );
    assert!(
        !metrics.contains("s3cret") && !metrics.contains("order:"),
        "{metrics}"
    );
}

/// Another instance gave the lease: what is left of it is asked for.
#[tenure_testkit::test]
fn renewals_at_another_instance_are_measured_too() {
    let server = RedisServer::start();
    let [gave, renews] = [(); 2].map(|()| Service::on(&server, &[]));
    let lease = acquire(&gave, "order:1", &json!({"ttl_ms": 60_000}));
    let renewal = json!({"lease_id": lease["lease_id"]});
    renews.put("/api/v1/locks/order:1/lease", &renewal).is(200);
    let metrics = renews.get("/metrics").text;
    for line in [
        "tenure_renew_margin_seconds_bucket{le=\"60.0\",lock=\"order\"} 1",
        "tenure_renew_margin_seconds_bucket{le=\"10.0\",lock=\"order\"} 0",
    ] {
        assert!(metrics.contains(line), "no `{line}` in\n{metrics}");
    }
}

#[tenure_testkit::test]
fn the_service_says_what_it_is_without_secrets() {
    let server = RedisServer::builder().password("s3cret").start();
    let mut command = crate::command::tenure(&["serve", "--allow-admin"]);
    let service = Service::of(command.env("TENURE_URL", server.url()));
    let answer = service.get("/api/v1/about");
    let about = answer.is(200).json();
    assert!(!answer.text.contains("s3cret"), "{about}");
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["instance"]["pid"], service.process.pid());
    assert!(
        service
            .url
            .ends_with(&about["instance"]["port"].to_string())
    );
    assert_eq!(about["store"]["role"], "master");
    assert!(about["store"]["used_memory"].as_u64() > Some(0), "{about}");
    let told = ["admin", "read_only", "demo", "token", "sales"].map(|field| &about[field]);
    assert_eq!(told, [true, false, false, false, false]);
    assert_eq!(
        (&about["ledger"], &about["limits"]["max_wait_ms"]),
        (&Value::Null, &json!(30_000))
    );
}
