//! The scripts themselves, run with arguments that the library would never send.

use tenure_testkit::{RedisServer, Reply, RespClient};

macro_rules! script {
    ($file:literal) => {
        include_str!(concat!("../../src/store/redis/scripts/", $file))
    };
}

pub const ACQUIRE: &str = script!("native/acquire.lua");
pub const RELEASE: &str = script!("native/release.lua");
pub const RENEW: &str = script!("native/renew.lua");
pub const ADOPT: &str = script!("native/adopt.lua");
pub const PROCLAIM: &str = script!("proclaim.lua");
pub const STAY: &str = script!("stay.lua");
pub const WAITERS: &str = script!("waiters.lua");
pub const RECORD: &str = script!("record.lua");
pub const REIGN: &str = script!("reign.lua");

pub const SHARED_ACQUIRE: &str = script!("native/shared_acquire.lua");
pub const SHARED_RENEW: &str = script!("native/shared_renew.lua");
pub const SHARED_ADOPT: &str = script!("native/shared_adopt.lua");
pub const DOWNGRADE: &str = script!("native/downgrade.lua");
pub const UPGRADE: &str = script!("native/upgrade.lua");

pub const FAIR_ACQUIRE: &str = script!("native/fair_acquire.lua");

pub const PERMIT_ACQUIRE: &str = script!("native/permit_acquire.lua");
pub const PERMIT_RENEW: &str = script!("native/permit_renew.lua");
pub const LATCH: &str = script!("native/latch.lua");
pub const ONCE: &str = script!("native/once.lua");
pub const RESIZE: &str = script!("native/resize.lua");

/// What no span of time looks like.
const NO_SPANS: [&str; 9] = [
    "",
    "x",
    "0.5",
    "-1",
    "nan",
    "inf",
    "1e300",
    "99999999999999999999",
    "1 000",
];

/// The same in Redisson's layout.
pub mod redisson {
    pub const ACQUIRE: &str = script!("redisson/acquire.lua");
    pub const RELEASE: &str = script!("redisson/release.lua");
    pub const RENEW: &str = script!("redisson/renew.lua");
    pub const ADOPT: &str = script!("redisson/adopt.lua");
}

/// Runs a script as the library would, with its shared parts put in.
pub fn eval(
    redis: &mut RespClient,
    code: &str,
    keys: &[&str],
    args: &[&str],
) -> Result<Reply, String> {
    let parts = [
        ("whole.lua", script!("whole.lua")),
        ("native/shared.lua", script!("native/shared.lua")),
        (
            "native/shared_queue.lua",
            script!("native/shared_queue.lua"),
        ),
        ("native/permits.lua", script!("native/permits.lua")),
        (
            "native/permit_queue.lua",
            script!("native/permit_queue.lua"),
        ),
        ("native/lease_at.lua", script!("native/lease_at.lua")),
        ("native/handed_on.lua", script!("native/handed_on.lua")),
        ("in_time.lua", script!("in_time.lua")),
        ("master.lua", script!("master.lua")),
        ("known_term.lua", script!("known_term.lua")),
        ("named.lua", script!("named.lua")),
        ("native/offer.lua", script!("native/offer.lua")),
        ("native/fence.lua", script!("native/fence.lua")),
        ("living.lua", script!("living.lua")),
        ("heard.lua", script!("heard.lua")),
        ("native/lock.lua", script!("native/lock.lua")),
        (
            "redlock/stored_fence.lua",
            script!("redlock/stored_fence.lua"),
        ),
        (
            "redlock/keep_longest.lua",
            script!("redlock/keep_longest.lua"),
        ),
        ("redlock/cast_vote.lua", script!("redlock/cast_vote.lua")),
        (
            "redlock/vote_for_one.lua",
            script!("redlock/vote_for_one.lua"),
        ),
        ("term.lua", script!("term.lua")),
        ("redisson/lock.lua", script!("redisson/lock.lua")),
        ("redisson/lease_at.lua", script!("redisson/lease_at.lua")),
        ("redisson/holder_at.lua", script!("redisson/holder_at.lua")),
        ("redisson/fence.lua", script!("redisson/fence.lua")),
        ("redisson/handed_on.lua", script!("redisson/handed_on.lua")),
    ];
    let mut code = code.to_owned();
    for (file, part) in parts {
        code = code.replace(&format!("--@include {file}"), part);
    }
    assert!(!code.contains("@include"), "a shared part is missing");
    let count = keys.len().to_string();
    let mut words = vec!["EVAL", &code, &count];
    words.extend(keys);
    words.extend(args);
    redis.try_command(&words)
}

/// Runs a script with each of its numbers wrong in turn: it must refuse and change nothing.
#[track_caller]
pub fn check_bad_numbers(
    code: &str,
    keys: &[&str],
    good: &[&str],
    numbers: &[usize],
    prepare: &[&str],
) {
    let server = RedisServer::start();
    let mut redis = server.client();
    for &at in numbers {
        for bad in NO_SPANS {
            redis.command(&["FLUSHALL"]);
            redis.command(prepare);
            let before = redis.command(&["DEBUG", "DIGEST"]);
            let mut args = good.to_vec();
            args[at] = bad;
            let reply = eval(&mut redis, code, keys, &args);
            assert!(reply.is_err(), "argument {at} = `{bad}`: {reply:?}");
            let after = redis.command(&["DEBUG", "DIGEST"]);
            assert_eq!(before, after, "argument {at} = `{bad}` changed something");
        }
    }
}
