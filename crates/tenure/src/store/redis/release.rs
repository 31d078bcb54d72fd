//! Releases a lock, and cancels an attempt whose reply was lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cluster::Route;
use super::command::cmd;
use super::connection::{Connection, SendOptions};
use super::keys::Key;
use super::operation::Release;
use super::redis_store::RedisStore;
use super::routes::Routes;
use crate::layout::Layout;
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, InFlight, LeaseSpec, ReleaseReply};

impl RedisStore {
    pub(super) async fn release_at_owner(
        &self,
        release: Release<'_>,
        limit: Moment,
    ) -> Result<ReleaseReply, Failure> {
        let limit = self.command_limit(limit);
        let name = &release.lease.name;
        let mut route = self.route(name)?;
        loop {
            let answer = self.release_via(&route, release, limit).await;
            let Err(failure) = answer else { return answer };
            route = self.next_route(name, route, failure, limit).await?;
        }
    }

    async fn release_via(
        &self,
        route: &Route,
        release: Release<'_>,
        limit: Moment,
    ) -> Result<ReleaseReply, Failure> {
        let connection = route.node.commands.connection(limit).await?;
        let options = SendOptions::until(limit).asking(route.asking);
        self.try_release(&connection, release, options).await
    }

    /// Releases, and returns whether that was late enough that the attempt can no longer run.
    pub(super) async fn try_cancel(
        &self,
        lease: &LeaseSpec,
        in_flight: InFlight,
        limit: Moment,
    ) -> Result<Option<Duration>, Failure> {
        let limit = self.command_limit(limit);
        let same = in_flight.connection;
        if let Some((node, connection)) = same.and_then(|id| self.routes.connection_with_id(id)) {
            // Callers' attempts are on their way, or will not be sent.
            connection.queue().settle();
            // After the attempt, on the same connection. If its runtime no longer drives it, it is
            // broken the next time.
            let options = SendOptions::until(limit);
            let released = self
                .try_release(&connection, Release::unheard(lease), options)
                .await;
            return match released {
                Ok(_) => Ok(None),
                // Any reply shows that the attempt has run. Either it was refused like this one, or
                // its lease has moved along with the slot.
                Err(failure) if matches!(self.routes, Routes::Cluster(_)) => {
                    let failure = self.routes.note_failure(&node, failure);
                    if failure.in_flight.is_some() || !failure.transient {
                        return Err(failure);
                    }
                    self.release_at_owner(Release::unheard(lease), limit)
                        .await?;
                    Ok(None)
                }
                Err(failure) => Err(failure),
            };
        }
        if bug(Bug::CancelOnOtherConnection) {
            self.release_at_owner(Release::unheard(lease), limit)
                .await?;
            return Ok(None);
        }
        self.cancel_by_clock(lease, in_flight, limit).await
    }

    /// The connection of the attempt is gone, so only its latest moment tells when it can no longer
    /// run. That is a moment of the clock of the node it was sent to. In a cluster, another node
    /// with another clock may have the slot by now. Then the attempt is refused wherever it
    /// arrives, because the slot has left; unless the slot came back within the second that an
    /// attempt may be in flight, and even then its lease expires unused.
    async fn cancel_by_clock(
        &self,
        lease: &LeaseSpec,
        in_flight: InFlight,
        limit: Moment,
    ) -> Result<Option<Duration>, Failure> {
        let mut route = self.route(&lease.name)?;
        let now_us = loop {
            match self.release_after_reading_clock(&route, lease, limit).await {
                Ok(now_us) => break now_us,
                Err(failure) => route = self.next_route(&lease.name, route, failure, limit).await?,
            }
        };
        let early_us = (in_flight.latest_us + 1).saturating_sub(now_us);
        Ok((early_us > 0).then(|| Duration::from_micros(early_us)))
    }

    /// Reads the clock of a node, in microseconds, then releases there: so the release came after
    /// that reading.
    async fn release_after_reading_clock(
        &self,
        route: &Route,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<u64, Failure> {
        let connection = route.node.commands.connection(limit).await?;
        let asked_at = self.clock.now();
        let options = SendOptions::until(limit);
        let time = connection.run(&cmd("TIME"), options).await?;
        let now_us = time
            .as_server_time_us()
            .ok_or_else(|| Failure::refused(time.unexpected("TIME")))?;
        connection.set_clock(asked_at, now_us);
        let options = options.asking(route.asking);
        self.try_release(&connection, Release::unheard(lease), options)
            .await?;
        Ok(now_us)
    }

    /// Releases on the caller's own task, together with what other callers release if the lock is
    /// as usual.
    pub(super) async fn release_by_caller(
        &self,
        connection: &Arc<Connection>,
        lease: &LeaseSpec,
        dequeue: Option<&LeaseId>,
    ) -> Result<ReleaseReply, Failure> {
        if self.can_release_together(lease, dequeue)
            && let Some(counter) = self.combining_counter(connection, &lease.name)
            && !connection
                .queue()
                .release_all_denied
                .load(Ordering::Relaxed)
            && let Some(released) = connection.release_together(lease, counter).await?
        {
            return Ok(released);
        }
        let options = SendOptions::on_caller();
        let release = self.heard_release(lease, dequeue);
        self.try_release(connection, release, options).await
    }

    /// Whether `release_all.lua` does what `release.lua` would do.
    fn can_release_together(&self, lease: &LeaseSpec, dequeue: Option<&LeaseId>) -> bool {
        self.keys.layout == Layout::Native && dequeue.is_none() && self.is_released_as_usual(lease)
    }

    /// Whether a release only has to free the lock, if nobody waits for it.
    pub(super) fn is_released_as_usual(&self, lease: &LeaseSpec) -> bool {
        lease.last_fence.is_none()
            && !lease.has_meta
            && lease.mode == Mode::Exclusive
            && self.is_own(lease)
            && !bug(Bug::ReleaseInTwoSteps)
    }

    /// A release whose reply the engine hands to the waiters of this client.
    pub(super) fn heard_release<'a>(
        &self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
    ) -> Release<'a> {
        Release {
            lease,
            dequeue,
            is_heard: self.is_own(lease),
            to: None,
        }
    }

    /// Whether this client acquired the lease.
    fn is_own(&self, lease: &LeaseSpec) -> bool {
        let prefix = self.own_prefix.get();
        prefix.is_some_and(|prefix| lease.id.as_str().starts_with(prefix))
    }

    pub(super) async fn try_release(
        &self,
        connection: &Connection,
        release: Release<'_>,
        options: SendOptions,
    ) -> Result<ReleaseReply, Failure> {
        if bug(Bug::ReleaseInTwoSteps) {
            let key = self.keys.lock(&release.lease.name);
            return release_in_two_steps(connection, &key, release.lease, options).await;
        }
        let released = self.perform_on(connection, &release, options).await?;
        released.map_err(|_| connection.too_late())
    }
}

/// A seeded bug: what every tutorial warns of.
async fn release_in_two_steps(
    connection: &Connection,
    key: &Key,
    lease: &LeaseSpec,
    options: SendOptions,
) -> Result<ReleaseReply, Failure> {
    let command = |word| cmd(word).arg(key.as_str()).clone();
    let found = connection.run(&command("GET"), options).await?;
    if found.as_str() != Some(lease.id.as_str()) {
        return Ok(ReleaseReply::NotHeld);
    }
    connection.run(&command("DEL"), options).await?;
    Ok(ReleaseReply::WasHeld { offered_to: None })
}
