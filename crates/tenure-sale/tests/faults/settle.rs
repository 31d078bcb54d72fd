//! Coming to rest: unknown answers are asked again, the queue drains, every order is looked at.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_sale::{Mode, OrderId, OrderState, Request, Sale};
use tenure_testkit::sale::{Account, Books, Operation, Recorder};
use tokio::task::JoinSet;

use crate::books;
use crate::client::{look, submit};
use crate::items::OnSale;
use crate::patience::stretched;
use crate::stage::Stage;

/// How long everything may take to come to rest after all is healed.
const LIMIT: Duration = Duration::from_mins(1);
/// How many questions are under way at once.
const AT_ONCE: usize = 32;
/// How many answered requests are sent again.
const REPEATED: usize = 500;
const PAUSE: Duration = Duration::from_millis(50);
/// Ended epochs whose lost orders were not looked for.
const UNCOUNTED: &str = "SELECT count(*) FROM sale_epochs AS e JOIN sale_items AS i ON i.name = e.item \
                         WHERE NOT e.counted AND e.epoch < i.epoch";

pub struct Settled {
    pub books: Books,
    pub complaints: Vec<String>,
}

pub async fn settle(
    sale: &Sale,
    items: &[OnSale],
    recorder: &Arc<Recorder>,
    dir: &Path,
    stage: &Stage,
) -> Settled {
    let account = Account::load(dir);
    let mut complaints = Vec::new();
    complaints.extend(resolve(sale, recorder, &account).await);
    // What was resolved is an order too.
    let account = Account::load(dir);
    complaints.extend(repeat(sale, recorder, &account).await);
    complaints.extend(rest(sale, items, stage).await);
    let account = Account::load(dir);
    complaints.extend(look_at_all(sale, recorder, &account).await);
    for item in items {
        match sale.reconcile(item.name, Mode::DryRun).await {
            Ok(report) if report.is_clean() && report.settled => {}
            Ok(report) => complaints.push(format!("the engine finds a drift: {report:?}")),
            Err(error) => complaints.push(format!("cannot reconcile `{}`: {error}", item.name)),
        }
    }
    let (books, contradictions) = books::read(sale, items, stage).await;
    complaints.extend(contradictions);
    complaints.extend(unannounced(&account, &books, items));
    Settled { books, complaints }
}

/// Sends each request again whose answer was lost, until it is known what became of it.
async fn resolve(sale: &Sale, recorder: &Arc<Recorder>, account: &Account) -> Vec<String> {
    let unresolved: Vec<Operation> = account.unresolved().into_iter().cloned().collect();
    ask_again(sale, recorder, unresolved).await
}

/// Sends some requests again that were answered with an order: it must still be the same.
async fn repeat(sale: &Sale, recorder: &Arc<Recorder>, account: &Account) -> Vec<String> {
    let answered = account
        .operations
        .iter()
        .filter(|operation| operation.is_order());
    let answered: Vec<&Operation> = answered.collect();
    let every = answered.len() / REPEATED + 1;
    let some = answered.into_iter().step_by(every).cloned().collect();
    ask_again(sale, recorder, some).await
}

