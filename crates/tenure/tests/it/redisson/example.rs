//! A client in another language, written from `docs/wire-format.md` alone.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use tenure::{Layout, Tenure};
use tenure_testkit::RedisServer;

use crate::stage::{ms, soon};
use crate::verdict::check_within;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/other_language.py");

/// The example, running.
struct Python {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Python {
    /// Starts the example, if there is a Python with redis-py.
    fn start(server: &RedisServer, layout: Layout, hold: &str) -> Option<Self> {
        let layout = layout.to_string();
        let url = server.url();
        let mut process = Command::new(interpreter()?)
            .args([SCRIPT, &url, "n", "--layout", &layout, "--hold", hold])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Some(Self { process, lines })
    }

    #[track_caller]
    fn says(&mut self, expected: &str) -> String {
        let line = self.lines.next().expect("it ended too early").unwrap();
        let rest = line.strip_prefix(expected);
        rest.unwrap_or_else(|| panic!("`{line}` does not begin with `{expected}`"))
            .to_owned()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn interpreter() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let asked = Command::new(python)
            .args(["-c", "import redis"])
            .stderr(Stdio::null())
            .status();
        asked.is_ok_and(|status| status.success())
    })
}

#[expect(
    clippy::print_stderr,
    reason = "who reads the log must know what was not tested"
)]
fn skipped() {
    eprintln!("skipped: there is no python3 with redis-py here; Debian's package is python3-redis");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_in_python_takes_turns_with_ours() {
    for layout in [Layout::Native, Layout::Redisson] {
        let server = RedisServer::start();
        let ours = Tenure::builder(server.url())
            .layout(layout)
            .connect()
            .await
            .unwrap();
        let guard = ours.lock("n").acquire().await.unwrap();
        let Some(mut python) = Python::start(&server, layout, "0.5") else {
            return skipped();
        };
        assert_eq!(python.says("waiting for "), guard.lease_id().as_str());
        let first = guard.fence().get();
        guard.release().await.unwrap();
        let second: u64 = python.says("holds n with fence ").parse().unwrap();
        let waiting = tokio::spawn({
            let ours = ours.clone();
            async move { ours.lock("n").acquire().await.unwrap() }
        });
        assert!(
            soon(async || ours.stats().busy >= 2).await,
            "it has subscribed"
        );
        python.says("renewed");
        python.says("released");
        let guard = waiting.await.unwrap();
        let third = guard.fence().get();
        assert!(
            first < second && second < third,
            "{first}, {second}, {third}"
        );
        assert_eq!(
            ours.stats().woken_by_message,
            1,
            "{layout}: not by the clock"
        );
        guard.release().await.unwrap();
    }
}

/// With a Java process at the other side.
#[tenure_testkit::test]
async fn a_client_in_python_takes_turns_with_java() {
    let server = RedisServer::start();
    let mut java = super::java(&server);
    assert!(java.try_lock("n"));
    let Some(mut python) = Python::start(&server, Layout::Redisson, "0.3") else {
        return skipped();
    };
    assert_eq!(python.says("waiting for "), java.owner());
    assert_eq!(java.unlock("n"), Some(true));
    python.says("holds n with fence ");
    let begun = Instant::now();
    let waiting = tokio::task::spawn_blocking(move || java.lock_within("n", ms(25_000)));
    assert!(waiting.await.unwrap());
    // It holds the lock for 0.3 s, and its lease would last for 30.
    check_within(begun, ms(10_000));
    python.says("renewed");
    python.says("released");
}
