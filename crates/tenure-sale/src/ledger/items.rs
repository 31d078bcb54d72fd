//! Items in the ledger.

use std::time::{Duration, SystemTime};

use crate::change::What;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::check_spread;
use crate::item::{Item, ItemState, NewItem, TERM_MAX, Terms};
use crate::ledger::books::{Books, Session, Work};
use crate::ledger::changes::record;
use crate::ledger::fault::Fault;
use crate::ledger::sql::{Param, Row, Sql, int};
use crate::ledger::timestamps::{duration, duration_ms, milliseconds, moment};
use crate::names::item_name;
use crate::order::ORDER_UNITS_MAX;
use crate::stock::UNITS_MAX;

macro_rules! columns {
    () => {
        "name, state, total, unlimited, sold, starts_at, ends_at, limit_per_buyer, units_per_order, \
         pay_within, backlog_max, answers_kept, epoch, change, spread"
    };
}

/// Milliseconds by the database's clock, read when the row is locked.
macro_rules! sqlite_now {
    () => {
        "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)"
    };
}
macro_rules! postgres_now {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}
pub(super) use {postgres_now, sqlite_now};

const ONE: Sql = Sql::same(concat!(
    "SELECT ",
    columns!(),
    " FROM sale_items WHERE name = $1"
));
const ALL: Sql = Sql::same(concat!(
    "SELECT ",
    columns!(),
    " FROM sale_items ORDER BY name"
));
/// On SQLite the transaction has the whole file to itself.
const LOCK: Sql = Sql::each(
    concat!(
        "SELECT ",
        columns!(),
        ", fence, ",
        sqlite_now!(),
        " FROM sale_items WHERE name = $1"
    ),
    concat!(
        "SELECT ",
        columns!(),
        ", fence, ",
        postgres_now!(),
        " FROM sale_items WHERE name = $1 FOR UPDATE"
    ),
);
const CREATE: Sql = Sql::same(
    "INSERT INTO sale_items (name, state, total, unlimited, starts_at, ends_at, limit_per_buyer, \
     units_per_order, pay_within, backlog_max, answers_kept, spread) \
     VALUES ($1, 'draft', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (name) DO NOTHING",
);
const SET_STATE: Sql = Sql::same("UPDATE sale_items SET state = $2 WHERE name = $1 AND state = $3");
const SET_TERMS: Sql = Sql::same(
    "UPDATE sale_items SET starts_at = $2, ends_at = $3, limit_per_buyer = $4, units_per_order = $5, \
     pay_within = $6, backlog_max = $7, answers_kept = $8 WHERE name = $1",
);

/// An item whose row is locked by this transaction.
#[derive(Clone, Debug)]
pub(super) struct Locked {
    pub(super) item: Item,
    pub(super) fence: u64,
    /// By the database's clock.
    pub(super) now: i64,
}

impl Locked {
    /// The payment deadline of an order that is reserved now, under the item's terms.
    pub(super) fn pay_by(&self) -> Option<i64> {
        self.pay_within(self.item.terms.pay_within)
    }

    /// The payment deadline of an order that is reserved now and has this long.
    pub(super) fn pay_within(&self, within: Option<Duration>) -> Option<i64> {
        // Nothing expires before it was committed.
        Some(self.now.saturating_add(duration_ms(within?).max(1)))
    }
}

/// Locks the item's row. Every transaction does that first, and in the order of their names for
/// several items, so that there are no deadlocks, and changes are numbered in commit order.
pub(super) async fn lock(session: &mut Session, name: &str) -> Result<Option<Locked>, Fault> {
    // A text that is not a valid name is not an item; and PostgreSQL does not accept every text.
    if item_name(name).is_err() {
        return Ok(None);
    }
    let rows = session.rows(LOCK, &[Param::Text(name)]).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(Locked {
        item: item(row)?,
        fence: row.number(15)?,
        now: row.get(16)?,
    }))
}

/// The same for an item that must exist.
pub(super) async fn lock_known(session: &mut Session, name: &str) -> Result<Locked, Fault> {
    let locked = lock(session, name).await?;
    locked.ok_or_else(|| no_item(name).into())
}

pub(super) async fn one(books: &Books, name: &str) -> Result<Option<Item>> {
    if item_name(name).is_err() {
        return Ok(None);
    }
    let doing = format!("read item `{name}` from the ledger");
    let rows = books.rows(&doing, ONE, &[Param::Text(name)]).await?;
    let found = rows.first().map(item).transpose();
    found.map_err(|error| Fault::Sql(error).told(&doing))
}

