//! The URL that says where leases live. Our own parser: it names the part that is wrong, and no
//! password ever reaches a message.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::seeded::{Bug, bug};

const PORT_DEFAULT: u16 = 6379;
/// Redis itself has 16 databases unless configured otherwise; beyond this it is a typing error.
const DATABASE_MAX: u32 = 1_000_000;

const SCHEMES: &str =
    "`redis://`, `rediss://`, `valkey://`, `valkeys://`, `unix://` and `memory://`";
const SCHEMES_TO_COME: [&str; 8] = [
    "redis-sentinel",
    "redis+sentinel",
    "rediss-sentinel",
    "rediss+sentinel",
    "redis-cluster",
    "redis+cluster",
    "rediss-cluster",
    "rediss+cluster",
];
const PARAMETERS: &str = "`db`, `user`, `pass`, `ca`, `cert`, `key` and `layout`";

/// What a URL points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Memory { name: Option<String> },
    Redis(RedisTarget),
}

/// One Redis server and how to introduce ourselves to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisTarget {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: u32,
    /// What the URL says of it.
    pub(crate) layout: Option<Layout>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, tls: Tls },
    Unix(PathBuf),
}

/// Whom to trust, and how to be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Accept any certificate. Only by an explicit `#insecure`.
    pub(crate) insecure: bool,
}

/// A password. It prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where it points, without user and password.
impl fmt::Display for RedisTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp { host, port } => write!(f, "redis://{host}:{port}/")?,
            Address::Tls { host, port, .. } => write!(f, "rediss://{host}:{port}/")?,
            Address::Unix(path) => write!(f, "unix://{}", path.display())?,
        }
        if let (true, Some(password)) = (bug(Bug::PasswordInError), &self.password) {
            f.write_str(password.reveal())?;
        }
        match (&self.address, self.database) {
            (_, 0) => Ok(()),
            (Address::Unix(_), database) => write!(f, "?db={database}"),
            (_, database) => write!(f, "{database}"),
        }
    }
}

impl RedisTarget {
    /// The layout, also if the URL does not say it.
    pub(crate) fn layout(&self) -> Layout {
        self.layout.unwrap_or_default()
    }
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let wrong = |cause: String| {
            Error::new(
                ErrorKind::InvalidUrl,
                format!(
                    "cannot read `{}` as a URL: {}",
                    masked_url(url),
                    discreet(&cause, url)
                ),
            )
        };
        parse(url.trim()).map_err(wrong)
    }
}

/// `url` with whatever could be a user or a password replaced by `***`, to be shown to people. The
/// URL need not be a right one.
///
/// ```
/// let shown = tenure::masked_url("redis://:secret@127.0.0.1/");
/// assert_eq!(shown, "redis://***@127.0.0.1/");
/// ```
pub fn masked_url(url: &str) -> String {
    let (scheme, rest) = url
        .find("://")
        .map_or(("", url), |at| url.split_at(at + "://".len()));
    // The last `@`: a password may hold one that nobody escaped.
    let rest = rest
        .rsplit_once('@')
        .map_or_else(|| rest.to_owned(), |(_, host)| format!("***@{host}"));
    let Some((path, query)) = rest.split_once('?') else {
        return format!("{scheme}{rest}");
    };
    let query: Vec<String> = query.split('&').map(masked_parameter).collect();
    format!("{scheme}{path}?{}", query.join("&"))
}

/// `cause` without quotes that the masked URL does not show: a password that nobody encoded tears
/// the URL apart, and any part of it may be a piece of the password.
fn discreet(cause: &str, url: &str) -> String {
    const HINT: &str = "if a password holds `/`, `?`, `#` or `@`, write `%2F`, `%3F`, `%23`, `%40`";
    let masked = masked_url(url);
    if url.contains('`') && masked != url {
        return HINT.to_owned();
    }
    // The parser speaks of `%` itself.
    let is_secret = |quote: &str| quote != "%" && url.contains(quote) && !masked.contains(quote);
    let parts = cause.split('`').enumerate();
    let shown: Vec<&str> = parts
        .map(|(at, part)| {
            if at % 2 == 1 && is_secret(part) {
                "***"
            } else {
                part
            }
        })
        .collect();
    let shown = shown.join("`");
    if shown == cause {
        shown
    } else {
        format!("{shown}; {HINT}")
    }
}

