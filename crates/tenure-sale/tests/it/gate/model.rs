//! Gates compared with each other, by random steps: what one says, the other says too.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tenure::Fence;
use tenure_sale::gate::{Entry, Load, Remembered, Wanted};
use tenure_sale::ledger::{Change, What};
use tenure_sale::{ItemState, OrderId, OrderState, Terms};

use super::stage::{Kind, Stage, change};

#[derive(Clone, Debug)]
enum Step {
    Ask {
        buyer: u8,
        id: u8,
        units: u64,
    },
    Withdraw {
        reference: u8,
        units: u64,
    },
    Again {
        order: usize,
        buyer: u8,
        units: u64,
    },
    Read(usize),
    Claim(usize),
    Acknowledge(usize),
    Bury(usize),
    Unbury(usize),
    Find(usize),
    Release {
        buyer: u8,
        units: u64,
    },
    Add(u64),
    State(ItemState),
    Terms(Terms),
    ApplyAgain,
    Begin {
        epoch_ahead: u64,
        fence: u64,
    },
    LoadBuyers {
        buyer: u8,
        units: u64,
    },
    Finish {
        state: ItemState,
        left: Option<u64>,
        terms: Terms,
    },
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..4u8, 0..6u8, 1..4u64).prop_map(|(buyer, id, units)| Step::Ask { buyer, id, units }),
        2 => (0..3u8, 1..4u64).prop_map(|(reference, units)| Step::Withdraw { reference, units }),
        2 => (0..9usize, 0..4u8, 1..3u64)
            .prop_map(|(order, buyer, units)| Step::Again { order, buyer, units }),
        4 => (1..4usize).prop_map(Step::Read),
        2 => (1..4usize).prop_map(Step::Claim),
        3 => (0..9usize).prop_map(Step::Acknowledge),
        2 => (0..9usize).prop_map(Step::Bury),
        2 => (0..9usize).prop_map(Step::Unbury),
        1 => (0..9usize).prop_map(Step::Find),
        3 => (0..4u8, 1..3u64).prop_map(|(buyer, units)| Step::Release { buyer, units }),
        2 => (0..5u64).prop_map(Step::Add),
        2 => state().prop_map(Step::State),
        2 => terms().prop_map(Step::Terms),
        1 => Just(Step::ApplyAgain),
        2 => (0..3u64, 0..5u64).prop_map(|(epoch_ahead, fence)| Step::Begin { epoch_ahead, fence }),
        1 => (0..4u8, 1..3u64).prop_map(|(buyer, units)| Step::LoadBuyers { buyer, units }),
        4 => (state(), proptest::option::weighted(0.9, 0..12u64), terms())
            .prop_map(|(state, left, terms)| Step::Finish { state, left, terms }),
        1 => Just(Step::Forget),
    ]
}

fn state() -> impl Strategy<Value = ItemState> {
    prop_oneof![
        6 => Just(ItemState::Open),
        1 => Just(ItemState::Paused),
        1 => Just(ItemState::Closed),
        1 => Just(ItemState::Draft),
    ]
}

fn terms() -> impl Strategy<Value = Terms> {
    let hour = Duration::from_hours(1);
    let moment = prop_oneof![
        8 => Just(None),
        1 => Just(Some(SystemTime::now() - hour)),
        1 => Just(Some(SystemTime::now() + hour)),
    ];
    let limit = proptest::option::of(1..5u64);
    (moment.clone(), moment, limit, 1..4u64, 1..8u64).prop_map(
        |(starts_at, ends_at, limit_per_buyer, units_per_order, backlog_max)| Terms {
            starts_at,
            ends_at,
            limit_per_buyer,
            units_per_order,
            backlog_max,
            ..Terms::default()
        },
    )
}

/// What the steps need to know of the ones before, the same for both gates.
#[derive(Default)]
struct Course {
    epoch: u64,
    fence: u64,
    /// Ids that were seen, in either gate.
    orders: Vec<OrderId>,
}

