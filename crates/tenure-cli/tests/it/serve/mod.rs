//! `tenure serve`.

/// Who may ask, and what is refused.
mod access;
/// Several instances that sell one stock.
mod instances;
/// What is sold, how much of it, and who may change that.
mod items;
/// Reading a stream of events.
mod listening;
/// How items and orders stand, live.
mod live_sale;
/// The load of a sale, and its checks.
mod load;
/// What buyers want, and what becomes of it.
mod orders;
/// One stock sold in three ways, with faults.
mod playground;
/// Gate or ledger gone, and what is sent that makes no sense.
mod sale_trouble;
/// A service with something to sell.
mod shop;
/// The order of the notes' load tests, and their locks.
mod submit_order;

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::ClientProcess;

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

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    /// Sends JSON.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.send("POST", path, &json, &body.to_string())
    }

    /// Sends anything.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
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
