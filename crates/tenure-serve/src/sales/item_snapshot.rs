//! How an item stands at a moment, for those who watch it.

use std::time::Duration;

use serde::Serialize;
use tenure_sale::gate::Standing;
use tenure_sale::{Item, Sale};
use tenure_view::sale::at;
use tokio::time::timeout;
use utoipa::ToSchema;

/// How long gate and ledger may take to be looked at: whoever watches sees the last picture meanwhile.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// How an item stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Picture {
    #[schema(example = "sku-7")]
    pub(crate) item: String,
    /// `draft`, `open`, `paused` or `closed`.
    pub(crate) state: &'static str,
    /// Null if it is unlimited.
    pub(crate) total: Option<u64>,
    /// At the gate; null if it is unlimited, or if the gate does not say.
    pub(crate) left: Option<u64>,
    /// Units on their way from one shelf of an item to another.
    #[serde(skip)]
    pub(crate) moving: u64,
    /// Orders on their way into the ledger.
    pub(crate) queued: u64,
    /// Units of orders in the ledger.
    pub(crate) sold: u64,
    /// Entries that the ledger did not take.
    pub(crate) dead: u64,
    /// Whether the gate sells: it answers, and need not be rebuilt.
    pub(crate) current: bool,
    pub(crate) limit_per_buyer: Option<u64>,
    pub(crate) starts_at: Option<String>,
    pub(crate) ends_at: Option<String>,
}

impl Picture {
    /// Of an item as it was known last, with what the gate says now.
    pub(crate) async fn take(sale: &Sale, item: &Item) -> Self {
        let standing = standing(sale, &item.name).await.ok().flatten();
        Self::of(item, standing.as_ref())
    }

    fn of(item: &Item, standing: Option<&Standing>) -> Self {
        let terms = &item.terms;
        Self {
            item: item.name.clone(),
            state: item.state.word(),
            total: (!item.unlimited).then_some(item.total),
            left: standing.and_then(|gate| gate.left),
            moving: standing.map_or(0, |gate| gate.moving),
            queued: standing.map_or(0, |gate| gate.queued),
            sold: item.sold,
            dead: standing.map_or(0, |gate| gate.dead),
            current: standing.is_some_and(|gate| gate.current && gate.state.is_some()),
            limit_per_buyer: terms.limit_per_buyer,
            starts_at: terms.starts_at.map(at),
            ends_at: terms.ends_at.map(at),
        }
    }

    /// Units that are nowhere, or below zero in two places. Means something only if nothing moves.
    pub(crate) fn drift(&self) -> Option<i64> {
        let signed = |units: u64| i64::try_from(units).ok();
        if self.queued > 0 || self.moving > 0 || !self.current {
            return None;
        }
        Some(signed(self.total?)? - signed(self.left?)? - signed(self.sold)?)
    }
}

/// Nobody answered, or said that it is away.
pub(crate) struct Away;

/// What the gate knows of an item, if it answers.
pub(crate) async fn standing(sale: &Sale, item: &str) -> Result<Option<Standing>, Away> {
    let asked = timeout(LOOK_WITHIN, sale.gate().standing(item)).await;
    asked.map_err(|_| Away)?.map_err(|_| Away)
}

/// The item as the ledger knows it; `None` if that does not answer.
pub(crate) async fn item(sale: &Sale, name: &str) -> Option<Item> {
    let asked = timeout(LOOK_WITHIN, sale.item(name)).await;
    asked.ok().and_then(Result::ok).flatten()
}

/// All items as the ledger knows them; `None` if that does not answer.
pub(crate) async fn items(sale: &Sale) -> Option<Vec<Item>> {
    let asked = timeout(LOOK_WITHIN, sale.items()).await;
    asked.ok().and_then(Result::ok)
}
