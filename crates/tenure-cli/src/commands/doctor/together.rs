//! Checks of the independent servers of a Redlock together.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tenure::redis::Client;
use tenure::{Error, Redlock};
use tenure_view::scratch_names;
use tenure_view::timings::millis;

use super::check::Check;
use super::patient::Diagnosis;
use super::trial;

/// The default longest ttl of Redlock clients.
const LONGEST_TTL: Duration = Duration::from_secs(30);
const TRY_LIMIT: Duration = Duration::from_secs(5);

/// Checks all nodes together.
pub async fn examine(urls: &[String], nodes: &[Diagnosis], names: &str) -> Vec<Check> {
    let mut checks = vec![number(nodes.len()), answering(nodes)];
    let twins = twins(nodes);
    let votes = votes(nodes);
    let can_try = twins.is_none() && votes.count >= majority(nodes.len());
    checks.extend(twins);
    checks.push(votes.check);
    checks.extend(clocks(nodes));
    if can_try {
        checks.push(try_lock(urls, names).await);
    }
    checks
}

struct Votes {
    count: usize,
    check: Check,
}

fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

fn number(nodes: usize) -> Check {
    let may_fail = nodes - majority(nodes);
    let found = format!("{nodes}, {may_fail} may fail");
    if nodes % 2 == 1 {
        return Check::ok("nodes", found);
    }
    let advice = format!(
        "add or remove one: {nodes} nodes tolerate no more failures than {}",
        nodes - 1
    );
    Check::warn("nodes", found, advice)
}

fn answering(nodes: &[Diagnosis]) -> Check {
    let count = nodes.iter().filter(|node| node.refusal.is_none()).count();
    let needed = majority(nodes.len());
    let found = format!("{count} of {} respond, {needed} are needed", nodes.len());
    if count < needed {
        return Check::bad(
            "majority",
            found,
            "bring more nodes back: no lock can be acquired",
        );
    }
    Check::ok("majority", found)
}

/// Two URLs that lead to the same process, which would vote twice.
fn twins(nodes: &[Diagnosis]) -> Option<Check> {
    let mut known = HashMap::new();
    nodes.iter().find_map(|node| {
        let run_id = node.facts.info("run_id")?;
        let server = node.report.server.as_str();
        let twin = known.insert(run_id, server)?;
        Some(Check::bad(
            "independent",
            format!("`{twin}` and `{server}` are the same server"),
            "list each server once: it would vote twice",
        ))
    })
}

/// Which nodes may vote: one that has just started may have lost its grants.
fn votes(nodes: &[Diagnosis]) -> Votes {
    let answering = nodes.iter().filter(|node| node.refusal.is_none());
    let uptime = |node: &Diagnosis| node.facts.number("uptime_in_seconds").unwrap_or(0);
    let is_young = |node: &Diagnosis| {
        // The server counts whole seconds, and may count one too many.
        !node.facts.keeps_each_answer() && uptime(node) <= LONGEST_TTL.as_secs()
    };
    let (young, voting): (Vec<&Diagnosis>, Vec<&Diagnosis>) =
        answering.partition(|node| is_young(node));
    let (count, needed) = (voting.len(), majority(nodes.len()));
    let found = format!("{count} of {} may vote, {needed} are needed", nodes.len());
    let Some(youngest) = young.iter().min_by_key(|node| uptime(node)) else {
        let check = if count < needed {
            Check::bad("votes", found, "bring more nodes back")
        } else {
            Check::ok("votes", found)
        };
        return Votes { count, check };
    };
    let left = LONGEST_TTL.as_secs() + 1 - uptime(youngest).min(LONGEST_TTL.as_secs());
    let found = format!("{found}; `{}` votes in {left} s", youngest.report.server);
    let advice = "wait, and set `appendfsync always`: a node that may have lost its votes does not \
                  vote for the longest ttl, 30 s";
    let check = if count < needed {
        Check::bad("votes", found, advice)
    } else {
        Check::warn("votes", found, advice)
    };
    Votes { count, check }
}

/// How far the clocks of the nodes differ: fences follow them.
fn clocks(nodes: &[Diagnosis]) -> Option<Check> {
    let aheads = || nodes.iter().filter_map(|node| Some(node.offset?.ahead_us));
    let apart = aheads().max()?.abs_diff(aheads().min()?);
    let apart = Duration::from_micros(apart);
    let found = format!("at most {} apart", millis(apart));
    let advice = "synchronize them with NTP: nodes refuse fences that are too far from their clock";
    // A node that may lose data uses its clock, and refuses a fence that is a quarter of the ttl
    // away.
    let all_keep = nodes.iter().all(|node| node.facts.keeps_each_answer());
    let limit = if all_keep {
        LONGEST_TTL / 2
    } else {
        LONGEST_TTL / 4
    };
    Some(if apart > limit {
        Check::bad("clocks", found, advice)
    } else if apart > Duration::from_secs(1) {
        Check::warn("clocks", found, advice)
    } else {
        Check::ok("clocks", found)
    })
}

/// Acquires and releases a lock on a majority.
async fn try_lock(urls: &[String], names: &str) -> Check {
    let name = scratch_names::unused(&format!("{names}tenure-doctor"));
    let tried = async {
        let redlock = Redlock::connect(urls).await?;
        let begun = Instant::now();
        let guard = redlock.lock(&name).wait(TRY_LIMIT).acquire().await?;
        guard.release().await?;
        let took = begun.elapsed();
        redlock.shutdown(TRY_LIMIT).await;
        Ok::<_, Error>(took)
    };
    let check = match tried.await {
        Ok(took) => Check::ok(
            "lock",
            format!("acquire and release on a majority took {}", millis(took)),
        ),
        Err(error) => trial::refused("lock", &error),
    };
    let names = [name];
    for url in urls {
        if let Ok(client) = Client::connect(url).await {
            scratch_names::sweep(&client, &names).await;
        }
    }
    check
}
