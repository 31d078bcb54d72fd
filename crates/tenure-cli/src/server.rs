//! The servers of the locks: which ones, how they are configured, with which password.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use tenure::redis::Client;
use tenure::{Builder, Locks, Redlock, Tenure};
use tokio::runtime::Handle;

use crate::config::Config;
use crate::exit::Failed;

/// The variable with the server's password.
pub const PASSWORD: &str = "TENURE_PASSWORD";
/// How long a command that does one thing tries to connect to a server that refuses connections.
const REFUSED_AFTER: Duration = Duration::from_millis(500);
const URL_DEFAULT: &str = "redis://127.0.0.1:6379";

/// Options of every command that needs a server.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Redis, Sentinel or Cluster; repeat for independent servers [env: `TENURE_URL`, `REDIS_URL`]
    ///
    /// `redis://host:6379/0`, `rediss://…`, `unix:///path`, `redis-sentinel://h1,h2,h3/mymaster`,
    /// `redis-cluster://h1:7000,h2:7001`. With several URLs (repeat the option, or separate them by
    /// spaces in the variable) a lock is held on a majority of these servers. Passwords are refused
    /// here because other users can see command lines.
    #[arg(short = 'u', long, value_name = "URL")]
    url: Vec<String>,

    /// What all keys and channels begin with, to separate teams [env: `TENURE_PREFIX`]
    ///
    /// Clients with different prefixes do not see or exclude each other: with `team-a:` a user needs rights for `~team-a:*` and
    /// `&team-a:*` only. Names are given and shown without it. It can also be part of the URL, as in
    /// `redis://host?prefix=team-a:`.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,

    /// File whose first line is the server's password [env: `TENURE_PASSWORD` holds the password]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Name of this client in lists of holders [env: `TENURE_CLIENT_NAME`]
    #[arg(long, value_name = "NAME")]
    client_name: Option<String>,

    /// Longest ttl that any client uses on these independent servers [env: `TENURE_LONGEST_TTL`]
    /// [default: 30s]
    ///
    /// A server that lost its data grants no locks for this long, so all clients of these servers
    /// must use the same value. A client with a shorter one than others use is refused.
    #[arg(long, value_name = "TIME", value_parser = tenure_view::time::parse)]
    longest_ttl: Option<Duration>,

    /// Configuration file [env: `TENURE_CONFIG`] [default: the user's, then /etc/tenure.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The settings from options, environment and file.
#[derive(Clone)]
pub struct Server {
    /// With passwords: never shown.
    urls: Vec<String>,
    client_name: Option<String>,
    longest_ttl: Option<Duration>,
    /// Fields of this client's record, shown in lists of holders.
    about: Vec<(&'static str, String)>,
    pub config: Config,
}

impl ServerArgs {
    /// Options before environment before file before the Redis of this machine.
    pub fn resolve(&self) -> Result<Server> {
        self.resolve_or(URL_DEFAULT)
    }

    /// Options before environment before file before default.
    pub fn resolve_or(&self, default: &str) -> Result<Server> {
        let instead = "put the URL into TENURE_URL or a configuration file, or use --password-file";
        if !self.url.is_empty() && self.url.iter().all(String::is_empty) {
            let message = "empty URL (is a variable unset?); leave out --url to use the default";
            return Err(Failed::usage(message).into());
        }
        refuse_passwords(&self.url, instead)?;
        let config = Config::read(self.config.as_deref())?;
        let urls = self.urls(&config, default);
        let urls = with_prefix(urls, self.prefix(&config).as_deref())?;
        let password = self.password(&config)?;
        let client_name = self.client_name.clone();
        let client_name = client_name.or_else(|| variable("TENURE_CLIENT_NAME"));
        let client_name = client_name.or_else(|| config.client_name.clone());
        Ok(Server {
            urls: urls
                .iter()
                .map(|url| with_password(url, password.as_deref()))
                .collect(),
            client_name,
            longest_ttl: self.longest_ttl(&config)?,
            about: Vec::new(),
            config,
        })
    }

