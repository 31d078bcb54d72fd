//! The results of all orders.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_view::timings::Timings;

use super::answer::Answer;

/// The results of orders: of one connection, and then of all.
#[derive(Clone, Debug)]
pub struct Tally {
    /// For each instance.
    pub instances: Vec<Served>,
    pub order_ids: Vec<String>,
    /// Orders without a response, by number.
    pub unknown: Vec<u64>,
    /// Response times.
    pub answers: Timings,
    pub took: Duration,
}

/// The responses of one instance.
#[derive(Clone, Debug, Default)]
pub struct Served {
    pub accepted: u64,
    pub refused: BTreeMap<String, u64>,
    /// Connections that failed.
    pub errors: u64,
    pub unknown: u64,
}

impl Tally {
    pub fn new(instances: usize) -> Self {
        Self {
            instances: vec![Served::default(); instances],
            order_ids: Vec::new(),
            unknown: Vec::new(),
            answers: Timings::new(),
            took: Duration::ZERO,
        }
    }

    /// Counts an instance's response to an order, and its response time.
    pub fn note(&mut self, order: u64, instance: usize, answer: Answer, took: Duration) {
        if answer != Answer::Unknown {
            self.answers.note(took);
        }
        self.settle(order, instance, answer);
    }

    /// Counts the result of an order.
    pub fn settle(&mut self, order: u64, instance: usize, answer: Answer) {
        let served = &mut self.instances[instance];
        match answer {
            Answer::Accepted { order_id } => {
                served.accepted += 1;
                self.order_ids.push(order_id);
            }
            Answer::Refused { code } => *served.refused.entry(code).or_default() += 1,
            Answer::Unknown => {
                served.unknown += 1;
                self.unknown.push(order);
            }
        }
    }

    pub fn join(&mut self, other: Self) {
        for (served, more) in self.instances.iter_mut().zip(other.instances) {
            served.accepted += more.accepted;
            served.errors += more.errors;
            served.unknown += more.unknown;
            for (code, count) in more.refused {
                *served.refused.entry(code).or_default() += count;
            }
        }
        self.order_ids.extend(other.order_ids);
        self.unknown.extend(other.unknown);
        self.answers.join(&other.answers);
    }

    pub fn sum(&self, of: impl Fn(&Served) -> u64) -> u64 {
        self.instances.iter().map(of).sum()
    }
}

impl Served {
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}
