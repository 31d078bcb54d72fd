//! What a server's settings and state mean for locks.

mod capacity;
mod durability;

use super::check::Check;
use super::deployment::Deployment;
use super::facts::Facts;

/// The oldest version that supports our scripts.
const VERSION_MIN: u32 = 7;
const NO_INFO: &str = "the user may not run INFO";

/// All checks that need only the facts.
pub fn examine(facts: &Facts, deployment: Deployment) -> Vec<Check> {
    vec![
        version(facts),
        role(facts),
        capacity::eviction(facts),
        capacity::memory(facts),
        durability::persistence(facts, deployment),
        durability::replicas(facts, deployment),
        capacity::connections(facts),
        capacity::idle(facts),
    ]
}

fn version(facts: &Facts) -> Check {
    let valkey = facts.info("valkey_version");
    let Some(version) = valkey.or_else(|| facts.info("redis_version")) else {
        let advice = "7.0 or newer is needed: check `redis-server --version` there, or grant +info";
        return Check::unknown("version", NO_INFO, advice);
    };
    let product = if valkey.is_some() { "Valkey" } else { "Redis" };
    let found = format!("{product} {version}");
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    if major.is_some_and(|major: u32| major < VERSION_MIN) {
        return Check::bad("version", found, "upgrade it: 7.0 or newer is needed");
    }
    Check::ok("version", found)
}

fn role(facts: &Facts) -> Check {
    match facts.info("role") {
        Some("master") => Check::ok("role", "master"),
        Some("slave") => {
            let (host, port) = (facts.info("master_host"), facts.info("master_port"));
            let master = format!("{}:{}", host.unwrap_or("?"), port.unwrap_or("?"));
            Check::bad(
                "role",
                format!("a replica of {master}: it accepts no locks"),
                format!("use redis://{master}, or redis-sentinel:// to follow the primary"),
            )
        }
        _ => Check::unknown("role", NO_INFO, "check `ROLE` there: it must be `master`"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn versions_and_products_are_told_apart() {
        let of = |info: &str| version(&Facts::of(info, &[]));
        assert_eq!(of("redis_version:7.0.15\r\n").found, "Redis 7.0.15");
        let valkey = of("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n");
        assert_eq!(
            (valkey.found.as_str(), valkey.result),
            ("Valkey 8.1.0", Verdict::Ok)
        );
        assert_eq!(of("redis_version:6.2.7\r\n").result, Verdict::Bad);
        assert_eq!(of("").result, Verdict::Unknown);
    }
}
