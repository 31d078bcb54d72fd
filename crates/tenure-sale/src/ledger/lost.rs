//! Lost orders: numbers of ended epochs that the ledger does not have.

use std::collections::BTreeMap;

use crate::change::What;
use crate::entry::Lost;
use crate::error::Result;
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::changes::record;
use crate::ledger::fault::Fault;
use crate::ledger::items::lock;
use crate::ledger::orders::{key, may_exist};
use crate::ledger::sql::{Column, Param, Row, Sql, int};
use crate::names::{buyer_name, item_name, request_id};
use crate::order::{ORDER_UNITS_MAX, OrderId, OrderState};

/// The note of a lost order.
pub(crate) const LOST: &str = "the gate lost it before it reached the ledger";

/// How many gaps are read at once.
const GAPS_MAX: i64 = 10_000;

const ITEMS: Sql = Sql::same(
    "SELECT DISTINCT e.item FROM sale_epochs AS e JOIN sale_items AS i ON i.name = e.item \
     WHERE NOT e.counted AND e.epoch < i.epoch ORDER BY 1",
);
const UNCOUNTED: Sql = Sql::same(
    "SELECT e.epoch, e.shelf, e.entries, e.open, i.spread \
     FROM sale_epochs AS e JOIN sale_items AS i ON i.name = e.item \
     WHERE e.item = $1 AND NOT e.counted AND e.epoch < i.epoch ORDER BY e.epoch, e.shelf",
);
macro_rules! entries_of {
    ($where:literal) => {
        concat!(
            "SELECT number FROM sale_orders WHERE item = $1 AND epoch = $2",
            $where,
            " UNION ALL SELECT number FROM sale_settled WHERE item = $1 AND epoch = $2",
            $where
        )
    };
}
/// One pass over the epoch, without sorting it.
const ARRIVED: Sql = Sql::same(concat!(
    "SELECT n.number % $3, count(*), max(n.number) FROM (",
    entries_of!(""),
    ") AS n GROUP BY 1"
));
/// What arrived on a shelf between two numbers.
const ARRIVED_BETWEEN: Sql = Sql::same(concat!(
    "SELECT count(*) FROM (",
    entries_of!(" AND number >= $5 AND number < $6 AND number % $3 = $4"),
    ") AS n"
));
/// The gaps between two numbers of a shelf; the last number is not a gap.
const GAPS: Sql = Sql::same(concat!(
    "SELECT before + $3, (number - before) / $3 - 1 FROM ( \
       SELECT n.number, lag(n.number, 1, $5 - $3) OVER (ORDER BY n.number) AS before FROM (",
    entries_of!(" AND number >= $5 AND number < $6 AND number % $3 = $4"),
    " UNION ALL SELECT $6) AS n) AS numbered \
     WHERE number - before > $3 ORDER BY before LIMIT $7"
));
const COUNTED: Sql = Sql::same(
    "UPDATE sale_epochs SET counted = TRUE, entries = $5 \
     WHERE item = $1 AND epoch = $2 AND shelf = $3 AND entries = $4",
);
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

const SETTLED: Sql =
    Sql::same("SELECT number FROM sale_settled WHERE item = $1 AND epoch = $2 AND number = $3");

/// A shelf in an epoch that has ended, whose lost orders were not looked for since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncounted {
    pub(crate) epoch: u64,
    pub(crate) shelf: u64,
    pub(crate) spread: u64,
    /// How many entries it gave out; at least so many if it is open.
    pub(crate) entries: u64,
    pub(crate) is_open: bool,
}

/// What arrived of the entries of a shelf.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) count: u64,
    /// One more than the last that arrived.
    pub(crate) end: u64,
}

/// A run of entries of one shelf, by their place in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) epoch: u64,
    pub(crate) shelf: u64,
    pub(crate) spread: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Stretch {
    fn params<'a>(&self, item: &'a str) -> [Param<'a>; 6] {
        let number = |place: u64| int(place * self.spread + self.shelf);
        [
            Param::Text(item),
            Param::Int(int(self.epoch)),
            Param::Int(int(self.spread)),
            Param::Int(int(self.shelf)),
            Param::Int(number(self.from)),
            Param::Int(number(self.to)),
        ]
    }
}

