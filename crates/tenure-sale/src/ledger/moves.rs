//! State changes of orders, each by compare-and-set under the lock of the item.

use std::collections::BTreeMap;

use crate::change::What;
use crate::error::{Error, Result};
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::changes::record;
use crate::ledger::fate::Moved;
use crate::ledger::fault::Fault;
use crate::ledger::items::{Locked, lock, postgres_now, sqlite_now};
use crate::ledger::lose::{LOST, reopen};
use crate::ledger::orders::{OrderRow, key, limit, may_exist, read};
use crate::ledger::sql::{Column, Param, Row, Sql, foreign, int};
use crate::ledger::timestamps::moment;
use crate::order::{Order, OrderId, OrderState};

const SET_STATE: Sql = Sql::same(
    "UPDATE sale_orders SET state = $5, pay_by = $6 \
     WHERE item = $1 AND epoch = $2 AND number = $3 AND state = $4",
);
const RELEASE: Sql = Sql::same(
    "INSERT INTO sale_journal (item, epoch, number, kind, round, units, at) \
     VALUES ($1, $2, $3, 'release', $4, $5, $6)",
);
const WISH: Sql = Sql::same(
    "INSERT INTO sale_cancel_wishes (item, epoch, number, at) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (item, epoch, number) DO NOTHING",
);
const INSERT_LOST: Sql = Sql::same(
    "INSERT INTO sale_orders (item, epoch, number, buyer, request, units, state, accepted_at, \
     committed_at, note) VALUES ($1, $2, $3, '', '', 0, 'lost', $4, $4, $5)",
);
const OVERDUE: Sql = Sql::each(
    concat!(
        "SELECT item, epoch, number FROM sale_orders WHERE state = 'reserved' AND pay_by IS NOT NULL \
         AND pay_by <= ",
        sqlite_now!(),
        " AND item NOT IN (SELECT value ->> 0 FROM json_each($2)) ORDER BY pay_by LIMIT $1"
    ),
    concat!(
        "SELECT item, epoch, number FROM sale_orders WHERE state = 'reserved' AND pay_by IS NOT NULL \
         AND pay_by <= ",
        postgres_now!(),
        " AND item <> ALL ($2::text[]) ORDER BY pay_by LIMIT $1"
    ),
);

/// Orders that were paid for, cancelled or expired meanwhile are left alone.
const EXPIRE: Sql = Sql::each(
    "UPDATE sale_orders SET state = 'expired', pay_by = NULL \
     WHERE item = $1 AND state = 'reserved' AND pay_by <= $2 \
     AND (epoch, number) IN (SELECT value ->> 0, value ->> 1 FROM json_each($3)) \
     RETURNING epoch, number, buyer, units, round",
    "UPDATE sale_orders AS o SET state = 'expired', pay_by = NULL \
     FROM unnest($3::bigint[], $4::bigint[]) AS w (epoch, number) \
     WHERE o.item = $1 AND o.epoch = w.epoch AND o.number = w.number \
     AND o.state = 'reserved' AND o.pay_by <= $2 \
     RETURNING o.epoch, o.number, o.buyer, o.units, o.round",
);
const RELEASE_ALL: Sql = Sql::each(
    "INSERT INTO sale_journal (item, at, kind, epoch, number, round, units) \
     SELECT $1, $2, 'release', value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each($3)",
    "INSERT INTO sale_journal (item, at, kind, epoch, number, round, units) \
     SELECT $1, $2, 'release', w.* FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS w",
);
/// How many orders expire in one transaction: others wait for the item meanwhile.
const BATCH: usize = 500;

/// Moves one order to another state.
pub(super) struct Move<'a> {
    pub(super) order: &'a OrderId,
    pub(super) to: Target,
}

/// The target states of an order, and the states from which they are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Paid,
    Cancelled,
    PaidUnfulfilled,
    Revived,
    Lost,
}

impl Target {
    fn state(self) -> OrderState {
        match self {
            Self::Paid => OrderState::Paid,
            Self::Cancelled => OrderState::Cancelled,
            Self::PaidUnfulfilled => OrderState::PaidUnfulfilled,
            Self::Revived => OrderState::Reserved,
            Self::Lost => OrderState::Lost,
        }
    }

