//! Clocks, pauses, leases that end.

use std::time::{Duration, Instant};

use tenure::{ErrorKind, Fence, Guard, Lease, LostReason, ManualClock, Released, Standing, Tenure};
use tenure_testkit::{ClockShim, RedisServer, eventually};

use super::program::Program;
use super::wire::{SOON, Wire};
use crate::lua::{RENEW, eval};
use crate::stage::ms;

const HOUR: Duration = Duration::from_secs(60 * 60);

// H9: the lease expires while the work continues.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h09_blocked_renewals_are_told_at_the_deadline() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    let guard = a.lock("n").ttl(ms(600)).acquire().await.unwrap();
    wire.proxy.hold_requests();
    let asked_at = Instant::now();
    let deadline = asked_at + guard.remaining();
    let successor = tokio::spawn(async move {
        let guard = b.lock("n").acquire().await.unwrap();
        (guard, Instant::now())
    });
    assert_eq!(lost_soon(&guard).await, LostReason::Expired);
    let lost_at = Instant::now();
    assert!(lost_at >= deadline, "{:?} early", deadline - lost_at);
    assert!(lost_at < deadline + SOON, "{:?} late", lost_at - deadline);
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(eventually(SOON, || a.stats().lost == 1));
    let (successor, granted_at) = successor.await.unwrap();
    assert!(granted_at >= deadline, "two believed to hold it");
    assert!(successor.fence() > guard.fence());
}

/// A server that cannot be reached gives no reply, not even that it is gone.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h09_a_holder_is_suspect_before_it_is_lost() {
    let wire = Wire::start();
    let a = wire.client().await;
    let guard = a.lock("n").ttl(ms(900)).acquire().await.unwrap();
    wire.proxy.reset_all();
    wire.proxy.refuse();
    let suspected = eventually(SOON, || guard.standing() == Standing::Suspect);
    assert!(suspected, "nothing was said of failing renewals");
    assert_eq!(lost_soon(&guard).await, LostReason::Expired);
    assert_eq!(guard.standing(), Standing::Lost);
    assert!(a.stats().renewals_failed > 0);
}

// H10: the whole process stops, as in a long collection, a swap, a moved virtual machine.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h10_a_holder_that_slept_past_its_ttl_is_lost_on_resume() {
    let wire = Wire::start();
    let b = wire.bystander().await;
    let a = Program::start(&wire.server.url());
    let first = granted(&a.ask("acquire n 400"));
    a.process.pause();
    let successor = b.lock("n").wait(ms(4_000)).acquire().await.unwrap();
    assert!(successor.fence().get() > first);
    // It stands in the pipe when the process wakes up: the first thing that is asked.
    a.process.send_line("check");
    a.process.resume();
    assert_eq!(a.answer(), "Lost");
    assert_eq!(a.ask("check"), "Lost", "and never comes back");
    // The store may have been faster to tell than the clock.
    let reason = a.ask("lost");
    assert!(["Expired", "Taken"].contains(&&*reason), "{reason}");
    assert_eq!(a.ask("release"), "AlreadyGone");
    assert_eq!(wire.holder("n").as_ref(), Some(successor.lease_id()));
    assert!(successor.is_valid());
}

// H11: the process stops between request and reply.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h11_a_grant_that_ended_before_its_reply_was_read_is_no_grant() {
    let wire = Wire::start();
    let b = wire.bystander().await;
    let a = Program::start(&wire.proxy.url());
    wire.proxy.hold_replies();
    a.process.send_line("acquire n 300");
    assert!(wire.is_granted_soon("n"));
    let minted = wire.fence("n").unwrap();
    a.process.pause();
    // The grant waits in the socket's buffer while another gets the lock.
    wire.proxy.release_replies();
    let successor = b.lock("n").wait(ms(4_000)).acquire().await.unwrap();
    a.process.resume();
    let early = a.process.read_line(ms(300));
    assert!(!early.is_some_and(|line| line.contains("granted")));
    assert!(successor.is_valid());
    assert_eq!(successor.release().await.unwrap(), Released::WasHeld);
    let fence = granted(&a.answer());
    assert!(fence > minted, "the grant of before was taken for good");
    assert_eq!(a.ask("check"), "Held");
}

