//! Prefixes that cannot be used, and names that are too long for theirs.

use tenure::{ErrorKind, Redlock, Tenure};
use tenure_testkit::RedlockNodes;

use crate::verdict::check_refused;

#[tenure_testkit::test]
async fn a_prefix_that_cannot_be_used_is_refused() {
    for (prefix, part) in [
        ("a{b}", "brace"),
        ("team a:", "space"),
        ("x:tenure:", "own keys"),
    ] {
        let builder = Tenure::builder("memory://").prefix(prefix);
        let parts = ["the prefix", part];
        check_refused(builder.connect().await, ErrorKind::InvalidSetting, &parts);
    }
    let refused = Tenure::connect("redis://h?prefix=a%7Bb").await;
    check_refused(refused, ErrorKind::InvalidUrl, &["`a{b`", "brace"]);
}

#[tenure_testkit::test]
async fn url_and_builder_must_agree() {
    let builder = Tenure::builder("memory://?prefix=a:");
    assert!(builder.clone().prefix("a:").connect().await.is_ok());
    let refused = builder.prefix("b:").connect().await;
    check_refused(
        refused,
        ErrorKind::InvalidSetting,
        &["`a:`", "do not exclude"],
    );
}

#[tenure_testkit::test]
async fn all_nodes_of_a_redlock_have_one_prefix() {
    let nodes = RedlockNodes::start();
    let with = |prefixes: [&str; 3]| {
        let urls = nodes.urls().into_iter().zip(prefixes);
        Redlock::builder(urls.map(|(url, prefix)| format!("{url}{prefix}")))
    };
    let refused = with(["?prefix=a:", "?prefix=b:", ""]).connect().await;
    check_refused(refused, ErrorKind::InvalidSetting, &["`b:`", "`a:`"]);
    // One that says it says it for all.
    let redlock = with(["?prefix=a:", "", ""]).connect().await.unwrap();
    let guard = redlock.lock("n").acquire().await.unwrap();
    for node in nodes.nodes() {
        let found = node.client().command(&["EXISTS", "a:n"]);
        assert_eq!(found.int(), 1);
    }
    guard.release().await.unwrap();
}

#[tenure_testkit::test]
async fn a_prefix_counts_towards_the_length_of_a_name() {
    let tenure = Tenure::connect("memory://?prefix=team-a:").await.unwrap();
    let (longest, longer) = ("n".repeat(505), "n".repeat(506));
    assert!(tenure.lock(&longest).try_acquire().await.unwrap().is_some());
    let parts = ["513 bytes", "team-a:"];
    let kind = ErrorKind::InvalidName;
    check_refused(tenure.lock(&longer).try_acquire().await, kind, &parts);
    check_refused(tenure.lock(&longer).holder().await, kind, &parts);
    check_refused(tenure.locks([&longer]).acquire().await, kind, &parts);
    check_refused(tenure.semaphore(&longer, 1).acquire().await, kind, &parts);
    check_refused(tenure.semaphore(&longer, 1).resize(2).await, kind, &parts);
    check_refused(tenure.election(&longer).campaign("v").await, kind, &parts);
    check_refused(tenure.election(&longer).observe(), kind, &parts);
    check_refused(tenure.election(&longer).candidates().await, kind, &parts);
}
