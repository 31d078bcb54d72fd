//! Fences where a master comes back with less than it had.

use tenure::Tenure;
use tenure_testkit::{Cluster, FailoverKind, RedisServer};

use super::fresh_name;

/// The master is deposed by a replica that did not hear of the last grants, takes over what that one
/// knows, and is promoted again. All the while it keeps its connections.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn fences_grow_when_a_master_comes_back_with_an_older_counter() {
    let cluster = Cluster::start();
    // Nothing else shall happen to its connections.
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    let name = fresh_name();
    let fence = async || {
        let guard = tenure.lock(&name).acquire().await.unwrap();
        let fence = guard.fence();
        guard.release().await.unwrap();
        fence
    };
    fence().await;
    let master = cluster.master_of_key(&name);
    let mut shard = cluster.shard_of(master).into_iter();
    let replica = shard.find(|it| it.port() != master.port()).unwrap();
    assert!(replica.wait_for_master(std::time::Duration::from_secs(10)));

    let password = config(replica, "masterauth");
    cluster.cut_replication(replica);
    let mut unknown = fence().await;
    for _ in 0..10 {
        unknown = fence().await;
    }
    cluster.failover(replica, FailoverKind::Force);
    replica.set_config("masterauth", &password);
    cluster.failover(master, FailoverKind::Orderly);

    let next = fence().await;
    assert!(next > unknown, "{next} after {unknown}");
}

fn config(server: &RedisServer, directive: &str) -> String {
    let reply = server.client().command(&["CONFIG", "GET", directive]);
    reply.array()[1].text().to_owned()
}
