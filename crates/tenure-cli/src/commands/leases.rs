//! The lease that `acquire` printed, as an argument of `renew` and `release`.

use std::env;

use anyhow::Result;
use tenure::{Lease, LeaseId};

use crate::exit::Failed;

/// The lease.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaseArgs {
    /// Name of the lock; must match the lease
    name: Option<String>,

    /// The lease as printed by `tenure acquire`; quote it, it has spaces [env: `TENURE_LEASE`]
    #[arg(short, long, value_name = "LEASE")]
    lease: Option<String>,
}

impl LeaseArgs {
    pub fn read(&self) -> Result<Lease, anyhow::Error> {
        let variable = || env::var("TENURE_LEASE").ok();
        let text = self.lease.clone().or_else(variable).unwrap_or_default();
        let text = text.trim();
        if text.is_empty() {
            let message = "no lease given: use --lease, or TENURE_LEASE as set by `tenure acquire \
                           --export`";
            return Err(Failed::usage(message).into());
        }
        if LeaseId::new(text).is_tenure() {
            return Err(Failed::usage(format!(
                "cannot use `{text}`: it is the id of a lease that its holder, such as `tenure \
                 run`, renews and releases itself; to end it, use `tenure force-unlock NAME \
                 LEASE_ID`"
            ))
            .into());
        }
        let lease: Lease = text.parse()?;
        match &self.name {
            Some(name) if name != lease.name().as_str() => Err(Failed::usage(format!(
                "the lease belongs to lock `{}`, not to `{name}`",
                lease.name()
            ))
            .into()),
            _ => Ok(lease),
        }
    }
}
