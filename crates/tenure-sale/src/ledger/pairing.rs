//! Which gate this ledger has.

use std::time::Duration;

use crate::error::Result;
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::fault::Fault;
use crate::ledger::items::{postgres_now, sqlite_now};
use crate::ledger::sql::{Param, Row, Sql};
use crate::ledger::timestamps::duration_ms;

const IDENTIFY: Sql =
    Sql::same("INSERT INTO sale_ledger (one, id) VALUES (1, $1) ON CONFLICT (one) DO NOTHING");
macro_rules! paired {
    ($now:expr) => {
        concat!(
            "SELECT id, abs(",
            $now,
            " - gate_seen_at) FROM sale_ledger WHERE one = 1"
        )
    };
}
const PAIRED: Sql = Sql::each(paired!(sqlite_now!()), paired!(postgres_now!()));
macro_rules! see {
    ($now:expr) => {
        concat!(
            "UPDATE sale_ledger SET gate = $1, gate_seen_at = ",
            $now,
            " WHERE one = 1 AND (gate IS NULL OR gate = $1 OR abs(",
            $now,
            " - gate_seen_at) > $2)"
        )
    };
}
const SEE: Sql = Sql::each(see!(sqlite_now!()), see!(postgres_now!()));

/// What a ledger knows about its gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paired {
    /// The ledger's own id.
    pub(crate) ledger: String,
    /// How long ago a process used its gate: very long if it never had one.
    pub(crate) seen_ago: Duration,
}

/// Gives the ledger this id if it has none.
pub(super) struct Identify<'a>(pub(super) &'a str);

impl Work for Identify<'_> {
    type Made = ();

    fn doing(&self) -> String {
        "give the ledger an id".to_owned()
    }

    async fn run(&self, session: &mut Session) -> Result<(), Fault> {
        session.run(IDENTIFY, &[Param::Text(self.0)]).await?;
        Ok(())
    }
}

/// Records that a gate is in use; it becomes the ledger's own if that has none, or one that was not
/// in use for this long.
pub(super) struct See<'a> {
    pub(super) gate: &'a str,
    pub(super) unused_for: Duration,
}

impl Work for See<'_> {
    /// Whether it is the ledger's own.
    type Made = bool;

    fn doing(&self) -> String {
        "record which gate the ledger has".to_owned()
    }

    async fn run(&self, session: &mut Session) -> Result<bool, Fault> {
        let unused_for = duration_ms(self.unused_for);
        let params = [Param::Text(self.gate), Param::Int(unused_for)];
        Ok(session.run(SEE, &params).await? == 1)
    }
}

pub(super) async fn paired(books: &Books) -> Result<Option<Paired>> {
    let doing = "read which gate the ledger has";
    let rows = books.rows(doing, PAIRED, &[]).await?;
    let paired = |row: &Row| -> Result<Paired, sqlx::Error> {
        Ok(Paired {
            ledger: row.get(0)?,
            seen_ago: Duration::from_millis(row.number(1)?),
        })
    };
    let paired = rows.first().map(paired).transpose();
    paired.map_err(|error| Fault::Sql(error).told(doing))
}
