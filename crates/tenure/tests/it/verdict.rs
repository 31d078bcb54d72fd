//! What an error must say, and what must not be left behind.

use std::time::{Duration, Instant};

use tenure::{Error, ErrorKind, Guard, Result};
use tenure_testkit::{RedisServer, eventually};

use crate::stage::ms;

/// The error of a call that must fail.
#[track_caller]
pub fn refused<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => error,
    }
}

/// The call failed in this way, and its text names all of `parts`.
#[track_caller]
pub fn check_refused<T>(result: Result<T>, kind: ErrorKind, parts: &[&str]) {
    check_error(&refused(result), kind, parts);
}

#[track_caller]
pub fn check_error(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:?}");
    for part in parts {
        let text = error.to_string();
        assert!(text.contains(part), "`{part}` is missing in `{text}`");
    }
}

/// Asks until the server says that it does not grant yet. On a crowded machine it may take too long to
/// answer at all.
pub async fn check_not_yet<T>(ask: impl AsyncFn() -> Result<T>) -> Error {
    loop {
        let error = refused(ask().await);
        if error.to_string().contains("did not answer in time") {
            continue;
        }
        check_error(&error, ErrorKind::Unavailable, &["not granted yet"]);
        return error;
    }
}

/// Neither the lock nor its related keys are in the server, soon if not at once. Only the fence
/// counter may stay, and what clients say of themselves.
#[track_caller]
pub fn check_nothing_left(server: &RedisServer, name: &str) {
    let mut left = Vec::new();
    let clean = eventually(ms(3_000), || {
        left = keys_of(server, name);
        left.is_empty()
    });
    assert!(clean, "left behind: {left:?}");
}

fn keys_of(server: &RedisServer, name: &str) -> Vec<String> {
    let keys = server.client().command(&["KEYS", "*"]);
    keys.array()
        .iter()
        .map(|key| key.text().to_owned())
        .filter(|key| key.contains(name))
        .filter(|key| !key.starts_with("tenure:fence") && !key.starts_with("tenure:client"))
        .filter(|key| !key.starts_with("redisson_lock_token:") && !key.starts_with("tenure:reign"))
        .collect()
}

/// The lock is free, and everything about it works.
pub async fn check_usable(tenure: &tenure::Tenure, name: &str) {
    let guard = tenure.lock(name).wait(ms(5_000)).acquire().await.unwrap();
    guard.ensure(guard.ttl() / 2).await.unwrap();
    let released = guard.release().await.unwrap();
    assert_eq!(released, tenure::Released::WasHeld);
}

/// The value at the lock's name is that of this guard.
#[track_caller]
pub fn check_holds(server: &RedisServer, guard: &Guard) {
    let found = server.client().command(&["GET", guard.name().as_str()]);
    assert_eq!(found.text(), guard.lease_id().as_str());
}

#[track_caller]
pub fn check_within(begun: Instant, limit: Duration) {
    let taken = begun.elapsed();
    assert!(taken < limit, "took {taken:?}, and {limit:?} is the limit");
}

/// The last fence that a server has minted for its locks, or for this one if it has a counter of its
/// own: the last id of the counter.
pub fn fence_of(server: &RedisServer, name: &str) -> Option<u64> {
    let counters = [
        "tenure:fences".to_owned(),
        format!("tenure:fences:{{{name}}}"),
    ];
    let last = counters.iter().map(|counter| last_id(server, counter));
    last.max().flatten()
}

fn last_id(server: &RedisServer, counter: &str) -> Option<u64> {
    let info = server.client().try_command(&["XINFO", "STREAM", counter]);
    let info = info.ok()?;
    let parts = info.array();
    let at = (0..parts.len()).step_by(2);
    let mut last = at.filter(|at| parts[*at].text() == "last-generated-id");
    let (ms, sequence) = parts[last.next()? + 1].text().split_once('-')?;
    Some(ms.parse::<u64>().ok()? * 1_000 + sequence.parse::<u64>().ok()?)
}