/// Items with ended epochs whose lost orders were not looked for.
pub(super) async fn items(books: &Books) -> Result<Vec<String>> {
    let doing = "look for epochs that have ended";
    let rows = books.rows(doing, ITEMS, &[]).await?;
    let items: Result<Vec<String>, sqlx::Error> = rows.iter().map(|row| row.get(0)).collect();
    items.map_err(|error| Fault::Sql(error).told(doing))
}

pub(super) async fn uncounted(books: &Books, item: &str) -> Result<Vec<Uncounted>> {
    let doing = format!("look for ended epochs of item `{item}`");
    let rows = books.rows(&doing, UNCOUNTED, &[Param::Text(item)]).await?;
    let uncounted = |row: &Row| {
        Ok(Uncounted {
            epoch: row.number(0)?,
            shelf: row.number(1)?,
            entries: row.number(2)?,
            is_open: row.get(3)?,
            spread: row.number(4)?,
        })
    };
    let all: Result<_, sqlx::Error> = rows.iter().map(uncounted).collect();
    all.map_err(|error| Fault::Sql(error).told(&doing))
}

/// What arrived in an epoch, by shelf.
pub(super) async fn arrived(
    books: &Books,
    item: &str,
    epoch: u64,
    spread: u64,
) -> Result<BTreeMap<u64, Arrived>> {
    let doing = format!("count the entries of item `{item}` in epoch {epoch}");
    let params = [
        Param::Text(item),
        Param::Int(int(epoch)),
        Param::Int(int(spread)),
    ];
    let rows = books.rows(&doing, ARRIVED, &params).await?;
    let arrived = |row: &Row| {
        let arrived = Arrived {
            count: row.number(1)?,
            end: row.number(2)? / spread + 1,
        };
        Ok((row.number(0)?, arrived))
    };
    let all: Result<_, sqlx::Error> = rows.iter().map(arrived).collect();
    all.map_err(|error| Fault::Sql(error).told(&doing))
}

/// How many entries of a stretch arrived.
pub(super) async fn arrived_in(books: &Books, item: &str, stretch: &Stretch) -> Result<u64> {
    let doing = format!("count the entries of item `{item}`");
    let params = stretch.params(item);
    let rows = books.rows(&doing, ARRIVED_BETWEEN, &params).await?;
    let count = rows.first().map_or(Ok(0), |row| row.number(0));
    count.map_err(|error| Fault::Sql(error).told(&doing))
}

pub(super) async fn is_settled(books: &Books, id: &OrderId) -> Result<bool> {
    if !may_exist(id) {
        return Ok(false);
    }
    let doing = format!("look whether entry `{id}` is an order");
    Ok(!books.rows(&doing, SETTLED, &key(id)).await?.is_empty())
}

/// The numbers of a stretch that did not arrive, at most `count`.
pub(super) async fn missing(
    books: &Books,
    item: &str,
    stretch: &Stretch,
    count: usize,
) -> Result<Vec<u64>> {
    let doing = format!("look for lost orders of item `{item}`");
    if item_name(item).is_err() {
        return Ok(Vec::new());
    }
    let params = stretch.params(item).into_iter();
    let params: Vec<Param<'_>> = params.chain([Param::Int(GAPS_MAX)]).collect();
    let rows = books.rows(&doing, GAPS, &params).await?;
    let gap = |row: &Row| Ok((row.number(0)?, row.number(1)?));
    let gaps: Result<Vec<(u64, u64)>, sqlx::Error> = rows.iter().map(gap).collect();
    let gaps = gaps.map_err(|error| Fault::Sql(error).told(&doing))?;
    let spread = stretch.spread;
    let numbers = gaps
        .into_iter()
        .flat_map(|(first, length)| (0..length).map(move |nth| first + nth * spread));
    Ok(numbers.take(count).collect())
}

/// All lost orders of an ended epoch of a shelf were recorded.
pub(super) struct Counted<'a> {
    pub(super) item: &'a str,
    pub(super) ended: Uncounted,
    /// How many entries there were, as far as is known.
    pub(super) entries: u64,
}

impl Work for Counted<'_> {
    type Made = ();

    fn doing(&self) -> String {
        format!("record how many orders of item `{}` were lost", self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<(), Fault> {
        let params = [
            Param::Text(self.item),
            Param::Int(int(self.ended.epoch)),
            Param::Int(int(self.ended.shelf)),
            Param::Int(int(self.ended.entries)),
            Param::Int(int(self.entries)),
        ];
        // If more is known by now, it is counted again.
        session.run(COUNTED, &params).await?;
        Ok(())
    }
}

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
