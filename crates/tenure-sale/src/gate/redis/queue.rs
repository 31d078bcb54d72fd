//! The queue of an item: a stream on each shelf, read by the consumer group of the ledger.

use std::error::Error as _;
use std::time::{Duration, Instant, SystemTime};

use tenure::redis::{Command, Script, Value};

use super::keys::GROUP;
use super::readers::Reader;
use super::shelves::{Shelf, Shelves};
use super::{RedisGate, entry, failed, not_understood, script};
use crate::entry::{Entry, Wanted};
use crate::error::Result;
use crate::gate::clock::millis;
use crate::order::OrderId;

/// Entries per call: other clients need the server in between.
const AT_ONCE: usize = 500;
/// How much longer than its block time a reader waits for the server.
const SLACK: Duration = Duration::from_secs(5);
/// How often to check for a queue that does not exist yet.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often to check the queues of several shelves.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often one reader recreates a group that was destroyed.
const CREATED_MAX: u32 = 10;

impl RedisGate {
    /// Of all shelves. A caller that waits for long should wait for each of them separately.
    pub(in crate::gate) async fn read(
        &self,
        item: &str,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Entry>> {
        let until = Instant::now() + patience;
        loop {
            let shelves = self.loaded_shelves(item).await?;
            let left = until.saturating_duration_since(Instant::now());
            let Some(shelves) = shelves else {
                if left.is_zero() {
                    return Ok(Vec::new());
                }
                tokio::time::sleep(left.min(LOOK_EVERY)).await;
                continue;
            };
            if !shelves.is_spread() {
                return self.read_at(shelves.first(), consumer, count, left).await;
            }
            let mut read = self.read_now(&shelves, consumer, count).await?;
            if !read.is_empty() || left.is_zero() {
                read.sort_by_key(age);
                return Ok(read);
            }
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    /// The available entries of any shelf.
    async fn read_now(
        &self,
        shelves: &Shelves,
        consumer: &str,
        count: usize,
    ) -> Result<Vec<Entry>> {
        let mut read = Vec::new();
        for shelf in shelves.all() {
            let more = count.saturating_sub(read.len());
            if more == 0 {
                break;
            }
            let reading = self.read_at(shelf, consumer, more, Duration::ZERO);
            match reading.await {
                Ok(entries) => read.extend(entries),
                Err(error) => {
                    // A failure of one connection usually affects the others: do not try one after
                    // the other.
                    for shelf in shelves.all() {
                        self.readers.forget(&shelf.keys.orders);
                    }
                    return Err(error);
                }
            }
        }
        Ok(read)
    }

    /// Of one shelf.
    pub(in crate::gate) async fn read_shelf(
        &self,
        item: &str,
        shelf: u64,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Entry>> {
        let shelves = self.loaded_shelves(item).await?;
        if let Some(shelf) = shelves.as_ref().and_then(|shelves| shelves.nth(shelf)) {
            return self.read_at(shelf, consumer, count, patience).await;
        }
        // It has not been loaded yet, or not with this many shelves.
        tokio::time::sleep(patience.min(LOOK_EVERY)).await;
        Ok(Vec::new())
    }

    async fn read_at(
        &self,
        shelf: &Shelf,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Entry>> {
        let until = Instant::now() + patience;
        let mut created = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.read_once(shelf, consumer, count, left).await {
                Ok(reply) => return read_entries(shelf, &reply),
                Err(error) if says(&error, "NOGROUP") && created < CREATED_MAX => {
                    if self.create_group(shelf).await? {
                        created += 1;
                    } else if left.is_zero() {
                        return Ok(Vec::new());
                    } else {
                        // The item has not been loaded yet.
                        tokio::time::sleep(left.min(LOOK_EVERY)).await;
                    }
                }
                Err(error) => return Err(failed(&shelf.item, error)),
            }
        }
    }

    async fn read_once(
        &self,
        shelf: &Shelf,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Value, tenure::Error> {
        let mut command = Command::new("XREADGROUP").arg("GROUP").arg(GROUP);
        command = command.arg(consumer).arg("COUNT").arg(count.max(1));
        // A block time of 0 ms would mean forever.
        if millis(patience) > 0 {
            command = command.arg("BLOCK").arg(millis(patience));
        }
        let command = command.arg("STREAMS").arg(&shelf.keys.orders).arg(">");
        self.run_apart(shelf, command, patience + SLACK).await
    }

    /// Runs a command that blocks, or whose key is not its first argument, on a dedicated
    /// connection.
    async fn run_apart(
        &self,
        shelf: &Shelf,
        command: Command,
        limit: Duration,
    ) -> Result<Value, tenure::Error> {
        let queue = &shelf.keys.orders;
        let reader = match self.readers.take(queue) {
            Some(reader) => reader,
            None => self.reader(queue).await?,
        };
        // Not reused after an error, nor if this future is dropped: it may still be blocked then.
        let reply = reader.connection.run(command, limit).await?;
        self.readers.keep(queue, reader);
        Ok(reply)
    }

    async fn reader(&self, queue: &str) -> Result<Reader, tenure::Error> {
        // An ordinary command first: it finds the node of the item.
        self.redis.run(Command::new("EXISTS").arg(queue)).await?;
        let connection = self.redis.dedicated_to(queue).await?;
        Ok(Reader::new(connection))
    }

    /// Creates the group that was lost with its stream, or deleted; it starts at the oldest entry.
    /// `false`: there is no stream.
    async fn create_group(&self, shelf: &Shelf) -> Result<bool> {
        let command = Command::new("XGROUP").arg("CREATE");
        let command = command.arg(&shelf.keys.orders).arg(GROUP).arg(0);
        match self.run_apart(shelf, command, SLACK).await {
            Ok(_) => Ok(true),
            Err(error) if says(&error, "BUSYGROUP") => Ok(true),
            Err(error) if says(&error, "requires the key to exist") => Ok(false),
            Err(error) => Err(failed(&shelf.item, error)),
        }
    }

    /// Of all shelves.
    pub(in crate::gate) async fn claim(
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
            let more = count.saturating_sub(claimed.len());
            claimed.extend(self.claim_at(shelf, consumer, idle, more).await?);
        }
        // A single queue is in order.
        if shelves.is_spread() {
            claimed.sort_by_key(age);
        }
        Ok(claimed)
    }

    /// Of one shelf.
    pub(in crate::gate) async fn claim_shelf(
        &self,
        item: &str,
        shelf: u64,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        let shelves = self.loaded_shelves(item).await?;
        match shelves.as_ref().and_then(|shelves| shelves.nth(shelf)) {
            Some(shelf) => self.claim_at(shelf, consumer, idle, count).await,
            None => Ok(Vec::new()),
        }
    }

    async fn claim_at(
        &self,
        shelf: &Shelf,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
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
            from = self
                .claim_by(&script::CLAIM, shelf, &arguments, &mut claimed)
                .await?;
            if from == "0-0" {
                return Ok(claimed);
            }
        }
    }

    /// Adds what a script has claimed, and returns where to continue.
    pub(super) async fn claim_by(
        &self,
        script: &Script,
        shelf: &Shelf,
        arguments: &[String],
        claimed: &mut Vec<Entry>,
    ) -> Result<String> {
        let item = shelf.item.as_str();
        let reply = self
            .script(item, script, &[&shelf.keys.orders], arguments)
            .await?;
        read_claimed(shelf, &reply, claimed).ok_or_else(|| not_understood(item, &reply))
    }

    pub(in crate::gate) async fn acknowledge(&self, item: &str, entries: &[OrderId]) -> Result<()> {
        let shelves = self.shelves(item).await?;
        for shelf in shelves.all() {
            let here = entries.iter().filter(|id| shelves.of_order(id) == shelf);
            let ids: Vec<String> = here.map(|id| shelf.entry_of(id)).collect();
            for ids in ids.chunks(AT_ONCE) {
                self.script(item, &script::ACKNOWLEDGE, &[&shelf.keys.orders], ids)
                    .await?;
            }
        }
        Ok(())
    }

    pub(in crate::gate) async fn bury(
        &self,
        item: &str,
        entry: &OrderId,
        reason: &str,
    ) -> Result<()> {
        let shelves = self.shelves(item).await?;
        let shelf = shelves.of_order(entry);
        let keys = [&shelf.keys.orders, &shelf.keys.dead];
        let arguments = [shelf.entry_of(entry), reason.to_owned()];
        self.yes(item, &script::BURY, &keys, &arguments).await?;
        Ok(())
    }

    pub(in crate::gate) async fn dead(
        &self,
        item: &str,
        count: usize,
    ) -> Result<Vec<(Entry, String)>> {
        let mut dead = Vec::new();
        for shelf in self.shelves(item).await?.all() {
            dead.extend(self.dead_at(shelf, count).await?);
        }
        dead.sort_by_key(|buried| buried.at);
        let dead = dead.into_iter().map(|buried| buried.letter);
        Ok(dead.take(count).collect())
    }

    async fn dead_at(&self, shelf: &Shelf, count: usize) -> Result<Vec<Buried>> {
        let item = shelf.item.as_str();
        let command = Command::new("XRANGE").arg(&shelf.keys.dead);
        let command = command.arg("-").arg("+").arg("COUNT").arg(count);
        let reply = self.redis.run(command).await;
        let reply = reply.map_err(|error| failed(item, error))?;
        let mut dead = Vec::new();
        for found in reply.as_array().unwrap_or_default() {
            if let Some(buried) = read_buried(shelf, found) {
                dead.push(buried);
            } else {
                tracing::warn!(target: "tenure", item, "gate.unreadable_dead: {found}");
            }
        }
        Ok(dead)
    }

    pub(in crate::gate) async fn unbury(&self, item: &str, entry: &OrderId) -> Result<bool> {
        let shelves = self.shelves(item).await?;
        let shelf = shelves.of_order(entry);
        let keys = [&shelf.keys.dead];
        self.yes(item, &script::UNBURY, &keys, &[shelf.entry_of(entry)])
            .await
    }

    pub(in crate::gate) async fn find(&self, order: &OrderId) -> Result<Option<Entry>> {
        let item = order.item();
        let shelves = self.shelves(item).await?;
        let shelf = shelves.of_order(order);
        let keys = [&shelf.keys.orders, &shelf.keys.dead];
        let id = shelf.entry_of(order);
        let reply = self
            .script(item, &script::FIND, &keys, std::slice::from_ref(&id))
            .await?;
        let found = match reply.as_array().unwrap_or_default() {
            [] => return Ok(None),
            [word, fields, deliveries] if word.as_str() == Some("queued") => {
                let id = Value::Bytes(id.into_bytes());
                let deliveries = deliveries.as_int().and_then(|times| times.try_into().ok());
                deliveries.and_then(|times| entry::entry(shelf, &id, fields, times))
            }
            [_, fields] => entry::dead_entry(shelf, fields).map(|(entry, _)| entry),
            _ => None,
        };
        let found = found.ok_or_else(|| not_understood(item, &reply))?;
        Ok(Some(found))
    }

    pub(in crate::gate) async fn queued_units(&self, item: &str) -> Result<u64> {
        let shelves = self.shelves(item).await?;
        let units = self.on_each(&shelves, |gate, shelf| async move {
            gate.queued_units_at(&shelf).await
        });
        Ok(units.await?.into_iter().fold(0, u64::saturating_add))
    }

    async fn queued_units_at(&self, shelf: &Shelf) -> Result<u64> {
        let item = shelf.item.as_str();
        let (mut units, mut from) = (0_u64, "-".to_owned());
        loop {
            let command = Command::new("XRANGE").arg(&shelf.keys.orders).arg(&from);
            let command = command.arg("+").arg("COUNT").arg(AT_ONCE);
            let reply = self.redis.run(command).await;
            let reply = reply.map_err(|error| failed(item, error))?;
            let page = reply.as_array().unwrap_or_default();
            for found in page {
                let found = in_pair(shelf, found, 0).ok_or_else(|| not_understood(item, found))?;
                units = units.saturating_add(found.what.as_ref().map_or(0, Wanted::units));
                from = format!("({}", shelf.entry_of(&found.id));
            }
            if page.len() < AT_ONCE {
                return Ok(units);
            }
        }
    }
}

/// Entries of several shelves, oldest first.
fn age(entry: &Entry) -> (u64, SystemTime) {
    (entry.id.epoch(), entry.accepted_at)
}

/// A dead letter, with its reason.
struct Buried {
    /// Its id among the dead letters: the time of its burial, and a number.
    at: (u64, u64),
    letter: (Entry, String),
}

fn read_buried(shelf: &Shelf, found: &Value) -> Option<Buried> {
    let [id, fields] = found.as_array()? else {
        return None;
    };
    let (time, number) = id.as_str()?.split_once('-')?;
    Some(Buried {
        at: (time.parse().ok()?, number.parse().ok()?),
        letter: entry::dead_entry(shelf, fields)?,
    })
}

/// The reply of `XREADGROUP`: nothing, or the stream with its entries, all delivered for the first
/// time.
fn read_entries(shelf: &Shelf, reply: &Value) -> Result<Vec<Entry>> {
    // In RESP3 a map of streams, which arrives flat; in RESP2 an array of pairs.
    let entries = match reply.as_array() {
        None | Some([]) => return Ok(Vec::new()),
        Some([Value::Array(pair)]) => pair.get(1),
        Some([_, entries]) => Some(entries),
        Some(_) => None,
    };
    let entries = entries.and_then(Value::as_array).unwrap_or_default();
    let read = entries.iter().map(|found| in_pair(shelf, found, 1));
    read.collect::<Option<_>>()
        .ok_or_else(|| not_understood(&shelf.item, reply))
}

fn in_pair(shelf: &Shelf, found: &Value, deliveries: u64) -> Option<Entry> {
    let [id, fields] = found.as_array()? else {
        return None;
    };
    entry::entry(shelf, id, fields, deliveries)
}

/// Adds claimed entries, and returns where to continue.
fn read_claimed(shelf: &Shelf, reply: &Value, claimed: &mut Vec<Entry>) -> Option<String> {
    let [next, entries, gone] = reply.as_array()? else {
        return None;
    };
    for found in entries.as_array()? {
        let [id, fields, deliveries] = found.as_array()? else {
            return None;
        };
        let deliveries = u64::try_from(deliveries.as_int()?).ok()?;
        claimed.push(entry::entry(shelf, id, fields, deliveries)?);
    }
    for id in gone.as_array()? {
        tracing::warn!(
            target: "tenure", item = shelf.item, entry = %id,
            "gate.entry_gone: an entry was deleted from the queue before it was acknowledged"
        );
    }
    Some(next.as_str()?.to_owned())
}

/// Whether the server's error text contains this.
fn says(error: &tenure::Error, words: &str) -> bool {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    cause.contains(words) || error.to_string().contains(words)
}
