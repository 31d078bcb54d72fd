//! The data that a gate is loaded with.

use std::time::Duration;

use tenure::Fence;

use crate::error::{Error, ErrorKind, Result};
use crate::gate::{Ended, Load, Remembered};
use crate::item::{Item, Terms};
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::fault::Fault;
use crate::ledger::items::{lock_known, postgres_now, sqlite_now};
use crate::ledger::orders::{key, limit, may_exist};
use crate::ledger::sql::{Param, Row, Sql, int};
use crate::ledger::timestamps::duration_ms;
use crate::names::item_name;
use crate::order::OrderId;

const SET_EPOCH: Sql = Sql::same(
    "UPDATE sale_items SET epoch = $2, fence = $3 WHERE name = $1 AND epoch < $2 AND fence < $3",
);
/// Orders of older epochs arrive as lost, even if a cancellation was stored.
const FORGET_WISHES: Sql =
    Sql::same("DELETE FROM sale_cancel_wishes WHERE item = $1 AND epoch < $2");
const BUYERS: Sql = Sql::same(
    "SELECT buyer, CAST(sum(units) AS BIGINT) FROM sale_orders \
     WHERE item = $1 AND buyer > $2 AND state IN ('reserved', 'paid', 'dead') \
     AND state NOT IN ('rejected', 'lost') GROUP BY buyer ORDER BY buyer LIMIT $3",
);

const END: Sql = Sql::same(
    "INSERT INTO sale_epochs (item, epoch, shelf, entries) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (item, epoch, shelf) DO NOTHING",
);
/// A shelf whose server lost its data: how many entries it was given is not known.
const END_OPEN: Sql = Sql::same(
    "INSERT INTO sale_epochs (item, epoch, shelf, entries, open) VALUES ($1, $2, $3, 0, TRUE) \
     ON CONFLICT (item, epoch, shelf) DO NOTHING",
);
/// Whether an order was given out in an epoch that has ended: how many its shelf gave out, if that
/// is known, and the last that arrived.
const GIVEN: Sql = Sql::same(
    "SELECT i.epoch, i.spread, i.backlog_max, \
     (SELECT e.entries FROM sale_epochs AS e \
      WHERE e.item = i.name AND e.epoch = $2 AND e.shelf = $3 % i.spread AND NOT e.open), \
     (SELECT max(o.number) FROM sale_orders AS o \
      WHERE o.item = i.name AND o.epoch = $2 AND o.state <> 'lost') \
     FROM sale_items AS i WHERE i.name = $1",
);

/// A lost order is not an answer: its buyer may submit again. Any other but a rejected one is the
/// order of its request for good: the ledger accepts no second one. A rejected order is an answer
/// for some time, unless its request became another order.
macro_rules! answers {
    ($now:expr) => {
        concat!(
            "SELECT o.epoch, o.number, o.buyer, o.request, o.units FROM sale_orders AS o \
             WHERE o.item = $1 AND (o.epoch, o.number) > ($2, $3) AND o.state <> 'lost' \
             AND (o.state <> 'rejected' OR o.accepted_at >= ",
            $now,
            " - $4) AND (o.state <> 'rejected' OR NOT EXISTS (SELECT 1 FROM sale_orders AS twin \
             WHERE twin.item = o.item AND twin.buyer = o.buyer AND twin.request = o.request \
             AND twin.state NOT IN ('rejected', 'lost'))) ORDER BY o.epoch, o.number LIMIT $5"
        )
    };
}
const ANSWERS: Sql = Sql::each(answers!(sqlite_now!()), answers!(postgres_now!()));

/// The item's next epoch.
pub(super) struct NextEpoch<'a> {
    pub(super) item: &'a str,
    pub(super) fence: Fence,
    /// The gate's load has begun under this epoch.
    pub(super) least: u64,
}

