//! What a line waits for: the holder that is in the way.

use std::time::Duration;

use crate::holder::{ClientRecord, Holder};
use crate::lease::ClientId;
use crate::moment::Moment;
use crate::store::Busy;

/// How often to look at a lock whose holder is not Tenure's, and so may release it in silence.
const LOOK_AT_FOREIGN: Duration = Duration::from_secs(1);
/// A holder is looked up in the clients' records once it has been in the way for this long. Before
/// that its record does not list it.
const LOOK_UP_AFTER: Duration = Duration::from_millis(700);

/// The holder whom a line waits for.
pub(super) struct Obstacle {
    busy: Busy,
    since: Moment,
    looked_up: bool,
    holder: Holder,
}

impl Obstacle {
    pub(super) fn new(busy: Busy, now: Moment) -> Self {
        Self {
            holder: Holder::seen_in_the_way(&busy),
            busy,
            since: now,
            looked_up: false,
        }
    }

    /// The same holder again, or another one.
    pub(super) fn update(known: &mut Option<Self>, busy: Busy, now: Moment) {
        match known {
            Some(known) if known.busy.holder == busy.holder => {
                known.holder.remaining = busy.remaining;
                known.busy = busy;
            }
            known => *known = Some(Self::new(busy, now)),
        }
    }

    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// How long to sleep though no message comes: until the lease ends, or a third of its ttl.
    pub(super) fn patience(&self) -> Duration {
        let fallback = self
            .busy
            .holder
            .ttl()
            .map_or(LOOK_AT_FOREIGN, |ttl| ttl / 3);
        // One millisecond more: a key ends after its last millisecond.
        let end = self
            .busy
            .remaining
            .map(|left| left + Duration::from_millis(1));
        end.map_or(fallback, |end| end.min(fallback))
    }

    /// When to look up who it is, if that is still to be done and can be.
    pub(super) fn look_up_at(&self) -> Option<Moment> {
        let wanted = !self.looked_up && self.busy.holder.is_tenure();
        wanted.then(|| self.since + LOOK_UP_AFTER)
    }

    /// Whose record tells who it is. Asked for once.
    pub(super) fn begin_look_up(&mut self) -> Option<ClientId> {
        self.looked_up = true;
        self.busy.holder.client()
    }

    pub(super) fn name_holder(&mut self, record: Option<ClientRecord>) {
        self.holder.client = record;
    }
}
