//! Random operations against a small model of gate and ledger: units are conserved exactly.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tenure::Fence;
use tenure_sale::gate::{Entry, Wanted};
use tenure_sale::ledger::{Change, Fate, What};
use tenure_sale::{OrderId, OrderState, Terms};

use super::books::assert_balanced;
use super::setup::{ITEM, Setup, entry, id, order_as};

const LIMIT: u64 = 6;

#[derive(Clone, Debug)]
enum Step {
    /// A buyer asks for units.
    Ask {
        buyer: u8,
        units: u64,
        request: u8,
    },
    /// Some of the queue is committed, some of it twice.
    Commit {
        count: usize,
        again: bool,
    },
    /// Something is done to one of the orders so far.
    Pay(usize),
    Cancel(usize),
    PayLate(usize),
    Bury,
    Revive(usize),
    Add(u64),
    Withdraw(u64),
    /// The gate hears of the changes.
    Relay,
    /// The gate is lost with its queue and loaded again.
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    let any_order = 0_usize..40;
    prop_oneof![
        8 => (0_u8..4, 1_u64..4, 0_u8..8)
            .prop_map(|(buyer, units, request)| Step::Ask { buyer, units, request }),
        5 => (1_usize..6, any::<bool>()).prop_map(|(count, again)| Step::Commit { count, again }),
        2 => any_order.clone().prop_map(Step::Pay),
        3 => any_order.clone().prop_map(Step::Cancel),
        2 => any_order.clone().prop_map(Step::PayLate),
        1 => Just(Step::Bury),
        1 => any_order.prop_map(Step::Revive),
        1 => (1_u64..4).prop_map(Step::Add),
        1 => (1_u64..4).prop_map(Step::Withdraw),
        3 => Just(Step::Relay),
        1 => Just(Step::Rebuild),
    ]
}

/// A gate as simple as can be, with units that can be counted.
struct Gate {
    epoch: u64,
    number: u64,
    left: u64,
    change: u64,
    queue: VecDeque<Entry>,
    buyers: BTreeMap<String, u64>,
}

impl Gate {
    fn set_aside(&mut self, units: u64, wanted: Wanted) -> Option<OrderId> {
        self.left = self.left.checked_sub(units)?;
        self.number += 1;
        let order = id(self.epoch, self.number);
        self.queue.push_back(entry(order.clone(), Ok(wanted)));
        Some(order)
    }

    fn queued(&self) -> u64 {
        let units = |entry: &Entry| match entry.what.as_ref().unwrap() {
            Wanted::Order { units, .. }
            | Wanted::Withdrawal { units, .. }
            | Wanted::Again { units, .. } => *units,
        };
        self.queue.iter().map(units).sum()
    }

    fn apply(&mut self, change: &Change) {
        assert_eq!(change.number, self.change + 1);
        self.change = change.number;
        match &change.what {
            What::Released { buyer, units, .. } => {
                self.left += units;
                let has = self.buyers.get_mut(buyer).expect("a buyer with units");
                *has = has.checked_sub(*units).expect("as many as it had");
            }
            What::Added { units, .. } | What::Returned { units, .. } => self.left += units,
            _ => {}
        }
    }
}

struct World {
    setup: Setup,
    gate: Gate,
    orders: Vec<(OrderId, String, u64)>,
    references: u64,
}

impl World {
    async fn new(setup: Setup, units: u64) -> Self {
        let terms = Terms {
            limit_per_buyer: Some(LIMIT),
            units_per_order: 3,
            ..Terms::default()
        };
        let load = setup.selling_on(units, terms).await;
        let gate = Gate {
            epoch: load.epoch,
            number: 0,
            left: load.left.unwrap(),
            change: load.change,
            queue: VecDeque::new(),
            buyers: BTreeMap::new(),
        };
        Self {
            setup,
            gate,
            orders: Vec::new(),
            references: 0,
        }
    }

    async fn run(&mut self, step: Step) {
        let ledger = self.setup.ledger.clone();
        let known = |at: usize| self.orders.get(at).cloned();
        match step {
            Step::Ask {
                buyer,
                units,
                request,
            } => self.ask(buyer, units, request),
            Step::Commit { count, again } => self.commit(count, again).await,
            Step::Pay(at) => {
                if let Some((order, ..)) = known(at) {
                    ledger.pay(&order).await.unwrap();
                }
            }
            Step::Cancel(at) => {
                if let Some((order, ..)) = known(at) {
                    ledger.cancel(&order).await.unwrap();
                }
            }
            Step::Revive(at) => {
                if let Some((order, ..)) = known(at) {
                    ledger.revive(&order).await.unwrap();
                }
            }
            Step::PayLate(at) => {
                if let Some((order, buyer, units)) = known(at)
                    && ledger
                        .order(&order)
                        .await
                        .unwrap()
                        .is_some_and(|order| order.units > 0)
                {
                    self.pay_late(order, buyer, units);
                }
            }
            Step::Bury => {
                let is_order = |entry: &Entry| matches!(entry.what, Ok(Wanted::Order { .. }));
                if self.gate.queue.front().is_some_and(is_order) {
                    let entry = self.gate.queue.pop_front().unwrap();
                    ledger.bury(&entry, "poison").await.unwrap();
                }
            }
            Step::Add(units) => {
                self.references += 1;
                let reference = format!("a{}", self.references);
                let added = ledger.add_units(ITEM, units, "more", &reference, None);
                added.await.unwrap();
            }
            Step::Withdraw(units) => {
                self.references += 1;
                let wanted = Wanted::Withdrawal {
                    reference: format!("w{}", self.references),
                    reason: "less".into(),
                    units,
                    expected: None,
                };
                self.gate.set_aside(units, wanted);
            }
            Step::Relay => self.relay().await,
            Step::Rebuild => self.rebuild().await,
        }
    }