/// The same without another client: the second attempt gets a lease of its own length.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h11_a_grant_that_came_too_late_is_asked_for_again() {
    let wire = Wire::start();
    let a = wire.client().await;
    let lock = a.lock("n").ttl(ms(200));
    wire.proxy.hold_replies();
    let acquiring = tokio::spawn(async move { lock.acquire().await.unwrap() });
    assert!(wire.is_granted_soon("n"));
    let minted = wire.fence("n").unwrap();
    assert!(wire.is_free_soon("n"), "its lease ends");
    wire.proxy.release_replies();
    let guard = acquiring.await.unwrap();
    assert!(guard.is_valid());
    assert!(guard.fence().get() > minted);
    let (believed, left) = (guard.remaining(), wire.left("n"));
    assert!(believed <= left + ms(20), "{believed:?} of {left:?}");
    guard.release().await.unwrap();
}

/// The server renewed in time, but the holder slept past the deadline that it knew of. Whoever
/// asked meanwhile was told that the lock is lost, and that is never taken back.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h11_a_renewal_read_after_the_deadline_does_not_raise_the_dead() {
    let wire = Wire::start();
    let a = Program::start(&wire.proxy.url());
    granted(&a.ask("acquire n 900"));
    let acquired_at = Instant::now();
    wire.proxy.hold_replies();
    let renewed = eventually(SOON, || {
        acquired_at.elapsed() > ms(200) && wire.left("n") > ms(850)
    });
    assert!(renewed, "the server renewed nothing");
    a.process.pause();
    wire.proxy.release_replies();
    std::thread::sleep(ms(920).saturating_sub(acquired_at.elapsed()));
    a.process.send_line("check");
    a.process.resume();
    assert_eq!(a.answer(), "Lost");
    assert_eq!(a.ask("lost"), "Expired");
    assert_eq!(a.ask("check"), "Lost");
}

// H12: the time that a reply takes is the holder's loss.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h12_a_slow_reply_shortens_the_belief() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.delay_replies(ms(800));
    let lock = a.lock("n").ttl(ms(1_000)).no_renewal();
    let begun = Instant::now();
    let guard = lock.acquire().await.unwrap();
    assert!(begun.elapsed() >= ms(800));
    assert!(guard.remaining() <= ms(188), "{:?}", guard.remaining());
}

// H13: the server's clock is set forward.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h13_a_server_clock_set_forward_is_told_to_the_holder() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let wire = Wire::to(RedisServer::builder().clock(clock.clone()));
    let (a, b) = (wire.bystander().await, wire.bystander().await);
    let young = a.lock("young").ttl(ms(900)).acquire().await.unwrap();
    let old = a.lock("old").ttl(HOUR / 2).acquire().await.unwrap();
    // Old enough to be watched.
    tokio::time::sleep(ms(1_200)).await;
    let stepped_at = Instant::now();
    clock.step_forward(HOUR);
    for guard in [&young, &old] {
        let taken = b.lock(guard.name().as_str()).try_acquire().await.unwrap();
        let taken = taken.expect("every lease has ended at once");
        assert!(taken.fence() > guard.fence());
        let reason = lost_soon(guard).await;
        assert!(matches!(reason, LostReason::Gone | LostReason::Taken));
        assert!(!guard.is_valid());
        assert!(taken.is_valid());
    }
    assert!(stepped_at.elapsed() < SOON, "{:?}", stepped_at.elapsed());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h13_locks_can_be_taken_after_every_step_and_fences_grow() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let wire = Wire::to(RedisServer::builder().clock(clock.clone()));
    let a = wire.bystander().await;
    let mut last = take_and_release(&a).await;
    for by in [ms(500), Duration::from_secs(60), HOUR, 24 * HOUR] {
        clock.step_forward(by);
        let fence = take_and_release(&a).await;
        assert!(fence > last, "forward by {by:?}");
        last = fence;
    }
    for by in [24 * HOUR, HOUR, ms(500)] {
        clock.step_back(by);
        let fence = take_and_release(&a).await;
        assert!(fence > last, "back by {by:?}");
        last = fence;
    }
    assert!(wire.is_clean_soon("n"));
}

