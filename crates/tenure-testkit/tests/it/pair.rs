//! Two servers that swap roles.

use std::time::Duration;

use tenure_testkit::{Pair, RedisServer, eventually};

use crate::SOON;

fn value(server: &RedisServer) -> Option<String> {
    let reply = server.client().command(&["GET", "k"]);
    (!reply.is_nil()).then(|| reply.text().to_owned())
}

#[test]
fn a_lagging_copy_takes_over_without_the_latest_writes() {
    let pair = Pair::start(&RedisServer::builder());
    let set = |server: &RedisServer, value: &str| {
        server.client().command(&["SET", "k", value]);
    };
    set(pair.primary(), "heard");
    assert!(eventually(SOON, || value(pair.copy()).is_some()));
    pair.set_lag(Duration::from_secs(30));
    set(pair.primary(), "unheard");
    let old = pair.primary().port();
    let new = pair.promote();
    assert_ne!(new.port(), old);
    assert_eq!(value(new).unwrap(), "heard");
    assert_eq!(value(pair.copy()).unwrap(), "unheard", "it keeps serving");
    pair.follow_new();
    assert_eq!(value(pair.copy()).unwrap(), "heard");
    // And back.
    set(pair.primary(), "again");
    assert!(eventually(SOON, || value(pair.copy()).unwrap() == "again"));
    pair.promote();
    assert_eq!(pair.primary().port(), old);
    pair.follow_new();
}
