//! Lost orders: numbers of ended epochs that the ledger does not have.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::fault::Fault;
use crate::ledger::orders::{key, may_exist};
use crate::ledger::sql::{Param, Row, Sql, int};
use crate::names::item_name;
use crate::order::OrderId;

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
