//! One pitfall: the mistake, made for real, and the same situation with Tenure.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use anyhow::Result;

use super::scene::Scene;

/// Plays in a scene and returns the outcome.
pub(crate) type Act = fn(Scene) -> Observing;
pub(crate) type Observing = Pin<Box<dyn Future<Output = Result<Observed>> + Send>>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pitfall {
    /// The name of its row in the table.
    pub(crate) name: &'static str,
    /// Makes the mistake. It is expected to cause damage.
    pub(crate) mistake: Act,
    /// The same situation with Tenure. It is expected to hold.
    pub(crate) tenure: Act,
}

/// The outcome of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) is_expected: bool,
    pub(crate) words: String,
}

impl Observed {
    /// An observation, and whether it is the expected one.
    pub(crate) fn when(is_expected: bool, words: impl Into<String>) -> Self {
        Self {
            is_expected,
            words: words.into(),
        }
    }
}

/// Something that a pitfall needs is missing on this machine.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Missing {}
