use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use tenure_testkit::eventually;

use super::locks::SOON;
use super::sockets::{address, request};
use super::{Answer, Service};

/// A connection that asks for something, and the first line of the response. It stays open.
fn ask(service: &Service, path: &str, from: &str) -> (TcpStream, String) {
    let mut stream = request(service, path, from, None);
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    (stream, String::from_utf8_lossy(&first).into_owned())
}

/// Not held against the document of the service, for which there may be no connection.
fn get(service: &Service, path: &str) -> Answer {
    service.send_unchecked("GET", path, &[], "")
}

#[tenure_testkit::test]
fn one_address_leaves_connections_to_others_and_to_health_checks() {
    let service = Service::start(&["--max-connections", "20"]);
    let asked: Vec<_> = (0..40)
        .map(|_| ask(&service, "/api/v1/events", "127.0.0.1"))
        .collect();
    let count = |status: &str| {
        asked
            .iter()
            .filter(|(_, first)| first.ends_with(status))
            .count()
    };
    assert_eq!(
        (count(" 200"), count(" 429")),
        (15, 25),
        "three quarters of the places"
    );
    get(&service, "/livez").is(200);
    get(&service, "/readyz").is(200);
    let refused = get(&service, "/api/v1/locks");
    refused.is_problem(429, "too_many");
    assert_eq!(refused.header("retry-after"), "1");
    let others: Vec<_> = (0..6)
        .map(|_| ask(&service, "/api/v1/events", "127.0.0.2"))
        .collect();
    let served = others.iter().filter(|(_, first)| first.ends_with(" 200"));
    assert_eq!(served.count(), 5);
    get(&service, "/livez").is(200);
    drop((asked, others));
    assert!(eventually(SOON, || get(&service, "/api/v1/locks").status == 200));
}

#[tenure_testkit::test]
fn a_share_can_be_chosen() {
    let limits = [
        "--max-connections",
        "20",
        "--max-connections-per-address",
        "2",
    ];
    let service = Service::start(&limits);
    let asked = [(); 3].map(|()| ask(&service, "/api/v1/events", "127.0.0.1"));
    let firsts = asked.each_ref().map(|(_, first)| first.as_str());
    assert_eq!(firsts, ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 429"]);
}

/// More than there are places and the reserve together.
#[tenure_testkit::test]
fn connections_that_say_nothing_do_not_keep_a_health_check_waiting() {
    let service = Service::start(&["--max-connections", "20"]);
    let idle: Vec<TcpStream> = (0..600)
        .map(|_| TcpStream::connect_timeout(&address(&service), SOON).unwrap())
        .collect();
    let (_, first) = ask(&service, "/livez", "127.0.0.1");
    assert_eq!(first, "HTTP/1.1 200");
    drop(idle);
}

#[tenure_testkit::test]
fn a_connection_that_is_no_longer_used_is_closed() {
    let service = Service::start(&[]);
    let (mut stream, first) = ask(&service, "/livez", "127.0.0.1");
    assert_eq!(first, "HTTP/1.1 200");
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
}
