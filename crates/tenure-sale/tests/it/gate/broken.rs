//! What a broken, full or foreign server does to the gate, and what not.

use std::error::Error as _;
use std::time::{Duration, Instant};

use tenure_sale::gate::{Gate, Wanted};
use tenure_sale::ledger::What;
use tenure_sale::{Error, ErrorKind, ItemState, Outcome, Terms};
use tenure_testkit::{Proxy, RedisServer};

use super::stage::{Stage, load, ms};

const KEYS: [&str; 4] = ["gate", "buyers", "answers", "orders"];

/// An item with a limit and an order, on a server of its own.
async fn begun(server: &RedisServer) -> Stage {
    let stage = Stage::at(server.url()).await;
    let terms = Terms {
        limit_per_buyer: Some(5),
        ..Terms::default()
    };
    stage.load(load(1, Some(10), terms)).await;
    stage.order("ann", "r1").await;
    stage
}

/// All that the server knows of an item.
fn content(server: &RedisServer, stage: &Stage) -> Vec<String> {
    let mut redis = server.client();
    let dump = |key: &str| format!("{:?}", redis.command(&["DUMP", &stage.key(key)]));
    KEYS.into_iter().map(dump).collect()
}

#[tenure_testkit::test]
async fn a_key_of_another_type_stops_the_sale_and_nothing_is_half_done() {
    for wrong in KEYS {
        let server = RedisServer::start();
        let stage = begun(&server).await;
        let key = stage.key(wrong);
        let mut redis = server.client();
        let dump = redis.command(&["RENAME", &key, "elsewhere"]);
        assert_eq!(dump.text(), "OK");
        redis.command(&["SET", &key, "mine"]);
        let before = content(&server, &stage);
        let asking = stage.gate.ask(&stage.request("bob", "r1")).await;
        let error = asking.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{wrong}");
        let taking = stage.gate.take(&stage.item, &withdrawal()).await;
        // A withdrawal has no buyer.
        assert_eq!(taking.is_err(), wrong != "buyers", "{wrong}");
        if wrong != "buyers" {
            assert_eq!(content(&server, &stage), before, "{wrong}");
        }
        redis.command(&["RENAME", "elsewhere", &key]);
        stage.order("bob", "r1").await;
    }
}

#[tenure_testkit::test]
async fn numbers_that_are_none_stop_the_sale() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    let mut redis = server.client();
    for (key, field) in [
        ("gate", "left"),
        ("gate", "order_max"),
        ("gate", "backlog_max"),
        ("gate", "limit"),
        ("buyers", "bob"),
        ("answers", "bob\nr1"),
    ] {
        let key = stage.key(key);
        let good = redis.command(&["HGET", &key, field]);
        for wrong in ["many", "-1", "1.5", "1e3", "99999999999999999999"] {
            redis.command(&["HSET", &key, field, wrong]);
            let before = content(&server, &stage);
            let asking = stage.gate.ask(&stage.request("bob", "r1")).await;
            assert!(asking.is_err(), "{field} {wrong}");
            assert_eq!(content(&server, &stage), before);
        }
        if good.is_nil() {
            redis.command(&["HDEL", &key, field]);
        } else {
            redis.command(&["HSET", &key, field, good.text()]);
        }
    }
    stage.order("bob", "r1").await;
}

#[tenure_testkit::test]
async fn a_full_server_accepts_nothing_and_says_so() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    let before = content(&server, &stage);
    server.fill_memory();
    let error = stage
        .gate
        .ask(&stage.request("bob", "r1"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("nothing was ordered"), "{error}");
    assert_eq!(source_kind(&error), tenure::ErrorKind::OutOfMemory);
    assert!(stage.gate.take(&stage.item, &withdrawal()).await.is_err());
    assert_eq!(content(&server, &stage), before);
    server.free_memory();
    stage.order("bob", "r1").await;
}

