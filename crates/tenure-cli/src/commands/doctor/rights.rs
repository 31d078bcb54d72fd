//! Whether the user has every right that locks need, and how to give it the missing ones.
//!
//! Inside a transaction the server checks the rights to each command, key and channel when it is
//! queued. A transaction that is never executed tries them all and does nothing.

mod needs;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use tenure::redis::{Client, Command, Dedicated};
use tenure::{Error, ErrorKind};

pub use self::needs::Scope;
use self::needs::{Need, Weight};
use super::check::Check;
use super::facts::allowed;

const NAME: &str = "rights";
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The result of the check.
#[derive(Debug)]
pub struct Rights {
    pub check: Check,
    /// How an ACL separates those who use this prefix, if there is one.
    pub of_prefix: Option<Check>,
    /// Without `MULTI` locks cannot be tried: one step would become several.
    pub has_transactions: bool,
}

/// The server's answers to all commands that were tried.
#[derive(Debug, Default)]
struct Findings {
    /// `ACL SETUSER` rules that grant what is missing.
    missing: BTreeSet<String>,
    /// Whether locks do not work without them.
    is_vital: bool,
    /// Commands that this server does not have.
    unheard: BTreeSet<String>,
}

/// The server's answer to one of them.
enum Said {
    Allowed,
    NoCommand,
    NoKey,
    NoChannel,
    Unheard,
}

/// Tries all rights that locks of this name need.
///
/// # Errors
///
/// If the server stops responding.
pub async fn examine(client: &Client, scope: &Scope, user: &str) -> Result<Rights, Error> {
    let user = match allowed(client.run(Command::new("ACL").arg("WHOAMI")).await)? {
        Some(name) => name.as_str().unwrap_or(user).to_owned(),
        None => user.to_owned(),
    };
    let needs = needs::all(scope);
    let of_prefix = of_prefix(scope, &user);
    let mut findings = Findings::default();
    // Outside of the transaction: it would end it.
    note(&mut findings, &need_of_exec(), &try_exec(client).await?);
    let connection = client.dedicated().await?;
    let begun = said(connection.run(Command::new("MULTI"), ANSWER_LIMIT).await)?;
    if !matches!(begun, Said::Allowed) {
        return Ok(Rights {
            check: untried(&user, &needs),
            of_prefix,
            has_transactions: false,
        });
    }
    for need in &needs {
        note(&mut findings, need, &try_out(&connection, need).await?);
    }
    Ok(Rights {
        check: findings.into_check(&user),
        of_prefix,
        has_transactions: true,
    })
}

/// The rules of a user that may touch nothing but what begins with the prefix.
fn of_prefix(scope: &Scope, user: &str) -> Option<Check> {
    if scope.prefix.is_empty() {
        return None;
    }
    let user = if user == "default" { "NAME" } else { user };
    let keys = scope.key_patterns().map(|pattern| format!("~{pattern}"));
    let channels = scope.channel_patterns().map(|it| format!("&{it}"));
    let (keys, channels): (Vec<_>, Vec<_>) = (keys.collect(), channels.collect());
    let found = format!(
        "all keys and channels are under `{}`; `ACL SETUSER {user} resetkeys {} resetchannels {}` \
         gives a user these and no others",
        scope.prefix,
        keys.join(" "),
        channels.join(" ")
    );
    Some(Check::ok("prefix", found))
}

async fn try_out(connection: &Dedicated, need: &Need) -> Result<Said, Error> {
    let mut words = need.words.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    for word in words {
        command = command.arg(word);
    }
    said(connection.run(command, ANSWER_LIMIT).await)
}

async fn try_exec(client: &Client) -> Result<Said, Error> {
    let connection = client.dedicated().await?;
    said(connection.run(Command::new("EXEC"), ANSWER_LIMIT).await)
}

fn need_of_exec() -> Need {
    Need::new("exec", Weight::Helpful, &["EXEC"])
}