// H14: the server's clock is set back.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h14_a_server_clock_set_back_keeps_holders_and_prolongs_nothing_but_the_wait() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let wire = Wire::to(RedisServer::builder().clock(clock.clone()));
    let (a, b) = (wire.bystander().await, wire.bystander().await);
    let renewed = a.lock("renewed").ttl(ms(600)).acquire().await.unwrap();
    let fixed = a
        .lock("fixed")
        .ttl(ms(600))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    clock.step_back(HOUR);
    assert!(wire.left("fixed") > HOUR / 2, "so the server sees it");
    assert_eq!(lost_soon(&fixed).await, LostReason::Expired);
    // Renewals have put the end right again.
    assert!(renewed.is_valid());
    assert!(wire.left("renewed") <= ms(600));
    // What nobody renews stays for an hour: the price is waiting, never a second holder.
    assert!(b.lock("fixed").try_acquire().await.unwrap().is_none());
    let fence = fixed.fence();
    assert_eq!(fixed.release().await.unwrap(), Released::AlreadyGone);
    let next = b.lock("fixed").try_acquire().await.unwrap().unwrap();
    assert!(next.fence() > fence);
    assert_eq!(renewed.release().await.unwrap(), Released::WasHeld);
}

/// The latest moment of an attempt is an hour away now, and cannot be waited for.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h14_a_late_acquire_is_undone_also_after_the_server_clock_was_set_back() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let wire = Wire::to(RedisServer::builder().clock(clock.clone()));
    let a = wire.client().await;
    let lock = a.lock("n");
    let mut acquiring = None;
    wire.catch_requests(|| {
        acquiring = Some(tokio::spawn(async move { lock.acquire().await.unwrap() }));
    });
    clock.step_back(HOUR);
    wire.proxy.strand();
    wire.proxy.release_requests();
    let guard = acquiring.unwrap().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert_eq!(wire.holder("n"), None);
    let minted = wire.fence("n");
    wire.proxy.land();
    assert!(wire.is_minted_soon("n", minted), "nothing landed");
    assert!(wire.is_clean_soon("n"), "granted to nobody");
}

// H16: the client's wall clock is set.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h16_the_clients_wall_clock_changes_nothing_on_redis() {
    let server = RedisServer::start();
    set_the_clients_clock(&server.url());
}

/// The store lives in the process and by its clock: not by the one that can be set.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h16_the_clients_wall_clock_changes_nothing_on_memory() {
    set_the_clients_clock("memory://shared");
}

// H17: the machine was suspended, and no timer ran.

/// While the machine sleeps the server's clock keeps running, and so does `CLOCK_BOOTTIME`. No timer runs, and
/// `CLOCK_MONOTONIC`, by which timers go, stands still.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h17_after_a_suspend_the_guard_is_invalid_at_once() {
    let (Some(of_client), Some(of_server)) = (ClockShim::compile(), ClockShim::compile()) else {
        return;
    };
    let wire = Wire::to(RedisServer::builder().clock(of_server.clone()));
    let b = wire.bystander().await;
    let a = Program::start_by(&of_client, &wire.server.url());
    let first = granted(&a.ask("acquire n 30000"));
    assert_eq!(a.ask("check"), "Held");
    // Stopped, so that nothing is asked before the machine is awake again.
    a.process.pause();
    of_client.sleep_through(ms(31_000));
    of_server.step_forward(ms(31_000));
    let successor = b.lock("n").try_acquire().await.unwrap();
    let successor = successor.expect("the lease ended while the machine slept");
    assert!(successor.fence().get() > first);
    a.process.send_line("check");
    a.process.resume();
    assert_eq!(a.answer(), "Lost");
    assert_eq!(a.ask("release"), "AlreadyGone");
    assert!(successor.is_valid());
}

