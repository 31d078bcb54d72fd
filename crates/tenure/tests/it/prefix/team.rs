//! A team: a prefix, and a user of the servers that may touch nothing but what belongs to it.

use tenure::{Builder, Layout, Locks, Redlock, Tenure};
use tenure_testkit::RedisServer;

use crate::stage::{Stage, StageBuilder};

pub struct Team {
    stage: Stage,
    prefix: &'static str,
}

impl Team {
    /// With a user of the team's own on each server.
    pub fn on(stage: Stage, prefix: &'static str) -> Self {
        for server in stage.masters() {
            let mut rules = vec!["ACL", "SETUSER", "team", "reset", "on", ">pw", "+@all"];
            let of_keys = format!("~{prefix}*");
            let of_channels = format!("&{prefix}*");
            rules.extend([&*of_keys, &of_channels]);
            // Redisson puts the prefix into its own names, not before them; without braces around a name
            // that has some.
            let of_redisson = [
                format!("~redisson_lock_token:{{{prefix}*"),
                format!("~redisson_lock_token:{prefix}*"),
                format!("&redisson_lock__channel:{{{prefix}*"),
                format!("&redisson_lock__channel:{prefix}*"),
            ];
            if stage.layout() == Layout::Redisson {
                rules.extend(of_redisson.iter().map(String::as_str));
            }
            let admin = &mut server.client();
            admin.command(&rules);
            admin.command(&["ACL", "LOG", "RESET"]);
        }
        Self { stage, prefix }
    }

    /// A client that plays a process of its own.
    pub async fn client(&self) -> Locks {
        match &self.stage {
            Stage::Redlock { nodes, layout } => {
                let urls = nodes.nodes.urls();
                let urls = urls.iter().map(|url| of_team(url, self.prefix));
                let builder = Redlock::builder(urls).layout(*layout);
                StageBuilder::Redlock(builder).connect().await.unwrap()
            }
            _ => self.tenure().await.as_locks().clone(),
        }
    }

    /// The same where there is one URL.
    pub async fn tenure(&self) -> Tenure {
        self.builder().connect().await.unwrap()
    }

    pub fn builder(&self) -> Builder {
        Tenure::builder(of_team(&self.stage.url(), self.prefix))
    }

    /// The servers refused nothing, and have nothing that does not belong to the team.
    pub fn check(&self) {
        for server in self.stage.masters() {
            let refused = server.client().command(&["ACL", "LOG"]);
            assert!(refused.array().is_empty(), "refused: {refused:?}");
            for name in names_on(server) {
                let is_own = name.starts_with(self.prefix)
                    || name.starts_with("redisson_") && name.contains(self.prefix);
                assert!(is_own, "`{name}` lacks the prefix");
            }
        }
    }
}

/// All keys and channels of a server.
pub fn names_on(server: &RedisServer) -> Vec<String> {
    let questions: [&[&str]; 3] = [
        &["KEYS", "*"],
        &["PUBSUB", "CHANNELS"],
        &["PUBSUB", "SHARDCHANNELS"],
    ];
    let mut names = Vec::new();
    for question in questions {
        let said = server.client().command(question);
        let said = said.array().iter().map(|name| name.text().to_owned());
        // Sentinels talk to each other here.
        names.extend(said.filter(|name| name != "__sentinel__:hello"));
    }
    names
}

/// The URL with the user and the prefix of a team.
fn of_team(url: &str, prefix: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    let url = url.replacen("://", "://team:pw@", 1);
    format!("{url}{mark}prefix={prefix}")
}
