use serde_json::Value;
use tenure_testkit::RedisServer;

use crate::browser::Browser;
use crate::service::{Service, hold};

/// What the issue allows for the first load.
const FIRST_LOAD_MAX: f64 = 100.0 * 1024.0;

#[test]
fn every_view_opens_without_a_complaint_and_asks_nobody_else() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &["--base-path", "/tenure"]);
    let _holder = hold(&redis, &["demo"]);
    // What the browser's own first page did.
    browser.network();
    browser.goto(&service.view("locks"));
    browser.wait_for_text(".locks tbody th.name", "demo");
    let network = browser.network();
    let loaded = transferred(&network);
    eprintln!("first load: {:.1} KiB", loaded / 1024.0);
    assert!(loaded > 10_000.0, "this cannot be all: {loaded} bytes");
    assert!(loaded <= FIRST_LOAD_MAX, "{loaded} bytes are too many");
    assert_own_origin(&network, &service);

    for (view, sign) in [
        ("lock/demo", "Holders over time"),
        ("activity", "Activity"),
        ("charts", "Held and waiting"),
        ("sale", "Flash sale"),
        ("about", "openapi.json"),
    ] {
        browser.goto(&service.view(view));
        browser.wait_for_text("main", sign);
        if ["charts", "sale"].contains(&view) {
            browser.wait("document.querySelector('.plot canvas')?.width > 50");
        }
    }
    // What every object has is no view.
    browser.goto(&service.view("constructor"));
    browser.wait_for_text(".locks tbody th.name", "demo");
    let width = "return document.documentElement.scrollWidth - innerWidth";
    browser.size(390, 844);
    for view in ["locks", "lock/demo", "activity", "charts", "sale", "about"] {
        browser.goto(&service.view(view));
        browser.wait("document.querySelector('main').innerText.length > 20");
        assert!(
            browser.run(width).as_i64().unwrap() <= 0,
            "{view} is wider than a phone"
        );
        let tabs =
            "const nav = document.querySelector('nav'); return nav.scrollWidth - nav.clientWidth";
        assert_eq!(browser.run(tabs), 0, "the tabs are wider than a phone");
    }
    assert_own_origin(&browser.network(), &service);
    browser.assert_quiet(|_| false);
}

#[test]
fn the_theme_follows_the_system_until_one_is_chosen() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    let ground = "return getComputedStyle(document.body).backgroundColor";
    browser.prefer("dark");
    browser.goto(&service.view("locks"));
    let dark = browser.run(ground);
    browser.prefer("light");
    let light = browser.run(ground);
    assert_ne!(dark, light);
    browser.click("#theme");
    assert_eq!(browser.run(ground), dark);
    browser.goto("about:blank");
    browser.goto(&service.view("locks"));
    assert_eq!(browser.run(ground), dark, "the choice was forgotten");
    browser.click("#theme");
    assert_eq!(browser.run(ground), light);
    browser.assert_quiet(|_| false);
}

/// What came over the wire for what was loaded to its end, heads included.
fn transferred(network: &[Value]) -> f64 {
    let finished = network
        .iter()
        .filter(|event| event["method"] == "Network.loadingFinished");
    let bytes = finished.map(|event| event["params"]["encodedDataLength"].as_f64().unwrap());
    bytes.sum()
}

#[track_caller]
fn assert_own_origin(network: &[Value], service: &Service) {
    let (origin, _) = service.url.split_at(service.url.rfind("/tenure").unwrap());
    let asked = network
        .iter()
        .filter(|event| event["method"] == "Network.requestWillBeSent");
    let mut count = 0;
    for event in asked {
        let url = event["params"]["request"]["url"].as_str().unwrap();
        assert!(
            url.starts_with(origin) || url.starts_with("data:") || url == "about:blank",
            "asked {url}"
        );
        count += 1;
    }
    assert!(count > 0, "nothing was asked");
}
