//! Single commands that are forbidden for a while, as by an ACL that was written too strictly.

use std::thread;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::RedisServer;

use super::{Kind, random_time};

/// Without these nothing is written.
const READS: [&str; 7] = [
    "hmget",
    "hget",
    "xlen",
    "xreadgroup",
    "xpending",
    "evalsha",
    "xinfo",
];
/// Scripts that are refused one of these may have written something already.
const WRITES: [&str; 8] = [
    "hset", "xadd", "xdel", "xack", "hdel", "set", "unlink", "rename",
];

/// Does it, undoes it; true if something was refused.
pub(super) fn strike(kind: Kind, server: &RedisServer, rng: &mut StdRng) -> bool {
    let commands: &[&str] = match kind {
        Kind::ForbidRead => &READS,
        _ => &WRITES,
    };
    let command = commands.choose(rng).unwrap();
    let before = refusals(server);
    server.run(&["ACL", "SETUSER", "default", &format!("-{command}")]);
    thread::sleep(random_time(rng));
    server.run(&["ACL", "SETUSER", "default", &format!("+{command}")]);
    refusals(server) > before
}

fn refusals(server: &RedisServer) -> u64 {
    super::server::error_count(server, "NOPERM")
}
