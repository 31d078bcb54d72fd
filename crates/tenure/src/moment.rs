//! Time as Tenure measures it: a clock that includes suspend, and a manual clock for tests.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Add;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// A point in time on the clock that leases are measured by.
///
/// It includes the time that the machine was suspended (`CLOCK_BOOTTIME`), because the server's
/// clock keeps running meanwhile; `std::time::Instant` does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(NonZeroU64);

impl Moment {
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        // One more, so that `Option<Moment>` is no larger: a client may have a million leases.
        match NonZeroU64::new(nanos.saturating_add(1)) {
            Some(nanos) => Self(nanos),
            None => Self(NonZeroU64::MIN),
        }
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// This moment.
    pub fn now() -> Self {
        Clock::Boot.now()
    }

    /// The time of day at this moment, by the wall clock as it is set now. It may be a little too
    /// early, never too late: fit to be shown as the end of a lease.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let guard = tenure.lock("report").acquire().await?;
    /// println!("held until {:?}", guard.deadline().to_system_time());
    /// # Ok(()) }) }
    /// ```
    pub fn to_system_time(self) -> SystemTime {
        // In this order: what passes between the two readings makes the result earlier.
        let wall = SystemTime::now();
        let now = Self::now();
        if self >= now {
            wall + self.saturating_since(now)
        } else {
            let ago = now.saturating_since(self);
            wall.checked_sub(ago).unwrap_or(UNIX_EPOCH)
        }
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }

    /// The moment that is this much earlier.
    pub(crate) fn before(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(self.as_nanos().saturating_sub(nanos))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(self.as_nanos().saturating_add(nanos))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.6}s",
            Duration::from_nanos(self.as_nanos()).as_secs_f64()
        )
    }
}

/// The clock that a client uses.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    Boot,
    Manual(ManualClock),
}

impl Clock {
    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::Boot => Moment::from_nanos(boot_nanos()),
            Self::Manual(clock) => clock.now(),
        }
    }

    pub(crate) fn is_same(&self, other: &Clock) -> bool {
        match (self, other) {
            (Self::Boot, Self::Boot) => true,
            (Self::Manual(one), Self::Manual(other)) => Arc::ptr_eq(&one.nanos, &other.nanos),
            (Self::Boot, Self::Manual(_)) | (Self::Manual(_), Self::Boot) => false,
        }
    }

    /// The time of day in microseconds, as a server's `TIME` would tell it.
    pub(crate) fn wall_micros(&self) -> u64 {
        match self {
            Self::Boot => wall_micros(),
            Self::Manual(clock) => clock.now().as_nanos() / 1_000,
        }
    }

    /// Sleeps until `moment`. Must run on the engine, whose timers it uses.
    pub(crate) async fn sleep_until(&self, moment: Moment) {
        match self {
            Self::Boot => sleep_by_boot_time(moment).await,
            Self::Manual(clock) => clock.sleep_until(moment).await,
        }
    }
}

/// A clock that only moves when a test advances it.
///
/// Use it with the memory store to test leases of minutes in no time.
///
/// ```
/// use std::time::Duration;
/// use tenure::{ManualClock, Tenure};
///
/// # async fn example() -> Result<(), tenure::Error> {
/// let clock = ManualClock::new();
/// let tenure = Tenure::builder("memory://").clock(&clock).connect().await?;
/// let guard = tenure.lock("report").ttl(Duration::from_secs(60)).no_renewal().acquire().await?;
/// assert!(guard.is_valid());
/// clock.advance(Duration::from_secs(61));
/// assert!(!guard.is_valid());
/// # Ok(()) }
/// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    nanos: Arc<watch::Sender<u64>>,
}

impl ManualClock {
    /// A clock at some time in the past, not moving.
    pub fn new() -> Self {
        // Not zero, so that moments before the start can be told from the start itself.
        let start = Duration::from_secs(1_000_000_000).as_nanos();
        Self {
            nanos: Arc::new(watch::Sender::new(u64::try_from(start).unwrap_or(0))),
        }
    }

    /// Advances the clock and wakes everything that sleeps on it.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.nanos
            .send_modify(|nanos| *nanos = nanos.saturating_add(by));
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(*self.nanos.borrow())
    }

    async fn sleep_until(&self, moment: Moment) {
        let mut changes = self.nanos.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = changes.wait_for(|nanos| *nanos >= moment.as_nanos()).await;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Timers stop while the machine is suspended. Sleeping in steps of at most a second bounds how
/// late a deadline is noticed after it wakes up.
async fn sleep_by_boot_time(moment: Moment) {
    const PIECE: Duration = Duration::from_secs(1);
    loop {
        let left = moment.saturating_since(Moment::from_nanos(boot_nanos()));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(PIECE)).await;
    }
}

#[cfg(unix)]
fn boot_nanos() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    // On macOS this one counts the time of a suspend.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// On Windows, `Instant` counts the time of a suspend.
#[cfg(not(unix))]
fn boot_nanos() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Not zero at the start, so that moments before it exist.
    const DAY: u64 = 24 * 60 * 60 * 1_000_000_000;
    let nanos = START.elapsed().as_nanos();
    DAY + u64::try_from(nanos).unwrap_or(u64::MAX - DAY)
}

fn wall_micros() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}
