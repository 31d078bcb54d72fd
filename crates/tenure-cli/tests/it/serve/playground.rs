//! The playground: what each way does under a rush, and what faults do to it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tenure_testkit::{RedisServer, eventually};

use super::Service;
use super::listening::Listening;
use crate::command::tenure;

/// Far longer than any run here.
const OVER_WITHIN: Duration = Duration::from_mins(1);

/// Far shorter than the work of a rush needs.
const TTL_MS: u64 = 300;

fn on(redis: &RedisServer) -> Service {
    let url = format!("redis://{}", redis.addr());
    Service::of(tenure(&["serve", "--allow-admin"]).env("TENURE_URL", url))
}

fn begin(service: &Service, plan: &Value) -> String {
    let begun = service.post("/api/v1/playground/runs", plan);
    let run = begun.is(201).json();
    assert_eq!(run["state"], "running", "{run}");
    run["id"].as_str().unwrap().to_owned()
}

fn show(service: &Service, id: &str) -> Value {
    let path = format!("/api/v1/playground/runs/{id}");
    service.get(&path).is(200).json()
}

/// Waits for the end of a run.
fn end(service: &Service, id: &str) -> Value {
    let is_over = || show(service, id)["state"] != "running";
    assert!(eventually(OVER_WITHIN, is_over), "{}", show(service, id));
    show(service, id)
}

fn play(service: &Service, plan: &Value) -> Value {
    let id = begin(service, plan);
    end(service, &id)
}

/// A run that must sell everything, once.
#[track_caller]
fn sells_exactly(run: &Value) {
    assert_eq!(run["state"], "done", "{run}");
    assert_eq!(run["holds"], true, "{run}");
    let least = run["stock"].as_u64().min(run["buyers"].as_u64());
    assert_eq!(run["sold"].as_u64(), least, "{run}");
    for nothing in ["oversold", "duplicates"] {
        assert_eq!(run[nothing], 0, "{nothing} in {run}");
    }
    let answered = run["sold"].as_u64().unwrap() + run["sold_out"].as_u64().unwrap();
    assert_eq!(run["buyers"], answered, "{run}");
}

#[track_caller]
fn oversells(run: &Value) {
    assert_eq!(run["state"], "done", "{run}");
    assert_eq!(run["holds"], false, "{run}");
    assert!(run["oversold"].as_u64() > Some(0), "{run}");
    assert!(run["duplicates"].as_u64() > Some(0), "{run}");
    let invariant = run["invariant"].as_str().unwrap();
    assert!(invariant.contains('≠'), "{run}");
    let curve = run["curve"].as_array().unwrap();
    assert!(curve.last().unwrap()[1].as_i64() < Some(0), "{run}");
}

fn naive_oversells_and_the_others_do_not(service: &Service) {
    let plan = |mode| json!({"mode": mode, "stock": 50, "buyers": 200, "work_ms": 2, "seed": 7});
    oversells(&play(service, &plan("naive")));
    for mode in ["lock", "script"] {
        let run = play(service, &plan(mode));
        sells_exactly(&run);
        assert_eq!(run["invariant"], "initial 50 = left 0 + sold 50");
        assert_eq!(run["seed"], 7);
        let by_instance = run["by_instance"].as_array().unwrap();
        let sold = by_instance.iter().map(|it| it["sold"].as_u64().unwrap());
        assert_eq!(sold.sum::<u64>(), 50, "{run}");
    }
}

