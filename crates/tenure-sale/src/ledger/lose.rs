//! Records lost orders: each once, with what is known of it.

use std::collections::BTreeMap;

use crate::change::What;
use crate::entry::Lost;
use crate::ledger::books::{Session, Work};
use crate::ledger::changes::record;
use crate::ledger::fault::Fault;
use crate::ledger::items::lock;
use crate::ledger::sql::{Column, Param, Sql, int};
use crate::names::{buyer_name, request_id};
use crate::order::{ORDER_UNITS_MAX, OrderId, OrderState};

/// The note of a lost order.
pub(crate) const LOST: &str = "the gate lost it before it reached the ledger";

/// More was given out than was known: what is missing below it is lost, too.
const REOPEN: Sql = Sql::same(
    "UPDATE sale_epochs SET counted = FALSE, entries = $4 \
     WHERE item = $1 AND epoch = $2 AND shelf = $3 AND open AND entries < $4",
);
const INSERT: Sql = Sql::each(
    "INSERT INTO sale_orders (item, committed_at, accepted_at, note, epoch, state, number, buyer, \
     request, units) \
     SELECT $1, $2, $2, $3, $4, 'lost', value ->> 0, value ->> 1, value ->> 2, value ->> 3 \
     FROM json_each($5) WHERE TRUE ON CONFLICT (item, epoch, number) DO NOTHING RETURNING number",
    "INSERT INTO sale_orders (item, committed_at, accepted_at, note, epoch, state, number, buyer, \
     request, units) \
     SELECT $1, $2, $2, $3, $4, 'lost', w.* \
     FROM unnest($5::bigint[], $6::text[], $7::text[], $8::bigint[]) AS w \
     ON CONFLICT (item, epoch, number) DO NOTHING RETURNING number",
);
/// An order that was recorded when nobody knew whose it was.
const COMPLETE: Sql = Sql::same(
    "UPDATE sale_orders SET buyer = $4, request = $5, units = $6 \
     WHERE item = $1 AND epoch = $2 AND number = $3 AND state = 'lost' AND buyer = ''",
);
/// An entry that is no order, or was discarded.
const SETTLE: Sql = Sql::same(
    "INSERT INTO sale_settled (item, epoch, number, kind, done, at) \
     VALUES ($1, $2, $3, 'withdrawal', FALSE, $4) ON CONFLICT (item, epoch, number) DO NOTHING",
);

/// Orders of one ended epoch that never arrived.
pub(super) struct Lose<'a> {
    pub(super) item: &'a str,
    pub(super) epoch: u64,
    pub(super) orders: &'a [Lost],
}

impl Work for Lose<'_> {
    /// Those that were not known to be lost.
    type Made = Vec<OrderId>;

    fn doing(&self) -> String {
        format!("record lost orders of item `{}`", self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<Vec<OrderId>, Fault> {
        let Some(mut locked) = lock(session, self.item).await? else {
            return Ok(Vec::new());
        };
        if self.epoch >= locked.item.epoch {
            return Ok(Vec::new());
        }
        let orders: Vec<&Lost> = self.orders.iter().filter(|it| is_order(it)).collect();
        let columns = [
            Column::Ints(orders.iter().map(|it| int(it.number)).collect()),
            Column::Texts(orders.iter().map(|it| it.buyer.as_str()).collect()),
            Column::Texts(orders.iter().map(|it| it.request.as_str()).collect()),
            Column::Ints(orders.iter().map(|it| int(it.units)).collect()),
        ];
        let params = [
            Param::Text(self.item),
            Param::Int(locked.now),
            Param::Text(LOST),
            Param::Int(int(self.epoch)),
            Param::Bulk(&columns),
        ];
        let rows = session.rows(INSERT, &params).await?;
        let new: Result<Vec<u64>, sqlx::Error> = rows.iter().map(|row| row.number(0)).collect();
        let mut new = new?;
        new.sort_unstable();
        self.complete(session, &orders, &new).await?;
        for entry in self.orders.iter().filter(|it| !is_order(it)) {
            settle(session, self.item, self.epoch, entry.number, locked.now).await?;
        }
        let spread = locked.item.spread;
        reopen(session, self.item, self.epoch, spread, &new).await?;
        let order = |number: &u64| OrderId::new(self.item, self.epoch, *number);
        let new: Vec<OrderId> = new.iter().map(order).collect();
        if !new.is_empty() {
            let lost = What::Committed {
                orders: new.clone(),
                state: OrderState::Lost,
            };
            record(session, &mut locked, &[lost]).await?;
        }
        Ok(new)
    }
}

impl Lose<'_> {
    /// Adds to earlier records whose orders they are.
    async fn complete(
        &self,
        session: &mut Session,
        orders: &[&Lost],
        new: &[u64],
    ) -> Result<(), Fault> {
        let known = orders.iter().filter(|it| !it.buyer.is_empty());
        for lost in known.filter(|it| new.binary_search(&it.number).is_err()) {
            let params = [
                Param::Text(self.item),
                Param::Int(int(self.epoch)),
                Param::Int(int(lost.number)),
                Param::Text(&lost.buyer),
                Param::Text(&lost.request),
                Param::Int(int(lost.units)),
            ];
            session.run(COMPLETE, &params).await?;
        }
        Ok(())
    }
}

/// Whether it can be recorded as an order: nobody knows whose it was, or its names are in order.
pub(super) fn is_order(lost: &Lost) -> bool {
    !lost.is_no_order
        && (lost.buyer.is_empty()
            || buyer_name(&lost.buyer).is_ok()
                && request_id(&lost.request).is_ok()
                && lost.units <= ORDER_UNITS_MAX)
}

/// Notes that these numbers of an ended epoch were given out.
pub(super) async fn reopen(
    session: &mut Session,
    item: &str,
    epoch: u64,
    spread: u64,
    numbers: &[u64],
) -> Result<(), Fault> {
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for number in numbers {
        let end = ends.entry(number % spread).or_default();
        *end = (*end).max(number / spread + 1);
    }
    for (shelf, end) in ends {
        let params = [
            Param::Text(item),
            Param::Int(int(epoch)),
            Param::Int(int(shelf)),
            Param::Int(int(end)),
        ];
        session.run(REOPEN, &params).await?;
    }
    Ok(())
}

/// An entry that leaves no other trace.
pub(super) struct Discard<'a>(pub(super) &'a OrderId);

impl Work for Discard<'_> {
    type Made = ();

    fn doing(&self) -> String {
        format!("discard entry `{}`", self.0)
    }

    async fn run(&self, session: &mut Session) -> Result<(), Fault> {
        let (item, epoch, number) = (self.0.item(), self.0.epoch(), self.0.number());
        if let Some(locked) = lock(session, item).await? {
            settle(session, item, epoch, number, locked.now).await?;
        }
        Ok(())
    }
}

async fn settle(
    session: &mut Session,
    item: &str,
    epoch: u64,
    number: u64,
    now: i64,
) -> Result<(), Fault> {
    let params = [
        Param::Text(item),
        Param::Int(int(epoch)),
        Param::Int(int(number)),
        Param::Int(now),
    ];
    session.run(SETTLE, &params).await?;
    Ok(())
}
