//! A snapshot of an item, for its watchers.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure_sale::gate::Standing;
use tenure_sale::{Item, Sale};
use tenure_view::time::moment;
use tokio::time::timeout;
use utoipa::ToSchema;

/// Time limit for reading gate and ledger; watchers see the last state meanwhile.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// The state of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Picture {
    #[schema(example = "sku-7")]
    pub(crate) item: String,
    /// `draft`, `open`, `paused` or `closed`.
    pub(crate) state: &'static str,
    /// Null if unlimited.
    pub(crate) total: Option<u64>,
    /// Left at the gate; null if unlimited or unknown.
    pub(crate) left: Option<u64>,
    /// Units in transit between shelves.
    #[serde(skip)]
    pub(crate) moving: u64,
    /// Orders queued for the ledger.
    pub(crate) queued: u64,
    /// Units of orders in the ledger.
    pub(crate) sold: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Whether the gate responds and needs no rebuild.
    pub(crate) current: bool,
    pub(crate) limit_per_buyer: Option<u64>,
    pub(crate) starts_at: Option<String>,
    pub(crate) ends_at: Option<String>,
}

impl Picture {
    /// An item as it was last known, with the current state of its gate.
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
            starts_at: terms.starts_at.map(moment),
            ends_at: terms.ends_at.map(moment),
        }
    }

    /// With the current time, as sent to watchers.
    pub(crate) fn timed(&self) -> impl Serialize {
        Timed {
            at: moment(SystemTime::now()),
            picture: self,
        }
    }

    /// Units that are missing or counted twice. Meaningful only while no units are in transit.
    pub(crate) fn drift(&self) -> Option<i64> {
        let signed = |units: u64| i64::try_from(units).ok();
        if self.queued > 0 || self.moving > 0 || !self.current {
            return None;
        }
        Some(signed(self.total?)? - signed(self.left?)? - signed(self.sold)?)
    }
}

/// A snapshot with its time, as sent to watchers.
#[derive(Serialize)]
struct Timed<'a> {
    at: String,
    #[serde(flatten)]
    picture: &'a Picture,
}

/// No response, or unavailable.
pub(crate) struct Away;

/// The gate's state of an item, if it responds.
pub(crate) async fn standing(sale: &Sale, item: &str) -> Result<Option<Standing>, Away> {
    let asked = timeout(LOOK_WITHIN, sale.gate().standing(item)).await;
    asked.map_err(|_| Away)?.map_err(|_| Away)
}

/// The item in the ledger; `None` if the ledger does not respond.
pub(crate) async fn item(sale: &Sale, name: &str) -> Option<Item> {
    let asked = timeout(LOOK_WITHIN, sale.item(name)).await;
    asked.ok().and_then(Result::ok).flatten()
}

/// All items in the ledger; `None` if the ledger does not respond.
pub(crate) async fn items(sale: &Sale) -> Option<Vec<Item>> {
    let asked = timeout(LOOK_WITHIN, sale.items()).await;
    asked.ok().and_then(Result::ok)
}