    fn from(self) -> &'static [OrderState] {
        match self {
            Self::Paid => &[OrderState::Reserved],
            Self::Cancelled => &[OrderState::Reserved, OrderState::Dead],
            Self::PaidUnfulfilled => &[OrderState::Expired, OrderState::Cancelled],
            Self::Revived => &[OrderState::Dead],
            Self::Lost => &[],
        }
    }
}

impl Work for Move<'_> {
    type Made = Moved;

    fn doing(&self) -> String {
        format!("make order `{}` {}", self.order, self.to.state())
    }

    async fn run(&self, session: &mut Session) -> Result<Moved, Fault> {
        if !may_exist(self.order) {
            return Ok(Moved::Unknown);
        }
        let Some(mut locked) = lock(session, self.order.item()).await? else {
            return Ok(Moved::Unknown);
        };
        let Some(row) = read(session, self.order).await? else {
            return self.unknown(session, &mut locked).await;
        };
        let state = row.order.state;
        if state == self.to.state() {
            return Ok(Moved::Already(row.order));
        }
        if !self.to.from().contains(&state) {
            return Ok(Moved::Refused(row.order));
        }
        let pay_by = match self.to {
            Target::Revived => locked.pay_by(),
            _ => None,
        };
        let what = change_state(session, &mut locked, &row, self.to.state(), pay_by).await?;
        record(session, &mut locked, &[what]).await?;
        Ok(Moved::Done(Order {
            state: self.to.state(),
            pay_by: pay_by.map(moment),
            ..row.order
        }))
    }
}

impl Move<'_> {
    /// The ledger does not know the order.
    async fn unknown(&self, session: &mut Session, locked: &mut Locked) -> Result<Moved, Fault> {
        let [item, epoch, number] = key(self.order);
        let params = [item, epoch, number, Param::Int(locked.now)];
        let arrives = self.order.epoch() == locked.item.epoch;
        let arrived_never = self.order.epoch() < locked.item.epoch;
        match self.to {
            // An order of an older epoch will not arrive, and one of a newer epoch does not exist.
            Target::Cancelled if arrives => {
                session.run(WISH, &params).await?;
                Ok(Moved::Unknown)
            }
            Target::Lost if arrived_never => {
                let [item, epoch, number, now] = params;
                let params = [item, epoch, number, now, Param::Text(LOST)];
                session.run(INSERT_LOST, &params).await?;
                let (id, spread) = (self.order, locked.item.spread);
                reopen(session, id.item(), id.epoch(), spread, &[id.number()]).await?;
                let lost = What::Committed {
                    orders: vec![self.order.clone()],
                    state: OrderState::Lost,
                };
                record(session, locked, &[lost]).await?;
                let row = read(session, self.order).await?;
                Ok(row.map_or(Moved::Unknown, |row| Moved::Done(row.order)))
            }
            _ => Ok(Moved::Unknown),
        }
    }
}

/// The result of expiring overdue orders.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    pub(crate) expired: Vec<OrderId>,
    /// An item whose orders cannot expire, and why. There may be more orders of other items.
    pub(crate) failed: Option<(String, Error)>,
}

/// Expires overdue orders of all items but these, one transaction for each item.
pub(super) async fn expire(books: &Books, but: &[&str], count: usize) -> Result<Expiry> {
    let mut expiry = Expiry::default();
    for orders in overdue(books, but, count).await?.values() {
        for orders in orders.chunks(BATCH) {
            match books.write(&Expire(orders)).await {
                Ok(done) => expiry.expired.extend(done),
                // Whether the ledger is there is shown by the next look.
                Err(error) => {
                    let item = orders[0].item().to_owned();
                    expiry.failed = Some((item, error));
                    return Ok(expiry);
                }
            }
        }
    }
    Ok(expiry)
}

/// Overdue orders, by item.
async fn overdue(
    books: &Books,
    but: &[&str],
    count: usize,
) -> Result<BTreeMap<String, Vec<OrderId>>> {
    let doing = "look for orders that were not paid for in time";
    let columns = [Column::Texts(but.to_vec())];
    let params = [Param::Int(limit(count)), Param::Bulk(&columns)];
    let rows = books.rows(doing, OVERDUE, &params).await?;
    let mut overdue: BTreeMap<String, Vec<OrderId>> = BTreeMap::new();
    for row in rows {
        let id = || -> Result<OrderId, sqlx::Error> {
            Ok(OrderId::new(
                row.get::<String>(0)?,
                row.number(1)?,
                row.number(2)?,
            ))
        };
        let id = id().map_err(|error| Fault::Sql(error).told(doing))?;
        overdue.entry(id.item().to_owned()).or_default().push(id);
    }
    Ok(overdue)
}

