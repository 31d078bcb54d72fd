//! A gate on Redis.

#[derive(Clone, Debug)]
pub(super) struct RedisGate;
