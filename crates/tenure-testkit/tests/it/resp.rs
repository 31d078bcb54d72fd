//! The kit's own client.

use tenure_testkit::{RedisServer, Reply, RespClient};

use crate::{A_WHILE, SOON};

#[test]
fn understands_every_kind_of_reply() {
    let server = RedisServer::start();
    let mut client = server.client();
    assert_eq!(client.command(&["SET", "k", "v"]), Reply::Text("OK".into()));
    assert_eq!(client.command(&["GET", "k"]).text(), "v");
    assert!(client.command(&["GET", "none"]).is_nil());
    assert_eq!(client.command(&["INCR", "n"]).int(), 1);
    assert_eq!(client.command(&["GET", "n"]).int(), 1);
    client.command(&[b"SET".as_slice(), b"raw", b"\xff\r\n\x00"]);
    let raw = client.command(&["GET", "raw"]);
    assert_eq!(raw, Reply::Bytes(b"\xff\r\n\x00".to_vec()));
    let nested = client.command(&["EVAL", "return {1, {'a', false}, 'b'}", "0"]);
    let inner = Reply::Array(vec![Reply::Text("a".into()), Reply::Nil]);
    let expected = [Reply::Int(1), inner, Reply::Text("b".into())];
    assert_eq!(nested.array(), expected);
    let error = client.try_command(&["LPUSH", "k", "x"]).unwrap_err();
    assert!(error.starts_with("WRONGTYPE"), "{error}");
}

#[test]
#[should_panic(expected = "`LPUSH k x` at")]
fn an_error_reply_fails_the_test() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.command(&["SET", "k", "v"]);
    client.command(&["LPUSH", "k", "x"]);
}

#[test]
fn receives_published_messages() {
    let server = RedisServer::start();
    let mut subscriber = RespClient::connect(server.addr());
    subscriber.subscribe(&["a", "b"]);
    assert_eq!(subscriber.next_message(A_WHILE), None);
    assert_eq!(server.client().command(&["PUBLISH", "b", "hello"]).int(), 1);
    let message = subscriber.next_message(SOON).unwrap();
    assert_eq!((&*message.channel, &*message.payload), ("b", "hello"));
}
