//! Items as they are shown.

use std::fmt::{self, Display};
use std::time::Duration;

use serde::Serialize;
use tenure_sale::gate::{ShelfStanding, Standing};
use tenure_sale::ledger::Count;
use tenure_sale::{Item, Terms};
use utoipa::ToSchema;

use super::{ShownCount, or_dash};
use crate::time::{self, moment};

/// An item, with the state of its gate if requested.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownItem {
    item: String,
    state: &'static str,
    /// Null if unlimited.
    total: Option<u64>,
    unlimited: bool,
    /// Number of shelves of its stock.
    spread: u64,
    sold: u64,
    epoch: u64,
    starts_at: Option<String>,
    ends_at: Option<String>,
    limit_per_buyer: Option<u64>,
    units_per_order: u64,
    pay_within_ms: Option<u64>,
    backlog_max: u64,
    answers_kept_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<ShownGate>,
}

/// The state of an item at the gate.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownGate {
    knows: bool,
    current: bool,
    epoch: Option<u64>,
    left: Option<u64>,
    queued: u64,
    pending: u64,
    dead: u64,
    /// The shelves, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    shelves: Vec<ShownShelf>,
}

/// The state of one shelf.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownShelf {
    shelf: u64,
    current: bool,
    epoch: u64,
    left: Option<u64>,
    /// Units in transit to another shelf.
    moving: u64,
    /// Units missing from its own books; not zero if another program wrote to it.
    drift: i64,
    change: u64,
    queued: u64,
    pending: u64,
    dead: u64,
}

/// Statistics of an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownStats {
    item: String,
    state: &'static str,
    /// Null if unlimited.
    total: Option<u64>,
    sold: u64,
    gate: ShownGate,
    /// By state.
    pub orders: Vec<ShownCount>,
}

impl ShownItem {
    /// For output.
    pub fn of(item: &Item) -> Self {
        let Terms {
            starts_at,
            ends_at,
            limit_per_buyer,
            units_per_order,
            pay_within,
            backlog_max,
            answers_kept,
        } = &item.terms;
        Self {
            item: item.name.clone(),
            state: item.state.word(),
            total: (!item.unlimited).then_some(item.total),
            unlimited: item.unlimited,
            spread: item.spread,
            sold: item.sold,
            epoch: item.epoch,
            starts_at: starts_at.map(moment),
            ends_at: ends_at.map(moment),
            limit_per_buyer: *limit_per_buyer,
            units_per_order: *units_per_order,
            pay_within_ms: pay_within.map(time::millis),
            backlog_max: *backlog_max,
            answers_kept_ms: time::millis(*answers_kept),
            gate: None,
        }
    }

    /// With what the gate knows of it.
    #[must_use]
    pub fn at_gate(mut self, standing: Option<&Standing>) -> Self {
        self.gate = Some(ShownGate::of(standing));
        self
    }

    /// A line of a list.
    pub fn row(&self) -> String {
        let Self {
            item,
            state,
            sold,
            epoch,
            ..
        } = self;
        let total = or_dash(self.total);
        format!("{item:<24} {state:<7} {total:>10} {sold:>10} {epoch:>6}")
    }

    /// The heading of such a list.
    pub fn heading() -> String {
        format!(
            "{:<24} {:<7} {:>10} {:>10} {:>6}",
            "item", "state", "total", "sold", "epoch"
        )
    }
}

impl ShownGate {
    /// For output.
    pub fn of(standing: Option<&Standing>) -> Self {
        Self {
            knows: standing.is_some(),
            current: standing.is_some_and(|gate| gate.current),
            epoch: standing.map(|gate| gate.epoch),
            left: standing.and_then(|gate| gate.left),
            queued: standing.map_or(0, |gate| gate.queued),
            pending: standing.map_or(0, |gate| gate.pending),
            dead: standing.map_or(0, |gate| gate.dead),
            shelves: standing.map_or_else(Vec::new, |gate| ShownShelf::all(&gate.shelves)),
        }
    }
}