fn masked_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((key, _)) if key.starts_with("pass") => format!("{key}=***"),
        _ => parameter.to_owned(),
    }
}

fn parse(url: &str) -> Result<Target, String> {
    if url.is_empty() {
        return Err("it is empty: write for example `redis://127.0.0.1/`".to_owned());
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    match scheme {
        "memory" => parse_memory(rest),
        "redis" | "valkey" => parse_server(rest, false),
        "rediss" | "valkeys" => parse_server(rest, true),
        "unix" | "redis+unix" | "redis-socket" => parse_socket(rest),
        scheme if SCHEMES_TO_COME.contains(&scheme) => Err(format!(
            "the scheme `{scheme}` is not supported yet: this version knows {SCHEMES}"
        )),
        scheme => Err(format!("the scheme `{scheme}` is not one of {SCHEMES}")),
    }
}

fn parse_memory(rest: &str) -> Result<Target, String> {
    let name = rest.trim_end_matches('/');
    if name.contains(['?', '#', '@', '/']) {
        return Err(format!(
            "`{name}` is not the name of a memory store: write `memory://` or `memory://name`"
        ));
    }
    Ok(Target::Memory {
        name: (!name.is_empty()).then(|| name.to_owned()),
    })
}

fn parse_server(rest: &str, tls: bool) -> Result<Target, String> {
    let (rest, fragment) = split_optional(rest, '#');
    let (rest, query) = split_optional(rest, '?');
    let (authority, path) = split_optional(rest, '/');
    let (credentials, host) = match authority.rsplit_once('@') {
        Some((credentials, host)) => (Some(credentials), host),
        None => (None, authority),
    };
    let mut parameters = Parameters::parse(query)?;
    let (user, password) = credentials
        .map(parse_credentials)
        .transpose()?
        .unwrap_or_default();
    let (host, port) = parse_host(host)?;
    let database = match path.filter(|path| !path.is_empty()) {
        Some(path) => Some(parse_database(path.trim_end_matches('/'))?),
        None => None,
    };
    let insecure = parse_fragment(fragment, tls)?;
    let address = if tls {
        let tls = parameters.tls(insecure)?;
        Address::Tls { host, port, tls }
    } else {
        Address::Tcp { host, port }
    };
    Ok(Target::Redis(RedisTarget {
        address,
        user: user.or(parameters.take("user")),
        password: password.or(parameters.take("pass").map(Secret)),
        database: database.or(parameters.database()?).unwrap_or(0),
        layout: parameters.layout()?,
    }))
    .and_then(|target| parameters.all_used(target))
}

fn parse_socket(rest: &str) -> Result<Target, String> {
    let (path, query) = split_optional(rest, '?');
    if !path.starts_with('/') {
        return Err(format!(
            "the path `{path}` of the socket is not absolute: write `unix:///path/to/socket`"
        ));
    }
    let mut parameters = Parameters::parse(query)?;
    Ok(Target::Redis(RedisTarget {
        address: Address::Unix(PathBuf::from(decode(path, "path")?)),
        user: parameters.take("user"),
        password: parameters.take("pass").map(Secret),
        database: parameters.database()?.unwrap_or(0),
        layout: parameters.layout()?,
    }))
    .and_then(|target| parameters.all_used(target))
}

fn parse_credentials(credentials: &str) -> Result<(Option<String>, Option<Secret>), String> {
    let (user, password) = split_optional(credentials, ':');
    let user = decode(user, "user")?;
    let password = password
        .map(|password| decode(password, "password"))
        .transpose()?;
    Ok(((!user.is_empty()).then_some(user), password.map(Secret)))
}

fn parse_host(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, after) = v6
                .split_once(']')
                .ok_or_else(|| format!("the address `{text}` lacks its closing bracket"))?;
            let port = after.strip_prefix(':');
            if port.is_none() && !after.is_empty() {
                return Err(format!("`{after}` after the address is not a port"));
            }
            (host, port)
        }
        None if text.matches(':').count() > 1 => {
            return Err(format!(
                "the host `{text}` has several colons: write an IPv6 address in brackets"
            ));
        }
        None => split_optional(text, ':'),
    };
    if host.is_empty() {
        return Err("the host is missing: write for example `redis://127.0.0.1:6379/`".to_owned());
    }
    if host.contains(',') {
        return Err(format!(
            "the host `{host}` is a list, and one Redis is one host"
        ));
    }
    let port = match port {
        None => PORT_DEFAULT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| format!("the port `{port}` is not a number from 1 to 65535"))?,
    };
    Ok((decode(host, "host")?, port))
}

