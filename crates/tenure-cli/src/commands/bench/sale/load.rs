//! The load: orders, each sent when it is due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use hyper::http::Request;
use serde_json::json;
use tenure::CancellationToken;
use tokio::task::JoinSet;

use super::SaleArgs;
use super::answer::Answer;
use super::connection::Connection;
use super::instance::Instance;
use super::record::{Recorded, Recorder};
use super::tally::Tally;
use crate::commands::bench::progress::Progress;

/// How long to avoid an instance that refuses connections.
const PAUSE: Duration = Duration::from_millis(100);
/// How many times orders without a response are retried.
const ASKED_AGAIN: u32 = 20;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The load of a sale.
pub struct Load {
    shared: Arc<Shared>,
    connections: usize,
    recorder: Mutex<Option<Recorder>>,
}

struct Shared {
    instances: Vec<Instance>,
    item: String,
    is_notes: bool,
    buyers: Option<u64>,
    /// Prefix of every request id: another run places other orders.
    run: String,
    rate: Option<u32>,
    /// How many orders to place, or until when.
    orders: Option<u64>,
    duration: Duration,
    next: AtomicU64,
    stopped: CancellationToken,
}

/// The work of one connection.
struct Sending {
    shared: Arc<Shared>,
    begun: Instant,
    /// The instance of this connection.
    instance: usize,
    lines: Option<Sender<Recorded>>,
    progress: Progress,
    tally: Tally,
}

impl Load {
    pub fn new(
        args: &SaleArgs,
        instances: Vec<Instance>,
        recorder: Option<Recorder>,
        stopped: CancellationToken,
    ) -> Self {
        let connections = usize::try_from(args.connections).unwrap_or(usize::MAX);
        Self {
            // Every instance gets requests, however few connections there are.
            connections: connections.max(instances.len()),
            recorder: Mutex::new(recorder),
            shared: Arc::new(Shared {
                instances,
                item: args.item.clone(),
                is_notes: args.notes,
                buyers: args.buyers,
                run: format!("{:08x}", rand::random::<u32>()),
                rate: args.rate,
                orders: args.orders,
                duration: args.duration,
                next: AtomicU64::new(0),
                stopped,
            }),
        }
    }

    pub fn instances(&self) -> &[Instance] {
        &self.shared.instances
    }

    /// Places all orders, retries those without a response, and returns the results.
    pub async fn run(&self) -> Result<Tally> {
        let recorder = self.recorder.lock();
        let recorder = recorder.unwrap_or_else(PoisonError::into_inner).take();
        let lines = recorder.as_ref().map(Recorder::lines);
        let progress = Progress::of("orders", "sale", self.shared.expected());
        let begun = Instant::now();
        let mut sending = JoinSet::new();
        for number in 0..self.connections {
            let sender = Sending {
                shared: Arc::clone(&self.shared),
                begun,
                instance: number % self.shared.instances.len(),
                lines: lines.clone(),
                progress: progress.clone(),
                tally: Tally::new(self.shared.instances.len()),
            };
            sending.spawn(sender.run());
        }
        let mut tally = Tally::new(self.shared.instances.len());
        while let Some(ended) = sending.join_next().await {
            tally.join(ended?);
        }
        tally.took = begun.elapsed();
        drop((lines, progress));
        self.shared.ask_again(&mut tally).await;
        if let Some(recorder) = recorder {
            recorder.finish()?;
        }
        Ok(tally)
    }
}

impl Shared {
    /// The expected duration, if known.
    fn expected(&self) -> Duration {
        match (self.orders, self.rate) {
            (Some(orders), Some(rate)) => Duration::from_secs_f64(lossy(orders) / f64::from(rate)),
            (Some(_), None) => Duration::ZERO,
            (None, _) => self.duration,
        }
    }

