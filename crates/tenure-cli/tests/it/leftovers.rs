//! What a command leaves on a server.

use tenure_testkit::RedisServer;

/// All keys but those that are for all clients, and end by themselves: the fence counter that locks
/// share, and since when which node of a Redlock runs.
pub fn keys_left(server: &RedisServer) -> Vec<String> {
    let keys = server.client().command(&["KEYS", "*"]);
    let keys = keys.array().iter().map(|key| key.text().to_owned());
    // With any prefix.
    let is_for_all = |key: &str| key.ends_with("tenure:fences") || key.ends_with("tenure:nodes");
    keys.filter(|key| !is_for_all(key)).collect()
}

#[track_caller]
pub fn leaves_nothing(server: &RedisServer) {
    assert_eq!(keys_left(server), Vec::<String>::new());
}
