//! Reconciliation: whether gate, queue and ledger agree on an item.

use std::fmt;
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::gate::{ShelfStanding, Standing};
use crate::item::{Item, ItemState};
use crate::ledger::Count;
use crate::rebuild::{self, Need, put_back};
use crate::relay;
use crate::sale::Sale;

/// How often to retry for a moment in which nothing moves.
const LOOKS_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// What to do about differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    DryRun,
    /// Rebuild the gate from the ledger if they disagree. Never the other way round.
    Repair,
}

/// What gate, queue and ledger contain for an item.
///
/// At a quiet moment `total = left + queued + sold`, and nothing moves between shelves. If orders
/// move while the parts are read, the parts are from different moments:
/// [`settled`](Report::settled) says whether the drift is meaningful.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own"
)]
#[non_exhaustive]
pub struct Report {
    /// The item in the ledger.
    pub item: Item,
    /// Whether the gate sells what this ledger has.
    pub current: bool,
    /// Units left at the gate; `None` if it does not know the item, or if it is unlimited.
    pub left: Option<u64>,
    /// Units in transit from one shelf to another. Nonzero only during a move.
    pub moving: u64,
    /// Entries in the queue.
    pub queued: u64,
    /// Units that those entries have reserved, if known.
    pub queued_units: Option<u64>,
    /// Entries delivered to consumers and not acknowledged.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
    /// Orders and units by state.
    pub by_state: Vec<Count>,
    /// Units of orders that hold units, summed order by order. Must equal the item's sold units.
    pub held: u64,
    /// The shelves, if the item is spread over several.
    pub shelves: Vec<ShelfStanding>,
    /// Keys at the gate that hold something else than what it writes there.
    pub foreign: Vec<String>,
    /// The epoch of the gate.
    pub gate_epoch: u64,
    /// The last change that the gate applied.
    pub gate_change: u64,
    /// The last change in the ledger.
    pub ledger_change: u64,
    /// Whether nothing moved while the parts were read, so that [`drift`](Report::drift) is
    /// accurate.
    pub settled: bool,
    put_back: bool,
    /// Whether the gate was rebuilt; the rest of the report is from after that.
    pub repaired: bool,
}

impl Report {
    /// Units that are missing (positive) or in two places (negative):
    /// `total − left − moving − queued − sold`.
    /// `None` if that is meaningless: unlimited stock, a draft, an item that the
    /// gate does not know.
    pub fn drift(&self) -> Option<i128> {
        if self.item.unlimited {
            return None;
        }
        let gone = [self.left?, self.moving, self.queued_units?, self.item.sold];
        let gone: i128 = gone.into_iter().map(i128::from).sum();
        Some(i128::from(self.item.total) - gone)
    }

    /// Whether all parts agree.
    pub fn is_clean(&self) -> bool {
        self.gate_agrees() && self.held == self.item.sold
    }

    /// Whether the gate sells what the ledger has.
    pub(crate) fn gate_agrees(&self) -> bool {
        if !self.foreign.is_empty() {
            return false;
        }
        match self.item.state {
            // Not at the gate, or already removed from it.
            ItemState::Draft => true,
            ItemState::Closed if self.gate_epoch == 0 => true,
            _ => {
                let drifts = self.drift().is_some_and(|drift| drift != 0);
                self.current && !drifts && self.drifting().next().is_none()
            }
        }
    }

    /// Whether the gate knows more than the ledger: the ledger was put back, for example restored
    /// from an older copy.
    pub fn is_put_back(&self) -> bool {
        self.put_back
    }

    /// The shelves whose own books do not balance.
    pub fn drifting(&self) -> impl Iterator<Item = &ShelfStanding> {
        self.shelves.iter().filter(|shelf| shelf.drift != 0)
    }
}

impl Sale {
    /// Checks whether gate, queue and ledger agree on an item, and optionally repairs the gate.
    ///
    /// # Errors
    ///
    /// [`NoItem`](crate::ErrorKind::NoItem), or if gate or ledger cannot be reached.
    pub async fn reconcile(&self, item: &str, mode: Mode) -> Result<Report> {
        let mut report = self.quiet_report(item).await?;
        if mode == Mode::Repair && !report.is_clean() && report.item.state != ItemState::Draft {
            rebuild::in_background(self.core(), item, Need::Decided).await?;
            report = self.quiet_report(item).await?;
            report.repaired = true;
        }
        Ok(report)
    }

    /// A report of a moment in which nothing moved, if there is one soon; otherwise of the last
    /// moment.
    async fn quiet_report(&self, item: &str) -> Result<Report> {
        let mut looks = 0;
        loop {
            let report = self.report(item).await?;
            looks += 1;
            if report.settled || looks == LOOKS_MAX {
                return Ok(report);
            }
            if report.moving > 0 {
                self.core().gate.finish_moves(item).await?;
            }
            if report.current && report.gate_change < report.ledger_change {
                relay::relay_if_possible(self.core(), item).await;
            }
            sleep(PAUSE).await;
        }
    }

