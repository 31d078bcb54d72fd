//! Elections: leaders, their terms and values, and what observers see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tenure::{Election, ErrorKind, Fence, Leader, Locks, LostReason, Observer, Released, Resigned};
use tenure::{Tenure, blocking};
use tokio::time::timeout;

use super::contract;
use crate::stage::{Stage, ms, soon};

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

contract! {
    one_leads_at_a_time_and_terms_grow,
    who_leads_is_known_from_the_first_moment,
    campaigns_of_one_process_have_terms_of_their_own,
    a_leader_that_resigns_is_succeeded_at_once,
    a_dropped_leadership_resigns,
    a_shutdown_resigns,
    a_leader_that_dies_is_succeeded_when_its_lease_ends,
    an_observer_sees_that_nobody_leads_after_a_crash,
    an_observer_sees_each_state_in_order,
    an_observer_never_goes_back,
    a_proclaimed_value_is_seen,
    a_proclamation_of_a_lost_leader_changes_nothing,
    an_unhealthy_leader_resigns,
    a_check_that_hangs_counts_as_unhealthy,
    a_healthy_leader_leads_on,
    with_stops_the_work_of_a_leader_that_lost,
    values_are_checked,
    an_ordinary_lock_is_a_leader_without_value,
    a_closed_client_observes_nothing,
    threads_campaign_too;
    queued:
    candidates_are_listed_in_order,
    a_leader_may_choose_its_successor,
    a_successor_that_is_gone_is_passed_over,
}

fn election(client: &Locks) -> Election<Locks> {
    client.election("n")
}

/// The next report.
async fn next(observer: &mut Observer) -> Option<Leader> {
    let next = timeout(LIMIT, observer.next()).await;
    next.expect("a report").unwrap()
}

/// Waits until the observer reports this term.
async fn until_term(observer: &mut Observer, term: Fence) -> Leader {
    loop {
        if let Some(leader) = next(observer).await.filter(|it| it.term == Some(term)) {
            return leader;
        }
    }
}

