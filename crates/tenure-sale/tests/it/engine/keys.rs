//! Keys of an item at the gate that are deleted, overwritten or emptied, each of them alone.

use std::time::Duration;

use tenure_sale::{Mode, NewItem, OrderId, OrderState, Outcome, Sale, Terms};
use tenure_testkit::RespClient;
use tokio::time::{Instant, sleep};

use super::dead::{cure, one_is_buried, poisoned};
use super::stage::{
    SOON, SPREAD, Stage, agrees, becomes, buy, consume, drained, request, reserve, settled, until,
};

on! { [redis_sqlite, spread_sqlite]:
    the_gate_deleted_alone_heals,
    the_buyers_deleted_alone_heal,
    the_answers_deleted_alone_heal,
    the_orders_deleted_alone_heal,
    the_dead_deleted_alone_are_requeued,
    the_gate_of_another_type_is_named_and_healed,
    the_buyers_of_another_type_are_named_and_healed,
    the_answers_of_another_type_are_named_and_healed,
    the_orders_of_another_type_are_named_and_healed,
    the_dead_of_another_type_are_named_and_healed,
    the_gate_without_one_of_its_fields_heals,
    the_orders_emptied_are_named_and_repaired,
    the_dead_emptied_are_requeued,
}

async fn the_gate_deleted_alone_heals(stage: Stage) {
    heals_when_deleted(&stage, "gate").await;
}

async fn the_buyers_deleted_alone_heal(stage: Stage) {
    heals_when_deleted(&stage, "buyers").await;
}

async fn the_answers_deleted_alone_heal(stage: Stage) {
    heals_when_deleted(&stage, "answers").await;
}

async fn the_orders_deleted_alone_heal(stage: Stage) {
    heals_when_deleted(&stage, "orders").await;
}

async fn the_gate_of_another_type_is_named_and_healed(stage: Stage) {
    is_named_and_healed_when_overwritten(&stage, "gate").await;
}

async fn the_buyers_of_another_type_are_named_and_healed(stage: Stage) {
    is_named_and_healed_when_overwritten(&stage, "buyers").await;
}

async fn the_answers_of_another_type_are_named_and_healed(stage: Stage) {
    is_named_and_healed_when_overwritten(&stage, "answers").await;
}

async fn the_orders_of_another_type_are_named_and_healed(stage: Stage) {
    is_named_and_healed_when_overwritten(&stage, "orders").await;
}

async fn the_dead_of_another_type_are_named_and_healed(stage: Stage) {
    is_named_and_healed_when_overwritten(&stage, "dead").await;
}

async fn heals_when_deleted(stage: &Stage, what: &str) {
    let (sale, _consumer) = stage.open_consumed().await;
    let order = one_of_two_bought(&sale).await;
    let key = annas(stage, what);
    stage.redis().client().command(&["DEL", &key]);
    sells_as_before(&sale, &order).await;
}

async fn is_named_and_healed_when_overwritten(stage: &Stage, what: &str) {
    let sale = stage.open().await;
    let consumer = consume(&sale);
    let order = one_of_two_bought(&sale).await;
    consumer.stop().await;
    let key = annas(stage, what);
    overwrite(stage, &key);
    let broken = sale.verify("i").await.unwrap().broken().join("\n");
    assert!(broken.contains(&key), "{broken}");
    let report = sale.reconcile("i", Mode::Repair).await.unwrap();
    assert!(report.repaired && report.is_clean(), "{report}");
    assert!(sale.verify("i").await.unwrap().holds());

    // Where there is a consumer, nobody has to repair it.
    overwrite(stage, &key);
    let _consumer = consume(&sale);
    sells_as_before(&sale, &order).await;
    until(
        "everything holds again",
        async || matches!(sale.verify("i").await, Ok(verdict) if verdict.holds()),
    )
    .await;
}

/// Each field without which the gate could not answer.
async fn the_gate_without_one_of_its_fields_heals(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let order = one_of_two_bought(&sale).await;
    let gate = annas(&stage, "gate");
    for field in [
        "epoch",
        "fence",
        "state",
        "run",
        "spread",
        "change",
        "left",
        "limit",
        "order_max",
        "backlog_max",
        "answers_kept",
        "unlimited",
    ] {
        let mut redis = stage.redis().client();
        redis.command(&["HDEL", &gate, field]);
        until(&format!("the gate has its `{field}` again"), async || {
            redis.command(&["HEXISTS", &gate, field]).int() == 1
        })
        .await;
    }
    sells_as_before(&sale, &order).await;
}

