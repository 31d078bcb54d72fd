//! An instance of the shop: buyers come at a steady rate, whether or not it keeps up.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_sale::{Outcome, Request, Sale};
use tenure_testkit::Seed;
use tenure_testkit::sale::{Answer, Demand, PendingOperation, Recorder, Wish};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::follow::follow;
use super::{Order, open};
use crate::fleet::INSTANCES;
use crate::items::{self, OnSale};
use crate::plan::RATE;

/// Buyers come in groups, so often.
const TICK_MS: u64 = 10;
/// This many are served at once; further ones are dropped.
const AT_ONCE: usize = 400;
/// How often a buyer who was not answered asks again at once; others are asked again in the end.
const ASKS_AGAIN: f64 = 0.6;

/// What all buyers of an instance share.
pub struct Shop {
    pub sale: Sale,
    pub recorder: Recorder,
    pub items: Vec<OnSale>,
}

pub async fn run(order: &Order, finish: &CancellationToken) {
    let seed = Seed::new(order.seed);
    let Some(sale) = open(order, finish).await else {
        return;
    };
    let items = items::all(order.time);
    let mut demand = Demand::new(seed, order.number, OnSale::profiles(&items));
    let shop = Arc::new(Shop {
        sale,
        recorder: Recorder::create(&order.dir, order.number),
        items,
    });
    let buyers = TaskTracker::new();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let per_tick = RATE * TICK_MS / 1_000 / INSTANCES;
    let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
    let mut number = 0;
    while !finish.is_cancelled() {
        ticks.tick().await;
        for wish in demand.by_ref().take(usize::try_from(per_tick).unwrap()) {
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                break;
            };
            number += 1;
            let rng = seed.part(order.number << 32 | number).rng();
            let (shop, finish) = (Arc::clone(&shop), finish.clone());
            buyers.spawn(async move {
                Box::pin(shop.serve(&wish, rng, &finish)).await;
                drop(place);
            });
        }
    }
    buyers.close();
    buyers.wait().await;
}

impl Shop {
    /// One buyer: asks, perhaps several times at once, and follows up what came of it.
    async fn serve(&self, wish: &Wish, mut rng: StdRng, finish: &CancellationToken) {
        // At once, in one task: the requests travel together.
        let asking = (0..wish.times).map(|_| self.ask(wish));
        let mut told = Told::Nothing;
        for answer in join_all(asking).await {
            if answer.is_settled() && !matches!(told, Told::Order(_)) {
                told = answer;
            }
        }
        while !told.is_settled() && !finish.is_cancelled() && rng.random_bool(ASKS_AGAIN) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(5..200))).await;
            told = self.ask(wish).await;
        }
        let item = self.items.iter().find(|item| item.name == wish.item);
        if let (Told::Order(order), Some(item)) = (told, item)
            && rng.random_ratio(item.followed_percent, 100)
        {
            follow(self, item, &order, &mut rng).await;
        }
    }

    /// Asks once.
    async fn ask(&self, wish: &Wish) -> Told {
        let request = Request::new(&wish.item, &wish.buyer, &wish.request).unwrap();
        let request = request.units(wish.units).unwrap();
        let (item, buyer) = (request.item(), request.buyer());
        let asked = self.recorder.ask(item, buyer, request.id(), wish.units);
        submit(&self.sale, &request, asked).await
    }
}

/// What a buyer knows after a request.
pub enum Told {
    Order(String),
    No,
    /// Not what became of it: no answer came, or one that says only that nothing was done this time.
    Nothing,
}

impl Told {
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Nothing)
    }
}

/// Submits a request and writes down what was told. Whatever fails is unknown.
pub async fn submit(sale: &Sale, request: &Request, asked: PendingOperation<'_>) -> Told {
    let outcome = match sale.submit(request).await {
        Ok(answer) => answer.outcome,
        Err(error) => {
            asked.answered(Answer::Unknown, &format!("{:?}", error.kind()), None);
            return Told::Nothing;
        }
    };
    let order = outcome.order().map(ToString::to_string);
    let (answer, word) = match &outcome {
        Outcome::Accepted(_) => (Answer::Accepted, ""),
        Outcome::Replayed(_) => (Answer::Replayed, ""),
        Outcome::Conflict(_) => (Answer::Refused, "conflict"),
        Outcome::NoItem => (Answer::Refused, "no-item"),
        Outcome::NotStarted => (Answer::Refused, "not-started"),
        Outcome::Ended => (Answer::Refused, "ended"),
        Outcome::Paused => (Answer::Refused, "paused"),
        Outcome::LimitReached => (Answer::Refused, "limit-reached"),
        Outcome::SoldOut => (Answer::Refused, "sold-out"),
        Outcome::Busy => (Answer::Refused, "busy"),
        Outcome::StaleEpoch => (Answer::Refused, "stale-epoch"),
    };
    asked.answered(answer, word, order.as_deref());
    match (order, outcome) {
        (Some(order), _) => Told::Order(order),
        (None, Outcome::Busy | Outcome::StaleEpoch) => Told::Nothing,
        (None, _) => Told::No,
    }
}

/// Waits for all of a few futures, which run at once.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| Box::pin(Some(future))).collect();
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, done) in running.iter_mut().zip(&mut done) {
            if done.is_some() {
                continue;
            }
            if let Some(future) = future.as_mut().as_pin_mut() {
                match future.poll(context) {
                    std::task::Poll::Ready(output) => *done = Some(output),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
