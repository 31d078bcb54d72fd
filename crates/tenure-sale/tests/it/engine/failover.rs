//! The gate on Sentinel and Cluster, whose servers are replaced by others that know less.

use std::time::Duration;

use tenure_sale::{NewItem, OrderState, Outcome, Request, Sale};
use tenure_testkit::{Cluster, Sentinels};

use super::stage::{
    Stage, agrees, ask, becomes, buy, consume, quick, reserve, settled, sold, until,
};

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_missed_orders_sells_nothing_twice() {
    let (sentinels, files) = (
        Sentinels::builder().proxied_replication().start(),
        Stage::memory_sqlite(),
    );
    let sale = Sale::open(sentinels.url(), files.ledger_url())
        .await
        .unwrap();
    sale.create(&NewItem::new("i", 10).unwrap()).await.unwrap();
    sale.open_item("i").await.unwrap();
    let consumer = consume(&sale);
    let mut confirmed = vec![reserve(&sale, "a").await, reserve(&sale, "b").await];
    assert!(sentinels.wait_for_sync(Duration::from_secs(10)));
    for replica in sentinels.replicas() {
        sentinels.cut_replication(sentinels.index_of(replica));
    }
    // The ledger has these, and no replica knows that their units are gone.
    for buyer in ["c", "d", "e"] {
        confirmed.push(reserve(&sale, buyer).await);
    }
    consumer.stop().await;
    let unconfirmed = [buy(&sale, "x").await, buy(&sale, "y").await];
    let dead = sentinels.kill_master();
    sentinels.wait_for_failover(dead, Duration::from_mins(1));

    let _consumer = consume(&sale);
    until("the gate sells again", async || {
        let asked = sale.submit(&Request::new("i", "next", "r").unwrap()).await;
        asked.is_ok_and(|answer| answer.outcome.order().is_some())
    })
    .await;
    for order in &unconfirmed {
        becomes(&sale, order, OrderState::Lost).await;
    }
    for order in &confirmed {
        assert_eq!(sale.order(order).await.unwrap().state, OrderState::Reserved);
    }
    let mut accepted = 1;
    for buyer in 0..10 {
        if let Outcome::Accepted(order) = ask(&sale, &buyer.to_string(), "r").await {
            assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
            accepted += 1;
        }
    }
    assert_eq!((accepted, sold(&sale).await), (5, 10));
    until("both are counted", async || sale.stats().lost == 2).await;
    assert_eq!(sale.stats().rejected, 0);
    agrees(&sale).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_on_different_nodes_of_a_cluster_are_sold_alike() {
    let (cluster, files) = (Cluster::start(), Stage::memory_sqlite());
    let sale = Sale::open(cluster.url(), files.ledger_url()).await.unwrap();
    let consumer = sale.consume(quick()).unwrap();
    let items = ["i", "j", "k", "l"];
    for item in items {
        sale.create(&NewItem::new(item, 2).unwrap()).await.unwrap();
        sale.open_item(item).await.unwrap();
    }
    for item in items {
        for buyer in ["anna", "ben", "cleo"] {
            let request = Request::new(item, buyer, "r").unwrap();
            match sale.submit(&request).await.unwrap().outcome {
                Outcome::Accepted(order) => {
                    assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
                }
                outcome => assert_eq!((buyer, outcome), ("cleo", Outcome::SoldOut)),
            }
        }
        let cancelled = sale.order_of(item, "anna", "r").await.unwrap().unwrap();
        sale.cancel(&cancelled.id).await.unwrap();
        until("its unit is back", async || {
            let standing = sale.gate().standing(item).await.unwrap().unwrap();
            standing.left == Some(1)
        })
        .await;
        sale.rebuild(item).await.unwrap();
    }
    consumer.stop().await;
}
