//! A kind of request to the store for one lease: when it is due, and whether one is in flight.

use crate::moment::Moment;

/// Small, because a client may have a million leases, each with two of them.
#[derive(Clone, Copy, Default)]
pub(super) enum RequestState {
    #[default]
    Idle,
    Due(Moment),
    InFlight,
    /// One is in flight, and the next one is sent afterwards, from this moment on.
    InFlightThenDue(Moment),
}

impl RequestState {
    pub(super) fn at(due: Option<Moment>) -> Self {
        due.map_or(Self::Idle, Self::Due)
    }

    /// When to send one. What becomes due while one is in flight is sent afterwards.
    pub(super) fn next(self) -> Option<Moment> {
        match self {
            Self::Due(at) => Some(at),
            Self::Idle | Self::InFlight | Self::InFlightThenDue(_) => None,
        }
    }

    /// When one is due, whether another is in flight or not.
    pub(super) fn due(self) -> Option<Moment> {
        match self {
            Self::Due(at) | Self::InFlightThenDue(at) => Some(at),
            Self::Idle | Self::InFlight => None,
        }
    }

    pub(super) fn is_in_flight(self) -> bool {
        matches!(self, Self::InFlight | Self::InFlightThenDue(_))
    }

    /// Changes when one is due.
    pub(super) fn set_due(&mut self, at: Moment) {
        *self = if self.is_in_flight() {
            Self::InFlightThenDue(at)
        } else {
            Self::Due(at)
        };
    }

    /// Makes one due at this moment at the latest.
    pub(super) fn set_due_by(&mut self, at: Moment) {
        self.set_due(self.due().map_or(at, |due| due.min(at)));
    }

    /// Marks the request as in flight if it is due.
    pub(super) fn begins(&mut self, now: Moment) -> bool {
        let begins = self.next().is_some_and(|due| due <= now);
        if begins {
            *self = Self::InFlight;
        }
        begins
    }

    /// The one in flight has ended.
    pub(super) fn end(&mut self) {
        *self = Self::at(self.due());
    }
}
