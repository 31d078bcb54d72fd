//! The rule by which one node votes, asked with arguments that the library would never send.

use tenure_testkit::{RedisServer, Reply, RespClient};

use crate::lua::eval;

macro_rules! script {
    ($file:literal) => {
        include_str!(concat!("../../../src/store/redis/scripts/redlock/", $file))
    };
}

const KEYS: [&str; 2] = ["n", "tenure:fence:{n}"];
const DAY_US: u64 = 86_400_000_000;

fn now_us(redis: &mut RespClient) -> u64 {
    let time = redis.command(&["TIME"]);
    let part = |at: usize| time.array()[at].text().parse::<u64>().unwrap();
    part(0) * 1_000_000 + part(1)
}

fn latest() -> String {
    u64::pow(2, 52).to_string()
}

/// Asks for a vote for the block that begins with `first`, as a node that keeps all is asked.
fn vote(redis: &mut RespClient, lease: &str, first: u64, fences: u64) -> Reply {
    let bounds = ["15000000", "86400000000", ""];
    vote_within(redis, lease, (first, fences), bounds)
}

fn vote_within(redis: &mut RespClient, lease: &str, block: (u64, u64), bounds: [&str; 3]) -> Reply {
    let (first, fences) = (block.0.to_string(), block.1.to_string());
    let latest = latest();
    let mut args = vec![lease, "5000", &latest, &first, &fences];
    args.extend(bounds);
    eval(redis, &native(script!("vote.lua")), &KEYS, &args).unwrap()
}

fn release(redis: &mut RespClient, lease: &str, last: &str) -> i64 {
    let keys = ["n", "tenure:fence:{n}", "tenure:waiters:{n}"];
    let reply = eval(
        redis,
        &native(script!("release.lua")),
        &keys,
        &[lease, last, "", "", ""],
    );
    reply.unwrap().array()[0].int()
}

fn repair(redis: &mut RespClient, lease: &str, last: u64) -> i64 {
    let args = [lease, "5000", &latest(), &last.to_string()];
    let reply = eval(redis, &native(script!("repair.lua")), &KEYS, &args);
    reply.unwrap().array()[0].int()
}

fn native(code: &str) -> String {
    code.replace("LAYOUT", "native")
}

fn word(reply: &Reply) -> &str {
    reply.array()[0].text()
}

fn stored(redis: &mut RespClient) -> u64 {
    redis.command(&["GET", KEYS[1]]).text().parse().unwrap()
}

#[test]
fn a_block_is_accepted_only_above_all_that_was_accepted_before() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let t = now_us(&mut redis);
    assert_eq!(vote(&mut redis, "a", t, 10).int(), 1);
    assert_eq!(stored(&mut redis), t + 9, "the whole block is spoken for");
    redis.command(&["DEL", "n"]);
    for first in [t - 1, t, t + 9] {
        let refused = vote(&mut redis, "b", first, 1);
        assert_eq!(word(&refused), "stale", "{first}");
        assert_eq!(refused.array()[1].text(), (t + 9).to_string());
    }
    assert_eq!(vote(&mut redis, "b", t + 10, 1).int(), 1);
}

#[test]
fn the_same_vote_again_is_granted_and_another_holder_is_named() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let t = now_us(&mut redis);
    assert_eq!(vote(&mut redis, "a", t, 1).int(), 1);
    assert_eq!(vote(&mut redis, "a", t, 1).int(), 1, "its answer was lost");
    let busy = vote(&mut redis, "b", t + 5, 1);
    assert_eq!(word(&busy), "busy");
    assert_eq!(busy.array()[1].text(), "a");
    assert_eq!(stored(&mut redis), t, "a refusal changes nothing");
    assert_eq!(vote(&mut redis, "a", t + 7, 1).int(), 1, "its next ballot");
    assert_eq!(word(&vote(&mut redis, "a", t, 1)), "stale", "the late one");
}

#[test]
fn a_node_without_a_fence_answers_by_its_clock_and_refuses_the_far_future() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let now = now_us(&mut redis);
    assert_eq!(word(&vote(&mut redis, "a", now - 15_000_001, 1)), "stale");
    assert_eq!(
        word(&vote(&mut redis, "a", now + DAY_US + 60_000_000, 1)),
        "far"
    );
    assert_eq!(vote(&mut redis, "a", now - 10_000_000, 1).int(), 1);
}

/// Its clock stands in for what it may have lost, also if it came back with an older fence.
#[test]
fn a_node_that_may_forget_goes_by_its_clock_whatever_it_has_stored() {
    let server = RedisServer::start();
    let (mut redis, mut other) = (server.client(), server.client());
    let mut ask = |first: u64, fences: u64| {
        let bounds = ["1000000", "1000000", "always"];
        vote_within(&mut redis, "a", (first, fences), bounds)
    };
    for lost in [None, Some(60_000_000)] {
        let now = now_us(&mut other);
        if let Some(lost) = lost {
            other.command(&["SET", KEYS[1], &(now - lost).to_string()]);
        }
        assert_eq!(word(&ask(now - 2_000_000, 1)), "stale", "{lost:?}");
        // It is the end of the block that counts.
        assert_eq!(word(&ask(now + 900_000, 500_000)), "far", "{lost:?}");
        assert_eq!(ask(now, 10).int(), 1, "{lost:?}");
        other.command(&["DEL", KEYS[0], KEYS[1]]);
    }
}

