//! What the gate of a run lives on.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deployment {
    /// One server with an append-only file.
    Single,
    /// A master with replicas, one of which may take its place.
    Sentinel,
}

impl Deployment {
    pub const ALL: [Self; 2] = [Self::Single, Self::Sentinel];

    fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
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
