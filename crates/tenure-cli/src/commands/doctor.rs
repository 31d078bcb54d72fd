//! `tenure doctor`: is this Redis fit for locks?

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
  tenure doctor                                     the server that the environment names
  tenure doctor --url redis-cluster://h1,h2         every master of a Cluster
  tenure doctor -u redis://a -u redis://b -u redis://c   each node, and all together
  tenure doctor --json | jq '.servers[].checks[] | select(.result != \"ok\")'

Exit codes:
  0    fit: nothing is bad
  1    not fit: something is bad
  69   no server could be reached
  77   every server refused the user or the password
  78   a URL or the configuration file is wrong";

/// Examine whether a Redis is fit for locks, and say what to do
///
/// Looks at version, role, eviction, memory, persistence, replicas, latency, clock and connections,
/// tries every right that locks need, and takes locks of its own on names that nobody uses. What it
/// may not ask is `unknown`, with the place where to find out. Leaves no key behind.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// How many answers to measure
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,

    /// What the names of your locks begin with, if the user may use no others
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,

    /// For programs: one line of JSON
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
        prefix: args.prefix.clone(),
    };
    let diagnoses = examine_each(server.urls(), &orders).await?;
    let together = match orders.deployment {
        Deployment::Redlock => together::examine(server.urls(), &diagnoses, &args.prefix).await,
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
        let found = examined.await.context("the examination went away")?;
        diagnoses.extend(
            found.with_context(|| format!("cannot examine `{}`", tenure::masked_url(url)))?,
        );
    }
    Ok(diagnoses)
}

/// Examines what a URL names. That it cannot be is a diagnosis, too, unless the URL is wrong.
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
        diagnoses.push(examined.await.context("the examination went away")?);
    }
    Ok(diagnoses)
}

/// How to end if nothing at all could be examined.
fn exit_of(diagnoses: &[Diagnosis]) -> Option<Exit> {
    let refusals = diagnoses.iter().map(|diagnosis| diagnosis.refusal.as_ref());
    let refusals: Option<Vec<&tenure::Error>> = refusals.collect();
    let kind = refusals?.first()?.kind();
    Some(match kind {
        ErrorKind::Denied => Exit::Denied,
        _ => Exit::Unavailable,
    })
}