    fn urls(&self, config: &Config, default: &str) -> Vec<String> {
        let of_variable = |name| -> Vec<String> {
            let value = variable(name).unwrap_or_default();
            value.split_whitespace().map(ToOwned::to_owned).collect()
        };
        let given = || {
            self.url
                .iter()
                .filter(|url| !url.is_empty())
                .cloned()
                .collect()
        };
        let sources: [&dyn Fn() -> Vec<String>; 4] = [
            &given,
            &|| of_variable("TENURE_URL"),
            &|| config.urls(),
            &|| of_variable("REDIS_URL"),
        ];
        let found = sources
            .iter()
            .map(|source| source())
            .find(|urls| !urls.is_empty());
        found.unwrap_or_else(|| vec![default.to_owned()])
    }

    fn prefix(&self, config: &Config) -> Option<String> {
        let prefix = self.prefix.clone().or_else(|| variable("TENURE_PREFIX"));
        prefix.or_else(|| config.prefix.clone())
    }

    fn longest_ttl(&self, config: &Config) -> Result<Option<Duration>> {
        if self.longest_ttl.is_some() {
            return Ok(self.longest_ttl);
        }
        length(
            "TENURE_LONGEST_TTL",
            "longest_ttl",
            config.longest_ttl.as_deref(),
        )
    }

    fn password(&self, config: &Config) -> Result<Option<String>> {
        if self.password_file.is_none() {
            let named = variable(PASSWORD).or_else(|| variable("REDISCLI_AUTH"));
            if named.is_some() {
                return Ok(named);
            }
        }
        let Some(path) = self
            .password_file
            .as_ref()
            .or(config.password_file.as_ref())
        else {
            return Ok(None);
        };
        let text = fs::read_to_string(path).map_err(|error| {
            let path = path.display();
            Failed::config(format!("cannot read the password file `{path}`: {error}"))
        })?;
        Ok(text
            .lines()
            .next()
            .map(ToOwned::to_owned)
            .filter(|line| !line.is_empty()))
    }
}

impl Server {
    /// Connects.
    pub async fn connect(&self) -> Result<Locks> {
        self.promptly(self.connect_with(true, None)).await
    }

    /// Connects for one lock at a time. Nothing is ever handed off, so no fences are reserved for
    /// that, and `show` reports the exact fence of the holder.
    pub async fn connect_for_one(&self) -> Result<Locks> {
        self.promptly(self.connect_patiently_for_one()).await
    }

    /// The same for a command that would rather wait for a server that restarts.
    pub async fn connect_patiently_for_one(&self) -> Result<Locks> {
        self.connect_with(false, None).await
    }

    /// The connection, or soon an error if the server refuses connections.
    async fn promptly(&self, connecting: impl Future<Output = Result<Locks>>) -> Result<Locks> {
        let mut connecting = pin!(connecting);
        let refusal = async {
            tokio::time::sleep(REFUSED_AFTER).await;
            match self.urls.as_slice() {
                [url] if !url.starts_with("memory:") => Client::connect(url).await.err(),
                // A majority of several servers may be there.
                _ => None,
            }
        };
        tokio::select! {
            biased;
            connected = &mut connecting => return connected,
            refused = refusal => if let Some(error) = refused {
                return Err(self.named_in(error));
            }
        }
        connecting.await
    }

    /// Connects for a service, whose own threads query the store, so that no other thread is woken.
    pub async fn connect_for_service(&self) -> Result<Locks> {
        self.connect_with(false, Some(Handle::current())).await
    }

    /// As [`connect_for_one`](Self::connect_for_one), for what several independent servers do not offer.
    pub async fn connect_alone_for_one(&self, what: &str) -> Result<Tenure> {
        let [url] = self.urls.as_slice() else {
            return Err(Failed::usage(format!(
                "{what} does not work with several independent servers: `{}`; use one server, Sentinel \
                 or Cluster",
                self.place()
            ))
            .into());
        };
        let connected = self.named(Tenure::builder(url)).hand_off(false).connect();
        connected.await.map_err(|error| self.named_in(error))
    }

    async fn connect_with(&self, hand_off: bool, runtime: Option<Handle>) -> Result<Locks> {
        let connected = match self.urls.as_slice() {
            [url] => {
                let builder = self.named(Tenure::builder(url)).hand_off(hand_off);
                let builder = driven_by(builder, runtime);
                builder
                    .connect()
                    .await
                    .map(|tenure| tenure.as_locks().clone())
            }
            urls => {
                let builder = self.named(Redlock::builder(urls)).hand_off(hand_off);
                let mut builder = driven_by(builder, runtime);
                if let Some(longest) = self.longest_ttl {
                    builder = builder.longest_ttl(longest);
                }
                builder
                    .connect()
                    .await
                    .map(|redlock| redlock.as_locks().clone())
            }
        };
        connected.map_err(|error| self.named_in(error))
    }

