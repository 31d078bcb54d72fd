//! Owners: reentrant locking.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::client_handle::ClientHandle;
use crate::holds::Holds;
use crate::lock::Lock;
use crate::order::Ordered;

/// An owner can acquire a lock again while holding it: pass it to the functions you call.
///
/// A nested acquire by the same owner shares the lease and its fence, without asking the store. The
/// lock is free when the last guard of the chain is dropped, in any order. Clones are the same
/// owner.
///
/// ```
/// # async fn example() -> Result<(), tenure::Error> {
/// # let tenure = tenure::Tenure::connect("memory://").await?;
/// let owner = tenure.owner();
/// let outer = owner.lock("account:7").acquire().await?;
/// let inner = owner.lock("account:7").acquire().await?;
/// assert_eq!(outer.fence(), inner.fence());
/// drop(outer);
/// assert!(tenure.lock("account:7").try_acquire().await?.is_none());
/// # Ok(()) }
/// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
/// ```
#[derive(Clone)]
pub struct Owner<D = Ordered> {
    client: Arc<ClientHandle>,
    holds: Arc<Holds>,
    of: PhantomData<fn() -> D>,
}

impl<D> Owner<D> {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        Self {
            client,
            holds: Arc::default(),
            of: PhantomData,
        }
    }

    /// A lock that this owner can re-enter.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock<D> {
        Lock::new(
            Arc::clone(&self.client),
            name.as_ref(),
            Some(Arc::clone(&self.holds)),
        )
    }
}

impl<D> fmt::Debug for Owner<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("holds", &self.holds.names())
            .finish_non_exhaustive()
    }
}