#[tenure_testkit::test]
fn naive_oversells_and_the_others_do_not_in_memory() {
    let service = Service::start(&[]);
    naive_oversells_and_the_others_do_not(&service);
    let list = service.get("/api/v1/playground/runs").is(200).json();
    let modes: Vec<&Value> = list["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["mode"])
        .collect();
    assert_eq!(modes, ["script", "lock", "naive"]);
}

#[tenure_testkit::test]
fn naive_oversells_and_the_others_do_not_on_a_server_where_nothing_is_left() {
    let redis = RedisServer::start();
    let service = on(&redis);
    naive_oversells_and_the_others_do_not(&service);
    for fault in ["pause_holder", "drop_renewals", "kill_holder"] {
        sells_exactly(&play(&service, &hurried("lock", fault)));
    }
    left_clean(&redis);
}

/// Nothing is left but what the service itself says of its client.
#[track_caller]
fn left_clean(redis: &RedisServer) {
    let keys = redis.client().command(&["KEYS", "*play*"]);
    assert_eq!(keys.array().len(), 0, "{keys:?}");
    let keys = redis.client().command(&["KEYS", "*1001*"]);
    assert_eq!(keys.array().len(), 0, "{keys:?}");
}

fn hurried(mode: &str, fault: &str) -> Value {
    json!({"mode": mode, "stock": 60, "buyers": 80, "concurrency": 12, "instances": 3,
        "work_ms": 2, "ttl_ms": TTL_MS, "fault": fault})
}

#[track_caller]
fn told(run: &Value, words: &str) {
    let told = run["faults"][0]["told"].as_str().unwrap();
    assert!(told.contains(words), "no `{words}` in {run}");
}

#[tenure_testkit::test]
fn a_holder_that_stood_still_is_refused_by_the_fence() {
    let service = Service::start(&[]);
    let run = play(&service, &hurried("lock", "pause_holder"));
    sells_exactly(&run);
    assert_eq!(run["refused_stale"], 1, "{run}");
    told(&run, "its write was refused");
    assert!(run["took_ms"].as_u64() >= Some(TTL_MS), "{run}");
}

#[tenure_testkit::test]
fn a_holder_without_renewals_notices_that_it_lost_the_lock() {
    let service = Service::start(&[]);
    let run = play(&service, &hurried("lock", "drop_renewals"));
    sells_exactly(&run);
    assert_eq!(run["lost"], 1, "{run}");
    told(&run, "its guard reported the lost lock");
}

#[tenure_testkit::test]
fn others_go_on_after_the_lease_of_a_dead_holder() {
    let service = Service::start(&[]);
    let run = play(&service, &hurried("lock", "kill_holder"));
    sells_exactly(&run);
    // Not before the lease was over: most of it was left.
    let told_of = run["faults"][0]["told"].as_str().unwrap();
    let (_, after) = told_of.split_once("acquired it after ").unwrap();
    let after: u64 = after.trim_end_matches(" ms").parse().unwrap();
    assert!(after > TTL_MS / 2, "{run}");
    let states = run["by_instance"].as_array().unwrap().iter();
    let killed = states.filter(|it| it["state"] == "killed").count();
    assert_eq!(killed, 1, "{run}");
    // The only one is left alive.
    let mut alone = hurried("lock", "kill_holder");
    (alone["instances"], alone["concurrency"]) = (json!(1), json!(2));
    let run = play(&service, &alone);
    sells_exactly(&run);
    told(&run, "skipped");
}

#[tenure_testkit::test]
fn faults_act_on_every_way() {
    let service = Service::start(&[]);
    let run = play(&service, &hurried("naive", "pause_holder"));
    oversells(&run);
    told(&run, "wrote back its old value");
    told(
        &play(&service, &hurried("naive", "drop_renewals")),
        "nothing to drop",
    );
    told(
        &play(&service, &hurried("naive", "kill_holder")),
        "died between",
    );
    for (fault, words) in [
        ("pause_holder", "paused for"),
        ("drop_renewals", "nothing to drop"),
        ("kill_holder", "it held nothing"),
    ] {
        let run = play(&service, &hurried("script", fault));
        sells_exactly(&run);
        told(&run, words);
    }
}

#[tenure_testkit::test]
fn a_run_is_watched_live() {
    let service = Service::start(&[]);
    let stream = Listening::to(&service, "/api/v1/events?topics=playground");
    let first = stream.next();
    assert_eq!(first.event, "playground.snapshot");
    assert_eq!(first.data["runs"], json!([]));
    let plan = json!({"mode": "lock", "stock": 60, "buyers": 60, "work_ms": 5});
    let id = begin(&service, &plan);
    let mut points = Vec::new();
    let mut messages = 0;
    let last = loop {
        let heard = stream.next();
        assert_eq!(heard.event, "playground.run");
        assert_eq!(heard.data["id"], id.as_str());
        assert!(heard.data.get("curve").is_none(), "{}", heard.data);
        points.extend(heard.data["curve_tail"].as_array().unwrap().clone());
        messages += 1;
        if heard.data["state"] != "running" {
            break heard.data;
        }
    };
    assert_eq!(last["state"], "done");
    let run = show(&service, &id);
    assert_eq!(run["curve"], json!(points), "the tails are the curve");
    // At most ten a second, and one for the end.
    let tenths = run["took_ms"].as_u64().unwrap() / 100;
    assert!(messages <= tenths + 2, "{messages} messages in {run}");
    let again = Listening::to(&service, "/api/v1/events?topics=playground");
    assert_eq!(again.next().data["runs"][0]["id"], id.as_str());
}

/// So long that it never ends by itself in a test.
fn endless(mode: &str) -> Value {
    json!({"mode": mode, "stock": 100_000, "buyers": 100_000, "work_ms": 100, "ttl_ms": 60_000})
}

#[tenure_testkit::test]
fn one_run_at_a_time_and_it_can_be_stopped() {
    let service = Service::start(&[]);
    for mode in ["naive", "lock"] {
        let id = begin(&service, &endless(mode));
        let second = service.post("/api/v1/playground/runs", &endless(mode));
        assert_eq!(second.is_problem(409, "running")["id"], id.as_str());
        let faults = format!("/api/v1/playground/runs/{id}/faults");
        let fault = json!({"fault": "pause_holder"});
        service.post(&faults, &fault).is(202);
        let strikes = || {
            let run = show(&service, &id);
            let states = run["by_instance"].as_array().unwrap().clone();
            let mut states = states.iter();
            states.any(|it| it["state"] == "paused")
        };
        assert!(eventually(OVER_WITHIN, strikes), "{}", show(&service, &id));
        let stop = format!("/api/v1/playground/runs/{id}/stop");
        let stopped = service.post(&stop, &json!({})).is(200).json();
        assert_eq!(stopped["state"], "stopped", "{stopped}");
        if mode == "lock" {
            assert_eq!(stopped["holds"], true, "{stopped}");
        }
        // Again changes nothing, and nothing can be done to it any more.
        service.post(&stop, &json!({})).is(200);
        service.post(&faults, &fault).is_problem(409, "conflict");
    }
}

#[tenure_testkit::test]
fn what_is_out_of_its_limits_is_refused() {
    let service = Service::start(&[]);
    for (field, value) in [
        ("stock", json!(0)),
        ("stock", json!(100_001)),
        ("buyers", json!(100_001)),
        ("concurrency", json!(1_001)),
        ("concurrency", json!(3)),
        ("instances", json!(0)),
        ("instances", json!(17)),
        ("work_ms", json!(1_001)),
        ("ttl_ms", json!(99)),
        ("ttl_ms", json!(60_001)),
        ("mode", json!("prayer")),
        ("fault", json!("fire")),
        ("stock", json!(-1)),
        ("wrok_ms", json!(1)),
    ] {
        let mut plan = json!({"mode": "lock"});
        plan[field] = value;
        let refused = service.post("/api/v1/playground/runs", &plan);
        let problem = refused.is_problem(422, "invalid");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(field), "{problem}");
    }
    let modeless = service.post("/api/v1/playground/runs", &json!({}));
    modeless.is_problem(422, "invalid");
    let list = service.get("/api/v1/playground/runs").json();
    assert_eq!(list["runs"], json!([]));
}

