//! A gate in this process. It keeps its data until it is dropped: its server is always current.

mod item;
mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use tenure::Fence;
use tokio::sync::Notify;

use self::item::ItemGate;
use self::queue::Queue;
use super::checks::reference;
use super::clock::micros;
use super::fold::Fold;
use super::load::{Ended, Load, Remembered};
use super::outcome::{Applied, Taken};
use super::spread::Place;
use super::standing::{Ends, Given, Standing};
use crate::change::Change;
use crate::entry::{Entry, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::order::{Answer, OrderId, Outcome, Request};

/// Named gates that are still in use.
static SHARED: Mutex<Option<HashMap<String, Weak<Mutex<Items>>>>> = Mutex::new(None);

type Items = HashMap<String, Known>;

/// The state of one item.
#[derive(Debug, Default)]
struct Known {
    /// `None` until it is first loaded.
    gate: Option<ItemGate>,
    queue: Queue,
    dead: Vec<(Entry, String)>,
    /// Wakes readers that wait for entries.
    arrived: Arc<Notify>,
}

#[derive(Clone, Debug)]
pub(super) struct MemoryGate {
    // A std mutex, not an async one: no call waits while it is held.
    items: Arc<Mutex<Items>>,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the gate on Redis can fail in all of these"
)]
impl MemoryGate {
    /// Opens the gate named `name`; a private one if the name is empty.
    pub(super) fn open(name: &str) -> Result<Self> {
        let name = name.trim_end_matches('/');
        if name.contains(['?', '#', '@', '/']) {
            return Err(Error::new(
                ErrorKind::InvalidUrl,
                "invalid URL: use `memory://` or `memory://name`",
            ));
        }
        Ok(Self { items: items(name) })
    }

    pub(super) fn ask(&self, request: &Request) -> Answer {
        let mut items = self.items();
        let Some((gate, queue, arrived)) = known(&mut items, request.item()) else {
            return refused(Outcome::NoItem);
        };
        let answer = gate.ask(request, queue, now());
        if matches!(answer.outcome, Outcome::Accepted(_)) {
            arrived.notify_waiters();
        }
        answer
    }

    pub(super) fn standing(&self, item: &str) -> Result<Option<Standing>> {
        let items = self.items();
        let standing = items.get(item).and_then(|known| {
            let gate = known.gate.as_ref()?;
            let loaded = gate.loaded.as_ref();
            Some(Standing {
                current: true,
                state: loaded.map(|loaded| loaded.state),
                epoch: gate.epoch,
                left: loaded.and_then(|loaded| loaded.left),
                change: loaded.map_or(0, |loaded| loaded.change),
                queued: known.queue.len(),
                queued_units: None,
                pending: known.queue.pending(),
                dead: known.dead.len() as u64,
                moving: 0,
                shelves: Vec::new(),
                foreign: Vec::new(),
                stopped: false,
                queues: vec![Ends {
                    newest: known.queue.last(),
                    oldest: known.queue.oldest(),
                }],
            })
        });
        Ok(standing)
    }

    /// Nobody else can delete an entry here.
    pub(super) fn sells(&self, order: &OrderId) -> Result<Option<Given>> {
        let standing = self.standing(order.item())?;
        let sells =
            |standing: &Standing| standing.state.is_some() && standing.epoch == order.epoch();
        Ok(standing.filter(sells).map(|_| Given::Never))
    }

    pub(super) fn queued_units(&self, item: &str) -> Result<u64> {
        let items = self.items();
        Ok(items.get(item).map_or(0, |known| known.queue.units()))
    }

    pub(super) fn apply(
        &self,
        item: &str,
        epoch: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Applied> {
        let fold = Fold::of(item, Place::ONLY, after, changes)?;
        let mut items = self.items();
        match known(&mut items, item) {
            Some((gate, ..)) if gate.epoch == epoch => gate.apply(item, after, &fold, now()),
            _ => Ok(Applied::Stale),
        }
    }

    pub(super) fn take(&self, item: &str, wanted: &Wanted) -> Result<Taken> {
        let reference = reference(item, wanted)?;
        let mut items = self.items();
        let Some((gate, queue, arrived)) = known(&mut items, item) else {
            return Ok(Taken::NoItem);
        };
        let taken = gate.take(item, wanted, reference, queue, now());
        arrived.notify_waiters();
        taken
    }

    /// All units are in one place here, regardless of the spread.
    pub(super) fn begin_load(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        _spread: u64,
    ) -> Result<bool> {
        let mut items = self.items();
        let known = items.entry(item.to_owned()).or_default();
        let mut ended = None;
        if let Some(gate) = &known.gate {
            ended = gate.ended_with(known.queue.last());
            // A finished epoch is not begun again: its answers would be lost.
            let again = epoch == gate.epoch && gate.loaded.is_none();
            if fence < gate.fence || !(epoch > gate.epoch || again) {
                return Ok(false);
            }
        }
        if let Some((last_epoch, number)) = known.queue.last()
            && last_epoch >= epoch
        {
            let id = format!("{last_epoch}-{number}");
            return Err(super::checks::foreign_id(item, epoch, id));
        }
        known.gate = Some(ItemGate::loading(epoch, fence, ended));
        Ok(true)
    }

    /// Nothing is lost here as long as the process lives.
    pub(super) fn ended(&self, item: &str) -> Result<Vec<Ended>> {
        let items = self.items();
        let ended = items.get(item).and_then(|known| known.gate.as_ref()?.ended);
        Ok(ended.into_iter().collect())
    }

    pub(super) fn load_buyers(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        buyers: &[(String, u64)],
        answers: &[Remembered],
    ) -> Result<bool> {
        let mut items = self.items();
        let Some(gate) = load_of(&mut items, item, epoch, fence) else {
            return Ok(false);
        };
        if gate.loaded.is_some() {
            return Ok(false);
        }
        gate.load_buyers(buyers, answers);
        Ok(true)
    }

    pub(super) fn finish_load(&self, item: &str, load: &Load) -> Result<bool> {
        let mut items = self.items();
        let Some(gate) = load_of(&mut items, item, load.epoch, load.fence) else {
            return Ok(false);
        };
        if gate.loaded.is_none() {
            gate.finish_load(load, now());
        }
        Ok(true)
    }

    pub(super) async fn read(
        &self,
        item: &str,
        _consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Vec<Entry> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let arrived = self.arrived(item);
            // Registers as waiting before it checks: an arrival in between wakes it.
            let mut waiting = std::pin::pin!(arrived.notified());
            waiting.as_mut().enable();
            let read = self.read_now(item, count);
            if !read.is_empty() || tokio::time::timeout_at(until, waiting).await.is_err() {
                return read;
            }
        }
    }

