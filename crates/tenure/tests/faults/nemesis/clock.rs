//! The clock of one server, and how far it has ever been.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tenure_testkit::ClockShim;

pub struct Clock {
    shim: ClockShim,
    furthest_ns: AtomicI64,
}

impl Clock {
    /// `None` where there is no compiler to build one with.
    pub fn compile() -> Option<Self> {
        Some(Self {
            shim: ClockShim::compile()?,
            furthest_ns: AtomicI64::new(0),
        })
    }

    pub fn shim(&self) -> ClockShim {
        self.shim.clone()
    }

    pub fn step_forward(&self, by: Duration) {
        self.shim.step_forward(by);
        let ahead_ns = self.shim.ahead_ns();
        self.furthest_ns.fetch_max(ahead_ns, Ordering::Relaxed);
    }

    pub fn step_back(&self, by: Duration) {
        self.shim.step_back(by);
    }

    /// Lets the clock run at another rate from now on. It does not jump.
    pub fn set_rate(&self, rate: f64) {
        self.shim.set_rate(rate);
    }

    /// Sets the clock right, as an administrator does who has noticed. Where it has been is forgotten:
    /// no lease can have begun there.
    pub fn set_right(&self) {
        self.shim.reset();
        self.furthest_ns.store(0, Ordering::Relaxed);
    }

    /// Brings the clock to the latest time it has ever shown: only then do leases end that began
    /// before it was set back.
    pub fn catch_up(&self) {
        let furthest_ns = self.furthest_ns.load(Ordering::Relaxed);
        let behind_ns = furthest_ns - self.shim.ahead_ns();
        let behind_ns = u64::try_from(behind_ns).unwrap_or(0);
        self.shim.step_forward(Duration::from_nanos(behind_ns));
    }
}
