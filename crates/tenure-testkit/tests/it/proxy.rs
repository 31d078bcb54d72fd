//! Each fault of the proxy, seen from both sides.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure_testkit::{Proxy, RedisServer, RespClient, eventually};

use crate::{A_WHILE, SOON};

const TIMED_OUT: &str = "connection: timed out";

/// A server, a proxy in front of it, and a direct connection.
struct Setup {
    server: RedisServer,
    proxy: Proxy,
    direct: RespClient,
}

impl Setup {
    fn new() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        let direct = server.client();
        Self {
            server,
            proxy,
            direct,
        }
    }

    fn client(&self) -> RespClient {
        let mut client = RespClient::connect(self.proxy.addr());
        client.command(&["PING"]);
        client
    }

    /// A client whose next command is not answered in time.
    fn impatient_client(&self) -> RespClient {
        let mut client = self.client();
        client.set_timeout(A_WHILE);
        client
    }

    fn value(&mut self, key: &str) -> String {
        let reply = self.direct.command(&["GET", key]);
        if reply.is_nil() {
            "nothing".into()
        } else {
            reply.text().into()
        }
    }
}

#[test]
fn forwards_everything_and_counts_it() {
    let mut setup = Setup::new();
    let mut client = setup.client();
    let large = "x".repeat(3_000_000);
    client.command(&["SET", "k", &large]);
    assert_eq!(client.command(&["GET", "k"]).text(), large);
    assert_eq!(setup.value("k").len(), large.len());
    let counts = setup.proxy.counts();
    assert_eq!((counts.connections, counts.open_connections), (1, 1));
    assert!(counts.request_bytes > 3_000_000 && counts.reply_bytes > 3_000_000);
    assert!(counts.request_chunks > 1 && counts.reply_chunks > 1);
    drop(client);
    assert!(setup.proxy.wait_for(SOON, |now| now.open_connections == 0));
}

#[test]
fn held_requests_arrive_when_released() {
    let mut setup = Setup::new();
    let mut client = setup.impatient_client();
    setup.proxy.hold_requests();
    let error = client.try_command(&["SET", "k", "v"]).unwrap_err();
    assert_eq!(error, TIMED_OUT);
    assert_eq!(setup.value("k"), "nothing");
    setup.proxy.release_requests();
    assert_eq!(client.receive().unwrap().text(), "OK");
    assert_eq!(setup.value("k"), "v");
}

#[test]
fn held_requests_arrive_even_if_their_client_has_disconnected() {
    let mut setup = Setup::new();
    let mut client = setup.client();
    let before = setup.proxy.counts().request_chunks;
    setup.proxy.hold_requests();
    for (number, value) in [(1, "u"), (2, "v")] {
        client.send(&["SET", "k", value]).unwrap();
        let arrived = before + number;
        assert!(
            setup
                .proxy
                .wait_for(SOON, |now| now.request_chunks == arrived)
        );
    }
    drop(client);
    thread::sleep(A_WHILE);
    assert_eq!(setup.value("k"), "nothing");
    setup.proxy.release_requests();
    assert!(eventually(SOON, || setup.value("k") == "v"));
}

#[test]
fn held_replies_arrive_when_released() {
    let mut setup = Setup::new();
    let mut client = setup.impatient_client();
    setup.proxy.hold_replies();
    let error = client.try_command(&["SET", "k", "v"]).unwrap_err();
    assert_eq!(error, TIMED_OUT);
    assert_eq!(setup.value("k"), "v");
    setup.proxy.release_replies();
    assert_eq!(client.receive().unwrap().text(), "OK");
}

#[test]
fn dropped_replies_never_arrive_and_their_connection_is_reset_later() {
    let mut setup = Setup::new();
    let mut client = setup.impatient_client();
    let mut untouched = setup.client();
    setup.proxy.drop_replies();
    let error = client.try_command(&["SET", "k", "v"]).unwrap_err();
    assert_eq!(error, TIMED_OUT);
    assert_eq!(setup.value("k"), "v");
    setup.proxy.stop_dropping();
    assert_reset(&client.try_command(&["PING"]).unwrap_err());
    untouched.command(&["PING"]);
}

