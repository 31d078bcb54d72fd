//! Which consumers are alive: each tells the gate again and again, under a key that ends by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::redis::Command;

use super::keys::GROUP;
use super::shelves::Shelf;
use super::{RedisGate, failed, not_understood, script};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::gate::clock::millis;

impl RedisGate {
    pub(in crate::gate) async fn beat(&self, consumer: &str, lasts: Duration) -> Result<()> {
        let command = Command::new("SET").arg(self.alive_key(consumer)).arg(1);
        let command = command.arg("PX").arg(millis(lasts).max(1));
        let reply = self.redis.run(command).await;
        reply.map_err(|error| Error::store("cannot tell that this consumer is alive", error))?;
        Ok(())
    }

    /// Delivers entries that consumers have read which are no longer alive.
    pub(in crate::gate) async fn claim_from_dead(
        &self,
        item: &str,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        let mut claimed = Vec::new();
        let Some(shelves) = self.loaded_shelves(item).await? else {
            return Ok(claimed);
        };
        for shelf in shelves.all() {
            for dead in self.dead_readers(shelf, consumer).await? {
                let more = count.saturating_sub(claimed.len());
                if more == 0 {
                    return Ok(claimed);
                }
                claimed.extend(self.claim_of(shelf, &dead, consumer, idle, more).await?);
            }
        }
        Ok(claimed)
    }

    /// Consumers that have entries of this queue and are not alive.
    async fn dead_readers(&self, shelf: &Shelf, consumer: &str) -> Result<BTreeSet<String>> {
        let item = shelf.item.as_str();
        let command = Command::new("XPENDING").arg(&shelf.keys.orders).arg(GROUP);
        let reply = self.redis.run(command).await;
        let reply = reply.map_err(|error| failed(item, error))?;
        let readers = reply.as_array().and_then(|parts| parts.get(3));
        let readers = readers.and_then(|readers| readers.as_array());
        let mut dead = BTreeSet::new();
        for reader in readers.unwrap_or_default() {
            let name = reader.as_array().and_then(|parts| parts.first()?.as_str());
            let name = name.ok_or_else(|| not_understood(item, &reply))?;
            if name != consumer && !self.is_alive(item, name).await? {
                dead.insert(name.to_owned());
            }
        }
        Ok(dead)
    }

    /// Not in the slot of any item: a consumer has entries of many.
    fn alive_key(&self, consumer: &str) -> String {
        format!("{}tenure:sale:consumer:{consumer}", self.redis.prefix())
    }

    async fn is_alive(&self, item: &str, consumer: &str) -> Result<bool> {
        let reply = self
            .redis
            .run(Command::new("EXISTS").arg(self.alive_key(consumer)))
            .await;
        let reply = reply.map_err(|error| failed(item, error))?;
        Ok(reply.as_int() == Some(1))
    }

    async fn claim_of(
        &self,
        shelf: &Shelf,
        dead: &str,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        let arguments = [
            consumer.to_owned(),
            millis(idle).to_string(),
            dead.to_owned(),
            count.to_string(),
        ];
        let mut claimed = Vec::new();
        self.claim_by(&script::CLAIM_OF, shelf, &arguments, &mut claimed)
            .await?;
        Ok(claimed)
    }
}
