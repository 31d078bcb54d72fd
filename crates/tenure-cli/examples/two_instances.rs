//! Two instances of `tenure serve`, on two ports, sell one stock that is in one Redis and one
//! PostgreSQL, while the load generator orders from both. Everything is started here and ends here.
//!
//! `make demo-two`, or
//! `cargo build --release && cargo run --release -p tenure-cli --example two_instances`
#![expect(clippy::print_stdout, reason = "a demonstration talks")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use tenure_testkit::{ClientProcess, PostgresServer, RedisServer};

const UNITS: u64 = 5_000;
const ORDERS: u64 = 20_000;
const RATE: u64 = 4_000;
/// Far longer than starting takes.
const START_WITHIN: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let tenure = command();
    println!("one Redis, one PostgreSQL, and two instances of the shop:");
    let redis = RedisServer::start();
    let postgres = PostgresServer::start();
    let ledger = postgres.create_database();
    let shops = [8081, 8082].map(|port| serve(&tenure, &redis.url(), &ledger, port));
    println!("\nitem 1001 has {UNITS} units:");
    let item = format!(r#"{{"item": "1001", "units": {UNITS}, "open": true}}"#);
    let created = ureq::post(format!("{}/api/v1/items", shops[0].1))
        .content_type("application/json")
        .send(item);
    match created {
        Ok(_) => println!("  POST {}/api/v1/items", shops[0].1),
        Err(error) => {
            println!("  cannot create it: {error}");
            return ExitCode::FAILURE;
        }
    }
    order(&tenure, &shops)
}

/// The command, which is built next to the examples.
fn command() -> PathBuf {
    let example = std::env::current_exe().unwrap_or_default();
    let folder = example.parent().and_then(Path::parent);
    let tenure = folder.map(|folder| folder.join("tenure"));
    let tenure = tenure.filter(|tenure| tenure.exists());
    tenure.expect("the command is built first: cargo build --release")
}

/// An instance, and where it listens: at this port if that is free, else at any.
fn serve(tenure: &Path, gate: &str, ledger: &str, port: u16) -> (ClientProcess, String) {
    let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let port = if is_free { port } else { 0 };
    let mut command = Command::new(tenure);
    command.args(["serve", "--json", "--allow-admin", "--url", gate]);
    command.args(["--ledger", ledger, "--listen", &port.to_string()]);
    command.env_remove("TENURE_TOKEN").stdin(Stdio::null());
    let process = ClientProcess::spawn(&command);
    let line = process.expect_line(START_WITHIN);
    let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    let url = told["url"].as_str().unwrap_or_default().to_owned();
    println!("  tenure serve --url {gate} --ledger … --listen {url}");
    (process, url)
}

/// Has the load generator order from both, and ends as it ends.
fn order(tenure: &Path, shops: &[(ClientProcess, String)]) -> ExitCode {
    let mut command = Command::new(tenure);
    command.args(["bench", "sale", "--item", "1001"]);
    for (_, url) in shops {
        command.args(["--http", url]);
    }
    command.args(["--orders", &ORDERS.to_string()]);
    command.args(["--rate", &RATE.to_string()]);
    let words = command.get_args().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.collect();
    println!(
        "\n{ORDERS} orders come to both, {RATE} a second:\n  tenure {}\n",
        words.join(" ")
    );
    match command.env_remove("TENURE_TOKEN").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
