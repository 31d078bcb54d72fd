//! Lua scripts: one file each, read here and nowhere else.

use std::sync::LazyLock;

use crate::seeded;

/// A Lua script for [`Client::script`](super::Client::script).
///
/// It is sent by its hash; a server that does not know it gets the text once.
#[derive(Clone, Debug)]
pub struct Script {
    code: String,
    hash: String,
}

impl Script {
    /// Keeps `code` and computes its hash.
    pub fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let hash = ::redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// The text.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The SHA-1 that the server knows it by.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| {
                let code = assemble(include_str!(concat!("scripts/", $file)));
                Script::new(seeded::script($file, code))
            });)*

        /// All scripts of the native layout, with their files.
        pub(super) static ALL: LazyLock<Vec<(&'static str, &'static Script)>> =
            LazyLock::new(|| vec![$(($file, &*$name)),*]);
    };
}

scripts! {
    ACQUIRE = "acquire.lua";
    RELEASE = "release.lua";
    TURN = "turn.lua";
    RENEW = "renew.lua";
    ADOPT = "adopt.lua";
    LOOK = "look.lua";
    RECORD = "record.lua";
    CLIENTS = "clients.lua";
}

/// Puts the shared parts where a script asks for them. Redis wants the `#!lua` line first, so they
/// cannot simply be put in front.
fn assemble(code: &str) -> String {
    code.replace("--@include whole.lua", include_str!("scripts/whole.lua"))
        .replace("--@include offer.lua", include_str!("scripts/offer.lua"))
        .replace("--@include fence.lua", include_str!("scripts/fence.lua"))
        .replace(
            "--@include lease_at.lua",
            include_str!("scripts/lease_at.lua"),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that a script can be changed without leaving a bug that is none.
    #[test]
    fn every_seeded_bug_finds_its_place() {
        for (bug, file, good, _) in seeded::IN_SCRIPTS {
            let (_, script) = ALL.iter().find(|(known, _)| known == file).unwrap();
            let places = script.code().matches(good).count();
            assert_eq!(places, 1, "{bug:?}: `{good}` in {file}");
        }
    }

    #[test]
    fn every_script_begins_with_its_shebang_and_says_what_it_is() {
        for (file, script) in ALL.iter() {
            let mut lines = script.code().lines();
            assert!(lines.next().unwrap().starts_with("#!lua"), "{file}");
            assert!(
                lines.next().unwrap().starts_with(&format!("-- {file}: ")),
                "{file} lacks its header"
            );
            for part in ["-- KEYS ", "-- Reply "] {
                assert!(script.code().contains(part), "{file} lacks `{part}`");
            }
            assert!(!script.code().contains("@include"), "{file}");
        }
    }
}