impl ShownShelf {
    /// All shelves of an item.
    pub fn all(shelves: &[ShelfStanding]) -> Vec<Self> {
        let shown = |shelf: &ShelfStanding| Self {
            shelf: shelf.nth,
            current: shelf.current,
            epoch: shelf.epoch,
            left: shelf.left,
            moving: shelf.moving,
            drift: i64::try_from(shelf.drift).unwrap_or(i64::MAX),
            change: shelf.change,
            queued: shelf.queued,
            pending: shelf.pending,
            dead: shelf.dead,
        };
        shelves.iter().map(shown).collect()
    }

    /// A line below that of its item.
    pub fn row(&self) -> String {
        let (left, queued, dead) = (or_dash(self.left), self.queued, self.dead);
        let shelf = format!("  shelf {}", self.shelf);
        format!("{shelf:<43} {left:>10} {queued:>8} {:>10} {dead:>6}", "")
    }
}

impl ShownStats {
    /// For output.
    pub fn of(item: &Item, standing: Option<&Standing>, counts: &[Count]) -> Self {
        Self {
            item: item.name.clone(),
            state: item.state.word(),
            total: (!item.unlimited).then_some(item.total),
            sold: item.sold,
            gate: ShownGate::of(standing),
            orders: counts.iter().map(ShownCount::of).collect(),
        }
    }

    /// The shelves, if there are several.
    pub fn shelves(&self) -> &[ShownShelf] {
        &self.gate.shelves
    }

    /// A line of a list.
    pub fn row(&self) -> String {
        let Self {
            item,
            state,
            sold,
            gate,
            ..
        } = self;
        let at_gate = |number: u64| or_dash(gate.knows.then_some(number));
        let (total, left) = (or_dash(self.total), or_dash(gate.left));
        let (queued, dead) = (at_gate(gate.queued), at_gate(gate.dead));
        format!("{item:<24} {state:<7} {total:>10} {left:>10} {queued:>8} {sold:>10} {dead:>6}")
    }

    /// The heading of such a list.
    pub fn heading() -> String {
        format!(
            "{:<24} {:<7} {:>10} {:>10} {:>8} {:>10} {:>6}",
            "item", "state", "total", "left", "queued", "sold", "dead"
        )
    }
}

impl Display for ShownItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &str| writeln!(f, "{name:<16}{value}");
        line("item", &self.item)?;
        line("state", self.state)?;
        line(
            "total",
            &self
                .total
                .map_or("unlimited".to_owned(), |units| units.to_string()),
        )?;
        line("sold", &self.sold.to_string())?;
        if let Some(gate) = &self.gate {
            line("left", &or_dash(gate.left))?;
            line("queued", &gate.queued.to_string())?;
            line("dead", &gate.dead.to_string())?;
            line("gate", gate.word())?;
            for shelf in &gate.shelves {
                let name = format!("shelf {}", shelf.shelf);
                line(&name, &format!("{} left", or_dash(shelf.left)))?;
            }
        }
        for (name, moment) in [("starts", &self.starts_at), ("ends", &self.ends_at)] {
            if let Some(moment) = moment {
                line(name, moment)?;
            }
        }
        line("per buyer", &or_dash(self.limit_per_buyer))?;
        line("per order", &self.units_per_order.to_string())?;
        let pay_within = self
            .pay_within_ms
            .map(|millis| time::show(Duration::from_millis(millis)));
        line("pay within", pay_within.as_deref().unwrap_or("-"))?;
        write!(f, "{:<16}{}", "epoch", self.epoch)
    }
}

impl ShownGate {
    fn word(&self) -> &'static str {
        match (self.knows, self.current) {
            (true, true) => "current",
            (true, false) => "must be rebuilt",
            (false, _) => "not loaded",
        }
    }
}
