//! A vote that no caller waited for, still in flight on one connection while the lease ends on another:
//! if it lands after all, it is taken back, and not left for a ttl.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tenure::{Guard, LostReason, Redlock};
use tenure_testkit::RedlockNodes;

use crate::stage::{ms, soon};

/// A third of it must have passed before a renewal notices anything, and a vote may land for a
/// second after it was sent.
const TTL: Duration = ms(1_500);
/// On a machine that is too busy the vote comes too late to land.
const ATTEMPTS: u64 = 10;

/// Passes connections on to a node, and keeps single ones back.
struct Relay {
    addr: SocketAddr,
    armed: Armed,
}

/// What to look for, and the connection that sends it.
type Armed = Arc<Mutex<Vec<(Vec<u8>, Arc<Held>)>>>;

/// A connection that is kept back from the request on that it was meant for.
#[derive(Default)]
struct Held {
    caught: AtomicBool,
    cut: AtomicBool,
    let_go: AtomicBool,
    /// What the server answered from then on.
    replies: Mutex<Vec<u8>>,
}

impl Relay {
    fn start(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let armed = Armed::default();
        let relay = Self {
            addr,
            armed: Arc::clone(&armed),
        };
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let armed = Arc::clone(&armed);
                thread::spawn(move || pass_on(&client, node, &armed));
            }
        });
        relay
    }

    /// Keeps back the next connection that sends this.
    fn hold(&self, pattern: &str) -> Arc<Held> {
        let held = Arc::new(Held::default());
        let armed = (pattern.as_bytes().to_vec(), Arc::clone(&held));
        self.armed.lock().unwrap().push(armed);
        held
    }
}

impl Held {
    async fn is_caught(&self) {
        while !self.caught.load(Ordering::Acquire) {
            tokio::time::sleep(ms(1)).await;
        }
    }

    /// The client finds the connection broken, though what it sent first is still under way.
    fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }

    fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    fn replies(&self) -> Vec<u8> {
        self.replies.lock().unwrap().clone()
    }
}

fn pass_on(mut client: &TcpStream, node: SocketAddr, armed: &Armed) {
    let Ok(server) = TcpStream::connect(node) else {
        return;
    };
    let held_back: Arc<Mutex<Option<Arc<Held>>>> = Arc::default();
    let mut to_client = client.try_clone().unwrap();
    let (mut from_server, answering) = (server.try_clone().unwrap(), Arc::clone(&held_back));
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from_server.read(&mut buffer) {
            if let Some(held) = &*answering.lock().unwrap() {
                held.replies.lock().unwrap().extend(&buffer[..count]);
            }
            if to_client.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        if let Some(held) = meant(armed, &buffer[..count]) {
            *held_back.lock().unwrap() = Some(Arc::clone(&held));
            held.caught.store(true, Ordering::Release);
            while !held.let_go.load(Ordering::Acquire) {
                if held.cut.load(Ordering::Acquire) {
                    let _ = client.shutdown(Shutdown::Both);
                }
                thread::sleep(ms(1));
            }
        }
        let is_cut = || {
            let held = held_back.lock().unwrap();
            held.as_ref()
                .is_some_and(|held| held.cut.load(Ordering::Acquire))
        };
        if (&server).write_all(&buffer[..count]).is_err() || is_cut() {
            // What was sent behind it is lost. The answer is still heard.
            return;
        }
    }
}

/// The first that waits for such a request.
fn meant(armed: &Armed, request: &[u8]) -> Option<Arc<Held>> {
    let mut armed = armed.lock().unwrap();
    let is_meant = |(pattern, _): &(Vec<u8>, _)| {
        let mut parts = request.windows(pattern.len());
        parts.any(|part| part == pattern)
    };
    let at = armed.iter().position(is_meant)?;
    Some(armed.remove(at).1)
}

/// Nodes of which the last one is reached by way of a relay.
async fn nodes_with_relay(count: usize) -> (RedlockNodes, Relay, Redlock) {
    let nodes = RedlockNodes::builder().nodes(count).start();
    let last = nodes.node(count - 1);
    let relay = Relay::start(last.addr());
    let mut urls = nodes.urls();
    urls[count - 1] = last.url_by_way_of(relay.addr);
    let client = Redlock::connect(urls).await.unwrap();
    // Callers have connections of their own once they have asked.
    for _ in 0..20 {
        drop(client.lock("warm").acquire().await.unwrap());
        tokio::time::sleep(ms(5)).await;
    }
    (nodes, relay, client)
}

/// Takes the lock while the last node's vote is kept back.
async fn take(client: &Redlock, relay: &Relay, name: &str) -> (Guard, Arc<Held>) {
    let vote = relay.hold(name);
    let guard = client.lock(name).ttl(TTL).acquire().await.unwrap();
    vote.is_caught().await;
    (guard, vote)
}

/// Lets the vote go; whether it landed. If so, it must be gone before it ends by itself.
async fn lands_and_is_taken_back(nodes: &RedlockNodes, vote: &Held, name: &str) -> bool {
    vote.let_go();
    let answered = async || !vote.replies().is_empty();
    assert!(soon(answered).await, "the vote was not answered");
    if !vote.replies().starts_with(b":1") {
        return false;
    }
    let last = nodes.nodes().last().unwrap();
    let mut redis = last.client();
    loop {
        let left = redis.command(&["PTTL", name]).int();
        if left < 0 {
            return true;
        }
        assert!(left > 200, "a vote that nobody wants was left behind");
        tokio::time::sleep(ms(5)).await;
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_lands_after_the_lease_was_lost_is_taken_back() {
    let (nodes, relay, a) = nodes_with_relay(3).await;
    for attempt in 0..ATTEMPTS {
        let name = format!("held-{attempt}");
        let (guard, vote) = take(&a, &relay, &name).await;
        for node in [0, 1] {
            nodes.node(node).client().command(&["DEL", &name]);
        }
        assert_eq!(guard.lost().await, LostReason::Gone);
        if lands_and_is_taken_back(&nodes, &vote, &name).await {
            return;
        }
    }
}

/// The release travels behind the vote, on a connection that breaks: the vote lands alone.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_lands_after_its_release_was_lost_is_taken_back() {
    let (nodes, relay, a) = nodes_with_relay(3).await;
    for attempt in 0..ATTEMPTS {
        let name = format!("held-{attempt}");
        let (guard, vote) = take(&a, &relay, &name).await;
        guard.release().await.unwrap();
        vote.cut();
        // Long enough to connect again and to release once more.
        tokio::time::sleep(ms(200)).await;
        if lands_and_is_taken_back(&nodes, &vote, &name).await {
            return;
        }
    }
}
