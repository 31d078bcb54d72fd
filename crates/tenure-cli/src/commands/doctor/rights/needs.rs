//! The commands, keys and channels that locks use: the table of docs/wire-format.md, as a list to
//! try.

use crate::commands::doctor::deployment::Deployment;

/// What happens to locks without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// They do not work.
    Vital,
    /// They work less well.
    Helpful,
}

/// One command as locks send it.
#[derive(Debug)]
pub struct Need {
    /// Its name in `ACL SETUSER`.
    pub command: &'static str,
    pub weight: Weight,
    pub words: Vec<String>,
    /// Which keys and channels to allow if this one is forbidden.
    pub key_pattern: String,
    pub channel_pattern: String,
}

/// Which locks to try.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The key of a lock with an unused name.
    pub key: String,
    /// What the names of all locks begin with, as far as the user may have others.
    pub names: String,
    /// What all keys and channels begin with.
    pub prefix: String,
    pub deployment: Deployment,
    /// Whether locks use Redisson's layout.
    pub is_redisson: bool,
}

impl Scope {
    /// All keys of a client with this prefix, as an ACL names them.
    pub fn key_patterns(&self) -> impl Iterator<Item = String> {
        self.patterns("redisson_lock_token")
    }

    /// All its channels.
    pub fn channel_patterns(&self) -> impl Iterator<Item = String> {
        self.patterns("redisson_lock__channel")
    }

    fn patterns(&self, of_redisson: &str) -> impl Iterator<Item = String> {
        let prefix = quoted(&self.prefix);
        let own = format!("{prefix}*");
        // Redisson puts the prefix into its own names, not before them; without braces for names
        // that have some.
        let others = [
            format!("{of_redisson}:{{{prefix}*"),
            format!("{of_redisson}:{prefix}*"),
        ];
        let others = others.into_iter().filter(|_| self.is_redisson);
        std::iter::once(own).chain(others)
    }

    /// What to allow if the key of a lock is forbidden.
    fn pattern_of_locks(&self) -> String {
        format!("{}{}*", quoted(&self.prefix), quoted(&self.names))
    }

    /// A name of Tenure's own.
    fn own(&self, rest: &str) -> String {
        format!("{}tenure:{rest}", self.prefix)
    }

    /// What to allow if a key or a channel of Tenure's own is forbidden; everything with the prefix, if
    /// there is one.
    fn pattern_of_own(&self, rest: &str) -> String {
        if self.prefix.is_empty() {
            format!("tenure:{rest}*")
        } else {
            format!("{}*", quoted(&self.prefix))
        }
    }

    /// What to allow if a name of Redisson's is forbidden.
    fn pattern_of_redisson(&self, role: &str) -> String {
        if self.prefix.is_empty() {
            format!("{role}:*")
        } else {
            format!("{role}:{}*", quoted(&self.prefix))
        }
    }
}

/// A text in a pattern, where `*` and others have a meaning.
fn quoted(text: &str) -> String {
    let quote = |it: char| match it {
        '*' | '?' | '[' | ']' | '^' | '\\' => format!("\\{it}"),
        _ => it.to_string(),
    };
    text.chars().map(quote).collect()
}

impl Need {
    pub fn new(command: &'static str, weight: Weight, words: &[&str]) -> Self {
        Self {
            command,
            weight,
            words: words.iter().map(ToString::to_string).collect(),
            key_pattern: "tenure:*".to_owned(),
            channel_pattern: "tenure:wake*".to_owned(),
        }
    }

    fn on_keys(mut self, pattern: impl Into<String>) -> Self {
        self.key_pattern = pattern.into();
        self
    }

    fn on_channels(mut self, pattern: impl Into<String>) -> Self {
        self.channel_pattern = pattern.into();
        self
    }
}

/// Everything that locks use in this scope.
pub fn all(scope: &Scope) -> Vec<Need> {
    let mut needs = on_the_lock(scope);
    needs.extend(for_lock_state(scope));
    needs.extend(for_the_connection());
    needs.extend(for_waiting(scope));
    if scope.is_redisson {
        needs.extend(for_redisson(scope));
    }
    needs.extend(for_the_deployment(scope.deployment));
    needs
}

