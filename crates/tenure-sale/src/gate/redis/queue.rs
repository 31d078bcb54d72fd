//! The queue of an item: a stream, read by the group of the ledger's consumers.

use std::error::Error as _;
use std::time::{Duration, Instant};

use tenure::redis::{Command, Value};

use super::keys::{GROUP, Keys, entry_id};
use super::readers::Reader;
use super::{RedisGate, entry, failed, not_understood, script};
use crate::entry::{Entry, Wanted};
use crate::error::Result;
use crate::gate::clock::millis;
use crate::order::OrderId;

/// Entries of one call: others want the server in between.
const AT_ONCE: usize = 500;
/// How much longer than it may block a reader waits for the server.
const SLACK: Duration = Duration::from_secs(5);
/// How often to look for a queue that does not exist yet.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often one reader makes the group again that somebody destroys.
const CREATED_MAX: u32 = 10;

impl RedisGate {
    pub(in crate::gate) async fn read(
        &self,
        item: &str,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Entry>> {
        let until = Instant::now() + patience;
        let mut created = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.read_once(item, consumer, count, left).await {
                Ok(reply) => return read_entries(item, &reply),
                Err(error) if says(&error, "NOGROUP") && created < CREATED_MAX => {
                    if self.create_group(item).await? {
                        created += 1;
                    } else if left.is_zero() {
                        return Ok(Vec::new());
                    } else {
                        // Nobody has loaded the item yet.
                        tokio::time::sleep(left.min(LOOK_EVERY)).await;
                    }
                }
                Err(error) => return Err(failed(item, error)),
            }
        }
    }

