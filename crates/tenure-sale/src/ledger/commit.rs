//! Commits entries of the queue to the ledger.

use std::collections::{BTreeMap, HashSet};

use crate::entry::{Entry, Wanted};
use crate::ledger::books::{Session, Work};
use crate::ledger::changes::{change_columns, payloads, record};
use crate::ledger::decision::{Decision, Facts, KnownOrder, Landing, NewRow, decide, key};
use crate::ledger::fate::Fate;
use crate::ledger::fault::Fault;
use crate::ledger::items::{Locked, lock};
use crate::ledger::lose::reopen;
use crate::ledger::sql::{Column, Param, Row, Sql, foreign, int};
use crate::ledger::timestamps::milliseconds;
use crate::names::{buyer_name, request_id};
use crate::order::OrderState;

/// Orders by their id, by their request, and stored cancellations, in one query.
const FACTS: Sql = Sql::each(
    "SELECT 1, o.epoch, o.number, o.buyer, o.request, o.units, o.state, o.round \
     FROM json_each($2) AS w CROSS JOIN sale_orders AS o \
     ON o.item = $1 AND o.epoch = w.value ->> 0 AND o.number = w.value ->> 1 \
     UNION ALL \
     SELECT 2, o.epoch, o.number, o.buyer, o.request, o.units, o.state, o.round \
     FROM json_each($2) AS w CROSS JOIN sale_orders AS o \
     ON o.item = $1 AND o.buyer = w.value ->> 2 AND o.request = w.value ->> 3 \
     AND o.state NOT IN ('rejected', 'lost') \
     UNION ALL \
     SELECT 3, c.epoch, c.number, '', '', 0, '', 0 \
     FROM json_each($2) AS w CROSS JOIN sale_cancel_wishes AS c \
     ON c.item = $1 AND c.epoch = w.value ->> 0 AND c.number = w.value ->> 1",
    // LIMIT 1 makes it one index lookup per entry. Without it the planner, which knows little about
    // a table that grows this fast, may read the whole table.
    "WITH w AS MATERIALIZED (SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[]) \
     AS w (epoch, number, buyer, request)) \
     SELECT 1::bigint, o.* FROM w CROSS JOIN LATERAL (\
     SELECT epoch, number, buyer, request, units, state, round FROM sale_orders AS o \
     WHERE o.item = $1 AND o.epoch = w.epoch AND o.number = w.number LIMIT 1) AS o \
     UNION ALL \
     SELECT 2::bigint, o.* FROM w CROSS JOIN LATERAL (\
     SELECT epoch, number, buyer, request, units, state, round FROM sale_orders AS o \
     WHERE o.item = $1 AND o.buyer = w.buyer AND o.request = w.request \
     AND o.state NOT IN ('rejected', 'lost') LIMIT 1) AS o \
     UNION ALL \
     SELECT 3::bigint, c.*, '', '', 0, '', 0 FROM w CROSS JOIN LATERAL (\
     SELECT epoch, number FROM sale_cancel_wishes AS c \
     WHERE c.item = $1 AND c.epoch = w.epoch AND c.number = w.number LIMIT 1) AS c",
);
const HELD: Sql = Sql::each(
    "SELECT o.buyer, sum(o.units) FROM json_each($2) AS w CROSS JOIN sale_orders AS o \
     ON o.item = $1 AND o.buyer = w.value ->> 0 AND o.state IN ('reserved', 'paid', 'dead') \
     AND o.state NOT IN ('rejected', 'lost') GROUP BY o.buyer",
    "SELECT w.buyer, o.units FROM unnest($2::text[]) AS w (buyer) CROSS JOIN LATERAL (\
     SELECT CAST(coalesce(sum(units), 0) AS BIGINT) AS units FROM sale_orders \
     WHERE item = $1 AND buyer = w.buyer AND state IN ('reserved', 'paid', 'dead') \
     AND state NOT IN ('rejected', 'lost')) AS o",
);
const SETTLED: Sql = Sql::each(
    "SELECT s.epoch, s.number, s.done FROM json_each($2) AS w CROSS JOIN sale_settled AS s \
     ON s.item = $1 AND s.epoch = w.value ->> 0 AND s.number = w.value ->> 1",
    "SELECT s.epoch, s.number, s.done FROM unnest($2::bigint[], $3::bigint[]) AS w (epoch, number) \
     JOIN sale_settled AS s ON s.item = $1 AND s.epoch = w.epoch AND s.number = w.number",
);
const REFERENCES: Sql = Sql::each(
    "SELECT a.reference FROM json_each($2) AS w CROSS JOIN sale_adjustments AS a \
     ON a.item = $1 AND a.reference = w.value ->> 0",
    "SELECT reference FROM sale_adjustments WHERE item = $1 AND reference = ANY ($2::text[])",
);
/// Orders, journal, item and changes in one statement: fewer round trips to the database.
///
/// Changes are written only if the item is unchanged since it was read. On PostgreSQL each of the
/// statements sees the tables as they were before; on SQLite it sees the effects of the earlier
/// ones.
const WRITE: Sql = Sql::each(
    "INSERT INTO sale_orders (item, committed_at, epoch, number, buyer, request, units, state, \
     accepted_at, note, pay_by) \
     SELECT $1, $2, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, \
     value ->> 6, value ->> 7, value ->> 8 FROM json_each($7); \
     INSERT INTO sale_journal (item, at, epoch, number, kind, round, units) \
     SELECT $1, $2, value ->> 0, value ->> 1, 'reserve', 1, value ->> 4 FROM json_each($7) \
     WHERE value ->> 5 IN ('reserved', 'dead'); \
     UPDATE sale_items SET sold = $3, total = $4, change = $5 WHERE name = $1 AND change = $6; \
     INSERT INTO sale_changes (item, at, number, kind, payload) \
     SELECT $1, $2, value ->> 0, value ->> 1, value ->> 2 FROM json_each($8) WHERE changes() = 1",
    "WITH written AS (\
     INSERT INTO sale_orders (item, committed_at, epoch, number, buyer, request, units, state, \
     accepted_at, note, pay_by) \
     SELECT $1, $2, w.* \
     FROM unnest($7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::text[], \
     $13::bigint[], $14::text[], $15::bigint[]) \
     AS w (epoch, number, buyer, request, units, state, accepted_at, note, pay_by) \
     RETURNING epoch, number, units, state), \
     journal AS (INSERT INTO sale_journal (item, epoch, number, kind, round, units, at) \
     SELECT $1, epoch, number, 'reserve', 1, units, $2 FROM written WHERE state IN ('reserved', 'dead')), \
     item AS (UPDATE sale_items SET sold = $3, total = $4, change = $5 \
     WHERE name = $1 AND change = $6 RETURNING name) \
     INSERT INTO sale_changes (item, at, number, kind, payload) \
     SELECT item.name, $2, c.* FROM item, unnest($16::bigint[], $17::text[], $18::text[]) AS c",
);
const PAY_AGAIN: Sql = Sql::same(
    "UPDATE sale_orders SET state = $5, round = $6, pay_by = NULL \
     WHERE item = $1 AND epoch = $2 AND number = $3 AND state = $4",
);
const RESERVE_AGAIN: Sql = Sql::same(
    "INSERT INTO sale_journal (item, epoch, number, kind, round, units, at) \
     VALUES ($1, $2, $3, 'reserve', $4, $5, $6)",
);
const INSERT_ADJUSTMENT: Sql = Sql::same(
    "INSERT INTO sale_adjustments (item, reference, kind, units, reason, done, at) \
     VALUES ($1, $2, 'withdraw', $3, $4, $5, $6)",
);
const INSERT_SETTLED: Sql = Sql::same(
    "INSERT INTO sale_settled (item, epoch, number, kind, done, at) VALUES ($1, $2, $3, $4, $5, $6)",
);
const DELETE_WISH: Sql =
    Sql::same("DELETE FROM sale_cancel_wishes WHERE item = $1 AND epoch = $2 AND number = $3");

