//! One binary for all integration tests of the library. Table of contents:

#![expect(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test that panics has failed, and a test binary has no public interface"
)]

/// What every store promises, run on each of them.
mod contract;
/// Where the contract runs: the stores, and how to reach around them.
mod stage;

/// What an error must say, and what must not be left behind.
mod verdict;

/// A Redis Cluster, whose slots move.
mod cluster;
/// Requests of concurrent callers, which travel together.
mod combining;
/// How to connect: TLS, sockets, users, databases.
mod connect;
/// Waiters that are killed or stopped while they wait.
mod dead_waiters;
/// The first question, asked by the caller's own task.
mod direct;
/// Dropped guards and programs that end.
mod drops;
/// Elections, where a real server counts, dies, or says what is no longer so.
mod election;
/// The examples run, and print what their headers say.
mod examples;
/// Executors that futures run on.
mod executors;
/// Fair locks where a real server keeps the queue.
mod fair;
/// Fences where data goes back, greetings are slow, and many are handed on.
mod fences;
/// Locks of other libraries, and keys that are none.
mod foreign;
/// Handing off, where a real server counts, stops, or is out of reach.
mod hand_off;
/// A lock that goes from one process to another in one trip, and messages that must not be trusted.
mod hand_over;
/// One test for each hazard of docs/testing.md that exists on one node, carrying its number.
mod hazards;
/// Kept leases, where a real server counts, a keeper dies, and messages are refused.
mod keep;
/// Latches, where replies and messages get lost.
mod latch;
mod log;
/// The scripts themselves, run with arguments that the library would never send.
mod lua;
/// Runs of schedules, where replies get lost and keys are not what they should be.
mod once;
/// What a server that dies remembers.
mod persistence;
/// A prefix per client: what it covers, and users that may touch nothing else.
mod prefix;
/// The layout of Redisson: its encoding, and a Java process next to ours.
mod redisson;
mod redlock;
/// Leases that are renewed by one script.
mod renew_together;
/// What an operation costs the server.
mod round_trips;
/// Semaphores, where a real server counts, loses keys and replies.
mod semaphore;
/// Sentinel: failovers, replicas, a master that has just begun.
mod sentinel;
/// Several names at once, where a real server counts, refuses, and loses replies.
mod several;
/// Shared leases beside other libraries and older clients, and what they cost.
mod shared;
/// One fence counter for all locks of a database.
mod shared_counter;
/// Architecture: who may know whom, and what must be where.
mod tidy;
/// How long servers take to answer, as a client tells it.
mod timings;
/// Bad input and servers in trouble: the error, its text, and what remains.
mod trouble;
