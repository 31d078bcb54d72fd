//! The grammar of URLs. An error is a sentence about the part that is wrong.

use std::path::PathBuf;

use super::parameters::{Parameters, decode, split_optional};
use super::{Address, ClusterTarget, RedisTarget, Secret, SentinelTarget, Target};
use crate::settings::RESPONSE_TIMEOUT_DEFAULT;

const PORT_DEFAULT: u16 = 6379;
const SENTINEL_PORT_DEFAULT: u16 = 26379;
/// Redis has 16 databases by default; a number above this is a typing error.
const DATABASE_MAX: u32 = 1_000_000;

const SCHEMES: &str = "`redis://`, `rediss://`, `valkey://`, `valkeys://`, `unix://`, \
                       `redis-sentinel://`, `redis-cluster://` and `memory://`";
const PARAMETERS: &str = "`db`, `user`, `pass`, `ca`, `cert`, `key`, `layout` and `prefix`";
const SENTINEL_PARAMETERS: &str = "`master`, `sentinel_username`, `sentinel_password`, `db`, \
                                   `user`, `pass`, `ca`, `cert`, `key`, `layout` and `prefix`";
const CLUSTER_PARAMETERS: &str =
    "`node`, `sharded`, `user`, `pass`, `ca`, `cert`, `key`, `layout` and `prefix`";

/// Other libraries' spellings of the Sentinel parameters.
const MASTER: [&str; 3] = ["master", "sentinelMasterId", "sentinelServiceName"];
const SENTINEL_USER: [&str; 3] = ["sentinel_username", "sentinel_user", "sentinelUsername"];
const SENTINEL_PASSWORD: [&str; 3] = ["sentinel_password", "sentinel_pass", "sentinelPassword"];

pub(super) fn parse(url: &str) -> Result<Target, String> {
    if url.is_empty() {
        return Err("it is empty: write for example `redis://127.0.0.1/`".to_owned());
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    // `valkey-sentinel` and `redis+sentinel` mean `redis-sentinel`.
    let (product, topology) = scheme.split_once(['-', '+']).unwrap_or((scheme, ""));
    let tls = match product {
        "redis" | "valkey" => Some(false),
        "rediss" | "valkeys" => Some(true),
        _ => None,
    };
    match (scheme, tls, topology) {
        ("memory", ..) => memory(rest),
        ("unix" | "redis+unix" | "redis-socket", ..) => socket(rest),
        (_, Some(tls), "") => server(rest, tls),
        (_, Some(tls), "sentinel") => sentinel(rest, tls),
        (_, Some(tls), "cluster") => cluster(rest, tls),
        (scheme, ..) => Err(format!("the scheme `{scheme}` is not one of {SCHEMES}")),
    }
}

pub(super) fn database(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|database| *database <= DATABASE_MAX)
        .ok_or_else(|| format!("the database `{text}` is not a number such as 0 or 1"))
}

fn memory(rest: &str) -> Result<Target, String> {
    let (rest, query) = split_optional(rest, '?');
    let name = rest.trim_end_matches('/');
    if name.contains(['?', '#', '@', '/']) {
        return Err(format!(
            "`{name}` is not the name of a memory store: write `memory://` or `memory://name`"
        ));
    }
    let mut parameters = Parameters::parse(query)?;
    let target = Target::Memory {
        name: (!name.is_empty()).then(|| name.to_owned()),
        prefix: parameters.prefix()?,
    };
    parameters.all_used(target, "`prefix`")
}

fn socket(rest: &str) -> Result<Target, String> {
    let (path, query) = split_optional(rest, '?');
    if !path.starts_with('/') {
        return Err(format!(
            "the path `{path}` of the socket is not absolute: write `unix:///path/to/socket`"
        ));
    }
    let mut parameters = Parameters::parse(query)?;
    let target = Target::Redis(RedisTarget {
        address: Address::Unix(PathBuf::from(decode(path, "path")?)),
        user: parameters.take("user"),
        password: parameters.take("pass").map(Secret),
        database: parameters.database()?.unwrap_or(0),
        layout: parameters.layout()?,
        prefix: parameters.prefix()?,
        response_timeout: RESPONSE_TIMEOUT_DEFAULT,
    });
    parameters.all_used(target, PARAMETERS)
}

