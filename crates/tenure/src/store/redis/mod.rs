//! The store on one Redis server, or on the nodes of a Redis Cluster.
//!
//! This directory is the only place that knows the Redis protocol.

pub use self::arguments::Arguments;
pub use self::client::{Client, Command, Dedicated};
pub(crate) use self::connection::Connection;
pub(crate) use self::node_state::{Age, StoredNodeInfo, VOTE_DELAY_MIN};
pub(crate) use self::redis_store::RedisStore;
pub use self::script::Script;
pub use self::value::Value;
pub(crate) use self::vote::SentVote;
pub(crate) use self::vote_request::{
    Ballot, ClockBounds, NodeReleaseReply, OFFER_PREFIX, PlaceAfter, ReleaseRequest, Vote,
    VoteRequest,
};

mod acquire;
mod acquire_batch;
mod acquire_several;
mod adopt;
mod arguments;
mod caller_connection;
mod change_mode;
mod channels;
mod client;
mod client_records;
mod cluster;
mod combiner;
mod command;
mod connection;
mod dedicated_pool;
mod endpoint;
mod failover_pause;
mod fence_counter;
mod heartbeat;
mod inspect;
mod keys;
mod layout;
mod listener;
mod node;
mod node_batch;
mod node_state;
mod observe;
mod operation;
mod perform;
mod reconnect;
mod redis_store;
mod release;
mod release_batch;
mod renew;
mod replica_ack;
mod request_queue;
mod response_watch;
mod routes;
mod run_step;
mod script;
mod script_call;
mod sentinel;
mod server;
mod server_error;
mod slot_batches;
mod subscribe;
mod tls;
mod told_offer;
mod transaction_candidates;
mod trusted_primary;
mod turn;
mod value;
mod vote;
mod vote_batch;
mod vote_release_batch;
mod vote_request;
mod wire;