#[test]
fn dropped_requests_never_arrive() {
    let mut setup = Setup::new();
    let mut client = setup.impatient_client();
    setup.proxy.drop_requests();
    let error = client.try_command(&["SET", "k", "v"]).unwrap_err();
    assert_eq!(error, TIMED_OUT);
    setup.proxy.heal();
    assert_eq!(setup.value("k"), "nothing");
    assert_reset(&client.try_command(&["PING"]).unwrap_err());
}

#[test]
fn a_black_hole_is_silent_even_when_the_server_dies() {
    let setup = Setup::new();
    let mut client = setup.impatient_client();
    setup.proxy.black_hole();
    setup.server.kill();
    let error = client.try_command(&["PING"]).unwrap_err();
    assert_eq!(error, TIMED_OUT);
    assert_eq!(client.receive().unwrap_err(), TIMED_OUT);
    setup.proxy.heal();
    assert_reset(&client.receive().unwrap_err());
}

#[test]
fn delays_add_up_and_do_not_slow_pipelines() {
    let setup = Setup::new();
    let mut client = setup.client();
    setup.proxy.delay_requests(Duration::from_millis(200));
    setup.proxy.delay_replies(Duration::from_millis(100));
    let start = Instant::now();
    for _ in 0..10 {
        client.send(&["PING"]).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..10 {
        client.receive().unwrap();
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300), "took `{took:?}`");
    // The last was sent after 50 ms; if it had waited for the first, it would take 200 ms more.
    assert!(took < Duration::from_millis(470), "took `{took:?}`");
    setup.proxy.heal();
    let start = Instant::now();
    client.command(&["PING"]);
    assert!(start.elapsed() < Duration::from_millis(100));
}

#[test]
fn later_requests_are_delayed_and_the_first_is_not() {
    let setup = Setup::new();
    setup.proxy.delay_later_requests(A_WHILE);
    let mut client = RespClient::connect(setup.proxy.addr());
    client.set_timeout(A_WHILE / 2);
    client.command(&["PING"]);
    client.set_timeout(SOON);
    let begun = Instant::now();
    client.command(&["PING"]);
    assert!(begun.elapsed() >= A_WHILE);
}

#[test]
fn dribbles_byte_by_byte() {
    let setup = Setup::new();
    let mut client = setup.client();
    let pause = Duration::from_millis(5);
    for dribble in [Proxy::dribble_requests, Proxy::dribble_replies] {
        dribble(&setup.proxy, pause);
        let start = Instant::now();
        assert_eq!(client.command(&["PING"]).text(), "PONG");
        let took = start.elapsed();
        // `+PONG\r\n` has seven bytes and hence six pauses, the request more.
        assert!(took >= pause * 6, "took `{took:?}`");
        setup.proxy.heal();
    }
}

#[test]
fn resets_open_connections_on_both_sides() {
    let setup = Setup::new();
    let mut client = setup.client();
    setup.proxy.reset_all();
    assert_reset(&client.receive().unwrap_err());
    assert_eq!(setup.proxy.counts().open_connections, 0);
    // Only the direct connection and the one that runs this command are left.
    let alone = eventually(SOON, || setup.server.stat("connected_clients") == 2);
    assert!(alone, "the server still has the connection");
    setup.client();
}

#[test]
fn resets_after_the_request_was_executed() {
    let mut setup = Setup::new();
    let mut client = setup.client();
    setup.proxy.reset_after_request_with(b"INCR");
    client.command(&["SET", "other", "v"]);
    assert_reset(&client.try_command(&["INCR", "n"]).unwrap_err());
    assert_eq!(setup.value("n"), "1");
    let mut client = setup.client();
    assert_eq!(client.command(&["INCR", "n"]).int(), 2);
    setup.proxy.reset_after_request();
    assert_reset(&client.try_command(&["INCR", "n"]).unwrap_err());
    assert_eq!(setup.value("n"), "3");
}

