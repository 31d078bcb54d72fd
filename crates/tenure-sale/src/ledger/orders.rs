//! Reading orders from the ledger.

use crate::error::Result;
use crate::ledger::books::{Books, Session};
use crate::ledger::count::Count;
use crate::ledger::fault::Fault;
use crate::ledger::sql::{Param, Row, Sql, int};
use crate::ledger::timestamps::moment;
use crate::names::{buyer_name, item_name, request_id};
use crate::order::{Order, OrderId, OrderState};

macro_rules! columns {
    () => {
        "item, epoch, number, buyer, request, units, state, accepted_at, pay_by, round, note"
    };
}

const ONE: Sql = Sql::same(concat!(
    "SELECT ",
    columns!(),
    " FROM sale_orders WHERE item = $1 AND epoch = $2 AND number = $3"
));
/// A rejected or lost order is returned only if there is no other.
const OF_REQUEST: Sql = Sql::same(concat!(
    "SELECT ",
    columns!(),
    " FROM sale_orders WHERE buyer = $2 AND item = $1 AND request = $3 \
     ORDER BY CASE WHEN state IN ('rejected', 'lost') THEN 1 ELSE 0 END, epoch DESC, number DESC LIMIT 1"
));
const OF_BUYER: Sql = Sql::same(concat!(
    "SELECT ",
    columns!(),
    " FROM sale_orders WHERE buyer = $1 ORDER BY committed_at DESC, epoch DESC, number DESC LIMIT $2"
));
/// In the order of the primary key, so that the newest are found without reading the rest.
const OF_ITEM: Sql = Sql::same(concat!(
    "SELECT ",
    columns!(),
    " FROM sale_orders WHERE item = $1 AND ($2 = '' OR state = $2) \
     ORDER BY epoch DESC, number DESC LIMIT $3"
));
/// In the order in which they were accepted.
const DEAD: Sql = Sql::same(concat!(
    "SELECT ",
    columns!(),
    " FROM sale_orders WHERE item = $1 AND state = 'dead' ORDER BY epoch, number LIMIT $2"
));
const COUNTS: Sql = Sql::same(
    "SELECT state, count(*), CAST(sum(units) AS BIGINT) FROM sale_orders WHERE item = $1 GROUP BY state",
);

/// An order, and how often units were reserved for it.
#[derive(Clone, Debug)]
pub(super) struct OrderRow {
    pub(super) order: Order,
    pub(super) round: u64,
}

/// The key of an order, in the database's types.
pub(super) fn key(id: &OrderId) -> [Param<'_>; 3] {
    [
        Param::Text(id.item()),
        Param::Int(int(id.epoch())),
        Param::Int(int(id.number())),
    ]
}

/// One order, under the lock of its item.
pub(super) async fn read(session: &mut Session, id: &OrderId) -> Result<Option<OrderRow>, Fault> {
    let rows = session.rows(ONE, &key(id)).await?;
    Ok(rows.first().map(order_row).transpose()?)
}

pub(super) async fn one(books: &Books, id: &OrderId) -> Result<Option<Order>> {
    if !may_exist(id) {
        return Ok(None);
    }
    let doing = format!("read order `{id}` from the ledger");
    Ok(orders(books, &doing, ONE, &key(id)).await?.pop())
}

pub(super) async fn of_request(
    books: &Books,
    item: &str,
    buyer: &str,
    request: &str,
) -> Result<Option<Order>> {
    if item_name(item).is_err() || buyer_name(buyer).is_err() || request_id(request).is_err() {
        return Ok(None);
    }
    let doing = format!("read the order of request `{request}` from the ledger");
    let params = [Param::Text(item), Param::Text(buyer), Param::Text(request)];
    Ok(orders(books, &doing, OF_REQUEST, &params).await?.pop())
}

pub(super) async fn of_buyer(books: &Books, buyer: &str, count: usize) -> Result<Vec<Order>> {
    if buyer_name(buyer).is_err() {
        return Ok(Vec::new());
    }
    let doing = format!("read the orders of `{buyer}` from the ledger");
    let params = [Param::Text(buyer), Param::Int(limit(count))];
    orders(books, &doing, OF_BUYER, &params).await
}

pub(super) async fn of_item(
    books: &Books,
    item: &str,
    state: Option<OrderState>,
    count: usize,
) -> Result<Vec<Order>> {
    if item_name(item).is_err() {
        return Ok(Vec::new());
    }
    let doing = format!("read the orders of item `{item}` from the ledger");
    let word = state.map_or("", OrderState::word);
    let params = [
        Param::Text(item),
        Param::Text(word),
        Param::Int(limit(count)),
    ];
    orders(books, &doing, OF_ITEM, &params).await
}

/// Dead orders, with the reasons.
pub(super) async fn dead(books: &Books, item: &str, count: usize) -> Result<Vec<(Order, String)>> {
    if item_name(item).is_err() {
        return Ok(Vec::new());
    }
    let doing = format!("read the dead orders of item `{item}` from the ledger");
    let params = [Param::Text(item), Param::Int(limit(count))];
    let rows = books.rows(&doing, DEAD, &params).await?;
    let dead = rows.iter().map(|row| {
        let order = order_row(row)?.order;
        let note = order.note.clone().unwrap_or_default();
        Ok((order, note))
    });
    let dead: Result<Vec<_>, sqlx::Error> = dead.collect();
    dead.map_err(|error| Fault::Sql(error).told(&doing))
}

pub(super) async fn counts(books: &Books, item: &str) -> Result<Vec<Count>> {
    if item_name(item).is_err() {
        return Ok(Vec::new());
    }
    let doing = format!("count the orders of item `{item}`");
    let rows = books.rows(&doing, COUNTS, &[Param::Text(item)]).await?;
    let counts: Result<Vec<Count>, sqlx::Error> = rows.iter().map(count_of).collect();
    let mut counts = counts.map_err(|error| Fault::Sql(error).told(&doing))?;
    counts.sort_by_key(|count| count.state);
    Ok(counts)
}

/// A page size in the database's type.
pub(super) fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whether the id could be in the ledger at all. Others are simply unknown.
pub(super) fn may_exist(id: &OrderId) -> bool {
    let fits = |number: u64| i64::try_from(number).is_ok();
    item_name(id.item()).is_ok() && fits(id.epoch()) && fits(id.number())
}

async fn orders(books: &Books, doing: &str, sql: Sql, params: &[Param<'_>]) -> Result<Vec<Order>> {
    let rows = books.rows(doing, sql, params).await?;
    let orders = rows.iter().map(|row| Ok(order_row(row)?.order));
    let orders: Result<Vec<Order>, sqlx::Error> = orders.collect();
    orders.map_err(|error| Fault::Sql(error).told(doing))
}

fn order_row(row: &Row) -> Result<OrderRow, sqlx::Error> {
    let item: String = row.get(0)?;
    let pay_by: Option<i64> = row.get(8)?;
    let order = Order {
        id: OrderId::new(item, row.number(1)?, row.number(2)?),
        buyer: row.get(3)?,
        request: row.get(4)?,
        units: row.number(5)?,
        state: row.word(6, OrderState::of_word)?,
        accepted_at: moment(row.get(7)?),
        pay_by: pay_by.map(moment),
        note: row.get(10)?,
    };
    Ok(OrderRow {
        order,
        round: row.number(9)?,
    })
}

fn count_of(row: &Row) -> Result<Count, sqlx::Error> {
    Ok(Count {
        state: row.word(0, OrderState::of_word)?,
        orders: row.number(1)?,
        units: row.number(2)?,
    })
}
