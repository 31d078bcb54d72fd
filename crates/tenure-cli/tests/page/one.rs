use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tenure_testkit::RedisServer;

use crate::browser::Browser;
use crate::service::{Service, hold, tenure};

#[test]
fn only_the_lease_that_was_shown_is_ended_by_force() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &["--allow-admin"]);
    let first = hold(&redis, &["--ttl", "2s", "deploy"]);
    browser.goto(&service.view("lock/deploy"));
    let command = format!("tenure force-unlock --url {} deploy tenure:", redis.url());
    browser.wait_for_text(".copy code", &command);
    browser.click("[data-testid=force]");
    let lease = browser.shown("dialog.force code");
    // While the dialog is open, the lock passes to another holder.
    let second = hold(&redis, &["deploy"]);
    first.kill();
    browser.wait(&format!(
        "document.querySelector('.copy code')?.textContent.includes('tenure:') && !document.querySelector('.copy code').textContent.includes({})",
        json!(lease)
    ));
    assert_eq!(
        browser.run("return document.querySelector('[data-testid=force-go]').disabled"),
        true
    );
    browser.type_into("[data-testid=force-name]", "deploy");
    browser.click("[data-testid=force-go]");
    browser.wait_for_text("dialog.force .answer", "Nothing was changed");
    assert!(
        is_locked(&redis),
        "another lease was ended than the one that was shown"
    );
    // Refusals are on the console: the browser writes them there.
    browser.assert_quiet(|message| message.contains("409"));

    browser.click("dialog.force .actions button");
    browser.click("[data-testid=force]");
    browser.type_into("[data-testid=force-name]", "deploy");
    browser.click("[data-testid=force-go]");
    browser.wait_for_text(".title .state", "free");
    assert!(
        second.wait(Duration::from_secs(20)).is_some(),
        "its holder goes on"
    );
    browser.wait_for_text(".events", "forced");
    browser.assert_quiet(|_| false);
}

#[test]
fn without_administration_nothing_can_be_ended() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    let _holder = hold(&redis, &["deploy"]);
    let _waiter = hold(&redis, &["deploy"]);
    browser.goto(&service.view("lock/deploy"));
    browser.wait_for_text(".queue", "1 waiting");
    browser.wait_for_text("footer", "tenure ");
    assert_eq!(
        browser.run("return document.querySelectorAll('[data-testid=force]').length"),
        0
    );
    browser.wait("document.querySelectorAll('.timeline .hold[data-state=now]').length === 1");
    // What would be needed for it.
    browser.wait_for_text(".ending", "--allow-admin");
    let command = format!("tenure show --url {} deploy", redis.url());
    browser.wait_for_text(".copy code", &command);
    let main = browser.shown("main");
    assert!(
        !main.contains("null") && !main.contains("Lease id"),
        "{main}"
    );
    browser.assert_quiet(|_| false);
}

/// No other command reaches the locks of the service's own process.
#[test]
fn a_lease_in_the_process_is_ended_over_http() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let service = Service::embedded(&["--allow-admin"]);
    let lease = service.post("locks/de%20ploy", &json!({ "ttl_ms": 60_000 }));
    // As a user may type it.
    browser.goto(&service.view("locks/de%20ploy"));
    browser.wait_for_text(".copy code", "curl -X DELETE");
    let line = browser.shown(".copy code");
    let id = lease["lease_id"].as_str().unwrap();
    assert!(line.contains(&id.replace(':', "%3A")), "{line}");
    let curl = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(curl.status.success(), "{curl:?}");
    browser.wait_for_text(".title .state", "free");
    browser.assert_quiet(|_| false);
}

fn is_locked(redis: &RedisServer) -> bool {
    let asked = tenure(&["is-locked", "--url", &redis.url(), "deploy"]).status();
    asked.unwrap().success()
}