    fn ask(&mut self, buyer: u8, units: u64, request: u8) {
        let buyer = format!("b{buyer}");
        let wanted = Wanted::Order {
            buyer: buyer.clone(),
            // Sometimes the same again: this gate remembers no answers.
            request: format!("r{request}"),
            units,
        };
        if let Some(order) = self.gate.set_aside(units, wanted) {
            *self.gate.buyers.entry(buyer.clone()).or_default() += units;
            self.orders.push((order, buyer, units));
        }
    }

    fn pay_late(&mut self, order: OrderId, buyer: String, units: u64) {
        let wanted = Wanted::Again {
            order,
            buyer: buyer.clone(),
            units,
        };
        if self.gate.set_aside(units, wanted).is_some() {
            *self.gate.buyers.entry(buyer).or_default() += units;
        }
    }

    async fn commit(&mut self, count: usize, again: bool) {
        let count = count.min(self.gate.queue.len());
        let batch: Vec<Entry> = self.gate.queue.iter().take(count).cloned().collect();
        let fates = self.setup.ledger.commit(&batch).await.unwrap();
        let refused = |fate: &Fate| matches!(fate, Fate::Refused(_) | Fate::Stale);
        assert!(!fates.iter().any(refused), "{fates:?}");
        if again {
            let same = self.setup.ledger.commit(&batch).await.unwrap();
            let known = |fate: &Fate| matches!(fate, Fate::Known(_) | Fate::Withdrawal(_));
            assert!(same.iter().all(known), "{same:?}");
        }
        self.gate.queue.drain(..count);
    }

    async fn relay(&mut self) {
        let after = self.gate.change;
        let changes = self.setup.ledger.changes(ITEM, after, 10_000).await;
        for change in changes.unwrap() {
            self.gate.apply(&change);
        }
    }

    async fn rebuild(&mut self) {
        let fence = Fence::new(self.gate.epoch + 1);
        let load = self.setup.ledger.next_epoch(ITEM, fence).await.unwrap();
        let stale: Vec<Entry> = self.gate.queue.drain(..).collect();
        let fates = self.setup.ledger.commit(&stale).await.unwrap();
        assert!(fates.iter().all(|fate| *fate == Fate::Stale), "{fates:?}");
        self.gate.epoch = load.epoch;
        self.gate.number = 0;
        self.gate.left = load.left.unwrap();
        self.gate.change = load.change;
        let buyers = self.setup.ledger.buyers(ITEM, None, 100).await.unwrap();
        self.gate.buyers = buyers.into_iter().collect();
    }

    /// After all changes reached the gate.
    async fn check(&mut self) {
        self.relay().await;
        let item = self.setup.item().await;
        let all = self.gate.left + self.gate.queued() + item.sold;
        assert_eq!(item.total, all, "total = left + queued + sold");
        let mut buyers = self.setup.ledger.buyers(ITEM, None, 100).await.unwrap();
        assert!(
            buyers.iter().all(|(_, units)| *units <= LIMIT),
            "{buyers:?}"
        );
        for entry in &self.gate.queue {
            let (Wanted::Order { buyer, units, .. } | Wanted::Again { buyer, units, .. }) =
                entry.what.as_ref().unwrap()
            else {
                continue;
            };
            match buyers.iter_mut().find(|(name, _)| name == buyer) {
                Some((_, has)) => *has += units,
                None => buyers.push((buyer.clone(), *units)),
            }
        }
        self.gate.buyers.retain(|_, units| *units > 0);
        let buyers: BTreeMap<String, u64> = buyers.into_iter().collect();
        assert_eq!(self.gate.buyers, buyers, "what buyers have");
        let counts = self.setup.ledger.counts(ITEM).await.unwrap();
        let held = counts.iter().filter(|count| count.state.holds_units());
        assert_eq!(held.map(|count| count.units).sum::<u64>(), item.sold);
        assert_balanced(&self.setup).await;
    }
}

fn conserves(cases: u32, setup: impl AsyncFn() -> Setup) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(cases)
    };
    let steps = (3_u64..20, prop::collection::vec(step(), 1..60));
    let tried = TestRunner::new(config).run(&steps, |(units, steps)| {
        runtime.block_on(async {
            let mut world = World::new(setup().await, units).await;
            for step in steps {
                world.run(step).await;
            }
            world.check().await;
        });
        Ok(())
    });
    if let Err(found) = tried {
        panic!("{found}");
    }
}

#[test]
fn units_are_conserved_in_memory() {
    conserves(400, Setup::memory);
}

#[test]
fn units_are_conserved_in_a_file() {
    conserves(20, Setup::file);
}

#[test]
fn units_are_conserved_on_postgres() {
    conserves(8, Setup::postgres);
}

/// The gate sells what it does not have; the ledger never does, and the gate comes to the truth by itself.
#[tenure_testkit::test]
async fn a_gate_that_has_too_many_comes_to_the_truth() {
    let setup = Setup::memory().await;
    let mut world = World::new(setup, 10).await;
    world.gate.left = 17;
    for round in 0_u8..40 {
        world.ask(round, 1 + u64::from(round % 3), round);
        world.commit(2, false).await;
        world.relay().await;
    }
    let item = world.setup.item().await;
    assert_eq!((item.sold, item.total), (10, 10));
    assert_eq!(world.gate.left + world.gate.queued(), 0);
    let rejected = order_as(id(1, 999), "late", "r", 1);
    let fates = world.setup.ledger.commit(&[rejected]).await.unwrap();
    assert_eq!(fates, [Fate::Settled(OrderState::Rejected)]);
}
