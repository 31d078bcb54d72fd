//! `tenure doctor`: checks whether a server is fit for locks.

mod check;
mod clock;
mod deployment;
mod facts;
mod latency;
mod patient;
mod report;
mod rights;
mod settings;
mod together;
mod trial;

use anyhow::{Context, Result};
use tenure::ErrorKind;
use tenure_view::output::{self, Paint};
use tokio::task::{self, JoinHandle, LocalSet};

use self::deployment::Deployment;
use self::patient::{Diagnosis, Orders, Patient};
use self::report::Report;
use crate::exit::Exit;
use crate::runtime;
use crate::server::{Server, ServerArgs};

const EXAMPLES: &str = "\
Examples:
  tenure doctor                                     the server from the environment
  tenure doctor --url redis-cluster://h1,h2         every primary of a Cluster
  tenure doctor -u redis://a -u redis://b -u redis://c   each node, and the quorum
  tenure doctor --json | jq '.servers[].checks[] | select(.result != \"ok\")'

Exit codes:
  0    fit: no check is bad
  1    not fit: at least one check is bad
  69   no server is reachable
  77   every server refused the user or the password
  78   invalid URL or configuration file";

/// Check whether a Redis server is fit for locks, and how to fix it
///
/// Checks version, role, eviction, memory, persistence, replicas, latency, clock, connections and
/// every permission that locks need, and acquires test locks on unused names. With --prefix, all of
/// that happens under the prefix, and the check `prefix` shows the ACL rules for it. A check that the
/// server forbids is `unknown`, with advice where to look. Leaves no keys.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Number of latency samples
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,

    /// Beginning of the names of test locks, if the user's ACL allows no others
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    names: String,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &DoctorArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    runtime::block_on(LocalSet::new().run_until(examine(args, &server)))
}

async fn examine(args: &DoctorArgs, server: &Server) -> Result<Exit> {
    let orders = Orders {
        deployment: Deployment::of(server.urls()),
        samples: args.samples,
        names: args.names.clone(),
    };
    let diagnoses = examine_each(server.urls(), &orders).await?;
    let together = match orders.deployment {
        Deployment::Redlock => together::examine(server.urls(), &diagnoses, &args.names).await,
        _ => Vec::new(),
    };
    let exit = exit_of(&diagnoses);
    let reports = diagnoses.into_iter().map(|diagnosis| diagnosis.report);
    let report = Report::new(together, reports.collect());
    if args.json {
        output::say_json(&report)?;
    } else {
        output::say(report.in_words(Paint::for_stdout()))?;
    }
    let found = if report.fit { Exit::Done } else { Exit::Broken };
    Ok(exit.unwrap_or(found))
}

/// All servers at once: one that hangs must not make the others wait.
async fn examine_each(urls: &[String], orders: &Orders) -> Result<Vec<Diagnosis>> {
    let examine = |url: &String| {
        let (url, orders) = (url.clone(), orders.clone());
        task::spawn_local(async move { examine_at(&url, &orders).await })
    };
    let examined: Vec<JoinHandle<_>> = urls.iter().map(examine).collect();
    let mut diagnoses = Vec::new();
    for (url, examined) in urls.iter().zip(examined) {
        let found = examined.await.context("the check was aborted")?;
        diagnoses
            .extend(found.with_context(|| format!("cannot check `{}`", tenure::masked_url(url)))?);
    }
    Ok(diagnoses)
}

/// Examines the servers of a URL. A failure to do so is a diagnosis too, unless the URL is wrong.
async fn examine_at(url: &str, orders: &Orders) -> Result<Vec<Diagnosis>> {
    let patients = match Patient::call(url, orders).await {
        Ok(patients) => patients,
        Err(error) if error.kind() == ErrorKind::InvalidUrl => return Err(error.into()),
        Err(error) => return Ok(vec![Diagnosis::of_refusal(url, error)]),
    };
    let examine = |patient: Patient| task::spawn_local(patient.examine());
    let examined: Vec<JoinHandle<_>> = patients.into_iter().map(examine).collect();
    let mut diagnoses = Vec::new();
    for examined in examined {
        diagnoses.push(examined.await.context("the check was aborted")?);
    }
    Ok(diagnoses)
}

/// The exit code if no server could be examined.
fn exit_of(diagnoses: &[Diagnosis]) -> Option<Exit> {
    let refusals = diagnoses.iter().map(|diagnosis| diagnosis.refusal.as_ref());
    let refusals: Option<Vec<&tenure::Error>> = refusals.collect();
    let kind = refusals?.first()?.kind();
    Some(match kind {
        ErrorKind::Denied => Exit::Denied,
        _ => Exit::Unavailable,
    })
}
