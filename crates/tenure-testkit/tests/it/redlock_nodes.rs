//! Independent servers.

use std::time::Duration;

use tenure_testkit::{ClockShim, RedlockNodes, RespClient};

use crate::A_WHILE;

#[test]
fn nodes_are_independent_and_persistent() {
    let nodes = RedlockNodes::start();
    assert_eq!(nodes.nodes().len(), 3);
    let urls = nodes.urls();
    assert_eq!(urls[2], nodes.node(2).url());
    nodes.node(0).client().command(&["SET", "k", "v"]);
    assert!(nodes.node(1).client().command(&["GET", "k"]).is_nil());
    nodes.node(0).restart();
    assert_eq!(nodes.node(0).client().command(&["GET", "k"]).text(), "v");
}

#[test]
fn nodes_forget_without_an_append_only_file() {
    let nodes = RedlockNodes::builder().nodes(1).without_aof().start();
    nodes.node(0).client().command(&["SET", "k", "v"]);
    nodes.node(0).restart();
    assert!(nodes.node(0).client().command(&["GET", "k"]).is_nil());
}

#[test]
fn urls_use_the_proxy_and_password_of_each_node() {
    let builder = RedlockNodes::builder().nodes(2).proxied();
    let nodes = builder.password(1, "secret").start();
    let urls = nodes.urls();
    assert_eq!(urls[0], nodes.proxy(0).url());
    let addr = nodes.proxy(1).addr();
    assert_eq!(urls[1], format!("redis://:secret@{addr}/"));

    let mut client = RespClient::connect(addr);
    client.command(&["AUTH", "secret"]);
    client.set_timeout(A_WHILE);
    nodes.proxy(1).black_hole();
    assert!(client.try_command(&["PING"]).is_err());
    RespClient::connect(nodes.proxy(0).addr()).command(&["PING"]);
}

#[test]
fn one_node_uses_another_clock() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let nodes = RedlockNodes::builder().clock(1, clock.clone()).start();
    for node in nodes.nodes() {
        node.client().command(&["SET", "k", "v", "PX", "30000"]);
    }
    clock.step_forward(Duration::from_mins(1));
    let has_key = |index: usize| !nodes.node(index).client().command(&["GET", "k"]).is_nil();
    assert_eq!([0, 1, 2].map(has_key), [true, false, true]);
}