/// The same where no server could tell: nothing but the clock ends the belief.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h17_after_a_suspend_the_guard_is_invalid_though_no_server_answers() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let wire = Wire::start();
    let a = Program::start_by(&clock, &wire.proxy.url());
    granted(&a.ask("acquire n 600000"));
    wire.proxy.black_hole();
    clock.sleep_through(ms(540_000));
    assert_ne!(a.ask("check"), "Lost");
    clock.sleep_through(ms(60_000));
    assert_eq!(a.ask("check"), "Lost");
    assert_eq!(a.ask("lost"), "Expired");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manual_clock_ends_a_lease_without_a_timer() {
    let clock = ManualClock::new();
    let builder = Tenure::builder("memory://").clock(&clock);
    let a = builder.connect().await.unwrap();
    let guard = a.lock("n").ttl(ms(30_000)).acquire().await.unwrap();
    clock.advance(ms(30_000));
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    lost_soon(&guard).await;
    assert_eq!(guard.standing(), Standing::Lost);
}

// H18: a key ends after its last millisecond, and time stands still in a script.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_belief_ends_before_the_key_does() {
    let wire = Wire::start();
    let a = wire.bystander().await;
    for round in 0..10 {
        let guard = a
            .lock("n")
            .ttl(ms(100))
            .no_renewal()
            .acquire()
            .await
            .unwrap();
        let margin = belief_margin_us(&wire, &guard);
        assert!(margin > 0, "round {round}: {margin} us");
        guard.release().await.unwrap();
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_a_waiter_does_not_spin_through_the_last_millisecond() {
    let wire = Wire::start();
    let a = wire.bystander().await;
    for _ in 0..5 {
        let before = a.stats().busy;
        let mut redis = wire.server.client();
        redis.command(&["SET", "n", "somebody", "PX", "200"]);
        let ends_at = Instant::now() + ms(200);
        let guard = a.lock("n").acquire().await.unwrap();
        let late = Instant::now().saturating_duration_since(ends_at);
        assert!(late < SOON, "{late:?}");
        // Once, once more when it can hear messages, and perhaps once a millisecond early.
        let asked = a.stats().busy - before;
        assert!(asked <= 4, "asked {asked} times");
        guard.release().await.unwrap();
    }
}

// H19: clocks run apart.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_belief_ends_first_while_clocks_run_apart_by_a_hundredth() {
    let mut measuring = Vec::new();
    for rate in [0.98, 0.99, 1.0, 1.01, 1.02] {
        let Some(clock) = ClockShim::compile() else {
            return;
        };
        measuring.push(tokio::spawn(async move {
            let wire = Wire::to(RedisServer::builder().clock(clock.clone()));
            clock.set_rate(rate);
            let a = wire.bystander().await;
            let guard = a
                .lock("n")
                .ttl(ms(2_000))
                .no_renewal()
                .acquire()
                .await
                .unwrap();
            // It blocks until the lease has ended.
            let measuring = move || (rate, belief_margin_us(&wire, &guard));
            tokio::task::spawn_blocking(measuring).await.unwrap()
        }));
    }
    for measured in measuring {
        let (rate, margin_us) = measured.await.unwrap();
        // Beyond the promise it is only told: at 1.02 belief ends some 0.8 % of the ttl too late.
        eprintln!("server clock at rate {rate}: belief ends {margin_us} us before the key");
        let promised = (0.99..=1.01).contains(&rate);
        assert!(!promised || margin_us > 0, "rate {rate}: {margin_us} us");
    }
}

/// Who renews asks again after a third of its ttl, so that even a bad clock costs nothing.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_a_renewed_lease_is_kept_at_every_rate() {
    for rate in [0.9, 1.1] {
        let Some(clock) = ClockShim::compile() else {
            return;
        };
        let wire = Wire::to(RedisServer::builder().clock(clock.clone()));
        clock.set_rate(rate);
        let (a, b) = (wire.bystander().await, wire.bystander().await);
        let guard = a.lock("n").ttl(ms(600)).acquire().await.unwrap();
        let waiting = b.lock("n").wait(ms(1_500)).acquire().await;
        assert_eq!(waiting.unwrap_err().kind(), ErrorKind::Busy);
        assert!(guard.is_valid(), "rate {rate}");
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    }
}