#[tenure_testkit::test]
fn on_a_server_it_is_for_those_who_are_told_to_make_load() {
    let redis = RedisServer::start();
    let plan = json!({"mode": "script", "stock": 5, "buyers": 5, "concurrency": 2, "instances": 2});
    let service = Service::on(&redis, &[]);
    let refused = service.post("/api/v1/playground/runs", &plan);
    let problem = refused.is_problem(403, "forbidden");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("--demo or --allow-admin"), "{problem}");
    service.get("/api/v1/playground/runs").is(200);
    for allowed in ["--demo", "--allow-admin"] {
        sells_exactly(&play(&Service::on(&redis, &[allowed]), &plan));
    }
}

#[tenure_testkit::test]
fn a_run_that_does_not_exist_is_not_found() {
    let service = Service::start(&["--read-only"]);
    let run = "/api/v1/playground/runs/play-0";
    service.get(run).is_problem(404, "not_found");
    let begun = service.post("/api/v1/playground/runs", &json!({"mode": "lock"}));
    begun.is_problem(403, "forbidden");
    let service = Service::start(&[]);
    let post = |path: &str, body| service.post(&format!("{run}/{path}"), &body);
    post("stop", json!({})).is_problem(404, "not_found");
    let fault = json!({"fault": "kill_holder"});
    post("faults", fault).is_problem(404, "not_found");
}

#[tenure_testkit::test]
fn a_service_that_is_stopped_during_a_run_ends_and_leaves_nothing() {
    let redis = RedisServer::start();
    let mut fastest = Duration::MAX;
    for round in 0..10 {
        let service = on(&redis);
        let mode = ["lock", "naive", "script"][round % 3];
        let mut plan = endless(mode);
        if round % 2 == 0 {
            plan["fault"] = json!("pause_holder");
        }
        begin(&service, &plan);
        let begun = Instant::now();
        let pid = Pid::from_raw(service.process.pid().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        service.process.wait_for_success(OVER_WITHIN);
        fastest = fastest.min(begun.elapsed());
        left_clean(&redis);
    }
    assert!(fastest < Duration::from_secs(2), "{fastest:?}");
}

#[tenure_testkit::test]
fn a_store_that_is_away_is_told() {
    let redis = RedisServer::start();
    let service = on(&redis);
    let id = begin(&service, &endless("lock"));
    redis.kill();
    let run = end(&service, &id);
    assert_eq!(run["state"], "failed", "{run}");
    let begun = service.post("/api/v1/playground/runs", &endless("lock"));
    begun.is_problem(503, "unavailable");
}
