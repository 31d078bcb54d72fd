//! Units on a Redis server.

use std::sync::{Arc, LazyLock};

use tenure::Fence;
use tenure::redis::{Client, Command, Script, Value};

use super::{Take, UNITS_MAX};
use crate::error::{Error, ErrorKind, Result};

static TAKE_ONE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/take_one.lua")));

#[derive(Clone)]
pub(super) struct RedisShelf {
    redis: Client,
    item: Arc<str>,
    left_key: Arc<str>,
    fence_key: Arc<str>,
}

impl RedisShelf {
    pub(super) async fn open(url: &str, item: &str) -> Result<Self> {
        let connecting = Client::connect(url).await;
        let redis = connecting
            .map_err(|error| Error::store(format!("cannot open the stock of `{item}`"), error))?;
        Ok(Self::new(redis, item))
    }

    pub(super) fn new(redis: Client, item: &str) -> Self {
        let key = |what: &str| format!("{}tenure:sale:{{{item}}}:{what}", redis.prefix()).into();
        Self {
            item: item.into(),
            left_key: key("left"),
            fence_key: key("fence"),
            redis,
        }
    }

    pub(super) async fn load(&self, units: u64) -> Result<()> {
        let command = self.write(units).arg("NX");
        let reply = self.redis.run(command).await;
        if self.check("load", reply)?.is_nil() {
            return Err(Error::already_loaded(&self.item));
        }
        Ok(())
    }

    pub(super) async fn left(&self) -> Result<u64> {
        let command = Command::new("GET").arg(&self.left_key);
        let reply = self.redis.run(command).await;
        let reply = self.check("read", reply)?;
        if reply.is_nil() {
            return Err(Error::not_loaded(&self.item));
        }
        self.units(&reply)
    }

    pub(super) async fn set(&self, units: u64) -> Result<()> {
        // `XX`: writing the units of an item that is not on sale would put it on sale.
        let command = self.write(units).arg("XX");
        let reply = self.redis.run(command).await;
        if self.check("set", reply)?.is_nil() {
            return Err(Error::not_loaded(&self.item));
        }
        Ok(())
    }

    pub(super) async fn take_one(&self, fence: Fence) -> Result<Take> {
        let keys = [&*self.left_key, &*self.fence_key];
        let arguments = [fence.to_string()];
        let reply = self.redis.script(&TAKE_ONE, &keys, &arguments).await;
        let reply = self.check("take from", reply)?;
        self.decode(&reply)
    }

    pub(super) async fn remove(&self) -> Result<()> {
        let command = Command::new("DEL").arg(&self.left_key).arg(&self.fence_key);
        let reply = self.redis.run(command).await;
        self.check("remove", reply)?;
        Ok(())
    }

    fn write(&self, units: u64) -> Command {
        Command::new("SET").arg(&self.left_key).arg(units)
    }

    fn check(&self, verb: &str, reply: Result<Value, tenure::Error>) -> Result<Value> {
        reply.map_err(|error| {
            Error::store(
                format!("failed to {verb} the stock of `{}`", self.item),
                error,
            )
        })
    }

    fn decode(&self, reply: &Value) -> Result<Take> {
        let parts = reply.as_array().unwrap_or_default();
        match (parts.first().and_then(Value::as_str), parts.get(1)) {
            (Some("taken"), Some(left)) => Ok(Take::Taken {
                left: self.units(left)?,
            }),
            (Some("sold out"), None) => Ok(Take::SoldOut),
            (Some("stale"), Some(seen)) => Ok(Take::Stale {
                seen: Fence::new(self.units(seen)?),
            }),
            (Some("not loaded"), None) => Ok(Take::NotLoaded),
            _ => Err(self.not_understood(reply)),
        }
    }

    fn units(&self, value: &Value) -> Result<u64> {
        let number = value.as_int().and_then(|number| u64::try_from(number).ok());
        number
            .filter(|number| *number <= UNITS_MAX)
            .ok_or_else(|| self.not_understood(value))
    }

    fn not_understood(&self, value: &Value) -> Error {
        let message = format!("cannot read `{value}` as the stock of `{}`", self.item);
        Error::new(ErrorKind::Protocol, message)
    }
}