/// A batch of entries, of any items.
pub(super) struct Commit<'a> {
    pub(super) entries: &'a [Entry],
    pub(super) landing: Landing<'a>,
}

impl Work for Commit<'_> {
    type Made = Vec<Fate>;

    fn doing(&self) -> String {
        match self.landing {
            Landing::Reserved => format!("commit {} entries to the ledger", self.entries.len()),
            Landing::Dead(_) => "bury an entry in the ledger".into(),
        }
    }

    async fn run(&self, session: &mut Session) -> Result<Vec<Fate>, Fault> {
        let mut fates: Vec<Option<Fate>> = vec![None; self.entries.len()];
        let mut items: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            items.entry(entry.id.item()).or_default().push(at);
        }
        for (name, places) in items {
            let entries: Vec<&Entry> = places.iter().map(|at| &self.entries[*at]).collect();
            let settled = commit_item(session, name, &entries, self.landing).await?;
            for (at, fate) in places.into_iter().zip(settled) {
                fates[at] = Some(fate);
            }
        }
        Ok(fates.into_iter().flatten().collect())
    }
}

async fn commit_item(
    session: &mut Session,
    name: &str,
    entries: &[&Entry],
    landing: Landing<'_>,
) -> Result<Vec<Fate>, Fault> {
    let Some(mut locked) = lock(session, name).await? else {
        let shown: String = name.chars().take(64).collect();
        let reason = format!("the ledger has no item `{}`", shown.escape_debug());
        return Ok(vec![Fate::Refused(reason); entries.len()]);
    };
    let facts = gather(session, &locked, entries).await?;
    let decision = decide(&mut locked.item, facts, entries, landing);
    write(session, &mut locked, &decision).await?;
    note_lost(session, &locked, &decision).await?;
    Ok(decision.fates)
}

