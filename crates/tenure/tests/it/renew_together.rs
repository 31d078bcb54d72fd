//! Leases of one client that are due at the same time are renewed by one script.

use tenure::{Guard, LostReason, Tenure};
use tenure_testkit::{RedisServer, eventually};

use crate::stage::ms;

const LEASES: usize = 20;
/// Long enough for a crowded machine: it is renewed after a third.
const TTL_MS: u64 = 6_000;

fn name(number: usize) -> String {
    format!("lease:{number}")
}

/// A server whose user has these rights, and a client that holds many locks there. Without tracking,
/// only the renewal notices a loss.
async fn many_leases(rights: &str) -> (RedisServer, Tenure, Vec<Guard>) {
    let rules = format!("on >pw ~* &* +@all -client|tracking {rights}");
    let server = RedisServer::builder().user("worker", &rules).start();
    let url = format!("redis://worker:pw@{}", server.addr());
    let tenure = Tenure::connect(url).await.unwrap();
    // Together, so that they are due together. The first lock of a connection goes by a script.
    drop(tenure.lock("first").acquire().await.unwrap());
    let acquiring = (0..LEASES).map(|number| {
        let lock = tenure.lock(name(number)).ttl(ms(TTL_MS));
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    });
    let mut guards = Vec::new();
    for guard in acquiring.collect::<Vec<_>>() {
        guards.push(guard.await.unwrap());
    }
    (server, tenure, guards)
}

fn wait_for_renewals(tenure: &Tenure, count: u64) {
    let renewed = || tenure.stats().renewed >= count;
    let done = tokio::task::block_in_place(|| eventually(ms(60_000), renewed));
    assert!(done, "{} renewals", tenure.stats().renewed);
}

/// Waits until each lease was renewed about twice, and checks that all are held.
fn check_renewed(tenure: &Tenure, guards: &[Guard]) {
    wait_for_renewals(tenure, 2 * LEASES as u64);
    for guard in guards {
        assert!(guard.is_valid(), "{} was lost", guard.name());
    }
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn leases_that_are_due_together_take_few_calls() {
    let (server, tenure, guards) = many_leases("").await;
    server.reset_stats();
    check_renewed(&tenure, &guards);
    assert!(server.command_calls("mget") > 0);
    let calls = server.command_calls("evalsha");
    let renewals = tenure.stats().renewed;
    assert!(calls < renewals, "{calls} calls for {renewals} renewals");
}

/// A lease that is no longer ours is lost, the new holder's is not touched, and the others are renewed.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn what_another_holds_is_not_renewed() {
    let (server, tenure, mut guards) = many_leases("").await;
    // Later than that, leases are no longer looked at except when they are renewed.
    wait_for_renewals(&tenure, LEASES as u64);
    let mut redis = server.client();
    let taken = LEASES / 2;
    redis.command(&["SET", &name(taken), "another", "PX", "600000"]);
    redis.command(&["DEL", &name(0)]);
    let (lost, gone) = (guards.remove(taken), guards.remove(0));
    check_renewed(&tenure, &guards);
    let left = redis.command(&["PTTL", &name(taken)]).int();
    assert!(left > 60_000, "the other's lease ends in {left} ms");
    assert_eq!(redis.command(&["EXISTS", &name(0)]).int(), 0);
    assert_eq!(lost.lost().await, LostReason::Taken);
    assert_eq!(gone.lost().await, LostReason::Gone);
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_server_that_has_forgotten_the_script_gets_its_text() {
    let (server, tenure, guards) = many_leases("").await;
    server.client().command(&["SCRIPT", "FLUSH"]);
    check_renewed(&tenure, &guards);
    assert!(server.command_calls("mget") > 0);
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_user_that_may_not_read_several_keys_renews_one_by_one() {
    let (_server, tenure, guards) = many_leases("-mget").await;
    check_renewed(&tenure, &guards);
}
