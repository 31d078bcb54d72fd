//! A lease changes its mode, and the reply is lost.

use tenure::{ErrorKind, Guard, Mode, Released, Tenure, Unchanged};

use super::wire::Wire;
use crate::stage::ms;

const BOTH: [Mode; 2] = [Mode::Shared, Mode::Exclusive];

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_lost_reply_to_a_change_of_mode_ends_in_one_lease() {
    for to in BOTH {
        let wire = Wire::start();
        let (a, b) = (wire.client().await, wire.bystander().await);
        let guard = held_otherwise(&a, to).await;
        wire.proxy.reset_after_request_with(b"EVALSHA");
        let guard = changed(guard, to).await.unwrap();
        assert_eq!(guard.mode(), to);
        assert!(guard.is_valid());
        // Exactly what it believes excludes others.
        let reader = b.lock("n").shared().try_acquire().await.unwrap();
        assert_eq!(reader.is_some(), to == Mode::Shared);
        drop(reader);
        assert!(b.lock("n").try_acquire().await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        assert!(wire.is_clean_soon("n"), "held by nobody as {to}");
    }
}

/// The server changed the lease, and its holder is not told in time: it must not believe in either.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_change_of_mode_that_stays_unknown_ends_the_lease() {
    for to in BOTH {
        let wire = Wire::start();
        let a = wire.builder().response_timeout(ms(300));
        let a = a.connect().await.unwrap();
        let guard = held_otherwise(&a, to).await;
        let token = guard.lost_token();
        let before = wire.fence("n");
        wire.proxy.drop_replies();
        let Unchanged { guard, error } = changed(guard, to).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(guard.is_none(), "nobody knows which lease there is");
        assert!(token.is_cancelled());
        assert!(wire.fence("n") > before, "the server did not change it");
        wire.proxy.stop_dropping();
        assert!(wire.is_clean_soon("n"), "held by nobody as {to}");
    }
}

/// The request arrives long after its sender gave up and released.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_a_late_change_of_mode_creates_no_lease() {
    for to in BOTH {
        let wire = Wire::start();
        let a = wire.builder().response_timeout(ms(300));
        let (a, b) = (a.connect().await.unwrap(), wire.bystander().await);
        let guard = held_otherwise(&a, to).await;
        wire.proxy.hold_requests();
        let Unchanged { guard, error } = changed(guard, to).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(guard.is_none());
        wire.proxy.release_requests();
        let other = b.lock("n").wait(ms(20_000)).acquire().await.unwrap();
        assert!(other.is_valid());
        assert_eq!(other.release().await.unwrap(), Released::WasHeld);
        assert!(wire.is_clean_soon("n"), "held by nobody as {to}");
    }
}

/// A lease in the mode that is not `to`.
async fn held_otherwise(a: &Tenure, to: Mode) -> Guard {
    let lock = a.lock("n").ttl(ms(60_000));
    let lock = if to == Mode::Exclusive {
        lock.shared()
    } else {
        lock
    };
    lock.acquire().await.unwrap()
}

async fn changed(guard: Guard, to: Mode) -> Result<Guard, Unchanged> {
    match to {
        Mode::Shared => guard.downgrade().await,
        _ => guard.try_upgrade().await,
    }
}
