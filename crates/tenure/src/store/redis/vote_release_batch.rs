//! Releases several leases, or votes for them, on one node of a Redlock in one call.

use super::command::{append_bulk, append_bulk_number, append_bulk_of};
use super::connection::Connection;
use super::keys::Keys;
use super::node_batch::{NodeBatch, NodeRequest, ScriptEncoder};
use super::operation::{Operation, ReleaseVote, ScriptReply};
use super::request_queue::Entry;
use super::script::{RedlockScripts, Script};
use super::value::Value;
use super::vote_request::{
    BatchScript, Delivery, NodeReleaseReply, VoteReleaseEntry, VoteScripts, WAITERS,
};
use crate::layout::Layout;
use crate::moment::Moment;
use crate::store::{Failure, InFlight};
use crate::timings::Call;

impl VoteReleaseEntry {
    /// Whether `release_all.lua` can release it.
    fn is_plain(&self) -> bool {
        let request = &self.request;
        let is_together = self.delivery == Delivery::Together && request.place().is_none();
        is_together && !request.lease().has_meta
    }

    fn release(&self) -> ReleaseVote<'_> {
        ReleaseVote {
            lease: self.request.lease(),
            ballot: self.request.ballot(),
            notify: self.request.notifies(),
            place: self.request.place(),
        }
    }
}

impl NodeRequest for VoteReleaseEntry {
    const CALL: Call = Call::Release;

    type Reply = NodeReleaseReply;

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn delivery(&self) -> Delivery {
        self.delivery
    }

    fn set_delivery(&mut self, delivery: Delivery) {
        self.delivery = delivery;
    }

    fn script_for_all(scripts: &RedlockScripts) -> &Script {
        &scripts.release_all
    }

    fn state_of_script(scripts: &VoteScripts) -> &BatchScript {
        &scripts.release_all
    }

    fn encode_all(entries: &[Self], call: ScriptEncoder<'_>) {
        let channels = match entries.first().map(|first| first.keys.layout) {
            Some(Layout::Redisson) => 2,
            Some(Layout::Native) | None => 1,
        };
        let out = call.parts(3 * entries.len(), 1 + (2 + channels) * entries.len());
        for entry in entries {
            append_bulk_of(out, &entry.keys.lock_parts(&entry.request.lease().name));
        }
        for entry in entries {
            append_bulk(out, entry.keys.fence(&entry.request.lease().name).as_ref());
        }
        for entry in entries {
            let name = &entry.request.lease().name;
            append_bulk_of(out, &entry.keys.neighbour_parts(name, WAITERS));
        }
        append_bulk_number(out, channels as u64);
        for entry in entries {
            let lease = entry.request.lease();
            append_bulk(out, lease.id.as_str().as_bytes());
            match entry.request.ballot() {
                Some(ballot) => append_bulk_number(out, ballot.last()),
                None => append_bulk(out, b""),
            }
            if entry.request.notifies() {
                for (channel, _) in entry.keys.channels(&lease.name) {
                    append_bulk(out, channel.as_bytes());
                }
            } else {
                (0..channels).for_each(|_| append_bulk(out, b""));
            }
        }
    }

    fn operation(&self) -> impl Operation {
        self.release()
    }

    fn in_flight(&self, connection: Option<&Connection>) -> InFlight {
        InFlight {
            connection: connection.map(|connection| connection.id),
            latest_us: 0,
        }
    }

    fn read(
        &self,
        connection: &Connection,
        value: Value,
        sent_at: Moment,
    ) -> Result<NodeReleaseReply, Failure> {
        let reply = ScriptReply {
            layout: self.keys.layout,
            value,
            sent_at,
        };
        let released = self.release().read(&reply)?;
        released.map_err(|_| connection.too_late())
    }

    fn read_part(
        &self,
        _: &Connection,
        part: Value,
        _: Moment,
    ) -> Option<Result<NodeReleaseReply, Failure>> {
        match part {
            // Clients wait for it: release.lua tells them.
            Value::Int(2) => None,
            Value::Int(1) => Some(Ok(NodeReleaseReply::WasHeld)),
            Value::Int(_) => Some(Ok(NodeReleaseReply::NotHeld)),
            other => Some(Err(Failure::refused(other.unexpected("release_all.lua")))),
        }
    }

    fn started_at(&self) -> Option<Moment> {
        self.started_at
    }

    fn answer(self, released: Result<NodeReleaseReply, Failure>) {
        self.request.released(self.node, released);
    }

    fn into_entry(self) -> Entry {
        Entry::VoteRelease(self)
    }
}

impl NodeBatch<VoteReleaseEntry> {
    pub(super) fn of(connection: &Connection, entries: Vec<VoteReleaseEntry>) -> Self {
        let script = &connection.queue().vote_scripts.release_all;
        let allowed = script.is_allowed();
        let (together, alone) = entries
            .into_iter()
            .partition(|entry| allowed && entry.is_plain());
        Self::new(connection, together, alone)
    }
}
