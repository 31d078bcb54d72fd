//! `tenure bench sale`: real instances, and services that lie.

use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::Service;
use super::shop::{Grown, soon};
use crate::command::{Ended, run, tenure};

fn order(urls: &[&str], options: &[&str]) -> Ended {
    let mut command = tenure(&["bench", "sale", "--connections", "16"]);
    for url in urls {
        command.args(["--http", url]);
    }
    run(command.args(options))
}

#[track_caller]
fn report(ended: &Ended, code: i32) -> Value {
    ended.ended_with(code);
    let report = serde_json::from_str(&ended.stdout);
    report.unwrap_or_else(|error| panic!("{error} in {ended}"))
}

#[tenure_testkit::test]
fn two_instances_sell_exactly_what_there_is() {
    let shop = Grown::up();
    let services = [shop.instance(&[]), shop.instance(&[])];
    services[0].stock("sku-7", 300);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answers.ndjson");
    let urls = [services[0].url.as_str(), services[1].url.as_str()];
    let options = ["--item", "sku-7", "--orders", "900", "--rate", "2000"];
    let record = ["--json", "--record", file.to_str().unwrap()];
    let ended = order(&urls, &[&options[..], &record[..]].concat());
    let report = report(&ended, 0);
    assert_eq!(report["orders"], 900, "{report}");
    assert_eq!(report["accepted"], 300, "{report}");
    assert_eq!(report["refused"], json!({"sold_out": 600}), "{report}");
    assert_eq!(report["unknown"], 0, "{report}");
    for instance in report["instances"].as_array().unwrap() {
        assert!(instance["accepted"].as_u64() > Some(0), "{report}");
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = recorded
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 900);
    let orders: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| line["order_id"].as_str())
        .collect();
    assert_eq!(orders.len(), 300);
    // For people, and when everything is sold.
    let ended = order(&urls, &["--item", "sku-7", "--duration", "200ms"]);
    ended.ended_with(0);
    ended.says("accepted             0");
    ended.says("holds   adds up         total 300 = left 0 + queued 0 + sold 300");
}

#[tenure_testkit::test]
fn units_that_come_back_are_no_breach() {
    let service = Service::shop();
    service.stock("sku-7", 60);
    let orders: Vec<String> = (0..20)
        .map(|number| service.ordered("sku-7", &format!("buyer {number}"), "first"))
        .collect();
    let options = [
        "--item", "sku-7", "--orders", "200", "--rate", "100", "--json",
    ];
    let ended = thread::scope(|scope| {
        let load = scope.spawn(|| order(&[&service.url], &options));
        let sold = || service.get("/api/v1/items/sku-7/stats").is(200).json()["sold"].as_u64();
        soon(|| sold() > Some(20));
        for order in &orders {
            let path = format!("/api/v1/orders/{order}/cancel");
            service.post(&path, &json!({})).is(200);
        }
        load.join().unwrap()
    });
    let report = report(&ended, 0);
    // All that was left and came back, unless the load was over before.
    assert!(report["accepted"].as_u64() > Some(40), "{report}");
    let checks = report["checks"].to_string();
    assert!(checks.contains("20 came back"), "{checks}");
}

#[tenure_testkit::test]
fn orders_can_be_those_of_the_notes() {
    let service = Service::shop();
    service.stock("1001", 20);
    let options = ["--notes", "--orders", "30", "--json"];
    let report = report(&order(&[&service.url], &options), 0);
    assert_eq!(report["accepted"], 20, "{report}");
    assert_eq!(report["refused"], json!({"sold_out": 10}), "{report}");
}

#[tenure_testkit::test]
fn what_cannot_be_asked_is_told() {
    let service = Service::shop();
    let unknown = order(&[&service.url], &["--item", "nothing"]);
    unknown.ended_with(64);
    unknown.complains("nothing");
    order(&["https://127.0.0.1:1"], &[]).ended_with(64);
    order(&["http://"], &[]).ended_with(64);
    let away = order(&["http://127.0.0.1:1"], &[]);
    away.ended_with(69);
    away.complains("http://127.0.0.1:1");
}

