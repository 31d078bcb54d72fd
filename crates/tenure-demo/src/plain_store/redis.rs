//! Keys on a Redis server.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tenure::redis::{Client, Command, Value};

#[derive(Clone)]
pub(crate) struct RedisStore {
    redis: Client,
}

impl RedisStore {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let redis = Client::connect(url).await?;
        Ok(Self { redis })
    }

    pub(crate) async fn set_nx(
        &self,
        key: &str,
        value: &str,
        lease: Option<Duration>,
    ) -> Result<bool> {
        let mut command = Command::new("SET").arg(key).arg(value).arg("NX");
        if let Some(lease) = lease {
            command = command.arg("PX").arg(lease.as_millis());
        }
        Ok(!self.redis.run(command).await?.is_nil())
    }

    pub(crate) async fn set(&self, key: &str, value: &str) -> Result<()> {
        self.redis
            .run(Command::new("SET").arg(key).arg(value))
            .await?;
        Ok(())
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<String>> {
        let found = self.redis.run(Command::new("GET").arg(key)).await?;
        Ok(text(&found))
    }

    pub(crate) async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>> {
        let command = Command::new("GETSET").arg(key).arg(value);
        Ok(text(&self.redis.run(command).await?))
    }

    pub(crate) async fn del(&self, key: &str) -> Result<()> {
        self.redis.run(Command::new("DEL").arg(key)).await?;
        Ok(())
    }

    pub(crate) async fn del_all(&self, keys: &[String]) -> Result<()> {
        // One command per key: on a cluster they are on different nodes.
        let commands = keys.iter().map(|key| Command::new("DEL").arg(key));
        for reply in self.redis.run_all(commands.collect()).await? {
            if let Value::Error(error) = reply {
                bail!("the server refused: {error}");
            }
        }
        Ok(())
    }

    pub(crate) async fn expire(&self, key: &str, lease: Duration) -> Result<bool> {
        let command = Command::new("PEXPIRE").arg(key).arg(lease.as_millis());
        Ok(self.redis.run(command).await?.as_int() == Some(1))
    }

    pub(crate) async fn is_endless(&self, key: &str) -> Result<bool> {
        let left = self.redis.run(Command::new("PTTL").arg(key)).await?;
        Ok(left.as_int() == Some(-1))
    }

    pub(crate) async fn decr(&self, key: &str) -> Result<i64> {
        let left = self.redis.run(Command::new("DECR").arg(key)).await?;
        let number = left.as_int();
        number.with_context(|| format!("cannot read `{left}` as a number"))
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(ToOwned::to_owned)
}
