use tenure_testkit::RedisServer;

use crate::browser::Browser;
use crate::service::{Service, hold};

#[test]
fn the_page_comes_back_after_the_service_was_restarted() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    let _first = hold(&redis, &["first"]);
    browser.goto(&service.view("locks"));
    browser.wait_for_text(".locks tbody th.name", "first");
    let port = service.port().to_owned();
    service.process.kill();
    browser.wait_for_text("#notice", "Connection lost");
    browser.wait_for_text("#freshness", "connection lost");
    let _second = hold(&redis, &["second"]);
    let _again = Service::on(&redis, &["--listen", &port]);
    browser.wait_for_text(".locks tbody th.name", "second");
    browser.wait("document.getElementById('notice').hidden");
    // The browser logs failed requests, and nothing else.
    browser.assert_quiet(|message| message.contains("net::ERR_"));
}

#[test]
fn a_store_that_is_away_is_told_and_so_is_its_return() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    let _holder = hold(&redis, &["demo"]);
    browser.goto(&service.view("locks"));
    browser.wait_for_text(".locks tbody th.name", "demo");
    redis.pause();
    browser.wait_for_text("#notice", "is not responding");
    redis.resume();
    browser.wait("document.getElementById('notice').hidden");
    browser.assert_quiet(|message| message.contains("503"));
}

/// A browser has six connections for one service: more pages than that, one after the other, must not
/// leave their streams behind.
#[test]
fn a_page_that_was_left_gives_its_stream_back() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    for _ in 0..8 {
        browser.goto("about:blank");
        browser.goto(&service.view("locks"));
        browser.wait_for_text("footer", "tenure ");
    }
    browser.back();
    browser.back();
    browser.wait_for_text("#freshness", "updated");
    browser.assert_quiet(|_| false);
}
