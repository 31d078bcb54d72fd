use tenure_testkit::RedisServer;

use crate::browser::Browser;
use crate::service::Service;

#[test]
fn naive_oversells_and_lock_and_script_do_not() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &["--demo"]);
    browser.goto(&service.view("sale"));
    for (input, value) in [("stock", "50"), ("buyers", "200"), ("work_ms", "2")] {
        browser.type_into(&format!("input[name={input}]"), value);
    }
    browser.click("[data-testid=compare]");
    browser.wait("document.querySelectorAll('[data-testid=comparison] tbody tr').length === 3");
    browser.wait_for_text("[data-mode=script] h2", "done");
    for (mode, verdict, sign) in [
        ("naive", "OVERSOLD by ", "✘"),
        ("lock", "EXACT", "✔"),
        ("script", "EXACT", "✔"),
    ] {
        browser.wait_for_text(&format!("[data-mode={mode}] .verdict"), verdict);
        browser.wait_for_text(&format!("[data-mode={mode}] .invariant"), sign);
    }
    // It is there still, when the page is opened again.
    browser.goto("about:blank");
    browser.goto(&service.view("sale"));
    browser.wait_for_text("[data-testid=comparison]", "OVERSOLD by ");
    browser.assert_quiet(|_| false);
}

#[test]
fn a_fault_strikes_the_sale_that_runs_and_says_what_it_did() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &["--demo"]);
    browser.goto(&service.view("sale?mode=lock"));
    for (input, value) in [("stock", "100000"), ("buyers", "2000"), ("ttl_ms", "500")] {
        browser.type_into(&format!("input[name={input}]"), value);
    }
    browser.click("[data-testid=run]");
    browser.click("[data-fault=pause_holder]:enabled");
    browser.wait_for_text("[data-mode=lock] .faults", "pause holder");
    browser.click(".actions > button:nth-child(3):enabled");
    browser.wait_for_text("[data-mode=lock] .verdict", "stopped");
    browser.wait("!document.querySelector('[data-testid=run]').disabled");
    browser.assert_quiet(|_| false);
}

#[test]
fn a_service_that_makes_no_load_says_why() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    browser.goto(&service.view("sale"));
    browser.click("[data-testid=run]");
    browser.wait_for_text(".answer", "with --demo or --allow-admin");
    browser.assert_quiet(|message| message.contains("403"));
}
