//! The arguments of `tenure demo`.

use anyhow::Result;
use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use tenure_demo::{pitfalls, three_ways};

use crate::server::refuse_passwords;

const DEMO_EXAMPLES: &str = "\
Examples:
  tenure demo
  tenure demo --url redis://127.0.0.1/
  tenure demo --url redis-sentinel://h1,h2,h3/mymaster
  tenure demo --url redis://a/ --url redis://b/ --url redis://c/
  TENURE_URL=redis://127.0.0.1/ tenure demo --clients 8
  NO_COLOR=1 tenure demo 2>/dev/null
  tenure demo pitfalls --help

On a server, each run uses its own item and lock, and deletes their keys.";

const PITFALLS_EXAMPLES: &str = "\
Examples:
  tenure demo pitfalls
  tenure demo pitfalls --list
  tenure demo pitfalls --url redis://127.0.0.1/
  tenure demo pitfalls --only fixed-lease,promoted-replica

Pitfalls about several servers start `redis-server` from the PATH on free ports of 127.0.0.1,
whatever the URL is, and are skipped if it is missing. The others use their own keys and delete
them.";

/// Sell 100 units to 1000 buyers three ways: naive, with a lock, with a script.
///
/// Several shop instances sell one item. First each buyer reads the stock, waits for a millisecond
/// and writes it back: the shop oversells. Then the same with a lock and a write that checks the
/// fence: the shop sells exactly its stock. Then one script checks, subtracts and queues the order:
/// exact as well, without waiting.
///
/// Needs no server: without a URL everything runs in this process.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DEMO_EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    #[command(subcommand)]
    pub command: Option<DemoCommand>,

    /// Server to use [env: `TENURE_URL`] [default: this process]
    ///
    /// With several URLs, the lock is held on a majority of these servers and the stock is on the
    /// first. The script is left out, because it cannot span servers.
    #[arg(long, value_name = "URL")]
    url: Vec<String>,

    /// Units in stock, 1 to 1000000
    #[arg(
        long,
        value_name = "UNITS",
        default_value_t = 100,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stock: u64,

    /// Number of buyers, one order each, 1 to 1000000
    #[arg(
        long,
        value_name = "BUYERS",
        default_value_t = 1_000,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    buyers: u64,

    /// Number of shop instances, each with its own client
    #[arg(
        long,
        value_name = "CLIENTS",
        default_value_t = 4,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=64))]
    clients: u64,
}

#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    Pitfalls(PitfallsArgs),
}

/// Run the classic locking mistakes for real, then the same with Tenure.
///
/// Each pitfall runs the code that people write until the damage shows, and then the same situation
/// with Tenure. If a mistake did no damage, or Tenure failed, it is reported and the exit code is
/// 1.
///
/// Needs no server: without a URL everything runs in this process, except the pitfalls about
/// several servers.
#[derive(Debug, clap::Args)]
#[command(after_long_help = PITFALLS_EXAMPLES)]
pub struct PitfallsArgs {
    /// Server to use [env: `TENURE_URL`] [default: this process]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Only these; `--list` shows the names
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    #[arg(value_parser = PossibleValuesParser::new(pitfalls::names()))]
    pub only: Vec<String>,

    /// List the pitfalls and exit
    #[arg(long)]
    pub list: bool,
}

impl DemoArgs {
    /// The options of the demonstration.
    pub fn options(&self) -> Result<three_ways::Options> {
        Ok(three_ways::Options {
            urls: urls_given(&self.url)?,
            stock: self.stock,
            buyers: self.buyers,
            clients: self.clients,
        })
    }
}

impl PitfallsArgs {
    /// The URLs that were given, by option or environment.
    pub fn urls(&self) -> Result<Vec<String>> {
        urls_given(self.url.as_slice())
    }
}

/// The URLs of the option, or else of the environment. Empty ones are ignored.
fn urls_given(option: &[String]) -> Result<Vec<String>> {
    refuse_passwords(option, "put the URL into TENURE_URL")?;
    // Not `REDIS_URL`: it is set for other programs, and a demonstration must not load their
    // server.
    let variable = || std::env::var("TENURE_URL").unwrap_or_default();
    if option.is_empty() {
        let variable = variable();
        return Ok(variable.split_whitespace().map(ToOwned::to_owned).collect());
    }
    let given = option.iter().filter(|url| !url.is_empty());
    Ok(given.cloned().collect())
}
