//! The result of the load, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tenure_view::time;
use tenure_view::timings::millis;

use super::SaleArgs;
use super::check::Check;
use super::instance::Instance;
use super::tally::{Served, Tally};

/// The result of the load.
#[derive(Debug, Serialize)]
pub struct Report {
    item: String,
    connections: u32,
    /// Null if every connection sent its next order as soon as it had a response.
    rate_wanted: Option<u32>,
    orders: u64,
    accepted: u64,
    refused: BTreeMap<String, u64>,
    errors: u64,
    unknown: u64,
    took_ms: u64,
    orders_per_second: f64,
    accepted_per_second: f64,
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
    max_us: u64,
    instances: Vec<InstanceReport>,
    checks: Vec<Check>,
    holds: bool,
}

#[derive(Debug, Serialize)]
struct InstanceReport {
    url: String,
    port: u16,
    accepted: u64,
    refused: u64,
    unknown: u64,
    errors: u64,
}

impl Report {
    pub fn new(args: &SaleArgs, instances: &[Instance], tally: &Tally, checks: Vec<Check>) -> Self {
        let mut refused = BTreeMap::new();
        for (code, count) in tally.instances.iter().flat_map(|it| &it.refused) {
            *refused.entry(code.clone()).or_default() += count;
        }
        let (accepted, unknown) = (tally.sum(|it| it.accepted), tally.sum(|it| it.unknown));
        let orders = accepted + unknown + tally.sum(Served::refusals);
        let within = |percent| micros(tally.answers.percentile(percent));
        Self {
            item: args.item.clone(),
            connections: args.connections,
            rate_wanted: args.rate,
            orders,
            accepted,
            refused,
            errors: tally.sum(|it| it.errors),
            unknown,
            took_ms: time::millis(tally.took),
            orders_per_second: rate(orders, tally.took),
            accepted_per_second: rate(accepted, tally.took),
            p50_us: within(50.0),
            p99_us: within(99.0),
            p999_us: within(99.9),
            max_us: within(100.0),
            instances: instances
                .iter()
                .zip(&tally.instances)
                .map(|(instance, served)| InstanceReport::of(instance, served))
                .collect(),
            holds: checks.iter().all(|check| check.holds),
            checks,
        }
    }

    pub fn holds(&self) -> bool {
        self.holds
    }
}

impl InstanceReport {
    fn of(instance: &Instance, served: &Served) -> Self {
        Self {
            url: instance.url.clone(),
            port: instance.addr.port(),
            accepted: served.accepted,
            refused: served.refusals(),
            unknown: served.unknown,
            errors: served.errors,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = match self.rate_wanted {
            Some(rate) => format!("{rate} orders/s, open loop"),
            None => "each sends its next order after a response".to_owned(),
        };
        writeln!(
            f,
            "{} orders of `{}` over {} connections: {model}\n",
            self.orders, self.item, self.connections
        )?;
        writeln!(f, "accepted     {:>9}", self.accepted)?;
        for (code, count) in &self.refused {
            writeln!(f, "{code:<12} {count:>9}")?;
        }
        writeln!(f, "no answer    {:>9}", self.unknown)?;
        writeln!(f, "no connection{:>9}", self.errors)?;
        writeln!(
            f,
            "rate         {:>9.0} orders/s, {:.0} accepted/s, over {:.2} s",
            self.orders_per_second,
            self.accepted_per_second,
            Duration::from_millis(self.took_ms).as_secs_f64()
        )?;
        let shown = |us| millis(Duration::from_micros(us));
        writeln!(
            f,
            "answered     p50 {}, p99 {}, p99.9 {}, at most {}\n",
            shown(self.p50_us),
            shown(self.p99_us),
            shown(self.p999_us),
            shown(self.max_us)
        )?;
        for it in &self.instances {
            let InstanceReport {
                port,
                accepted,
                refused,
                ..
            } = it;
            writeln!(
                f,
                "port {port:<7} {accepted:>9} accepted, {refused} refused"
            )?;
        }
        for check in &self.checks {
            let word = if check.holds { "holds " } else { "BROKEN" };
            write!(f, "\n{word}  {:<14}  {}", check.name, check.told)?;
        }
        Ok(())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn rate(count: u64, time: Duration) -> f64 {
    (count as f64 / time.as_secs_f64().max(1e-9) * 10.0).round() / 10.0
}
