//! What the locks of a run live on.

use std::fmt;
use std::str::FromStr;

/// How servers stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deployment {
    Single,
    Redlock,
    Sentinel,
    Cluster,
}

impl Deployment {
    pub const ALL: [Self; 4] = [Self::Single, Self::Redlock, Self::Sentinel, Self::Cluster];

    fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Redlock => "redlock",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
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
