//! Servers and their faults.

use std::process::Command;
use std::time::{Duration, Instant};

use tenure_testkit::{ClientKind, Fsync, RedisServer, RespClient, eventually};

use crate::{A_WHILE, SOON};

#[test]
fn a_paused_server_does_not_answer_until_it_resumes() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.set_timeout(A_WHILE);
    server.pause();
    assert!(server.is_running());
    assert_eq!(
        client.try_command(&["PING"]).unwrap_err(),
        "connection: timed out"
    );
    server.resume();
    client.set_timeout(SOON);
    assert_eq!(client.receive().unwrap().text(), "PONG");
}

#[test]
fn an_append_only_file_survives_kill_but_not_restart_empty() {
    let server = RedisServer::builder().aof(Fsync::Always).start();
    let (url, pid) = (server.url(), server.pid());
    server.client().command(&["SET", "k", "v"]);

    server.kill();
    assert!(!server.is_running());
    assert!(RespClient::try_connect(server.addr()).is_err());
    server.restart();
    assert_eq!(server.client().command(&["GET", "k"]).text(), "v");
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);

    server.restart_empty();
    assert!(server.client().command(&["GET", "k"]).is_nil());
}

#[test]
fn without_persistence_a_restart_loses_everything() {
    let server = RedisServer::start();
    server.client().command(&["SET", "k", "v"]);
    server.restart();
    assert!(server.client().command(&["GET", "k"]).is_nil());
}

#[test]
fn a_dropped_server_is_gone_even_if_it_was_paused() {
    let server = RedisServer::start();
    let addr = server.addr();
    server.pause();
    drop(server);
    assert!(RespClient::try_connect(addr).is_err());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(RedisServer::start).join().unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(server.client().command(&["PING"]).text(), "PONG");
}

#[test]
fn full_memory_refuses_writes_until_freed() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.command(&["SET", "k", "v"]);
    server.fill_memory();
    let error = client.try_command(&["SET", "k", "w"]).unwrap_err();
    assert!(error.starts_with("OOM"), "{error}");
    assert_eq!(client.command(&["DEL", "k"]).int(), 1);
    server.free_memory();
    client.command(&["SET", "k", "w"]);
}

#[test]
fn clients_are_killed_by_kind() {
    let server = RedisServer::start();
    let mut normal = server.client();
    let mut subscriber = server.client();
    subscriber.subscribe(&["news"]);

    assert_eq!(server.kill_clients(ClientKind::Pubsub), 1);
    assert!(subscriber.receive().unwrap_err().starts_with("connection"));
    normal.command(&["PING"]);
    assert_eq!(server.kill_clients(ClientKind::Normal), 1);
    assert!(normal.try_command(&["PING"]).is_err());
}

#[test]
fn flushed_scripts_are_unknown() {
    let server = RedisServer::start();
    let mut client = server.client();
    let sha = client.command(&["SCRIPT", "LOAD", "return 7"]);
    assert_eq!(client.command(&["EVALSHA", sha.text(), "0"]).int(), 7);
    server.script_flush();
    let error = client.try_command(&["EVALSHA", sha.text(), "0"]);
    assert!(error.unwrap_err().starts_with("NOSCRIPT"));
}

#[test]
fn a_busy_script_makes_all_clients_wait() {
    let server = RedisServer::start();
    let mut client = server.client();
    server.set_config("busy-reply-threshold", "50");
    let start = Instant::now();
    let busy = server.busy_script(300);
    let refused = eventually(SOON, || {
        let answer = client.try_command(&["PING"]);
        answer.is_err_and(|error| error.starts_with("BUSY"))
    });
    assert!(refused, "no client got BUSY");
    assert!(busy.wait());
    assert!(start.elapsed() >= Duration::from_millis(100));
    client.command(&["PING"]);
}

#[test]
fn counts_calls_of_a_command() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.command(&["EVAL", "return redis.call('INCR', 'n')", "0"]);
    client.command(&["INCR", "n"]);
    assert_eq!(server.command_calls("incr"), 2);
    assert_eq!(server.command_calls("EVAL"), 1);
    assert_eq!(server.command_calls("evalsha"), 0);
    assert!(server.stat("total_commands_processed") >= 3);
    server.reset_stats();
    assert_eq!(server.command_calls("incr"), 0);
}