fn parse_database(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|database| *database <= DATABASE_MAX)
        .ok_or_else(|| format!("the database `{text}` is not a number such as 0 or 1"))
}

fn parse_fragment(fragment: Option<&str>, tls: bool) -> Result<bool, String> {
    match fragment {
        None | Some("") => Ok(false),
        Some("insecure") if tls => Ok(true),
        Some("insecure") => Err("`#insecure` belongs to `rediss://` only".to_owned()),
        Some(other) => Err(format!(
            "the part `#{other}` means nothing: only `#insecure` is known"
        )),
    }
}

/// The `key=value` pairs after the `?`, each to be used once.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut parameters = Vec::new();
        for pair in query.unwrap_or("").split('&').filter(|p| !p.is_empty()) {
            let (key, value) = split_optional(pair, '=');
            let value = value.ok_or_else(|| format!("the parameter `{key}` has no value"))?;
            parameters.push((decode(key, "parameter")?, decode(value, key)?));
        }
        Ok(Self(parameters))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.remove(at).1)
    }

    fn database(&mut self) -> Result<Option<u32>, String> {
        self.take("db").map(|db| parse_database(&db)).transpose()
    }

    fn tls(&mut self, insecure: bool) -> Result<Tls, String> {
        let tls = Tls {
            ca: self.take("ca").map(PathBuf::from),
            certificate: self.take("cert").map(PathBuf::from),
            key: self.take("key").map(PathBuf::from),
            insecure,
        };
        if tls.certificate.is_some() != tls.key.is_some() {
            return Err("`cert` and `key` go together: give both or none".to_owned());
        }
        Ok(tls)
    }

    fn layout(&mut self) -> Result<Option<Layout>, String> {
        let layout = self.take("layout").map(|layout| {
            let unknown = |_| format!("the layout `{layout}` is not `native` or `redisson`");
            layout.parse().map_err(unknown)
        });
        layout.transpose()
    }

    fn all_used(self, target: Target) -> Result<Target, String> {
        match self.0.first() {
            None => Ok(target),
            Some((key, _)) if matches!(key.as_str(), "ca" | "cert" | "key") => Err(format!(
                "the parameter `{key}` belongs to `rediss://`, the URL without TLS cannot use it"
            )),
            Some((key, _)) => Err(format!(
                "the parameter `{key}` is not one of {PARAMETERS}, or is given twice"
            )),
        }
    }
}

