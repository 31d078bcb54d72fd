//! What a command needs before it runs: locks, a fair lock, or a permit.

use std::time::Duration;

use anyhow::Result;
use tenure::{
    Guard, Lock, LockName, Locks, Mode, MultiGuard, MultiLock, Permit, Released, Semaphore,
};

use super::held_locks::HeldLocks;
use super::options::Plan;

/// What a command needs.
#[derive(Clone)]
pub enum Wanted {
    Locks(MultiLock),
    Fair(Lock),
    Permit(Semaphore),
}

/// What it has.
pub enum Acquired {
    Locks(MultiGuard),
    Fair(Guard),
    Permit(Permit),
}

impl Wanted {
    /// Connects for what the plan wants.
    pub async fn connect(plan: &Plan) -> Result<(Locks, Self)> {
        if let Some(limit) = plan.limit {
            let tenure = plan.server.connect_alone_for_one("-j/--slots").await?;
            let semaphore = tenure.semaphore(plan.first_name(), limit).ttl(plan.ttl);
            let semaphore = if plan.is_renewed {
                semaphore
            } else {
                semaphore.no_renewal()
            };
            return Ok((tenure.as_locks().clone(), Self::Permit(semaphore)));
        }
        if plan.fair {
            let tenure = plan.server.connect_alone_for_one("--fair").await?;
            let lock = tenure.lock(plan.first_name()).fair().ttl(plan.ttl);
            let lock = if plan.is_renewed {
                lock
            } else {
                lock.no_renewal()
            };
            let note = |lock: Lock, (key, value): &(String, String)| lock.meta(key, value);
            let lock = plan.meta.iter().fold(lock, note);
            return Ok((tenure.as_locks().clone(), Self::Fair(lock)));
        }
        let locks = plan.server.connect_patiently_for_one().await?;
        let all = Self::Locks(all_locks(plan, &locks));
        Ok((locks, all))
    }

    /// The same, waiting at most this long.
    pub fn wait(self, limit: Duration) -> Self {
        match self {
            Self::Locks(all) => Self::Locks(all.wait(limit)),
            Self::Fair(lock) => Self::Fair(lock.wait(limit)),
            Self::Permit(semaphore) => Self::Permit(semaphore.wait(limit)),
        }
    }

    pub async fn acquire(&self) -> tenure::Result<Acquired> {
        match self {
            Self::Locks(all) => all.acquire().await.map(Acquired::Locks),
            Self::Fair(lock) => lock.acquire().await.map(Acquired::Fair),
            Self::Permit(semaphore) => semaphore.acquire().await.map(Acquired::Permit),
        }
    }

    pub async fn try_acquire(&self) -> tenure::Result<Option<Acquired>> {
        Ok(match self {
            Self::Locks(all) => all.try_acquire().await?.map(Acquired::Locks),
            Self::Fair(lock) => lock.try_acquire().await?.map(Acquired::Fair),
            Self::Permit(semaphore) => semaphore.try_acquire().await?.map(Acquired::Permit),
        })
    }
}

impl Acquired {
    pub fn held(&self) -> HeldLocks<'_> {
        match self {
            Self::Locks(guard) => HeldLocks::Several(guard),
            Self::Fair(guard) => HeldLocks::One(guard),
            Self::Permit(permit) => HeldLocks::Permit(permit),
        }
    }

    /// Makes sure that at least `need` is left.
    pub async fn ensure(&self, need: Duration) -> tenure::Result<()> {
        match self {
            Self::Locks(guard) => guard.ensure(need).await,
            Self::Fair(guard) => guard.ensure(need).await,
            Self::Permit(permit) => permit.ensure(need).await,
        }
    }

    /// The guards of locks; none for a permit, which cannot be detached.
    pub fn into_guards(self) -> Vec<Guard> {
        match self {
            Self::Locks(guard) => guard.into_guards(),
            Self::Fair(guard) => vec![guard],
            Self::Permit(_) => Vec::new(),
        }
    }

    pub async fn release(self) -> tenure::Result<Vec<(LockName, Released)>> {
        match self {
            Self::Locks(guard) => guard.release().await,
            Self::Fair(guard) => {
                let name = guard.name().clone();
                Ok(vec![(name, guard.release().await?)])
            }
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
        Mode::Shared => all.shared(),
        _ => all,
    };
    let note = |all: MultiLock, (key, value): &(String, String)| all.meta(key, value);
    plan.meta.iter().fold(all, note)
}
