//! The scripts themselves, run with arguments that the library would never send.

use tenure_testkit::{Reply, RespClient};

macro_rules! script {
    ($file:literal) => {
        include_str!(concat!("../../src/store/redis/scripts/", $file))
    };
}

pub const ACQUIRE: &str = script!("native/acquire.lua");
pub const RELEASE: &str = script!("native/release.lua");
pub const RENEW: &str = script!("native/renew.lua");
pub const ADOPT: &str = script!("native/adopt.lua");
pub const RECORD: &str = script!("record.lua");

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
        ("native/lease_at.lua", script!("native/lease_at.lua")),
        ("redisson/lease_at.lua", script!("redisson/lease_at.lua")),
        ("redisson/holder_at.lua", script!("redisson/holder_at.lua")),
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
