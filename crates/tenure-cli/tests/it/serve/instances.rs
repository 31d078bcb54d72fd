use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::shop::{Grown, soon};
use super::{Answer, Service};
use crate::command::{run, tenure};

const UNITS: u64 = 100;

/// Many buyers at once, at all instances in turn; each asks twice with the same request.
fn rush(services: &[Service], buyers: usize) -> Vec<Answer> {
    thread::scope(|scope| {
        let asking: Vec<_> = (0..16)
            .map(|thread| {
                scope.spawn(move || {
                    let mut answers = Vec::new();
                    for buyer in (thread..buyers).step_by(16) {
                        let name = format!("buyer-{buyer}");
                        for turn in 0..2 {
                            let service = &services[(buyer + turn) % services.len()];
                            answers.push(service.order("sku-7", &name, "click"));
                        }
                    }
                    answers
                })
            })
            .collect();
        asking
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    })
}

#[tenure_testkit::test]
fn two_instances_sell_one_stock_exactly() {
    let shop = Grown::up();
    let services = [shop.instance(&[]), shop.instance(&[])];
    services[0].stock("sku-7", UNITS);
    let answers = rush(&services, 200);
    let taken: Vec<Value> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .map(Answer::json)
        .collect();
    for refused in answers.iter().filter(|answer| answer.status != 202) {
        refused.is_problem(409, "sold_out");
    }
    let orders: BTreeSet<&str> = taken
        .iter()
        .map(|it| it["order_id"].as_str().unwrap())
        .collect();
    let buyers: BTreeSet<&str> = taken
        .iter()
        .map(|it| it["buyer"].as_str().unwrap())
        .collect();
    assert_eq!(
        (orders.len(), buyers.len()),
        (100, 100),
        "one order for each who got one"
    );
    for order in &orders {
        let other = &services[usize::from(order.ends_with('7'))];
        assert_eq!(other.state_of(order), "reserved");
    }
    let verdict = || services[1].get("/api/v1/items/sku-7/verify").is(200).json();
    soon(|| verdict()["settled"] == true);
    let verdict = verdict();
    assert_eq!(verdict["holds"], true, "{verdict}");
    assert_eq!(verdict["sold"], UNITS);
    assert_eq!(verdict["report"]["left"], 0);
}

#[tenure_testkit::test]
fn what_an_instance_leaves_behind_another_brings_in() {
    let shop = Grown::up();
    let other = shop.instance(&[]);
    other.stock("sku-7", UNITS);
    let seller = shop.instance(&["--no-consumer"]);
    let order = seller.ordered("sku-7", "anna", "1");
    seller.process.kill();
    assert_eq!(other.state_of(&order), "reserved");
}

#[tenure_testkit::test]
fn an_instance_stops_in_time_while_its_consumer_works() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    service.stock("sku-7", UNITS);
    let order = service.ordered("sku-7", "anna", "1");
    assert_eq!(service.state_of(&order), "reserved");
    let pid = Pid::from_raw(service.process.pid().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    // Two seconds, and ten times that on a machine that is busy.
    service.process.wait_for_success(Duration::from_secs(20));
}

#[tenure_testkit::test]
fn an_embedded_ledger_has_one_process() {
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = tenure(&["serve", "--allow-admin"]);
        Service::of(command.env("XDG_DATA_HOME", home.path()))
    };
    let service = start();
    service.stock("sku-7", 3);
    service.ordered("sku-7", "anna", "1");
    assert!(home.path().join("tenure/shop.db").exists());

    let mut second = tenure(&["serve", "--listen", "0"]);
    let refused = run(second.env("XDG_DATA_HOME", home.path()));
    refused.ended_with(69);
    refused.complains("cannot open the sale");
    refused.complains("shop.db");
    refused.complains("another process");

    // What was sold is there again after a restart.
    service.process.kill();
    let again = start();
    let item = again.get("/api/v1/items/sku-7").is(200).json();
    assert_eq!(item["sold"], 1);
    assert_eq!(item["gate"]["left"], 2);
    assert_eq!(again.state_of("sku-7.1.0"), "reserved");
}
