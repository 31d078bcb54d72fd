//! An item as a request describes it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer};
use tenure_sale::{NewItem, Terms};
use utoipa::ToSchema;

use crate::problem::{Kind, Problem};

/// An item that is to be created, or what is to be different about it. What is left out stays as it
/// is, or is what is usual.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemBody {
    /// Its name; only where it is created.
    #[serde(default, alias = "name")]
    #[schema(value_type = Option<String>, example = "sku-7")]
    item: Given<String>,
    /// How many there are, or null if it never sells out; only where it is created.
    #[serde(default)]
    #[schema(value_type = Option<u64>, example = 5000)]
    units: Given<u64>,
    /// Over how many shelves its stock is spread, each in a slot of its own: 1, if nothing is said;
    /// only where it is created.
    #[schema(minimum = 1, maximum = 64)]
    spread: Option<u64>,
    /// Whether to put it on sale at once; only where it is created.
    #[serde(default)]
    pub(crate) open: bool,
    /// Nobody may order before; null for at once.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "2026-11-27T20:00:00Z")]
    starts_at: Given<String>,
    /// Nobody may order from then on; null for never.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    ends_at: Given<String>,
    /// The most units that one buyer may have; null for any number.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    limit_per_buyer: Given<u64>,
    /// The most units of one order: 1, if nothing is said.
    units_per_order: Option<u64>,
    /// An order not paid for within this time expires and its units go back; null for never.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pay_within_ms: Given<u64>,
    /// With so many orders waiting for the ledger the gate answers `backlog`.
    backlog_max: Option<u64>,
    /// For how long after its end the gate still knows the answers it gave.
    answers_kept_ms: Option<u64>,
}

/// A field that may be left out, which is not the same as null.
#[derive(Debug, Default)]
enum Given<T> {
    #[default]
    No,
    Null,
    Is(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = Option::deserialize(deserializer)?;
        Ok(found.map_or(Self::Null, Self::Is))
    }
}

impl<T> Given<T> {
    fn is_given(&self) -> bool {
        !matches!(self, Self::No)
    }

    /// This instead of what was there, if it was given.
    fn over<U>(
        &self,
        before: Option<U>,
        made: impl FnOnce(&T) -> Result<U, Problem>,
    ) -> Result<Option<U>, Problem> {
        match self {
            Self::No => Ok(before),
            Self::Null => Ok(None),
            Self::Is(value) => made(value).map(Some),
        }
    }
}

impl ItemBody {
    /// The item to create.
    pub(crate) fn new_item(&self) -> Result<NewItem, Problem> {
        let Given::Is(name) = &self.item else {
            return Err(invalid("`item` is missing: the name of the item"));
        };
        let item = match self.units {
            Given::Is(units) => NewItem::new(name, units)?,
            Given::Null => NewItem::unlimited(name)?,
            Given::No => {
                let detail =
                    "`units` is missing: how many there are, or null if it never sells out";
                return Err(invalid(detail));
            }
        };
        let item = item.spread(self.spread.unwrap_or(1));
        Ok(item.terms(self.terms(&Terms::default())?))
    }

    /// These terms, changed where something is said.
    pub(crate) fn changed(&self, terms: &Terms) -> Result<Terms, Problem> {
        let is_new = self.item.is_given() || self.units.is_given() || self.spread.is_some();
        if is_new || self.open {
            return Err(invalid(
                "`item`, `units`, `spread` and `open` are said when an item is created: change its \
                 stock with PUT …/stock, and open it with POST …/open",
            ));
        }
        self.terms(terms)
    }

    fn terms(&self, terms: &Terms) -> Result<Terms, Problem> {
        let length = |millis: &u64| Ok(Duration::from_millis(*millis));
        let kept = self.answers_kept_ms.map(Duration::from_millis);
        Ok(Terms {
            starts_at: self
                .starts_at
                .over(terms.starts_at, |text| moment("starts_at", text))?,
            ends_at: self
                .ends_at
                .over(terms.ends_at, |text| moment("ends_at", text))?,
            limit_per_buyer: self
                .limit_per_buyer
                .over(terms.limit_per_buyer, |limit| Ok(*limit))?,
            units_per_order: self.units_per_order.unwrap_or(terms.units_per_order),
            pay_within: self.pay_within_ms.over(terms.pay_within, length)?,
            backlog_max: self.backlog_max.unwrap_or(terms.backlog_max),
            answers_kept: kept.unwrap_or(terms.answers_kept),
        })
    }
}

fn moment(field: &str, text: &str) -> Result<SystemTime, Problem> {
    humantime::parse_rfc3339_weak(text).map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        let detail = format!(
            "cannot use `{}` as `{field}`: write a time like `2026-11-27T20:00:00Z`",
            shown.escape_debug()
        );
        Problem::new(Kind::INVALID, detail)
    })
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Kind::INVALID, detail)
}
