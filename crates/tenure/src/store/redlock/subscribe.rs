//! Combines the messages of several nodes: a lock is free when a majority has said so, or soon
//! after the first node did.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use super::RedlockShared;
use super::node::lock;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::Store;
use crate::store::{Event, Failure};

/// How long to wait for the other nodes after the first.
const MAJORITY_WAIT: Duration = Duration::from_millis(5);
/// How long a process leaves a free lock to the others at most.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How many released leases are remembered, so that the last node's message causes no second
/// wake-up.
const REMEMBERED: usize = 1_000;

#[derive(Default)]
pub(super) struct Subscriptions {
    freed: Mutex<FreedCounts>,
    /// How often each name was reported free, so that only the last time counts.
    opened: Mutex<HashMap<LockName, u64>>,
    /// The nodes on which each local queue is subscribed.
    nodes_by_name: Mutex<HashMap<LockName, Vec<Vec<usize>>>>,
}

/// How many nodes have reported each lease as released.
#[derive(Default)]
struct FreedCounts {
    counts: HashMap<LeaseId, usize>,
    order: VecDeque<LeaseId>,
}

impl FreedCounts {
    fn count(&mut self, lease: &LeaseId) -> usize {
        let known = self.counts.entry(lease.clone()).or_default();
        *known += 1;
        let count = *known;
        if count == 1 {
            self.order.push_back(lease.clone());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        count
    }
}

/// Forwards the events of one node. Ends with the engine.
pub(super) async fn forward_events(
    shared: Arc<RedlockShared>,
    mut events_in: mpsc::UnboundedReceiver<Event>,
    events: mpsc::UnboundedSender<Event>,
) {
    while let Some(event) = events_in.recv().await {
        let Event::Freed {
            name,
            lease,
            listeners,
        } = event
        else {
            let _ = events.send(event);
            continue;
        };
        let count = lock(&shared.subscriptions.freed).count(&lease);
        if count == shared.majority {
            emit_opened(&shared, &events, name, listeners);
        } else if count == 1 {
            let (shared, events) = (Arc::clone(&shared), events.clone());
            tokio::spawn(async move {
                tokio::time::sleep(MAJORITY_WAIT).await;
                let count = lock(&shared.subscriptions.freed)
                    .counts
                    .get(&lease)
                    .copied();
                if count.unwrap_or(0) < shared.majority {
                    emit_opened(&shared, &events, name, listeners);
                }
            });
        }
    }
}

/// Reports that the lock is free, after a random delay that grows with the number of subscribed
/// processes: if all tried at once, they would take votes from each other again and again.
fn emit_opened(
    shared: &Arc<RedlockShared>,
    events: &mpsc::UnboundedSender<Event>,
    name: LockName,
    listeners: u32,
) {
    let this_time = shared.subscriptions.note_opened(&name);
    let pause = shared.round_time() * listeners.saturating_sub(1);
    let pause = pause.mul_f64(rand::random()).min(PAUSE_MAX);
    let opened = Event::Opened {
        name: name.clone(),
        next: None,
    };
    if pause.is_zero() {
        let _ = events.send(opened);
        return;
    }
    let (shared, events) = (Arc::clone(shared), events.clone());
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        // If the lock was acquired and released again meanwhile, only the last time counts.
        if shared.subscriptions.is_latest(&name, this_time) {
            let _ = events.send(opened);
        }
    });
}

/// Subscribes on all nodes; done when a majority has confirmed it.
pub(super) async fn subscribe(
    shared: &Arc<RedlockShared>,
    name: &LockName,
    limit: Moment,
) -> Result<(), Failure> {
    let mut replies = shared.send_to_all(|store| {
        let name = name.clone();
        async move { store.subscribe(&name, limit).await }
    });
    let (mut subscribed, mut failure) = (Vec::new(), None);
    while subscribed.len() < shared.majority {
        match replies.next().await {
            Some((node, Ok(()))) => subscribed.push(node),
            Some((_, Err(failed))) => failure = Some(failed),
            None => break,
        }
    }
    let enough = subscribed.len() >= shared.majority;
    shared.subscriptions.add(name, subscribed);
    let (later, also) = (Arc::clone(shared), name.clone());
    shared.spawn(async move {
        while let Some((node, confirmed)) = replies.next().await {
            if confirmed.is_ok() {
                later.subscriptions.add_node(&also, node);
            }
        }
    });
    if enough {
        return Ok(());
    }
    unsubscribe(shared, name, limit).await;
    Err(failure.unwrap_or_else(|| Failure::not_sent(shared.too_few("can be listened to"))))
}

/// Ends [`subscribe`] on the nodes where it began.
pub(super) async fn unsubscribe(shared: &Arc<RedlockShared>, name: &LockName, limit: Moment) {
    let nodes = shared.subscriptions.remove(name);
    for node in nodes {
        shared.nodes[node].store.unsubscribe(name, limit).await;
    }
}

impl Subscriptions {
    fn note_opened(&self, name: &LockName) -> u64 {
        let mut opened = lock(&self.opened);
        if opened.len() > REMEMBERED {
            opened.clear();
        }
        let times = opened.entry(name.clone()).or_default();
        *times += 1;
        *times
    }

    fn is_latest(&self, name: &LockName, time: u64) -> bool {
        // A name that was forgotten meanwhile is reported free once too often.
        lock(&self.opened)
            .get(name)
            .is_none_or(|last| *last == time)
    }

    fn add(&self, name: &LockName, nodes: Vec<usize>) {
        let mut nodes_by_name = lock(&self.nodes_by_name);
        nodes_by_name.entry(name.clone()).or_default().push(nodes);
    }

    fn add_node(&self, name: &LockName, node: usize) {
        let mut nodes_by_name = lock(&self.nodes_by_name);
        if let Some(queue) = nodes_by_name
            .get_mut(name)
            .and_then(|queues| queues.last_mut())
        {
            queue.push(node);
        }
    }

    fn remove(&self, name: &LockName) -> Vec<usize> {
        let mut nodes_by_name = lock(&self.nodes_by_name);
        let Some(queues) = nodes_by_name.get_mut(name) else {
            return Vec::new();
        };
        let nodes = queues.pop().unwrap_or_default();
        if queues.is_empty() {
            nodes_by_name.remove(name);
        }
        nodes
    }
}
