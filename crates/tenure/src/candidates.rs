//! What an election knows of its candidates, where the store keeps them in a queue.

use std::sync::Arc;

use crate::client::Tenure;
use crate::core::Core;
use crate::election::Election;
use crate::engine::{client_record, retry};
use crate::error::Result;
use crate::holder::ClientRecord;
use crate::leadership::Leadership;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::Resigned;
use crate::store::Failure;

/// A client that waits to be elected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// Its place in the queue, which changes with each campaign.
    pub lease: LeaseId,
    /// The client that campaigns, if its record is known: it is written soon after it began to wait.
    pub client: Option<ClientRecord>,
}

impl Election<Tenure> {
    /// Who waits to be elected, in the order of the queue, without those that have died. Each process
    /// has one place, whatever the number of its campaigns. Whoever waits for an ordinary lock of the
    /// same name is a candidate too.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// for candidate in tenure.election("scheduler").candidates().await? {
    ///     if let Some(client) = candidate.client {
    ///         println!("{client} waits");
    ///     }
    /// }
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses the request.
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn candidates(&self) -> Result<Vec<Candidate>> {
        let client = self.client();
        let name = client.core.settings.allowed(LockName::new(self.name())?)?;
        client.check_open()?;
        let core = Arc::clone(&client.core);
        let reading = async move {
            let read = |limit| read(&core, &name, limit);
            retry::read(&core, read).await
        };
        client.engine.run(reading).await?
    }
}

impl Leadership<Tenure> {
    /// Resigns in favour of a [candidate](Election::candidates): it is elected next if it still waits and
    /// lives, otherwise the next in the queue.
    ///
    /// ```no_run
    /// # async fn example(tenure: tenure::Tenure) -> Result<(), tenure::Error> {
    /// # let leadership = tenure.election("scheduler").campaign("node-1").await?;
    /// let candidates = tenure.election("scheduler").candidates().await?;
    /// let on_host = |host: &str| candidates.iter().find(|candidate| {
    ///     candidate.client.as_ref().is_some_and(|client| client.host == host)
    /// });
    /// if let Some(candidate) = on_host("db-2") {
    ///     leadership.resign_to(candidate).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// It is not available on a [`Redlock`](crate::Redlock).
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`](crate::Guard::release).
    ///
    /// # Cancel safety
    ///
    /// Safe: it continues in the background.
    pub async fn resign_to(self, candidate: &Candidate) -> Result<Resigned> {
        self.into_guard().release_to(candidate.lease.clone()).await
    }
}

async fn read(core: &Core, name: &LockName, limit: Moment) -> Result<Vec<Candidate>, Failure> {
    let names = std::slice::from_ref(name);
    let waiters = core.store.waiters(names, limit).await?;
    let waiters = waiters.into_iter().flatten().next().unwrap_or_default();
    if waiters.is_empty() {
        return Ok(Vec::new());
    }
    let records = client_record::read(core, None, limit).await?;
    let record_of = |lease: &LeaseId| {
        let client = lease.client()?;
        records.iter().find(|record| record.id == client).cloned()
    };
    let candidate = |lease: LeaseId| Candidate {
        client: record_of(&lease),
        lease,
    };
    Ok(waiters.into_iter().map(candidate).collect())
}
