//! `tenure sale`.

mod restoring;

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tenure_testkit::{PostgresServer, RedisServer, eventually};

use crate::command::{Ended, run, tenure};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// A gate and a ledger, and the command on them.
struct Shop {
    server: RedisServer,
    ledger: String,
    _dir: Option<TempDir>,
}

impl Shop {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ledger = format!("sqlite:{}", dir.path().join("shop.db").display());
        Self {
            server: RedisServer::start(),
            ledger,
            _dir: Some(dir),
        }
    }

    fn on_postgres() -> Self {
        Self {
            server: RedisServer::start(),
            ledger: PostgresServer::shared().create_database(),
            _dir: None,
        }
    }

    /// Words with spaces between, after `tenure sale`.
    fn command(&self, words: &str) -> Command {
        let mut command = tenure(&["sale"]);
        command.args(words.split(' '));
        command.env("TENURE_URL", self.server.url());
        command.env("TENURE_LEDGER", &self.ledger);
        command
    }

    fn run(&self, words: &str) -> Ended {
        run(&mut self.command(words))
    }

    #[track_caller]
    fn done(&self, words: &str) -> Ended {
        let ended = self.run(words);
        ended.ended_with(0);
        ended
    }

    /// What it says, with the exit code before it.
    #[track_caller]
    fn says(&self, words: &str, code: i32, text: &str) {
        let ended = self.run(words);
        ended.ended_with(code);
        assert_eq!(ended.stdout.trim_end(), text, "{words}\n{ended}");
    }

    fn consume(&self, words: &str) -> Consumer {
        let mut command = self.command(&format!("consume{words}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Consumer {
            child: command.spawn().unwrap(),
        }
    }

    /// Changes the gate of an item past the engine.
    fn tamper(&self, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        self.server.client().command(&words);
    }
}

struct Consumer {
    child: Child,
}

impl Consumer {
    /// Asks it to end, and says how it did.
    fn stop(mut self, signal: Signal) -> (Option<i32>, String, String) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
        let mut status = None;
        eventually(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut stdout)
            .unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        (status.and_then(|status| status.code()), stdout, stderr)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tenure_testkit::test]
fn a_sale_from_the_first_item_to_the_last_unit() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let created = "item create sku-7 --stock 3 --limit 2 --per-order 2 --open";
        shop.says(created, 0, "sku-7 is open: 3 units in total, 0 sold");
        let consumer = shop.consume("");
        let submit = "order submit sku-7 --buyer anna --request click-1 --units 2 --wait 30s";
        shop.says(submit, 0, "sku-7.1.0 accepted, reserved");
        let again = "sku-7.1.0 accepted before, by the same request, reserved";
        shop.says(submit, 0, again);
        let other = "order submit sku-7 --buyer anna --request click-1";
        let conflict = "sku-7.1.0 conflict: the same request ordered another number of units";
        shop.says(other, 1, conflict);
        let more = "order submit sku-7 --buyer anna";
        shop.says(more, 1, "refused: over the limit per buyer or per order");
        let too_many = "order submit sku-7 --buyer ben --units 2";
        shop.says(too_many, 1, "sold out");
        shop.done("order submit sku-7 --buyer ben --wait 30s");
        shop.says(
            "stock show sku-7",
            0,
            "sku-7: 3 total, 0 left, 0 queued, 3 sold",
        );

        let paid = shop.done("order pay sku-7.1.0");
        paid.says("sku-7.1.0                    paid                  2  ");
        let ended = shop.run("order cancel sku-7.1.0");
        ended.ended_with(1);
        ended.complains("tenure: cannot cancel order `sku-7.1.0`: it is paid");
        shop.done("order cancel sku-7.1.1").says("cancelled");
        let list = shop.done("order ls sku-7");
        assert!(list.stdout.starts_with("order  "), "{list}");
        let states: Vec<&str> = list
            .stdout
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().nth(1).unwrap())
            .collect();
        assert_eq!(states, ["cancelled", "paid"], "{list}");
        assert_eq!(
            shop.done("order ls --item sku-7 --state paid")
                .stdout
                .lines()
                .count(),
            2
        );
        assert_eq!(shop.done("order ls --buyer ben").stdout.lines().count(), 2);

        shop.says(
            "verify sku-7",
            0,
            "sku-7: 3 units = 1 left + 0 queued + 2 sold\neverything adds up",
        );
        shop.done("reconcile sku-7").says("all agree");
        shop.says(
            "item close sku-7",
            0,
            "sku-7 is closed: 3 units in total, 2 sold",
        );
        shop.says(
            "order submit sku-7 --buyer cleo",
            1,
            "refused: the sale has ended",
        );
        shop.says("item forget sku-7", 0, "removed `sku-7` from the gate");
        let (code, stdout, stderr) = consumer.stop(Signal::SIGTERM);
        assert_eq!(
            (code, stdout.as_str()),
            (Some(0), "2 orders in 2 batches\n"),
            "{stderr}"
        );
    }
}

