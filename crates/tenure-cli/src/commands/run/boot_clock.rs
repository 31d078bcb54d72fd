//! The clock that leases are measured by, and an alarm on it. It counts while the machine is
//! suspended, like the server's clock.

use std::io;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe::Receiver;

/// A moment of this machine's `CLOCK_BOOTTIME`: the same for all its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BootTime(u64);

impl BootTime {
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    pub fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(length)))
    }

    pub fn minus(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(nanos_of(length)))
    }

    pub fn has_come(self) -> bool {
        Self::now() >= self
    }
}

/// Fires at a moment, on time even after a suspend: tokio's timers do not count suspended time.
#[derive(Debug)]
pub struct Alarm {
    /// A `timerfd`, which is read like a pipe.
    timer: Receiver,
    set_to: Option<BootTime>,
}

impl Alarm {
    /// Must be made inside a runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Self {
            timer: Receiver::from_owned_fd_unchecked(timer)?,
            set_to: None,
        })
    }

    /// Sets it to another moment, or to none.
    pub fn set(&mut self, moment: Option<BootTime>) -> io::Result<()> {
        if self.set_to == moment {
            return Ok(());
        }
        // Zero would turn it off, so a moment before the boot becomes the first one.
        let nanos = moment.map_or(0, |moment| moment.0.max(1));
        let value = Itimerspec {
            it_interval: timespec(0),
            it_value: timespec(nanos),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)?;
        self.set_to = moment;
        Ok(())
    }

    /// Resolves when the moment has come, and on every later call. Cancel safe.
    pub async fn rung(&self) {
        loop {
            if self.set_to.is_some_and(BootTime::has_come) {
                return;
            }
            if self.timer.readable().await.is_err() {
                std::future::pending::<()>().await;
            }
            // The number of expirations. If it was set again in between, there is nothing to read.
            let _ = self.timer.try_read(&mut [0; 8]);
        }
    }
}

fn nanos_of(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

fn timespec(nanos: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_at_its_moment_and_can_be_moved() {
        let mut alarm = Alarm::new().unwrap();
        alarm
            .set(Some(BootTime::now().plus(Duration::from_hours(1))))
            .unwrap();
        let soon = BootTime::now().plus(Duration::from_millis(20));
        alarm.set(Some(soon)).unwrap();
        alarm.rung().await;
        assert!(soon.has_come());
        alarm.set(None).unwrap();
        let silent = tokio::time::timeout(Duration::from_millis(20), alarm.rung()).await;
        assert!(silent.is_err());
    }
}