/// On a key of Tenure's own.
fn own_need(scope: &Scope, command: &'static str, weight: Weight, words: &[&str]) -> Need {
    let need = Need::new(command, weight, words).on_keys(scope.pattern_of_own(""));
    need.on_channels(scope.pattern_of_own("wake"))
}

fn on_the_lock(scope: &Scope) -> Vec<Need> {
    let name = scope.key.as_str();
    let vital = |command, words: &[&str]| {
        let need = Need::new(command, Weight::Vital, words);
        need.on_keys(scope.pattern_of_locks())
    };
    vec![
        vital("evalsha", &["EVALSHA", &"0".repeat(40), "1", name]),
        vital("eval", &["EVAL", "return 1", "1", name]),
        vital("get", &["GET", name]),
        vital("set", &["SET", name, "x", "NX", "GET", "PX", "1"]),
        vital("del", &["DEL", name]),
        vital("pexpire", &["PEXPIRE", name, "1"]),
        vital("pttl", &["PTTL", name]),
        vital("type", &["TYPE", name]),
        vital("exists", &["EXISTS", name]),
        // To release several locks in one call.
        Need::new("mget", Weight::Helpful, &["MGET", name]).on_keys(scope.pattern_of_locks()),
    ]
}

fn for_lock_state(scope: &Scope) -> Vec<Need> {
    let key = |kind: &str| scope.own(&format!("{kind}:{}", scope.key));
    let (shared_fences, clients, client) = (
        scope.own("fences"),
        scope.own("clients"),
        scope.own("client:x"),
    );
    let (fences, queue, alive, meta) = (key("fences"), key("queue"), key("alive"), key("meta"));
    // For the nodes of a Redlock.
    let fence = key("fence");
    let vital = |command, words: &[&str]| own_need(scope, command, Weight::Vital, words);
    vec![
        vital("xadd", &["XADD", &fences, "*", "f", ""]),
        vital("xsetid", &["XSETID", &fences, "1-0"]),
        vital("pexpireat", &["PEXPIREAT", &fences, "1"]),
        vital("xinfo|stream", &["XINFO", "STREAM", &fences]),
        // Without it, each lock has its own counter.
        own_need(
            scope,
            "xadd",
            Weight::Helpful,
            &["XADD", &shared_fences, "*", "f", ""],
        ),
        vital("get", &["GET", &fence]),
        vital("zadd", &["ZADD", &queue, "1", "x"]),
        vital("zrem", &["ZREM", &queue, "x"]),
        vital("zcard", &["ZCARD", &queue]),
        vital("zscore", &["ZSCORE", &queue, "x"]),
        vital("zrange", &["ZRANGE", &queue, "0", "0"]),
        vital("zadd", &["ZADD", &alive, "1", "x"]),
        vital("zrem", &["ZREM", &alive, "x"]),
        vital("zscore", &["ZSCORE", &alive, "x"]),
        vital("zrangebyscore", &["ZRANGEBYSCORE", &alive, "0", "0"]),
        own_need(scope, "zrank", Weight::Helpful, &["ZRANK", &queue, "x"]),
        vital("hset", &["HSET", &meta, "a", "b"]),
        vital("hget", &["HGET", &meta, "a"]),
        vital("hdel", &["HDEL", &meta, "a"]),
        vital("hgetall", &["HGETALL", &meta]),
        vital("zadd", &["ZADD", &clients, "1", "x"]),
        vital(
            "zremrangebyscore",
            &["ZREMRANGEBYSCORE", &clients, "0", "0"],
        ),
        vital("hset", &["HSET", &client, "a", "b"]),
    ]
}

fn for_the_connection() -> Vec<Need> {
    let helpful = |command, words: &[&str]| Need::new(command, Weight::Helpful, words);
    vec![
        Need::new("time", Weight::Vital, &["TIME"]),
        Need::new("ping", Weight::Vital, &["PING"]),
        helpful("info", &["INFO"]),
        helpful("script|load", &["SCRIPT", "LOAD", "return 1"]),
        helpful("client|tracking", &["CLIENT", "TRACKING", "ON", "OPTIN"]),
        helpful("client|caching", &["CLIENT", "CACHING", "YES"]),
    ]
}

