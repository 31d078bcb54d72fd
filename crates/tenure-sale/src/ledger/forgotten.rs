//! Orders that a ledger has forgotten: it was put back, and the gate still knows them.

use std::collections::{BTreeMap, HashSet};

use crate::change::What;
use crate::entry::Lost;
use crate::error::Result;
use crate::ledger::books::{Session, Work};
use crate::ledger::changes::record;
use crate::ledger::epochs::end_open;
use crate::ledger::fault::Fault;
use crate::ledger::items::lock_known;
use crate::ledger::lose::is_order;
use crate::ledger::sql::{Column, Param, Sql, int};
use crate::order::{OrderId, OrderState};

const ADOPT: Sql = Sql::same("UPDATE sale_items SET epoch = $2 WHERE name = $1 AND epoch < $2");
/// An order that stands is in the way of another one with its request.
const INSERT: Sql = Sql::same(
    "INSERT INTO sale_orders (item, epoch, number, buyer, request, units, state, accepted_at, \
     committed_at, note) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $8, $9 \
     WHERE NOT EXISTS (SELECT 1 FROM sale_orders WHERE item = $1 AND epoch = $2 AND number = $3) \
     AND NOT EXISTS (SELECT 1 FROM sale_orders WHERE item = $1 AND buyer = $4 AND request = $5 \
     AND state NOT IN ('rejected', 'lost'))",
);
const RESERVE: Sql = Sql::same(
    "INSERT INTO sale_journal (item, epoch, number, kind, round, units, at) \
     VALUES ($1, $2, $3, 'reserve', 1, $4, $5)",
);
const KNOWN: Sql = Sql::each(
    "SELECT o.epoch, o.number FROM json_each($2) AS w CROSS JOIN sale_orders AS o \
     ON o.item = $1 AND o.epoch = w.value ->> 0 AND o.number = w.value ->> 1",
    "SELECT o.epoch, o.number FROM unnest($2::bigint[], $3::bigint[]) AS w (epoch, number) \
     JOIN sale_orders AS o ON o.item = $1 AND o.epoch = w.epoch AND o.number = w.number",
);

const DEAD: &str = "the ledger was put back and had forgotten it; its units stay reserved until \
                    somebody decides";
const LOST: &str = "the ledger was put back and had forgotten it, and its units are sold";

/// The gate's epoch becomes the ledger's, so that entries in the queue are its own again.
pub(super) struct Adopt<'a> {
    pub(super) item: &'a str,
    pub(super) epoch: u64,
}

impl Work for Adopt<'_> {
    type Made = ();

    fn doing(&self) -> String {
        format!("take over epoch {} of item `{}`", self.epoch, self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<(), Fault> {
        let item = lock_known(session, self.item).await?.item;
        if item.epoch < self.epoch {
            end_open(session, &item).await?;
            let params = [Param::Text(self.item), Param::Int(int(self.epoch))];
            session.run(ADOPT, &params).await?;
        }
        Ok(())
    }
}

/// Orders that the gate knows. Those that the ledger does not become dead letters: whether they were
/// paid for or cancelled since, nobody knows.
pub(super) struct Remember<'a> {
    pub(super) item: &'a str,
    pub(super) orders: &'a [(OrderId, Lost)],
}

impl Work for Remember<'_> {
    /// How many were forgotten.
    type Made = u64;

    fn doing(&self) -> String {
        format!("store forgotten orders of item `{}`", self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<u64, Fault> {
        let mut locked = lock_known(session, self.item).await?;
        let known = self.known(session).await?;
        let orders = self.orders.iter().filter(|(id, lost)| {
            is_order(lost) && !lost.buyer.is_empty() && !known.contains(&(id.epoch(), id.number()))
        });
        let mut changes: BTreeMap<(OrderState, u64), Vec<OrderId>> = BTreeMap::new();
        for (id, lost) in orders {
            let item = &mut locked.item;
            let fits = item.unlimited || item.sold.saturating_add(lost.units) <= item.total;
            let (state, note) = if fits {
                (OrderState::Dead, DEAD)
            } else {
                (OrderState::Lost, LOST)
            };
            let params = [
                Param::Text(self.item),
                Param::Int(int(id.epoch())),
                Param::Int(int(id.number())),
                Param::Text(&lost.buyer),
                Param::Text(&lost.request),
                Param::Int(int(lost.units)),
                Param::Text(state.word()),
                Param::Int(locked.now),
                Param::Text(note),
            ];
            if session.run(INSERT, &params).await? == 0 {
                continue;
            }
            if fits {
                item.sold += lost.units;
                let [name, epoch, number, _, _, units, _, now, _] = params;
                let params = [name, epoch, number, units, now];
                session.run(RESERVE, &params).await?;
            }
            let same = changes.entry((state, id.epoch())).or_default();
            same.push(id.clone());
        }
        let forgotten = changes.values().map(|orders| orders.len() as u64).sum();
        let changes = changes.into_iter().map(|((state, _), mut orders)| {
            orders.sort();
            What::Committed { orders, state }
        });
        let changes: Vec<What> = changes.collect();
        if !changes.is_empty() {
            record(session, &mut locked, &changes).await?;
        }
        Ok(forgotten)
    }
}

impl Remember<'_> {
    async fn known(&self, session: &mut Session) -> Result<HashSet<(u64, u64)>, Fault> {
        let keys = [
            Column::Ints(self.orders.iter().map(|(id, _)| int(id.epoch())).collect()),
            Column::Ints(self.orders.iter().map(|(id, _)| int(id.number())).collect()),
        ];
        let params = [Param::Text(self.item), Param::Bulk(&keys)];
        let rows = session.rows(KNOWN, &params).await?;
        let known: Result<_, sqlx::Error> = rows
            .iter()
            .map(|row| Ok((row.number(0)?, row.number(1)?)))
            .collect();
        Ok(known?)
    }
}