pub(super) async fn all(books: &Books, states: &[ItemState]) -> Result<Vec<Item>> {
    let doing = "read the items from the ledger";
    let rows = books.rows(doing, ALL, &[]).await?;
    let items: Result<Vec<Item>, _> = rows.iter().map(item).collect();
    let mut items = items.map_err(|error| Fault::Sql(error).told(doing))?;
    items.retain(|item| states.is_empty() || states.contains(&item.state));
    Ok(items)
}

/// A new item.
pub(super) struct Create<'a>(pub(super) &'a NewItem);

impl Work for Create<'_> {
    type Made = Item;

    fn doing(&self) -> String {
        format!("put item `{}` into the ledger", self.0.name)
    }

    async fn run(&self, session: &mut Session) -> Result<Item, Fault> {
        let new = self.0;
        let terms = TermsRow::of(&new.name, &new.terms)?;
        check_units(&new.name, new.units)?;
        check_spread(&new.name, new.spread)?;
        let mut params = vec![
            Param::Text(&new.name),
            Param::Int(int(new.units)),
            Param::Bool(new.unlimited),
        ];
        params.extend(terms.params());
        params.push(Param::Int(int(new.spread)));
        if session.run(CREATE, &params).await? == 0 {
            let message = format!(
                "cannot create item `{}`: it already exists; change its terms or its units",
                new.name
            );
            return Err(Error::new(ErrorKind::ItemExists, message).into());
        }
        Ok(lock_known(session, &new.name).await?.item)
    }
}

/// Opened, paused, closed.
pub(super) struct SetState<'a> {
    pub(super) item: &'a str,
    pub(super) from: &'a [ItemState],
    pub(super) to: ItemState,
}

impl Work for SetState<'_> {
    type Made = Item;

    fn doing(&self) -> String {
        format!("make item `{}` {}", self.item, self.to)
    }

    async fn run(&self, session: &mut Session) -> Result<Item, Fault> {
        let mut locked = lock_known(session, self.item).await?;
        let state = locked.item.state;
        if !self.from.contains(&state) {
            let message = format!(
                "cannot make item `{}` {}: it is {state}; check it and decide again",
                self.item, self.to
            );
            return Err(Error::new(ErrorKind::Conflict, message).into());
        }
        let params = [
            Param::Text(self.item),
            Param::Text(self.to.word()),
            Param::Text(state.word()),
        ];
        session.run(SET_STATE, &params).await?;
        locked.item.state = self.to;
        record(session, &mut locked, &[What::State(self.to)]).await?;
        Ok(locked.item)
    }
}

/// Other terms.
pub(super) struct SetTerms<'a> {
    pub(super) item: &'a str,
    pub(super) terms: &'a Terms,
}

impl Work for SetTerms<'_> {
    type Made = Item;

    fn doing(&self) -> String {
        format!("change the terms of item `{}`", self.item)
    }

    async fn run(&self, session: &mut Session) -> Result<Item, Fault> {
        let row = TermsRow::of(self.item, self.terms)?;
        let mut locked = lock_known(session, self.item).await?;
        let mut params = vec![Param::Text(self.item)];
        params.extend(row.params());
        session.run(SET_TERMS, &params).await?;
        locked.item.terms = row.terms();
        let what = What::Terms(Box::new(locked.item.terms.clone()));
        record(session, &mut locked, &[what]).await?;
        Ok(locked.item)
    }
}

pub(super) fn no_item(name: &str) -> Error {
    let shown: String = name.chars().take(64).collect();
    let message = format!(
        "the ledger has no item `{}`: create it first",
        shown.escape_debug()
    );
    Error::new(ErrorKind::NoItem, message)
}

pub(super) fn check_units(item: &str, units: u64) -> Result<()> {
    if units <= UNITS_MAX {
        return Ok(());
    }
    let message = format!("cannot keep `{units}` units of `{item}`: the most is {UNITS_MAX}");
    Err(Error::new(ErrorKind::InvalidUnits, message))
}

/// Microseconds from here on are not exact in Lua, in which the gate computes.
fn end_of_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(UNITS_MAX)
}

