//! The shop: several instances of it, each a client of its own, with one item on sale.

use std::time::Duration;

use anyhow::{Context, Result};
use tenure::redis::{Client, Command};
use tenure::{LockName, Tenure};
use tenure_sale::Stock;

use crate::args::DemoArgs;

/// How long the instances may take to let go of what they hold.
const CLOSE_MAX: Duration = Duration::from_secs(1);

pub struct Shop {
    url: String,
    is_embedded: bool,
    lock_name: LockName,
    instances: Vec<Instance>,
}

/// One process of the shop, played by a client of its own.
#[derive(Clone)]
pub struct Instance {
    pub tenure: Tenure,
    pub stock: Stock,
}

impl Shop {
    pub async fn open(args: &DemoArgs) -> Result<Self> {
        // Of this run alone: nobody's real item or lock is ever touched.
        let run = format!("demo-{:08x}", rand::random::<u32>());
        // A bare `memory://` is private to each client: the instances need one that they share.
        let given = args.url().filter(|url| url.trim() != "memory://");
        let is_embedded = given
            .as_ref()
            .is_none_or(|url| url.trim_start().starts_with("memory://"));
        let url = given.unwrap_or_else(|| format!("memory://{run}"));
        let opening = Self::open_at(&url, &run, args.clients).await;
        let (lock_name, instances) = opening
            .with_context(|| format!("cannot run the demo on `{}`", tenure::masked_url(&url)))?;
        Ok(Self {
            url,
            is_embedded,
            lock_name,
            instances,
        })
    }

    async fn open_at(url: &str, run: &str, clients: u64) -> Result<(LockName, Vec<Instance>)> {
        let lock_name = LockName::new(format!("order:1001:{run}"))?;
        let mut instances = Vec::new();
        for number in 1..=clients {
            let builder = Tenure::builder(url).name(format!("{run}-shop-{number}"));
            instances.push(Instance {
                tenure: builder.connect().await?,
                stock: Stock::open(url, run).await?,
            });
        }
        Ok((lock_name, instances))
    }

    /// Where it runs, for people.
    pub fn place(&self) -> String {
        if self.is_embedded {
            "on the embedded store, no server needed".to_owned()
        } else {
            format!("on {}", tenure::masked_url(&self.url))
        }
    }

    pub fn is_embedded(&self) -> bool {
        self.is_embedded
    }

    pub fn lock_name(&self) -> &LockName {
        &self.lock_name
    }

    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// The item that all instances sell.
    pub fn stock(&self) -> &Stock {
        &self.instances[0].stock
    }

    /// Leaves nothing behind.
    pub async fn close(self) -> Result<()> {
        let closing = self.instances.iter().map(|instance| {
            let tenure = instance.tenure.clone();
            tokio::spawn(async move { tenure.shutdown(CLOSE_MAX).await })
        });
        for closed in closing.collect::<Vec<_>>() {
            closed.await?;
        }
        let deleting = self.delete_keys().await;
        deleting.with_context(|| {
            let place = tenure::masked_url(&self.url);
            format!(
                "cannot delete the demo's keys on `{place}`: `{}`",
                self.keys().join("`, `")
            )
        })
    }

    async fn delete_keys(&self) -> Result<()> {
        self.stock().remove().await?;
        if self.is_embedded {
            return Ok(());
        }
        let redis = Client::connect(&self.url).await?;
        let delete = |command: Command, key: String| command.arg(key);
        let command = self.keys().into_iter().fold(Command::new("DEL"), delete);
        redis.run(command).await?;
        Ok(())
    }

    /// What the lock leaves on a server: nothing that is held, but the last fence.
    fn keys(&self) -> Vec<String> {
        let name = &self.lock_name;
        let beside = |role: &str| format!("tenure:{role}:{{{name}}}");
        vec![name.to_string(), beside("fence"), beside("queue")]
    }
}
