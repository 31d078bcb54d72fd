//! Units added to the stock or withdrawn from it.

use crate::change::What;
use crate::error::{Error, ErrorKind, Result};
use crate::item::Item;
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::changes::record;
use crate::ledger::decision::{check_reason, check_reference};
use crate::ledger::fault::Fault;
use crate::ledger::items::{check_units, lock_known};
use crate::ledger::sql::{Param, Row, Sql, int};
use crate::names::item_name;

const ONE: Sql =
    Sql::same("SELECT kind, units, done FROM sale_adjustments WHERE item = $1 AND reference = $2");
const INSERT: Sql = Sql::same(
    "INSERT INTO sale_adjustments (item, reference, kind, units, reason, done, at) \
     VALUES ($1, $2, 'add', $3, $4, $5, $6)",
);

/// Adds units, once for each reference.
pub(super) struct Add<'a> {
    pub(super) item: &'a str,
    pub(super) units: u64,
    pub(super) reason: &'a str,
    pub(super) reference: &'a str,
    pub(super) expected: Option<u64>,
}

impl Work for Add<'_> {
    type Made = Item;

    fn doing(&self) -> String {
        format!("add {} units to item `{}`", self.units, self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<Item, Fault> {
        self.check()?;
        let mut locked = lock_known(session, self.item).await?;
        let params = [Param::Text(self.item), Param::Text(self.reference)];
        if let Some(row) = session.rows(ONE, &params).await?.first() {
            self.check_same(row)?;
            return Ok(locked.item);
        }
        self.check_item(&locked.item)?;
        let params = [
            Param::Text(self.item),
            Param::Text(self.reference),
            Param::Int(int(self.units)),
            Param::Text(self.reason),
            Param::Bool(true),
            Param::Int(locked.now),
        ];
        session.run(INSERT, &params).await?;
        locked.item.total += self.units;
        let what = What::Added {
            units: self.units,
            reason: self.reason.to_owned(),
        };
        record(session, &mut locked, &[what]).await?;
        Ok(locked.item)
    }
}

impl Add<'_> {
    fn check(&self) -> Result<()> {
        if self.units == 0 {
            return Err(self.refused(ErrorKind::InvalidUnits, "it must be at least one unit"));
        }
        check_units(self.item, self.units)?;
        check_reference(self.reference)
            .and_then(|()| check_reason(self.reason))
            .map_err(|cause| self.refused(ErrorKind::InvalidSetting, &cause))
    }

    /// The reference was used before: it must have meant the same.
    fn check_same(&self, row: &Row) -> Result<(), Fault> {
        let (kind, units): (String, u64) = (row.get(0)?, row.number(1)?);
        if kind == "add" && units == self.units {
            return Ok(());
        }
        let cause = format!(
            "reference `{}` was used for another change, {kind} {units}: use a new one",
            self.reference
        );
        Err(self.refused(ErrorKind::Conflict, &cause).into())
    }

    fn check_item(&self, item: &Item) -> Result<()> {
        if item.unlimited {
            return Err(self.refused(ErrorKind::Conflict, "it is unlimited"));
        }
        if let Some(expected) = self.expected.filter(|expected| *expected != item.total) {
            let cause = format!(
                "its total is `{}`, not `{expected}`: check it and decide again",
                item.total
            );
            return Err(self.refused(ErrorKind::Conflict, &cause));
        }
        check_units(self.item, item.total.saturating_add(self.units))
    }

    fn refused(&self, kind: ErrorKind, cause: &str) -> Error {
        let (units, item) = (self.units, self.item);
        let message = format!("cannot add `{units}` units to item `{item}`: {cause}");
        Error::new(kind, message)
    }
}

/// Whether a withdrawal was done; `None` if it has not reached the ledger.
pub(super) async fn withdrawal(books: &Books, item: &str, reference: &str) -> Result<Option<bool>> {
    if item_name(item).is_err() || check_reference(reference).is_err() {
        return Ok(None);
    }
    let doing = format!("look for withdrawal `{reference}` of item `{item}`");
    let params = [Param::Text(item), Param::Text(reference)];
    let rows = books.rows(&doing, ONE, &params).await?;
    let done = |row: &Row| -> Result<Option<bool>, sqlx::Error> {
        let kind: String = row.get(0)?;
        Ok((kind == "withdraw").then_some(row.get(2)?))
    };
    let done = rows.first().map_or(Ok(None), done);
    done.map_err(|error| Fault::Sql(error).told(&doing))
}
