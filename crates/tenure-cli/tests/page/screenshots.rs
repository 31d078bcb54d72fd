use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tenure_testkit::{ClientProcess, RedisServer};

use crate::browser::Browser;
use crate::service::{Service, hold};

/// More would make every clone heavier.
const BYTES_MAX: usize = 150_000;

/// Who holds, with which ttl, what is said of it, and how many wait.
const HELD: [(&str, &str, &str, usize); 8] = [
    ("billing:close-month", "60s", "month=10", 2),
    ("cache:warm", "5s", "", 0),
    ("deploy:api", "30s", "ticket=4711", 1),
    ("job:nightly-backup", "60s", "disk=7", 0),
    ("job:reindex", "10s", "", 3),
    ("leader:scheduler", "3s", "", 1),
    ("order:1001", "10s", "", 4),
    ("tenant:42:import", "20s", "file=a.csv", 0),
];

/// The pictures in docs/images, taken again when asked for.
#[test]
fn pictures_for_the_documents() {
    if std::env::var_os("TENURE_SCREENSHOTS").is_none() {
        return;
    }
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &["--allow-admin"]);
    let _holders = take_all(&redis);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| be_busy(&service, &is_over));
        }
        let taken = catch_unwind(AssertUnwindSafe(|| take_pictures(&browser, &service)));
        is_over.store(true, Ordering::Relaxed);
        taken.unwrap();
    });
}

fn take_pictures(browser: &Browser, service: &Service) {
    browser.goto(&service.view("sale"));
    for (input, value) in [
        ("stock", "200"),
        ("buyers", "2000"),
        ("concurrency", "100"),
        ("work_ms", "20"),
    ] {
        browser.type_into(&format!("input[name={input}]"), value);
    }
    browser.click("[data-testid=compare]");
    browser.wait("document.querySelector('[data-mode=script]').innerText.includes('done')");
    // So that the lines of the tiles have something to show.
    thread::sleep(Duration::from_secs(20));
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for (view, width, height) in [
            ("locks", 1280, 790),
            ("locks", 390, 844),
            ("sale", 1280, 1_060),
            ("sale", 390, 844),
        ] {
            browser.size(width, height);
            // Not renewed: it is low when the picture is taken.
            service.post(
                "locks/terraform:prod",
                &json!({ "ttl_ms": 6_000, "owner": "ci-7", "meta": { "plan": "812" } }),
            );
            browser.goto("about:blank");
            browser.goto(&service.view(view));
            browser.wait("document.querySelector('.locks tbody a, .plot canvas')");
            if (view, width) == ("sale", 390) {
                browser.run("document.querySelector('.runs').scrollIntoView()");
            }
            thread::sleep(Duration::from_millis(4_400));
            keep(browser, &format!("{view}-{scheme}-{width}.png"));
            thread::sleep(Duration::from_secs(2));
        }
    }
}

/// Takes one lock again and again over HTTP, so that there are figures.
fn be_busy(service: &Service, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let lease = service.post("locks/cart:checkout", &json!({ "wait_ms": 5_000 }));
        thread::sleep(Duration::from_millis(30));
        if let Some(id) = lease["lease_id"].as_str() {
            let url = format!(
                "{}/api/v1/locks/cart:checkout/lease?lease_id={id}",
                service.url
            );
            let _ = ureq::delete(url).call();
        }
    }
}

fn take_all(redis: &RedisServer) -> Vec<ClientProcess> {
    let mut all = Vec::new();
    for (name, ttl, meta, waiters) in HELD {
        let mut arguments = vec!["--ttl", ttl];
        if !meta.is_empty() {
            arguments.extend(["--meta", meta]);
        }
        arguments.push(name);
        for _ in 0..=waiters {
            all.push(hold(redis, &arguments));
            thread::sleep(Duration::from_millis(150));
        }
    }
    all
}

fn keep(browser: &Browser, name: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    // The driver gives base64, and every system has a program for it.
    let encoded = tempfile::NamedTempFile::new().unwrap();
    fs::write(encoded.path(), browser.picture()).unwrap();
    let decoded = Command::new("base64")
        .arg("-d")
        .arg(encoded.path())
        .output()
        .unwrap();
    assert!(decoded.status.success());
    assert!(
        decoded.stdout.len() <= BYTES_MAX,
        "{name}: {} bytes",
        decoded.stdout.len()
    );
    fs::write(path, decoded.stdout).unwrap();
}
