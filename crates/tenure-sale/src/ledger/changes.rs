//! The changes of an item: written with the item's row, read by relays and watchers.

use std::time::SystemTime;

use crate::change::{Change, What};
use crate::error::Result;
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::change_text::{kind, payload, what};
use crate::ledger::fault::Fault;
use crate::ledger::items::{Locked, lock};
use crate::ledger::orders::limit;
use crate::ledger::sql::{Column, Param, Row, Sql, foreign, int};
use crate::ledger::timestamps::{milliseconds, moment};
use crate::names::item_name;

/// Also a compare-and-set, even though the row is locked: this detects code that forgets the lock.
const UPDATE_ITEM: Sql = Sql::same(
    "UPDATE sale_items SET sold = $2, total = $3, change = $4 WHERE name = $1 AND change = $5",
);
const INSERT: Sql = Sql::each(
    "INSERT INTO sale_changes (item, at, number, kind, payload) \
     SELECT $1, $2, value ->> 0, value ->> 1, value ->> 2 FROM json_each($3)",
    "INSERT INTO sale_changes (item, at, number, kind, payload) \
     SELECT $1, $2, * FROM unnest($3::bigint[], $4::text[], $5::text[])",
);
const READ: Sql = Sql::same(
    "SELECT number, at, kind, payload FROM sale_changes WHERE item = $1 AND number > $2 \
     ORDER BY number LIMIT $3",
);
const FORGET: Sql =
    Sql::same("DELETE FROM sale_changes WHERE item = $1 AND number <= $2 AND at < $3");

/// Writes the item's counts from `locked`, and the changes, under the next numbers.
pub(super) async fn record(
    session: &mut Session,
    locked: &mut Locked,
    changes: &[What],
) -> Result<(), Fault> {
    let before = locked.item.change;
    locked.item.change += changes.len() as u64;
    let (item, now) = (&locked.item, locked.now);
    let params = [
        Param::Text(&item.name),
        Param::Int(int(item.sold)),
        Param::Int(int(item.total)),
        Param::Int(int(item.change)),
        Param::Int(int(before)),
    ];
    if session.run(UPDATE_ITEM, &params).await? != 1 {
        return Err(foreign(format!("item `{}` changed under its lock", item.name)).into());
    }
    let texts = payloads(changes, item.spread);
    let columns = change_columns(before, changes, &texts);
    let params = [
        Param::Text(&item.name),
        Param::Int(now),
        Param::Bulk(&columns),
    ];
    session.run(INSERT, &params).await?;
    Ok(())
}

/// The texts of changes of an item with this many shelves.
pub(super) fn payloads(changes: &[What], spread: u64) -> Vec<String> {
    let texts = changes.iter().map(|change| payload(change, spread));
    texts.collect()
}

/// Number, kind and text of changes that follow the number `before`.
pub(super) fn change_columns<'a>(
    before: u64,
    changes: &'a [What],
    payloads: &'a [String],
) -> [Column<'a>; 3] {
    let numbers = (before + 1..).map(int).take(changes.len());
    [
        Column::Ints(numbers.collect()),
        Column::Texts(changes.iter().map(kind).collect()),
        Column::Texts(payloads.iter().map(String::as_str).collect()),
    ]
}

pub(super) async fn after(
    books: &Books,
    item: &str,
    after: u64,
    count: usize,
) -> Result<Vec<Change>> {
    if item_name(item).is_err() {
        return Ok(Vec::new());
    }
    let doing = format!("read the changes of item `{item}`");
    let params = [
        Param::Text(item),
        Param::Int(int(after)),
        Param::Int(limit(count)),
    ];
    let rows = books.rows(&doing, READ, &params).await?;
    let changes: Result<Vec<Change>, sqlx::Error> =
        rows.iter().map(|row| change(item, row)).collect();
    changes.map_err(|error| Fault::Sql(error).told(&doing))
}

/// Changes that are no longer needed.
pub(super) struct Forget<'a> {
    pub(super) item: &'a str,
    pub(super) applied: u64,
    pub(super) before: SystemTime,
}

impl Work for Forget<'_> {
    type Made = u64;

    fn doing(&self) -> String {
        format!("forget changes of item `{}`", self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<u64, Fault> {
        if lock(session, self.item).await?.is_none() {
            return Ok(0);
        }
        let params = [
            Param::Text(self.item),
            Param::Int(int(self.applied)),
            Param::Int(milliseconds(self.before)),
        ];
        Ok(session.run(FORGET, &params).await?)
    }
}

fn change(item: &str, row: &Row) -> Result<Change, sqlx::Error> {
    let (kind, payload): (String, String) = (row.get(2)?, row.get(3)?);
    let number = row.number(0)?;
    let what = what(item, &kind, &payload).ok_or_else(|| {
        foreign(format!(
            "change {number} of `{item}` cannot be read: was it written by a newer program?"
        ))
    })?;
    Ok(Change {
        number,
        at: moment(row.get(1)?),
        what,
    })
}
