//! What operators do to a sale while it runs.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_sale::{Error, Sale};
use tokio::runtime::Handle;

use crate::items::OnSale;

/// Those who look after the sale.
pub struct Operators {
    pub sale: Sale,
    pub runtime: Handle,
    pub items: Vec<OnSale>,
}

impl Operators {
    /// Any item.
    pub fn item(&self, rng: &mut StdRng) -> &'static str {
        self.items.choose(rng).unwrap().name
    }

    /// Gives buyers another limit, no greater than the one by which they are judged. Orders that were
    /// accepted before keep theirs.
    pub fn change_limit(&self, rng: &mut StdRng) -> bool {
        let limited: Vec<&OnSale> = self.items.iter().filter(|it| it.limit.is_some()).collect();
        let item = limited.choose(rng).unwrap();
        let limit = rng.random_range(1..=item.limit.unwrap());
        self.set_limit(item, limit)
    }

    /// Whether every item has its own limit again.
    pub fn restore_limits(&self) -> bool {
        let mut limited = self.items.iter();
        limited.all(|item| item.limit.is_none_or(|limit| self.set_limit(item, limit)))
    }

    /// Opens the sale with other servers, for a moment.
    pub fn open(&self, gate_url: &str, ledger_url: &str) -> Result<(), Error> {
        let opening = Sale::open(gate_url, ledger_url);
        self.runtime.block_on(opening).map(drop)
    }

    fn set_limit(&self, item: &OnSale, limit: u64) -> bool {
        let mut terms = item.terms();
        terms.limit_per_buyer = Some(limit);
        let setting = self.sale.set_terms(item.name, &terms);
        self.runtime.block_on(setting).is_ok()
    }
}
