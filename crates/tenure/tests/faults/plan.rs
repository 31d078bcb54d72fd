//! What a run consists of, and how its time is shared out.

use std::path::PathBuf;
use std::time::Duration;

use tenure::Layout;
use tenure_testkit::Seed;

use crate::deployment::Deployment;
use crate::phases;
use crate::report::Outcome;

/// Long enough for each deployment to do something on two cores; what CI has time for.
const SECONDS_DEFAULT: u64 = 90;
/// A longer run goes through all phases several times, each for about so long.
const ROUND_SECONDS: u64 = 1_200;

pub struct Plan {
    pub seed: Seed,
    pub seconds: u64,
    pub shares: Vec<Share>,
    /// Where histories are kept; thrown away if nowhere.
    keep: Option<PathBuf>,
}

/// A deployment and a layout, with its part of the time.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    pub deployment: Deployment,
    pub layout: Layout,
    /// In hundredths of a run.
    weight: u64,
}

const fn share(deployment: Deployment, layout: Layout, weight: u64) -> Share {
    Share {
        deployment,
        layout,
        weight,
    }
}

/// The layouts differ in their scripts, so both need their time where scripts decide alone.
const SHARES: [Share; 5] = [
    share(Deployment::Single, Layout::Native, 34),
    share(Deployment::Single, Layout::Redisson, 12),
    share(Deployment::Redlock, Layout::Native, 16),
    share(Deployment::Sentinel, Layout::Native, 19),
    share(Deployment::Cluster, Layout::Native, 19),
];

impl Plan {
    pub fn from_env() -> Self {
        let seconds = from_env("SECONDS").unwrap_or(SECONDS_DEFAULT);
        if seconds > SECONDS_DEFAULT {
            // A busy disk is a fault like any other, but not one that CI has time for.
            tenure_testkit::keep_servers_on_disk();
        }
        let seed = from_env("SEED").unwrap_or_else(rand::random);
        eprintln!("fault run with SEED={seed} SECONDS={seconds}");
        Self {
            seed: Seed::new(seed),
            seconds,
            shares: shares(from_env("DEPLOYMENT"), from_env("LAYOUT")),
            keep: std::env::var_os("TENURE_FAULTS_KEEP").map(PathBuf::from),
        }
    }

    /// All phases of each share, one after the other, as often as there is time for. What came of a
    /// phase comes to one outcome.
    pub fn run(&self) -> Vec<Outcome> {
        let rounds = self.rounds();
        let mut outcomes: Vec<Outcome> = Vec::new();
        for round in 0..rounds {
            let seed = match round {
                0 => self.seed,
                _ => self.seed.part(round),
            };
            let mut at = 0;
            for share in &self.shares {
                let time = self.time_of(share) / u32::try_from(rounds).unwrap_or(1);
                for phase in phases::all_of(share.deployment) {
                    let outcome = phase.run(self, *share, time * phase.percent / 100, seed);
                    outcome.tell();
                    match outcomes.get_mut(at) {
                        Some(earlier) => earlier.add(outcome),
                        None => outcomes.push(outcome),
                    }
                    at += 1;
                }
            }
        }
        outcomes
    }

    fn rounds(&self) -> u64 {
        (self.seconds / ROUND_SECONDS).max(1)
    }

    /// How long a deployment is broken in this run.
    pub fn time_of_all(&self, deployment: Deployment) -> Duration {
        let shares = self.shares.iter();
        let of_it = shares.filter(|share| share.deployment == deployment);
        of_it.map(|share| self.time_of(share)).sum()
    }

    fn time_of(&self, share: &Share) -> Duration {
        let all: u64 = self.shares.iter().map(|share| share.weight).sum();
        Duration::from_millis(self.seconds * 1_000 * share.weight / all)
    }

    /// A directory for the histories of a phase, and what deletes it unless it is to be kept.
    pub fn dir(
        &self,
        share: Share,
        phase: &str,
        seed: Seed,
    ) -> (PathBuf, Option<tempfile::TempDir>) {
        if let Some(keep) = &self.keep {
            let (deployment, layout) = (share.deployment, share.layout);
            let dir = keep.join(format!("{seed}-{deployment}-{layout}-{phase}"));
            std::fs::create_dir_all(&dir).unwrap();
            return (dir, None);
        }
        let dir = tempfile::tempdir().unwrap();
        (dir.path().to_owned(), Some(dir))
    }
}

/// What was asked for, in another layout if that was asked for.
fn shares(deployment: Option<Deployment>, layout: Option<Layout>) -> Vec<Share> {
    let mut shares = SHARES.to_vec();
    shares.retain(|share| deployment.is_none_or(|wanted| share.deployment == wanted));
    if let Some(layout) = layout {
        shares.dedup_by_key(|share| share.deployment);
        for share in &mut shares {
            share.layout = layout;
        }
    }
    shares
}

/// How to run it again, but for seed and length: what was asked for.
pub fn settings() -> String {
    let settings = ["DEPLOYMENT", "LAYOUT"].into_iter();
    let asked = settings.filter_map(|name| Some(format!("{name}={} ", word(name)?)));
    asked.collect()
}

fn from_env<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = word(name)?;
    let value = text.parse().ok();
    Some(value.unwrap_or_else(|| panic!("`{name}` cannot be `{text}`")))
}

/// A word in the environment; empty is as good as none, as `make` likes to pass it.
fn word(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
