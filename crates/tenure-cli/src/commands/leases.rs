//! The lease that `acquire` printed, given back to `renew` and `release`.

use std::env;

use anyhow::Result;
use tenure::{Lease, LeaseId};

use crate::exit::Failed;

/// Which lease is meant.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaseArgs {
    /// The lock, to be sure: it must be the lease's
    name: Option<String>,

    /// What `tenure acquire` printed, in quotes: it has spaces [env: `TENURE_LEASE`]
    #[arg(short, long, value_name = "LEASE")]
    lease: Option<String>,
}

impl LeaseArgs {
    pub fn read(&self) -> Result<Lease, anyhow::Error> {
        let variable = || env::var("TENURE_LEASE").ok();
        let text = self.lease.clone().or_else(variable).unwrap_or_default();
        let text = text.trim();
        if text.is_empty() {
            let message = "no lease was given: use --lease, or TENURE_LEASE as \
                           `tenure acquire --export` sets it";
            return Err(Failed::usage(message).into());
        }
        if LeaseId::new(text).is_tenure() {
            return Err(Failed::usage(format!(
                "cannot use `{text}`: this is the id of a lease that its holder, for example \
                 `tenure run`, renews and releases itself; to end it from outside use \
                 `tenure force-unlock NAME LEASE_ID`"
            ))
            .into());
        }
        let lease: Lease = text.parse()?;
        match &self.name {
            Some(name) if name != lease.name().as_str() => Err(Failed::usage(format!(
                "the lease is of lock `{}`, not of `{name}`",
                lease.name()
            ))
            .into()),
            _ => Ok(lease),
        }
    }
}