#[tenure_testkit::test]
fn an_item_is_spread_over_shelves() {
    let shop = Shop::new();
    let created = "item create sku-7 --stock 10 --spread 3 --open";
    shop.says(created, 0, "sku-7 is open: 10 units in total, 0 sold");
    for buyer in 0..4 {
        let submit = format!("order submit sku-7 --buyer b{buyer}");
        shop.done(&submit);
    }
    let shown = json(&shop.done("item show sku-7 --json"));
    assert_eq!(
        (&shown["spread"], &shown["gate"]["left"]),
        (&3.into(), &6.into())
    );
    let shelves = shown["gate"]["shelves"].as_array().unwrap();
    let left = shelves.iter().map(|shelf| shelf["left"].as_u64().unwrap());
    assert_eq!((shelves.len(), left.sum::<u64>()), (3, 6), "{shown}");
    let stats = shop.done("stats sku-7").stdout;
    assert!(stats.contains("  shelf 2"), "{stats}");
    let consumer = shop.consume("");
    // More than any shelf has.
    let removed = "sku-7 is open: 5 units in total, 4 sold";
    eventually(LIMIT, || shop.run("verify sku-7").stdout.contains("4 sold"));
    shop.says("stock remove sku-7 5", 0, removed);
    eventually(LIMIT, || shop.run("verify sku-7").code == 0);
    shop.tamper("HINCRBY tenure:sale:{sku-7}:gate left 2");
    let report = shop.run("reconcile sku-7");
    report.ended_with(1);
    assert!(report.stdout.contains("shelf 0"), "{report}");
    assert!(report.stdout.contains("drift -2"), "{report}");
    let verdict = shop.run("verify sku-7 --json");
    let broken = json(&verdict)["broken"].to_string();
    assert!(broken.contains("shelf 0 has 2 units more"), "{broken}");
    shop.done("reconcile sku-7 --repair");
    shop.done("verify sku-7");
    consumer.stop(Signal::SIGTERM);

    for spread in ["0", "65", "many"] {
        let wrong = format!("item create sku-8 --stock 10 --spread {spread}");
        shop.run(&wrong).ended_with(64);
    }
}

fn json(ended: &Ended) -> serde_json::Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

