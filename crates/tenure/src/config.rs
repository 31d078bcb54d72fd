//! The settings of a client as part of a program's configuration file.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::client::Tenure;
use crate::error::{Error, ErrorKind, Result};
use crate::redlock::Redlock;
use crate::url::masked_url;

/// The settings of a client, for configuration files. Needs the feature `serde`.
///
/// What is missing has its default, and an unknown field is an error. Each setting means what the
/// method of [`Builder`] with the same name means; times are in milliseconds.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> { tenure::blocking::block_on(async {
/// let file = r#"{ "urls": ["memory://"], "ttl_ms": 10000, "name": "billing" }"#;
/// let config: tenure::Config = serde_json::from_str(file)?;
/// let tenure = config.tenure()?.connect().await?;
/// # drop(tenure);
/// # Ok(()) }) }
/// ```
#[derive(Clone, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// One URL for [`Tenure`], several for [`Redlock`].
    pub urls: Vec<String>,
    /// See [`Builder::ttl`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// See [`Builder::unreachable_after`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable_after_ms: Option<u64>,
    /// See [`Builder::response_timeout`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_timeout_ms: Option<u64>,
    /// See [`Builder::hand_off`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<bool>,
    /// See [`Builder::hand_off_turns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_off_turns: Option<u32>,
    /// See [`Builder::hand_off_time`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_off_time_ms: Option<u64>,
    /// See [`Builder::keep`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_ms: Option<u64>,
    /// `native` or `redisson`, see [`Builder::layout`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// See [`Builder::prefix`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// See [`Builder::replicas`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// See [`Builder::after_failover`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_failover_ms: Option<u64>,
    /// Only for a Redlock, see [`Builder::longest_ttl`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ttl_ms: Option<u64>,
    /// See [`Builder::name`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// See [`Builder::about`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
}

impl Config {
    /// A builder for a client of one store.
    ///
    /// # Errors
    ///
    /// If there is not exactly one URL, the layout is unknown, or a setting is for a Redlock only.
    pub fn tenure(&self) -> Result<Builder> {
        let [url] = self.urls.as_slice() else {
            let cause = "a client of one store has one URL: use `Config::redlock` for several";
            let urls = self.urls.len().to_string();
            return Err(Error::invalid_setting("the number of `urls`", urls, cause));
        };
        refuse(
            "longest_ttl_ms",
            self.longest_ttl_ms,
            "only a Redlock has it",
        )?;
        let mut builder = self.common(Tenure::builder(url))?;
        if let Some(replicas) = self.replicas {
            builder = builder.replicas(replicas);
        }
        if let Some(wait) = self.after_failover_ms {
            builder = builder.after_failover(Duration::from_millis(wait));
        }
        Ok(builder)
    }

    /// A builder for a client of several independent servers.
    ///
    /// # Errors
    ///
    /// If the layout is unknown, or a setting is not for a Redlock.
    pub fn redlock(&self) -> Result<Builder<Redlock>> {
        let cause = "the servers of a Redlock have no replicas";
        refuse("replicas", self.replicas, cause)?;
        refuse("after_failover_ms", self.after_failover_ms, cause)?;
        let mut builder = self.common(Redlock::builder(&self.urls))?;
        if let Some(ttl) = self.longest_ttl_ms {
            builder = builder.longest_ttl(Duration::from_millis(ttl));
        }
        Ok(builder)
    }

    fn common<T>(&self, mut builder: Builder<T>) -> Result<Builder<T>> {
        let time = |ms: Option<u64>| ms.map(Duration::from_millis);
        if let Some(ttl) = time(self.ttl_ms) {
            builder = builder.ttl(ttl);
        }
        if let Some(limit) = time(self.unreachable_after_ms) {
            builder = builder.unreachable_after(limit);
        }
        if let Some(limit) = time(self.response_timeout_ms) {
            builder = builder.response_timeout(limit);
        }
        if let Some(on) = self.hand_off {
            builder = builder.hand_off(on);
        }
        if let Some(turns) = self.hand_off_turns {
            builder = builder.hand_off_turns(turns);
        }
        if let Some(length) = time(self.hand_off_time_ms) {
            builder = builder.hand_off_time(length);
        }
        if let Some(length) = time(self.keep_ms) {
            builder = builder.keep(length);
        }
        if let Some(layout) = &self.layout {
            builder = builder.layout(layout.parse()?);
        }
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        if let Some(name) = &self.name {
            builder = builder.name(name);
        }
        for (field, value) in &self.about {
            builder = builder.about(field, value);
        }
        Ok(builder)
    }
}

/// Without the passwords.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<String> = self.urls.iter().map(|url| masked_url(url)).collect();
        f.debug_struct("Config")
            .field("urls", &urls)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn refuse<T: fmt::Display>(setting: &str, value: Option<T>, cause: &str) -> Result<()> {
    match value {
        None => Ok(()),
        Some(value) => Err(Error::new(
            ErrorKind::InvalidSetting,
            format!("cannot use `{setting} = {value}`: {cause}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_setting_reaches_the_builder() {
        let whole = r#"{"urls":["redis://:s3cret@h"],"ttl_ms":1000,"unreachable_after_ms":2000,
            "response_timeout_ms":300,"hand_off":false,"hand_off_turns":4,"hand_off_time_ms":5,
            "keep_ms":6,
            "layout":"redisson","prefix":"t:","replicas":2,"after_failover_ms":60000,"name":"n",
            "about":{"user":"me"}}"#;
        let config = config(whole);
        let builder = config.tenure().unwrap();
        let settings = &builder.settings;
        assert_eq!(settings.ttl, Duration::from_secs(1));
        assert_eq!(settings.unreachable_after, Duration::from_secs(2));
        assert_eq!(settings.response_timeout, Duration::from_millis(300));
        assert!(!settings.hand_off.on);
        assert_eq!(settings.hand_off.turns, 4);
        assert_eq!(settings.hand_off.time, Duration::from_millis(5));
        assert_eq!(settings.keep, Duration::from_millis(6));
        assert_eq!(builder.layout, Some(crate::Layout::Redisson));
        assert_eq!(builder.prefix.as_deref(), Some("t:"));
        assert_eq!(settings.replicas, 2);
        assert_eq!(settings.after_failover, Some(Duration::from_secs(60)));
        assert_eq!(settings.name.as_deref(), Some("n"));
        assert_eq!(settings.about["user"], "me");
        assert!(!format!("{config:?}").contains("s3cret"));
        let again = serde_json::to_string(&config).unwrap();
        assert_eq!(config, serde_json::from_str(&again).unwrap());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |json: &str, part: &str| {
            let error = config(json).tenure().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        refused("{}", "one URL");
        refused(r#"{"urls":["a","b","c"]}"#, "Config::redlock");
        refused(r#"{"urls":["a"],"longest_ttl_ms":9}"#, "longest_ttl_ms = 9");
        refused(r#"{"urls":["a"],"layout":"odd"}"#, "odd");
        let several = r#"{"urls":["a","b","c"],"replicas":1}"#;
        let error = config(several).redlock().unwrap_err().to_string();
        assert!(error.contains("no replicas"), "{error}");
        assert!(serde_json::from_str::<Config>(r#"{"tll_ms":1}"#).is_err());
    }
}
