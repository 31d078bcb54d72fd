use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_testkit::RedisServer;

use crate::browser::{Browser, LIMIT};
use crate::service::{Service, hold};

/// How wide the first bar is, in pixels.
const WIDTH: &str = "return document.querySelector('.locks .fill').getBoundingClientRect().width";

#[test]
fn a_lock_that_the_command_takes_appears_and_its_bar_moves() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    browser.goto(&service.view("locks"));
    browser.wait_for_text(".empty", "tenure run");
    let begun = Instant::now();
    let holder = hold(&redis, &["--ttl", "3s", "--meta", "ticket=4711", "demo"]);
    browser.wait_for_text(".locks tbody th.name", "demo");
    eprintln!(
        "a lock of the command was on the page {:?} after it was started",
        begun.elapsed()
    );
    browser.wait_for_text(".locks td.meta", "ticket=4711");
    assert!(
        shrinks_and_jumps(&browser),
        "the bar does not move as a lease does"
    );
    browser.assert_quiet(|_| false);
    holder.kill();
    browser.wait("document.querySelectorAll('.locks tbody th.name').length === 0");
    browser.wait_for_text(".empty", "No locks are held");
}

/// Whether the bar gets shorter three times in a row, and later longer: a renewal.
fn shrinks_and_jumps(browser: &Browser) -> bool {
    let (begun, mut last, mut shorter) = (Instant::now(), f64::INFINITY, 0);
    while begun.elapsed() < LIMIT {
        let width = browser.run(WIDTH).as_f64().unwrap();
        if width > last + 5.0 && shorter >= 3 {
            return true;
        }
        shorter += i32::from(width < last);
        last = width;
        sleep(Duration::from_millis(50));
    }
    false
}

#[test]
fn names_and_metadata_are_shown_as_they_are() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &["--allow-admin"]);
    let name = "<img src=x onerror=hacked=1>&amp;\"'/%2F?#";
    let meta = "job=<script>hacked=2</script>";
    let _holder = hold(&redis, &["--meta", meta, name]);
    browser.goto(&service.view("locks"));
    browser.wait(&format!(
        "document.querySelector('.locks tbody th.name a')?.textContent === {}",
        json!(name)
    ));
    browser.wait(&format!(
        "document.querySelector('.locks td.meta').textContent === {}",
        json!(meta)
    ));
    browser.click(".locks tbody th.name a");
    browser.wait(&format!(
        "document.querySelector('h1.title span').textContent === {}",
        json!(name)
    ));
    browser.wait_for_text(".facts", meta);
    browser.wait_for_text(".lanes li", ":");
    let hacked =
        "return [typeof hacked, document.querySelectorAll('main img, main script').length]";
    assert_eq!(browser.run(hacked), json!(["undefined", 0]));
    browser.assert_quiet(|_| false);
}

/// A terminal takes control characters of what is pasted for keys: Ctrl-C would leave the quotes.
#[test]
fn a_line_to_copy_runs_nothing_of_a_name() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &["--allow-admin"]);
    let name = "a'\\\u{3}\n touch hacked #\u{9b}\u{202e}é";
    let _holder = hold(&redis, &[name]);
    browser.goto(&service.view("locks"));
    browser.click(".locks tbody th.name a");
    browser.wait_for_text(".copy code", "tenure force-unlock");
    let line = browser.run("return document.querySelector('.copy code').textContent");
    let line = line.as_str().unwrap();
    let is_acting = |letter: char| letter.is_control() || letter == '\u{202e}';
    assert!(!line.contains(is_acting), "{line:?}");
    let script = format!("tenure() {{ printf '%s\\0' \"$@\"; }}; {line}");
    let taken = Command::new("bash").args(["-c", &script]).output().unwrap();
    let taken = String::from_utf8(taken.stdout).unwrap();
    let words: Vec<&str> = taken.split('\0').collect();
    assert_eq!(words[..2], ["force-unlock", "--url"], "{words:?}");
    assert_eq!(words[3], name, "{words:?}");
}

#[test]
fn what_is_searched_and_sorted_stands_in_the_address() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    let _holders = ["order:1", "order:2", "job:1"].map(|name| hold(&redis, &[name]));
    let _waiter = hold(&redis, &["order:2"]);
    browser.goto(&service.view("locks"));
    browser.wait("document.querySelectorAll('.locks tbody th.name a').length === 3");
    browser.press("/");
    assert_eq!(browser.run("return document.activeElement.type"), "search");
    browser.run("document.activeElement.blur()");
    browser.type_into("input[type=search]", "order");
    browser.click(".locks thead th.name button");
    let names = "[...document.querySelectorAll('.locks tbody th.name a')].map((one) => one.textContent).join()";
    browser.wait(&format!("{names} === 'order:2,order:1'"));
    let address = browser.run("return location.href");
    browser.goto("about:blank");
    browser.goto(address.as_str().unwrap());
    browser.wait(&format!("{names} === 'order:2,order:1'"));
    browser.goto(&service.view("locks?state=waiting"));
    browser.wait(&format!("{names} === 'order:2'"));
    browser.assert_quiet(|_| false);
}

#[test]
fn a_lease_that_nobody_renews_runs_out() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let service = Service::embedded(&[]);
    browser.goto(&service.view("locks"));
    let wanted = json!({ "ttl_ms": 5_000, "owner": "ci-7", "meta": { "plan": "812" } });
    service.post("locks/plan", &wanted);
    browser.wait_for_text(".locks td.holder", "ci-7");
    // Its owner stands beside it already.
    browser.wait("document.querySelector('.locks td.meta')?.textContent === 'plan=812'");
    browser.wait("document.querySelector('.shown').textContent === '1 lock'");
    service.post("locks/short", &json!({ "ttl_ms": 1_000 }));
    browser.wait_for_text(".tile[data-some]", "Expired");
    browser.goto(&service.view("lock/plan"));
    browser.wait(
        "document.querySelector('.hold[data-state=late] title')?.textContent.endsWith('expired')",
    );
    browser.goto(&service.view("about"));
    browser.wait_for_text(".facts", "in this process");
    browser.assert_quiet(|_| false);
}
