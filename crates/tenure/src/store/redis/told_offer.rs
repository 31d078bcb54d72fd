//! What the message of an offer tells its waiter, and until when that may be believed here.
//!
//! The message has times of the server's clock. A reading of that clock maps them to ours: the server
//! showed `server_us` some time after `asked_at`. So a moment is never mapped to a later one than it
//! was, whatever the two clocks show, as long as their rates differ by no more than the drift that
//! leases allow for.

use std::time::Duration;

use crate::lease::{DRIFT_DIVISOR, Fence, LeaseId, believed_until};
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::OfferedGrant;

/// How old an offer may be when it is heard. A waiter that hears it later asks the store: soon there
/// would be too little time left to renew.
const AGE_MAX: Duration = Duration::from_millis(50);

/// A fence and two times of the server's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToldOffer {
    fence: Fence,
    written_us: u64,
    /// The offer ends at this time at the earliest.
    ends_us: u64,
}

/// A reading of the server's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    pub(super) asked_at: Moment,
    pub(super) server_us: u64,
}

impl ToldOffer {
    /// The waiter that an offer is for, and what it is told.
    pub(super) fn parse(message: &str) -> (LeaseId, Option<Self>) {
        let Some((waiter, told)) = message.split_once(' ') else {
            return (LeaseId::new(message), None);
        };
        let numbers: Option<Vec<u64>> = told.split(' ').map(|it| it.parse().ok()).collect();
        let told = match numbers.as_deref() {
            Some(&[fence, written_us, ends_us]) if written_us < ends_us => Some(Self {
                fence: Fence::new(fence),
                written_us,
                ends_us,
            }),
            _ => None,
        };
        (LeaseId::new(waiter), told)
    }

    /// What it grants when it is heard now. `None` if it is too old, or if the server's clock was set
    /// since the reading.
    pub(super) fn grant(self, reading: ClockReading, now: Moment) -> Option<OfferedGrant> {
        let written_at = reading.earliest(self.written_us);
        let lasts = Duration::from_micros(self.ends_us - self.written_us);
        if bug(Bug::LateOfferTrusted) {
            return Some(OfferedGrant {
                fence: self.fence,
                written_at: now,
                until: believed_until(now, lasts),
            });
        }
        let is_plausible = self.written_us <= reading.latest_us(now);
        if !is_plausible || now.saturating_since(written_at) > AGE_MAX {
            return None;
        }
        let left = Duration::from_micros(self.ends_us.saturating_sub(reading.server_us));
        Some(OfferedGrant {
            fence: self.fence,
            written_at,
            until: believed_until(reading.asked_at, left),
        })
    }
}

impl ClockReading {
    /// The earliest moment at which the server's clock can have shown this.
    fn earliest(self, server_us: u64) -> Moment {
        if server_us < self.server_us {
            let ago = Duration::from_micros(self.server_us - server_us);
            return self.asked_at.before(ago + ago / DRIFT_DIVISOR);
        }
        let later = Duration::from_micros(server_us - self.server_us);
        self.asked_at + later.saturating_sub(later / DRIFT_DIVISOR)
    }

    /// The latest that the server's clock can show now.
    fn latest_us(self, now: Moment) -> u64 {
        let passed = now.saturating_since(self.asked_at);
        let passed = passed + passed / DRIFT_DIVISOR;
        let passed_us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        self.server_us.saturating_add(passed_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_US: u64 = 1_700_000_000_000_000;

    fn moment(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// Asked at 10 s of our clock.
    fn reading() -> ClockReading {
        ClockReading {
            asked_at: moment(10_000),
            server_us: SERVER_US,
        }
    }

    /// An offer of two seconds, written this long after the reading.
    fn written(after_ms: i64) -> ToldOffer {
        let written_us = SERVER_US.saturating_add_signed(after_ms * 1_000);
        ToldOffer {
            fence: Fence::new(7),
            written_us,
            ends_us: written_us + 2_000_000,
        }
    }

    #[test]
    fn a_message_names_the_waiter_first() {
        let (waiter, told) = ToldOffer::parse("tenure:c:+1:30000 7 1000 2000");
        assert_eq!(waiter.as_str(), "tenure:c:+1:30000");
        let expected = ToldOffer {
            fence: Fence::new(7),
            written_us: 1_000,
            ends_us: 2_000,
        };
        assert_eq!(told, Some(expected));
    }

    #[test]
    fn other_messages_tell_nothing_more_than_the_waiter() {
        for message in [
            "w",
            "w ",
            "w 7",
            "w 7 1",
            "w 7 1 x",
            "w 7 2 1",
            "w 7 1 1",
            "w 7 1 2 3",
            "w -7 1 2",
        ] {
            let (waiter, told) = ToldOffer::parse(message);
            assert_eq!((waiter.as_str(), told), ("w", None), "{message}");
        }
    }

    /// The server showed the reading between the question and its answer. Whenever that was, the
    /// belief ends before the offer does.
    #[test]
    fn belief_ends_before_the_offer_wherever_the_reading_was_taken() {
        for (answered_ms, heard_ms) in [(0, 1_001), (20, 1_021), (30, 1_035)] {
            let offer = written(1_000).grant(reading(), moment(10_000 + heard_ms));
            let ends = moment(10_000 + answered_ms + 3_000);
            let until = offer.unwrap().until;
            assert!(until < ends, "{until:?} is not before {ends:?}");
            assert!(until > moment(12_900), "{until:?}");
        }
    }

    /// A server's clock that is a percent faster reaches the end of the offer earlier.
    #[test]
    fn belief_allows_for_drift_since_the_reading() {
        let offer = written(2_000).grant(reading(), moment(11_990)).unwrap();
        let passed = Duration::from_secs(4);
        assert!(offer.until <= moment(10_000) + passed.saturating_sub(passed / 101));
        assert!(offer.written_at <= moment(10_000) + Duration::from_millis(2_000 * 100 / 101));
    }

    #[test]
    fn an_offer_from_before_the_reading_is_mapped_too() {
        let offer = written(-5).grant(reading(), moment(10_001)).unwrap();
        assert!(offer.written_at <= moment(9_995) && offer.until < moment(11_995));
    }

    #[test]
    fn an_offer_that_was_heard_late_is_not_trusted() {
        assert!(written(1_000).grant(reading(), moment(11_030)).is_some());
        for late_ms in [60, 1_000, 3_000, 100_000] {
            let heard_at = moment(11_000 + late_ms);
            assert!(written(1_000).grant(reading(), heard_at).is_none());
        }
    }

    #[test]
    fn a_time_that_the_server_cannot_show_yet_is_not_trusted() {
        assert!(written(1_009).grant(reading(), moment(11_000)).is_some());
        for ahead_ms in [1_011, 2_000, 1_000_000] {
            assert!(written(ahead_ms).grant(reading(), moment(11_000)).is_none());
        }
    }

    /// The rates of two clocks may differ by a percent: after five seconds nothing can be said.
    #[test]
    fn an_old_reading_is_not_enough() {
        for age_ms in [6_000, 60_000] {
            let heard_at = moment(10_000 + u64::try_from(age_ms).unwrap());
            assert!(written(age_ms).grant(reading(), heard_at).is_none());
        }
    }
}
