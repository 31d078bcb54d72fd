//! What clients keep on a node about all nodes, asked with arguments that the library would never
//! send.

use tenure_testkit::{RedisServer, RespClient};

use crate::lua::eval;

const NODES: &str = include_str!("../../../src/store/redis/scripts/redlock/nodes.lua");
const VOTE: &str = include_str!("../../../src/store/redis/scripts/redlock/vote.lua");
const LONGEST_TTL: &str = include_str!("../../../src/store/redis/scripts/redlock/longest_ttl.lua");

fn keep(redis: &mut RespClient, args: &[&str]) {
    let kept = eval(redis, NODES, &["nodes"], args).unwrap();
    assert_eq!(kept.int(), 1);
}

fn now_ms(redis: &mut RespClient) -> u64 {
    let time = redis.command(&["TIME"]);
    time.array()[0].text().parse::<u64>().unwrap() * 1_000
}

fn started(redis: &mut RespClient, run_id: &str) -> u64 {
    let started = redis.command(&["HGET", "nodes", run_id]);
    started.text().parse().unwrap()
}

#[test]
fn the_first_start_that_is_kept_stays() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let now = now_ms(&mut redis);
    keep(&mut redis, &["a", "60000", "b", "0"]);
    let first = started(&mut redis, "a");
    assert!(first.abs_diff(now - 60_000) < 30_000, "{first} at {now}");
    keep(&mut redis, &["a", "0", "b", "3600000"]);
    assert_eq!(started(&mut redis, "a"), first);
    assert!(started(&mut redis, "b") >= now);
    let days = redis.command(&["PTTL", "nodes"]).int() / 86_400_000;
    assert!((29..=30).contains(&days), "{days} days");
}

#[test]
fn processes_that_have_ended_make_room() {
    let server = RedisServer::start();
    let mut redis = server.client();
    for number in 0..100 {
        keep(&mut redis, &["old", "1000", &format!("node-{number}"), "0"]);
    }
    let count = redis.command(&["HLEN", "nodes"]).int();
    assert!(count <= 66, "{count} processes");
    assert_eq!(redis.command(&["HEXISTS", "nodes", "old"]).int(), 1);
    assert_eq!(redis.command(&["HEXISTS", "nodes", "node-99"]).int(), 1);
}

#[test]
fn arguments_are_checked_before_the_first_write() {
    let server = RedisServer::start();
    let mut redis = server.client();
    for args in [&["a"][..], &[], &["a", "1", "b"], &["a", "1", "b", "-1"]] {
        let refused = eval(&mut redis, NODES, &["nodes"], args);
        assert!(refused.is_err(), "{args:?}");
    }
    for ttl in ["", "0", "x", "-1", "1e300"] {
        let refused = eval(&mut redis, LONGEST_TTL, &["longest"], &[ttl]);
        assert!(refused.is_err(), "`{ttl}`");
    }
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn the_longest_ttl_is_kept_whatever_comes_later() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let mut keep = |ttl: &str| {
        eval(&mut redis, LONGEST_TTL, &["longest"], &[ttl]).unwrap();
        redis.command(&["GET", "longest"]).text().to_owned()
    };
    assert_eq!(keep("40000"), "40000");
    assert_eq!(keep("60000"), "60000");
    assert_eq!(keep("40000"), "60000");
}

#[test]
fn a_vote_for_a_long_lease_keeps_its_ttl_and_its_metadata() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let vote = VOTE.replace("LAYOUT", "native");
    let latest = u64::pow(2, 52).to_string();
    let first = (now_ms(&mut redis) * 1_000).to_string();
    let mut ask = |lease: &str, ttl: &str, keys: &[&str], meta: &[&str]| {
        let mut args = vec![
            lease,
            ttl,
            &latest,
            &first,
            "1",
            "15000000",
            "86400000000",
            "",
        ];
        args.extend(meta);
        eval(&mut redis, &vote, keys, &args)
    };
    assert!(ask("a", "30001", &["n", "fence"], &[]).is_err());
    let keys = ["n", "fence", "meta", "longest"];
    assert_eq!(ask("a", "30001", &keys, &["who", "me"]).unwrap().int(), 1);
    let without = ["m", "fence of m", "longest"];
    assert_eq!(ask("b", "40000", &without, &[]).unwrap().int(), 1);
    assert_eq!(redis.command(&["HGET", "meta", "who"]).text(), "me");
    assert_eq!(redis.command(&["GET", "longest"]).text(), "40000");
}
