//! One server or several: what a client program connects to.

use std::time::Duration;

use tenure::{Builder, Locks, Redlock, Tenure, blocking};

use super::LONG_TTL;

/// How a client is to connect.
#[derive(Debug, Clone)]
pub struct Access {
    /// One, or one for each node of a Redlock.
    pub urls: Vec<String>,
    /// The longest lease that this client asks for: for a Redlock its setting, elsewhere a rule of
    /// the phase.
    pub longest_ttl: Duration,
    /// How long a new master gives no new locks, if it is asked to wait.
    pub after_failover: Option<Duration>,
    /// How many replicas a lock can be confirmed by: all there are.
    pub replicas: u32,
}

/// How a client is to be, once it has connected.
#[derive(Debug, Clone)]
pub struct Manner {
    pub name: String,
    pub unreachable_after: Duration,
    pub hand_off_time: Duration,
    pub hand_off_turns: u32,
}

macro_rules! with_manner {
    ($builder:expr, $manner:expr) => {
        match $manner {
            None => $builder,
            Some(manner) => $builder
                .unreachable_after(manner.unreachable_after)
                .hand_off_time(manner.hand_off_time)
                .hand_off_turns(manner.hand_off_turns)
                .name(&manner.name),
        }
    };
}

impl Access {
    /// The longest lease, where it is too short for some locks.
    pub fn shortened(&self) -> Option<Duration> {
        (self.longest_ttl < LONG_TTL).then_some(self.longest_ttl)
    }

    /// Whether there are semaphores and fair locks.
    pub fn counts_and_orders(&self) -> bool {
        matches!(&self.urls[..], [url] if !url.contains("layout=redisson"))
    }

    pub async fn connect(&self, manner: Option<&Manner>) -> tenure::Result<Locks> {
        if let Some(tenure) = self.connect_to_one(manner).await? {
            return Ok(tenure.as_locks().clone());
        }
        let builder = Redlock::builder(&self.urls).longest_ttl(self.longest_ttl);
        let redlock = with_manner!(builder, manner).connect().await?;
        Ok(redlock.as_locks().clone())
    }

    /// The client of one deployment; `None` for a Redlock.
    pub async fn connect_to_one(&self, manner: Option<&Manner>) -> tenure::Result<Option<Tenure>> {
        let [url] = &self.urls[..] else {
            return Ok(None);
        };
        let builder = with_manner!(self.builder(url), manner);
        builder.connect().await.map(Some)
    }

    fn builder(&self, url: &str) -> Builder {
        let builder = Tenure::builder(url);
        match self.after_failover {
            None => builder,
            // No lease may outlast the wait.
            Some(wait) => builder.ttl(self.longest_ttl).after_failover(wait),
        }
    }

    pub fn connect_blocking(&self, manner: Option<&Manner>) -> tenure::Result<blocking::Locks> {
        if let [url] = &self.urls[..] {
            let builder = with_manner!(self.builder(url), manner);
            let tenure = blocking::Tenure::connect_with(builder)?;
            return Ok(tenure.as_locks().clone());
        }
        let builder = Redlock::builder(&self.urls).longest_ttl(self.longest_ttl);
        let redlock = blocking::Redlock::connect_with(with_manner!(builder, manner))?;
        Ok(redlock.as_locks().clone())
    }
}