    async fn report(&self, item: &str) -> Result<Report> {
        let core = self.core();
        let gate_before = self.standing_with_units(item).await?;
        let known = core.item(item).await?;
        let by_state = core.ledger.counts(item).await?;
        let known_after = core.item(item).await?;
        let gate_after = self.standing_with_units(item).await?;
        let still = known == known_after && gate_before == gate_after;
        Ok(Report::of(
            known_after,
            gate_after.as_ref(),
            by_state,
            still,
        ))
    }

    async fn standing_with_units(&self, item: &str) -> Result<Option<Standing>> {
        let gate = &self.core().gate;
        let mut standing = gate.standing(item).await?;
        if let Some(standing) = &mut standing {
            let units = match standing.queued {
                0 => 0,
                _ => gate.queued_units(item).await?,
            };
            standing.queued_units = Some(units);
        }
        Ok(standing)
    }
}

impl Report {
    fn of(item: Item, gate: Option<&Standing>, by_state: Vec<Count>, still: bool) -> Self {
        let holds = |count: &&Count| count.state.holds_units();
        let held = by_state.iter().filter(holds).map(|count| count.units).sum();
        let number = |of: fn(&Standing) -> u64| gate.map_or(0, of);
        let sells = |gate: &Standing| gate.current && gate.state.is_some();
        let gate_change = number(|gate| gate.change);
        let put_back = gate.is_some_and(|gate| put_back::is_ahead(gate, &item));
        let pending = number(|gate| gate.pending);
        // Entries held by a consumer may already be in the ledger.
        let moving = number(|gate| gate.moving);
        let still = still && pending == 0 && moving == 0;
        let settled = still && (gate.is_none() || gate_change == item.change);
        Self {
            current: gate.is_some_and(|gate| sells(gate) && gate.epoch == item.epoch),
            left: gate.and_then(|gate| gate.left),
            moving,
            shelves: gate.map_or_else(Vec::new, |gate| gate.shelves.clone()),
            queued: number(|gate| gate.queued),
            queued_units: gate.and_then(|gate| gate.queued_units),
            pending,
            dead: number(|gate| gate.dead),
            foreign: gate.map_or_else(Vec::new, |gate| gate.foreign.clone()),
            held,
            gate_epoch: number(|gate| gate.epoch),
            gate_change,
            ledger_change: item.change,
            settled: settled || put_back,
            put_back,
            repaired: false,
            by_state,
            item,
        }
    }
}

/// A table for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        let item = &self.item;
        let total = (!item.unlimited).then_some(item.total);
        writeln!(f, "item        {} ({})", item.name, item.state)?;
        writeln!(f, "total       {:>12}", or_none(total))?;
        writeln!(f, "left        {:>12}", or_none(self.left))?;
        self.write_shelves(f)?;
        writeln!(
            f,
            "queued      {:>12}  in {} entries, {} with consumers",
            or_none(self.queued_units),
            self.queued,
            self.pending
        )?;
        writeln!(f, "sold        {:>12}  by orders {}", item.sold, self.held)?;
        for count in &self.by_state {
            writeln!(
                f,
                "  {:<18}{:>4}  in {} orders",
                count.state.word(),
                count.units,
                count.orders
            )?;
        }
        writeln!(f, "dead        {:>12}", self.dead)?;
        for key in &self.foreign {
            writeln!(f, "foreign     `{key}`")?;
        }
        writeln!(
            f,
            "epoch       {:>12}  at the gate {}",
            item.epoch, self.gate_epoch
        )?;
        writeln!(
            f,
            "change      {:>12}  at the gate {}",
            self.ledger_change, self.gate_change
        )?;
        let drift = self
            .drift()
            .map_or("-".to_owned(), |drift| drift.to_string());
        write!(f, "drift       {drift:>12}  {}", self.verdict())
    }
}

impl Report {
    fn write_shelves(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for shelf in &self.shelves {
            let left = shelf.left.map_or("-".to_owned(), |left| left.to_string());
            write!(
                f,
                "  shelf {:<12}{left:>4}  {} queued",
                shelf.nth, shelf.queued
            )?;
            if shelf.moving > 0 {
                write!(f, ", {} on their way to another", shelf.moving)?;
            }
            if !shelf.current || shelf.epoch != self.gate_epoch {
                write!(f, ", must be rebuilt")?;
            }
            if shelf.drift != 0 {
                write!(f, ", drift {}", shelf.drift)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn verdict(&self) -> &'static str {
        match (self.is_clean(), self.settled) {
            (_, false) if self.pending > 0 => "consumers are processing entries: check again",
            (_, false) => "orders are moving: check again at a quiet moment",
            (true, true) if self.repaired => "the gate was rebuilt, all agree",
            (true, true) => "all agree",
            (false, true) if self.held != self.item.sold => {
                "the ledger contradicts itself: a rebuild cannot repair that"
            }
            (false, true) if self.is_put_back() => {
                "the gate knows more than the ledger, which was put back: see docs/restoring.md"
            }
            (false, true) if !self.current => "the gate must be rebuilt",
            (false, true) => "gate and ledger disagree: repair rebuilds the gate",
        }
    }
}
