//! Sentinel, Cluster, and several servers together.

use std::time::Duration;

use serde_json::Value;
use tenure_testkit::{ClockShim, Cluster, RedisServer, RedlockNodes, Sentinels};

use super::{check_in, examine, leaves_nothing, says};

/// Fails with the report if what is said of all nodes together is something else.
#[track_caller]
fn says_together(report: &Value, name: &str, result: &str, found: &str) {
    let check = check_in(&report["together"], name);
    let text = check["found"].as_str().unwrap();
    assert!(
        check["result"] == result && text.contains(found),
        "{check} in {report}"
    );
}

#[tenure_testkit::test]
fn three_nodes_are_fit() {
    let nodes = RedlockNodes::builder().nodes(3).start();
    let (ended, report) = examine(&nodes.urls());
    ended.ended_with(0);
    assert_eq!(report["servers"].as_array().unwrap().len(), 3);
    says_together(&report, "nodes", "ok", "3, 1 may fail");
    says_together(&report, "votes", "ok", "3 of 3 may vote");
    says_together(&report, "lock", "ok", "on a majority");
    nodes.nodes().iter().for_each(leaves_nothing);
}

#[tenure_testkit::test]
fn an_even_number_is_to_be_considered_and_a_dead_node_is_bad() {
    let nodes = RedlockNodes::builder().nodes(4).start();
    nodes.node(1).kill();
    let (ended, report) = examine(&nodes.urls());
    ended.ended_with(1);
    says_together(&report, "nodes", "warn", "4, 1 may fail");
    says_together(&report, "majority", "ok", "3 of 4 respond, 3 are needed");
    says_together(&report, "lock", "ok", "on a majority");
    let servers = report["servers"].as_array().unwrap();
    let dead = check_in(&servers[1]["checks"], "reachable");
    assert_eq!(dead["result"], "bad", "{dead}");
    let other = check_in(&servers[2]["checks"], "keeping");
    assert_eq!(other["result"], "ok", "{other}");
}

#[tenure_testkit::test]
fn one_server_named_twice_is_bad() {
    let server = RedisServer::start();
    let other = RedisServer::start();
    let twin = format!("redis://localhost:{}/", server.port());
    let (ended, report) = examine(&[server.url(), other.url(), twin.clone()]);
    ended.ended_with(1);
    says_together(
        &report,
        "independent",
        "bad",
        &format!("`{twin}` are the same server"),
    );
}

#[tenure_testkit::test]
fn young_nodes_that_may_forget_have_no_vote() {
    let nodes = RedlockNodes::builder().nodes(3).without_aof().start();
    let (ended, report) = examine(&nodes.urls());
    ended.ended_with(1);
    says_together(&report, "votes", "bad", "0 of 3 may vote, 2 are needed; `");
    says(&report, "persistence", "warn", "no persistence");
}

#[tenure_testkit::test]
fn clocks_that_differ_are_noticed() {
    let Some(clock) = ClockShim::compile() else {
        return; // no compiler here
    };
    let nodes = RedlockNodes::builder()
        .nodes(3)
        .clock(1, clock.clone())
        .start();
    clock.step_forward(Duration::from_secs(20));
    let (ended, report) = examine(&nodes.urls());
    ended.ended_with(1);
    says_together(&report, "clocks", "bad", "apart");
    let ahead = check_in(&report["servers"][1]["checks"], "clock");
    assert_eq!(ahead["result"], "warn", "{ahead}");
}

#[tenure_testkit::test]
fn the_master_of_sentinels_is_examined() {
    let sentinels = Sentinels::builder().replicas(1).steady().start();
    let (ended, report) = examine(&[sentinels.url()]);
    ended.ended_with(0);
    says(&report, "role", "ok", "master");
    says(
        &report,
        "replicas",
        "warn",
        "1, and a primary that is cut off",
    );
    says(&report, "confirming", "ok", "1 of 1");
    says(&report, "rights", "ok", "");
    leaves_nothing(sentinels.master());
}

#[tenure_testkit::test]
fn every_master_of_a_cluster_is_examined() {
    let nodes = Cluster::builder().masters(3).replicas(0);
    let cluster = nodes.steady().start();
    let (ended, report) = examine(&[cluster.url()]);
    ended.ended_with(0);
    let servers = report["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 3, "{report}");
    for server in servers {
        assert_eq!(
            check_in(&server["checks"], "waiting")["result"],
            "ok",
            "{server}"
        );
        assert_eq!(
            check_in(&server["checks"], "keeping")["result"],
            "ok",
            "{server}"
        );
        assert_eq!(
            check_in(&server["checks"], "rights")["result"],
            "ok",
            "{server}"
        );
    }
    cluster.servers().iter().for_each(leaves_nothing);
}

#[tenure_testkit::test]
fn a_master_that_is_gone_does_not_hide_the_others() {
    let cluster = Cluster::builder()
        .masters(3)
        .replicas(0)
        .partial_coverage()
        .start();
    let gone = &cluster.servers()[2];
    gone.kill();
    let others: Vec<String> = cluster.servers()[..2]
        .iter()
        .map(|node| node.addr().to_string())
        .collect();
    let url = format!("redis-cluster://{}", others.join(","));
    let (ended, report) = examine(&[url]);
    ended.ended_with(1);
    let servers = report["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 3, "{report}");
    for server in servers {
        let is_gone = server["server"]
            .as_str()
            .unwrap()
            .contains(&gone.port().to_string());
        let reachable = check_in(&server["checks"], "reachable");
        assert_eq!(
            reachable["result"],
            if is_gone { "bad" } else { "ok" },
            "{report}"
        );
    }
}
