//! What the gate of a run lives on.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deployment {
    /// One server with an append-only file.
    Single,
    /// A master with replicas, one of which may take its place.
    Sentinel,
    /// Masters that share the slots, each with a replica.
    Cluster,
    /// One server, on which operators make every mistake: they delete, overwrite and trim keys, and
    /// forbid commands.
    Damaged,
}

impl Deployment {
    pub const ALL: [Self; 4] = [Self::Single, Self::Sentinel, Self::Cluster, Self::Damaged];

    fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Damaged => "damaged",
        }
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Deployment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|one| one.name() == text);
        known.ok_or_else(|| format!("no deployment is called `{text}`"))
    }
}
