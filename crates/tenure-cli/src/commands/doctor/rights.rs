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

/// Which rights there are.
#[derive(Debug)]
pub struct Rights {
    pub check: Check,
    /// Without `MULTI` no lock can be tried: what should be one step would be several.
    pub has_transactions: bool,
}

/// What the server said about all that was tried.
#[derive(Debug, Default)]
struct Findings {
    /// Rules that give what is missing, in the words of `ACL SETUSER`.
    missing: BTreeSet<String>,
    /// Whether locks cannot do without.
    is_vital: bool,
    /// Commands that this server does not have, whoever asks.
    unheard: BTreeSet<String>,
}

/// What the server said about one of them.
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
/// If the server does not answer any more.
pub async fn examine(client: &Client, scope: &Scope, user: &str) -> Result<Rights, Error> {
    let user = match allowed(client.run(Command::new("ACL").arg("WHOAMI")).await)? {
        Some(name) => name.as_str().unwrap_or(user).to_owned(),
        None => user.to_owned(),
    };
    let needs = needs::all(scope);
    let mut findings = Findings::default();
    // Not in a transaction: it would end it.
    note(&mut findings, &need_of_exec(), &try_exec(client).await?);
    let connection = client.dedicated().await?;
    let begun = said(connection.run(Command::new("MULTI"), ANSWER_LIMIT).await)?;
    if !matches!(begun, Said::Allowed) {
        return Ok(Rights {
            check: untried(&user, &needs),
            has_transactions: false,
        });
    }
    for need in &needs {
        note(&mut findings, need, &try_out(&connection, need).await?);
    }
    Ok(Rights {
        check: findings.into_check(&user),
        has_transactions: true,
    })
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

/// What an answer says about the rights. Other complaints, such as that the key is elsewhere, come
/// only after these were checked.
fn said<T>(answer: Result<T, Error>) -> Result<Said, Error> {
    let Err(error) = answer else {
        return Ok(Said::Allowed);
    };
    let text = error.to_string();
    // The address of the server stands before it, and may hold any word.
    let text = text.split_once("refused: ").map_or("", |(_, text)| text);
    match error.kind() {
        ErrorKind::Unavailable => Err(error),
        ErrorKind::Denied if text.contains("to run") => Ok(Said::NoCommand),
        ErrorKind::Denied if text.contains("channel") => Ok(Said::NoChannel),
        ErrorKind::Denied => Ok(Said::NoKey),
        // How `EXEC` is refused, which gives up a transaction in any case.
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
    // Where the command is forbidden, nothing was said of its key and channel: others tell.
    findings.is_vital |= need.weight == Weight::Vital;
    findings.missing.insert(rule);
}

/// Without `MULTI` nothing can be tried without doing it.
fn untried(user: &str, needs: &[Need]) -> Check {
    let commands = needs.iter().map(|need| format!("+{}", need.command));
    let rules: Vec<String> = commands.collect::<BTreeSet<_>>().into_iter().collect();
    let found = format!(
        "the user `{user}` lacks the command `MULTI`, without which the other rights cannot be tried"
    );
    let advice = format!(
        "type `ACL SETUSER {user} +multi +exec {}`, which gives whatever may be missing",
        rules.join(" ")
    );
    Check::bad(NAME, found, advice)
}

impl Findings {
    fn into_check(self, user: &str) -> Check {
        if !self.unheard.is_empty() {
            let commands: Vec<String> = self.unheard.into_iter().collect();
            let found = format!("the server does not have `{}`", commands.join("`, `"));
            let advice = "it was renamed or disabled (`rename-command`): locks need it";
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
            "type `ACL SETUSER {user} {}`, and `ACL SAVE` to keep it",
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

/// `~*` says all that other patterns of keys could.
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

/// What it costs to do without rights that are not vital.
fn cost(rules: &[String]) -> String {
    let of = |rule: &String| match rule.as_str() {
        "+client|tracking" | "+client|caching" => {
            "a forced release is noticed at the next renewal only"
        }
        "+exec" => "each is taken by a script, which costs the server more",
        "+info" => "version, eviction and role go unchecked",
        "+script|load" => "scripts are sent with their text when they are new",
        "+wait" => "no lock can ask its replicas to confirm it",
        "+pubsub|numsub" | "+pubsub|shardnumsub" => "waiters are counted less exactly",
        _ => "waiters must look again and again instead of being woken",
    };
    let mut seen = HashSet::new();
    let costs = rules.iter().map(of).filter(|cost| seen.insert(*cost));
    costs.collect::<Vec<_>>().join(", and ")
}
