//! The measurements, for people and for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tenure_view::timings::{Timings, millis};

use super::BenchArgs;
use super::commands::Meter;
use super::contest::Contest;
use super::stand::Stand;

/// The measurements so far.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    clients: u32,
    tasks: u32,
    locks: u32,
    hold_ms: u64,
    ttl_ms: u64,
    duration_ms: u64,
    /// Connections of other clients at the start: their commands are counted too.
    other_connections: Option<u64>,
    floor: Option<Rates>,
    uncontended: Option<Uncontended>,
    contended: Option<Contended>,
    #[serde(skip)]
    pub floor_took: Duration,
    #[serde(skip)]
    pub pairs_took: Duration,
}

#[derive(Clone, Debug, Serialize)]
struct Rates {
    pairs: u64,
    pairs_per_second: f64,
    p50_us: u64,
    p99_us: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Uncontended {
    #[serde(flatten)]
    pairs: Rates,
    /// Its rate relative to the floor.
    ratio_to_floor: Option<f64>,
    #[serde(flatten)]
    cost: Cost,
}

#[derive(Clone, Debug, Serialize)]
struct Contended {
    hand_offs: u64,
    hand_offs_per_second: f64,
    /// How many of them needed no request to the server.
    inside_clients: u64,
    wait_p50_us: u64,
    wait_p99_us: u64,
    share_min: f64,
    share_max: f64,
    jain_index: f64,
    #[serde(flatten)]
    cost: Cost,
}

/// What one acquisition and its release cost the server; unknown if it does not report that.
#[derive(Clone, Debug, Serialize)]
struct Cost {
    commands_per_acquisition: Option<f64>,
    round_trips_per_acquisition: Option<f64>,
}

impl Report {
    pub fn new(args: &BenchArgs, stand: &Stand) -> Self {
        Self {
            clients: args.clients,
            tasks: args.tasks,
            locks: args.locks,
            hold_ms: whole_millis(args.hold),
            ttl_ms: whole_millis(stand.ttl),
            duration_ms: whole_millis(args.duration),
            other_connections: stand.others,
            floor: None,
            uncontended: None,
            contended: None,
            floor_took: Duration::ZERO,
            pairs_took: Duration::ZERO,
        }
    }

    pub fn note_pairs(&mut self, floor: &Timings, pairs: &Timings, meter: &Meter) {
        let of = |times: &Timings, took| (times.count() > 0).then(|| Rates::of(times, took));
        self.floor = of(floor, self.floor_took);
        let floor = self.floor.as_ref().map(|floor| floor.pairs_per_second);
        self.uncontended = of(pairs, self.pairs_took).map(|pairs| Uncontended {
            ratio_to_floor: floor.map(|floor| rounded(pairs.pairs_per_second / floor)),
            cost: Cost::of(meter, pairs.pairs),
            pairs,
        });
    }

    pub fn note_contest(&mut self, contest: &Contest, took: Duration, meter: &Meter) {
        let (share_min, share_max) = contest.shares();
        let hand_offs = contest.waits.count();
        self.contended = Some(Contended {
            hand_offs,
            hand_offs_per_second: rate(hand_offs, took),
            inside_clients: contest.inside,
            wait_p50_us: micros(contest.waits.percentile(50.0)),
            wait_p99_us: micros(contest.waits.percentile(99.0)),
            share_min: rounded(share_min),
            share_max: rounded(share_max),
            jain_index: rounded(contest.fairness()),
            cost: Cost::of(meter, hand_offs),
        });
    }
}

impl Rates {
    fn of(times: &Timings, took: Duration) -> Self {
        Self {
            pairs: times.count(),
            pairs_per_second: rate(times.count(), took),
            p50_us: micros(times.percentile(50.0)),
            p99_us: micros(times.percentile(99.0)),
        }
    }
}

impl Cost {
    fn of(meter: &Meter, count: u64) -> Self {
        let cost = meter.per(count);
        Self {
            commands_per_acquisition: cost.map(|(commands, _)| rounded(commands)),
            round_trips_per_acquisition: cost.map(|(_, trips)| rounded(trips)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, tasks, .. } = self;
        write!(f, "{clients} clients with {tasks} tasks each, ")?;
        writeln!(f, "ttl {} ms, held for {} ms\n", self.ttl_ms, self.hold_ms)?;
        writeln!(
            f,
            "{:<12} {:>10} {:>10} {:>10}",
            "", "per second", "p50", "p99"
        )?;
        if let Some(floor) = &self.floor {
            writeln!(f, "{:<12} {}", "floor", floor.row())?;
        }
        if let Some(uncontended) = &self.uncontended {
            write!(f, "{:<12} {}", "uncontended", uncontended.pairs.row())?;
            if let Some(ratio) = uncontended.ratio_to_floor {
                write!(f, "  {ratio:.2} of the floor")?;
            }
            writeln!(f, "{}", uncontended.cost)?;
        }
        match &self.contended {
            Some(contended) => self.write_contest(f, contended)?,
            None => writeln!(f, "{:<12} not measured: it was interrupted", "contended")?,
        }
        match self.other_connections {
            Some(0) => write!(f, "\nno other clients were connected"),
            Some(others) => write!(
                f,
                "\nother clients had {others} connections: their commands are counted, too"
            ),
            None => write!(
                f,
                "\nunknown whether other clients use the server: INFO is forbidden"
            ),
        }
    }
}

impl Report {
    fn write_contest(&self, f: &mut fmt::Formatter<'_>, contended: &Contended) -> fmt::Result {
        let row = row(
            contended.hand_offs_per_second,
            contended.wait_p50_us,
            contended.wait_p99_us,
        );
        let names = match self.locks {
            1 => "one name".to_owned(),
            locks => format!("{locks} names"),
        };
        writeln!(f, "{:<12} {row}  on {names}{}", "contended", contended.cost)?;
        write!(f, "{:<12} a client had ", "")?;
        write!(f, "{:.1} to ", contended.share_min * 100.0)?;
        write!(f, "{:.1} % of the turns, ", contended.share_max * 100.0)?;
        write!(f, "Jain's index {:.3}; ", contended.jain_index)?;
        let (inside, all) = (contended.inside_clients, contended.hand_offs);
        writeln!(f, "{inside} of {all} passed on inside a client")
    }
}

impl Rates {
    fn row(&self) -> String {
        row(self.pairs_per_second, self.p50_us, self.p99_us)
    }
}

fn row(rate: f64, half_us: u64, most_us: u64) -> String {
    let time = |micros| millis(Duration::from_micros(micros));
    format!("{rate:>10.0} {:>10} {:>10}", time(half_us), time(most_us))
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = (
            self.commands_per_acquisition,
            self.round_trips_per_acquisition,
        );
        let (Some(commands), Some(trips)) = costs else {
            return Ok(());
        };
        write!(f, ", {commands:.2} commands in {trips:.2} round trips each")
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
fn rate(count: u64, took: Duration) -> f64 {
    (count as f64 / took.as_secs_f64().max(1e-9)).round()
}

/// Three decimals: more would only look exact.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
