//! Labels that several lock metrics share.

use prometheus_client::encoding::EncodeLabelSet;

/// The only kind of lock so far.
pub(crate) const MUTEX: &str = "mutex";
/// The label of locks that the service itself acquires.
pub(crate) const OWN: &str = "_own";

/// All locks of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfAll {
    pub(crate) kind: &'static str,
}

/// All locks with this label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfLabel {
    pub(crate) lock: String,
}
