//! The description of an operation: what it sends to a server, and what the reply means.

use crate::layout::Layout;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::Failure;
use crate::store::redis::keys::{Key, Keys};
use crate::store::redis::script::{LockScripts, RedlockScripts};
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;

/// One step on a lock.
pub(in crate::store::redis) trait Operation {
    type Reply;

    /// The lock that it is about.
    fn name(&self) -> &LockName;

    /// How many replicas must acknowledge what it writes.
    fn replicas(&self) -> u32 {
        0
    }

    /// Whether it only renews: renewals must not wait for grants.
    fn renews(&self) -> bool {
        false
    }

    /// Whether it may grant a lock, which a primary in its failover pause does not do.
    fn grants(&self) -> bool {
        false
    }

    /// The script to run, with its keys and arguments.
    fn call(&self, at: &ServerContext) -> ScriptCall<'static>;

    /// What the reply means; an inner `Err` if the script changed nothing and can be retried.
    fn read(&self, reply: &ScriptReply) -> Result<Result<Self::Reply, Rejection>, Failure>;
}

/// What an operation has to know of the server that runs it.
pub(in crate::store::redis) struct ServerContext {
    pub(in crate::store::redis) keys: Keys,
    /// Whether messages stay in the shard of their lock.
    pub(in crate::store::redis) sharded: bool,
    /// Whether the locks of the server share one fence counter.
    pub(in crate::store::redis) shares_counter: bool,
    /// The latest moment by the server's clock at which the script may take effect.
    pub(in crate::store::redis) latest_us: u64,
    /// The only primary that may grant; empty if any may.
    pub(in crate::store::redis) primary: String,
}

/// The reply of a script.
pub(in crate::store::redis) struct ScriptReply {
    pub(in crate::store::redis) layout: Layout,
    pub(in crate::store::redis) value: Value,
    /// When the script was sent: a lease counts from there.
    pub(in crate::store::redis) sent_at: Moment,
}

/// Why a script changed nothing but can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Rejection {
    /// Its latest moment had passed: the server's clock shows this, in microseconds.
    Late(u64),
    /// Another primary replied than the trusted one.
    OtherPrimary,
}

impl ServerContext {
    pub(super) fn scripts(&self) -> &'static LockScripts {
        self.keys.layout.scripts(self.sharded)
    }

    /// The counter that mints fences for a lock, and the lock's own.
    pub(super) fn counter_keys(&self, name: &LockName) -> [Key; 2] {
        let own = self.keys.counter(name);
        let counter = if self.shares_counter {
            self.keys.shared_counter()
        } else {
            own.clone()
        };
        [counter, own]
    }

    pub(super) fn redlock_scripts(&self) -> &'static RedlockScripts {
        self.keys.layout.redlock_scripts()
    }
}
