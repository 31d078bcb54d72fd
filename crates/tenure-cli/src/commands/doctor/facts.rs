//! Facts about a server: `INFO` and `CONFIG GET`. Managed servers often forbid the latter.

use std::collections::HashMap;

use tenure::redis::{Client, Command, Value};
use tenure::{Error, ErrorKind};

/// The settings that `CONFIG GET` reads.
const SETTINGS: [&str; 9] = [
    "appendfsync",
    "maxclients",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "save",
    "timeout",
    "appendonly",
];

/// Facts about a server.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    info: HashMap<String, String>,
    settings: HashMap<String, String>,
}

impl Facts {
    /// Reads the facts. What the server refuses stays unknown.
    ///
    /// # Errors
    ///
    /// If the server stops responding.
    pub async fn ask(client: &Client) -> Result<Self, Error> {
        let info = allowed(client.run(Command::new("INFO")).await)?;
        let mut get = Command::new("CONFIG").arg("GET");
        for setting in SETTINGS {
            get = get.arg(setting);
        }
        let settings = allowed(client.run(get).await)?;
        Ok(Self {
            info: info.map_or_else(HashMap::new, |info| lines_of(&info)),
            settings: settings.map_or_else(HashMap::new, |settings| pairs_of(&settings)),
        })
    }

    /// The value from the settings, or from `INFO`, which has some of them under similar names.
    pub fn setting(&self, name: &str) -> Option<&str> {
        let in_info = || self.info.get(&name.replace('-', "_"));
        let found = self.settings.get(name).or_else(in_info);
        found.map(String::as_str)
    }

    pub fn setting_number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    pub fn info(&self, field: &str) -> Option<&str> {
        self.info.get(field).map(String::as_str)
    }

    pub fn number(&self, field: &str) -> Option<u64> {
        self.info(field)?.parse().ok()
    }

    pub fn is_replica(&self) -> bool {
        self.info("role") == Some("slave")
    }

    /// Whether each write is on disk before the server responds.
    pub fn keeps_each_answer(&self) -> bool {
        self.info("aof_enabled") == Some("1") && self.setting("appendfsync") == Some("always")
    }

    #[cfg(test)]
    pub fn of(info: &str, settings: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            info: lines_of(&Value::Bytes(info.into())),
            settings: settings.iter().map(owned).collect(),
        }
    }
}

/// The response, or `None` if the server refused: only a server that is gone is an error.
pub fn allowed<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        Err(_) => Ok(None),
    }
}

fn lines_of(info: &Value) -> HashMap<String, String> {
    let lines = info.as_str().unwrap_or_default().lines();
    let pairs = lines.filter_map(|line| line.split_once(':'));
    pairs
        .map(|(field, value)| (field.to_owned(), value.trim().to_owned()))
        .collect()
}

fn pairs_of(settings: &Value) -> HashMap<String, String> {
    let flat = settings.as_array().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let pairs = flat.chunks_exact(2);
    pairs
        .filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
        .collect()
}
