//! What is sold, and to whom.

use std::time::Duration;

use tenure_sale::{NewItem, Terms};
use tenure_testkit::sale::Profile;

use crate::plan::RATE;

/// The notes' case: one attempt in forty can get a unit. Nothing comes back and nothing is added, so
/// that *sold out* is judged exactly.
const RUSH: &str = "rush";
/// As much again, a quarter at first and the rest bit by bit while it is sold out.
pub const REFILL: &str = "refill";
/// One unit, wanted by everybody.
const ONE: &str = "one";
/// Orders for one to three, three for each buyer, by few who storm and repeat themselves; paid and
/// cancelled.
const FEW: &str = "few";
/// The notes' case again, on several shelves.
const HOT: &str = "hot";
/// As the few, on several shelves: units come back, and limits are kept.
const HOT_FEW: &str = "hot-few";
/// Must be paid for at once, so that payments, cancellations and the end of their time meet; on two
/// shelves.
const BRIEF: &str = "brief";
/// Cannot be used until everything is healed.
pub const BROKEN: &str = "broken";
/// Never sells out.
const FREE: &str = "free";

/// So long an order of [`BRIEF`] can be paid for.
const PAY_WITHIN: Duration = Duration::from_millis(300);

pub struct OnSale {
    pub name: &'static str,
    /// `None` is without end.
    pub units: Option<u64>,
    pub limit: Option<u64>,
    units_max: u64,
    pub pay_within: Option<Duration>,
    /// Over so many shelves.
    pub spread: u64,
    buyers: u64,
    /// In a hundred orders, so many are followed up: looked at, paid for or cancelled.
    pub followed_percent: u32,
    pub cancels: bool,
    repeated_percent: u32,
    storm_percent: u32,
    /// Its part of all wishes.
    weight: usize,
}

/// What is sold in a run of this length.
pub fn all(time: Duration) -> Vec<OnSale> {
    let attempts = RATE * u64::try_from(time.as_millis()).unwrap() / 1_000;
    let plain = OnSale {
        name: RUSH,
        units: Some((attempts / 40).max(20)),
        limit: None,
        units_max: 1,
        pay_within: None,
        spread: 1,
        buyers: 1_000_000,
        followed_percent: 20,
        cancels: false,
        repeated_percent: 5,
        storm_percent: 2,
        weight: 7,
    };
    vec![
        OnSale {
            name: REFILL,
            weight: 5,
            ..plain
        },
        OnSale {
            name: ONE,
            units: Some(1),
            buyers: 10_000,
            weight: 2,
            ..plain
        },
        OnSale {
            name: FEW,
            units: Some((attempts / 40).max(20)),
            limit: Some(3),
            units_max: 3,
            buyers: attempts / 60 + 20,
            followed_percent: 60,
            cancels: true,
            repeated_percent: 15,
            storm_percent: 10,
            weight: 4,
            ..plain
        },
        OnSale {
            name: HOT,
            spread: 4,
            weight: 5,
            ..plain
        },
        OnSale {
            name: HOT_FEW,
            units: Some((attempts / 40).max(20)),
            limit: Some(3),
            units_max: 3,
            spread: 3,
            buyers: attempts / 60 + 20,
            followed_percent: 60,
            cancels: true,
            repeated_percent: 15,
            storm_percent: 10,
            weight: 3,
            ..plain
        },
        OnSale {
            name: BRIEF,
            units: Some(60),
            units_max: 2,
            limit: Some(4),
            pay_within: Some(PAY_WITHIN),
            spread: 2,
            buyers: 300,
            followed_percent: 50,
            cancels: true,
            repeated_percent: 10,
            storm_percent: 5,
            weight: 3,
        },
        OnSale {
            name: BROKEN,
            weight: 0,
            ..plain
        },
        OnSale {
            name: FREE,
            units: None,
            limit: Some(2),
            buyers: attempts / 20 + 20,
            weight: 1,
            ..plain
        },
        plain,
    ]
}

impl OnSale {
    /// As the shop puts it on sale.
    pub fn new_item(&self) -> NewItem {
        let item = match self.units {
            Some(units) if self.name == REFILL => NewItem::new(self.name, units / 4),
            Some(units) => NewItem::new(self.name, units),
            None => NewItem::unlimited(self.name),
        };
        item.unwrap().terms(self.terms()).spread(self.spread)
    }

    pub fn terms(&self) -> Terms {
        Terms {
            limit_per_buyer: self.limit,
            units_per_order: self.units_max,
            pay_within: self.pay_within,
            ..Terms::default()
        }
    }

    pub fn profiles(items: &[Self]) -> Vec<Profile> {
        let repeated = items.iter().flat_map(|item| {
            let profile = Profile {
                item: item.name.into(),
                buyers: item.buyers,
                units_max: item.units_max,
                repeated_percent: item.repeated_percent,
                storm_percent: item.storm_percent,
            };
            std::iter::repeat_n(profile, item.weight)
        });
        repeated.collect()
    }
}
