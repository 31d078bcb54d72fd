//! What a command leaves on a server.

use tenure_testkit::RedisServer;

/// All keys but those that are for all clients, and end by themselves: the fence counter that locks
/// share, and since when which node of a Redlock runs.
pub fn keys_left(server: &RedisServer) -> Vec<String> {
    let keys = server.client().command(&["KEYS", "*"]);
    let keys = keys.array().iter().map(|key| key.text().to_owned());
    keys.filter(|key| !["tenure:fences", "tenure:nodes"].contains(&key.as_str()))
        .collect()
}

#[track_caller]
pub fn leaves_nothing(server: &RedisServer) {
    assert_eq!(keys_left(server), Vec::<String>::new());
}