async fn ask_again(
    sale: &Sale,
    recorder: &Arc<Recorder>,
    operations: Vec<Operation>,
) -> Vec<String> {
    let end = Instant::now() + stretched(LIMIT);
    let (sale, recorder) = (sale.clone(), Arc::clone(recorder));
    for_each(operations, move |operation| {
        let (sale, recorder) = (sale.clone(), Arc::clone(&recorder));
        async move {
            let request =
                Request::new(&operation.item, &operation.buyer, &operation.request).unwrap();
            let request = request.units(operation.units).unwrap();
            while Instant::now() < end {
                let asked = recorder.ask(
                    &operation.item,
                    &operation.buyer,
                    &operation.request,
                    operation.units,
                );
                if submit(&sale, &request, asked).await.is_settled() {
                    return None;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Some(format!("nobody says what became of it: {operation}"))
        }
    })
    .await
}

/// Waits until queues are empty, gates know all that the ledger does, and no order waits for its end.
async fn rest(sale: &Sale, items: &[OnSale], stage: &Stage) -> Option<String> {
    let end = Instant::now() + stretched(LIMIT);
    loop {
        let obstacle = match obstacle(sale, items).await {
            Ok(None) if stage.ledger.run_sql(UNCOUNTED) == "0" => return None,
            Ok(None) => "lost orders of ended epochs are still looked for".to_owned(),
            Ok(Some(obstacle)) => obstacle,
            Err(error) => error.to_string(),
        };
        if Instant::now() >= end {
            return Some(format!("not at rest after {LIMIT:?}: {obstacle}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn obstacle(sale: &Sale, items: &[OnSale]) -> tenure_sale::Result<Option<String>> {
    for item in items {
        let name = item.name;
        let Some(standing) = sale.gate().standing(name).await? else {
            return Ok(Some(format!("the gate does not know `{name}`")));
        };
        let changes = sale.ledger().changes(name, standing.change, 1).await?;
        let counts = sale.ledger().counts(name).await?;
        let reserved = |count: &&tenure_sale::ledger::Count| count.state == OrderState::Reserved;
        let reserved = counts.iter().find(reserved).map_or(0, |count| count.orders);
        let expiring = item.pay_within.is_some() && reserved > 0;
        let moves = standing.pending > 0 || standing.moving > 0;
        let busy = standing.queued > 0 || moves || !changes.is_empty();
        if busy || expiring || !standing.current {
            let told = format!(
                "`{name}`: {standing:?}, {} changes, {reserved} reserved",
                changes.len()
            );
            return Ok(Some(told));
        }
    }
    Ok(None)
}

/// Every order that was reported to a client is read once more, when nothing moves.
async fn look_at_all(sale: &Sale, recorder: &Arc<Recorder>, account: &Account) -> Vec<String> {
    let told = account
        .operations
        .iter()
        .filter(|operation| operation.is_order());
    let orders: BTreeSet<String> = told
        .filter_map(|operation| operation.order.clone())
        .collect();
    let (sale, recorder) = (sale.clone(), Arc::clone(recorder));
    for_each(orders, move |order| {
        let (sale, recorder) = (sale.clone(), Arc::clone(&recorder));
        async move {
            let id: OrderId = order.parse().unwrap();
            let told = look(&sale, &recorder, &id).await;
            told.err()
                .map(|error| format!("cannot say what became of `{order}`: {error}"))
        }
    })
    .await
}

/// Orders that were reported to a client, but have no row, although the ledger has a later one of the
/// same queue: numbers have no gaps, so they had to be announced.
fn unannounced(account: &Account, books: &Books, items: &[OnSale]) -> Vec<String> {
    let known: HashSet<&str> = books.orders.iter().map(|it| it.id.as_str()).collect();
    let mut last: HashMap<Queue, u64> = HashMap::new();
    let rows = books.orders.iter().map(|it| it.id.parse().unwrap());
    for order in rows {
        let last = last.entry(Queue::of(&order, items)).or_default();
        *last = (*last).max(order.number());
    }
    let told = account.operations.iter().filter(|it| it.is_order());
    let told: BTreeSet<&str> = told.filter_map(|it| it.order.as_deref()).collect();
    let without_row = told.into_iter().filter(|id| !known.contains(id));
    without_row
        .filter(|id| {
            let order: OrderId = id.parse().unwrap();
            let last = last.get(&Queue::of(&order, items));
            last.is_some_and(|last| order.number() < *last)
        })
        .map(|id| format!("`{id}` was lost, and that was not announced"))
        .collect()
}

/// Which queue an order was in: item, epoch and shelf.
#[derive(PartialEq, Eq, Hash)]
struct Queue(String, u64, u64);

impl Queue {
    fn of(order: &OrderId, items: &[OnSale]) -> Self {
        let item = items.iter().find(|item| item.name == order.item());
        let shelves = item.map_or(1, |item| item.spread);
        let shelf = order.number() % shelves;
        Self(order.item().to_owned(), order.epoch(), shelf)
    }
}

/// Some at once; what they complain of.
async fn for_each<T, F>(
    all: impl IntoIterator<Item = T>,
    mut begin: impl FnMut(T) -> F,
) -> Vec<String>
where
    F: Future<Output = Option<String>> + Send + 'static,
{
    let mut complaints = Vec::new();
    let mut running = JoinSet::new();
    for one in all {
        if running.len() >= AT_ONCE
            && let Some(done) = running.join_next().await
        {
            complaints.extend(done.unwrap());
        }
        running.spawn(begin(one));
    }
    while let Some(done) = running.join_next().await {
        complaints.extend(done.unwrap());
    }
    complaints
}
