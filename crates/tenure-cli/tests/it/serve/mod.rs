//! `tenure serve`.

/// Who may ask, and what is refused.
mod access;
/// What is seen of all locks, and followed.
mod board;
/// What is counted of requests.
mod counted_requests;
/// More connections than there are places.
mod crowds;
/// What is shipped for Prometheus and Grafana.
mod deploy;
/// Reading event streams.
mod events;
/// Several instances that sell one stock.
mod instances;
/// What is sold, how much of it, and who may change that.
mod items;
/// Who may read the files of a ledger.
mod ledger_files;
/// Reading a stream of events.
mod listening;
/// How items and orders stand, live.
mod live_sale;
/// The load of a sale, and its checks.
mod load;
/// Locks over HTTP.
mod locks;
/// Texts in a query that are too long.
mod long_queries;
/// The OpenAPI document, and whether what is answered is what it says.
mod openapi;
/// What buyers want, and what becomes of it.
mod orders;
/// The page's files.
mod page;
/// One stock sold in three ways, with faults.
mod playground;
/// Gate or ledger gone, and what is sent that makes no sense.
mod sale_trouble;
/// A service with something to sell.
mod shop;
/// Connections by hand.
mod sockets;
/// Figures, and what is counted.
mod stats;
/// The order of the notes' load tests, and their locks.
mod submit_order;
/// Terraform's lock.
mod terraform;
/// When the store is away, and when the service stops.
mod trouble;
/// Streams that are opened and not read.
mod unread_streams;

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tenure_testkit::{ClientProcess, RedisServer};

use self::openapi::Document;
use crate::command::tenure;

/// Far longer than starting takes.
const START_WITHIN: Duration = Duration::from_secs(30);

/// The service, as a process of its own.
pub struct Service {
    pub process: ClientProcess,
    /// As in `http://127.0.0.1:40123`.
    pub url: String,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Service {
    /// Embedded, with its ledger in memory.
    pub fn start(arguments: &[&str]) -> Self {
        let ledger = ["--ledger", "sqlite::memory:"];
        Self::of(tenure(&["serve"]).args(ledger).args(arguments))
    }

    /// On a server of its own, without a ledger.
    pub fn on(server: &RedisServer, arguments: &[&str]) -> Self {
        Self::of(tenure(&["serve", "--url", &server.url()]).args(arguments))
    }

    /// By a command that lacks only where to listen.
    pub fn of(command: &mut Command) -> Self {
        command.args(["--listen", "0", "--json"]);
        command.stdin(Stdio::null());
        let process = ClientProcess::spawn(command);
        let line = process.expect_line(START_WITHIN);
        let told: Value = serde_json::from_str(&line).unwrap();
        let url = told["url"].as_str().unwrap().to_owned();
        Self { process, url }
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn stop(&self) {
        self.ask_to_stop();
        self.process.wait_for_success(START_WITHIN);
    }

    /// How much memory the process has.
    pub fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid()));
        let status = status.unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS"));
        let resident = resident.unwrap().split_whitespace().nth(1);
        resident.unwrap().parse().unwrap()
    }

    pub fn ask_to_stop(&self) {
        let pid = Pid::from_raw(i32::try_from(self.process.pid()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    /// Sends JSON.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.send("POST", path, &json, &body.to_string())
    }

    pub fn put(&self, path: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.send("PUT", path, &json, &body.to_string())
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], "")
    }

    /// Sends anything, and holds the answer against the document that the service gives of itself.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let answer = self.send_unchecked(method, path, headers, body);
        Document::of(self).check(method, path, &answer);
        answer
    }

    fn send_unchecked(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = ureq::http::Request::builder().method(method);
        request = request.uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(Duration::from_mins(1)))
            .build()
            .into();
        let request = request.body(body.to_owned()).unwrap();
        let mut response = agent.run(request).unwrap();
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.body_mut().read_to_string().unwrap(),
        }
    }
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        let read = serde_json::from_str(&self.text);
        read.unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Fails unless it is a problem of this status and code.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        problem
    }

    #[track_caller]
    pub fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or_default()
    }
}
