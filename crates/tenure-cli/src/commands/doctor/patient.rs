//! One server and its checks.

use std::time::{Duration, Instant};

use tenure::redis::{Client, Command};
use tenure::{Error, ErrorKind};
use tenure_view::scratch_names;
use tenure_view::timings::millis;

use super::check::Check;
use super::clock::{self, Offset};
use super::deployment::Deployment;
use super::facts::{Facts, allowed};
use super::latency;
use super::report::ServerReport;
use super::rights::{self, Scope};
use super::settings;
use super::trial::{self, Trial};

/// How many names to try until one belongs to this master: each master has a share of the slots.
const NAMES_TRIED: u32 = 1_000;
/// How long replicas may take to confirm.
const CONFIRM_LIMIT: Duration = Duration::from_secs(1);

/// What to do at each server.
#[derive(Clone, Debug)]
pub struct Orders {
    pub deployment: Deployment,
    pub samples: u32,
    /// What the names of test locks begin with.
    pub names: String,
}

/// A server that is reachable.
pub struct Patient {
    client: Client,
    /// With the password: never shown.
    url: String,
    connected_in: Duration,
    orders: Orders,
}

/// The result.
#[derive(Debug)]
pub struct Diagnosis {
    pub report: ServerReport,
    pub facts: Facts,
    pub offset: Option<Offset>,
    /// Why the server could not be checked.
    pub refusal: Option<Error>,
}

impl Patient {
    /// The servers that a URL names: one, or the masters of a Cluster.
    pub async fn call(url: &str, orders: &Orders) -> Result<Vec<Self>, Error> {
        let begun = Instant::now();
        let client = Client::connect(url).await?;
        let connected_in = begun.elapsed();
        let of = |client| Self {
            client,
            url: url.to_owned(),
            connected_in,
            orders: orders.clone(),
        };
        Ok(client.masters().into_iter().map(of).collect())
    }

    /// Runs all checks. If the server stops responding, the rest is missing.
    pub async fn examine(self) -> Diagnosis {
        // A cluster only names its primaries: check that this one responds.
        let begun = Instant::now();
        if let Err(error) = allowed(self.client.run(Command::new("PING")).await) {
            return Diagnosis::of_refusal(&self.client.to_string(), error);
        }
        let found = format!(
            "connected in {}",
            millis(self.connected_in + begun.elapsed())
        );
        let mut diagnosis = Diagnosis {
            report: ServerReport {
                server: self.client.to_string(),
                checks: vec![Check::ok("reachable", found)],
            },
            facts: Facts::default(),
            offset: None,
            refusal: None,
        };
        if let Err(error) = self.look_at_all(&mut diagnosis).await {
            let advice = "check the server's load and log, then retry";
            let found = format!("it stopped responding during the checks: {error}");
            diagnosis
                .report
                .checks
                .push(Check::bad("answers", found, advice));
        }
        diagnosis
    }

    async fn look_at_all(&self, diagnosis: &mut Diagnosis) -> Result<(), Error> {
        let client = &self.client;
        diagnosis.facts = Facts::ask(client).await?;
        let facts = &diagnosis.facts;
        let checks = &mut diagnosis.report.checks;
        checks.extend(settings::examine(facts, self.orders.deployment));
        match latency::pings(client, self.orders.samples).await {
            Ok(times) => checks.push(latency::check("latency", "PING", &times)),
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => checks.push(trial::refused("latency", &error)),
        }
        diagnosis.offset = Offset::measure(client).await?;
        checks.push(diagnosis.offset.map_or_else(clock::unknown, Offset::check));
        let name = self.find_name().await?;
        let rights = rights::examine(client, &self.scope(&name), user_of(&self.url)).await?;
        checks.extend(rights.of_prefix);
        checks.push(rights.check);
        if !rights.has_transactions {
            let found = "skipped: it needs `MULTI`";
            checks.push(Check::unknown("lock", found, "see `rights`, then retry"));
            return Ok(());
        }
        if facts.is_replica() {
            return Ok(());
        }
        if facts
            .number("connected_slaves")
            .is_some_and(|count| count > 0)
        {
            checks.push(self.confirm(&name, facts).await?);
        }
        match Trial::begin(&self.url, &name).await {
            Ok(trial) => checks.extend(trial.run(client, self.orders.samples).await),
            Err(error) => checks.push(trial::refused("lock", &error)),
        }
        Ok(())
    }