/// What an answer says about permissions. Other errors, such as that the key is on another node,
/// come only after the permission check.
fn said<T>(answer: Result<T, Error>) -> Result<Said, Error> {
    let Err(error) = answer else {
        return Ok(Said::Allowed);
    };
    let text = error.to_string();
    // The server's address comes first, and may contain anything.
    let text = text.split_once("refused: ").map_or("", |(_, text)| text);
    match error.kind() {
        ErrorKind::Unavailable => Err(error),
        ErrorKind::Denied if text.contains("to run") => Ok(Said::NoCommand),
        ErrorKind::Denied if text.contains("channel") => Ok(Said::NoChannel),
        ErrorKind::Denied => Ok(Said::NoKey),
        // The error of `EXEC`, which discards the transaction in any case.
        _ if text.contains("EXECABORT") => Ok(Said::NoCommand),
        _ if text.contains("unknown command") => Ok(Said::Unheard),
        _ => Ok(Said::Allowed),
    }
}

fn note(findings: &mut Findings, need: &Need, said: &Said) {
    let rule = match said {
        Said::Allowed => return,
        Said::Unheard => {
            findings.unheard.insert(need.command.to_uppercase());
            findings.is_vital |= need.weight == Weight::Vital;
            return;
        }
        Said::NoCommand => format!("+{}", need.command),
        Said::NoKey => format!("~{}", need.key_pattern),
        Said::NoChannel => format!("&{}", need.channel_pattern),
    };
    // If the command is forbidden, its key and channel were not checked: other commands show that.
    findings.is_vital |= need.weight == Weight::Vital;
    findings.missing.insert(rule);
}

/// Without `MULTI` nothing can be tried without executing it.
fn untried(user: &str, needs: &[Need]) -> Check {
    let commands = needs.iter().map(|need| format!("+{}", need.command));
    let rules: Vec<String> = commands.collect::<BTreeSet<_>>().into_iter().collect();
    let found = format!(
        "the user `{user}` lacks the command `MULTI`, which is needed to check the other \
         permissions"
    );
    let advice = format!(
        "run `ACL SETUSER {user} +multi +exec {}` to grant everything that may be missing",
        rules.join(" ")
    );
    Check::bad(NAME, found, advice)
}

impl Findings {
    fn into_check(self, user: &str) -> Check {
        if !self.unheard.is_empty() {
            let commands: Vec<String> = self.unheard.into_iter().collect();
            let found = format!("the server has no `{}`", commands.join("`, `"));
            let advice = "locks need it; it was renamed or disabled (`rename-command`)";
            return if self.is_vital {
                Check::bad(NAME, found, advice)
            } else {
                Check::warn(NAME, found, advice)
            };
        }
        if self.missing.is_empty() {
            return Check::ok(
                NAME,
                format!("the user `{user}` may use every command, key and channel that locks need"),
            );
        }
        let rules = without_covered(self.missing);
        let found = format!("the user `{user}` lacks {}", in_words(&rules));
        let advice = format!(
            "run `ACL SETUSER {user} {}`, and `ACL SAVE` to persist it",
            rules.join(" ")
        );
        if self.is_vital {
            Check::bad(NAME, found, advice)
        } else {
            let found = format!("{found}: locks work, but {}", cost(&rules));
            Check::warn(NAME, found, advice)
        }
    }
}

/// `~*` includes all other key patterns.
fn without_covered(rules: BTreeSet<String>) -> Vec<String> {
    let has_all_keys = rules.contains("~*");
    let is_needed = |rule: &String| !has_all_keys || rule == "~*" || !rule.starts_with('~');
    rules.into_iter().filter(is_needed).collect()
}

fn in_words(rules: &[String]) -> String {
    let word = |rule: &String| match rule.split_at(1) {
        ("+", command) => format!("the command `{}`", command.to_uppercase()),
        ("~", pattern) => format!("the keys `{pattern}`"),
        (_, pattern) => format!("the channels `{pattern}`"),
    };
    let words: Vec<String> = rules.iter().map(word).collect();
    words.join(", ")
}

/// The consequences of missing permissions that are not required.
fn cost(rules: &[String]) -> String {
    let of = |rule: &String| match rule.as_str() {
        "+client|tracking" | "+client|caching" => {
            "holders notice a forced release only at the next renewal"
        }
        "+exec" => "each acquire runs a script, which costs the server more",
        "+info" => "version, eviction and role are not checked",
        "+script|load" => "new scripts are sent with their source",
        "+wait" => "locks cannot wait for replicas",
        "+pubsub|numsub" | "+pubsub|shardnumsub" => "waiters are counted less exactly",
        _ => "waiters poll instead of being notified",
    };
    let mut seen = HashSet::new();
    let costs = rules.iter().map(of).filter(|cost| seen.insert(*cost));
    costs.collect::<Vec<_>>().join(", and ")
}
