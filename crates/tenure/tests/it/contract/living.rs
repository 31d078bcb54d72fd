//! Waiters that live and waiters that have died, by what the lock's own slot says of them.

use std::time::Duration;

use tenure::Locks;
use tenure_testkit::{RedisServer, RespClient};
use tokio::task::JoinHandle;

use super::contract;
use crate::stage::{Stage, ms, soon};

/// How long a waiter counts as living without a word. Longer than the six seconds, because some time
/// passes until the test looks.
const WINDOW: Duration = ms(7_000);
const DEAD: usize = 8;

contract! {
    ;
    queued:
    the_dead_are_passed_over_in_one_step,
    a_release_that_only_the_dead_wait_for_frees_the_lock,
    a_waiter_is_not_passed_over_in_its_first_moments,
    a_waiter_is_not_passed_over_however_long_it_waits,
    a_waiter_that_has_lost_its_place_takes_another,
    a_waiter_that_tells_nothing_counts_as_living,
}

/// The queue of the lock `n` on its server. In the memory store a waiter dies only with the process.
struct Queue<'a>(&'a RedisServer);

impl<'a> Queue<'a> {
    fn of(stage: &'a Stage) -> Option<Self> {
        stage.servers_of("n").first().copied().map(Self)
    }

    fn redis(&self) -> RespClient {
        self.0.client()
    }

    fn ids(&self) -> Vec<String> {
        let ids = self
            .redis()
            .command(&["ZRANGE", "tenure:queue:{n}", "0", "-1"]);
        ids.array().iter().map(|id| id.text().to_owned()).collect()
    }

    /// Puts somebody into the queue, before all others, whose time was over so long ago or is to be over.
    fn join(&self, number: usize, lives_for_ms: i64) {
        let mut redis = self.redis();
        let time = redis.command(&["TIME"]);
        let now_s: i64 = time.array()[0].text().parse().unwrap();
        let until = (now_s * 1_000 + lives_for_ms).to_string();
        let (place, id) = (number.to_string(), format!("dead:{number}:60000"));
        redis.command(&["ZADD", "tenure:alive:{n}", &until, &id]);
        redis.command(&["ZADD", "tenure:queue:{n}", &place, &id]);
    }

    fn is_gone(&self) -> bool {
        let keys = ["EXISTS", "tenure:queue:{n}", "tenure:alive:{n}"];
        self.redis().command(&keys).int() == 0
    }
}

/// A caller that waits in a process of its own, and tells the fence that it got.
fn wait(client: Locks) -> JoinHandle<u64> {
    tokio::spawn(async move {
        let guard = client.lock("n").acquire().await.unwrap();
        let fence = guard.fence().get();
        guard.release().await.unwrap();
        fence
    })
}

/// Until so many stand in the queue.
async fn stand(queue: &Queue<'_>, count: usize) -> Vec<String> {
    assert!(soon(async || queue.ids().len() == count).await);
    queue.ids()
}

/// However many they are, they cost one release, and that is offered to the living one at once.
async fn the_dead_are_passed_over_in_one_step(stage: Stage) {
    let Some(queue) = Queue::of(&stage) else {
        return;
    };
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").acquire().await.unwrap();
    for number in 1..=DEAD {
        queue.join(number, -2_000);
    }
    let waiting = wait(b);
    let living = stand(&queue, DEAD + 1).await.pop().unwrap();
    let mut ear = Ear::new(&stage);
    guard.release().await.unwrap();
    assert_eq!(ear.next(), living, "one that has died was offered the lock");
    waiting.await.unwrap();
    assert!(soon(async || queue.is_gone()).await, "{:?}", queue.ids());
}

async fn a_release_that_only_the_dead_wait_for_frees_the_lock(stage: Stage) {
    let Some(queue) = Queue::of(&stage) else {
        return;
    };
    let a = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    for number in 1..=DEAD {
        queue.join(number, -2_000);
    }
    guard.release().await.unwrap();
    assert!(
        !a.lock("n").is_locked().await.unwrap(),
        "offered to one that has died"
    );
    assert!(queue.is_gone(), "{:?}", queue.ids());
}

/// As soon as it stands in the queue it counts as living.
async fn a_waiter_is_not_passed_over_in_its_first_moments(stage: Stage) {
    let Some(queue) = Queue::of(&stage) else {
        return;
    };
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    for _ in 0..10 {
        let guard = a.lock("n").acquire().await.unwrap();
        let first = wait(b.clone());
        while queue.ids().is_empty() {
            tokio::task::yield_now().await;
        }
        let place = queue.ids().remove(0);
        let mut ear = Ear::new(&stage);
        let second = wait(c.clone());
        guard.release().await.unwrap();
        assert_eq!(ear.next(), place, "the first in the queue was passed over");
        first.await.unwrap();
        second.await.unwrap();
    }
}

/// It says that it lives for as long as it waits.
async fn a_waiter_is_not_passed_over_however_long_it_waits(stage: Stage) {
    let Some(queue) = Queue::of(&stage) else {
        return;
    };
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let guard = a.lock("n").ttl(ms(60_000)).acquire().await.unwrap();
    let first = wait(b);
    let place = stand(&queue, 1).await.remove(0);
    tokio::time::sleep(WINDOW).await;
    let second = wait(c);
    stand(&queue, 2).await;
    let mut ear = Ear::new(&stage);
    guard.release().await.unwrap();
    assert_eq!(ear.next(), place, "the first in the queue was passed over");
    assert!(first.await.unwrap() < second.await.unwrap());
}

/// It was silent for too long, and has not heard anything of it. The holder's lease would tell it so
/// after twenty minutes.
async fn a_waiter_that_has_lost_its_place_takes_another(stage: Stage) {
    let Some(queue) = Queue::of(&stage) else {
        return;
    };
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(3_600_000)).acquire().await.unwrap();
    let waiting = wait(b);
    let place = stand(&queue, 1).await.remove(0);
    for key in ["tenure:queue:{n}", "tenure:alive:{n}"] {
        queue.redis().command(&["ZREM", key, &place]);
    }
    for _ in 0..10 {
        if soon(async || !queue.ids().is_empty()).await {
            break;
        }
    }
    assert_eq!(queue.ids(), [place], "it does not stand in the queue again");
    guard.release().await.unwrap();
    waiting.await.unwrap();
}

/// It is of a client in another language, or of an older one.
async fn a_waiter_that_tells_nothing_counts_as_living(stage: Stage) {
    let Some(queue) = Queue::of(&stage) else {
        return;
    };
    let a = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    let silent = stage.dead_lease(ms(60_000));
    let join = ["ZADD", "tenure:queue:{n}", "1", silent.as_str()];
    queue.redis().command(&join);
    guard.release().await.unwrap();
    let holder = a.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.lease, silent);
    // Nobody listens: it is kept for half a second only.
    let left = holder.remaining.unwrap();
    assert!(left <= ms(500), "{left:?}");
}

/// Hears whom the lock is offered to.
struct Ear(RespClient);

impl Ear {
    fn new(stage: &Stage) -> Self {
        let mut redis = stage.servers_of("n")[0].client();
        let channel = ["tenure:wake:{n}"];
        match stage {
            Stage::Cluster(_) => redis.subscribe_sharded(&channel),
            _ => redis.subscribe(&channel),
        }
        Self(redis)
    }

    /// Whose turn it is by the next message.
    fn next(&mut self) -> String {
        let message = self.0.next_message(ms(20_000));
        let message = message.expect("nobody was told").payload;
        // What else the waiter is told comes after its id.
        message.split(' ').next().unwrap().to_owned()
    }
}
