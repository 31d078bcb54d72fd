use tenure_testkit::RedisServer;

use crate::browser::Browser;
use crate::service::{Service, hold, tenure};

#[test]
fn the_token_is_asked_for_and_kept_in_memory_only() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let mut command = tenure(&["serve", "--url", &redis.url()]);
    let service = Service::of(command.env("TENURE_TOKEN", "open-sesame-open-sesame"));
    let _holder = hold(&redis, &["demo"]);
    browser.goto(&service.view("locks"));
    browser.wait_for_text("#token-detail", "requires a token");
    browser.type_into("#token", "this-is-the-wrong-one");
    browser.click("#token-dialog button");
    browser.wait_for_text("#token-detail", "Invalid token");
    browser.type_into("#token", "open-sesame-open-sesame");
    browser.click("#token-dialog button");
    browser.wait_for_text(".locks tbody th.name", "demo");
    browser.wait("!document.getElementById('token-dialog').open");
    let kept = browser.run(
        "return JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, \
         location.href, document.documentElement.outerHTML, \
         document.getElementById('token').value])",
    );
    assert!(!kept.as_str().unwrap().contains("sesame"), "{kept}");
    browser.assert_quiet(|message| message.contains("401"));
    // Gone with the page.
    browser.goto("about:blank");
    browser.goto(&service.view("locks"));
    browser.wait_for_text("#token-detail", "requires a token");
}