// H20, H21: a ttl that Redis would take as *delete* or as *for ever*.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h20_h21_a_ttl_outside_its_limits_sends_nothing() {
    let wire = Wire::start();
    let a = wire.client().await;
    let before = wire.proxy.counts();
    let longest = tenure::TTL_MAX;
    for ttl in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(999),
        ms(99),
        longest + ms(1),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ] {
        for lock in [a.lock("n").ttl(ttl), a.lock("n").ttl(ttl).no_renewal()] {
            let error = lock.acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{ttl:?}");
            let error = lock.try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{ttl:?}");
        }
        let error = wire.builder().ttl(ttl).connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{ttl:?}");
    }
    assert_eq!(wire.proxy.counts(), before, "something was sent");
    let lease = "1 0 tenure:0123456789abcdef0123456789abcdef:1:0 n";
    assert!(lease.parse::<Lease>().is_err(), "an invalid lease");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h20_h21_the_server_gets_whole_milliseconds_within_the_limits() {
    let wire = Wire::start();
    let a = wire.bystander().await;
    let odd = tenure::TTL_MIN + Duration::from_micros(999);
    let guard = a
        .lock("short")
        .ttl(odd)
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let left = wire.left("short");
    assert!(left > Duration::ZERO && left <= tenure::TTL_MIN, "{left:?}");
    assert!(guard.remaining() < tenure::TTL_MIN);
    let lock = a.lock("long").ttl(tenure::TTL_MAX).no_renewal();
    let _long = lock.acquire().await.unwrap();
    let left = wire.left("long");
    assert!(left <= tenure::TTL_MAX && left + ms(60_000) > tenure::TTL_MAX);
}

/// The last defence, should a wrong number ever be sent: nothing is deleted or made immortal.
#[test]
fn h20_a_renewal_with_a_wrong_ttl_changes_nothing() {
    let wire = Wire::start();
    let mut redis = wire.server.client();
    redis.command(&["SET", "n", "me", "PX", "60000"]);
    for ttl in ["0", "-5", "0.5", "1e400", "", "ten"] {
        let refused = eval(&mut redis, RENEW, &["n"], &["me", ttl, "0"]);
        let error = refused.expect_err(ttl);
        assert!(error.contains("invalid ttl"), "ttl `{ttl}`: {error}");
        let left = wire.left("n");
        assert!(left > ms(30_000) && left <= ms(60_000), "ttl `{ttl}`");
    }
}

/// Why the lock was lost; a holder that is never told fails the test instead of hanging it.
async fn lost_soon(guard: &Guard) -> LostReason {
    let lost = tokio::time::timeout(ms(5_000), guard.lost()).await;
    lost.expect("the holder was not told")
}

fn granted(answer: &str) -> u64 {
    let fence = answer.strip_prefix("granted ");
    fence.unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
}

async fn take_and_release(client: &Tenure) -> Fence {
    let begun = Instant::now();
    let guard = client.lock("n").acquire().await.unwrap();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    fence
}

/// By how much the holder's belief ends before the server's key; negative if it ends later. The
/// key's end is seen a little late, by the time between two looks.
fn belief_margin_us(wire: &Wire, guard: &Guard) -> i128 {
    let mut redis = wire.server.client();
    let asked_at = Instant::now();
    let believed_until = asked_at + guard.remaining();
    let name = guard.name().as_str();
    while redis.command(&["EXISTS", name]).int() == 1 {
        assert!(asked_at.elapsed() < ms(10_000), "the key does not end");
    }
    let ended_at = Instant::now();
    assert!(!guard.is_valid() || ended_at < believed_until);
    let after = ended_at.saturating_duration_since(believed_until);
    let before = believed_until.saturating_duration_since(ended_at);
    i128::try_from(after.as_micros()).unwrap() - i128::try_from(before.as_micros()).unwrap()
}

/// A clock that jumps by an hour to and fro, in a process that holds a lock.
fn set_the_clients_clock(url: &str) {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let program = Program::start_by(&clock, url);
    let mut last = 0;
    for _ in 0..3 {
        let fence = granted(&program.ask("acquire n 600"));
        assert!(fence > last);
        last = fence;
        for hours in [1, -1, -1, 1] {
            if hours > 0 {
                clock.step_forward(HOUR);
            } else {
                clock.step_back(HOUR);
            }
            assert_eq!(program.ask("check"), "Held");
            assert_eq!(program.ask("other tries n"), "busy");
            std::thread::sleep(ms(60));
        }
        assert_eq!(program.ask("release"), "WasHeld");
        assert_eq!(program.ask("other tries n"), "granted");
    }
}
