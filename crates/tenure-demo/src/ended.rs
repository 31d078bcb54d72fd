//! How a demonstration ended.

/// How a demonstration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything that was promised held.
    Held,
    /// Something did not hold, or a mistake did no damage.
    Broken,
    /// The user interrupted it.
    Interrupted,
}
