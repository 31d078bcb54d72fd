//! Names of locks that a program uses only for a moment, and tidying up after them.

use tenure::ErrorKind;
use tenure::redis::{Client, Command};

/// A name that is not in use. All names with the same tag share a slot.
pub fn unused(prefix: &str) -> String {
    format!("{prefix}-{{{:016x}}}", rand::random::<u64>())
}

/// Deletes what locks of these names leave behind: fences outlive their locks by days.
pub async fn sweep(client: &Client, names: &[String]) {
    for key in names.iter().flat_map(|name| keys_of(client.prefix(), name)) {
        let deleted = client.run(Command::new("DEL").arg(key)).await;
        // Keys that cannot be deleted expire; a server that does not respond is not retried.
        if deleted.is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
            return;
        }
    }
}

/// All keys that a lock with a hash tag in its name can have.
fn keys_of(prefix: &str, name: &str) -> [String; 7] {
    let own = |role: &str| format!("{prefix}tenure:{role}:{prefix}{name}");
    [
        format!("{prefix}{name}"),
        own("fences"),
        own("fence"),
        own("queue"),
        own("alive"),
        own("meta"),
        format!("redisson_lock_token:{prefix}{name}"),
    ]
}
