//! How a demonstration ended.

/// How a demonstration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All guarantees held.
    Held,
    /// A guarantee did not hold, or a mistake caused no damage.
    Broken,
    /// The user interrupted it.
    Interrupted,
}
