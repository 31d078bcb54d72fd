use std::time::Instant;

use futures_util::future::join_all;
use tenure::{Guard, Lock, Tenure};
use tenure_testkit::RedisServer;

use crate::browser::Browser;
use crate::service::Service;

const LOCKS: usize = 5_000;
const LOCKS_OF_CLIENT: usize = 1_000;

#[test]
fn five_thousand_locks_can_be_scrolled_and_searched() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let redis = RedisServer::start();
    let service = Service::on(&redis, &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guards = runtime.block_on(take_all(&redis));
    let begun = Instant::now();
    browser.goto(&service.view("locks"));
    browser.wait_for_text(".locks tbody th.name", "bulk:0000");
    eprintln!("{LOCKS} locks: the first row after {:?}", begun.elapsed());
    browser.wait("document.querySelector('.shown').textContent === '5,000 locks'");
    assert!(
        browser
            .run("return document.querySelectorAll('.locks tr').length")
            .as_u64()
            .unwrap()
            < 100
    );

    let scrolled = Instant::now();
    browser.run("scrollTo(0, document.body.scrollHeight)");
    browser.wait_for_text(".locks tbody th.name", "bulk:4999");
    eprintln!(
        "  the last row {:?} after scrolling to the end",
        scrolled.elapsed()
    );
    let frames = browser.run_to_end(FRAMES);
    eprintln!("  {frames} frames a second while scrolling");
    assert!(frames.as_f64().unwrap() > 2.0);

    let typed = Instant::now();
    browser.run("scrollTo(0, 0)");
    browser.type_into("input[type=search]", "bulk:3217");
    browser.wait("document.querySelectorAll('.locks tbody th.name a').length === 1");
    eprintln!(
        "  found one of them {:?} after the first letter",
        typed.elapsed()
    );
    browser.assert_quiet(|_| false);
}

/// Counts frames for two seconds, each of which scrolls a little.
const FRAMES: &str = "
    const begun = performance.now();
    let frames = 0;
    while (performance.now() - begun < 2000) {
        scrollBy(0, -97);
        await new Promise(requestAnimationFrame);
        frames += 1;
    }
    return frames / 2;";

/// Several clients, since a client names at most a thousand of its leases.
async fn take_all(redis: &RedisServer) -> Vec<Guard> {
    let clients = (0..LOCKS).step_by(LOCKS_OF_CLIENT);
    let taken = join_all(clients.map(|first| take_some(redis, first))).await;
    taken.into_iter().flatten().collect()
}

async fn take_some(redis: &RedisServer, first: usize) -> Vec<Guard> {
    let tenure = Tenure::connect(&redis.url()).await.unwrap();
    let names = (first..first + LOCKS_OF_CLIENT).map(|number| format!("bulk:{number:04}"));
    let locks: Vec<Lock> = names.map(|name| tenure.lock(&name)).collect();
    let taken = join_all(locks.iter().map(Lock::acquire)).await;
    taken.into_iter().map(Result::unwrap).collect()
}
