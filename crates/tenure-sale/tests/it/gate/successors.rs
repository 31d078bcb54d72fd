//! Servers that were restarted or replaced: what they know may be old, so they sell nothing until
//! they are loaded again.

use std::time::Duration;

use tenure_sale::gate::{Applied, Taken, Wanted};
use tenure_sale::{Outcome, Terms};
use tenure_testkit::{Cluster, FailoverKind, Fsync, RedisServer, Sentinels};

use super::stage::{Stage, load, ms};

#[tenure_testkit::test]
async fn a_restarted_server_sells_nothing_until_it_is_loaded() {
    let server = RedisServer::builder().aof(Fsync::Always).start();
    let stage = begun(server.url()).await;
    server.restart();
    is_stale_until_loaded(&stage).await;
}

#[tenure_testkit::test]
async fn a_promoted_replica_sells_nothing_until_it_is_loaded() {
    let sentinels = Sentinels::start();
    let stage = begun(sentinels.url()).await;
    assert!(sentinels.wait_for_sync(Duration::from_secs(10)));
    sentinels.failover();
    is_stale_until_loaded(&stage).await;
}

/// A master that is deposed loses what its successor never had. When it is promoted again it is the
/// same process with the item it was loaded with, and yet not current.
#[tenure_testkit::test]
async fn a_master_that_was_deposed_and_promoted_again_is_stale() {
    let sentinels = Sentinels::builder().replicas(1).start();
    let stage = begun(sentinels.url()).await;
    let first = sentinels.index_of(sentinels.master());
    for _ in 0..2 {
        assert!(sentinels.wait_until_settled(Duration::from_secs(20)));
        assert!(sentinels.wait_for_sync(Duration::from_secs(20)));
        sentinels.failover();
    }
    assert_eq!(sentinels.index_of(sentinels.master()), first);
    is_stale_until_loaded(&stage).await;
}

#[tenure_testkit::test]
async fn a_promoted_node_of_a_cluster_sells_nothing_until_it_is_loaded() {
    let cluster = Cluster::start();
    let stage = begun(cluster.url()).await;
    let master = cluster.master_of_key(stage.key("gate"));
    let shard = cluster.shard_of(master);
    let replica = shard.iter().find(|server| server.info("role") == "slave");
    cluster.failover(replica.unwrap(), FailoverKind::Orderly);
    is_stale_until_loaded(&stage).await;
}

#[tenure_testkit::test]
async fn an_item_that_moved_to_another_node_is_sold_there_once_it_is_loaded() {
    let cluster = Cluster::builder().steady().start();
    let stage = begun(cluster.url()).await;
    let slot = Cluster::slot_of(stage.key("gate"));
    let from = cluster.index_of(cluster.master_of_slot(slot));
    let masters = cluster.servers().iter();
    let mut masters = masters.filter(|server| server.info("role") == "master");
    let to = masters.find(|server| cluster.index_of(server) != from);
    // A reader's connection leads to the old node.
    assert_eq!(stage.read(9).await.len(), 1);
    cluster.migrate_slot(slot, to.unwrap());
    is_stale_until_loaded(&stage).await;
}

/// An item of ten units, of which one is ordered.
async fn begun(url: String) -> Stage {
    let stage = Stage::at(url).await;
    stage.load(load(1, Some(10), Terms::default())).await;
    stage.order("ann", "r1").await;
    stage
}

async fn is_stale_until_loaded(stage: &Stage) {
    assert_eq!(asked(stage, "r2").await, Outcome::StaleEpoch);
    // Nor is a replay answered: the order may be lost.
    assert_eq!(asked(stage, "r1").await, Outcome::StaleEpoch);
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert!(!standing.current);
    assert_eq!(
        (standing.epoch, standing.left, standing.queued),
        (1, Some(9), 1)
    );
    let applied = stage.gate.apply(&stage.item, 1, 0, &[]).await.unwrap();
    assert_eq!(applied, Applied::Stale);
    let wanted = Wanted::Withdrawal {
        reference: "w1".to_owned(),
        reason: "broken".to_owned(),
        units: 1,
        expected: None,
    };
    let taken = stage.gate.take(&stage.item, &wanted).await.unwrap();
    assert_eq!(taken, Taken::StaleEpoch);

    stage.load(load(2, Some(9), Terms::default())).await;
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert!(standing.current);
    assert_eq!(stage.order("ann", "r2").await.epoch(), 2);
    let patience = Duration::from_secs(5);
    let mut seen = 0;
    for _ in 0..20 {
        let read = stage.gate.read(&stage.item, "c1", 9, ms(200)).await;
        let claimed = stage.gate.claim(&stage.item, "c1", Duration::ZERO, 9).await;
        if let (Ok(_), Ok(claimed)) = (read, claimed) {
            seen = claimed.len();
            if seen == 2 {
                break;
            }
        }
    }
    assert_eq!(seen, 2, "the queue went along, {patience:?}");
}

/// Asks until a server replies.
async fn asked(stage: &Stage, id: &str) -> Outcome {
    for _ in 0..200 {
        if let Ok(answer) = stage.gate.ask(&stage.request("ann", id)).await {
            return answer.outcome;
        }
        tokio::time::sleep(ms(100)).await;
    }
    panic!("no server replies");
}
