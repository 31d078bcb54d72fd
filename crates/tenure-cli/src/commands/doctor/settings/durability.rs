//! What is left of locks when a server restarts or fails.

use super::NO_INFO;
use crate::commands::doctor::check::Check;
use crate::commands::doctor::deployment::Deployment;
use crate::commands::doctor::facts::Facts;

/// A replica that has said nothing for longer is behind.
const LAG_SECONDS_MAX: u64 = 2;

pub fn persistence(facts: &Facts, deployment: Deployment) -> Check {
    let name = "persistence";
    let Some(has_aof) = facts.info("aof_enabled") else {
        return Check::unknown(name, NO_INFO, advice_on_disk(deployment));
    };
    if has_aof != "1" {
        let has_snapshots = facts.setting("save").is_some_and(|save| !save.is_empty());
        let found = if has_snapshots {
            "snapshots only: a restart brings back an old state, in which held locks are free"
        } else {
            "nothing is kept on disk: a restart frees all locks while their holders go on"
        };
        return Check::warn(name, found, advice_on_disk(deployment));
    }
    match facts.setting("appendfsync") {
        Some("always") => Check::ok(name, "append-only file, on disk before each answer"),
        Some(fsync) if deployment == Deployment::Redlock => Check::warn(
            name,
            format!("append-only file, `appendfsync {fsync}`: no vote for 30 s after a restart"),
            advice_on_disk(deployment),
        ),
        Some("everysec") => Check::ok(
            name,
            "append-only file, on disk each second: a crash of the machine forgets that much",
        ),
        Some(fsync) => Check::warn(
            name,
            format!("append-only file, `appendfsync {fsync}`: a crash of the machine forgets more"),
            advice_on_disk(deployment),
        ),
        None => Check::unknown(
            name,
            "append-only file; the user may not ask when it reaches the disk",
            advice_on_disk(deployment),
        ),
    }
}

fn advice_on_disk(deployment: Deployment) -> &'static str {
    match deployment {
        Deployment::Single => {
            "set `appendonly yes`, and `appendfsync always` if no lock may be forgotten; what must \
             not happen twice checks the fence in any case"
        }
        Deployment::Sentinel | Deployment::Cluster => {
            "set `appendonly yes`: a master that restarts empty before a replica is promoted \
             empties its replicas, too"
        }
        Deployment::Redlock => {
            "set `appendonly yes` and `appendfsync always`: then a node votes at once after a \
             restart, because it forgets nothing"
        }
    }
}

pub fn replicas(facts: &Facts, deployment: Deployment) -> Check {
    let name = "replicas";
    let Some(count) = facts.number("connected_slaves") else {
        return Check::unknown(name, NO_INFO, "`INFO replication` there tells");
    };
    let needed = facts.setting_number("min-replicas-to-write").unwrap_or(0);
    let fit = facts.number("min_slaves_good_slaves").unwrap_or(count);
    if needed > fit {
        return Check::bad(
            name,
            format!("{fit} of the {needed} that `min-replicas-to-write` demands: no lock is given"),
            "bring the replicas back, or lower `min-replicas-to-write`",
        );
    }
    if let Some(behind) = first_behind(facts, count) {
        let advice = "look at its log and the network: what it has not heard of is lost with the \
                      master";
        return Check::warn(name, behind, advice);
    }
    if !deployment.fails_over() {
        return Check::ok(name, format!("{count}: this deployment needs none"));
    }
    if count == 0 {
        let advice = "add one: nobody can take over when the master fails";
        return Check::warn(name, "none", advice);
    }
    if needed == 0 {
        return Check::warn(
            name,
            format!("{count}, and a master that is cut off from them goes on to give locks"),
            "type `CONFIG SET min-replicas-to-write 1`",
        );
    }
    Check::ok(name, format!("{count}, of which {needed} must be there"))
}

/// The first replica that does not keep up, in words.
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
            return Some(format!("the replica {at} is not there yet: `{state}`"));
        }
        (lag > LAG_SECONDS_MAX).then(|| format!("the replica {at} was last heard {lag} s ago"))
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
        assert_eq!(late.found, "the replica 10.0.0.1:1 was last heard 7 s ago");
    }
}