fn server(rest: &str, tls: bool) -> Result<Target, String> {
    let mut parts = Parts::split(rest, tls)?;
    let (host, port) = host(parts.hosts, PORT_DEFAULT)?;
    if host.contains(',') {
        return Err(format!(
            "the host `{host}` is a list, and one Redis is one host: several are \
             `redis-sentinel://` or `redis-cluster://`"
        ));
    }
    let in_path = parts.path.map(database).transpose()?;
    let database = in_path.or(parts.parameters.database()?).unwrap_or(0);
    let target = Target::Redis(parts.target(host, port, database)?);
    parts.parameters.all_used(target, PARAMETERS)
}

fn sentinel(rest: &str, tls: bool) -> Result<Target, String> {
    let mut parts = Parts::split(rest, tls)?;
    let hosts = hosts(parts.hosts, SENTINEL_PORT_DEFAULT)?;
    if hosts.is_empty() {
        return Err(missing_host("redis-sentinel://h1:26379,h2:26379/mymaster"));
    }
    let (master, in_path) = master_and_database(&mut parts)?;
    let database = in_path.or(parts.parameters.database()?).unwrap_or(0);
    let server = parts.target(master.clone(), 0, database)?;
    let user = parts.parameters.take_any(&SENTINEL_USER);
    let password = parts.parameters.take_any(&SENTINEL_PASSWORD).map(Secret);
    let sentinels = hosts.iter().map(|(host, port)| RedisTarget {
        user: user.clone(),
        password: password.clone(),
        database: 0,
        ..server.at(host, *port)
    });
    let target = Target::Sentinel(SentinelTarget {
        sentinels: sentinels.collect(),
        master,
        server,
    });
    parts.parameters.all_used(target, SENTINEL_PARAMETERS)
}

/// `/master[/db]`, or `/[db]?master=name`.
fn master_and_database(parts: &mut Parts<'_>) -> Result<(String, Option<u32>), String> {
    if let Some(master) = parts.parameters.take_any(&MASTER) {
        let in_path = parts.path.map(|path| {
            database(path).map_err(|_| {
                format!(
                    "the master is named twice, as `{path}` in the path and by a parameter: leave \
                     one of them out"
                )
            })
        });
        return Ok((non_empty(master)?, in_path.transpose()?));
    }
    let path = parts.path.ok_or_else(|| {
        "the name of the master is missing: write for example `redis-sentinel://host/mymaster`"
            .to_owned()
    })?;
    let (master, in_path) = split_optional(path, '/');
    let in_path = in_path.map(database).transpose()?;
    Ok((non_empty(decode(master, "master")?)?, in_path))
}

fn non_empty(master: String) -> Result<String, String> {
    if master.is_empty() {
        return Err("the name of the master is empty".to_owned());
    }
    Ok(master)
}

fn cluster(rest: &str, tls: bool) -> Result<Target, String> {
    let mut parts = Parts::split(rest, tls)?;
    let mut hosts = hosts(parts.hosts, PORT_DEFAULT)?;
    for key in ["node", "addr"] {
        for node in parts.parameters.take_all(key) {
            hosts.push(host(&node, PORT_DEFAULT)?);
        }
    }
    if hosts.is_empty() {
        return Err(missing_host("redis-cluster://h1:6379,h2:6379"));
    }
    let in_path = parts.path.map(database).transpose()?;
    let database = in_path.or(parts.parameters.database()?).unwrap_or(0);
    if database != 0 {
        return Err(format!(
            "a Cluster has no database `{database}`, only 0: leave it out"
        ));
    }
    let (host, port) = hosts[0].clone();
    let first = parts.target(host, port, 0)?;
    let sharded = parts.parameters.sharded()?;
    let target = Target::Cluster(ClusterTarget {
        nodes: hosts
            .iter()
            .map(|(host, port)| first.at(host, *port))
            .collect(),
        sharded,
    });
    parts.parameters.all_used(target, CLUSTER_PARAMETERS)
}

