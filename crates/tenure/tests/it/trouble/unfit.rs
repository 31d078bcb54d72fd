//! Servers that are there and cannot serve.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::{Advice, ErrorKind, Released, Tenure};
use tenure_testkit::{Fsync, Proxy, RedisServer, RespClient, eventually};

use crate::stage::ms;
use crate::verdict::{check_error, check_within, refused};

#[tenure_testkit::test]
async fn a_server_that_is_too_old_is_refused_at_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let version = format!("redis_version:{}", server.info("redis_version"));
    let old = format!("redis_version:6.2.{}", &"14000000"[..version.len() - 18]);
    proxy.rewrite_replies(version.as_bytes(), old.as_bytes());
    let begun = Instant::now();
    let error = refused(Tenure::connect(proxy.url()).await);
    check_error(
        &error,
        ErrorKind::Unsupported,
        &["`6.2.", "7.0 or newer", "upgrade"],
    );
    assert_eq!(error.advice(), Advice::Fatal);
    check_within(begun, ms(2_000));
}

const PATIENCE: Duration = ms(1_000);

/// A server that takes some seconds to read its data back when it is restarted.
fn slow_to_load() -> Arc<RedisServer> {
    let server = RedisServer::builder()
        .aof(Fsync::Always)
        .config("key-load-delay", "20")
        .start();
    let fill = "for i = 1, 20000 do redis.call('SET', 'k' .. i, 1) end";
    server.client().command(&["EVAL", fill, "0"]);
    Arc::new(server)
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_waited_for() {
    let server = slow_to_load();
    let hasty = Tenure::builder(server.url()).unreachable_after(PATIENCE);
    let hasty = hasty.connect().await.unwrap();
    let patient = Tenure::builder(server.url()).unreachable_after(ms(30_000));
    let patient = patient.connect().await.unwrap();
    let restarting = std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.restart()
    });
    assert!(eventually(ms(10_000), || says_loading(&server)));
    let begun = Instant::now();
    let error = refused(hasty.lock("n").try_acquire().await);
    check_error(&error, ErrorKind::Unavailable, &["loading its data"]);
    assert_eq!(error.advice(), Advice::Later);
    check_within(begun, 2 * PATIENCE);
    let guard = patient.lock("n").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    restarting.join().unwrap();
}

fn says_loading(server: &RedisServer) -> bool {
    let Ok(mut redis) = RespClient::try_connect(server.addr()) else {
        return false;
    };
    redis.set_timeout(ms(500));
    let said = redis.try_command(&["GET", "k1"]);
    said.is_err_and(|error| error.starts_with("LOADING"))
}

#[tenure_testkit::test]
async fn a_memory_that_is_full_is_said_with_a_remedy() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.fill_memory();
    let error = refused(tenure.lock("n").try_acquire().await);
    check_error(
        &error,
        ErrorKind::OutOfMemory,
        &["no memory left", "`maxmemory`"],
    );
    assert_eq!(error.advice(), Advice::Later);
}

/// Something else listens at the port: asking again would not change that.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_speak_redis_is_said_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream
                .unwrap()
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let begun = Instant::now();
    let error = refused(Tenure::connect(address.to_string()).await);
    check_error(
        &error,
        ErrorKind::Protocol,
        &["does not speak the Redis protocol", "is the port correct"],
    );
    check_within(begun, ms(2_000));
}

#[tenure_testkit::test]
async fn a_host_that_cannot_be_found_is_named_as_the_cause() {
    let builder = Tenure::builder("redis://no-such-host.invalid/").unreachable_after(PATIENCE);
    let error = refused(builder.connect().await);
    let expected = ["no-such-host.invalid", "cannot be resolved"];
    check_error(&error, ErrorKind::Unavailable, &expected);
}
