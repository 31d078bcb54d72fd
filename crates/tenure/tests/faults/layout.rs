//! What the run must know of the bytes in Redis.

use tenure::Layout;
use tenure_testkit::RespClient;

use crate::client::HOT;

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

pub fn hot_fence_key(layout: Layout) -> String {
    match layout {
        Layout::Redisson => format!("redisson_lock_token:{{{HOT}}}"),
        _ => format!("tenure:fence:{{{HOT}}}"),
    }
}

/// Whether a key may stay for ever: Redisson would begin to count at 1 again.
pub fn is_kept(key: &str) -> bool {
    key.starts_with("redisson_lock_token:")
}