/// The parts of every server URL.
struct Parts<'a> {
    credentials: Option<&'a str>,
    hosts: &'a str,
    /// Without the slashes around it; `None` if it is empty.
    path: Option<&'a str>,
    parameters: Parameters,
    /// With TLS: whether to accept any certificate.
    tls: Option<bool>,
}

impl<'a> Parts<'a> {
    fn split(rest: &'a str, tls: bool) -> Result<Self, String> {
        let (rest, fragment) = split_optional(rest, '#');
        let (rest, query) = split_optional(rest, '?');
        let (authority, path) = split_optional(rest, '/');
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let insecure = insecure(fragment, tls)?;
        Ok(Self {
            credentials,
            hosts,
            path: path
                .map(|path| path.trim_end_matches('/'))
                .filter(|path| !path.is_empty()),
            parameters: Parameters::parse(query)?,
            tls: tls.then_some(insecure),
        })
    }

    /// The server at this host, with the credentials and settings of the URL.
    fn target(&mut self, host: String, port: u16, database: u32) -> Result<RedisTarget, String> {
        let (user, password) = self
            .credentials
            .map(credentials)
            .transpose()?
            .unwrap_or_default();
        let parameters = &mut self.parameters;
        let address = match self.tls {
            Some(insecure) => Address::Tls {
                host,
                port,
                tls: parameters.tls(insecure)?,
            },
            None => Address::Tcp { host, port },
        };
        Ok(RedisTarget {
            address,
            user: user.or(parameters.take("user")),
            password: password.or(parameters.take("pass").map(Secret)),
            database,
            layout: parameters.layout()?,
            prefix: parameters.prefix()?,
            response_timeout: RESPONSE_TIMEOUT_DEFAULT,
        })
    }
}

fn credentials(text: &str) -> Result<(Option<String>, Option<Secret>), String> {
    let (user, password) = split_optional(text, ':');
    let user = decode(user, "user")?;
    let password = password
        .map(|password| decode(password, "password"))
        .transpose()?;
    Ok(((!user.is_empty()).then_some(user), password.map(Secret)))
}

/// A comma-separated list; empty if the text is empty.
fn hosts(text: &str, port_default: u16) -> Result<Vec<(String, u16)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|one| host(one, port_default)).collect()
}

fn host(text: &str, port_default: u16) -> Result<(String, u16), String> {
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
        // Where one host is expected, a list is reported as a list.
        None if text.matches(':').count() > 1 && !text.contains(',') => {
            return Err(format!(
                "the host `{text}` has several colons: write an IPv6 address in brackets"
            ));
        }
        None if text.contains(',') => (text, None),
        None => split_optional(text, ':'),
    };
    if host.is_empty() {
        return Err(missing_host("redis://127.0.0.1:6379/"));
    }
    let port = match port {
        None => port_default,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| format!("the port `{port}` is not a number from 1 to 65535"))?,
    };
    Ok((decode(host, "host")?, port))
}

fn missing_host(example: &str) -> String {
    format!("the host is missing: write for example `{example}`")
}

fn insecure(fragment: Option<&str>, tls: bool) -> Result<bool, String> {
    match fragment {
        None | Some("") => Ok(false),
        Some("insecure") if tls => Ok(true),
        Some("insecure") => Err("`#insecure` belongs to `rediss://` only".to_owned()),
        Some(other) => Err(format!(
            "the fragment `#{other}` is unknown: only `#insecure` is allowed"
        )),
    }
}