    fn arrived(&self, item: &str) -> Arc<Notify> {
        let mut items = self.items();
        Arc::clone(&items.entry(item.to_owned()).or_default().arrived)
    }

    fn read_now(&self, item: &str, count: usize) -> Vec<Entry> {
        let mut items = self.items();
        let known = items.get_mut(item);
        known.map_or_else(Vec::new, |known| {
            known.queue.read(count.max(1), Instant::now())
        })
    }

    pub(super) fn claim(
        &self,
        item: &str,
        _consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        let mut items = self.items();
        let known = items.get_mut(item);
        Ok(known.map_or_else(Vec::new, |known| {
            known.queue.claim(idle, count, Instant::now())
        }))
    }

    pub(super) fn acknowledge(&self, item: &str, entries: &[OrderId]) -> Result<()> {
        let mut items = self.items();
        if let Some(known) = items.get_mut(item) {
            for entry in entries {
                known.queue.remove(entry);
            }
        }
        Ok(())
    }

    pub(super) fn bury(&self, item: &str, entry: &OrderId, reason: &str) -> Result<()> {
        let mut items = self.items();
        if let Some(known) = items.get_mut(item)
            && let Some(entry) = known.queue.remove(entry)
        {
            known.dead.push((entry, reason.to_owned()));
        }
        Ok(())
    }

    pub(super) fn dead(&self, item: &str, count: usize) -> Result<Vec<(Entry, String)>> {
        let items = self.items();
        let dead = items.get(item).map(|known| known.dead.iter().take(count));
        Ok(dead.into_iter().flatten().cloned().collect())
    }

    pub(super) fn unbury(&self, item: &str, entry: &OrderId) -> Result<bool> {
        let mut items = self.items();
        let Some(known) = items.get_mut(item) else {
            return Ok(false);
        };
        let before = known.dead.len();
        known.dead.retain(|(dead, _)| dead.id != *entry);
        Ok(known.dead.len() < before)
    }

    pub(super) fn find(&self, order: &OrderId) -> Result<Option<Entry>> {
        let items = self.items();
        Ok(items.get(order.item()).and_then(|known| {
            let dead = || known.dead.iter().find(|(dead, _)| dead.id == *order);
            let queued = known.queue.find(order);
            queued.or_else(|| dead().map(|(entry, _)| entry.clone()))
        }))
    }

    pub(super) fn forget(&self, item: &str) -> Result<bool> {
        let mut items = self.items();
        let Some(known) = items.get(item) else {
            return Ok(true);
        };
        let closed = known.gate.as_ref().is_none_or(ItemGate::is_closed);
        let empty = known.queue.len() == 0 && known.dead.is_empty();
        if closed && empty {
            items.remove(item);
        }
        Ok(closed && empty)
    }

    fn items(&self) -> MutexGuard<'_, Items> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The gate of an item, its queue, and the notification for waiting readers.
fn known<'a>(
    items: &'a mut Items,
    item: &str,
) -> Option<(&'a mut ItemGate, &'a mut Queue, &'a Notify)> {
    let known = items.get_mut(item)?;
    Some((known.gate.as_mut()?, &mut known.queue, &known.arrived))
}

/// The gate of an item if this load has begun, and no other since.
fn load_of<'a>(
    items: &'a mut Items,
    item: &str,
    epoch: u64,
    fence: Fence,
) -> Option<&'a mut ItemGate> {
    let gate = items.get_mut(item)?.gate.as_mut()?;
    (gate.epoch == epoch && gate.fence == fence).then_some(gate)
}

fn refused(outcome: Outcome) -> Answer {
    Answer {
        outcome,
        left: None,
    }
}

fn now() -> u64 {
    micros(SystemTime::now())
}

fn items(name: &str) -> Arc<Mutex<Items>> {
    if name.is_empty() {
        return Arc::default();
    }
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let gates = shared.get_or_insert_default();
    gates.retain(|_, gate| gate.strong_count() > 0);
    if let Some(gate) = gates.get(name).and_then(Weak::upgrade) {
        return gate;
    }
    let opened = Arc::default();
    gates.insert(name.to_owned(), Arc::downgrade(&opened));
    opened
}
