//! Recording histories, reading them back, and inspecting a server afterwards.

use std::fs::OpenOptions;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use tenure_testkit::history::{Event, Fault, Mode, Op, Outcome, now_ns, until_ns};
use tenure_testkit::{FencedRegister, History, Nemesis, Recorder, RedisServer, check};

#[test]
fn records_are_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (
        Recorder::create(dir.path(), 1),
        Recorder::create(dir.path(), 2),
    );
    let nemesis = Nemesis::create(dir.path());
    let name = "odd\tname\n% ü";

    let call = one.acquire(7, name).mode(Mode::Shared);
    let until = until_ns(|| Duration::from_secs(1));
    let hold = call.granted(Some(42), until);
    let fault = nemesis.pause_client(2);
    drop(two.acquire(8, name));
    fault.end(true);
    one.release(7, name, hold, until).end(Outcome::Released);
    two.lost(8, name, 5);

    let history = History::load(dir.path());
    let seen: Vec<_> = history.events.iter().map(|e| (e.op, e.outcome)).collect();
    assert_eq!(
        seen,
        [
            (Op::Acquire, Outcome::Granted),
            (Op::Acquire, Outcome::Cancelled),
            (Op::Releasing, Outcome::Done),
            (Op::Release, Outcome::Released),
            (Op::Lost, Outcome::Done),
        ]
    );
    let Event {
        call_ns, return_ns, ..
    } = history.events[0];
    assert!(call_ns <= return_ns && return_ns < now_ns());
    let expected = Event {
        client: 1,
        task: 7,
        op: Op::Acquire,
        mode: Mode::Shared,
        lock: name.into(),
        hold,
        call_ns,
        return_ns,
        outcome: Outcome::Granted,
        fence: Some(42),
        believed_until_ns: Some(until),
    };
    assert_eq!(history.events[0], expected);
    assert_eq!(history.events[2].believed_until_ns, Some(until));
    assert_eq!(history.faults[0].kind, Fault::PAUSE_CLIENT);
    assert_eq!(history.faults[0].client, Some(2));
    assert_eq!(history.effective_faults(), 1);
    assert_eq!(history.count(Op::Acquire, Outcome::Granted), 1);
}

#[test]
fn an_unfinished_line_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(dir.path(), 1);
    recorder.lost(1, "a", 1);
    let path = dir.path().join("client-1.events");
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"1\t1\tacq").unwrap();
    assert_eq!(History::load(dir.path()).events.len(), 1);
}

#[test]
#[should_panic(expected = "client-1.events`:2: `nonsense`")]
fn a_damaged_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    Recorder::create(dir.path(), 1).lost(1, "a", 1);
    let path = dir.path().join("client-1.events");
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"nonsense\n").unwrap();
    History::load(dir.path());
}

#[test]
fn a_hundred_thousand_events_are_recorded_and_checked_in_seconds() {
    const PER_CLIENT: u64 = 25_000;
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for client in 0..2 {
            let recorder = Recorder::create(dir.path(), client);
            scope.spawn(move || record_rounds(&recorder, client, PER_CLIENT));
        }
    });
    let recorded = start.elapsed();
    let history = History::load(dir.path());
    assert_eq!(history.events.len() as u64, 2 * 3 * PER_CLIENT);
    check::assert_none(&check::exclusion(&history));
    check::assert_none(&check::fences(&history));
    check::assert_none(&check::loss(&history, Duration::ZERO));
    println!("recorded in {recorded:?}, all in {:?}", start.elapsed());
    // It takes two or three; a crowded machine may need ten times that.
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// Each client has its own locks, so nothing is ever violated.
fn record_rounds(recorder: &Recorder, client: u64, rounds: u64) {
    for round in 0..rounds {
        let lock = format!("{client}-{}", round % 100);
        let call = recorder.acquire(0, &lock);
        let until = until_ns(|| Duration::from_secs(1));
        let hold = call.granted(Some(round), until);
        let release = recorder.release(0, &lock, hold, until);
        release.end(Outcome::Released);
    }
}

#[test]
fn keys_that_never_expire_are_found() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.command(&["SET", "lock:a", "v", "PX", "10000"]);
    client.command(&["SET", "lock:b", "v"]);
    client.command(&["SET", "lock:fence", "7"]);
    client.command(&["SET", "other", "v"]);
    let found = check::immortal_keys(&mut client, "lock:*", |key| key.ends_with("fence"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].subject, "lock:b");
}

#[test]
fn owners_without_a_guard_are_found() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.command(&["HSET", "lock:a", "owner", "alice"]);
    client.command(&["HSET", "lock:b", "owner", "bob"]);
    client.command(&["HSET", "lock:c", "fence", "7"]);
    let found = check::orphans(
        &mut client,
        "lock:*",
        |client, key| match client.command(&["HGET", key, "owner"]) {
            reply if reply.is_nil() => None,
            reply => Some(reply.text().into()),
        },
        |owner| owner == "alice",
    );
    assert_eq!(found.len(), 1);
    assert!(found[0].to_string().contains("owner `bob`"), "{}", found[0]);
}

#[test]
fn a_register_shared_by_threads_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // The lock under test: each holder gets the next fence without waiting for another.
    let fences = std::sync::atomic::AtomicU64::new(1);
    let accepted: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|client| {
                let register = FencedRegister::open(dir.path());
                let recorder = Recorder::create(dir.path(), client);
                let fences = &fences;
                scope.spawn(move || {
                    let tries = (0..100).map(|_| {
                        let call = recorder.acquire(0, "a");
                        let fence = fences.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        call.granted(Some(fence), u64::MAX);
                        register.increment(client, fence, || {})
                    });
                    tries.flatten().count()
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    });
    let register = FencedRegister::open(dir.path());
    let (journal, history) = (register.journal(), History::load(dir.path()));
    check::assert_none(&check::resource(&journal, &history, 0));
    let last = register.read(0, u64::MAX).unwrap();
    assert_eq!(usize::try_from(last).unwrap(), accepted);
}

#[test]
#[should_panic(expected = "held twice: `a`")]
fn violations_fail_a_test_readably() {
    let dir = tempfile::tempdir().unwrap();
    for client in 1..=2 {
        let recorder = Recorder::create(dir.path(), client);
        recorder.acquire(0, "a").granted(None, u64::MAX);
    }
    check::assert_none(&check::exclusion(&History::load(dir.path())));
}
