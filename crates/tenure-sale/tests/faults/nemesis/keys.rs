//! Keys of an item that are deleted, overwritten and trimmed by hand, each of them alone.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::{RedisServer, Reply, eventually};

use super::{Kind, SHORT};

/// Fields without which a gate cannot answer.
const FIELDS: [&str; 8] = [
    "epoch",
    "fence",
    "state",
    "run",
    "spread",
    "change",
    "left",
    "unlimited",
];

/// Does it; the engine has to undo it. True if there was something to be lost.
pub(super) fn strike(kind: Kind, server: &RedisServer, item: &str, rng: &mut StdRng) -> bool {
    let mut redis = server.client();
    // The engine may write a key of another type meanwhile: then nothing was struck.
    let mut done = |words: &[&str]| {
        redis
            .try_command(words)
            .is_ok_and(|reply| has_struck(&reply))
    };
    match kind {
        // Also the answers of the last epoch, and the lock of a rebuild.
        Kind::DeleteKey => one_of(server, &format!("*sale:{{{item}[}}#]*"), rng)
            .is_some_and(|key| done(&["DEL", &key])),
        Kind::OverwriteKey => one_of(server, &format!("tenure:sale:{{{item}[}}#]*"), rng)
            .is_some_and(|key| done(&["SET", &key, "of another program"])),
        Kind::DeleteField => one_of(server, &format!("tenure:sale:{{{item}[}}#]*gate"), rng)
            .is_some_and(|gate| done(&["HDEL", &gate, FIELDS.choose(rng).unwrap()])),
        // A queue is empty most of the time, so its moment has to be waited for.
        Kind::TrimQueue => eventually(SHORT, || {
            one_of(server, &format!("tenure:sale:{{{item}[}}#]*orders"), rng)
                .is_some_and(|queue| done(&["XTRIM", &queue, "MAXLEN", "0"]))
        }),
        other => unreachable!("`{}` is not done to keys", other.name()),
    }
}

/// Whether anything was changed.
fn has_struck(reply: &Reply) -> bool {
    match reply {
        Reply::Int(count) => *count > 0,
        _ => true,
    }
}

fn one_of(server: &RedisServer, pattern: &str, rng: &mut StdRng) -> Option<String> {
    let reply = server.run(&["KEYS", pattern]);
    let key = reply.array().choose(rng)?;
    Some(key.text().to_owned())
}
