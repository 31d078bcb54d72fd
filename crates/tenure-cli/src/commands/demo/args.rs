//! What `tenure demo` takes.

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

On a server, the demo uses an item and a lock of its own for every run, and deletes their keys.";

const PITFALLS_EXAMPLES: &str = "\
Examples:
  tenure demo pitfalls
  tenure demo pitfalls --list
  tenure demo pitfalls --url redis://127.0.0.1/
  tenure demo pitfalls --only fixed-lease,promoted-replica

Those about several servers start `redis-server` from the PATH on free ports of 127.0.0.1 and end it
again, whatever the URL is; without it they are skipped. On a server, the others use keys of their
own for every run, and delete them.";

/// Sell 100 units to 1000 buyers in three ways: naively, under a lock, by script.
///
/// Several shop instances sell one item. First each buyer reads the stock, thinks for a
/// millisecond and writes it back: the shop sells more than it has. Then the same under a lock,
/// with a write that checks the fence: the shop sells exactly what it has. Then by one script that
/// checks, subtracts and queues the order: the same, and nobody waits for anybody.
///
/// Needs no server: without a URL everything runs inside this process.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DEMO_EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    #[command(subcommand)]
    pub command: Option<DemoCommand>,

    /// Where to run it [env: `TENURE_URL`] [default: inside this process]
    ///
    /// Given several times, or with several URLs in the variable, the lock is held on a majority
    /// of these servers, and the stock is on the first. A script cannot span them and is left out.
    #[arg(long, value_name = "URL")]
    url: Vec<String>,

    /// How many units there are, 1 to 1000000
    #[arg(
        long,
        value_name = "UNITS",
        default_value_t = 100,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stock: u64,

    /// How many buyers come, one order each, 1 to 1000000
    #[arg(
        long,
        value_name = "BUYERS",
        default_value_t = 1_000,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    buyers: u64,

    /// How many instances the shop has, each a client of its own
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

/// Commit each known mistake with locks for real, then do the same with Tenure.
///
/// Each pitfall has its own few lines of code: what people write, run by tasks against a store
/// until the damage shows, and the same situation with Tenure. A mistake that did no damage, or a
/// situation in which Tenure did not hold, is told and makes the exit code 1.
///
/// Needs no server: without a URL everything runs inside this process, but for the pitfalls that
/// are about several servers.
#[derive(Debug, clap::Args)]
#[command(after_long_help = PITFALLS_EXAMPLES)]
pub struct PitfallsArgs {
    /// Where to run them [env: `TENURE_URL`] [default: inside this process]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Only these, by the names that `--list` shows
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    #[arg(value_parser = PossibleValuesParser::new(pitfalls::names()))]
    pub only: Vec<String>,

    /// Show what there is and run nothing
    #[arg(long)]
    pub list: bool,
}

impl DemoArgs {
    /// What the demonstration is told.
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

/// The URLs of the option, or else of the environment. An empty one is none.
fn urls_given(option: &[String]) -> Result<Vec<String>> {
    refuse_passwords(option, "put the URL into TENURE_URL")?;
    // Not `REDIS_URL`: it is set for other programs, and a demonstration must not surprise their
    // server.
    let variable = || std::env::var("TENURE_URL").unwrap_or_default();
    if option.is_empty() {
        let variable = variable();
        return Ok(variable.split_whitespace().map(ToOwned::to_owned).collect());
    }
    let given = option.iter().filter(|url| !url.is_empty());
    Ok(given.cloned().collect())
}
