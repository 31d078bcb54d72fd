//! `tenure::redis`, the small Redis client for code next to the locks.

use std::time::Instant;

use tenure::ErrorKind;
use tenure::redis::{Client, Command, Script, Value};
use tenure_testkit::RedisServer;

use crate::stage::{ms, soon};
use crate::verdict::{check_refused, check_within};

fn get(key: &str) -> Command {
    Command::new("GET").arg(key)
}

#[tenure_testkit::test]
async fn commands_carry_text_numbers_and_bytes() {
    let server = RedisServer::start();
    let redis = Client::connect(server.url()).await.unwrap();
    let bytes = vec![0, 255, b'\r', b'\n'];
    let set = Command::new("SET").arg("key").bytes(bytes.clone());
    assert_eq!(redis.run(set).await.unwrap().as_str(), Some("OK"));
    assert_eq!(redis.run(get("key")).await.unwrap(), Value::Bytes(bytes));
    let set = Command::new("SET").arg("number").arg(42);
    redis.run(set).await.unwrap();
    assert_eq!(redis.run(get("number")).await.unwrap().as_int(), Some(42));
    assert!(redis.run(get("none")).await.unwrap().is_nil());
    check_refused(
        redis.run(Command::new("LPOP").arg("key")).await,
        ErrorKind::Protocol,
        &["WRONGTYPE"],
    );
}

/// The server is the only one that takes writes, and is shown without its password.
#[tenure_testkit::test]
async fn a_server_is_its_own_master() {
    let server = RedisServer::builder().password("secret").start();
    let redis = Client::connect(server.url()).await.unwrap();
    let masters = redis.masters();
    let shown: Vec<String> = masters.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [format!("redis://{}/", server.addr())]);
    let answer = masters[0].run(Command::new("PING")).await.unwrap();
    assert_eq!(answer.as_str(), Some("PONG"));
}

#[tenure_testkit::test]
async fn several_commands_fail_one_by_one() {
    let server = RedisServer::start();
    let redis = Client::connect(server.url()).await.unwrap();
    let commands = vec![
        Command::new("SET").arg("key").arg("text"),
        Command::new("LPOP").arg("key"),
        Command::new("INCR").arg("count"),
    ];
    let replies = redis.run_all(commands).await.unwrap();
    assert_eq!(replies[0].as_str(), Some("OK"));
    assert!(matches!(&replies[1], Value::Error(e) if e.contains("WRONGTYPE")));
    assert_eq!(replies[2], Value::Int(1));
    assert_eq!(redis.run_all(vec![]).await.unwrap(), vec![]);
}

#[tenure_testkit::test]
async fn a_script_is_sent_again_to_a_server_that_forgot_it() {
    let server = RedisServer::start();
    let redis = Client::connect(server.url()).await.unwrap();
    let take = Script::new("#!lua\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])");
    for expected in [2, 4] {
        let count = redis.script(&take, &["stock"], &["2"]).await.unwrap();
        assert_eq!(count.as_int(), Some(expected));
    }
    server.script_flush();
    let count = redis.script(&take, &["stock"], &["2"]).await.unwrap();
    assert_eq!(count.as_int(), Some(6), "and it ran once");
}

#[tenure_testkit::test]
async fn a_blocked_connection_of_its_own_blocks_nobody_else() {
    let server = RedisServer::start();
    let redis = Client::connect(server.url()).await.unwrap();
    let dedicated = redis.dedicated().await.unwrap();
    let waiting = tokio::spawn(async move {
        let pop = Command::new("BLPOP").arg("queue").arg(0);
        dedicated.run(pop, ms(10_000)).await
    });
    assert!(soon(async || server.stat("blocked_clients") == 1).await);
    let begun = Instant::now();
    redis.run(get("key")).await.unwrap();
    check_within(begun, ms(5_000));
    redis
        .run(Command::new("RPUSH").arg("queue").arg("job"))
        .await
        .unwrap();
    let popped = waiting.await.unwrap().unwrap();
    assert_eq!(popped.as_array().unwrap()[1].as_str(), Some("job"));
}

#[tenure_testkit::test]
async fn a_blocked_connection_gives_up_at_its_limit() {
    let server = RedisServer::start();
    let redis = Client::connect(server.url()).await.unwrap();
    let dedicated = redis.dedicated().await.unwrap();
    let begun = Instant::now();
    let pop = Command::new("BLPOP").arg("queue").arg(0);
    let popped = dedicated.run(pop, ms(200)).await;
    check_refused(popped, ErrorKind::Unavailable, &["did not answer in time"]);
    check_within(begun, ms(2_000));
}

#[tenure_testkit::test]
async fn a_restarted_server_has_another_run_id() {
    let server = RedisServer::start();
    let redis = Client::connect(server.url()).await.unwrap();
    let before = redis.run_id().await.unwrap().unwrap();
    assert_eq!(before, server.info("run_id"));
    server.restart();
    let back = soon(async || redis.run(Command::new("PING")).await.is_ok()).await;
    assert!(back);
    let after = redis.run_id().await.unwrap().unwrap();
    assert_ne!(before, after);
    assert_eq!(after, server.info("run_id"));
}

/// A program that only asks for the id must not be told that of a process that is gone.
#[tenure_testkit::test]
async fn the_run_id_is_never_that_of_an_ended_process() {
    let server = RedisServer::start();
    let redis = Client::connect(server.url()).await.unwrap();
    redis.run_id().await.unwrap();
    server.restart();
    let id = server.info("run_id");
    let told = soon(async || {
        redis
            .run_id()
            .await
            .is_ok_and(|told| told == Some(id.clone()))
    });
    assert!(told.await);
}

#[tenure_testkit::test]
async fn memory_has_no_server_to_run_commands_on() {
    let refused = Client::connect("memory://").await;
    check_refused(refused, ErrorKind::InvalidUrl, &["there is no server"]);
}
