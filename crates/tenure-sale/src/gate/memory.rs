//! A gate in this process.

#[derive(Clone, Debug)]
pub(super) struct MemoryGate;
