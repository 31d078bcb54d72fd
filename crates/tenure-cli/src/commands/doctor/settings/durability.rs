//! What happens to locks when a server restarts or fails.

use super::NO_INFO;
use crate::commands::doctor::check::Check;
use crate::commands::doctor::deployment::Deployment;
use crate::commands::doctor::facts::Facts;

/// A replica that has been silent for longer lags.
const LAG_SECONDS_MAX: u64 = 2;

pub fn persistence(facts: &Facts, deployment: Deployment) -> Check {
    let name = "persistence";
    let Some(has_aof) = facts.info("aof_enabled") else {
        return Check::unknown(name, NO_INFO, advice_on_disk(deployment));
    };
    if has_aof != "1" {
        let has_snapshots = facts.setting("save").is_some_and(|save| !save.is_empty());
        let found = if has_snapshots {
            "snapshots only: a restart restores an old state in which held locks are free"
        } else {
            "no persistence: a restart frees all locks while their holders keep working"
        };
        return Check::warn(name, found, advice_on_disk(deployment));
    }
    match facts.setting("appendfsync") {
        Some("always") => Check::ok(name, "append-only file, fsync before each reply"),
        Some(fsync) if deployment == Deployment::Redlock => Check::warn(
            name,
            format!("append-only file, `appendfsync {fsync}`: no vote for 30 s after a restart"),
            advice_on_disk(deployment),
        ),
        Some("everysec") => Check::ok(
            name,
            "append-only file, fsync each second: a crash may lose up to two seconds",
        ),
        Some(fsync) => Check::warn(
            name,
            format!("append-only file, `appendfsync {fsync}`: a machine crash loses more"),
            advice_on_disk(deployment),
        ),
        None => Check::unknown(
            name,
            "append-only file; the user may not read `appendfsync`",
            advice_on_disk(deployment),
        ),
    }
}

fn advice_on_disk(deployment: Deployment) -> &'static str {
    match deployment {
        Deployment::Single => {
            "set `appendonly yes`, and `appendfsync always` if no lock may be lost; always check \
             the fence where work must not happen twice"
        }
        Deployment::Sentinel | Deployment::Cluster => {
            "set `appendonly yes`: a primary that restarts empty before a failover empties its \
             replicas, too"
        }
        Deployment::Redlock => {
            "set `appendonly yes` and `appendfsync always`: then a node votes right after a restart"
        }
    }
}

pub fn replicas(facts: &Facts, deployment: Deployment) -> Check {
    let name = "replicas";
    let Some(count) = facts.number("connected_slaves") else {
        return Check::unknown(name, NO_INFO, "check `INFO replication` there");
    };
    let needed = facts.setting_number("min-replicas-to-write").unwrap_or(0);
    let fit = facts.number("min_slaves_good_slaves").unwrap_or(count);
    if needed > fit {
        return Check::bad(
            name,
            format!(
                "{fit} of the {needed} that `min-replicas-to-write` requires: no lock can be \
                 acquired"
            ),
            "bring the replicas back, or lower `min-replicas-to-write`",
        );
    }
    if let Some(behind) = first_behind(facts, count) {
        let advice = "check its log and the network: a failover loses what it has not received";
        return Check::warn(name, behind, advice);
    }
    if !deployment.fails_over() {
        return Check::ok(name, format!("{count}: this deployment needs none"));
    }
    if count == 0 {
        let advice = "add a replica: nothing can take over when the primary fails";
        return Check::warn(name, "none", advice);
    }
    if needed == 0 {
        return Check::warn(
            name,
            format!("{count}, and a primary that is cut off from them keeps granting locks"),
            "run `CONFIG SET min-replicas-to-write 1`",
        );
    }
    Check::ok(name, format!("{count}, {needed} required"))
}

/// Describes the first replica that lags.
fn first_behind(facts: &Facts, count: u64) -> Option<String> {
    let lines = (0..count).filter_map(|number| facts.info(&format!("slave{number}")));
    let mut behind = lines.filter_map(|line| {
        let field = |name: &str| {
            let mut fields = line.split(',').filter_map(|field| field.split_once('='));
            fields
                .find(|(field, _)| *field == name)
                .map(|(_, value)| value)
        };
        let at = format!("{}:{}", field("ip")?, field("port")?);
        let lag: u64 = field("lag")?.parse().ok()?;
        let state = field("state")?;
        if state != "online" {
            return Some(format!("replica {at} is not online: `{state}`"));
        }
        (lag > LAG_SECONDS_MAX).then(|| format!("replica {at} lags {lag} s"))
    });
    behind.next()
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Verdict;
    use super::*;

    #[track_caller]
    fn check_kept(aof: &str, fsync: &str, deployment: Deployment, verdict: Verdict) {
        let settings = [("appendfsync", fsync), ("save", "")];
        let facts = Facts::of(&format!("aof_enabled:{aof}\n"), &settings);
        let check = persistence(&facts, deployment);
        assert_eq!(check.result, verdict, "{check:?}");
    }

    #[test]
    fn what_must_be_on_disk_depends_on_the_deployment() {
        check_kept("1", "always", Deployment::Redlock, Verdict::Ok);
        check_kept("1", "everysec", Deployment::Redlock, Verdict::Warn);
        check_kept("1", "everysec", Deployment::Single, Verdict::Ok);
        check_kept("1", "no", Deployment::Single, Verdict::Warn);
        check_kept("0", "everysec", Deployment::Sentinel, Verdict::Warn);
    }

    #[test]
    fn replicas_must_be_there_and_keep_up() {
        let of = |info: &str, needed, deployment| {
            replicas(
                &Facts::of(info, &[("min-replicas-to-write", needed)]),
                deployment,
            )
        };
        let one = "connected_slaves:1\nslave0:ip=10.0.0.1,port=1,state=online,offset=9,lag=0\n";
        assert_eq!(of(one, "1", Deployment::Sentinel).result, Verdict::Ok);
        assert_eq!(of(one, "0", Deployment::Sentinel).result, Verdict::Warn);
        assert_eq!(of(one, "2", Deployment::Single).result, Verdict::Bad);
        let none = "connected_slaves:0\n";
        assert_eq!(of(none, "0", Deployment::Single).result, Verdict::Ok);
        assert_eq!(of(none, "0", Deployment::Cluster).result, Verdict::Warn);
        let late = of(&one.replace("lag=0", "lag=7"), "1", Deployment::Sentinel);
        assert_eq!(late.found, "replica 10.0.0.1:1 lags 7 s");
    }
}
