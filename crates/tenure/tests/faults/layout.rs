//! What the run must know of the bytes in Redis.

use tenure::Layout;
use tenure_testkit::RespClient;

/// The URL of a server for clients of this layout.
pub fn url(server: &str, layout: Layout) -> String {
    format!("{server}?layout={layout}")
}

/// The lease that holds a lock.
pub fn holder(redis: &mut RespClient, layout: Layout, key: &str) -> Option<String> {
    let reply = match layout {
        Layout::Redisson => redis.command(&["HRANDFIELD", key]),
        _ => redis.command(&["GET", key]),
    };
    (!reply.is_nil()).then(|| reply.text().to_owned())
}

/// The client that a lease belongs to, as it prints itself: a UUID without its dashes.
pub fn client_of(lease: &str) -> Option<String> {
    let lease = lease.strip_prefix("tenure:").unwrap_or(lease);
    let client = lease.split(':').next()?;
    Some(client.replace('-', ""))
}

/// The leases that wait for a lock, the next one first.
pub fn waiters(redis: &mut RespClient, lock: &str) -> Vec<String> {
    let queue = format!("tenure:queue:{{{lock}}}");
    let waiters = redis.command(&["ZRANGE", &queue, "0", "-1"]);
    let waiters = waiters.array().iter();
    waiters.map(|waiter| waiter.text().to_owned()).collect()
}

/// Where the counter of a lock's fences may be: as a string, or as a stream.
pub fn fence_keys(layout: Layout, lock: &str) -> Vec<String> {
    match layout {
        Layout::Redisson => vec![format!("redisson_lock_token:{{{lock}}}")],
        _ => vec![
            format!("tenure:fence:{{{lock}}}"),
            format!("tenure:fences:{{{lock}}}"),
            "tenure:fences".to_owned(),
        ],
    }
}

/// Whether a key may stay for ever: Redisson would begin to count at 1 again.
pub fn is_kept(key: &str) -> bool {
    key.starts_with("redisson_lock_token:")
}