#[test]
fn settings_reach_the_server() {
    let server = RedisServer::builder()
        .config("maxmemory", "3mb")
        .config("notify-keyspace-events", "")
        .start();
    let reply = server.client().command(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(reply.array()[1].int(), 3 * 1024 * 1024);
    assert!(server.log().contains("eady to accept connections"));
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_does_not_start_shows_its_log() {
    RedisServer::builder().config("no-such-thing", "1").start();
}

#[test]
fn passwords_and_users_are_required() {
    let server = RedisServer::builder()
        .password("secret")
        .user("alice", "on >pw ~a:* &* +@all")
        .start();
    assert!(server.url().starts_with("redis://:secret@127.0.0.1:"));
    let mut client = RespClient::connect(server.addr());
    let error = client.try_command(&["GET", "a:k"]).unwrap_err();
    assert!(error.starts_with("NOAUTH"), "{error}");
    client.command(&["AUTH", "secret"]);
    client.command(&["GET", "b:k"]);
    client.command(&["AUTH", "alice", "pw"]);
    client.command(&["GET", "a:k"]);
    let error = client.try_command(&["GET", "b:k"]).unwrap_err();
    assert!(error.starts_with("NOPERM"), "{error}");
    assert_eq!(server.client().command(&["PING"]).text(), "PONG");
}

#[test]
fn a_replica_follows_its_master() {
    let master = RedisServer::builder().password("secret").start();
    let replica = RedisServer::builder().replica_of(&master).start();
    assert!(replica.wait_for_master(SOON));
    let mut client = master.client();
    client.command(&["SET", "k", "v"]);
    assert_eq!(client.command(&["WAIT", "1", "2000"]).int(), 1);
    assert_eq!(replica.client().command(&["GET", "k"]).text(), "v");
    let error = replica.client().try_command(&["SET", "k", "w"]);
    assert!(error.unwrap_err().starts_with("READONLY"));
}

#[test]
fn tls_works_on_a_second_port() {
    let server = RedisServer::builder().with_tls().start();
    let tls = server.tls_files();
    assert!(
        server
            .tls_url()
            .ends_with(&format!("?ca={}", tls.ca.display()))
    );
    assert_eq!(ping_by_cli(&server, &["--cacert", path(&tls.ca)]), "PONG");
    assert_ne!(ping_by_cli(&server, &[]), "PONG");
    // `redis-cli` does not check the names; other clients do.
    let verified = Command::new("openssl")
        .args(["verify", "-verify_ip", "127.0.0.1"])
        .args(["-CAfile", path(&tls.ca), path(&tls.cert)])
        .output();
    assert!(verified.unwrap().status.success());
}

#[test]
fn tls_clients_need_certificates_if_required() {
    let server = RedisServer::builder().with_tls().auth_clients(true).start();
    let tls = server.tls_files();
    assert!(server.tls_url().contains("&cert="));
    let ca = ["--cacert", path(&tls.ca)];
    assert_ne!(ping_by_cli(&server, &ca), "PONG");
    let cert = ["--cert", path(&tls.client_cert)];
    let key = ["--key", path(&tls.client_key)];
    assert_eq!(ping_by_cli(&server, &[ca, cert, key].concat()), "PONG");
}

#[test]
fn a_unix_socket_answers() {
    let server = RedisServer::builder().unix_socket().start();
    let url = server.unix_url();
    let socket = url.strip_prefix("unix://").unwrap();
    let output = Command::new("redis-cli")
        .args(["-s", socket, "PING"])
        .output();
    assert_eq!(output.unwrap().stdout, b"PONG\n");
}

fn ping_by_cli(server: &RedisServer, options: &[&str]) -> String {
    let port = server.tls_addr().port().to_string();
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port, "--tls"])
        .args(options)
        .arg("PING")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().into()
}

fn path(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}
