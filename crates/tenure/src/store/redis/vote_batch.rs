//! Requests the votes of one node of a Redlock for several leases in one call.

use std::collections::VecDeque;

use super::command::{append_bulk, append_bulk_number, append_bulk_of};
use super::connection::Connection;
use super::keys::Keys;
use super::node_batch::{NodeBatch, NodeRequest, ScriptEncoder};
use super::node_state::VOTE_DELAY_MIN;
use super::operation::{Operation, Rejection, RequestVote, ScriptReply};
use super::request_queue::Entry;
use super::script::{RedlockScripts, Script};
use super::value::Value;
use super::vote_request::{BatchScript, Delivery, Vote, VoteEntry, VoteScripts};
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, InFlight, LeaseSpec};
use crate::timings::Call;

/// How many bytes of names and ids go in one call.
const BYTES_MAX: usize = 32 * 1024;

impl VoteEntry {
    /// Whether `vote_all.lua` can vote for it.
    fn is_plain(&self) -> bool {
        let held = self.held();
        let waits = self.request.attempt().queue;
        let is_together = self.delivery == Delivery::Together && !waits;
        is_together && !held.has_meta && held.ttl <= VOTE_DELAY_MIN
    }

    fn held(&self) -> &LeaseSpec {
        &self.request.attempt().held
    }

    fn bytes(&self) -> usize {
        let held = self.held();
        2 * held.name.as_str().len() + held.id.as_str().len()
    }

    fn vote(&self) -> RequestVote<'_> {
        RequestVote {
            attempt: self.request.attempt(),
            ballot: self.request.ballot(),
            bounds: self.bounds,
        }
    }
}

impl NodeRequest for VoteEntry {
    const CALL: Call = Call::Vote;

    type Reply = Vote;

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
        &scripts.vote_all
    }

    fn state_of_script(scripts: &VoteScripts) -> &BatchScript {
        &scripts.vote_all
    }

    fn encode_all(entries: &[Self], call: ScriptEncoder<'_>) {
        let out = call.parts(2 * entries.len(), 3 + 5 * entries.len());
        for entry in entries {
            append_bulk_of(out, &entry.keys.lock_parts(&entry.held().name));
        }
        for entry in entries {
            append_bulk(out, entry.keys.fence(&entry.held().name).as_ref());
        }
        // The same for all of them.
        if let Some(VoteEntry { bounds, .. }) = entries.first() {
            append_bulk_number(out, micros(bounds.below));
            append_bulk_number(out, micros(bounds.above));
            append_bulk(out, if bounds.always { b"always" } else { b"" });
        }
        for entry in entries {
            let (held, ballot) = (entry.held(), entry.request.ballot());
            append_bulk(out, held.id.as_str().as_bytes());
            append_bulk_number(out, u64::try_from(held.ttl.as_millis()).unwrap_or(u64::MAX));
            append_bulk_number(out, entry.in_flight.latest_us);
            append_bulk_number(out, ballot.first);
            append_bulk_number(out, ballot.fences.into());
        }
    }

    fn operation(&self) -> impl Operation {
        self.vote()
    }

    fn in_flight(&self, _: Option<&Connection>) -> InFlight {
        self.in_flight
    }

    fn read(
        &self,
        connection: &Connection,
        value: Value,
        sent_at: Moment,
    ) -> Result<Vote, Failure> {
        let reply = ScriptReply {
            layout: self.keys.layout,
            value,
            sent_at,
        };
        match self.vote().read(&reply)? {
            Ok(vote) => {
                if let Vote::Far(server_us) = vote {
                    // We assumed a clock ahead of its real one, or it was set back.
                    connection.set_clock(sent_at, server_us);
                }
                Ok(vote)
            }
            Err(Rejection::Late(server_us)) => {
                // The server's clock was set forward since we read it.
                connection.set_clock(sent_at, server_us);
                Err(connection.too_late())
            }
            Err(Rejection::OtherPrimary) => Err(connection.too_late()),
        }
    }

    fn read_part(
        &self,
        connection: &Connection,
        part: Value,
        sent_at: Moment,
    ) -> Option<Result<Vote, Failure>> {
        Some(self.read(connection, part, sent_at))
    }

    fn started_at(&self) -> Option<Moment> {
        self.started_at
    }

    fn answer(self, vote: Result<Vote, Failure>) {
        self.request.voted(self.node, vote);
    }

    fn into_entry(self) -> Entry {
        Entry::Vote(self)
    }

    fn plant_bug(votes: &mut [Value]) {
        if bug(Bug::RedlockBatchMixesVotes) {
            votes.rotate_left(1);
        }
    }
}

impl NodeBatch<VoteEntry> {
    /// Takes as many requests as fit into a call, without those that are no longer wanted.
    pub(super) fn take(
        connection: &Connection,
        waiting: &mut VecDeque<VoteEntry>,
        most: usize,
    ) -> Self {
        let allowed = connection.queue().vote_scripts.vote_all.is_allowed();
        let mut together: Vec<VoteEntry> = Vec::with_capacity(waiting.len().min(most));
        let mut alone = Vec::new();
        let (mut bytes, mut unwanted) = (0, 0);
        while together.len() + alone.len() < most
            && bytes < BYTES_MAX
            && let Some(entry) = waiting.pop_front()
        {
            if !entry.request.is_wanted() && !bug(Bug::RedlockBatchVotesForNobody) {
                unwanted += 1;
                continue;
            }
            bytes += entry.bytes();
            let first = together.first();
            let fits = first.is_none_or(|first| first.bounds == entry.bounds);
            if allowed && fits && entry.is_plain() {
                together.push(entry);
            } else {
                alone.push(entry);
            }
        }
        if unwanted > 0 {
            connection.response_watch().settled(unwanted, None);
        }
        Self::new(connection, together, alone)
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