    /// The next order and when it is due; `None` if there are no more.
    fn next(&self, begun: Instant) -> Option<(u64, Instant)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let due = match self.rate {
            Some(rate) => begun + Duration::from_secs_f64(lossy(number) / f64::from(rate)),
            None => Instant::now(),
        };
        let is_over = match self.orders {
            Some(orders) => number >= orders,
            None => due >= begun + self.duration,
        };
        (!is_over && !self.stopped.is_cancelled()).then_some((number, due))
    }

    fn buyer(&self, order: u64) -> String {
        let buyer = self.buyers.map_or(order, |buyers| order % buyers);
        format!("buyer-{}-{buyer}", self.run)
    }

    fn request_id(&self, order: u64) -> String {
        format!("bench-{}-{order}", self.run)
    }

    fn request(&self, order: u64, instance: usize) -> Result<Request<String>> {
        let (item, buyer) = (&self.item, self.buyer(order));
        let id = self.request_id(order);
        let instance = &self.instances[instance];
        if self.is_notes {
            let path = format!("/order/v1/submitOrder?item={item}&buyer={buyer}&request={id}");
            return Ok(instance.request("GET", &path).body(String::new())?);
        }
        let body = json!({"item": item, "buyer": buyer, "request": id}).to_string();
        let request = instance.request("POST", "/api/v1/orders");
        let request = request.header("content-type", "application/json");
        Ok(request.header("content-length", body.len()).body(body)?)
    }

    /// Retries orders without a response, with the same ids: nothing is ordered twice.
    async fn ask_again(&self, tally: &mut Tally) {
        for round in 0..ASKED_AGAIN {
            let unknown = std::mem::take(&mut tally.unknown);
            if unknown.is_empty() {
                return;
            }
            if round > 0 {
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
            for served in &mut tally.instances {
                served.unknown = 0;
            }
            for order in unknown {
                let place = usize::try_from(order).unwrap_or_default() + round as usize;
                let instance = place % self.instances.len();
                let answer = self.ask_once(order, instance).await;
                tally.settle(order, instance, answer.unwrap_or(Answer::Unknown));
            }
        }
    }

    async fn ask_once(&self, order: u64, instance: usize) -> Result<Answer> {
        let mut connection = Connection::open(self.instances[instance].addr).await?;
        let (status, body) = connection.send(self.request(order, instance)?).await?;
        Ok(Answer::read(status, &body))
    }
}

impl Sending {
    /// Sends one order after the other, each when it is due.
    async fn run(mut self) -> Tally {
        let mut connection = None;
        while let Some((order, due)) = self.shared.next(self.begun) {
            if due > Instant::now() {
                tokio::time::sleep_until(due.into()).await;
            }
            let Some(mut ready) = self.connected(connection.take()).await else {
                break;
            };
            if self.send(&mut ready, order, due).await {
                connection = Some(ready);
            }
            self.progress.advance();
        }
        self.tally
    }

    /// A usable connection, the old one or a new one; `None` if the load was stopped first.
    async fn connected(&mut self, old: Option<Connection>) -> Option<Connection> {
        if let Some(mut old) = old
            && old.is_open().await
        {
            return Some(old);
        }
        loop {
            match Connection::open(self.shared.instances[self.instance].addr).await {
                Ok(connection) => return Some(connection),
                Err(_) if self.is_over() => return None,
                Err(_) => self.tally.instances[self.instance].errors += 1,
            }
            // Other instances may still be there.
            self.instance = (self.instance + 1) % self.shared.instances.len();
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn is_over(&self) -> bool {
        let is_late = self.shared.orders.is_none() && self.begun.elapsed() > self.shared.duration;
        is_late || self.shared.stopped.is_cancelled()
    }

    /// Sends an order and records the response; whether the connection is still usable.
    async fn send(&mut self, connection: &mut Connection, order: u64, due: Instant) -> bool {
        let Ok(request) = self.shared.request(order, self.instance) else {
            let code = "not a request".to_owned();
            self.tally
                .settle(order, self.instance, Answer::Refused { code });
            return true;
        };
        let sent = Instant::now();
        let asked = connection.send(request).await;
        let took = due.elapsed();
        let status = asked.as_ref().ok().map(|(status, _)| *status);
        let answer = asked.map_or(Answer::Unknown, |(status, body)| {
            Answer::read(status, &body)
        });
        self.record(order, [due, sent], took, status, &answer);
        self.tally.note(order, self.instance, answer, took);
        status.is_some()
    }

    fn record(
        &self,
        order: u64,
        [due, sent]: [Instant; 2],
        took: Duration,
        status: Option<u16>,
        answer: &Answer,
    ) {
        let Some(lines) = &self.lines else {
            return;
        };
        let (order_id, code) = match answer {
            Answer::Accepted { order_id } => (Some(order_id.clone()), None),
            Answer::Refused { code } => (None, Some(code.clone())),
            Answer::Unknown => (None, None),
        };
        let after = |moment: Instant| micros(moment.saturating_duration_since(self.begun));
        // The writer reports errors at the end.
        let _ = lines.send(Recorded {
            order,
            url: self.shared.instances[self.instance].url.clone(),
            buyer: self.shared.buyer(order),
            request: self.shared.request_id(order),
            due_us: after(due),
            sent_us: after(sent),
            took_us: micros(took),
            status,
            order_id,
            code,
        });
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "orders are far fewer than 2^53")]
fn lossy(number: u64) -> f64 {
    number as f64
}
