//! Clocks, pauses, leases that end.