/// Orders of one item that seemed overdue.
struct Expire<'a>(&'a [OrderId]);

impl Work for Expire<'_> {
    type Made = Vec<OrderId>;

    fn doing(&self) -> String {
        format!("expire {} orders", self.0.len())
    }

    async fn run(&self, session: &mut Session) -> Result<Vec<OrderId>, Fault> {
        let item = self.0.first().map_or("", OrderId::item);
        let Some(mut locked) = lock(session, item).await? else {
            return Ok(Vec::new());
        };
        let keys = [
            Column::Ints(self.0.iter().map(|id| int(id.epoch())).collect()),
            Column::Ints(self.0.iter().map(|id| int(id.number())).collect()),
        ];
        let params = [
            Param::Text(item),
            Param::Int(locked.now),
            Param::Bulk(&keys),
        ];
        let rows = session.rows(EXPIRE, &params).await?;
        let expired: Result<Vec<Expired>, _> =
            rows.iter().map(|row| Expired::of(item, row)).collect();
        let expired = expired?;
        if expired.is_empty() {
            return Ok(Vec::new());
        }
        release_all(session, &mut locked, &expired).await?;
        let changes: Vec<What> = expired.iter().map(Expired::change).collect();
        record(session, &mut locked, &changes).await?;
        Ok(expired.into_iter().map(|expired| expired.id).collect())
    }
}

/// An order that has just expired.
struct Expired {
    id: OrderId,
    buyer: String,
    units: u64,
    round: u64,
}

impl Expired {
    fn of(item: &str, row: &Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: OrderId::new(item, row.number(0)?, row.number(1)?),
            buyer: row.get(2)?,
            units: row.number(3)?,
            round: row.number(4)?,
        })
    }

    fn change(&self) -> What {
        What::Released {
            order: self.id.clone(),
            state: OrderState::Expired,
            buyer: self.buyer.clone(),
            units: self.units,
        }
    }
}

async fn release_all(
    session: &mut Session,
    locked: &mut Locked,
    expired: &[Expired],
) -> Result<(), Fault> {
    let ints = |of: fn(&Expired) -> u64| Column::Ints(expired.iter().map(of).map(int).collect());
    let columns = [
        ints(|order| order.id.epoch()),
        ints(|order| order.id.number()),
        ints(|order| order.round),
        ints(|order| order.units),
    ];
    let item = locked.item.name.as_str();
    let params = [
        Param::Text(item),
        Param::Int(locked.now),
        Param::Bulk(&columns),
    ];
    session.run(RELEASE_ALL, &params).await?;
    let units: u64 = expired.iter().map(|order| order.units).sum();
    let sold = locked.item.sold.checked_sub(units);
    let sold = sold.ok_or_else(|| foreign(format!("less is sold of `{item}` than expired")))?;
    locked.item.sold = sold;
    Ok(())
}

/// Changes the state; if the order releases its units, records that in the journal and lowers the
/// sold count. Returns what to announce.
async fn change_state(
    session: &mut Session,
    locked: &mut Locked,
    row: &OrderRow,
    to: OrderState,
    pay_by: Option<i64>,
) -> Result<What, Fault> {
    let Order {
        id,
        buyer,
        units,
        state: from,
        ..
    } = &row.order;
    let [item, epoch, number] = key(id);
    let params = [
        item,
        epoch,
        number,
        Param::Text(from.word()),
        Param::Text(to.word()),
        Param::MaybeInt(pay_by),
    ];
    let contradiction = || foreign(format!("order `{id}` changed under its lock"));
    if session.run(SET_STATE, &params).await? != 1 {
        return Err(contradiction().into());
    }
    let (order, units) = (id.clone(), *units);
    if !from.holds_units() || to.holds_units() {
        return Ok(What::Moved { order, state: to });
    }
    let [item, epoch, number] = key(id);
    let params = [
        item,
        epoch,
        number,
        Param::Int(int(row.round)),
        Param::Int(int(units)),
        Param::Int(locked.now),
    ];
    session.run(RELEASE, &params).await?;
    let sold = locked.item.sold.checked_sub(units);
    locked.item.sold = sold.ok_or_else(contradiction)?;
    Ok(What::Released {
        order,
        state: to,
        buyer: buyer.clone(),
        units,
    })
}
