//! Clusters.

use tenure_testkit::{Cluster, RespClient};

#[test]
fn a_cluster_starts_with_every_slot_served() {
    let cluster = Cluster::start();
    assert_eq!(cluster.servers().len(), 6);
    assert!(cluster.url().starts_with("redis-cluster://127.0.0.1:"));
    for key in ["a", "b", "c", "d", "e", "f"] {
        let mut client = RespClient::connect(cluster.master_of_key(key).addr());
        client.command(&["SET", key, "v"]);
        assert_eq!(client.command(&["WAIT", "1", "2000"]).int(), 1);
    }
}
