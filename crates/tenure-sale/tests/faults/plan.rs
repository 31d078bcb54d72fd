//! What a run consists of.

use std::path::PathBuf;
use std::time::Duration;

use tenure_testkit::Seed;

use crate::deployment::Deployment;

/// What CI has time for, all deployments together.
const SECONDS_DEFAULT: u64 = 44;
/// Requests a second of all instances together: 200 000 in 100 seconds.
pub const RATE: u64 = 2_000;

pub struct Plan {
    pub seed: Seed,
    pub seconds: u64,
    deployment: Option<Deployment>,
    /// Where operations are kept; thrown away if nowhere, and if all is well.
    keep: Option<PathBuf>,
    bug: Option<String>,
}

/// Where the operations of a run are.
pub struct Dir {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl Plan {
    pub fn from_env() -> Self {
        let seconds = from_env("SECONDS").unwrap_or(SECONDS_DEFAULT);
        if seconds > SECONDS_DEFAULT {
            // A busy disk is a fault like any other, but not one that CI has time for.
            tenure_testkit::keep_servers_on_disk();
        }
        let seed = from_env("SEED").unwrap_or_else(rand::random);
        eprintln!("fault run of the sale with SEED={seed} SECONDS={seconds}");
        Self {
            seed: Seed::new(seed),
            seconds,
            deployment: from_env("DEPLOYMENT"),
            keep: std::env::var_os("TENURE_FAULTS_KEEP").map(PathBuf::from),
            bug: from_env("TENURE_SALE_BUG"),
        }
    }

    pub fn deployments(&self) -> Vec<Deployment> {
        match self.deployment {
            Some(deployment) => vec![deployment],
            None => Deployment::ALL.to_vec(),
        }
    }

    /// The bug that is planted in the engine, if one is.
    pub fn bug(&self) -> Option<&str> {
        self.bug.as_deref()
    }

    /// How long one deployment is broken.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.seconds * 1_000 / self.deployments().len() as u64)
    }

    pub fn dir(&self, deployment: Deployment) -> Dir {
        if let Some(keep) = &self.keep {
            let path = keep.join(format!("{}-{deployment}", self.seed));
            // What the last run with this seed left.
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            return Dir {
                path,
                temporary: None,
            };
        }
        let temporary = tempfile::Builder::new()
            .prefix("tenure-sale-faults-")
            .tempdir()
            .unwrap();
        Dir {
            path: temporary.path().to_owned(),
            temporary: Some(temporary),
        }
    }
}

impl Dir {
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Does not delete it, for inspection.
    pub fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            self.path = temporary.keep();
        }
    }
}

fn from_env<T: std::str::FromStr>(name: &str) -> Option<T> {
    // Empty is as good as none, as `make` likes to pass it.
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let value = text.parse().ok();
    Some(value.unwrap_or_else(|| panic!("`{name}` cannot be `{text}`")))
}