/// Orders of an ended epoch: there may be others before them.
async fn note_lost(
    session: &mut Session,
    locked: &Locked,
    decision: &Decision<'_>,
) -> Result<(), Fault> {
    let mut lost: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for row in decision
        .rows
        .iter()
        .filter(|row| row.state == OrderState::Lost)
    {
        let (epoch, number) = key(&row.entry.id);
        lost.entry(epoch).or_default().push(number);
    }
    for (epoch, numbers) in lost {
        let item = &locked.item;
        reopen(session, &item.name, epoch, item.spread, &numbers).await?;
    }
    Ok(())
}

/// Reads the ledger's data that is relevant to the entries.
async fn gather(
    session: &mut Session,
    locked: &Locked,
    entries: &[&Entry],
) -> Result<Facts, Fault> {
    let name = &locked.item.name;
    let mut facts = Facts::default();
    let asked = Asked::of(entries);
    let columns = [
        Column::Ints(asked.keys.iter().map(|key| int(key.0)).collect()),
        Column::Ints(asked.keys.iter().map(|key| int(key.1)).collect()),
        Column::Texts(asked.requests.iter().map(|request| request.0).collect()),
        Column::Texts(asked.requests.iter().map(|request| request.1).collect()),
    ];
    let params = [Param::Text(name), Param::Bulk(&columns)];
    for row in session.rows(FACTS, &params).await? {
        learn(&mut facts, &row)?;
    }
    if locked.item.terms.limit_per_buyer.is_some() && !asked.buyers.is_empty() {
        let columns = [Column::Texts(asked.buyers.into_iter().collect())];
        let params = [Param::Text(name), Param::Bulk(&columns)];
        for row in session.rows(HELD, &params).await? {
            facts.held.insert(row.get(0)?, row.number(1)?);
        }
    }
    if asked.others.is_empty() {
        return Ok(facts);
    }
    let columns = [
        Column::Ints(asked.others.iter().map(|key| int(key.0)).collect()),
        Column::Ints(asked.others.iter().map(|key| int(key.1)).collect()),
    ];
    let params = [Param::Text(name), Param::Bulk(&columns)];
    for row in session.rows(SETTLED, &params).await? {
        let key = (row.number(0)?, row.number(1)?);
        facts.settled.insert(key, row.get(2)?);
    }
    let columns = [Column::Texts(asked.references)];
    let params = [Param::Text(name), Param::Bulk(&columns)];
    for row in session.rows(REFERENCES, &params).await? {
        facts.references.insert(row.get(0)?);
    }
    Ok(facts)
}