#[tenure_testkit::test]
async fn a_deposed_master_accepts_nothing_and_must_be_loaded_again() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let stage = begun(&server).await;
    let mut redis = server.client();
    let port = other.port().to_string();
    // A master that never answers, so that nothing is replaced.
    other.pause();
    redis.command(&["REPLICAOF", "127.0.0.1", &port]);
    assert!(stage.gate.ask(&stage.request("bob", "r1")).await.is_err());
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    // The same process with the same data, and yet: others may have been the master meanwhile.
    assert_eq!(stage.ask("bob", "r1").await, Outcome::StaleEpoch);
    stage.load(load(2, Some(9), Terms::default())).await;
    stage.order("bob", "r1").await;
    other.resume();
}

/// A queue that runs out of numbers in the middle of requests that travel together: those that it
/// took are orders like any others, and the rest changed nothing.
#[tenure_testkit::test]
async fn a_queue_that_refuses_in_the_middle_leaves_no_half_order() {
    let server = RedisServer::start();
    let stage = Stage::at(server.url()).await;
    let terms = Terms {
        limit_per_buyer: Some(5),
        ..Terms::default()
    };
    stage.load(load(1, Some(100), terms)).await;
    let mut redis = server.client();
    let last = format!("1-{}", u64::MAX - 7);
    redis.command(&["XSETID", &stage.key("orders"), &last]);
    let asking = (0..40).map(|n| {
        let (gate, request) = (stage.gate.clone(), stage.request("ann", &format!("r{n}")));
        let request = if n < 30 {
            stage.request(&format!("buyer-{n}"), "r")
        } else {
            request
        };
        tokio::spawn(async move { (gate.ask(&request).await.is_ok(), request) })
    });
    let asking: Vec<_> = asking.collect();
    let mut requests = Vec::new();
    for asked in asking {
        requests.push(asked.await.unwrap().1);
    }
    // What became of them: an order that is in the queue is known, and no other is.
    let mut orders = 0;
    for request in &requests {
        match stage.gate.ask(request).await {
            Ok(answer) => {
                assert!(matches!(answer.outcome, Outcome::Replayed(_)), "{answer:?}");
                orders += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Store),
        }
    }
    assert_eq!(orders, 7);
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.queued, standing.left), (7, Some(93)));
    // Without the mark.
    redis.command(&["HDEL", &stage.key("buyers"), "\n"]);
    let quotas = redis.command(&["HVALS", &stage.key("buyers")]);
    let quotas = quotas
        .array()
        .iter()
        .map(|units| units.text().parse::<u64>().unwrap());
    assert_eq!(quotas.sum::<u64>(), 7);
}

#[tenure_testkit::test]
async fn scripts_are_known_again_after_a_flush() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    for n in 0..3 {
        server.script_flush();
        stage.order("bob", &format!("r{n}")).await;
    }
    assert_eq!(stage.left().await, Some(6));
}

#[tenure_testkit::test]
async fn a_server_that_is_busy_with_a_script_accepts_nothing() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    server.set_config("busy-reply-threshold", "50");
    let busy = server.busy_script(60_000);
    tokio::time::sleep(ms(200)).await;
    assert!(stage.gate.ask(&stage.request("bob", "r1")).await.is_err());
    server.client().command(&["SCRIPT", "KILL"]);
    let _ = busy.wait();
    assert_eq!(stage.left().await, Some(9));
    stage.order("bob", "r1").await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_unknown_and_asking_again_finds_the_order() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let stage = Stage::at(proxy.url()).await;
    stage.load(load(1, Some(500), Terms::default())).await;
    stage.order("warm", "up").await;
    proxy.reset_after_request_with(b"EVALSHA");
    let request = stage.request("ann", "r1");
    let error = stage.gate.ask(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("same request id"), "{error}");
    assert_eq!(source_kind(&error), tenure::ErrorKind::Unavailable);
    let outcome = stage.gate.ask(&request).await.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Replayed(_)), "{outcome:?}");

    // The same with many at once: all get the error, and no unit is lost.
    proxy.reset_after_request_with(b"EVALSHA");
    let asking = (0..300).map(|buyer| {
        let gate = stage.gate.clone();
        let request = stage.request(&format!("buyer-{buyer}"), "r1");
        tokio::spawn(async move {
            loop {
                if let Ok(answer) = gate.ask(&request).await {
                    return answer.outcome.order().cloned().unwrap();
                }
            }
        })
    });
    let mut orders = std::collections::BTreeSet::new();
    for order in asking.collect::<Vec<_>>() {
        assert!(orders.insert(order.await.unwrap()));
    }
    assert_eq!(orders.len(), 300);
    assert_eq!(stage.left().await, Some(500 - 2 - 300));
}