#[tenure_testkit::test]
fn json_has_stable_fields() {
    let shop = Shop::new();
    let terms = "--per-order 2 --starts 2026-01-01T00:00:00Z --pay-within 15m";
    let created = format!("item create sku-7 --stock 5 --limit 2 {terms} --json");
    shop.says(
        &created,
        0,
        r#"{"item":"sku-7","state":"draft","total":5,"unlimited":false,"spread":1,"sold":0,"epoch":0,"starts_at":"2026-01-01T00:00:00.000Z","ends_at":null,"limit_per_buyer":2,"units_per_order":2,"pay_within_ms":900000,"backlog_max":100000,"answers_kept_ms":86400000}"#,
    );
    shop.done("item set sku-7 --starts - --pay-within 0");
    shop.done("item open sku-7");
    let shown = shop.done("item show sku-7 --json");
    shown.says(r#""starts_at":null"#);
    shown.says(r#""pay_within_ms":null"#);
    shown.says(r#""gate":{"knows":true,"current":true,"epoch":1,"left":5,"queued":0,"pending":0,"dead":0}}"#);
    shop.says(
        "order submit sku-7 --buyer anna --request r --json",
        0,
        r#"{"outcome":"accepted","order_id":"sku-7.1.0","item":"sku-7","buyer":"anna","request":"r","units":1,"left":4,"state":null}"#,
    );
    let order = shop.done("order show sku-7.1.0 --json");
    order.says(r#"{"order_id":"sku-7.1.0","item":"sku-7","buyer":"anna","request":"r","units":1,"state":"queued","accepted_at":"2"#);
    order.says(r#"Z","pay_by":null,"note":null}"#);
    shop.says(
        "stats --json",
        0,
        r#"{"items":[{"item":"sku-7","state":"open","total":5,"sold":0,"gate":{"knows":true,"current":true,"epoch":1,"left":4,"queued":1,"pending":0,"dead":0},"orders":[]}]}"#,
    );
    shop.says(
        "stock show sku-7 --json",
        0,
        r#"{"item":"sku-7","total":5,"left":4,"queued_units":1,"sold":0}"#,
    );
    let report = r#"{"item":"sku-7","clean":true,"settled":true,"repaired":false,"total":5,"left":4,"queued":1,"queued_units":1,"pending":0,"sold":0,"held":0,"drift":0,"dead":0,"gate_current":true,"gate_epoch":1,"ledger_epoch":1,"gate_change":2,"ledger_change":2,"orders":[]}"#;
    let reconciled = shop.done("reconcile sku-7 --json").stdout;
    let numbers = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
    assert_eq!(numbers(reconciled.trim_end()), numbers(report));
    let verified = shop.done("verify sku-7 --json");
    verified.says(r#"{"item":"sku-7","holds":true,"settled":true,"broken":[],"sold":0,"sold_by_orders":0,"sold_by_journal":0,"uneven":[],"unaccounted":[],"report":{"item":"#);
    shop.says("order ls --buyer anna --json", 0, r#"{"orders":[]}"#);
    shop.says("dlq ls sku-7 --json", 0, r#"{"dead_letters":[]}"#);
    shop.says(
        "item forget sku-7 --json",
        1,
        r#"{"item":"sku-7","forgotten":false}"#,
    );
    shop.done("item ls --json")
        .says(r#"{"items":[{"item":"sku-7","state":"open""#);
}

#[tenure_testkit::test]
fn an_order_that_nobody_consumes_is_not_confirmed() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 3 --open");
    let submit = "order submit sku-7 --buyer anna --wait 50ms";
    shop.says(submit, 75, "sku-7.1.0 accepted, queued");
    shop.run("order show sku-7.1.0 --wait 0").ended_with(75);
    shop.done("order show sku-7.1.0").says("queued");
    // It is not lost: a consumer finds it.
    let consumer = shop.consume(" --json");
    shop.done("order show sku-7.1.0 --wait 30s")
        .says("reserved");
    let (code, stdout, _) = consumer.stop(Signal::SIGINT);
    assert_eq!(code, Some(0));
    assert_eq!(
        stdout,
        "{\"batches\":1,\"batches_failed\":0,\"committed\":1}\n"
    );
}

#[tenure_testkit::test]
fn the_stock_is_raised_lowered_and_set() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 5");
    // A draft needs no consumer.
    shop.says(
        "stock remove sku-7 2",
        0,
        "sku-7 is draft: 3 units in total, 0 sold",
    );
    let add = "stock add sku-7 4 --reference delivery-2";
    shop.says(add, 0, "sku-7 is draft: 7 units in total, 0 sold");
    shop.says(add, 0, "sku-7 is draft: 7 units in total, 0 sold");
    shop.done("item open sku-7");
    let _consumer = shop.consume("");
    shop.says(
        "stock remove sku-7 1",
        0,
        "sku-7 is open: 6 units in total, 0 sold",
    );
    let ended = shop.run("stock remove sku-7 7");
    ended.ended_with(1);
    ended.complains("cannot take `7` units of `sku-7` out of the stock: 6 are left");
    let ended = shop.run("stock set sku-7 9 --expect 5");
    ended.ended_with(1);
    ended.complains("it is 6, not 5; check again");
    shop.says(
        "stock set sku-7 9 --expect 6",
        0,
        "sku-7 is open: 9 units in total, 0 sold",
    );
    shop.done("verify sku-7");
    shop.done("item create voucher --unlimited --open");
    shop.says(
        "stock show voucher",
        0,
        "voucher: - total, - left, 0 queued, 0 sold",
    );
    shop.run("stock add voucher 1").ended_with(64);
}

#[tenure_testkit::test]
fn what_does_not_add_up_is_found_and_repaired() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 5 --open");
    shop.tamper("HSET tenure:sale:{sku-7}:gate left 7");
    shop.says(
        "verify sku-7",
        1,
        "sku-7: 5 units = 7 left + 0 queued + 0 sold\nBROKEN 2 units are in two places at once",
    );
    let ended = shop.run("reconcile sku-7");
    ended.ended_with(1);
    ended.says("gate and ledger disagree: repair rebuilds the gate");
    shop.done("reconcile sku-7 --repair")
        .says("the gate was rebuilt, all agree");
    shop.tamper("HSET tenure:sale:{sku-7}:gate left 1");
    let broken = shop.run("verify sku-7");
    broken.ended_with(1);
    broken.says("BROKEN 4 units are neither at the gate, nor queued, nor sold");
    shop.done("item rebuild sku-7");
    shop.done("verify sku-7");
}

#[tenure_testkit::test]
fn an_order_that_vanished_is_named_until_it_is_announced_as_lost() {
    let shop = Shop::on_postgres();
    shop.done("item create sku-7 --stock 5 --open");
    for buyer in ["anna", "ben", "cleo"] {
        shop.done(&format!("order submit sku-7 --buyer {buyer}"));
    }
    shop.done("verify sku-7")
        .says("5 units = 2 left + 3 queued + 0 sold");
    shop.tamper("XDEL tenure:sale:{sku-7}:orders 1-1");
    // Consumers rebuild the gate and announce the order within a second: this ledger refuses both
    // until the test has looked.
    let database = shop.ledger.rsplit('/').next().unwrap();
    let sql = |sql: &str| PostgresServer::shared().run_sql_in(database, sql);
    sql("ALTER TABLE sale_items ADD CONSTRAINT no_rebuild CHECK (epoch = 1)");
    sql("ALTER TABLE sale_orders ADD CONSTRAINT none_lost CHECK (state <> 'lost')");
    let _consumer = shop.consume("");
    shop.done("order show sku-7.1.2 --wait 30s");
    shop.done("order show sku-7.1.0 --wait 30s");
    let ended = shop.run("verify sku-7");
    ended.ended_with(1);
    ended.says("BROKEN order `sku-7.1.1` was accepted, but neither ledger nor gate has it");
    let ended = shop.run("verify sku-7 --json");
    ended.says(r#""unaccounted":["sku-7.1.1"]"#);
    ended.says(r#""holds":false"#);
    sql("ALTER TABLE sale_orders DROP CONSTRAINT none_lost");
    sql("ALTER TABLE sale_items DROP CONSTRAINT no_rebuild");
    let holds = || shop.run("verify sku-7").code == 0;
    assert!(eventually(LIMIT, holds));
    shop.done("order show sku-7.1.1").says("lost");
}

#[tenure_testkit::test]
fn books_that_contradict_themselves_are_found() {
    let shop = Shop::on_postgres();
    shop.done("item create sku-7 --stock 5 --open");
    let _consumer = shop.consume("");
    shop.done("order submit sku-7 --buyer anna --wait 30s");
    shop.done("order submit sku-7 --buyer ben --wait 30s");
    shop.done("verify sku-7");
    let database = shop.ledger.rsplit('/').next().unwrap();
    let sql = "INSERT INTO sale_journal SELECT item, epoch, number, 'reserve', 2, units, at \
               FROM sale_journal WHERE number = 1";
    PostgresServer::shared().run_sql_in(database, sql);
    let ended = shop.run("verify sku-7");
    ended.ended_with(1);
    ended.says("BROKEN the ledger says 2 sold, its journal 3");
    ended.says("BROKEN units of order `sku-7.1.1` were reserved or released twice, or never");
}

#[tenure_testkit::test]
fn dead_letters_are_shown_and_decided_about() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 5 --open");
    shop.tamper("XADD tenure:sale:{sku-7}:orders 1-* nonsense yes");
    let _consumer = shop.consume(" --deliveries 1");
    let is_dead = || !shop.done("dlq ls sku-7").stdout.is_empty();
    assert!(eventually(LIMIT, is_dead), "nothing was buried");
    let letter = shop.done("dlq show sku-7.1.0 --json");
    letter.says(
        r#"{"order_id":"sku-7.1.0","kind":"unreadable","buyer":null,"request":null,"units":0,"#,
    );
    letter.says(r#""reason":""#);
    let ended = shop.run("dlq requeue sku-7.1.0");
    ended.ended_with(1);
    ended.complains("the ledger still does not accept `sku-7.1.0`");
    shop.says("dlq discard sku-7.1.0", 0, "sku-7.1.0 discarded");
    let ended = shop.run("dlq discard sku-7.1.0");
    ended.ended_with(1);
    ended.complains("tenure: order `sku-7.1.0` does not exist");
    shop.run("dlq show sku-7.1.0").ended_with(1);
    shop.done("verify sku-7");
}

#[tenure_testkit::test]
fn what_is_not_there_ends_with_1() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 1");
    let no_item = "tenure: there is no item `sku-8` in the ledger: create it first";
    for words in [
        "item show sku-8",
        "item open sku-8",
        "item set sku-8 --limit 1",
        "item forget sku-8",
        "stock show sku-8",
        "stats sku-8",
        "reconcile sku-8",
        "verify sku-8",
        "order ls --item sku-8",
        "dlq ls sku-8",
    ] {
        let ended = shop.run(words);
        ended.ended_with(1);
        assert!(
            ended.stderr.contains(no_item) || ended.stderr.contains("`sku-8`"),
            "{words}\n{ended}"
        );
        assert_eq!(ended.stdout, "");
    }
    let draft = "not on sale: item not found, or a draft";
    shop.says("order submit sku-7 --buyer anna", 1, draft);
    let ended = shop.run("item create sku-7 --stock 1");
    ended.ended_with(1);
    ended.complains("cannot create item `sku-7`: it already exists");
    let ended = shop.run("item pause sku-7");
    ended.ended_with(1);
    shop.done("item open sku-7");
    let ended = shop.run("order pay sku-7.1.9");
    ended.ended_with(1);
    ended.complains("tenure: order `sku-7.1.9` does not exist");
}

#[tenure_testkit::test]
fn a_wrong_command_line_ends_with_64() {
    let shop = Shop::new();
    for words in [
        "item create sku-7",
        "item create sku{7} --stock 1",
        "item create sku-7 --stock 1 --unlimited",
        "item create sku-7 --stock 1 --starts tomorrow",
        "item create sku-7 --stock 1 --per-order 0",
        "item create sku-7 --stock 1 --starts +2h --ends +1h",
        "stock add sku-7 0",
        "order submit sku-7",
        "order submit sku-7 --buyer anna --units 0",
        "order show sku-7",
        "order ls",
        "order ls --buyer anna --item sku-7",
        "order ls --item sku-7 --state sold",
        "consume --batch 0",
        "nonsense",
    ] {
        let ended = shop.run(words);
        ended.ended_with(64);
        assert_eq!(ended.stdout, "", "{words}");
        assert_ne!(ended.stderr, "", "{words}");
    }
}

#[tenure_testkit::test]
fn a_gate_or_a_ledger_that_ends_with_the_command_is_refused() {
    let shop = Shop::new();
    let ended = run(shop.command("item ls").env("TENURE_URL", "memory://"));
    ended.ended_with(78);
    ended.complains("tenure: cannot run a sale on `memory://`: such a gate exists in one process");
    let ended = run(shop
        .command("item ls")
        .env("TENURE_LEDGER", "sqlite::memory:"));
    ended.ended_with(78);
    ended
        .complains("tenure: cannot use `sqlite::memory:` as the ledger: it ends with this command");
    let two = "redis://:secret@a redis://b";
    let ended = run(shop.command("item ls").env("TENURE_URL", two));
    ended.ended_with(78);
    ended.complains("a sale cannot use the independent servers `redis://***@a redis://b`");
    ended.keeps("secret");
}

#[tenure_testkit::test]
fn a_gate_or_a_ledger_that_is_away_ends_with_69() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 1 --open");
    let away = "postgres://me:secret@127.0.0.1:1/shop";
    let ended = run(shop.command("item ls").env("TENURE_LEDGER", away));
    ended.ended_with(69);
    ended.complains("cannot open the ledger `postgres://127.0.0.1:1/shop`: the connection failed");
    ended.keeps("secret");
    shop.server.kill();
    let ended = shop.run("order submit sku-7 --buyer anna");
    ended.ended_with(69);
    ended.complains("tenure: cannot open the sale at `redis://");
}

#[tenure_testkit::test]
fn a_ledger_that_refuses_the_user_ends_with_77() {
    let shop = Shop::on_postgres();
    let ledger = shop.ledger.replace("tenure@", "nobody:secret@");
    let ended = run(shop.command("item ls").env("TENURE_LEDGER", &ledger));
    ended.ended_with(77);
    ended.complains("the server refuses this user and password: check the URL");
    ended.keeps("secret");
    // On a command line it is not even tried.
    let ended = run(shop.command("item ls --ledger").arg(&ledger));
    ended.ended_with(64);
    ended.complains("refusing the password in `postgres://***@127.0.0.1:");
    ended.keeps("secret");
}

/// A gate that was restarted is rebuilt by the first process that notices.
#[tenure_testkit::test]
fn a_gate_that_forgot_everything_is_rebuilt_from_the_ledger() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 5 --open");
    let consumer = shop.consume("");
    shop.done("order submit sku-7 --buyer anna --wait 30s");
    let (code, ..) = consumer.stop(Signal::SIGTERM);
    assert_eq!(code, Some(0));
    shop.server.restart_empty();
    let ended = shop.run("verify sku-7");
    ended.ended_with(1);
    ended.says("BROKEN the gate does not sell what this ledger has: rebuild it");
    shop.done("order submit sku-7 --buyer ben").says("accepted");
    shop.done("verify sku-7")
        .says("5 units = 3 left + 1 queued + 1 sold");
}
