//! Connections between a process and the gate.

use std::thread;

use rand::rngs::StdRng;
use tenure_testkit::{Proxy, eventually};

use super::{Kind, random_time};

/// Does it, undoes it; true if something was lost.
pub(super) fn strike(kind: Kind, proxy: &Proxy, rng: &mut StdRng) -> bool {
    let before = proxy.counts();
    match kind {
        Kind::DropReplies => {
            proxy.drop_replies();
            thread::sleep(random_time(rng));
            proxy.heal();
            proxy.counts().reply_bytes > before.reply_bytes
        }
        // The next request is carried out, but its reply is lost.
        Kind::ResetAfterRequest => {
            proxy.reset_after_request();
            let struck = eventually(random_time(rng), || {
                proxy.counts().connections > before.connections
            });
            proxy.heal();
            struck
        }
        other => unreachable!("`{}` is not done to connections", other.name()),
    }
}
