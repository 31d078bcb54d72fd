//! One server or several: what a client program connects to.

use std::time::Duration;

use tenure::{Locks, Redlock, Tenure, blocking};

use super::LONG_TTL;

/// How a client is to connect.
#[derive(Debug, Clone)]
pub struct Access {
    /// One, or one for each node of a Redlock.
    pub urls: Vec<String>,
    /// The longest lease of a Redlock.
    pub longest_ttl: Duration,
    /// How many replicas a lock can be confirmed by: all there are.
    pub replicas: u32,
}

/// How a client is to be, once it has connected.
#[derive(Debug, Clone)]
pub struct Manner {
    pub name: String,
    pub unreachable_after: Duration,
    pub hand_off_time: Duration,
}

macro_rules! with_manner {
    ($builder:expr, $manner:expr) => {
        match $manner {
            None => $builder,
            Some(manner) => $builder
                .unreachable_after(manner.unreachable_after)
                .hand_off_time(manner.hand_off_time)
                .name(&manner.name),
        }
    };
}

impl Access {
    /// The longest lease, where it is too short for some locks.
    pub fn shortened(&self) -> Option<Duration> {
        (self.longest_ttl < LONG_TTL).then_some(self.longest_ttl)
    }

    pub async fn connect(&self, manner: Option<&Manner>) -> tenure::Result<Locks> {
        if let [url] = &self.urls[..] {
            let tenure = with_manner!(Tenure::builder(url), manner).connect().await?;
            return Ok(Locks::clone(&tenure));
        }
        let builder = Redlock::builder(&self.urls).longest_ttl(self.longest_ttl);
        let redlock = with_manner!(builder, manner).connect().await?;
        Ok(Locks::clone(&redlock))
    }

    pub fn connect_blocking(&self, manner: Option<&Manner>) -> tenure::Result<blocking::Locks> {
        if let [url] = &self.urls[..] {
            let builder = with_manner!(Tenure::builder(url), manner);
            let tenure = blocking::Tenure::connect_with(builder)?;
            return Ok(blocking::Locks::clone(&tenure));
        }
        let builder = Redlock::builder(&self.urls).longest_ttl(self.longest_ttl);
        let redlock = blocking::Redlock::connect_with(with_manner!(builder, manner))?;
        Ok(blocking::Locks::clone(&redlock))
    }
}
