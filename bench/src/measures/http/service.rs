//! `tenure serve`, as a process of its own.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;

use tenure_testkit::ClientProcess;
use tokio::runtime::Runtime;

use super::Asked;
use super::wire::{Answer, Wire, request};
use crate::child::PATIENCE;
use crate::measures::command::tenure;

pub struct Service {
    pub addr: SocketAddr,
    process: ClientProcess,
}

impl Service {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = tenure(&["serve", "--json", "--allow-admin", "--listen", "0"]);
        command.args(arguments).stdin(Stdio::null());
        let process = ClientProcess::spawn(&command);
        let line = process.expect_line(PATIENCE);
        let place = line.split_once("http://").map(|(_, place)| place);
        let place = place.and_then(|place| place.split('"').next());
        let addr = place.and_then(|place| place.parse().ok());
        Self {
            addr: addr.unwrap_or_else(|| panic!("the service says `{line}`")),
            process,
        }
    }

    pub fn asked(&self) -> Asked {
        Asked {
            addr: self.addr,
            pid: self.process.pid(),
        }
    }

    /// Asks once, over a connection of its own.
    pub fn ask(&self, runtime: &Runtime, method: &str, path: &str, body: &str) -> Answer {
        runtime.block_on(async {
            let mut wire = Wire::open(self.addr).await;
            wire.ask(&request(method, path, body)).await
        })
    }

    /// What it has of the machine's memory, in bytes.
    pub fn memory(&self) -> f64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let status = fs::read_to_string(path).expect("the service lives");
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let kib: f64 = kib.expect("a process has memory");
        kib * 1_024.0
    }
}
