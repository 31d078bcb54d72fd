//! `tenure::redis` on a cluster: commands and scripts next to the locks.

use tenure::ErrorKind;
use tenure::redis::{Client, Command, Script};

use super::{CLUSTER, fresh_name, migrate};
use crate::stage::ms;

#[tenure_testkit::test]
async fn commands_and_scripts_go_where_their_key_is_and_follow_it() {
    let redis = Client::connect(CLUSTER.url()).await.unwrap();
    let count = Script::new("#!lua\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])");
    for _ in 0..6 {
        let key = fresh_name();
        redis
            .run(Command::new("SET").arg(&key).arg(5))
            .await
            .unwrap();
        migrate(&key);
        let counted = redis.script(&count, &[&key], &["2"]).await.unwrap();
        assert_eq!(counted.as_int(), Some(7));
        migrate(&key);
        let found = redis.run(Command::new("GET").arg(&key)).await.unwrap();
        assert_eq!(found.as_int(), Some(7));
    }
}

#[tenure_testkit::test]
async fn each_master_is_a_client_of_its_own() {
    let redis = Client::connect(CLUSTER.url()).await.unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for master in redis.masters() {
        ids.insert(master.run_id().await.unwrap().unwrap());
    }
    assert_eq!(ids.len(), redis.masters().len());
    assert!(ids.len() > 1, "{ids:?}");
    // A key is at one of them, and an error at the others.
    let get = || Command::new("GET").arg("key");
    let mut found = 0;
    for master in redis.masters() {
        match master.run(get()).await {
            Ok(_) => found += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error:?}"),
        }
    }
    assert_eq!(found, 1);
}

#[tenure_testkit::test]
async fn several_commands_are_each_run_once_wherever_their_keys_are() {
    let redis = Client::connect(CLUSTER.url()).await.unwrap();
    let keys: Vec<String> = (0..9).map(|_| fresh_name()).collect();
    let count = || keys.iter().map(|key| Command::new("INCR").arg(key));
    for turn in 1..=3 {
        let counted = redis.run_all(count().collect()).await.unwrap();
        assert!(
            counted.iter().all(|it| it.as_int() == Some(turn)),
            "{counted:?}"
        );
        migrate(&keys[0]);
    }
}

#[tenure_testkit::test]
async fn a_connection_of_ones_own_leads_to_the_node_of_a_key() {
    let redis = Client::connect(CLUSTER.url()).await.unwrap();
    for _ in 0..4 {
        let key = fresh_name();
        let own = redis.dedicated_to(&key).await.unwrap();
        let set = Command::new("SET").arg(&key).arg("v");
        own.run(set, ms(1_000)).await.unwrap();
    }
    let error = redis.dedicated().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let error = redis.run_id().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