/// Terms as numbers, validated.
pub(super) struct TermsRow {
    starts_at: Option<i64>,
    ends_at: Option<i64>,
    limit_per_buyer: Option<u64>,
    units_per_order: u64,
    pay_within: Option<i64>,
    backlog_max: u64,
    answers_kept: i64,
}

impl TermsRow {
    pub(super) fn of(item: &str, terms: &Terms) -> Result<Self> {
        let row = Self {
            starts_at: terms.starts_at.map(milliseconds),
            ends_at: terms.ends_at.map(milliseconds),
            limit_per_buyer: terms.limit_per_buyer,
            units_per_order: terms.units_per_order,
            pay_within: terms.pay_within.map(duration_ms),
            backlog_max: terms.backlog_max,
            answers_kept: duration_ms(terms.answers_kept),
        };
        let wrong = |name: &str, value: String, cause: &str| {
            let message = format!("cannot sell `{item}` with {name} `{value}`: {cause}");
            Err(Error::new(ErrorKind::InvalidSetting, message))
        };
        let between = |value: u64, most: u64| (1..=most).contains(&value);
        if let (Some(starts), Some(ends)) = (row.starts_at, row.ends_at)
            && starts >= ends
        {
            wrong(
                "ends_at",
                ends.to_string(),
                "the end must be after the start",
            )
        } else if let Some(limit) = row
            .limit_per_buyer
            .filter(|limit| !between(*limit, UNITS_MAX))
        {
            wrong(
                "limit_per_buyer",
                limit.to_string(),
                "it must be at least 1; use `None` for no limit",
            )
        } else if !between(row.units_per_order, ORDER_UNITS_MAX) {
            let cause = format!("it must be from 1 to {ORDER_UNITS_MAX}");
            wrong("units_per_order", row.units_per_order.to_string(), &cause)
        } else if !between(row.backlog_max, UNITS_MAX) {
            let cause = format!("it must be from 1 to {UNITS_MAX}");
            wrong("backlog_max", row.backlog_max.to_string(), &cause)
        } else if let Some((name, time)) =
            [("starts_at", terms.starts_at), ("ends_at", terms.ends_at)]
                .into_iter()
                .find(|(_, time)| time.is_some_and(|time| time >= end_of_time()))
        {
            let time = time.map_or(0, milliseconds);
            wrong(name, time.to_string(), "it must be before June 2255")
        } else if let Some((name, time)) = [
            ("pay_within", terms.pay_within.unwrap_or_default()),
            ("answers_kept", terms.answers_kept),
        ]
        .into_iter()
        .find(|(_, time)| *time > TERM_MAX)
        {
            let time = format!("{} ms", time.as_millis());
            wrong(name, time, "it must be at most a hundred years")
        } else if terms.pay_within.is_some_and(|within| within.is_zero()) {
            wrong(
                "pay_within",
                "0".into(),
                "every order would expire at once; use `None` for no limit",
            )
        } else {
            Ok(row)
        }
    }

    fn params(&self) -> [Param<'static>; 7] {
        [
            Param::MaybeInt(self.starts_at),
            Param::MaybeInt(self.ends_at),
            Param::MaybeInt(self.limit_per_buyer.map(int)),
            Param::Int(int(self.units_per_order)),
            Param::MaybeInt(self.pay_within),
            Param::Int(int(self.backlog_max)),
            Param::Int(self.answers_kept),
        ]
    }

    fn terms(&self) -> Terms {
        Terms {
            starts_at: self.starts_at.map(moment),
            ends_at: self.ends_at.map(moment),
            limit_per_buyer: self.limit_per_buyer,
            units_per_order: self.units_per_order,
            pay_within: self.pay_within.map(duration),
            backlog_max: self.backlog_max,
            answers_kept: duration(self.answers_kept),
        }
    }
}

fn item(row: &Row) -> Result<Item, sqlx::Error> {
    let terms = TermsRow {
        starts_at: row.get(5)?,
        ends_at: row.get(6)?,
        limit_per_buyer: row.maybe_number(7)?,
        units_per_order: row.number(8)?,
        pay_within: row.get(9)?,
        backlog_max: row.number(10)?,
        answers_kept: row.get(11)?,
    };
    Ok(Item {
        name: row.get(0)?,
        state: row.word(1, ItemState::of_word)?,
        total: row.number(2)?,
        unlimited: row.get(3)?,
        sold: row.number(4)?,
        terms: terms.terms(),
        epoch: row.number(12)?,
        change: row.number(13)?,
        spread: row.number(14)?,
    })
}