    /// An unused lock name whose keys are on this server.
    async fn find_name(&self) -> Result<String, Error> {
        let mut name = String::new();
        for _ in 0..NAMES_TRIED {
            name = scratch_names::unused(&format!("{}tenure-doctor", self.orders.names));
            match self
                .client
                .run(Command::new("GET").arg(self.key(&name)))
                .await
            {
                Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
                // A cluster node replies so if another node has the key.
                Err(error) if error.kind() == ErrorKind::InvalidUrl => {}
                _ => break,
            }
        }
        Ok(name)
    }

    /// The key of a lock with this name.
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.client.prefix())
    }

    fn scope(&self, name: &str) -> Scope {
        Scope {
            key: self.key(name),
            names: self.orders.names.clone(),
            prefix: self.client.prefix().to_owned(),
            deployment: self.orders.deployment,
            is_redisson: self.url.contains("layout=redisson"),
        }
    }

    /// Whether replicas confirm a write.
    async fn confirm(&self, name: &str, facts: &Facts) -> Result<Check, Error> {
        let replicas = facts.number("connected_slaves").unwrap_or(0);
        let connection = self.client.dedicated().await?;
        let set = Command::new("SET").arg(self.key(name));
        let set = set.arg("x").arg("PX").arg(2_000);
        let wait = Command::new("WAIT")
            .arg(replicas)
            .arg(CONFIRM_LIMIT.as_millis());
        let begun = Instant::now();
        let confirmed = async {
            connection.run(set, CONFIRM_LIMIT).await?;
            connection.run(wait, CONFIRM_LIMIT * 3).await
        };
        let check = match confirmed.await {
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => Check::warn(
                "confirming",
                error,
                "needed only for locks that use `replicas`: allow WAIT (+wait)",
            ),
            Ok(count) => {
                let count = count.as_int().and_then(|count| u64::try_from(count).ok());
                let count = count.unwrap_or(0);
                let found = format!(
                    "{count} of {replicas} replicas in {}",
                    millis(begun.elapsed())
                );
                if count >= replicas {
                    Check::ok("confirming", found)
                } else {
                    let advice = "check the replicas and their network: locks that use `replicas` \
                                  are refused";
                    Check::warn("confirming", found, advice)
                }
            }
        };
        scratch_names::sweep(&self.client, &[name.to_owned()]).await;
        Ok(check)
    }
}

impl Diagnosis {
    /// A server that could not be checked, with the reason.
    pub fn of_refusal(url: &str, error: Error) -> Self {
        let (name, advice) = match error.kind() {
            ErrorKind::Denied => (
                "rights",
                "set user and password in TENURE_URL, or the password with --password-file",
            ),
            ErrorKind::Unsupported => ("version", "7.0 or newer is needed"),
            _ => (
                "reachable",
                "check that the server is running, the host, the port and the firewall",
            ),
        };
        Self {
            report: ServerReport {
                server: tenure::masked_url(url),
                checks: vec![Check::bad(name, &error, advice)],
            },
            facts: Facts::default(),
            offset: None,
            refusal: Some(error),
        }
    }
}

/// The user in the URL, or `default`.
fn user_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    let user = user.split_once(':').map_or(user, |(user, _)| user);
    if user.is_empty() { "default" } else { user }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_whom_the_url_names() {
        assert_eq!(user_of("redis://worker:p@ss@h:1/"), "worker");
        assert_eq!(user_of("redis://:secret@h"), "default");
        assert_eq!(user_of("h:6379"), "default");
    }
}
