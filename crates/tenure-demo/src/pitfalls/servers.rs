//! Mistakes that only show on several servers, which the demo starts and breaks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tenure::redis::{Client, Command};
use tenure::{ErrorKind, Redlock, Tenure};
use tenure_sale::Take;

use super::life::shown;
use super::pitfall::{Observed, Pitfall};
use super::redis_server::RedisServer;
use super::scene::Scene;
use crate::plain_store::PlainStore;

pub(crate) const PITFALLS: [Pitfall; 3] = [
    Pitfall {
        name: "one-redis",
        mistake: |scene| Box::pin(dies_with_its_server(scene)),
        tenure: |_| Box::pin(needs_most_of_them()),
    },
    Pitfall {
        name: "promoted-replica",
        mistake: |scene| Box::pin(is_granted_twice(scene)),
        tenure: |scene| Box::pin(is_refused_or_fenced(scene)),
    },
    Pitfall {
        name: "redlock-in-sequence",
        mistake: |scene| Box::pin(asks_one_after_the_other(scene)),
        tenure: |_| Box::pin(asks_all_at_once()),
    },
];

const LOCK: &str = "order:1001";
const NODES: usize = 3;
const LONG: Duration = Duration::from_secs(30);
/// Time limit for a server that never responds.
const LONG_ENOUGH: Duration = Duration::from_secs(1);
/// Time limit for steps that must succeed.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

async fn dies_with_its_server(_: Scene) -> Result<Observed> {
    let mut server = RedisServer::start().await?;
    let store = PlainStore::connect(&server.url()).await?;
    server.kill();
    let taking = store.set_nx_px(LOCK, "A", LONG);
    let taken = tokio::time::timeout(LONG_ENOUGH, taking).await;
    let is_refused = !matches!(taken, Ok(Ok(_)));
    let words = if is_refused {
        "the server died, and no lock can be acquired"
    } else {
        "the server died and granted a lock"
    };
    Ok(Observed::when(is_refused, words))
}

async fn needs_most_of_them() -> Result<Observed> {
    let mut servers = RedisServer::start_all(NODES).await?;
    let redlock = redlock(&servers).await?;
    servers[0].kill();
    let begun = Instant::now();
    let guard = redlock.lock(LOCK).wait(PATIENCE).acquire().await?;
    let time = shown(begun.elapsed());
    guard.release().await?;
    let words = format!("one of {NODES} servers died: locked on the others after {time}");
    Ok(Observed::when(true, words))
}

async fn asks_one_after_the_other(_: Scene) -> Result<Observed> {
    let servers = RedisServer::start_all(NODES).await?;
    let mut nodes = Vec::new();
    for server in &servers {
        nodes.push(PlainStore::connect(&server.url()).await?);
    }
    servers[0].hang()?;
    let asking = async {
        for node in &nodes {
            node.set_nx_px(LOCK, "A", LONG).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let asked = tokio::time::timeout(LONG_ENOUGH, asking).await;
    let time = shown(LONG_ENOUGH);
    let words = match &asked {
        Err(_) => {
            format!("one of {NODES} servers hangs: after {time} the others had not been tried")
        }
        Ok(_) => "all servers responded".to_owned(),
    };
    Ok(Observed::when(asked.is_err(), words))
}

async fn asks_all_at_once() -> Result<Observed> {
    let servers = RedisServer::start_all(NODES).await?;
    let redlock = redlock(&servers).await?;
    servers[0].hang()?;
    let begun = Instant::now();
    let guard = redlock.lock(LOCK).wait(PATIENCE).acquire().await?;
    let time = begun.elapsed();
    guard.release().await?;
    let words = format!(
        "one of {NODES} servers hangs: locked on the others after {}",
        shown(time)
    );
    Ok(Observed::when(time < LONG_ENOUGH, words))
}

async fn redlock(servers: &[RedisServer]) -> Result<Redlock> {
    let urls = servers.iter().map(RedisServer::url);
    Ok(Redlock::connect(urls).await?)
}

async fn is_granted_twice(_: Scene) -> Result<Observed> {
    let mut pair = Pair::start().await?;
    let before = PlainStore::connect(&pair.master.url()).await?;
    pair.cut_replica_off().await?;
    let a = before.set_nx_px(LOCK, "A", LONG).await?;
    pair.fail_over().await?;
    let after = PlainStore::connect(&pair.replica.url()).await?;
    let b = after.set_nx_px(LOCK, "B", LONG).await?;
    let words = if a && b {
        "two holders: the promoted replica had not received A's lock"
    } else {
        "B was refused"
    };
    Ok(Observed::when(a && b, words))
}

/// A lock that requires a replica is refused. One that does not is granted, and its fence protects.
async fn is_refused_or_fenced(scene: Scene) -> Result<Observed> {
    let mut pair = Pair::start().await?;
    let stock = scene.stock(2).await?;
    let before = Tenure::connect(pair.master.url()).await?;
    pair.cut_replica_off().await?;
    let careful = before.lock("careful").replicas(1).try_acquire().await;
    let is_refused = match careful {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::NotReplicated => true,
        Err(error) => return Err(error.into()),
    };
    let of_a = before.lock(LOCK).acquire().await?;
    pair.fail_over().await?;
    let after = Tenure::connect(pair.replica.url()).await?;
    let of_b = after.lock(LOCK).wait(PATIENCE).acquire().await?;
    let taken = stock.take_one(of_b.fence()).await?;
    let late = stock.take_one(of_a.fence()).await?;
    let is_fenced = matches!((taken, late), (Take::Taken { .. }, Take::Stale { .. }));
    let answer = |no| if no { "refused" } else { "granted" };
    let words = format!(
        "with `replicas(1)` A is {}; without, its write with the old fence is {}",
        answer(is_refused),
        answer(is_fenced)
    );
    Ok(Observed::when(is_refused && is_fenced, words))
}

/// A master and its replica.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
}

impl Pair {
    /// Starts both, and waits until the replica follows.
    async fn start() -> Result<Self> {
        let master = RedisServer::start().await?;
        let replica = RedisServer::start_replica_of(&master).await?;
        let client = Client::connect(replica.url()).await?;
        let begun = Instant::now();
        loop {
            let info = client.run(Command::new("INFO").arg("replication")).await?;
            let info = info.as_str().unwrap_or_default();
            if info.contains("master_link_status:up") {
                return Ok(Self { master, replica });
            }
            if begun.elapsed() > PATIENCE {
                bail!("the replica does not follow its primary: {info}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Cuts the replica off. It must hang before the master closes the connection: otherwise it would
    /// read what is left on the open connection, or reconnect after the close.
    async fn cut_replica_off(&self) -> Result<()> {
        self.replica.hang()?;
        let master = Client::connect(self.master.url()).await?;
        let kill = Command::new("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("replica");
        let killed = master.run(kill).await?;
        if killed.as_int() != Some(1) {
            bail!("the primary had `{killed}` replicas instead of one");
        }
        Ok(())
    }

    /// The master dies, and the replica takes its place.
    async fn fail_over(&mut self) -> Result<()> {
        self.master.kill();
        self.replica.go_on()?;
        let replica = Client::connect(self.replica.url()).await?;
        let promote = Command::new("REPLICAOF").arg("NO").arg("ONE");
        let promoting = replica.run(promote).await;
        promoting.context("cannot promote the replica")?;
        Ok(())
    }
}
