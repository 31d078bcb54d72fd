//! Messages that wake waiters, wherever their lock has gone.

use tenure::{Guard, Sharded, Tenure};
use tokio::task::JoinHandle;

use super::{CLUSTER, builder, fresh_name, migrate};
use crate::stage::{ms, soon};

async fn client(sharded: Sharded) -> Tenure {
    builder().sharded(sharded).connect().await.unwrap()
}

/// A waiter that stands in the store's queue, of a client whose timer would wake it much later.
async fn waiter(tenure: &Tenure, name: &str) -> JoinHandle<Guard> {
    let lock = tenure.lock(name);
    let waiting = tokio::spawn(async move { lock.wait(ms(20_000)).acquire().await.unwrap() });
    let queue = format!("tenure:queue:{{{name}}}");
    let stands = async || {
        let mut redis = CLUSTER.master_of_key(name).client();
        redis.command(&["EXISTS", &queue]).int() == 1
    };
    assert!(soon(stands).await, "nobody stands in the queue");
    waiting
}

async fn is_woken(waiting: JoinHandle<Guard>) -> bool {
    let woken = tokio::time::timeout(ms(5_000), waiting).await;
    woken.map(|guard| drop(guard.unwrap())).is_ok()
}

/// Whether a message wakes the waiter in one of a few rounds. A waiter also finds out by itself, every
/// two seconds, that its place in the queue is gone, and now and then that comes first.
async fn is_told(round: impl AsyncFn() -> bool) -> bool {
    for _ in 0..4 {
        if round().await {
            return true;
        }
    }
    false
}

/// Whether the waiter of a client that has no other is woken, and by a message.
async fn is_woken_by_message(client: &Tenure, waiting: JoinHandle<Guard>) -> bool {
    is_woken(waiting).await && client.stats().woken_by_message > 0
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn h37_a_message_stays_in_its_shard() {
    let round = async || {
        let (one, other) = (client(Sharded::Auto).await, client(Sharded::On).await);
        let name = fresh_name();
        let holder = one.lock(&name).acquire().await.unwrap();
        let waiting = waiter(&other, &name).await;
        let channel = format!("tenure:wake:{{{name}}}");
        let heard = |how: &str| {
            let mut redis = CLUSTER.master_of_key(&name).client();
            redis.command(&["PUBSUB", how, &channel]).array()[1].int()
        };
        assert_eq!((heard("SHARDNUMSUB"), heard("NUMSUB")), (1, 0));
        holder.release().await.unwrap();
        is_woken_by_message(&other, waiting).await
    };
    assert!(is_told(round).await);
}

/// H37: the server ends the subscription of a channel whose slot leaves it.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h37_a_waiter_is_woken_where_its_lock_has_moved() {
    for sharded in [Sharded::On, Sharded::Off] {
        let round = async || {
            let (one, other) = (client(sharded).await, client(sharded).await);
            let name = fresh_name();
            let holder = one.lock(&name).acquire().await.unwrap();
            let waiting = waiter(&other, &name).await;
            for _ in 0..2 {
                migrate(&name);
                tokio::time::sleep(ms(400)).await;
                assert!(!waiting.is_finished());
            }
            holder.release().await.unwrap();
            is_woken_by_message(&other, waiting).await
        };
        assert!(is_told(round).await, "{sharded}");
    }
}

/// H37: released at the new place before the waiter could hear it there.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h37_a_message_that_nobody_could_hear_is_made_good() {
    for _ in 0..5 {
        let (one, other) = (client(Sharded::On).await, client(Sharded::On).await);
        let name = fresh_name();
        let holder = one.lock(&name).acquire().await.unwrap();
        let waiting = waiter(&other, &name).await;
        let releasing = tokio::spawn(holder.release());
        migrate(&name);
        releasing.await.unwrap().unwrap();
        assert!(is_woken(waiting).await);
    }
}

/// Waiters of many locks on one node, of which some move at once.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h37_those_who_stay_are_woken_as_well() {
    let (one, other) = (client(Sharded::On).await, client(Sharded::On).await);
    let names: Vec<String> = (0..12).map(|_| fresh_name()).collect();
    let (mut holders, mut waiting) = (Vec::new(), Vec::new());
    for name in &names {
        holders.push(one.lock(name).acquire().await.unwrap());
        waiting.push(waiter(&other, name).await);
    }
    for name in names.iter().step_by(3) {
        migrate(name);
    }
    for (holder, waiting) in holders.into_iter().zip(waiting) {
        holder.release().await.unwrap();
        assert!(is_woken(waiting).await);
    }
}

/// In a mixed fleet all must speak plainly: then all hear each other.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn plain_and_sharded_clients_wake_each_other_only_by_the_same_word() {
    for (speaks, hears, woken) in [
        (Sharded::Off, Sharded::Off, true),
        (Sharded::On, Sharded::On, true),
        (Sharded::Auto, Sharded::On, true),
        (Sharded::On, Sharded::Off, false),
        (Sharded::Off, Sharded::On, false),
    ] {
        let round = async || {
            let (one, other) = (client(speaks).await, client(hears).await);
            let name = fresh_name();
            let holder = one.lock(&name).acquire().await.unwrap();
            let waiting = waiter(&other, &name).await;
            holder.release().await.unwrap();
            is_woken_by_message(&other, waiting).await
        };
        assert_eq!(is_told(round).await, woken, "{speaks} {hears}");
    }
}
