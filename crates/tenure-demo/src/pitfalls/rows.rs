//! The table of pitfalls: the one place where they are listed.

/// One mistake that people make with locks.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    pub(crate) they_write: &'static str,
    pub(crate) goes_wrong: &'static str,
    pub(crate) tenure_does: &'static str,
}

/// In the order in which people meet them.
pub(crate) const ROWS: [Row; 22] = [
    row(
        "read-then-write",
        "read stock, subtract, write back",
        "two buyers read the same number: oversold",
        "lock, or better: one atomic script",
    ),
    row(
        "setnx-without-expiry",
        "`SETNX`, work, `DEL`",
        "the holder dies: locked forever",
        "every lease expires",
    ),
    row(
        "setnx-then-expire",
        "`SETNX` then `EXPIRE`",
        "dies between the two: locked forever",
        "one script sets owner and expiry together",
    ),
    row(
        "del-by-anyone",
        "`DEL` by anyone",
        "A's late `DEL` frees B's lock",
        "release compares the owner, atomically",
    ),
    row(
        "get-compare-del",
        "`GET`, compare, `DEL`",
        "the lock changes hands in between",
        "release compares the owner, atomically",
    ),
    row(
        "own-clock",
        "the owner's own expiry time as value, `GETSET`",
        "needs synchronized clocks, owners overwrite each other's expiry",
        "the server's clock alone decides",
    ),
    row(
        "thread-id-as-owner",
        "thread id as value",
        "two processes share the number",
        "a random client id and a counter",
    ),
    row(
        "fixed-lease",
        "fixed lease",
        "the work is longer than the lease: two holders",
        "the watchdog renews at a third of the lease",
    ),
    row(
        "renewing-caller",
        "renew in the acquiring thread",
        "the caller never gets control back",
        "one background engine renews all leases",
    ),
    row(
        "silent-renewal",
        "the renewal fails silently",
        "the holder keeps working without the lock",
        "the guard reports it: deadline, `lost()`, fence",
    ),
    row(
        "lock-again",
        "lock again inside a called function",
        "self-deadlock",
        "reentrancy by owner",
    ),
    row(
        "inner-release",
        "release inside the called function",
        "the caller's lock is released",
        "counted: the last guard of the chain frees",
    ),
    row(
        "count-off-by-one",
        "`count++` stored instead of `++count`",
        "the inner release already frees",
        "counted: the last guard of the chain frees",
    ),
    row(
        "one-flag",
        "one thread-local flag for all names",
        "a second name counts as held",
        "holds are kept per name and owner",
    ),
    row(
        "flag-too-early",
        "the flag is set before `SETNX` fails",
        "the next try succeeds",
        "only a granted lock returns a guard",
    ),
    row(
        "blind-renewal",
        "a timer that runs `EXPIRE` without checking",
        "keeps another client's lock alive",
        "renewal compares the owner",
    ),
    row(
        "key-of-the-stock",
        "the lock's key is the stock's key",
        "the lock overwrites the stock",
        "a key that is not a lock is not touched",
    ),
    row(
        "spinning",
        "fail at once, or spin",
        "unfair, or overloads Redis",
        "wait in a queue, notified by a message, with a time limit",
    ),
    row(
        "one-redis",
        "one Redis",
        "it dies: no locks",
        "Sentinel, Cluster, Redlock",
    ),
    row(
        "promoted-replica",
        "replica promoted before it received the lock",
        "two holders",
        "`WAIT` on the same connection, and always the fence",
    ),
    row(
        "redlock-in-sequence",
        "Redlock in sequence without timeouts",
        "one dead node stalls all clients",
        "all nodes in parallel, done at the majority",
    ),
    row(
        "hot-counter",
        "lock around a hot counter",
        "one sale at a time",
        "stock and order in one script",
    ),
];

/// The names, for the command line.
pub fn names() -> [&'static str; ROWS.len()] {
    ROWS.each_ref().map(|row| row.name)
}

const fn row(
    name: &'static str,
    they_write: &'static str,
    goes_wrong: &'static str,
    tenure_does: &'static str,
) -> Row {
    Row {
        name,
        they_write,
        goes_wrong,
        tenure_does,
    }
}
