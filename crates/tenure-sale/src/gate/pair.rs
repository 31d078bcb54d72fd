//! A gate and the ledger that it belongs to.

/// The ids of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) ledger: String,
    pub(crate) gate: String,
}