fn split_optional(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Undoes percent-encoding. The text itself is not repeated in an error: it may be a password.
fn decode(text: &str, part: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| (byte as char).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?')),
            _ => {
                return Err(format!(
                    "the {part} has a `%` that is not followed by two hex digits: write `%25`"
                ));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("the {part} is not UTF-8 once decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(url: &str) -> RedisTarget {
        match Target::parse(url).unwrap() {
            Target::Redis(target) => target,
            Target::Memory { .. } => panic!("`{url}` is not a server"),
        }
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp {
            host: host.to_owned(),
            port,
        }
    }

    #[track_caller]
    fn refused(url: &str, cause: &str) {
        let error = Target::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl);
        assert!(error.to_string().contains(cause), "{error}");
    }

    #[test]
    fn every_way_to_name_one_server_is_understood() {
        assert_eq!(redis("redis://h").address, tcp("h", 6379));
        assert_eq!(redis("h").address, tcp("h", 6379));
        assert_eq!(redis("h:7000").address, tcp("h", 7000));
        assert_eq!(redis("valkey://[::1]:7000/").address, tcp("::1", 7000));
        assert_eq!(redis("redis://h/3").database, 3);
        assert_eq!(redis("redis://h?db=4").database, 4);
        assert_eq!(redis("redis://h").layout(), Layout::Native);
        let java = redis("redis://h?layout=redisson");
        assert_eq!(java.layout(), Layout::Redisson);
        let socket = redis("unix:///run/redis.sock?db=2&user=u&pass=p%40ss");
        assert_eq!(socket.address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(socket.password.as_ref().map(Secret::reveal), Some("p@ss"));
        assert_eq!(socket.database, 2);
    }

    #[test]
    fn credentials_are_read_as_redis_registered_them() {
        let target = redis("redis://alice:p%40ss%2Fword@h:1/");
        assert_eq!(target.user.as_deref(), Some("alice"));
        assert_eq!(
            target.password.as_ref().map(Secret::reveal),
            Some("p@ss/word")
        );
        assert_eq!(redis("redis://:pw@h").user, None);
        let only_user = redis("redis://someone@h");
        assert_eq!(only_user.user.as_deref(), Some("someone"));
        assert_eq!(only_user.password, None);
    }

    #[test]
    fn tls_takes_its_files_from_the_query() {
        let target = redis("rediss://h/?ca=/ca.pem&cert=/c.pem&key=/k.pem#insecure");
        let Address::Tls { tls, .. } = target.address else {
            panic!("not TLS")
        };
        assert_eq!(tls.ca, Some("/ca.pem".into()));
        assert_eq!(tls.key, Some("/k.pem".into()));
        assert!(tls.insecure);
    }

    #[test]
    fn what_is_wrong_is_named() {
        refused("", "it is empty");
        refused("http://h", "the scheme `http`");
        refused("redis-cluster://h", "not supported yet");
        refused("redis://", "the host is missing");
        refused("redis://h:port", "the port `port`");
        refused("redis://h:0", "the port `0`");
        refused("redis://h:70000", "the port `70000`");
        refused("redis://::1", "in brackets");
        refused("redis://[::1", "closing bracket");
        refused("redis://a,b", "is a list");
        refused("redis://h/zero", "the database `zero`");
        refused("redis://h/-1", "the database `-1`");
        refused("redis://h?colour=red", "the parameter `colour`");
        refused("redis://h?ca=/x", "belongs to `rediss://`");
        refused("redis://h?db=1&db=2", "is given twice");
        refused("rediss://h?cert=/x", "give both");
        refused("redis://h?layout=java", "the layout `java` is not");
        refused(
            "memory://?layout=redisson",
            "is not the name of a memory store",
        );
        refused("redis://h#insecure", "belongs to `rediss://`");
        refused("unix://relative", "is not absolute");
        refused("memory://a/b", "is not the name of a memory store");
        refused("redis://u:%zz@h", "the password has a `%`");
    }

    #[test]
    fn no_password_is_ever_printed() {
        for url in [
            "redis://u:hunter2@h:port",
            "redis://u:hun@ter2@h:port",
            "redis://:hunter2@h/zero",
            "u:hunter2@h:port",
            "unix://x?pass=hunter2",
            "redis://h?password=hunter2",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("ter2"), "{error}");
        }
        let target = redis("redis://u:hunter2@h");
        assert!(!format!("{target} {target:?}").contains("hunter2"));
    }
}