/// Takes a step, and tells in words what came of it.
async fn take(stage: &Stage, course: &mut Course, step: &Step) -> String {
    let (gate, item) = (&stage.gate, stage.item.as_str());
    let order = |n: usize| course.orders.get(n % course.orders.len().max(1)).cloned();
    match step {
        Step::Ask { buyer, id, units } => {
            let answer = stage
                .answer(&format!("b{buyer}"), &format!("r{id}"), *units)
                .await;
            course.orders.extend(answer.outcome.order().cloned());
            format!("{answer:?}")
        }
        Step::Withdraw { reference, units } => {
            let wanted = Wanted::Withdrawal {
                reference: format!("w{reference}"),
                reason: "model".to_owned(),
                units: *units,
                expected: None,
            };
            told(gate.take(item, &wanted).await)
        }
        Step::Again {
            order: n,
            buyer,
            units,
        } => match order(*n) {
            None => String::new(),
            Some(order) => {
                let buyer = format!("b{buyer}");
                let units = *units;
                told(
                    gate.take(
                        item,
                        &Wanted::Again {
                            order,
                            buyer,
                            units,
                        },
                    )
                    .await,
                )
            }
        },
        Step::Read(count) => entries(&stage.read(*count).await),
        Step::Claim(count) => entries(
            &gate
                .claim(item, "c2", Duration::ZERO, *count)
                .await
                .unwrap(),
        ),
        Step::Acknowledge(n) => told(gate.acknowledge(item, order(*n).as_slice()).await),
        Step::Bury(n) => match order(*n) {
            None => String::new(),
            Some(order) => {
                gate.bury(item, &order, "model").await.unwrap();
                let dead = gate.dead(item, 9).await.unwrap();
                let dead: Vec<Entry> = dead.into_iter().map(|(entry, _)| entry).collect();
                entries(&dead)
            }
        },
        Step::Unbury(n) => match order(*n) {
            None => String::new(),
            Some(order) => told(gate.unbury(item, &order).await),
        },
        Step::Find(n) => match order(*n) {
            None => String::new(),
            Some(order) => entries(gate.find(&order).await.unwrap().as_slice()),
        },
        Step::Forget => told(gate.forget(item).await),
        Step::Begin { .. } | Step::LoadBuyers { .. } | Step::Finish { .. } => {
            load(stage, course, step).await
        }
        _ => tell(stage, step).await,
    }
}

async fn tell(stage: &Stage, step: &Step) -> String {
    let standing = stage.gate.standing(&stage.item).await.unwrap();
    let (epoch, at) = standing.map_or((1, 0), |standing| (standing.epoch, standing.change));
    let what = match step {
        Step::Release { buyer, units } => What::Released {
            order: format!("{}.1.0", stage.item).parse().unwrap(),
            state: OrderState::Cancelled,
            buyer: format!("b{buyer}"),
            units: *units,
        },
        Step::State(state) => What::State(*state),
        Step::Terms(terms) => What::Terms(Box::new(terms.clone())),
        Step::Add(units) => What::Added {
            units: *units,
            reason: "model".to_owned(),
        },
        _ => {
            let applying = stage.gate.apply(&stage.item, epoch, at + 1, &[]);
            return told(applying.await);
        }
    };
    let changes: [Change; 1] = [change(at + 1, what)];
    told(stage.gate.apply(&stage.item, epoch, at, &changes).await)
}

async fn load(stage: &Stage, course: &mut Course, step: &Step) -> String {
    let (gate, item) = (&stage.gate, stage.item.as_str());
    match step {
        Step::Begin { epoch_ahead, fence } => {
            (course.epoch, course.fence) = (course.epoch + epoch_ahead, *fence);
            let epoch = course.epoch.max(1);
            told(gate.begin_load(item, epoch, Fence::new(*fence), 1).await)
        }
        Step::LoadBuyers { buyer, units } => {
            let buyer = format!("b{buyer}");
            let remembered = Remembered {
                buyer: buyer.clone(),
                request: "r0".to_owned(),
                units: *units,
                order: format!("{item}.1.77").parse().unwrap(),
            };
            let (epoch, fence) = (course.epoch.max(1), Fence::new(course.fence));
            let (buyers, answers) = ([(buyer, *units)], [remembered]);
            told(
                gate.load_buyers(item, epoch, fence, &buyers, &answers)
                    .await,
            )
        }
        Step::Finish { state, left, terms } => {
            let load = Load {
                epoch: course.epoch.max(1),
                fence: Fence::new(course.fence),
                state: *state,
                left: *left,
                change: 3,
                spread: 1,
                terms: terms.clone(),
            };
            told(gate.finish_load(item, &load).await)
        }
        _ => unreachable!("no step of a load"),
    }
}

/// Everything but the clock.
fn entries(entries: &[Entry]) -> String {
    let said = entries
        .iter()
        .map(|entry| format!("{} {:?} {}; ", entry.id, entry.what, entry.deliveries));
    said.collect()
}

fn told<T: std::fmt::Debug>(result: tenure_sale::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn gates_in_memory_and_on_redis_say_the_same(
        state in state(),
        terms in terms(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let redis = Stage::empty(Kind::Redis).await;
            let mut memory = Stage::empty(Kind::Memory).await;
            memory.item.clone_from(&redis.item);
            let begin = [
                Step::Begin { epoch_ahead: 1, fence: 1 },
                Step::Finish { state, left: Some(9), terms },
            ];
            let (mut here, mut there) = (Course::default(), Course::default());
            for (n, step) in begin.iter().chain(&steps).enumerate() {
                let ours = take(&memory, &mut here, step).await;
                let theirs = take(&redis, &mut there, step).await;
                assert_eq!(ours, theirs, "memory and redis at step {n}: {step:?}");
                let ours = memory.gate.standing(&memory.item).await.unwrap();
                let theirs = redis.gate.standing(&redis.item).await.unwrap();
                assert_eq!(ours, theirs, "memory and redis after step {n}: {step:?}");
                let ours = memory.gate.queued_units(&memory.item).await.unwrap();
                let theirs = redis.gate.queued_units(&redis.item).await.unwrap();
                assert_eq!(ours, theirs);
            }
        });
    }
}
