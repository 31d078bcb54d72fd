//! Orders and units by state.

use crate::order::OrderState;

/// Orders and units of an item by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The state.
    pub state: OrderState,
    /// The number of orders.
    pub orders: u64,
    /// The number of units.
    pub units: u64,
}
