//! A fence checked by Redis: a script that refuses an older fence than it has seen.
//!
//! Two holders write a value. The first is paused for longer than its lease, the second gets the
//! lock and writes, then the first wakes up and writes too. The script refuses it.
//!
//! ```sh
//! cargo run -p tenure --example fence_redis -- redis://127.0.0.1/
//! ```
//!
//! It prints:
//!
//! ```text
//! old holder: got the lock and is paused
//! new holder: got the lock with a greater fence, wrote `new`
//! old holder: wakes up and wants to write `old`: refused, its fence is too old
//! value: new
//! ```
//!
//! The value and its fence share a slot by the `{…}` in their keys, so this works on a cluster.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use tenure::redis::{Client, Command, Script};
use tenure::{Fence, Tenure};

const LEASE: Duration = Duration::from_millis(200);
const VALUE: &str = "example:{report}:value";
const FENCE: &str = "example:{report}:fence";

/// KEYS 1 value, 2 greatest fence seen; ARGV 1 fence, 2 value. Replies 1 if written, 0 if refused.
const WRITE: &str = "#!lua
local fence = tonumber(ARGV[1])
if not fence or not ARGV[2] then
  return redis.error_reply('ERR a fence and a value are needed')
end
if fence < tonumber(redis.call('GET', KEYS[2]) or '0') then
  return 0
end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1/");
    run(url, &mut std::io::stdout()).await
}

pub(crate) async fn run(url: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let redis = Client::connect(url).await?;
    // Two clients, as if in two processes.
    let (old, new) = (Tenure::connect(url).await?, Tenure::connect(url).await?);

    // `fixed`: this lease is not renewed, as if the whole process were paused.
    let old_guard = old.lock("report").ttl(LEASE).no_renewal().acquire().await?;
    writeln!(out, "old holder: got the lock and is paused")?;
    tokio::time::sleep(LEASE).await;

    let new_guard = new.lock("report").acquire().await?;
    assert!(write_value(&redis, "new", new_guard.fence()).await?);
    writeln!(
        out,
        "new holder: got the lock with a greater fence, wrote `new`"
    )?;
    new_guard.release().await?;

    write!(out, "old holder: wakes up and wants to write `old`: ")?;
    let outcome = if write_value(&redis, "old", old_guard.fence()).await? {
        "written, and the new holder's value is lost"
    } else {
        "refused, its fence is too old"
    };
    writeln!(out, "{outcome}")?;
    let value = redis.run(Command::new("GET").arg(VALUE)).await?;
    writeln!(out, "value: {value}")?;

    // An example leaves nothing behind. Real data keep their fence for as long as they live.
    redis.run(Command::new("DEL").arg(VALUE).arg(FENCE)).await?;
    Ok(())
}

/// Writes only if no greater fence was here before, in one atomic step.
async fn write_value(redis: &Client, value: &str, fence: Fence) -> Result<bool, tenure::Error> {
    let arguments = [fence.to_string(), value.to_owned()];
    let reply = redis
        .script(&Script::new(WRITE), &[VALUE, FENCE], &arguments)
        .await?;
    Ok(reply.as_int() == Some(1))
}
