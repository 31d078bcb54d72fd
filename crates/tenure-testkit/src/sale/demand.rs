//! The load that buyers generate, the same for every shop.

use std::collections::VecDeque;

use rand::RngExt;
use rand::rngs::StdRng;

use crate::Seed;

/// How buyers order one item.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The item's name.
    pub item: String,
    /// The number of buyers. Each client process has all of them.
    pub buyers: u64,
    /// The maximum units per order.
    pub units_max: u64,
    /// The percentage of wishes that are sent several times with the same request id.
    pub repeated_percent: u32,
    /// The percentage of wishes that start a storm of requests with different ids by one buyer.
    pub storm_percent: u32,
}

/// One request of a buyer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The item.
    pub item: String,
    /// The buyer.
    pub buyer: String,
    /// The buyer's id of the request.
    pub request: String,
    /// The number of units.
    pub units: u64,
    /// How often it is sent concurrently.
    pub times: u64,
}

/// An endless sequence of wishes, deterministic for a seed.
#[derive(Debug)]
pub struct Demand {
    profiles: Vec<Profile>,
    client: u64,
    numbers: u64,
    rng: StdRng,
    storm: VecDeque<Wish>,
}

impl Demand {
    /// The wishes of the buyers at the process `client`.
    pub fn new(seed: Seed, client: u64, profiles: Vec<Profile>) -> Self {
        Self {
            profiles,
            client,
            numbers: 0,
            rng: seed.part(client).rng(),
            storm: VecDeque::new(),
        }
    }

    fn draw(&mut self) -> Wish {
        let at = self.rng.random_range(0..self.profiles.len());
        let profile = self.profiles[at].clone();
        let buyer = self.rng.random_range(0..profile.buyers);
        let percent = self.rng.random_range(0..100);
        let mut wish = self.wish(&profile, buyer);
        if percent < profile.repeated_percent {
            wish.times = self.rng.random_range(2..5);
        } else if percent < profile.repeated_percent + profile.storm_percent {
            for _ in 0..self.rng.random_range(2..8) {
                let another = self.wish(&profile, buyer);
                self.storm.push_back(another);
            }
        }
        wish
    }

    fn wish(&mut self, profile: &Profile, buyer: u64) -> Wish {
        self.numbers += 1;
        Wish {
            item: profile.item.clone(),
            buyer: format!("buyer-{buyer}"),
            request: format!("{}-{}", self.client, self.numbers),
            units: self.rng.random_range(1..=profile.units_max),
            times: 1,
        }
    }
}

impl Iterator for Demand {
    type Item = Wish;

    fn next(&mut self) -> Option<Wish> {
        Some(match self.storm.pop_front() {
            Some(wish) => wish,
            None => self.draw(),
        })
    }
}
