//! An item as a request describes it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer};
use tenure_sale::{NewItem, Terms};
use utoipa::ToSchema;

use crate::problem::{Kind, Problem};

/// An item to create, or changes to its terms. Missing fields keep their value or get the default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemBody {
    /// Name; only when creating.
    #[serde(default, alias = "name")]
    #[schema(value_type = Option<String>, example = "sku-7")]
    item: Given<String>,
    /// Units in stock, or null for no limit; only when creating.
    #[serde(default)]
    #[schema(value_type = Option<u64>, example = 5000)]
    units: Given<u64>,
    /// Number of shelves of the stock, each in its own slot; default 1; only when creating.
    #[schema(minimum = 1, maximum = 64)]
    spread: Option<u64>,
    /// Whether to open the sale at once; only when creating.
    #[serde(default)]
    pub(crate) open: bool,
    /// Start of the sale; null for at once.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "2026-11-27T20:00:00Z")]
    starts_at: Given<String>,
    /// End of the sale; null for never.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    ends_at: Given<String>,
    /// Maximum units per buyer; null for no limit.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    limit_per_buyer: Given<u64>,
    /// Maximum units per order; default 1.
    units_per_order: Option<u64>,
    /// Unpaid orders expire after this time and return their units; null for never.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pay_within_ms: Given<u64>,
    /// Orders are refused with `backlog` while this many are queued.
    backlog_max: Option<u64>,
    /// How long after the end the gate recognizes retries.
    answers_kept_ms: Option<u64>,
}

/// A field that may be left out, which is different from null.
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

    /// The new value if one was given, otherwise the old one.
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
            return Err(invalid("`item` is missing: give the name of the item"));
        };
        let item = match self.units {
            Given::Is(units) => NewItem::new(name, units)?,
            Given::Null => NewItem::unlimited(name)?,
            Given::No => {
                let detail = "`units` is missing: give the stock, or null for no limit";
                return Err(invalid(detail));
            }
        };
        let item = item.spread(self.spread.unwrap_or(1));
        Ok(item.terms(self.terms(&Terms::default())?))
    }

    /// These terms, with the changes that the body asks for.
    pub(crate) fn changed(&self, terms: &Terms) -> Result<Terms, Problem> {
        let is_new = self.item.is_given() || self.units.is_given() || self.spread.is_some();
        if is_new || self.open {
            return Err(invalid(
                "`item`, `units`, `spread` and `open` cannot be changed here: change the stock \
                 with PUT …/stock, and open the item with POST …/open",
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
            "invalid `{field}` `{}`: write a time like `2026-11-27T20:00:00Z`",
            shown.escape_debug()
        );
        Problem::new(Kind::INVALID, detail)
    })
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Kind::INVALID, detail)
}