#[test]
fn cuts_a_request_in_the_middle() {
    let mut setup = Setup::new();
    let mut client = setup.client();
    setup.proxy.cut_request_after(15);
    assert_reset(&client.try_command(&["SET", "k", "v"]).unwrap_err());
    assert_eq!(setup.value("k"), "nothing");
    setup.client().command(&["SET", "k", "v"]);
}

#[test]
fn cuts_a_dribbled_stream_after_the_first_request() {
    let mut setup = Setup::new();
    let mut client = setup.client();
    setup.proxy.hold_requests();
    setup.proxy.dribble_requests(Duration::from_millis(1));
    let before = setup.proxy.counts().request_chunks;
    setup
        .proxy
        .cut_request_after("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n".len());
    for (number, value) in [(1, "v"), (2, "w")] {
        client.send(&["SET", "k", value]).unwrap();
        let arrived = before + number;
        assert!(
            setup
                .proxy
                .wait_for(SOON, |now| now.request_chunks == arrived)
        );
    }
    setup.proxy.release_requests();
    assert!(setup.proxy.wait_for(SOON, |now| now.open_connections == 0));
    assert!(eventually(SOON, || setup.value("k") == "v"));
}

#[test]
fn refuses_new_connections_only() {
    let setup = Setup::new();
    let mut old = setup.client();
    setup.proxy.refuse();
    old.command(&["PING"]);
    let refused = RespClient::try_connect(setup.proxy.addr());
    assert!(refused.is_err() || refused.unwrap().try_command(&["PING"]).is_err());
    setup.proxy.accept();
    setup.client();
}

#[test]
fn rewrites_replies() {
    let setup = Setup::new();
    let mut client = setup.client();
    setup
        .proxy
        .rewrite_replies(b"redis_version:7", b"redis_version:5");
    let info = client.command(&["INFO", "server"]);
    assert!(info.text().contains("redis_version:5."));
}

#[test]
fn closes_connections_while_the_target_is_down() {
    let unused: SocketAddr = (Ipv4Addr::LOCALHOST, 1).into();
    let proxy = Proxy::start(unused);
    // The connection may be closed before the client has finished connecting.
    let client = RespClient::try_connect(proxy.addr()).ok();
    let answer = client.and_then(|mut client| client.try_command(&["PING"]).ok());
    assert_eq!(answer, None);
    let server = RedisServer::start();
    proxy.set_target(server.addr());
    RespClient::connect(proxy.addr()).command(&["PING"]);
}

#[test]
fn forwards_the_end_of_the_server_connection() {
    let setup = Setup::new();
    let mut client = setup.client();
    setup.server.kill();
    let error = client.receive().unwrap_err();
    assert_ne!(error, TIMED_OUT);
    setup.server.restart();
    setup.client();
}

#[test]
fn a_dropped_proxy_closes_its_connections() {
    let setup = Setup::new();
    let mut client = setup.client();
    let addr = setup.proxy.addr();
    drop(setup.proxy);
    assert_reset(&client.receive().unwrap_err());
    assert!(RespClient::try_connect(addr).is_err());
}

#[track_caller]
fn assert_reset(error: &str) {
    let kinds = ["reset by peer", "Broken pipe"];
    assert!(kinds.iter().any(|kind| error.contains(kind)), "{error}");
}

#[test]
fn a_stranded_request_arrives_after_those_of_a_later_connection() {
    let mut setup = Setup::new();
    let mut client = setup.client();
    setup.proxy.hold_requests();
    client.send(&["SET", "k", "late"]).unwrap();
    thread::sleep(A_WHILE);
    setup.proxy.strand();
    assert!(client.receive().is_err(), "its side is dead");
    setup.proxy.release_requests();
    setup.client().command(&["SET", "k", "early"]);
    thread::sleep(A_WHILE);
    assert_eq!(setup.value("k"), "early");
    setup.proxy.land();
    assert!(eventually(SOON, || setup.value("k") == "late"));
}