    /// The error with the URLs in front, unless it names them.
    fn named_in(&self, error: tenure::Error) -> anyhow::Error {
        let place = self.place();
        let is_named = error.to_string().contains(place.trim_end_matches('/'));
        let error = anyhow::Error::from(error);
        if is_named {
            return error;
        }
        error.context(format!("cannot connect to `{place}`"))
    }

    /// The URLs as they may be shown.
    pub fn place(&self) -> String {
        let shown: Vec<String> = self
            .urls
            .iter()
            .map(|url| tenure::masked_url(url))
            .collect();
        shown.join(" ")
    }

    /// The URLs with their passwords, for connections without locks.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The ledger from the option, the environment or the configuration file.
    pub fn ledger_url(&self, given: Option<&str>) -> Result<Option<String>> {
        let given = given.filter(|url| !url.is_empty()).map(ToOwned::to_owned);
        // A file name may contain what looks like a password.
        let of_server = given.clone().filter(|url| !url.starts_with("sqlite:"));
        let instead = "put the URL into TENURE_LEDGER or a configuration file, or use PGPASSWORD \
                       or ~/.pgpass";
        refuse_passwords(of_server.as_slice(), instead)?;
        let found = given.or_else(|| variable("TENURE_LEDGER"));
        Ok(found.or_else(|| self.config.ledger.clone()))
    }

    /// The ttl that the environment or the configuration file asks for.
    pub fn ttl(&self) -> Result<Option<Duration>> {
        length("TENURE_TTL", "ttl", self.config.ttl.as_deref())
    }

    /// Adds a field to the client's record.
    pub fn about(mut self, field: &'static str, value: impl Into<String>) -> Self {
        self.about.push((field, value.into()));
        self
    }

    fn named<T>(&self, builder: Builder<T>) -> Builder<T> {
        let said = self.about.iter();
        let builder = said.fold(builder, |builder, (field, value)| {
            builder.about(*field, value)
        });
        match &self.client_name {
            Some(name) => builder.name(name),
            None => builder,
        }
    }
}

fn driven_by<T>(builder: Builder<T>, runtime: Option<Handle>) -> Builder<T> {
    match runtime {
        Some(runtime) => builder.runtime(runtime),
        None => builder,
    }
}

/// A duration from a variable of the environment or a key of the configuration file.
fn length(name: &str, key: &str, configured: Option<&str>) -> Result<Option<Duration>> {
    let (text, place) = match variable(name) {
        Some(text) => (Some(text), format!("the variable {name}")),
        None => (
            configured.map(ToOwned::to_owned),
            format!("`{key}` of the configuration file"),
        ),
    };
    let length = text.as_deref().map(tenure_view::time::parse).transpose();
    length.map_err(|cause| Failed::config(format!("cannot use {place}: {cause}")).into())
}

/// A variable of the environment; an empty one counts as unset.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Refuses URLs on the command line that contain a password, and says where to put it.
pub fn refuse_passwords(urls: &[String], instead: &str) -> Result<()> {
    let Some(url) = urls.iter().find(|url| has_password(url)) else {
        return Ok(());
    };
    Err(Failed::usage(format!(
        "refusing the password in `{}`: other users can see command lines; {instead}",
        tenure::masked_url(url)
    ))
    .into())
}

/// Whether a URL contains a password: after the user, or as a parameter.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = rest.rsplit_once('@').map(|(user, _)| user);
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let is_secret = |part: &str| part.to_ascii_lowercase().contains("pass");
    user.is_some_and(|user| user.contains(':')) || query.split('&').any(is_secret)
}

