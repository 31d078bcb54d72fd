//! The service and the commands that take locks.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::{ClientProcess, RedisServer};

const START_WITHIN: Duration = Duration::from_secs(30);

/// `tenure serve`, as a process of its own.
pub struct Service {
    pub process: ClientProcess,
    /// As in `http://127.0.0.1:40123`.
    pub url: String,
}

impl Service {
    /// On the locks of a server, with what else is given.
    pub fn on(redis: &RedisServer, arguments: &[&str]) -> Self {
        Self::of(tenure(&["serve", "--url", &redis.url()]).args(arguments))
    }

    /// Embedded: locks and orders are in its own process.
    pub fn embedded(arguments: &[&str]) -> Self {
        Self::of(tenure(&["serve", "--ledger", "sqlite::memory:"]).args(arguments))
    }

    pub fn of(command: &mut Command) -> Self {
        command.arg("--json");
        if !command.get_args().any(|argument| argument == "--listen") {
            command.args(["--listen", "0"]);
        }
        let process = ClientProcess::spawn(command);
        let line = process.expect_line(START_WITHIN);
        let told: Value = serde_json::from_str(&line).unwrap();
        let url = told["url"].as_str().unwrap().to_owned();
        Self { process, url }
    }

    /// The page at one of its views.
    pub fn view(&self, view: &str) -> String {
        format!("{}/#/{view}", self.url)
    }

    /// What the service answers, nothing if it refuses.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let answer = ureq::post(format!("{}/api/v1/{path}", self.url)).send_json(body);
        answer.map_or(Value::Null, |mut answer| {
            answer.body_mut().read_json().unwrap_or_default()
        })
    }

    pub fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }
}

/// The command with these arguments, in an environment that says nothing.
pub fn tenure(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TENURE_")) {
        command.env_remove(name);
    }
    command.env_remove("REDIS_URL");
    // No file of the user who runs the tests.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// `tenure run` with a command that waits: holds the lock until it is killed.
pub fn hold(redis: &RedisServer, arguments: &[&str]) -> ClientProcess {
    let url = redis.url();
    let mut command = tenure(&["run", "--url", &url]);
    ClientProcess::spawn(command.args(arguments).args(["--", "sleep", "300"]))
}
