//! The scripts themselves, run with arguments that the library would never send.

use tenure_testkit::{Reply, RespClient};

macro_rules! script {
    ($file:literal) => {
        include_str!(concat!("../../src/store/redis/scripts/", $file))
    };
}

pub const ACQUIRE: &str = script!("acquire.lua");
pub const RELEASE: &str = script!("release.lua");
pub const RENEW: &str = script!("renew.lua");
pub const ADOPT: &str = script!("adopt.lua");
pub const RECORD: &str = script!("record.lua");

/// Runs a script as the library would, with its shared parts put in.
pub fn eval(
    redis: &mut RespClient,
    code: &str,
    keys: &[&str],
    args: &[&str],
) -> Result<Reply, String> {
    let code = code
        .replace("--@include whole.lua", script!("whole.lua"))
        .replace("--@include offer.lua", script!("offer.lua"))
        .replace("--@include fence.lua", script!("fence.lua"))
        .replace("--@include lease_at.lua", script!("lease_at.lua"));
    assert!(!code.contains("@include"), "a shared part is missing");
    let count = keys.len().to_string();
    let mut words = vec!["EVAL", &code, &count];
    words.extend(keys);
    words.extend(args);
    redis.try_command(&words)
}
