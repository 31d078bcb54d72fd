//! The parameters of a URL, after the `?`.

use std::path::PathBuf;

use super::{Target, Tls, grammar};
use crate::layout::Layout;
use crate::prefix::Prefix;
use crate::sharded::Sharded;

/// The `key=value` pairs after the `?`, each to be used once.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut parameters = Vec::new();
        for pair in query.unwrap_or("").split('&').filter(|p| !p.is_empty()) {
            let (key, value) = split_optional(pair, '=');
            let value = value.ok_or_else(|| format!("the parameter `{key}` has no value"))?;
            parameters.push((decode(key, "parameter")?, decode(value, key)?));
        }
        Ok(Self(parameters))
    }

    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.remove(at).1)
    }

    /// The first of these spellings that is present.
    pub(super) fn take_any(&mut self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| self.take(key))
    }

    /// All values of a parameter that may be repeated.
    pub(super) fn take_all(&mut self, key: &str) -> Vec<String> {
        std::iter::from_fn(|| self.take(key)).collect()
    }

    pub(super) fn database(&mut self) -> Result<Option<u32>, String> {
        self.take("db").map(|db| grammar::database(&db)).transpose()
    }

    pub(super) fn tls(&mut self, insecure: bool) -> Result<Tls, String> {
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

    pub(super) fn layout(&mut self) -> Result<Option<Layout>, String> {
        let layout = self.take("layout").map(|layout| {
            let unknown = |_| format!("the layout `{layout}` is not `native` or `redisson`");
            layout.parse().map_err(unknown)
        });
        layout.transpose()
    }

    pub(super) fn prefix(&mut self) -> Result<Option<Prefix>, String> {
        let prefix = self.take("prefix").map(|prefix| {
            let refused = |cause| format!("the prefix `{prefix}` cannot be used: {cause}");
            Prefix::parse(&prefix).map_err(refused)
        });
        prefix.transpose()
    }

    pub(super) fn sharded(&mut self) -> Result<Option<Sharded>, String> {
        let sharded = self.take("sharded").map(|sharded| {
            let unknown = |_| format!("`sharded={sharded}` is not `auto`, `on` or `off`");
            sharded.parse().map_err(unknown)
        });
        sharded.transpose()
    }

    /// An unused parameter is a spelling mistake; `known` lists the valid ones.
    pub(super) fn all_used(self, target: Target, known: &str) -> Result<Target, String> {
        match self.0.first() {
            None => Ok(target),
            Some((key, _)) if matches!(key.as_str(), "ca" | "cert" | "key") => Err(format!(
                "the parameter `{key}` needs TLS: use a scheme such as `rediss` or `rediss-cluster`"
            )),
            Some((key, _)) => Err(format!(
                "the parameter `{key}` is not one of {known}, or is given twice"
            )),
        }
    }
}

pub(super) fn split_optional(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Decodes percent-encoding. Errors do not repeat the text: it may be a password.
pub(super) fn decode(text: &str, part: &str) -> Result<String, String> {
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
