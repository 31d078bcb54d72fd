//! Follows the redirects of nodes that do not have a key.
//!
//! A node redirects before it runs anything, so trying elsewhere is safe. All other failures are
//! for the caller to decide: nothing that may have run is ever sent again.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::redirect_reply::Redirect;
use super::slot::Slot;
use crate::backoff::Backoff;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::Failure;
use crate::store::redis::command::Cmd;
use crate::store::redis::connection::SendOptions;
use crate::store::redis::node::Node;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::server_error;
use crate::store::redis::value::Value;

/// How many redirects to follow for one request. Nodes that point at each other have not agreed
/// yet, so waiting is better.
const REDIRECTS_MAX: u32 = 5;
/// How long to retry internally. Then the caller gets the reason, and retries for as long as it
/// likes.
const TRY_AGAIN_PATIENCE: Duration = Duration::from_millis(250);

/// The route to the node that has a key.
pub(in crate::store::redis) struct Route {
    pub(in crate::store::redis) node: Arc<Node>,
    /// Whether the key is there already although its slot is still migrating.
    pub(in crate::store::redis) asking: bool,
    redirects: u32,
    /// Since when a migrating slot is retried.
    trying_since: Option<Moment>,
    backoff: Backoff,
}

impl Route {
    pub(in crate::store::redis) fn to(node: Arc<Node>) -> Self {
        Self {
            node,
            asking: false,
            redirects: 0,
            trying_since: None,
            backoff: Backoff::MIGRATING,
        }
    }

    /// Runs a command on this node.
    pub(in crate::store::redis) async fn run(
        &self,
        command: &Cmd,
        limit: Moment,
    ) -> Result<Value, Failure> {
        let connection = self.node.commands.connection(limit).await?;
        let options = SendOptions::until(limit).asking(self.asking);
        connection.run(command, options).await
    }

    /// Runs a script on this node.
    pub(in crate::store::redis) async fn script<T: AsRef<[u8]>>(
        &self,
        call: &ScriptCall<'_, T>,
        limit: Moment,
    ) -> Result<Value, Failure> {
        let connection = self.node.commands.connection(limit).await?;
        let options = SendOptions::until(limit).asking(self.asking);
        connection.script(call, options).await
    }

    fn redirected(self, node: Arc<Node>, asking: bool) -> Self {
        Self {
            node,
            asking,
            redirects: self.redirects + 1,
            ..self
        }
    }
}

impl Cluster {
    /// The route to try after a failure, if the node did nothing and named another one, or asked
    /// for a retry.
    pub(in crate::store::redis) async fn next_route(
        &self,
        key: &str,
        route: Route,
        failure: Failure,
        limit: Moment,
    ) -> Result<Route, Failure> {
        let redirect = Redirect::of(&failure).filter(|_| !bug(Bug::MovedNotFollowed));
        let Some(redirect) = redirect else {
            return Err(self.note_failure(&route.node, failure));
        };
        if redirect == Redirect::Down {
            return Err(self.cluster_down_error(key, &failure));
        }
        if self.clock.now() >= limit || route.redirects >= REDIRECTS_MAX {
            self.request_refresh();
            return Err(migrating_error(key, &failure));
        }
        match redirect {
            Redirect::Moved { slot, to } => {
                let node = self.note_slot_owner(slot, &to, &route.node);
                Ok(route.redirected(node, false))
            }
            Redirect::Ask { to } => {
                let node = self.node_at(&to, &route.node);
                Ok(route.redirected(node, true))
            }
            Redirect::TryAgain => self.try_again(key, &route, &failure, limit).await,
            Redirect::Down | Redirect::ReadOnly => Err(self.note_failure(&route.node, failure)),
        }
    }

    /// Waits for a migrating slot. By then it may have arrived.
    async fn try_again(
        &self,
        key: &str,
        route: &Route,
        failure: &Failure,
        limit: Moment,
    ) -> Result<Route, Failure> {
        let now = self.clock.now();
        let since = route.trying_since.unwrap_or(now);
        if now >= since + TRY_AGAIN_PATIENCE {
            return Err(migrating_error(key, failure));
        }
        let mut backoff = route.backoff;
        let pause = backoff.next().min(limit.saturating_since(now));
        tokio::time::sleep(pause).await;
        Ok(Route {
            redirects: route.redirects,
            trying_since: Some(since),
            backoff,
            ..self.route(key)?
        })
    }

    /// Learns from a failure that is returned to the caller, and marks it transient if it was only
    /// a redirect.
    pub(in crate::store::redis) fn note_failure(
        &self,
        node: &Arc<Node>,
        failure: Failure,
    ) -> Failure {
        let redirect = Redirect::of(&failure);
        if let Some(Redirect::Moved { slot, to }) = &redirect {
            self.note_slot_owner(*slot, to, node);
        } else if failure.transient || redirect.is_some() {
            // The node may be gone, and another one may have replaced it.
            self.request_refresh();
        }
        let only_elsewhere = redirect.is_some() && !bug(Bug::MovedNotFollowed);
        Failure {
            transient: failure.transient || only_elsewhere,
            ..failure
        }
    }

    /// Learns from an error reply inside a pipeline.
    pub(in crate::store::redis) fn note_error_reply(&self, node: &Arc<Node>, reply: &str) {
        if let Some(Redirect::Moved { slot, to }) = Redirect::read(reply) {
            self.note_slot_owner(slot, &to, node);
        }
    }

    /// The cluster reports that it does not serve this key.
    fn cluster_down_error(&self, key: &str, failure: &Failure) -> Failure {
        self.request_refresh();
        let slot = Slot::of(key.as_bytes());
        let said = server_error::reply_of(failure).unwrap_or_default();
        Failure::not_sent(
            Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the cluster does not serve slot `{slot}` of `{key}` now: {said}; \
                     see `redis-cli --cluster check`"
                ),
            )
            .caused_by(said),
        )
    }
}

/// The slot is migrating, and that takes longer than this request may.
fn migrating_error(key: &str, failure: &Failure) -> Failure {
    let slot = Slot::of(key.as_bytes());
    let said = server_error::reply_of(failure).unwrap_or_default();
    Failure::not_sent(
        Error::new(
            ErrorKind::Unavailable,
            format!("slot `{slot}` of `{key}` is being moved to another node: try again later"),
        )
        .caused_by(said),
    )
}