/// The URLs with a prefix from elsewhere. One that has its own must have the same.
fn with_prefix(urls: Vec<String>, prefix: Option<&str>) -> Result<Vec<String>> {
    let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else {
        return Ok(urls);
    };
    let parameter = format!("prefix={}", encoded_prefix(prefix));
    let set = |url: String| -> Result<String> {
        let (rest, fragment) = match url.split_once('#') {
            Some((rest, fragment)) => (rest, format!("#{fragment}")),
            None => (url.as_str(), String::new()),
        };
        let query = rest.split_once('?').map(|(_, query)| query);
        let mut parameters = query.unwrap_or_default().split('&');
        match parameters.find(|it| it.starts_with("prefix=")) {
            Some(own) if own == parameter || own == format!("prefix={prefix}") => Ok(url),
            Some(own) => Err(Failed::usage(format!(
                "the URL says `{own}`, but --prefix, TENURE_PREFIX or the configuration file says \
                 `{prefix}`; remove one of them, because clients with different prefixes do not \
                 exclude each other"
            ))
            .into()),
            None => {
                let mark = if query.is_some() { '&' } else { '?' };
                Ok(format!("{rest}{mark}{parameter}{fragment}"))
            }
        }
    };
    urls.into_iter().map(set).collect()
}

/// Readable where a URL may be: only what would end the parameter is encoded.
fn encoded_prefix(prefix: &str) -> String {
    let encode = |it: char| match it {
        '&' | '#' | '%' | '?' | '@' | '+' => format!("%{:02X}", u32::from(it)),
        _ => it.to_string(),
    };
    prefix.chars().map(encode).collect()
}

/// The URL with a password from elsewhere, unless it has its own.
fn with_password(url: &str, password: Option<&str>) -> String {
    let Some(password) = password.filter(|_| !has_password(url) && !url.starts_with("memory:"))
    else {
        return url.to_owned();
    };
    let password = encoded(password);
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    if ["unix", "redis+unix", "redis-socket"].contains(&scheme) {
        let mark = if rest.contains('?') { '&' } else { '?' };
        return format!("{scheme}://{rest}{mark}pass={password}");
    }
    match rest.rsplit_once('@') {
        Some((user, host)) => format!("{scheme}://{user}:{password}@{host}"),
        None => format!("{scheme}://:{password}@{rest}"),
    }
}

/// Everything but letters and digits as `%XX`: valid in any part of a URL.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_wherever_a_url_may_hold_them() {
        for url in [
            "redis://:s@h",
            "redis://u:s@h/1",
            "unix:///p?pass=s",
            "h?sentinel_password=s",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "redis://h:6379",
            "redis://user@h",
            "h:6379",
            "unix:///p?db=1",
            "memory://",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn a_password_from_elsewhere_goes_where_the_url_wants_it() {
        for (url, whole) in [
            ("redis://h:1/2", "redis://:p%40%2F@h:1/2"),
            ("redis://user@h", "redis://user:p%40%2F@h"),
            ("h:1", "redis://:p%40%2F@h:1"),
            ("redis-sentinel://a,b/m", "redis-sentinel://:p%40%2F@a,b/m"),
            ("unix:///s?db=1", "unix:///s?db=1&pass=p%40%2F"),
            ("redis://:own@h", "redis://:own@h"),
        ] {
            assert_eq!(with_password(url, Some("p@/")), whole);
        }
        assert_eq!(with_password("redis://h", None), "redis://h");
    }

    #[test]
    fn a_prefix_from_elsewhere_becomes_part_of_each_url() {
        for (url, whole) in [
            ("redis://h:1/2", "redis://h:1/2?prefix=t:"),
            ("h", "h?prefix=t:"),
            (
                "rediss://h?db=1#insecure",
                "rediss://h?db=1&prefix=t:#insecure",
            ),
            ("unix:///s?db=1", "unix:///s?db=1&prefix=t:"),
            ("memory://", "memory://?prefix=t:"),
            ("redis://h?prefix=t:", "redis://h?prefix=t:"),
        ] {
            let urls = vec![url.to_owned()];
            assert_eq!(with_prefix(urls, Some("t:")).unwrap(), [whole]);
        }
        let urls = vec!["redis://h?prefix=x:".to_owned()];
        assert_eq!(with_prefix(urls.clone(), None).unwrap(), urls);
        let refused = with_prefix(urls, Some("t:")).unwrap_err().to_string();
        assert!(
            refused.contains("`prefix=x:`") && refused.contains("`t:`"),
            "{refused}"
        );
        let urls = vec!["redis://h".to_owned()];
        assert_eq!(
            with_prefix(urls, Some("a&b#")).unwrap(),
            ["redis://h?prefix=a%26b%23"]
        );
    }
}
