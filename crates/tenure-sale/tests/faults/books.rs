//! What ledger and gate say when all is quiet: the ledger's tables by questions of our own, the gate
//! by its keys.

use std::collections::HashMap;

use sqlx::{Connection, PgConnection, Row};
use tenure_sale::{OrderId, Sale};
use tenure_sale::ledger::What;
use tenure_testkit::sale::{Books, Counter, Item, Movement, Order, Posting, State};

use crate::items::OnSale;
use crate::stage::Stage;

/// Changes in one question.
const PAGE: usize = 1_000;

pub async fn read(sale: &Sale, items: &[OnSale], stage: &Stage) -> Books {
    let mut ledger = PgConnection::connect(&stage.ledger_url()).await.unwrap();
    let orders = orders(&mut ledger).await;
    let mut books = Books {
        orders,
        ..Books::default()
    };
    for on_sale in items {
        books.items.push(item(sale, &mut ledger, on_sale).await);
        let journal = journal(sale, on_sale.name, &books.orders).await;
        books.journal.extend(journal);
    }
    books
}

async fn orders(ledger: &mut PgConnection) -> Vec<Order> {
    let sql = "SELECT item, epoch, number, buyer, request, units, state FROM sale_orders";
    let rows = sqlx::query(sql).fetch_all(ledger).await.unwrap();
    let orders = rows.iter().map(|row| {
        let (item, epoch, number): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        Order {
            id: format!("{item}.{epoch}.{number}"),
            item,
            buyer: row.get(3),
            request: row.get(4),
            units: row.get::<i64, _>(5).unsigned_abs(),
            state: row.get::<String, _>(6).parse::<State>().unwrap(),
        }
    });
    orders.collect()
}

async fn item(sale: &Sale, ledger: &mut PgConnection, on_sale: &OnSale) -> Item {
    let sql = "SELECT total, unlimited, sold FROM sale_items WHERE name = $1";
    let row = sqlx::query(sql).bind(on_sale.name).fetch_one(ledger);
    let row = row.await.unwrap();
    let standing = sale.gate().standing(on_sale.name).await.unwrap().unwrap();
    let total: i64 = row.get(0);
    let unlimited: bool = row.get(1);
    Item {
        name: on_sale.name.into(),
        total: (!unlimited).then_some(total.unsigned_abs()),
        sold: row.get::<i64, _>(2).unsigned_abs(),
        limit: on_sale.limit,
        counter: Counter {
            left: standing.left.map_or(0, |left| i64::try_from(left).unwrap()),
            queued: standing.queued,
            queued_units: 0,
            pending: standing.pending,
            dead: standing.dead,
        },
    }
}

/// The ledger's changes are numbered in the order of the commits.
async fn journal(sale: &Sale, item: &str, orders: &[Order]) -> Vec<Posting> {
    let known: HashMap<&str, &Order> = orders.iter().map(|it| (it.id.as_str(), it)).collect();
    let mut postings = Vec::new();
    let mut after = 0;
    loop {
        let changes = sale.ledger().changes(item, after, PAGE).await.unwrap();
        let Some(last) = changes.last() else {
            return postings;
        };
        after = last.number;
        for change in &changes {
            postings.extend(movements(item, &change.what, &known));
        }
    }
}

fn movements(item: &str, what: &What, known: &HashMap<&str, &Order>) -> Vec<Posting> {
    let moved = match what {
        What::Committed { orders, state } if state.holds_units() => {
            orders.iter().map(|id| reserved(id, known)).collect()
        }
        What::Released {
            order,
            buyer,
            units,
            ..
        } => vec![Movement::Released {
            order: order.to_string(),
            buyer: buyer.clone(),
            units: *units,
        }],
        What::Added { units, .. } => vec![Movement::Added(*units)],
        What::Withdrawn { units, .. } => vec![Movement::Withdrawn(*units)],
        _ => Vec::new(),
    };
    let postings = moved.into_iter().map(|movement| Posting {
        item: item.to_owned(),
        movement,
    });
    postings.collect()
}

fn reserved(id: &OrderId, known: &HashMap<&str, &Order>) -> Movement {
    let order = id.to_string();
    let (buyer, units) = match known.get(order.as_str()) {
        Some(known) => (known.buyer.clone(), known.units),
        None => (String::new(), 0),
    };
    Movement::Reserved {
        order,
        buyer,
        units,
    }
}