impl Work for NextEpoch<'_> {
    type Made = Load;

    fn doing(&self) -> String {
        format!("begin the next epoch of item `{}`", self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<Load, Fault> {
        let locked = lock_known(session, self.item).await?;
        let fits = i64::try_from(self.fence.get()).is_ok();
        if !fits || self.fence.get() <= locked.fence {
            let message = format!(
                "cannot begin the next epoch of item `{}` under fence {}: fence {} came first; its \
                 holder rebuilds the gate",
                self.item, self.fence, locked.fence
            );
            return Err(Error::new(ErrorKind::Conflict, message).into());
        }
        let item = locked.item;
        let epoch = (item.epoch + 1).max(self.least);
        let name = || Param::Text(self.item);
        let params = [
            name(),
            Param::Int(int(epoch)),
            Param::Int(int(self.fence.get())),
        ];
        session.run(SET_EPOCH, &params).await?;
        session.run(FORGET_WISHES, &params[..2]).await?;
        end_open(session, &item).await?;
        Ok(Load {
            epoch,
            fence: self.fence,
            state: item.state,
            left: (!item.unlimited).then(|| item.total - item.sold),
            change: item.change,
            spread: item.spread,
            terms: item.terms,
        })
    }
}

/// Ends the epoch of the shelves of which nothing more is known.
pub(super) async fn end_open(session: &mut Session, item: &Item) -> Result<(), Fault> {
    let shelves = if item.epoch == 0 { 0 } else { item.spread };
    for shelf in 0..shelves {
        let params = [
            Param::Text(&item.name),
            Param::Int(int(item.epoch)),
            Param::Int(int(shelf)),
        ];
        session.run(END_OPEN, &params).await?;
    }
    Ok(())
}

/// What is known of an epoch that ends.
pub(super) struct EndEpoch<'a> {
    pub(super) item: &'a str,
    pub(super) ended: &'a [Ended],
}

impl Work for EndEpoch<'_> {
    type Made = ();

    fn doing(&self) -> String {
        format!("record the end of an epoch of item `{}`", self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<(), Fault> {
        let item = lock_known(session, self.item).await?.item;
        for ended in self.ended.iter().filter(|it| it.epoch == item.epoch) {
            let params = [
                Param::Text(self.item),
                Param::Int(int(ended.epoch)),
                Param::Int(int(ended.shelf)),
                Param::Int(int(ended.entries)),
            ];
            session.run(END, &params).await?;
        }
        Ok(())
    }
}

/// Whether an order that is not in the ledger may have been accepted in an epoch that has ended.
pub(super) async fn may_be_lost(books: &Books, order: &OrderId) -> Result<bool> {
    if !may_exist(order) || order.epoch() == 0 {
        return Ok(false);
    }
    let doing = format!("look whether order `{order}` was ever accepted");
    let rows = books.rows(&doing, GIVEN, &key(order)).await?;
    let Some(row) = rows.first() else {
        return Ok(false);
    };
    let given = || -> Result<bool, sqlx::Error> {
        let spread = row.number(1)?;
        if order.epoch() >= row.number(0)? {
            return Ok(false);
        }
        if let Some(entries) = row.maybe_number(3)? {
            return Ok(order.number() / spread < entries);
        }
        // More than the queue may hold were not accepted after the last one that arrived.
        let most = row.number(2)?.max(Terms::default().backlog_max);
        let last = row.maybe_number(4)?.unwrap_or_default();
        Ok(order.number() <= last.saturating_add(most.saturating_mul(spread)))
    };
    given().map_err(|error| Fault::Sql(error).told(&doing))
}

pub(super) async fn buyers(
    books: &Books,
    item: &str,
    after: Option<&str>,
    count: usize,
) -> Result<Vec<(String, u64)>> {
    if item_name(item).is_err() {
        return Ok(Vec::new());
    }
    let doing = format!("read what buyers have of item `{item}`");
    let params = [
        Param::Text(item),
        Param::Text(after.unwrap_or_default()),
        Param::Int(limit(count)),
    ];
    let rows = books.rows(&doing, BUYERS, &params).await?;
    let buyer = |row: &Row| Ok((row.get(0)?, row.number(1)?));
    let buyers: Result<_, sqlx::Error> = rows.iter().map(buyer).collect();
    buyers.map_err(|error| Fault::Sql(error).told(&doing))
}

pub(super) async fn answers(
    books: &Books,
    item: &str,
    within: Duration,
    after: Option<&OrderId>,
    count: usize,
) -> Result<Vec<Remembered>> {
    if item_name(item).is_err() {
        return Ok(Vec::new());
    }
    let doing = format!("read the answers given for item `{item}`");
    let (epoch, number) = after.map_or((0, 0), |id| (id.epoch(), id.number()));
    let params = [
        Param::Text(item),
        Param::Int(int(epoch)),
        Param::Int(int(number)),
        Param::Int(duration_ms(within)),
        Param::Int(limit(count)),
    ];
    let rows = books.rows(&doing, ANSWERS, &params).await?;
    let answer = |row: &Row| {
        Ok(Remembered {
            order: OrderId::new(item, row.number(0)?, row.number(1)?),
            buyer: row.get(2)?,
            request: row.get(3)?,
            units: row.number(4)?,
        })
    };
    let answers: Result<_, sqlx::Error> = rows.iter().map(answer).collect();
    answers.map_err(|error| Fault::Sql(error).told(&doing))
}
