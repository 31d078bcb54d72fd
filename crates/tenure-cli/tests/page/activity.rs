use std::process::Command;

use serde_json::json;

use crate::browser::Browser;
use crate::service::Service;

#[test]
fn what_happened_before_the_page_was_opened_is_told_once() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let service = Service::embedded(&["--allow-admin"]);
    browser.goto(&service.view("activity"));
    // What the page advises works, here too.
    browser.wait_for_text(".empty code", "curl -X POST");
    let line = browser.shown(".empty code");
    let curl = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(curl.status.success(), "{curl:?}");
    browser.wait_for_text(".events li", "demo");
    browser.goto("about:blank");
    browser.goto(&service.view("activity"));
    browser.wait_for_text(".events li", "demo");
    service.post("locks/later", &json!({ "ttl_ms": 60_000 }));
    browser.wait_for_text(".events li:first-child", "later");
    let names = "[...document.querySelectorAll('.events [data-event=taken] .name')].map((one) => one.textContent).join()";
    browser.wait(&format!("{names} === 'later,demo'"));
    browser.assert_quiet(|_| false);
}

#[test]
fn a_service_that_only_shows_offers_no_change() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let service = Service::embedded(&["--read-only"]);
    for view in ["activity", "locks", "sale"] {
        browser.goto(&service.view(view));
        browser.wait_for_text("main", "read-only (--read-only)");
        let main = browser.shown("main");
        assert!(!main.contains("POST"), "{main}");
    }
    browser.assert_quiet(|_| false);
}
