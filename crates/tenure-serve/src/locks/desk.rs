//! The state that lock requests share.

use prometheus_client::registry::Registry;
use tenure::Locks;

use super::leases::Leases;
use super::metrics::Meters;
use super::tickets::Tickets;
use super::waiters::Callers;

/// The state that lock requests share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) meters: Meters,
    pub(crate) callers: Callers,
    pub(super) leases: Leases,
    pub(super) tickets: Tickets,
}

impl Desk {
    pub(crate) fn new(registry: &mut Registry, locks: &Locks) -> Self {
        Self {
            meters: Meters::new(registry, locks),
            callers: Callers::default(),
            leases: Leases::default(),
            tickets: Tickets::default(),
        }
    }
}