/// An order in a queue that an operator trims is lost. Its unit is not.
async fn the_orders_emptied_are_named_and_repaired(stage: Stage) {
    let sale = stage.open().await;
    let order = one_of_two_ordered(&sale).await;
    let key = annas(&stage, "orders");
    let trimmed = stage
        .redis()
        .client()
        .command(&["XTRIM", &key, "MAXLEN", "0"]);
    assert_eq!(trimmed.int(), 1);
    let broken = sale.verify("i").await.unwrap().broken().join("\n");
    assert!(broken.contains("1 units are neither"), "{broken}");
    let report = sale.reconcile("i", Mode::Repair).await.unwrap();
    assert!(report.repaired && report.is_clean(), "{report}");
    becomes(&sale, &order, OrderState::Lost).await;
    let _consumer = consume(&sale);
    reserve(&sale, "anna").await;
    agrees(&sale).await;
}

async fn the_dead_deleted_alone_are_requeued(stage: Stage) {
    let remove = |redis: &mut RespClient, key: &str| redis.command(&["DEL", key]).int();
    dead_letters_outlive(&stage, remove).await;
}

async fn the_dead_emptied_are_requeued(stage: Stage) {
    let remove =
        |redis: &mut RespClient, key: &str| redis.command(&["XTRIM", key, "MAXLEN", "0"]).int();
    dead_letters_outlive(&stage, remove).await;
}

/// The ledger knows which orders are dead, and their units stay reserved until somebody decides.
async fn dead_letters_outlive(stage: &Stage, remove: impl Fn(&mut RespClient, &str) -> i64) {
    let (sale, order) = poisoned(stage).await;
    one_is_buried(&sale).await;
    let mut redis = stage.redis().client();
    // The ledger has it a moment before the gate.
    until("the dead letter is removed", async || {
        let dead = redis.command(&["KEYS", "tenure:sale:{i*:dead"]);
        dead.array()
            .first()
            .is_some_and(|key| remove(&mut redis, key.text()) == 1)
    })
    .await;
    let letters = sale.dead_letters("i", 10).await.unwrap();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0].entry.id, order);
    assert!(
        letters[0].reason.contains("the database refuses"),
        "{letters:?}"
    );
    cure(stage);
    assert_eq!(sale.requeue(&order).await.unwrap(), OrderState::Reserved);
    assert!(sale.dead_letters("i", 10).await.unwrap().is_empty());
    agrees(&sale).await;
}

/// Anna has one of the two units that she may have.
async fn one_of_two_bought(sale: &Sale) -> OrderId {
    let order = one_of_two_ordered(sale).await;
    assert_eq!(settled(sale, &order).await.state, OrderState::Reserved);
    drained(sale).await;
    order
}

async fn one_of_two_ordered(sale: &Sale) -> OrderId {
    let terms = Terms {
        limit_per_buyer: Some(2),
        ..Terms::default()
    };
    let spread = SPREAD.get();
    let item = NewItem::new("i", 10).unwrap().terms(terms).spread(spread);
    sale.create(&item).await.unwrap();
    sale.open_item("i").await.unwrap();
    buy(sale, "anna").await
}

/// The same request is the same order, and the limit counts what was bought before.
async fn sells_as_before(sale: &Sale, order: &OrderId) {
    assert_eq!(told(sale, "r").await, Outcome::Replayed(order.clone()));
    let Outcome::Accepted(second) = told(sale, "r2").await else {
        panic!("a second unit is within the limit");
    };
    assert_eq!(told(sale, "r3").await, Outcome::LimitReached);
    assert_eq!(settled(sale, &second).await.state, OrderState::Reserved);
    reserve(sale, "ben").await;
    assert_eq!(sale.stats().rejected, 0);
    agrees(sale).await;
}

/// What anna is told, once the gate answers.
async fn told(sale: &Sale, id: &str) -> Outcome {
    let end = Instant::now() + SOON;
    loop {
        match sale.submit(&request("anna", id)).await {
            Ok(answer) if answer.outcome != Outcome::StaleEpoch => return answer.outcome,
            other => assert!(Instant::now() < end, "{other:?}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// The key of this name on the shelf of anna's order.
fn annas(stage: &Stage, what: &str) -> String {
    let mut redis = stage.redis().client();
    let found = redis.command(&["KEYS", "tenure:sale:{i*:answers"]);
    let keys: Vec<String> = found
        .array()
        .iter()
        .map(|key| key.text().to_owned())
        .collect();
    let mut has = |key: &String| redis.command(&["HEXISTS", key, "anna\nr"]).int() == 1;
    let answers = keys.into_iter().find(|key| has(key)).unwrap();
    format!("{}{what}", answers.strip_suffix("answers").unwrap())
}

fn overwrite(stage: &Stage, key: &str) {
    stage
        .redis()
        .client()
        .command(&["SET", key, "of somebody else"]);
}
