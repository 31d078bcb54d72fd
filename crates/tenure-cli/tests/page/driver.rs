//! A browser that is open, shared by the tests that take turns with it.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_testkit::ClientProcess;

use crate::browser::LIMIT;

/// To start one takes longer than most tests.
static OPEN: Mutex<Weak<Driver>> = Mutex::new(Weak::new());

/// The driver and its browser. The last test that has it, or waits for its turn, closes it.
pub struct Driver {
    session: String,
    agent: ureq::Agent,
    process: ClientProcess,
    profile: TempDir,
}

impl Driver {
    /// The one that is open, or a new one.
    pub fn shared() -> Arc<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.upgrade().unwrap_or_else(|| {
            let launched = Arc::new(Self::launch());
            *open = Arc::downgrade(&launched);
            launched
        })
    }

    fn launch() -> Self {
        let process = ClientProcess::spawn(Command::new("chromedriver").arg("--port=0"));
        let port = loop {
            let line = process.expect_line(LIMIT);
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').parse::<u16>().unwrap();
            }
        };
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let mut driver = Self {
            session: format!("http://127.0.0.1:{port}/session"),
            agent: config
                .timeout_global(Some(Duration::from_mins(1)))
                .build()
                .into(),
            process,
            profile: tempfile::tempdir().unwrap(),
        };
        let opened = driver.post("", &wanted(driver.profile.path())).unwrap();
        let id = opened["sessionId"].as_str().unwrap();
        driver.session = format!("{}/{id}", driver.session);
        driver
    }

    /// The answer to a command, or why there is none.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}{path}", self.session);
        let mut response = self.agent.post(&url).send_json(body).unwrap();
        let is_good = response.status().is_success();
        let mut answer: Value = response.body_mut().read_json().unwrap();
        if is_good {
            return Ok(answer["value"].take());
        }
        Err(format!("{path} {body}: {}", answer["value"]["message"]))
    }
}

impl Drop for Driver {
    /// The driver ends the browser; killed, it would leave it behind.
    fn drop(&mut self) {
        let _ = self.agent.delete(&self.session).call();
        self.process.kill();
    }
}

fn wanted(profile: &Path) -> Value {
    let profile = format!("--user-data-dir={}", profile.display());
    // As root there is no sandbox, in a container little shared memory.
    let arguments = json!([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        profile
    ]);
    let options = json!({ "args": arguments, "perfLoggingPrefs": { "enableNetwork": true, "enablePage": false } });
    let always = json!({
        "goog:chromeOptions": options,
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        "timeouts": { "script": 60_000 },
    });
    json!({ "capabilities": { "alwaysMatch": always } })
}
