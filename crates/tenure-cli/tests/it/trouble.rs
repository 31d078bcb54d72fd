//! What is wrong with a command line, a URL, a server: the message and the exit code.

use std::net::TcpListener;
use std::time::Duration;

use tenure_testkit::RedisServer;

use crate::command::{run, tenure};

#[tenure_testkit::test]
fn a_wrong_command_line_ends_with_64() {
    let cases: [(&[&str], &str); 5] = [
        (&["demmo"], "unrecognized subcommand 'demmo'"),
        (&["demo", "--stock", "0"], "0 is not in 1..=1000000"),
        (&["demo", "--buyers", "-3"], "--buyers"),
        (&["demo", "--clients", "65"], "65 is not in 1..=64"),
        (&["demo", "--stock", "many"], "invalid value 'many'"),
    ];
    for (arguments, told) in cases {
        let ended = run(&mut tenure(arguments));
        ended.ended_with(64);
        assert!(ended.stderr.starts_with("tenure: "), "{ended}");
        ended.complains(told);
        assert_eq!(ended.stdout, "");
    }
}

#[tenure_testkit::test]
fn an_argument_that_is_none_is_told_without_its_password() {
    let ended = run(&mut tenure(&["demo", "redis://:secret@h/"]));
    ended.ended_with(64);
    ended.complains("unrecognized subcommand");
    ended.keeps("secret");
}

#[tenure_testkit::test]
fn a_wrong_url_ends_with_78_and_is_told_without_its_password() {
    for url in [
        "http://me:secret@h/",
        "redis://:secret@h:port/",
        "redis://h/?pass=secret&x=1",
    ] {
        let ended = run(tenure(&["demo"]).env("TENURE_URL", url));
        ended.ended_with(78);
        ended.complains("tenure: cannot run the demo on `");
        ended.complains("`: invalid URL `");
        ended.keeps("secret");
    }
}

#[tenure_testkit::test]
fn a_password_on_the_command_line_is_refused_before_anything_is_done() {
    let url = "redis://:secret@127.0.0.1:1/";
    for command in ["demo", "demo pitfalls", "sale item ls"] {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.extend(["--url", url]);
        let ended = run(&mut tenure(&arguments));
        ended.ended_with(64);
        ended.complains("tenure: refusing the password in `redis://***@127.0.0.1:1/`: other users");
        ended.complains("put the URL into TENURE_URL");
        ended.keeps("secret");
    }
}

#[tenure_testkit::test]
fn an_unreachable_server_ends_with_69_before_long() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port.local_addr().unwrap().port();
    let url = format!("redis://:secret@127.0.0.1:{port}/");
    let ended = run(tenure(&["demo"]).env("TENURE_URL", &url));
    ended.ended_with(69);
    ended.complains(&format!("127.0.0.1:{port}"));
    ended.keeps("secret");
    assert!(ended.took < Duration::from_secs(7), "{ended}");
}

#[tenure_testkit::test]
fn a_wrong_password_ends_with_77_and_is_not_told() {
    let server = RedisServer::builder().password("right").start();
    let url = format!("redis://:wrong@{}/", server.addr());
    let ended = run(tenure(&["demo"]).env("TENURE_URL", &url));
    ended.ended_with(77);
    ended.keeps("wrong@");
    ended.keeps("right");
}

/// It would not be there in five seconds either.
#[tenure_testkit::test]
fn a_server_that_refuses_connections_is_told_at_once() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("redis://{port}");
    for arguments in [
        &["ls"][..],
        &["show", "n"],
        &["is-locked", "n"],
        &["acquire", "n"],
        &["leader", "n"],
        &["force-unlock", "n", "id", "--force"],
    ] {
        let ended = run(tenure(arguments).env("TENURE_URL", &url));
        ended.ended_with(69);
        ended.complains(&format!("`{url}`"));
        ended.complains("connection refused");
        assert!(
            ended.took < Duration::from_secs(4),
            "{arguments:?}: {ended}"
        );
    }
}