#[test]
fn a_vote_is_taken_back_only_by_its_own_ballot() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let t = now_us(&mut redis);
    vote(&mut redis, "a", t, 3);
    assert_eq!(release(&mut redis, "a", &(t + 7).to_string()), 0);
    assert_eq!(release(&mut redis, "b", ""), 0);
    assert_eq!(release(&mut redis, "a", &(t + 2).to_string()), 1);
    assert_eq!(redis.command(&["EXISTS", "n"]).int(), 0);
    assert_eq!(stored(&mut redis), t + 2, "the fence stays");
}

#[test]
fn a_lease_is_given_again_only_where_nothing_greater_was_accepted() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let t = now_us(&mut redis);
    assert_eq!(repair(&mut redis, "a", t), 1);
    assert_eq!(stored(&mut redis), t);
    assert_eq!(repair(&mut redis, "a", t), 1, "again");
    assert_eq!(repair(&mut redis, "b", t + 1), 0, "somebody has it");
    redis.command(&["DEL", "n"]);
    redis.command(&["SET", KEYS[1], &(t + 5).to_string()]);
    assert_eq!(repair(&mut redis, "a", t), 0, "a greater fence is stored");
    assert_eq!(redis.command(&["EXISTS", "n"]).int(), 0);
}

#[test]
fn metadata_is_given_again_unless_it_is_of_the_same_lease() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let t = now_us(&mut redis).to_string();
    let keys = [KEYS[0], KEYS[1], "tenure:meta:{n}"];
    let mut repair = |value: &str| {
        let args = ["a", "5000", &latest(), &t, "tenure:value", value];
        eval(&mut redis, &native(script!("repair.lua")), &keys, &args).unwrap();
        let ttl = redis.command(&["PTTL", keys[2]]).int();
        assert!((1..=5_000).contains(&ttl), "{ttl}");
        let value = redis.command(&["HGET", keys[2], "tenure:value"]);
        value.text().to_owned()
    };
    assert_eq!(repair("old"), "old");
    assert_eq!(repair("older"), "old", "the node may know better");
    redis.command(&["HSET", keys[2], "lease", "b"]);
    let args = ["a", "5000", &latest(), &t, "tenure:value", "new"];
    eval(&mut redis, &native(script!("repair.lua")), &keys, &args).unwrap();
    assert_eq!(
        redis.command(&["HGET", keys[2], "tenure:value"]).text(),
        "new"
    );
}

#[test]
fn what_comes_late_changes_nothing() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let now = now_us(&mut redis).to_string();
    let args = ["a", "5000", "1", &now, "1", "15000000", "86400000000", ""];
    let late = eval(&mut redis, &native(script!("vote.lua")), &KEYS, &args).unwrap();
    assert_eq!(word(&late), "late");
    let args = ["a", "5000", "1", &now];
    let late = eval(&mut redis, &native(script!("repair.lua")), &KEYS, &args).unwrap();
    assert_eq!(word(&late), "late");
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn numbers_that_are_none_are_refused_before_the_first_write() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let now = now_us(&mut redis).to_string();
    let latest = latest();
    let right = [
        "a",
        "5000",
        &latest,
        &now,
        "1",
        "15000000",
        "86400000000",
        "",
    ];
    for at in 1..right.len() - 1 {
        for wrong in ["", "x", "0.5", "-1", "nan", "1e300", "99999999999999999999"] {
            let mut args = right;
            args[at] = wrong;
            let refused = eval(&mut redis, &native(script!("vote.lua")), &KEYS, &args);
            assert!(refused.is_err(), "argument {at}: `{wrong}`");
        }
    }
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
}

/// Asks for votes for several leases, each with its lock and the first fence of its block.
fn vote_all(redis: &mut RespClient, leases: &[(&str, &str, u64)]) -> Vec<Reply> {
    let fence = |name: &str| format!("tenure:fence:{{{name}}}");
    let names = leases.iter().map(|(name, ..)| (*name).to_owned());
    let fences = leases.iter().map(|(name, ..)| fence(name));
    let keys: Vec<String> = names.chain(fences).collect();
    let mut args = ["15000000", "86400000000", ""].map(str::to_owned).to_vec();
    for (_, lease, first) in leases {
        args.extend([(*lease).to_owned(), "5000".to_owned(), latest()]);
        args.extend([first.to_string(), "3".to_owned()]);
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let replies = eval(redis, &native(script!("vote_all.lua")), &keys, &args);
    replies.unwrap().array().to_vec()
}

/// The same rules as for one.
#[test]
fn each_of_several_votes_is_given_by_itself() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let t = now_us(&mut redis);
    vote(&mut redis, "holder", t, 1);
    redis.command(&["SET", "tenure:fence:{low}", &(t + 9).to_string()]);
    redis.command(&["HSET", "hash", "a", "b"]);
    let asked = [
        ("free", "a", t),
        ("n", "b", t + 5),
        ("low", "c", t + 9),
        ("hash", "d", t),
        ("far", "e", t + DAY_US + 60_000_000),
        ("last", "f", t),
    ];
    let replies = vote_all(&mut redis, &asked);
    assert_eq!(replies.len(), asked.len());
    assert_eq!(replies[0].int(), 1);
    for (at, refusal) in [(1, "busy"), (2, "stale"), (3, "type"), (4, "far")] {
        assert_eq!(word(&replies[at]), refusal);
    }
    assert_eq!(replies[5].int(), 1);
    for (name, holder) in [("free", "a"), ("n", "holder"), ("last", "f")] {
        assert_eq!(redis.command(&["GET", name]).text(), holder);
    }
    let stored = redis.command(&["GET", "tenure:fence:{free}"]);
    assert_eq!(stored.text(), (t + 2).to_string());
    let refused = redis.command(&["EXISTS", "low", "far", "tenure:fence:{far}"]);
    assert_eq!(refused.int(), 0, "a refusal changes nothing");
}