/// The queries about a batch. Entries that cannot be stored anyway are left out, and with them
/// anything that the database could choke on.
#[derive(Default)]
struct Asked<'a> {
    keys: Vec<(u64, u64)>,
    /// Buyer and request for each key; empty if it is not an order.
    requests: Vec<(&'a str, &'a str)>,
    buyers: HashSet<&'a str>,
    /// Entries that are not orders.
    others: Vec<(u64, u64)>,
    references: Vec<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(entries: &[&'a Entry]) -> Self {
        let mut asked = Self::default();
        for entry in entries {
            match &entry.what {
                Ok(Wanted::Order { buyer, request, .. })
                    if buyer_name(buyer).is_ok() && request_id(request).is_ok() =>
                {
                    asked.keys.push(key(&entry.id));
                    asked.requests.push((buyer, request));
                    asked.buyers.insert(buyer);
                }
                Ok(Wanted::Again { order, buyer, .. }) if buyer_name(buyer).is_ok() => {
                    asked.keys.push(key(order));
                    asked.requests.push(("", ""));
                    asked.buyers.insert(buyer);
                    asked.others.push(key(&entry.id));
                }
                Ok(Wanted::Withdrawal { reference, .. }) if request_id(reference).is_ok() => {
                    asked.others.push(key(&entry.id));
                    asked.references.push(reference);
                }
                _ => {}
            }
        }
        asked
    }
}

fn learn(facts: &mut Facts, row: &Row) -> Result<(), sqlx::Error> {
    let key = (row.number(1)?, row.number(2)?);
    match row.get::<i64>(0)? {
        1 => {
            let known = KnownOrder {
                buyer: row.get(3)?,
                request: row.get(4)?,
                units: row.number(5)?,
                state: row.word(6, OrderState::of_word)?,
                round: row.number(7)?,
            };
            facts.orders.insert(key, known);
        }
        2 => {
            facts.requests.insert((row.get(3)?, row.get(4)?));
        }
        _ => {
            facts.wishes.insert(key);
        }
    }
    Ok(())
}

async fn write(
    session: &mut Session,
    locked: &mut Locked,
    decision: &Decision<'_>,
) -> Result<(), Fault> {
    write_agains(session, locked, decision).await?;
    write_others(session, locked, decision).await?;
    if !decision.rows.is_empty() {
        write_orders(session, locked, decision).await?;
    } else if !decision.changes.is_empty() {
        record(session, locked, &decision.changes).await?;
    }
    Ok(())
}

async fn write_orders(
    session: &mut Session,
    locked: &mut Locked,
    decision: &Decision<'_>,
) -> Result<(), Fault> {
    let before = locked.item.change;
    locked.item.change += decision.changes.len() as u64;
    let item = &locked.item;
    let orders = order_columns(locked, &decision.rows);
    let texts = payloads(&decision.changes, item.spread);
    let changes = change_columns(before, &decision.changes, &texts);
    let params = [
        Param::Text(&item.name),
        Param::Int(locked.now),
        Param::Int(int(item.sold)),
        Param::Int(int(item.total)),
        Param::Int(int(item.change)),
        Param::Int(int(before)),
        Param::Bulk(&orders),
        Param::Bulk(&changes),
    ];
    let written = session.run(WRITE, &params).await?;
    // SQLite counts the rows of all statements, PostgreSQL those of the last one.
    let holding = |row: &&NewRow<'_>| row.state.holds_units();
    let expected = decision.changes.len()
        + match session {
            Session::Sqlite(_) => {
                decision.rows.len() + decision.rows.iter().filter(holding).count() + 1
            }
            Session::Postgres(_) => 0,
        };
    if written != expected as u64 {
        return Err(foreign(format!("item `{}` changed under its lock", item.name)).into());
    }
    Ok(())
}