    async fn read_once(
        &self,
        item: &str,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Value, tenure::Error> {
        let keys = Keys::of(item);
        let mut command = Command::new("XREADGROUP").arg("GROUP").arg(GROUP);
        command = command.arg(consumer).arg("COUNT").arg(count.max(1));
        // To block for 0 ms would mean for ever.
        if millis(patience) > 0 {
            command = command.arg("BLOCK").arg(millis(patience));
        }
        let command = command.arg("STREAMS").arg(&keys.orders).arg(">");
        self.run_apart(item, command, patience + SLACK).await
    }

    /// Runs a command that blocks, or whose key is not its first argument, on a connection of its own.
    async fn run_apart(
        &self,
        item: &str,
        command: Command,
        limit: Duration,
    ) -> Result<Value, tenure::Error> {
        let reader = match self.readers.take(item) {
            Some(reader) => reader,
            None => self.reader(item).await?,
        };
        // Not kept after an error, nor if this future is dropped: it may still be waiting then.
        let reply = reader.connection.run(command, limit).await?;
        self.readers.keep(item, reader);
        Ok(reply)
    }

    async fn reader(&self, item: &str) -> Result<Reader, tenure::Error> {
        let orders = Keys::of(item).orders;
        // An ordinary command first: it finds out where the item is now.
        self.redis.run(Command::new("EXISTS").arg(&orders)).await?;
        let connection = self.redis.dedicated_to(&orders).await?;
        Ok(Reader::new(connection))
    }

    /// Makes the group that was lost with its stream, or deleted; it begins at the oldest entry.
    /// `false`: there is no stream.
    async fn create_group(&self, item: &str) -> Result<bool> {
        let command = Command::new("XGROUP").arg("CREATE");
        let command = command.arg(Keys::of(item).orders).arg(GROUP).arg(0);
        match self.run_apart(item, command, SLACK).await {
            Ok(_) => Ok(true),
            Err(error) if says(&error, "BUSYGROUP") => Ok(true),
            Err(error) if says(&error, "requires the key to exist") => Ok(false),
            Err(error) => Err(failed(item, error)),
        }
    }

    pub(in crate::gate) async fn claim(
        &self,
        item: &str,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        let keys = Keys::of(item);
        let mut claimed = Vec::new();
        let mut from = "0-0".to_owned();
        loop {
            let wanted = count.saturating_sub(claimed.len()).min(AT_ONCE);
            if wanted == 0 {
                return Ok(claimed);
            }
            let arguments = [
                consumer.to_owned(),
                millis(idle).to_string(),
                from,
                wanted.to_string(),
            ];
            let reply = self
                .script(item, &script::CLAIM, &[&keys.orders], &arguments)
                .await?;
            from = read_claimed(item, &reply, &mut claimed)
                .ok_or_else(|| not_understood(item, &reply))?;
            if from == "0-0" {
                return Ok(claimed);
            }
        }
    }

    pub(in crate::gate) async fn acknowledge(&self, item: &str, entries: &[OrderId]) -> Result<()> {
        let keys = Keys::of(item);
        let ids: Vec<String> = entries.iter().map(entry_id).collect();
        for ids in ids.chunks(AT_ONCE) {
            self.script(item, &script::ACKNOWLEDGE, &[&keys.orders], ids)
                .await?;
        }
        Ok(())
    }

    pub(in crate::gate) async fn bury(
        &self,
        item: &str,
        entry: &OrderId,
        reason: &str,
    ) -> Result<()> {
        let keys = Keys::of(item);
        let keys = [&keys.orders, &keys.dead];
        let arguments = [entry_id(entry), reason.to_owned()];
        self.yes(item, &script::BURY, &keys, &arguments).await?;
        Ok(())
    }

    pub(in crate::gate) async fn dead(
        &self,
        item: &str,
        count: usize,
    ) -> Result<Vec<(Entry, String)>> {
        let command = Command::new("XRANGE").arg(Keys::of(item).dead);
        let command = command.arg("-").arg("+").arg("COUNT").arg(count);
        let reply = self.redis.run(command).await;
        let reply = reply.map_err(|error| failed(item, error))?;
        let mut dead = Vec::new();
        for found in reply.as_array().unwrap_or_default() {
            let fields = found.as_array().and_then(|parts| parts.get(1));
            if let Some(entry) = fields.and_then(|fields| entry::dead_entry(item, fields)) {
                dead.push(entry);
            } else {
                tracing::warn!(target: "tenure", item, "gate.unreadable_dead: {found}");
            }
        }
        Ok(dead)
    }

    pub(in crate::gate) async fn unbury(&self, item: &str, entry: &OrderId) -> Result<bool> {
        let keys = Keys::of(item);
        self.yes(item, &script::UNBURY, &[&keys.dead], &[entry_id(entry)])
            .await
    }

    pub(in crate::gate) async fn find(&self, order: &OrderId) -> Result<Option<Entry>> {
        let (item, keys) = (order.item(), Keys::of(order.item()));
        let id = entry_id(order);
        let reply = self
            .script(
                item,
                &script::FIND,
                &[&keys.orders, &keys.dead],
                std::slice::from_ref(&id),
            )
            .await?;
        let found = match reply.as_array().unwrap_or_default() {
            [] => return Ok(None),
            [word, fields, deliveries] if word.as_str() == Some("queued") => {
                let id = Value::Bytes(id.into_bytes());
                let deliveries = deliveries.as_int().and_then(|times| times.try_into().ok());
                deliveries.and_then(|times| entry::entry(item, &id, fields, times))
            }
            [_, fields] => entry::dead_entry(item, fields).map(|(entry, _)| entry),
            _ => None,
        };
        let found = found.ok_or_else(|| not_understood(item, &reply))?;
        Ok(Some(found))
    }

    pub(in crate::gate) async fn queued_units(&self, item: &str) -> Result<u64> {
        let orders = Keys::of(item).orders;
        let (mut units, mut from) = (0_u64, "-".to_owned());
        loop {
            let command = Command::new("XRANGE").arg(&orders).arg(&from);
            let command = command.arg("+").arg("COUNT").arg(AT_ONCE);
            let reply = self.redis.run(command).await;
            let reply = reply.map_err(|error| failed(item, error))?;
            let page = reply.as_array().unwrap_or_default();
            for found in page {
                let found = in_pair(item, found, 0).ok_or_else(|| not_understood(item, found))?;
                units = units.saturating_add(found.what.as_ref().map_or(0, Wanted::units));
                from = format!("({}", entry_id(&found.id));
            }
            if page.len() < AT_ONCE {
                return Ok(units);
            }
        }
    }
}

/// What `XREADGROUP` says: nothing, or the one stream with its entries, which come for the first time.
fn read_entries(item: &str, reply: &Value) -> Result<Vec<Entry>> {
    // In RESP3 a map of streams, which comes flat; in RESP2 an array of pairs.
    let entries = match reply.as_array() {
        None | Some([]) => return Ok(Vec::new()),
        Some([Value::Array(pair)]) => pair.get(1),
        Some([_, entries]) => Some(entries),
        Some(_) => None,
    };
    let entries = entries.and_then(Value::as_array).unwrap_or_default();
    let read = entries.iter().map(|found| in_pair(item, found, 1));
    read.collect::<Option<_>>()
        .ok_or_else(|| not_understood(item, reply))
}

fn in_pair(item: &str, found: &Value, deliveries: u64) -> Option<Entry> {
    let [id, fields] = found.as_array()? else {
        return None;
    };
    entry::entry(item, id, fields, deliveries)
}

/// Adds what was claimed, and says where to go on.
fn read_claimed(item: &str, reply: &Value, claimed: &mut Vec<Entry>) -> Option<String> {
    let [next, entries, gone] = reply.as_array()? else {
        return None;
    };
    for found in entries.as_array()? {
        let [id, fields, deliveries] = found.as_array()? else {
            return None;
        };
        let deliveries = u64::try_from(deliveries.as_int()?).ok()?;
        claimed.push(entry::entry(item, id, fields, deliveries)?);
    }
    for id in gone.as_array()? {
        tracing::warn!(
            target: "tenure", item, entry = %id,
            "gate.entry_gone: an entry was deleted from the queue before it was acknowledged"
        );
    }
    Some(next.as_str()?.to_owned())
}

/// Whether the server's own words contain this.
fn says(error: &tenure::Error, words: &str) -> bool {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    cause.contains(words) || error.to_string().contains(words)
}
