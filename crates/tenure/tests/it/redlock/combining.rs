//! Votes of concurrent callers travel together, and each has its own outcome.
//!
//! The replies are held while the callers ask: the first requests are sent at once, and the others
//! wait for the next call. The test's own runtime has one thread, so that all have asked after one
//! round. The clients are patient: a connection is not given up while its replies are held.

use tenure::{Error, ErrorKind, Guard, Redlock, Released};
use tenure_testkit::RedlockNodes;
use tokio::task::JoinHandle;

use super::{connect, count, has};
use crate::stage::{ms, soon};

const CALLERS: usize = 40;
const NODES: usize = 3;

type Asking = JoinHandle<Result<Option<Guard>, Error>>;

#[tenure_testkit::test]
async fn many_callers_share_few_calls_and_each_gets_its_own_lock() {
    let (nodes, client) = nodes_and_client().await;
    reset_stats(&nodes);
    let guards = all(ask_together(&nodes, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        let guard = guard.as_ref().unwrap().as_ref().unwrap();
        for node in nodes.nodes() {
            let holds =
                async || node.client().command(&["GET", &name(caller)]).text() == lease(guard);
            assert!(soon(holds).await, "{caller}");
            let fence = format!("tenure:fence:{{{}}}", name(caller));
            let stored = node.client().command(&["GET", &fence]);
            assert_eq!(stored.text(), guard.fence().get().to_string(), "{caller}");
        }
    }
    are_few_calls(&nodes);

    reset_stats(&nodes);
    let releases = release_together(&nodes, guards).await;
    assert_eq!(releases, vec![Released::WasHeld; CALLERS]);
    are_clean(&nodes).await;
    are_few_calls(&nodes);
}

/// Locks that others hold, in the middle of those that are free.
#[tenure_testkit::test]
async fn a_busy_lock_makes_no_other_busy() {
    let (nodes, client) = nodes_and_client().await;
    let other = connect(&nodes).await;
    let mut held = Vec::new();
    for caller in (0..CALLERS).step_by(2) {
        held.push(other.lock(name(caller)).acquire().await.unwrap());
    }
    let guards = all(ask_together(&nodes, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        let granted = guard.as_ref().unwrap().as_ref();
        assert_eq!(granted.is_some(), caller % 2 == 1, "{caller}");
        if let Some(guard) = granted {
            let holder = nodes.node(0).client().command(&["GET", &name(caller)]);
            assert!(holder.is_nil() || holder.text() == lease(guard), "{caller}");
        }
    }
    drop((guards, held));
    are_clean(&nodes).await;
}

/// A name, and a stored fence, that have become something else.
#[tenure_testkit::test]
async fn a_key_of_another_type_fails_alone() {
    let (nodes, client) = nodes_and_client().await;
    let fence = format!("tenure:fence:{{{}}}", name(11));
    for node in nodes.nodes() {
        node.client().command(&["HSET", &name(7), "field", "value"]);
        node.client().command(&["DEL", &fence]);
        node.client().command(&["HSET", &fence, "field", "value"]);
    }
    let guards = all(ask_together(&nodes, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        match (caller, guard) {
            (7, Err(error)) => assert_eq!(error.kind(), ErrorKind::NotALock, "{error}"),
            (11, Err(error)) => assert!(error.to_string().contains("not a string"), "{error}"),
            (_, guard) => assert!(is_granted(guard), "{caller}: {guard:?}"),
        }
    }
    drop(guards);
    for node in nodes.nodes() {
        node.client().command(&["DEL", &name(7)]);
    }
    are_clean(&nodes).await;
}

/// A server refuses a script as a whole if one of its keys is forbidden.
#[tenure_testkit::test]
async fn a_forbidden_lock_fails_alone() {
    let nodes = proxied();
    let user = ["ACL", "SETUSER", "worker"];
    for node in nodes.nodes() {
        let rules = ["on", ">pw", "~*", "&*", "+@all"];
        node.client().command(&[&user[..], &rules[..]].concat());
    }
    let urls = nodes.urls();
    let urls = urls
        .iter()
        .map(|url| url.replace("redis://", "redis://worker:pw@"));
    let client = patient(urls).await;
    warm(&nodes, &client).await;
    for node in nodes.nodes() {
        // All but the lock with the number 7.
        let rules = ["resetkeys", "~lock-[^7]", "~lock-??", "~tenure:*"];
        node.client().command(&[&user[..], &rules[..]].concat());
    }
    let guards = all(ask_together(&nodes, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        match (caller, guard) {
            (7, Err(error)) => assert_eq!(error.kind(), ErrorKind::Denied, "{error}"),
            (_, guard) => assert!(is_granted(guard), "{caller}: {guard:?}"),
        }
    }
    drop(guards);
    are_clean(&nodes).await;
}

/// Servers that have forgotten the scripts, of votes and of releases.
#[tenure_testkit::test]
async fn it_goes_on_when_the_servers_forget_the_scripts() {
    let (nodes, client) = nodes_and_client().await;
    let forget = || nodes.nodes().iter().for_each(|node| node.script_flush());
    for _ in 0..3 {
        forget();
        let guards = all(ask_together(&nodes, &client).await).await;
        forget();
        let releases = release_together(&nodes, guards).await;
        assert_eq!(releases, vec![Released::WasHeld; CALLERS]);
        are_clean(&nodes).await;
    }
}

/// Callers that go away: some before their votes were sent, some after.
#[tenure_testkit::test]
async fn callers_that_go_away_leave_nothing() {
    let (nodes, client) = nodes_and_client().await;
    for round in 0..5 {
        hold(&nodes);
        let asking = ask(&client).await;
        let one_has_a_vote = async || (0..CALLERS).any(|caller| has(&nodes, 0, &name(caller)));
        assert!(soon(one_has_a_vote).await, "round {round}");
        for (caller, asking) in asking.iter().enumerate() {
            if caller % 2 == round % 2 {
                asking.abort();
            }
        }
        tokio::task::yield_now().await;
        let_go(&nodes);
        for asking in asking {
            if let Ok(guard) = asking.await {
                guard.unwrap().unwrap().release().await.unwrap();
            }
        }
        are_clean(&nodes).await;
    }
}

/// The connection to one node ends in the middle of a batch: the others are a majority, and nothing is
/// left on that one.
#[tenure_testkit::test]
async fn a_batch_that_is_cut_off_at_one_node_is_made_good() {
    let (nodes, client) = nodes_and_client().await;
    for (round, bytes) in [1, 300, 2_000, 5_000].into_iter().enumerate() {
        let node = round % NODES;
        hold(&nodes);
        let asking = ask(&client).await;
        let one_has_a_vote = async || (0..CALLERS).any(|caller| has(&nodes, node, &name(caller)));
        assert!(soon(one_has_a_vote).await, "round {round}");
        nodes.proxy(node).cut_request_after(bytes);
        let_go(&nodes);
        for (caller, guard) in all(asking).await.into_iter().enumerate() {
            let guard = guard.unwrap().unwrap();
            assert!(count(&nodes, &name(caller)) >= 2, "{caller}");
            guard.release().await.unwrap();
        }
        are_clean(&nodes).await;
        // Until it is connected again.
        let on_all = async || {
            let guard = client.lock("other").acquire().await.unwrap();
            let on_all = soon(async || count(&nodes, "other") == NODES).await;
            guard.release().await.unwrap();
            on_all
        };
        assert!(soon(on_all).await);
    }
}

/// A release that comes too late must not free the lock of the next holder, also in a batch.
#[tenure_testkit::test]
async fn what_another_holds_is_not_released() {
    let (nodes, client) = nodes_and_client().await;
    let guards = all(ask_together(&nodes, &client).await).await;
    for caller in 0..CALLERS {
        let on_all = async || count(&nodes, &name(caller)) == NODES;
        assert!(soon(on_all).await, "{caller}");
    }
    for node in nodes.nodes() {
        for caller in (0..CALLERS).step_by(2) {
            let taken = ["SET", &name(caller), "another", "PX", "60000"];
            node.client().command(&taken);
        }
    }
    let releases = release_together(&nodes, guards).await;
    for (caller, released) in releases.into_iter().enumerate() {
        let is_mine = caller % 2 == 1;
        assert_eq!(released == Released::WasHeld, is_mine, "{caller}");
        let left = if is_mine { 0 } else { NODES };
        assert!(
            soon(async || count(&nodes, &name(caller)) == left).await,
            "{caller}"
        );
    }
}

fn name(caller: usize) -> String {
    format!("lock-{caller}")
}

fn lease(guard: &Guard) -> &str {
    guard.lease_id().as_str()
}

fn is_granted(guard: &Result<Option<Guard>, Error>) -> bool {
    matches!(guard, Ok(Some(_)))
}

fn proxied() -> RedlockNodes {
    RedlockNodes::builder().nodes(NODES).proxied().start()
}

async fn nodes_and_client() -> (RedlockNodes, Redlock) {
    let nodes = proxied();
    let client = patient(nodes.urls()).await;
    warm(&nodes, &client).await;
    (nodes, client)
}

async fn patient(urls: impl IntoIterator<Item = String>) -> Redlock {
    let client = Redlock::builder(urls)
        .response_timeout(ms(5_000))
        .unreachable_after(ms(30_000));
    client.connect().await.unwrap()
}

/// The nodes know the scripts, every name has a fence, and all locks are free again.
async fn warm(nodes: &RedlockNodes, client: &Redlock) {
    for caller in 0..CALLERS {
        let guard = client.lock(name(caller)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    for guard in all(ask(client).await).await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    are_clean(nodes).await;
}

fn hold(nodes: &RedlockNodes) {
    (0..NODES).for_each(|node| nodes.proxy(node).hold_replies());
}

fn let_go(nodes: &RedlockNodes) {
    (0..NODES).for_each(|node| nodes.proxy(node).release_replies());
}

/// Lets every caller ask for its lock.
async fn ask(client: &Redlock) -> Vec<Asking> {
    let asking = (0..CALLERS).map(|caller| {
        let lock = client.lock(name(caller));
        tokio::spawn(async move { lock.try_acquire().await })
    });
    let asking = asking.collect();
    tokio::task::yield_now().await;
    asking
}

async fn ask_together(nodes: &RedlockNodes, client: &Redlock) -> Vec<Asking> {
    hold(nodes);
    let asking = ask(client).await;
    let_go(nodes);
    asking
}

async fn all(asking: Vec<Asking>) -> Vec<Result<Option<Guard>, Error>> {
    let mut guards = Vec::new();
    for asking in asking {
        guards.push(asking.await.unwrap());
    }
    guards
}

async fn release_together(
    nodes: &RedlockNodes,
    guards: Vec<Result<Option<Guard>, Error>>,
) -> Vec<Released> {
    hold(nodes);
    let releasing: Vec<_> = guards
        .into_iter()
        .map(|guard| tokio::spawn(guard.unwrap().unwrap().release()))
        .collect();
    tokio::task::yield_now().await;
    let_go(nodes);
    let mut releases = Vec::new();
    for releasing in releasing {
        releases.push(releasing.await.unwrap().unwrap());
    }
    releases
}

fn reset_stats(nodes: &RedlockNodes) {
    nodes.nodes().iter().for_each(|node| node.reset_stats());
}

#[track_caller]
fn are_few_calls(nodes: &RedlockNodes) {
    for node in nodes.nodes() {
        let calls = node.command_calls("evalsha");
        assert!(calls <= 6, "{calls} calls for {CALLERS} locks");
    }
}

async fn are_clean(nodes: &RedlockNodes) {
    for caller in 0..CALLERS {
        let is_clean = async || count(nodes, &name(caller)) == 0;
        assert!(soon(is_clean).await, "{caller} is left behind");
    }
}
