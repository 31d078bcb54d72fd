//! Whether there is room: for keys, which must not be evicted, and for connections.

use super::NO_INFO;
use crate::commands::doctor::check::Check;
use crate::commands::doctor::facts::Facts;

/// How much of a limit may be used before a warning and before it is bad, in percent.
const FULL_WARN: u64 = 80;
const FULL_BAD: u64 = 95;
/// A connection can be idle for this long: a client without locks sends nothing.
const IDLE_SECONDS_MIN: u64 = 60;

pub fn eviction(facts: &Facts) -> Check {
    let name = "eviction";
    let Some(policy) = facts.setting("maxmemory-policy") else {
        let advice = "it must be `noeviction`: check your provider's console";
        return Check::unknown(name, NO_INFO, advice);
    };
    if policy == "noeviction" {
        return Check::ok(name, policy);
    }
    let advice = "run `CONFIG SET maxmemory-policy noeviction`, or use a separate server for \
                  locks: a lock is a key with a ttl, and those are evicted first";
    if facts.setting_number("maxmemory") == Some(0) {
        let found = format!("{policy}, harmless while `maxmemory` is 0");
        return Check::warn(name, found, advice);
    }
    let found = format!("{policy}: when memory is full, held locks are evicted");
    Check::bad(name, found, advice)
}

pub fn memory(facts: &Facts) -> Check {
    let name = "memory";
    let Some(used) = facts.number("used_memory") else {
        return Check::unknown(name, NO_INFO, "check `INFO memory` there");
    };
    let limit = facts.setting_number("maxmemory").filter(|limit| *limit > 0);
    let machine = facts.number("total_system_memory").filter(|size| *size > 0);
    let (total, whose) = match (limit, machine) {
        (Some(limit), _) => (limit, "`maxmemory`"),
        (None, Some(machine)) => (machine, "the machine's memory, without `maxmemory`"),
        (None, None) => return Check::ok(name, format!("{} used", bytes(used))),
    };
    let percent = percent_of(used, total);
    let found = format!(
        "{} used, {percent} % of {whose} ({})",
        bytes(used),
        bytes(total)
    );
    let advice = "raise `maxmemory` or delete keys: a full server refuses new locks";
    by_fullness(name, percent, found, advice)
}

pub fn connections(facts: &Facts) -> Check {
    let name = "connections";
    let now = facts.number("connected_clients");
    let (Some(now), Some(max)) = (now, facts.setting_number("maxclients")) else {
        return Check::unknown(
            name,
            NO_INFO,
            "check `INFO clients` there: each client needs four",
        );
    };
    let found = format!("{now} of at most {max}");
    let advice = "raise `maxclients`: each Tenure client needs up to four connections";
    by_fullness(name, percent_of(now, max), found, advice)
}

pub fn idle(facts: &Facts) -> Check {
    let name = "idle";
    match facts.setting_number("timeout") {
        None => Check::unknown(
            name,
            "the user may not run CONFIG GET",
            "`timeout` should be 0: check your provider's console",
        ),
        Some(0) => Check::ok(name, "idle connections are kept"),
        Some(seconds) if seconds >= IDLE_SECONDS_MIN => Check::ok(
            name,
            format!("idle connections are closed after {seconds} s"),
        ),
        Some(seconds) => Check::warn(
            name,
            format!("idle connections are closed after {seconds} s"),
            "run `CONFIG SET timeout 0`: reconnecting delays the next lock",
        ),
    }
}

fn by_fullness(name: &'static str, percent: u64, found: String, advice: &str) -> Check {
    match percent {
        FULL_BAD.. => Check::bad(name, found, advice),
        FULL_WARN.. => Check::warn(name, found, advice),
        _ => Check::ok(name, found),
    }
}

fn percent_of(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100) / whole.max(1)
}

fn bytes(count: u64) -> String {
    const MIB: u64 = 1 << 20;
    match count {
        0..MIB => format!("{} KiB", count >> 10),
        MIB..0x4000_0000 => format!("{} MiB", count >> 20),
        _ => format!("{} GiB", count >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Verdict;
    use super::*;

    #[test]
    fn a_policy_that_evicts_is_bad_only_with_a_limit() {
        let of = |policy, max| {
            eviction(&Facts::of(
                "",
                &[("maxmemory-policy", policy), ("maxmemory", max)],
            ))
            .result
        };
        assert_eq!(of("noeviction", "100"), Verdict::Ok);
        assert_eq!(of("volatile-lru", "100"), Verdict::Bad);
        assert_eq!(of("allkeys-lfu", "0"), Verdict::Warn);
        assert_eq!(eviction(&Facts::default()).result, Verdict::Unknown);
    }

    #[test]
    fn memory_counts_against_its_limit_or_the_machine() {
        let of = |info: &str| memory(&Facts::of(info, &[]));
        assert_eq!(of("used_memory:50\nmaxmemory:100\n").result, Verdict::Ok);
        assert_eq!(of("used_memory:80\nmaxmemory:100\n").result, Verdict::Warn);
        assert_eq!(of("used_memory:99\nmaxmemory:100\n").result, Verdict::Bad);
        let of_machine = of("used_memory:99\nmaxmemory:0\ntotal_system_memory:100\n");
        assert_eq!(of_machine.result, Verdict::Bad);
        assert!(of_machine.found.contains("without `maxmemory`"));
    }

    #[test]
    fn resting_connections_should_not_be_closed_soon() {
        let of = |seconds| idle(&Facts::of("", &[("timeout", seconds)])).result;
        assert_eq!(of("0"), Verdict::Ok);
        assert_eq!(of("300"), Verdict::Ok);
        assert_eq!(of("5"), Verdict::Warn);
    }
}