#[tenure_testkit::test]
async fn a_dead_server_is_an_error_in_time_and_comes_back_stale() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    server.kill();
    let began = Instant::now();
    let (gate, request) = (stage.gate.clone(), stage.request("bob", "r1"));
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let (gate, request) = (gate.clone(), request.clone());
            tokio::spawn(async move { gate.ask(&request).await })
        })
        .collect();
    for asked in asking {
        assert_eq!(asked.await.unwrap().unwrap_err().kind(), ErrorKind::Store);
    }
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let reading = stage.gate.read(&stage.item, "c", 9, ms(100)).await;
    assert_eq!(reading.unwrap_err().kind(), ErrorKind::Store);
    server.restart_empty();
    for _ in 0..200 {
        match stage.gate.ask(&stage.request("bob", "r1")).await {
            Ok(answer) => return assert_eq!(answer.outcome, Outcome::NoItem),
            Err(_) => tokio::time::sleep(ms(50)).await,
        }
    }
    panic!("it does not come back");
}

/// Requests that wait while others are under way travel in one call: there, too, the second of two
/// finds the first, and a buyer's limit and the stock count for both.
#[tenure_testkit::test]
async fn requests_that_travel_together_are_answered_one_after_the_other() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let stage = Stage::at(proxy.url()).await;
    let terms = Terms {
        limit_per_buyer: Some(2),
        backlog_max: 12,
        ..Terms::default()
    };
    stage.load(load(1, Some(11), terms)).await;
    stage.order("warm", "up").await;
    let ask = |buyer: String, id: String| {
        let (gate, request) = (stage.gate.clone(), stage.request(&buyer, &id));
        tokio::spawn(async move { gate.ask(&request).await.unwrap().outcome })
    };
    proxy.hold_requests();
    let mut asking: Vec<_> = (0..4)
        .map(|n| ask(format!("b{n}"), "r".to_owned()))
        .collect();
    tokio::time::sleep(ms(100)).await;
    asking.extend((0..9).map(|_| ask("ann".to_owned(), "same".to_owned())));
    asking.extend((0..9).map(|n| ask("eve".to_owned(), format!("r{n}"))));
    asking.extend((0..9).map(|n| ask(format!("c{n}"), "r".to_owned())));
    tokio::time::sleep(ms(100)).await;
    proxy.release_requests();
    let mut outcomes = Vec::new();
    for asked in asking {
        outcomes.push(asked.await.unwrap());
    }
    let count = |outcomes: &[Outcome], wanted: fn(&Outcome) -> bool| {
        outcomes.iter().filter(|outcome| wanted(outcome)).count()
    };
    let accepted = |outcome: &Outcome| matches!(outcome, Outcome::Accepted(_));
    assert_eq!(count(&outcomes[..4], accepted), 4);
    assert_eq!(count(&outcomes[4..13], accepted), 1);
    let replayed = |outcome: &Outcome| matches!(outcome, Outcome::Replayed(_));
    assert_eq!(count(&outcomes[4..13], replayed), 8);
    assert_eq!(count(&outcomes[13..22], accepted), 2);
    assert_eq!(
        count(&outcomes[13..22], |it| *it == Outcome::LimitReached),
        7
    );
    assert_eq!(count(&outcomes[22..], accepted), 3);
    assert_eq!(count(&outcomes[22..], |it| *it == Outcome::SoldOut), 6);
    assert_eq!(stage.left().await, Some(0));
    let calls = server.command_calls("evalsha");
    assert!(calls < 12, "{calls} calls for 31 requests");
}

