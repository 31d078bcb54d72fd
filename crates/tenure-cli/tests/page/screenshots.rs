use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure_testkit::{ClientProcess, RedisServer};

use crate::browser::Browser;
use crate::service::{Service, hold};

/// More would make every clone heavier.
const BYTES_MAX: usize = 150_000;

/// Who holds, with which ttl, what is said of it, and how many wait.
const HELD: [(&str, &str, &str, usize); 9] = [
    ("billing:close-month", "60s", "run=2026-10", 2),
    ("cache:warm", "5s", "", 0),
    ("deploy:api", "30s", "ticket=4711", 1),
    ("deploy:web", "30s", "ticket=4712", 0),
    ("job:nightly-backup", "60s", "disk=7", 0),
    ("job:reindex", "10s", "", 3),
    ("leader:scheduler", "3s", "", 1),
    ("order:1001", "10s", "", 4),
    ("tenant:42:import", "20s", "file=a.csv", 0),
];

/// The pictures of README.md, taken anew when asked for.
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
    browser.goto(&service.view("sale"));
    browser.click("[data-testid=compare]");
    browser.wait_for_text("[data-mode=script] h2", "done");
    // So that the lines of the tiles have something to show.
    std::thread::sleep(Duration::from_secs(20));
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for (width, height) in [(1280, 860), (390, 844)] {
            browser.size(width, height);
            for (view, sign) in [("locks", ".locks tbody th.name"), ("sale", ".plot canvas")] {
                browser.goto("about:blank");
                browser.goto(&service.view(view));
                browser.wait(&format!("document.querySelector({sign:?})"));
                if width == 390 && view == "sale" {
                    browser.run("document.querySelector('.runs').scrollIntoView()");
                }
                std::thread::sleep(Duration::from_millis(1_500));
                keep(&browser, &format!("{view}-{scheme}-{width}.png"));
            }
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
            std::thread::sleep(Duration::from_millis(150));
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