#[tenure_testkit::test]
fn the_token_is_brought_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let token = "0123456789abcdef0123";
    std::fs::write(&file, token).unwrap();
    let file = file.to_str().unwrap();
    let service = Service::start(&["--allow-admin", "--token-file", file]);
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let item = json!({"item": "1001", "units": 5, "open": true}).to_string();
    service
        .send("POST", "/api/v1/items", &headers, &item)
        .is(201);
    let options = ["--orders", "8", "--json"];
    let refused = order(&[&service.url], &options);
    refused.ended_with(77);
    let ended = order(
        &[&service.url],
        &[&options[..], &["--token-file", file]].concat(),
    );
    ended.keeps(token);
    assert_eq!(report(&ended, 0)["accepted"], 5);
}

/// A service that lies in one way or another.
struct Liar {
    addr: SocketAddr,
}

#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// Every order has the same id.
    SameOrder,
    /// It sells more than it says that it has.
    Oversells,
    /// The first answers are lost, though the orders were taken.
    LosesAnswers,
}

#[derive(Default)]
struct Sold {
    requests: HashSet<String>,
    lost: usize,
}

impl Liar {
    fn start(lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let sold = Arc::new(Mutex::new(Sold::default()));
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let sold = Arc::clone(&sold);
                thread::spawn(move || serve(&socket, lie, &sold));
            }
        });
        Self { addr }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

fn serve(socket: &TcpStream, lie: Lie, sold: &Mutex<Sold>) -> Option<()> {
    let mut reader = BufReader::new(socket);
    loop {
        let (path, body) = read(&mut reader)?;
        let answer = answer(lie, sold, &path, &body)?.to_string();
        let length = answer.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let mut writer = socket;
        writer
            .write_all(format!("{head}{answer}").as_bytes())
            .ok()?;
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<(String, Value)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.to_ascii_lowercase());
    }
    let length = lines
        .iter()
        .find_map(|it| it.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.trim().parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = lines[0].split(' ').nth(1)?.to_owned();
    Some((path, serde_json::from_slice(&body).unwrap_or_default()))
}

/// `None` if the connection is to break.
fn answer(lie: Lie, sold: &Mutex<Sold>, path: &str, body: &Value) -> Option<Value> {
    let mut sold = sold.lock().unwrap();
    if path.ends_with("/verify") {
        return Some(json!({"holds": true, "settled": true}));
    }
    let count = sold.requests.len() as u64;
    if path.ends_with("/stats") {
        let total = if lie == Lie::Oversells { 5 } else { 100 };
        let left = 100 - count.min(total);
        let left = left.min(total);
        return Some(json!({"total": total, "sold": count, "gate": {"left": left, "queued": 0}}));
    }
    let request = body["request"].as_str().unwrap().to_owned();
    sold.requests.insert(request.clone());
    if lie == Lie::LosesAnswers && sold.lost < 3 {
        sold.lost += 1;
        return None;
    }
    let id = if lie == Lie::SameOrder {
        "same"
    } else {
        &request
    };
    Some(json!({"order_id": id}))
}

#[track_caller]
fn breaks(lie: Lie, check: &str) {
    let liar = Liar::start(lie);
    let report = report(&order(&[&liar.url()], &["--orders", "10", "--json"]), 1);
    let checks = report["checks"].as_array().unwrap();
    let broken = checks.iter().find(|it| it["name"] == check).unwrap();
    assert_eq!(broken["holds"], false, "{report}");
}

#[tenure_testkit::test]
fn a_sale_that_does_not_hold_is_told() {
    breaks(Lie::SameOrder, "no order twice");
    breaks(Lie::Oversells, "not oversold");
}

#[tenure_testkit::test]
fn what_got_no_answer_is_asked_for_again() {
    let liar = Liar::start(Lie::LosesAnswers);
    let report = report(&order(&[&liar.url()], &["--orders", "10", "--json"]), 0);
    assert_eq!(report["accepted"], 10, "{report}");
    assert_eq!(report["unknown"], 0, "{report}");
}