fn for_waiting(scope: &Scope) -> Vec<Need> {
    let channel = scope.own(&format!("wake:{}", scope.key));
    let helpful = |command, words: &[&str]| own_need(scope, command, Weight::Helpful, words);
    if scope.deployment == Deployment::Cluster {
        return vec![
            helpful("spublish", &["SPUBLISH", &channel, "x"]),
            helpful("ssubscribe", &["SSUBSCRIBE", &channel]),
            helpful("sunsubscribe", &["SUNSUBSCRIBE", &channel]),
        ];
    }
    vec![
        helpful("publish", &["PUBLISH", &channel, "x"]),
        helpful("subscribe", &["SUBSCRIBE", &channel]),
        helpful("unsubscribe", &["UNSUBSCRIBE", &channel]),
    ]
}

fn for_redisson(scope: &Scope) -> Vec<Need> {
    let name = scope.key.as_str();
    let token = format!("redisson_lock_token:{name}");
    let channel = format!("redisson_lock__channel:{name}");
    let of_lock = |command, words: &[&str]| {
        let need = Need::new(command, Weight::Vital, words);
        need.on_keys(scope.pattern_of_locks())
    };
    let channels = scope.pattern_of_redisson("redisson_lock__channel");
    let set = Need::new("set", Weight::Vital, &["SET", &token, "1"]);
    let (speak, hear, count) = match scope.deployment {
        Deployment::Cluster => (
            Need::new("spublish", Weight::Helpful, &["SPUBLISH", &channel, "0"]),
            Need::new("ssubscribe", Weight::Helpful, &["SSUBSCRIBE", &channel]),
            Need::new(
                "pubsub|shardnumsub",
                Weight::Helpful,
                &["PUBSUB", "SHARDNUMSUB"],
            ),
        ),
        _ => (
            Need::new("publish", Weight::Helpful, &["PUBLISH", &channel, "0"]),
            Need::new("subscribe", Weight::Helpful, &["SUBSCRIBE", &channel]),
            Need::new("pubsub|numsub", Weight::Helpful, &["PUBSUB", "NUMSUB"]),
        ),
    };
    vec![
        of_lock("hlen", &["HLEN", name]),
        of_lock("hexists", &["HEXISTS", name, "a"]),
        of_lock("hrandfield", &["HRANDFIELD", name]),
        of_lock("hkeys", &["HKEYS", name]),
        set.on_keys(scope.pattern_of_redisson("redisson_lock_token")),
        speak.on_channels(&channels),
        hear.on_channels(channels),
        count,
    ]
    .into_iter()
    .chain(for_redisson_without_braces(scope))
    .collect()
}

/// Redisson's own names for a lock without braces in its name. Without a prefix they have the pattern
/// of the others.
fn for_redisson_without_braces(scope: &Scope) -> Vec<Need> {
    if scope.prefix.is_empty() {
        return Vec::new();
    }
    let name = |role: &str| format!("{role}:{{{}tenure-doctor}}", scope.prefix);
    let pattern = |role: &str| format!("{role}:{{{}*", quoted(&scope.prefix));
    let (token, channel) = ("redisson_lock_token", "redisson_lock__channel");
    let set = Need::new("set", Weight::Vital, &["SET", &name(token), "1"]);
    let hear = match scope.deployment {
        Deployment::Cluster => Need::new(
            "ssubscribe",
            Weight::Helpful,
            &["SSUBSCRIBE", &name(channel)],
        ),
        _ => Need::new("subscribe", Weight::Helpful, &["SUBSCRIBE", &name(channel)]),
    };
    vec![
        set.on_keys(pattern(token)),
        hear.on_channels(pattern(channel)),
    ]
}

fn for_the_deployment(deployment: Deployment) -> Vec<Need> {
    let wait = || Need::new("wait", Weight::Helpful, &["WAIT", "0", "1"]);
    match deployment {
        Deployment::Single => Vec::new(),
        Deployment::Sentinel => vec![wait(), Need::new("role", Weight::Vital, &["ROLE"])],
        Deployment::Cluster => vec![
            wait(),
            Need::new("cluster|slots", Weight::Vital, &["CLUSTER", "SLOTS"]),
            Need::new("asking", Weight::Vital, &["ASKING"]),
        ],
        Deployment::Redlock => vec![Need::new(
            "pubsub|numsub",
            Weight::Helpful,
            &["PUBSUB", "NUMSUB"],
        )],
    }
}
