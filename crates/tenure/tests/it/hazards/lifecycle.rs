//! Holders that die, releases and renewals that race, reentrancy.

/// H47 to H49: whose lock it is.
mod identity;
/// H40: holders killed in processes of their own.
mod killed;
/// H43 to H46: renewal, release and loss race each other.
mod races;
/// What the server tells of watched leases.
mod tracking;