#[tenure_testkit::test]
async fn a_queue_that_was_deleted_is_not_begun_again_under_the_same_epoch() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    server.client().command(&["DEL", &stage.key("orders")]);
    let before = content(&server, &stage);
    assert_eq!(stage.ask("bob", "r1").await, Outcome::StaleEpoch);
    assert_eq!(content(&server, &stage), before);
    stage.load(load(2, Some(9), Terms::default())).await;
    assert_eq!(stage.order("bob", "r1").await.epoch(), 2);
}

#[tenure_testkit::test]
async fn a_group_that_was_destroyed_begins_again_at_the_oldest() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    let destroy = || {
        server
            .client()
            .command(&["XGROUP", "DESTROY", &stage.key("orders"), "ledger"])
    };
    assert_eq!(stage.read(9).await.len(), 1);
    destroy();
    assert_eq!(stage.read(9).await.len(), 1);
    destroy();
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.queued, standing.pending), (1, 0));
    let claimed = stage.gate.claim(&stage.item, "c", Duration::ZERO, 9).await;
    assert!(claimed.unwrap().is_empty(), "nobody was handed it");
    assert_eq!(stage.read(9).await.len(), 1);
    // While somebody waits.
    let (gate, item) = (stage.gate.clone(), stage.item.clone());
    let waiting = tokio::spawn(async move { gate.read(&item, "c", 9, ms(10_000)).await });
    tokio::time::sleep(ms(100)).await;
    destroy();
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
}

#[tenure_testkit::test]
async fn entries_of_others_are_kept_with_the_reason() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    assert_eq!(stage.read(9).await.len(), 1);
    let mut redis = server.client();
    let mut add = |id: &str, fields: &[&str]| {
        let key = stage.key("orders");
        let command = [&["XADD", &key, id], fields].concat();
        redis.command(&command);
    };
    add("1-5", &["foo", "bar"]);
    add(
        "1-6",
        &["buyer", "b", "request", "r", "units", "none", "at", "1"],
    );
    add("1-7", &["buyer", "b", "request", "r", "units", "1"]);
    add(
        "1-8",
        &["again", "no order", "buyer", "b", "units", "1", "at", "1"],
    );
    add(
        "1-9",
        &["buyer", "b", "request", "r", "units", "0", "at", "1"],
    );
    let read = stage.read(9).await;
    let reasons: Vec<_> = read
        .iter()
        .map(|entry| entry.what.clone().unwrap_err())
        .collect();
    assert_eq!(reasons.len(), 5);
    assert!(reasons[1].contains("`units`"), "{reasons:?}");
    assert!(reasons[2].contains("`at`"), "{reasons:?}");
    for entry in &read {
        stage
            .gate
            .bury(&stage.item, &entry.id, "no order")
            .await
            .unwrap();
    }
    let dead = stage.gate.dead(&stage.item, 9).await.unwrap();
    assert_eq!(dead.len(), 5);
    assert_eq!(dead[0].0, read[0]);
    assert_eq!(stage.order("bob", "r1").await.number(), 10);
    assert_eq!(stage.gate.queued_units(&stage.item).await.unwrap(), 2);
}

