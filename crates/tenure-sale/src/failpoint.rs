//! Steps at which a test kills the process, to show that nothing is lost there. They exist only
//! with the feature `failpoints`, which is for fault runs and never for users; without it they are
//! no-ops.
//!
//! `TENURE_SALE_FAILPOINT=consumer.after_commit@3` kills the process when it passes that step for
//! the third time; without `@3`, the first time.
//!
//! `TENURE_SALE_BUG=ack-before-commit` enables a seeded bug, to show that fault runs find it.

/// Passes a step.
#[cfg(feature = "failpoints")]
pub(crate) fn failpoint(step: &str) {
    planted::pass(step);
}

/// Passes a step: a no-op in user builds.
#[cfg(not(feature = "failpoints"))]
pub(crate) const fn failpoint(_: &str) {}

/// Whether this bug is enabled.
#[cfg(feature = "failpoints")]
pub(crate) fn bug(name: &str) -> bool {
    std::env::var("TENURE_SALE_BUG").is_ok_and(|planted| planted == name)
}

/// Whether this bug is enabled: never in user builds.
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
        /// How often it may still be passed, including the last time.
        left: AtomicU64,
    }

    static PLANTED: LazyLock<Option<Planted>> = LazyLock::new(|| {
        let text = std::env::var("TENURE_SALE_FAILPOINT").ok()?;
        let (step, times) = text.split_once('@').unwrap_or((&text, "1"));
        let Ok(times @ 1..) = times.parse() else {
            // A test whose failpoint does not exist would pass for the wrong reason.
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