fn order_columns<'a>(locked: &Locked, rows: &'a [NewRow<'a>]) -> [Column<'a>; 9] {
    let ints = |of: &dyn Fn(&NewRow<'a>) -> i64| Column::Ints(rows.iter().map(of).collect());
    [
        ints(&|row| int(row.entry.id.epoch())),
        ints(&|row| int(row.entry.id.number())),
        Column::Texts(rows.iter().map(|row| row.buyer).collect()),
        Column::Texts(rows.iter().map(|row| row.request).collect()),
        ints(&|row| int(row.units)),
        Column::Texts(rows.iter().map(|row| row.state.word()).collect()),
        ints(&|row| milliseconds(row.entry.accepted_at)),
        Column::MaybeTexts(rows.iter().map(|row| row.note).collect()),
        Column::MaybeInts(rows.iter().map(|row| pay_by(locked, row)).collect()),
    ]
}

/// Under the terms with which the order was accepted.
fn pay_by(locked: &Locked, row: &NewRow<'_>) -> Option<i64> {
    if row.state != OrderState::Reserved {
        return None;
    }
    match row.entry.terms {
        Some(terms) => locked.pay_within(terms.pay_within),
        None => locked.pay_by(),
    }
}

async fn write_agains(
    session: &mut Session,
    locked: &Locked,
    decision: &Decision<'_>,
) -> Result<(), Fault> {
    for again in &decision.agains {
        let [item, epoch, number] = crate::ledger::orders::key(again.order);
        let params = [
            item,
            epoch,
            number,
            Param::Text(again.from.word()),
            Param::Text(again.to.word()),
            Param::Int(int(again.round)),
        ];
        if session.run(PAY_AGAIN, &params).await? != 1 {
            return Err(foreign(format!("order `{}` changed under its lock", again.order)).into());
        }
        if again.to == OrderState::Paid {
            let [item, epoch, number] = crate::ledger::orders::key(again.order);
            let params = [
                item,
                epoch,
                number,
                Param::Int(int(again.round)),
                Param::Int(int(again.units)),
                Param::Int(locked.now),
            ];
            session.run(RESERVE_AGAIN, &params).await?;
        }
    }
    Ok(())
}

async fn write_others(
    session: &mut Session,
    locked: &Locked,
    decision: &Decision<'_>,
) -> Result<(), Fault> {
    let name = locked.item.name.as_str();
    for adjustment in &decision.adjustments {
        let params = [
            Param::Text(name),
            Param::Text(adjustment.reference),
            Param::Int(int(adjustment.units)),
            Param::Text(adjustment.reason),
            Param::Bool(adjustment.done),
            Param::Int(locked.now),
        ];
        session.run(INSERT_ADJUSTMENT, &params).await?;
    }
    for settled in &decision.settled {
        let params = [
            Param::Text(name),
            Param::Int(int(settled.key.0)),
            Param::Int(int(settled.key.1)),
            Param::Text(settled.kind),
            Param::Bool(settled.done),
            Param::Int(locked.now),
        ];
        session.run(INSERT_SETTLED, &params).await?;
    }
    for wish in &decision.wishes_met {
        let params = [
            Param::Text(name),
            Param::Int(int(wish.0)),
            Param::Int(int(wish.1)),
        ];
        session.run(DELETE_WISH, &params).await?;
    }
    Ok(())
}