async fn one_leads_at_a_time_and_terms_grow(stage: Stage) {
    let leaders = Arc::new(AtomicUsize::new(0));
    let terms = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..3 {
        let client = stage.client().await;
        let (leaders, terms) = (Arc::clone(&leaders), Arc::clone(&terms));
        tasks.push(tokio::spawn(async move {
            for _ in 0..4 {
                let election = election(&client);
                let campaign = timeout(LIMIT, election.campaign(format!("node-{number}")));
                let leadership = campaign.await.expect("elected").unwrap();
                assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0, "one leads");
                terms.lock().unwrap().push(leadership.term());
                let leader = election.leader().await.unwrap().unwrap();
                assert_eq!(leader.term, Some(leadership.term()));
                assert_eq!(leader.value, Some(format!("node-{number}")));
                leaders.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(leadership.resign().await.unwrap(), Released::WasHeld);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let terms = terms.lock().unwrap();
    assert_eq!(terms.len(), 12);
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
}

/// Term and value are written with the grant, not after it.
async fn who_leads_is_known_from_the_first_moment(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    assert!(election(&b).leader().await.unwrap().is_none());
    let leadership = election(&a).campaign("node-1").await.unwrap();
    let leader = election(&b).leader().await.unwrap().unwrap();
    assert_eq!(leader.value.as_deref(), Some("node-1"));
    assert_eq!(leader.term, Some(leadership.term()));
    assert_eq!(&leader.lease, leadership.lease_id());
    assert_eq!(leader.client(), Some(a.id()));
    assert!(leader.since.is_some());
    assert!(leader.remaining.unwrap() <= Duration::from_secs(15));
    let holder = b.lock("n").holder_brief().await.unwrap().unwrap();
    assert_eq!(
        holder.fence,
        Some(leadership.term()),
        "the fence is known too"
    );
}

/// Inside one process a lock is handed off without a word to the store. A leader's lease is not.
async fn campaigns_of_one_process_have_terms_of_their_own(stage: Stage) {
    let (a, observing) = (stage.client().await, stage.client().await);
    let mut before = None;
    let mut leadership = election(&a).campaign("same").await.unwrap();
    for _ in 0..5 {
        let campaign = {
            let a = a.clone();
            tokio::spawn(async move { election(&a).campaign("same").await.unwrap() })
        };
        tokio::time::sleep(ms(20)).await;
        assert!(Some(leadership.term()) > before);
        before = Some(leadership.term());
        leadership.resign().await.unwrap();
        leadership = timeout(LIMIT, campaign).await.expect("elected").unwrap();
        let leader = election(&observing).leader().await.unwrap().unwrap();
        assert_eq!(leader.term, Some(leadership.term()));
    }
}

async fn a_leader_that_resigns_is_succeeded_at_once(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let first = election(&a).campaign("a").await.unwrap();
    let (term, campaign) = (first.term(), {
        let b = b.clone();
        tokio::spawn(async move { election(&b).campaign("b").await.unwrap() })
    });
    tokio::time::sleep(ms(100)).await;
    let begun = Instant::now();
    first.resign().await.unwrap();
    let second = timeout(LIMIT, campaign).await.expect("elected").unwrap();
    assert!(second.term() > term);
    // The fallback would take five seconds.
    assert!(begun.elapsed() < ms(4_500), "{:?}", begun.elapsed());
}

async fn a_dropped_leadership_resigns(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    drop(election(&a).campaign("a").await.unwrap());
    let second = timeout(ms(10_000), election(&b).campaign("b")).await;
    let second = second.expect("before the ttl");
    assert!(second.unwrap().is_valid());
}

async fn a_shutdown_resigns(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let leadership = election(&a).campaign("a").await.unwrap();
    a.shutdown(ms(5_000)).await;
    assert_eq!(leadership.lost().await, LostReason::Shutdown);
    assert!(election(&b).leader().await.unwrap().is_none());
    let error = leadership.proclaim("again").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

/// A leader that is no longer renewed, as a killed process leaves it behind.
async fn dead_leader(client: &Locks, ttl: Duration) -> Fence {
    let election = election(client).ttl(ttl).max_hold(ms(1));
    let leadership = election.campaign("dead").await.unwrap();
    let term = leadership.term();
    std::mem::forget(leadership);
    term
}

async fn a_leader_that_dies_is_succeeded_when_its_lease_ends(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let begun = Instant::now();
    let term = dead_leader(&a, ms(1_000)).await;
    let leadership = timeout(LIMIT, election(&b).campaign("b")).await;
    let leadership = leadership.expect("elected").unwrap();
    assert!(begun.elapsed() > ms(800), "{:?}", begun.elapsed());
    assert!(leadership.term() > term);
}

async fn an_observer_sees_that_nobody_leads_after_a_crash(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let term = dead_leader(&a, ms(1_500)).await;
    let mut observer = election(&b).observe().unwrap();
    assert_eq!(next(&mut observer).await.unwrap().term, Some(term));
    let begun = Instant::now();
    assert!(next(&mut observer).await.is_none());
    // It looks when the lease ends, not at the next third of its own ttl.
    assert!(begun.elapsed() < ms(4_500), "{:?}", begun.elapsed());
    let leadership = election(&a).campaign("a").await.unwrap();
    let leader = next(&mut observer).await.unwrap();
    assert_eq!(leader.term, Some(leadership.term()));
}

async fn an_observer_sees_each_state_in_order(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    // The fallback would take far longer than the test: the store tells of changes.
    let mut observer = election(&b).ttl(ms(30_000)).observe().unwrap();
    assert!(next(&mut observer).await.is_none());
    for round in 0..3 {
        let begun = Instant::now();
        let campaign = election(&a).ttl(ms(30_000));
        let leadership = campaign.campaign(format!("a{round}")).await.unwrap();
        let leader = next(&mut observer).await.unwrap();
        assert_eq!(leader.term, Some(leadership.term()));
        assert_eq!(leader.value, Some(format!("a{round}")));
        leadership.resign().await.unwrap();
        assert!(next(&mut observer).await.is_none());
        assert!(begun.elapsed() < ms(9_000), "{:?}", begun.elapsed());
    }
    let pause = timeout(ms(300), observer.next()).await;
    assert!(pause.is_err(), "nothing changed: {pause:?}");
}

async fn an_observer_never_goes_back(stage: Stage) {
    let observing = stage.client().await;
    let mut observer = election(&observing).observe().unwrap();
    let mut campaigns = Vec::new();
    for number in 0..3 {
        let client = stage.client().await;
        campaigns.push(tokio::spawn(async move {
            let mut terms = Vec::new();
            for round in 0..4 {
                let campaign = election(&client);
                let campaign = timeout(LIMIT, campaign.campaign(format!("{number}.{round}")));
                let leadership = campaign.await.expect("elected").unwrap();
                terms.push((leadership.term(), format!("{number}.{round}")));
                tokio::time::sleep(ms(15)).await;
                leadership.resign().await.unwrap();
            }
            terms
        }));
    }
    let (mut granted, mut seen) = (Vec::new(), Vec::new());
    let led = async {
        for campaign in campaigns {
            granted.extend(campaign.await.unwrap());
        }
    };
    tokio::select! {
        () = led => {}
        () = async { loop { seen.extend(next(&mut observer).await); } } => {}
    }
    let terms: Vec<_> = seen.iter().map(|leader| leader.term.unwrap()).collect();
    assert!(terms.is_sorted(), "{terms:?}");
    for leader in seen {
        let (term, value) = (leader.term.unwrap(), leader.value.unwrap());
        assert!(granted.contains(&(term, value)), "{term} was no leader's");
    }
}

async fn a_proclaimed_value_is_seen(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let leadership = election(&a).ttl(ms(30_000)).campaign("starting").await;
    let leadership = leadership.unwrap();
    let mut observers = [&a, &b].map(|it| election(it).ttl(ms(30_000)).observe().unwrap());
    for observer in &mut observers {
        let leader = until_term(observer, leadership.term()).await;
        assert_eq!(leader.value.as_deref(), Some("starting"));
    }
    let deadline = leadership.deadline();
    for value in ["ready", "busy"] {
        leadership.proclaim(value).await.unwrap();
        assert_eq!(&*leadership.value(), value);
        for observer in &mut observers {
            let leader = next(observer).await.unwrap();
            assert_eq!(leader.value.as_deref(), Some(value));
            assert_eq!(leader.term, Some(leadership.term()), "the same term");
        }
    }
    assert_eq!(leadership.deadline(), deadline, "it extends nothing");
    leadership.resign().await.unwrap();
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_proclamation_of_a_lost_leader_changes_nothing(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let first = election(&a).campaign("a").await.unwrap();
    stage.delete_lock("n").await;
    let second = timeout(LIMIT, election(&b).campaign("b")).await;
    let second = second.expect("elected").unwrap();
    let error = first.proclaim("still me").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let leader = election(&b).leader().await.unwrap().unwrap();
    assert_eq!(leader.value.as_deref(), Some("b"));
    assert_eq!(leader.term, Some(second.term()));
    // Nor does it create a leader.
    second.resign().await.unwrap();
    assert!(first.proclaim("still me").await.is_err());
    assert!(election(&b).leader().await.unwrap().is_none());
}

async fn an_unhealthy_leader_resigns(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let is_healthy = Arc::new(AtomicBool::new(true));
    let checked = Arc::clone(&is_healthy);
    let election_of_a = election(&a).ttl(ms(3_000)).health(move || {
        let is_healthy = checked.load(Ordering::SeqCst);
        async move { is_healthy }
    });
    let leadership = election_of_a.campaign("a").await.unwrap();
    is_healthy.store(false, Ordering::SeqCst);
    let lost = timeout(LIMIT, leadership.lost()).await.expect("resigned");
    assert_eq!(lost, LostReason::Unhealthy);
    assert!(!leadership.is_valid());
    let second = timeout(ms(10_000), election(&b).campaign("b")).await;
    assert!(second.expect("elected").unwrap().is_valid());
    assert_eq!(leadership.resign().await.unwrap(), Released::AlreadyGone);
}

async fn a_check_that_hangs_counts_as_unhealthy(stage: Stage) {
    let a = stage.client().await;
    let election = election(&a).ttl(ms(900));
    let leadership = election.health(std::future::pending).campaign("a").await;
    let lost = async { leadership.unwrap().lost().await };
    let lost = timeout(LIMIT, lost).await.expect("resigned");
    assert_eq!(lost, LostReason::Unhealthy);
}

async fn a_healthy_leader_leads_on(stage: Stage) {
    let a = stage.client().await;
    let checks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&checks);
    let election = election(&a).ttl(ms(3_000)).health(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(true)
    });
    let leadership = election.campaign("a").await.unwrap();
    assert!(soon(async || checks.load(Ordering::SeqCst) >= 3).await);
    assert!(leadership.is_valid());
    leadership.resign().await.unwrap();
}

async fn with_stops_the_work_of_a_leader_that_lost(stage: Stage) {
    let a = stage.client().await;
    let election_of_a = election(&a).ttl(ms(900));
    let term = election_of_a.with("a", async |leadership| leadership.term());
    let term = term.await.unwrap();
    let unhealthy = election_of_a.health(|| std::future::ready(false));
    let lost = unhealthy.with("a", async |_| std::future::pending::<()>().await);
    let lost = timeout(LIMIT, lost).await.expect("stopped").unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(soon(async || election(&a).leader().await.unwrap().is_none()).await);
    let again = election(&a).with("a", async |it| it.term()).await.unwrap();
    assert!(again > term);
}

async fn values_are_checked(stage: Stage) {
    let a = stage.client().await;
    let refused = |error: tenure::Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{error}");
        error.to_string()
    };
    let empty = election(&a).campaign("").await.unwrap_err();
    assert!(refused(empty).contains("empty"));
    let long = election(&a).campaign("x".repeat(2_049)).await.unwrap_err();
    assert!(refused(long).contains("2049 bytes"));
    let leadership = election(&a).campaign("x".repeat(2_048)).await.unwrap();
    refused(leadership.proclaim("").await.unwrap_err());
    // The fields of an election are not for others.
    for field in ["tenure:term", "tenure:value", "tenure:"] {
        refused(a.lock("m").meta(field, "x").acquire().await.unwrap_err());
    }
}

async fn an_ordinary_lock_is_a_leader_without_value(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").meta("value", "7").acquire().await.unwrap();
    let leader = election(&b).leader().await.unwrap().unwrap();
    assert_eq!((leader.value, leader.term), (None, None));
    assert_eq!(&leader.lease, guard.lease_id());
    let mut observer = election(&b).observe().unwrap();
    assert_eq!(&next(&mut observer).await.unwrap().lease, guard.lease_id());
    let campaign = tokio::spawn(async move { election(&b).campaign("b").await.unwrap() });
    tokio::time::sleep(ms(50)).await;
    guard.release().await.unwrap();
    let leadership = timeout(LIMIT, campaign).await.expect("elected").unwrap();
    let leader = until_term(&mut observer, leadership.term()).await;
    assert_eq!(leader.value.as_deref(), Some("b"));
}

async fn a_closed_client_observes_nothing(stage: Stage) {
    let a = stage.client().await;
    let mut observer = election(&a).observe().unwrap();
    assert!(next(&mut observer).await.is_none());
    a.shutdown(ms(5_000)).await;
    let closed = timeout(LIMIT, observer.next()).await.expect("told");
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::Closed);
    let closed = election(&a).observe().unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed);
}

async fn threads_campaign_too(stage: Stage) {
    let builder = stage.builder();
    let done = tokio::task::spawn_blocking(move || {
        let locks = builder.connect_blocking().unwrap();
        let election: blocking::Election<blocking::Locks> = locks.election("n");
        let mut observer = election.observe().unwrap();
        assert!(observer.next().unwrap().is_none());
        let leadership = election.campaign("thread").unwrap();
        let leader = observer.next().unwrap().unwrap();
        assert_eq!(leader.term, Some(leadership.term()));
        leadership.proclaim("ready").unwrap();
        let leader = election.leader().unwrap().unwrap();
        assert_eq!(leader.value.as_deref(), Some("ready"));
        assert_eq!(leadership.resign().unwrap(), Released::WasHeld);
        let term = election.with("thread", tenure::blocking::Leadership::term);
        assert!(term.unwrap() > leader.term.unwrap());
    });
    timeout(LIMIT, done).await.expect("done").unwrap();
}

/// A client that waits to be elected, once it has its place in the queue.
async fn candidate(
    stage: &Stage,
    leader: &Tenure,
    place: usize,
) -> (Tenure, tokio::task::JoinHandle<tenure::Leadership>) {
    let client = Tenure::builder(stage.url()).name(format!("node-{place}"));
    let client = client.connect().await.unwrap();
    let campaign = {
        let client = client.clone();
        tokio::spawn(async move {
            let election = client.election("n");
            election.campaign(format!("node-{place}")).await.unwrap()
        })
    };
    let waits = async || leader.election("n").candidates().await.unwrap().len() == place;
    assert!(soon(waits).await, "{place} in the queue");
    (client, campaign)
}

async fn candidates_are_listed_in_order(stage: Stage) {
    let leader = Tenure::connect(stage.url()).await.unwrap();
    let leadership = leader.election("n").campaign("leader").await.unwrap();
    assert!(leader.election("n").candidates().await.unwrap().is_empty());
    let (one, first) = candidate(&stage, &leader, 1).await;
    let (two, second) = candidate(&stage, &leader, 2).await;
    let known = async || {
        let candidates = leader.election("n").candidates().await.unwrap();
        let names = candidates.iter().filter_map(|it| it.client.clone()?.name);
        names.collect::<Vec<_>>() == ["node-1", "node-2"]
    };
    assert!(soon(known).await, "records tell who they are");
    let candidates = leader.election("n").candidates().await.unwrap();
    let clients: Vec<_> = candidates.iter().map(|it| it.lease.client()).collect();
    assert_eq!(clients, [Some(one.id()), Some(two.id())]);
    first.abort();
    let waits = async || leader.election("n").candidates().await.unwrap().len() == 1;
    assert!(soon(waits).await, "who gives up is no candidate");
    leadership.resign().await.unwrap();
    let second = timeout(LIMIT, second).await.expect("elected").unwrap();
    assert!(second.is_valid());
}

async fn a_leader_may_choose_its_successor(stage: Stage) {
    let leader = Tenure::connect(stage.url()).await.unwrap();
    let leadership = leader.election("n").campaign("leader").await.unwrap();
    let (_one, first) = candidate(&stage, &leader, 1).await;
    let (_two, second) = candidate(&stage, &leader, 2).await;
    let candidates = leader.election("n").candidates().await.unwrap();
    let resigned = leadership.resign_to(&candidates[1]).await.unwrap();
    assert_eq!(resigned, Resigned::ToCandidate);
    let second = timeout(LIMIT, second).await.expect("elected").unwrap();
    assert_eq!(second.lease_id(), &candidates[1].lease);
    assert!(!first.is_finished(), "the first still waits");
    second.resign().await.unwrap();
    let first = timeout(LIMIT, first).await.expect("elected").unwrap();
    assert!(first.is_valid());
}

async fn a_successor_that_is_gone_is_passed_over(stage: Stage) {
    let leader = Tenure::connect(stage.url()).await.unwrap();
    let leadership = leader.election("n").campaign("leader").await.unwrap();
    let (_one, first) = candidate(&stage, &leader, 1).await;
    let (_two, second) = candidate(&stage, &leader, 2).await;
    let candidates = leader.election("n").candidates().await.unwrap();
    second.abort();
    let waits = async || leader.election("n").candidates().await.unwrap().len() == 1;
    assert!(soon(waits).await);
    let resigned = leadership.resign_to(&candidates[1]).await.unwrap();
    assert_eq!(resigned, Resigned::ToOther);
    let first = timeout(LIMIT, first).await.expect("elected").unwrap();
    let name = first.name().clone();
    leader.force_release(name, first.lease_id()).await.unwrap();
    let resigned = first.resign_to(&candidates[0]).await.unwrap();
    assert_eq!(resigned, Resigned::AlreadyGone);
}
