//! What a command needs before it runs: locks, or a permit.

use std::time::Duration;

use anyhow::Result;
use tenure::{LockName, Locks, MultiGuard, MultiLock, Permit, Released, Semaphore};

use super::held_locks::HeldLocks;
use super::options::Plan;

/// What a command needs.
#[derive(Clone)]
pub enum Wanted {
    Locks(MultiLock),
    Permit(Semaphore),
}

/// What it has.
pub enum Acquired {
    Locks(MultiGuard),
    Permit(Permit),
}

impl Wanted {
    /// Connects for what the plan wants.
    pub async fn connect(plan: &Plan) -> Result<(Locks, Self)> {
        let Some(limit) = plan.limit else {
            let locks = plan.server.connect_for_one().await?;
            let all = Self::Locks(all_locks(plan, &locks));
            return Ok((locks, all));
        };
        let tenure = plan.server.connect_alone_for_one("-j/--slots").await?;
        let semaphore = tenure.semaphore(plan.first_name(), limit).ttl(plan.ttl);
        let semaphore = if plan.is_renewed {
            semaphore
        } else {
            semaphore.no_renewal()
        };
        Ok((tenure.as_locks().clone(), Self::Permit(semaphore)))
    }

    /// The same, waiting at most this long.
    pub fn wait(self, limit: Duration) -> Self {
        match self {
            Self::Locks(all) => Self::Locks(all.wait(limit)),
            Self::Permit(semaphore) => Self::Permit(semaphore.wait(limit)),
        }
    }

    pub async fn acquire(&self) -> tenure::Result<Acquired> {
        match self {
            Self::Locks(all) => all.acquire().await.map(Acquired::Locks),
            Self::Permit(semaphore) => semaphore.acquire().await.map(Acquired::Permit),
        }
    }

    pub async fn try_acquire(&self) -> tenure::Result<Option<Acquired>> {
        Ok(match self {
            Self::Locks(all) => all.try_acquire().await?.map(Acquired::Locks),
            Self::Permit(semaphore) => semaphore.try_acquire().await?.map(Acquired::Permit),
        })
    }
}

impl Acquired {
    pub fn held(&self) -> HeldLocks<'_> {
        match self {
            Self::Locks(guard) => HeldLocks::Several(guard),
            Self::Permit(permit) => HeldLocks::Permit(permit),
        }
    }

    /// Makes sure that at least `need` is left.
    pub async fn ensure(&self, need: Duration) -> tenure::Result<()> {
        match self {
            Self::Locks(guard) => guard.ensure(need).await,
            Self::Permit(permit) => permit.ensure(need).await,
        }
    }

    pub async fn release(self) -> tenure::Result<Vec<(LockName, Released)>> {
        match self {
            Self::Locks(guard) => guard.release().await,
            Self::Permit(permit) => {
                let name = permit.name().clone();
                Ok(vec![(name, permit.release().await?)])
            }
        }
    }
}

/// One name is an ordinary lock.
fn all_locks(plan: &Plan, locks: &Locks) -> MultiLock {
    let all = locks.locks(&plan.names).ttl(plan.ttl);
    let all = if plan.is_renewed {
        all
    } else {
        all.no_renewal()
    };
    let all = match plan.mode {
        tenure::Mode::Shared => all.shared(),
        _ => all,
    };
    let note = |all: MultiLock, (key, value): &(String, String)| all.meta(key, value);
    plan.meta.iter().fold(all, note)
}
