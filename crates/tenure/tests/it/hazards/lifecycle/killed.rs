//! H40: holders killed in processes of their own.

use std::process::Command;
use std::time::{Duration, Instant};

use tenure::{Fence, Tenure};
use tenure_testkit::{ClientProcess, RedisServer};

use crate::stage::ms;

const URL: &str = "TENURE_TEST_HOLD_AT";
const NAMES: &str = "TENURE_TEST_HOLD_NAMES";
const TTL: Duration = ms(1_500);
const HOLDERS: usize = 2;
const LOCKS: usize = 100;

/// The program of a holder: takes all locks, says their fences, and waits to be killed. Does
/// nothing unless started by the tests below.
#[test]
fn client_program() {
    let (Ok(url), Ok(names)) = (std::env::var(URL), std::env::var(NAMES)) else {
        return;
    };
    let tenure = tenure::blocking::Tenure::connect(url).unwrap();
    let guards: Vec<_> = names
        .split(' ')
        .map(|name| tenure.lock(name).ttl(TTL).acquire().unwrap())
        .collect();
    for guard in &guards {
        println!("\nheld {} {}", guard.name(), guard.fence());
    }
    std::thread::sleep(ms(60_000));
}

fn start_holder(server: &RedisServer, names: &[String]) -> ClientProcess {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "hazards::lifecycle::killed::client_program"])
        .arg("--nocapture")
        .env(URL, server.url())
        .env(NAMES, names.join(" "));
    ClientProcess::spawn(&command)
}

fn read_fences(holder: &ClientProcess) -> Vec<(String, Fence)> {
    let mut fences = Vec::new();
    while fences.len() < LOCKS {
        let line = holder.expect_line(ms(20_000));
        if let Some(held) = line.strip_prefix("held ") {
            let (name, fence) = held.split_once(' ').unwrap();
            fences.push((name.to_owned(), Fence::new(fence.parse().unwrap())));
        }
    }
    fences
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h40_locks_of_a_killed_process_are_granted_when_their_leases_end() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let names = |holder| {
        (0..LOCKS)
            .map(move |i| format!("{holder}-{i}"))
            .collect::<Vec<_>>()
    };
    let holders: Vec<ClientProcess> = (0..HOLDERS)
        .map(|holder| start_holder(&server, &names(holder)))
        .collect();
    let held: Vec<_> = holders.iter().flat_map(read_fences).collect();
    let waiting: Vec<_> = held
        .into_iter()
        .map(|(name, fence)| tokio::spawn(succeed(tenure.clone(), name, fence)))
        .collect();
    // Longer than the ttl: while they live they renew, and nobody else gets a lock.
    tokio::time::sleep(TTL + ms(300)).await;
    assert_eq!(tenure.stats().acquired, 0);
    for holder in holders {
        holder.kill();
    }
    let killed = Instant::now();
    for waiting in waiting {
        let granted = waiting.await.unwrap();
        let waited = granted - killed;
        assert!(waited < TTL + ms(1_000), "waited {waited:?}");
    }
}

/// Waits for a lock whose holder had this fence; answers when it was granted.
async fn succeed(tenure: Tenure, name: String, fence: Fence) -> Instant {
    let guard = tenure.lock(&name).acquire().await.unwrap();
    let granted = Instant::now();
    assert!(guard.fence() > fence, "{} after {fence}", guard.fence());
    guard.release().await.unwrap();
    granted
}

/// `mem::forget` is a small death: the renewals continue, because the guard was not dropped.
#[tenure_testkit::test]
async fn h40_a_forgotten_guard_stays_held_until_its_client_ends() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let other = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(300)).acquire().await.unwrap();
    std::mem::forget(guard);
    tokio::time::sleep(ms(700)).await;
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    assert_eq!(tenure.shutdown(ms(2_000)).await, vec![]);
    assert!(other.lock("n").try_acquire().await.unwrap().is_some());
}