#[tenure_testkit::test]
async fn a_queue_with_the_id_of_a_later_epoch_cannot_be_loaded() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    server
        .client()
        .command(&["XADD", &stage.key("orders"), "7-0", "foo", "bar"]);
    assert!(stage.gate.ask(&stage.request("bob", "r1")).await.is_err());
    assert_eq!(stage.left().await, Some(9));
    for epoch in [2, 7] {
        let beginning = stage
            .gate
            .begin_load(&stage.item, epoch, tenure::Fence::new(2), 1);
        let error = beginning.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("`7-0`"), "{error}");
    }
    stage.load(load(8, Some(9), Terms::default())).await;
    stage.order("bob", "r1").await;
}

#[tenure_testkit::test]
async fn an_entry_that_was_deleted_is_not_claimed() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    stage.order("bob", "r1").await;
    assert_eq!(stage.read(9).await.len(), 2);
    server
        .client()
        .command(&["XDEL", &stage.key("orders"), "1-0"]);
    let claimed = stage
        .gate
        .claim(&stage.item, "c", Duration::ZERO, 9)
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id.number(), 1);
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.queued, standing.pending), (1, 1));
}

#[tenure_testkit::test]
async fn what_a_dropped_reader_was_handed_is_claimed() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    assert_eq!(stage.read(9).await.len(), 1);
    let reading = stage
        .gate
        .read(&stage.item, "gone", 9, Duration::from_secs(30));
    assert!(tokio::time::timeout(ms(100), reading).await.is_err());
    let order = stage.order("bob", "r1").await;
    // The connection of the one that is gone may still get it, or the next reader does.
    let mut seen = stage.gate.read(&stage.item, "c", 9, ms(300)).await.unwrap();
    seen.extend(
        stage
            .gate
            .claim(&stage.item, "c", Duration::ZERO, 9)
            .await
            .unwrap(),
    );
    assert!(seen.iter().any(|entry| entry.id == order), "{seen:?}");
}

#[tenure_testkit::test]
async fn nothing_ends_by_itself_while_the_item_is_on_sale() {
    let server = RedisServer::start();
    let stage = begun(&server).await;
    let mut redis = server.client();
    let mut ttl = |key: &str| redis.command(&["PTTL", &stage.key(key)]).int();
    assert_eq!(KEYS.map(&mut ttl), [-1; 4]);
    stage.tell(1, What::State(ItemState::Paused)).await;
    assert_eq!(KEYS.map(&mut ttl), [-1; 4]);
    stage.tell(2, What::State(ItemState::Closed)).await;
    let [gate, buyers, answers, orders] = KEYS.map(&mut ttl);
    assert_eq!((gate, orders), (-1, -1));
    assert!(
        buyers > 80_000_000 && answers > 80_000_000,
        "{buyers} {answers}"
    );
    stage.tell(3, What::State(ItemState::Open)).await;
    assert_eq!(KEYS.map(&mut ttl), [-1; 4]);
}

#[tenure_testkit::test]
async fn buyers_are_counted_only_where_there_is_a_limit() {
    let server = RedisServer::start();
    let stage = Stage::at(server.url()).await;
    stage.load(load(1, Some(5), Terms::default())).await;
    stage.order("ann", "r1").await;
    let found = server.client().command(&["EXISTS", &stage.key("buyers")]);
    assert_eq!(found.int(), 0);
}

#[tenure_testkit::test]
async fn a_wrong_url_is_an_error() {
    for url in ["memory://a?b", "http://localhost", "redis://"] {
        let error = Gate::connect(url).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::InvalidUrl | ErrorKind::Store),
            "{error}"
        );
    }
    assert!(Gate::connect("memory://").await.unwrap().is_memory());
    let server = RedisServer::start();
    assert!(!Gate::connect(server.url()).await.unwrap().is_memory());
}

fn withdrawal() -> Wanted {
    Wanted::Withdrawal {
        reference: "w1".to_owned(),
        reason: "broken".to_owned(),
        units: 1,
        expected: None,
    }
}

fn source_kind(error: &Error) -> tenure::ErrorKind {
    let source = error.source().unwrap();
    source.downcast_ref::<tenure::Error>().unwrap().kind()
}
