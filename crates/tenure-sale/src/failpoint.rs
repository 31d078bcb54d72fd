//! Steps at which a test kills the process, to show that nothing is lost there. They exist only with
//! the feature `failpoints`, which is for fault runs and never for users; without it they are empty.
//!
//! `TENURE_SALE_FAILPOINT=consumer.after_commit@3` ends the process when it passes that step for the
//! third time, without any last word; without `@3`, at the first time.
//!
//! `TENURE_SALE_BUG=ack-before-commit` plants a bug, to show that fault runs find it.

/// Passes a step.
#[cfg(feature = "failpoints")]
pub(crate) fn failpoint(step: &str) {
    planted::pass(step);
}

/// Passes a step: nothing, in what users get.
#[cfg(not(feature = "failpoints"))]
pub(crate) const fn failpoint(_: &str) {}

/// Whether this bug is planted.
#[cfg(feature = "failpoints")]
pub(crate) fn bug(name: &str) -> bool {
    std::env::var("TENURE_SALE_BUG").is_ok_and(|planted| planted == name)
}

/// Whether this bug is planted: never, in what users get.
#[cfg(not(feature = "failpoints"))]
pub(crate) const fn bug(_: &str) -> bool {
    false
}

#[cfg(feature = "failpoints")]
mod planted {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Planted {
        step: String,
        /// How often it may still be passed, the last time included.
        left: AtomicU64,
    }

    static PLANTED: LazyLock<Option<Planted>> = LazyLock::new(|| {
        let text = std::env::var("TENURE_SALE_FAILPOINT").ok()?;
        let (step, times) = text.split_once('@').unwrap_or((&text, "1"));
        let Ok(times @ 1..) = times.parse() else {
            // A test that plants nothing would pass for the wrong reason.
            std::process::abort();
        };
        Some(Planted {
            step: step.to_owned(),
            left: AtomicU64::new(times),
        })
    });

    pub(super) fn pass(step: &str) {
        let Some(planted) = PLANTED.as_ref().filter(|planted| planted.step == step) else {
            return;
        };
        if planted.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::process::abort();
        }
    }
}