/// Another server replaces the first one on an open connection, which keeps its name and protocol and
/// gets each reply from the server that received the request.
#[test]
fn an_open_connection_is_moved_to_another_server() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    one.client().command(&["SET", "who", "one"]);
    two.client().command(&["SET", "who", "two"]);
    let proxy = Proxy::start_swappable(one.addr());
    let mut client = RespClient::connect(proxy.addr());
    client.command(&["CLIENT", "SETNAME", "kept"]);
    assert_eq!(client.command(&["GET", "who"]).text(), "one");
    for (server, who) in [(&two, "two"), (&one, "one"), (&two, "two")] {
        assert_eq!(proxy.swap_target(server.addr()), 1);
        assert_eq!(client.command(&["GET", "who"]).text(), who);
        assert_eq!(client.command(&["CLIENT", "GETNAME"]).text(), "kept");
    }
    // The first server may die: no connection uses it any more.
    one.kill();
    assert_eq!(client.command(&["GET", "who"]).text(), "two");
    assert_eq!(proxy.counts().connections, 1);
    two.kill();
    assert!(client.try_command(&["PING"]).is_err());
}

/// No request in flight is lost or answered by the wrong server.
#[test]
fn a_connection_is_moved_between_two_commands() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::start_swappable(one.addr());
    let working = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let addr = proxy.addr();
                scope.spawn(move || {
                    let mut client = RespClient::connect(addr);
                    let key = format!("n{number}");
                    for _ in 0..300 {
                        client.command(&["INCR", &key]);
                    }
                })
            })
            .collect();
        for round in 0..6 {
            thread::sleep(Duration::from_millis(5));
            proxy.swap_target(if round % 2 == 0 {
                two.addr()
            } else {
                one.addr()
            });
        }
        workers.into_iter().all(|worker| worker.join().is_ok())
    });
    assert!(working, "a client noticed");
    for number in 0..4 {
        let key = format!("n{number}");
        let count = |server: &RedisServer| {
            let reply = server.client().command(&["GET", &key]);
            if reply.is_nil() {
                0
            } else {
                reply.text().parse::<u64>().unwrap()
            }
        };
        assert_eq!(count(&one) + count(&two), 300);
    }
}

#[test]
fn a_swap_resets_subscribers_and_clients_with_pending_requests() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::start_swappable(one.addr());
    let mut listener = RespClient::connect(proxy.addr());
    listener.command(&["SUBSCRIBE", "news"]);
    let mut buyer = RespClient::connect(proxy.addr());
    buyer.command(&["MULTI"]);
    let mut other = RespClient::connect(proxy.addr());
    other.command(&["PING"]);
    assert_eq!(proxy.swap_target(two.addr()), 1);
    assert!(listener.try_command(&["PING"]).is_err());
    assert!(buyer.try_command(&["EXEC"]).is_err());
    other.command(&["PING"]);
}

#[test]
fn translations_stay_when_faults_are_healed() {
    let setup = Setup::new();
    setup
        .proxy
        .translate_replies(b"redis_version:7", b"redis_version:5");
    setup.proxy.heal();
    let info = setup.client().command(&["INFO", "server"]);
    assert!(info.text().contains("redis_version:5"));
}

/// No request may pass between the end of a fault and the reset of its connections: its reply would be
/// taken for the reply to a dropped request.
#[test]
fn nobody_gets_the_reply_to_another_request_when_dropping_ends() {
    let setup = Setup::new();
    let addr = setup.proxy.addr();
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..24)
            .map(|client| {
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let mut connection = RespClient::connect(addr);
                        connection.set_timeout(Duration::from_millis(20));
                        // A client without a reply in time keeps sending, as on a shared connection:
                        // the next reply belongs to the first request.
                        let mut unanswered = 0;
                        for number in 0..1_000 {
                            if connection.send(&["ECHO", &number.to_string()]).is_err() {
                                break;
                            }
                            if let Ok(reply) = connection.receive() {
                                assert_eq!(reply.text(), unanswered.to_string(), "{client}");
                                unanswered += 1;
                            } else if number > unanswered + 2 {
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        for _ in 0..40 {
            setup.proxy.drop_requests();
            thread::sleep(Duration::from_millis(22));
            setup.proxy.stop_dropping();
            thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
    });
}
