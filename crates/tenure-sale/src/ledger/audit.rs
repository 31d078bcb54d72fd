//! Audit: whether the books of an item are consistent.

use crate::error::Result;
use crate::ledger::books::Books;
use crate::ledger::fault::Fault;
use crate::ledger::orders::limit;
use crate::ledger::sql::{Param, Row, Sql};
use crate::names::item_name;
use crate::order::OrderId;

/// How many orders are listed per problem.
const NAMED_MAX: usize = 100;

/// One query each, so that the compared values are from one moment even while orders arrive.
const TOTALS: Sql = Sql::same(
    "SELECT i.sold, \
     (SELECT CAST(coalesce(sum(CASE kind WHEN 'reserve' THEN units ELSE -units END), 0) AS BIGINT) \
      FROM sale_journal AS j WHERE j.item = i.name), \
     (SELECT CAST(coalesce(sum(units), 0) AS BIGINT) FROM sale_orders AS o \
      WHERE o.item = i.name AND o.state IN ('reserved', 'paid', 'dead')) \
     FROM sale_items AS i WHERE i.name = $1",
);
const UNEVEN: Sql = Sql::same(
    "SELECT o.epoch, o.number FROM sale_orders AS o \
     LEFT JOIN (SELECT epoch, number, \
                sum(CASE kind WHEN 'reserve' THEN units ELSE -units END) AS units \
                FROM sale_journal WHERE item = $1 GROUP BY epoch, number) AS j \
     ON j.epoch = o.epoch AND j.number = o.number \
     WHERE o.item = $1 AND coalesce(j.units, 0) <> \
       CASE WHEN o.state IN ('reserved', 'paid', 'dead') THEN o.units ELSE 0 END \
     ORDER BY o.epoch, o.number LIMIT $2",
);
/// The gate numbers the entries of each shelf in an epoch from zero, without gaps; the number of an
/// entry is that, times the shelves, plus the index of its shelf.
const GAPS: Sql = Sql::same(
    "SELECT epoch, before + spread, (number - before) / spread - 1, spread FROM ( \
       SELECT e.epoch, e.number, i.spread, \
       lag(e.number, 1, CAST(e.number % i.spread - i.spread AS BIGINT)) \
         OVER (PARTITION BY e.number % i.spread ORDER BY e.number) AS before \
       FROM (SELECT item, epoch, number FROM sale_orders WHERE item = $1 \
             UNION SELECT item, epoch, number FROM sale_settled WHERE item = $1) AS e \
       JOIN sale_items AS i ON i.name = e.item AND i.epoch = e.epoch \
       WHERE i.epoch > 0) AS numbered \
     WHERE number - before > spread ORDER BY before LIMIT $2",
);

/// The totals of an item, computed in several ways. Each is from one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Units sold, from the item's own row.
    pub sold: i64,
    /// From the journal: reserved minus released.
    pub by_journal: i64,
    /// From the orders that hold units.
    pub by_orders: i64,
    /// Orders whose journal does not match their state: units that were reserved or released twice,
    /// or never. At most 100 are listed.
    pub uneven: Vec<OrderId>,
    /// Entries of the current epoch that are missing in the ledger, while later ones are there.
    /// They must be at the gate, in the queue or among the dead letters. At most 100 are listed.
    pub missing: Vec<OrderId>,
}

impl Audit {
    /// Whether the books are consistent. Missing entries do not count: the gate may have them.
    pub fn is_even(&self) -> bool {
        self.sold == self.by_journal && self.sold == self.by_orders && self.uneven.is_empty()
    }
}

pub(super) async fn audit(books: &Books, item: &str) -> Result<Option<Audit>> {
    if item_name(item).is_err() {
        return Ok(None);
    }
    let doing = format!("audit item `{item}`");
    let wrong = |error| Fault::Sql(error).told(&doing);
    let totals = books.rows(&doing, TOTALS, &[Param::Text(item)]).await?;
    let Some(totals) = totals.first() else {
        return Ok(None);
    };
    let named = [Param::Text(item), Param::Int(limit(NAMED_MAX))];
    let uneven = books.rows(&doing, UNEVEN, &named).await?;
    let gaps = books.rows(&doing, GAPS, &named).await?;
    let read = || {
        Ok(Audit {
            sold: totals.get(0)?,
            by_journal: totals.get(1)?,
            by_orders: totals.get(2)?,
            uneven: uneven
                .iter()
                .map(|row| Ok(OrderId::new(item, row.number(0)?, row.number(1)?)))
                .collect::<Result<_, sqlx::Error>>()?,
            missing: missing(item, &gaps)?,
        })
    };
    read().map(Some).map_err(wrong)
}

/// The numbers in the gaps, one by one.
fn missing(item: &str, gaps: &[Row]) -> Result<Vec<OrderId>, sqlx::Error> {
    let mut missing = Vec::new();
    for gap in gaps {
        let (epoch, first, length) = (gap.number(0)?, gap.number(1)?, gap.number(2)?);
        let spread = gap.number(3)?;
        let numbers = (0..length).map(|nth| first + nth * spread);
        let numbers = numbers.take(NAMED_MAX - missing.len());
        missing.extend(numbers.map(|number| OrderId::new(item, epoch, number)));
    }
    Ok(missing)
}
