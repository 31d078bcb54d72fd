//! The gate's scripts: one file each, loaded only here.

use std::sync::LazyLock;

use tenure::redis::Script;

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| assemble(include_str!(concat!("scripts/", $file))));)*

        /// All scripts, with their files.
        #[cfg(test)]
        fn all() -> Vec<(&'static str, &'static Script)> {
            vec![$(($file, &*$name)),*]
        }
    };
}

scripts! {
    ASK = "ask.lua";
    TAKE = "take.lua";
    APPLY = "apply.lua";
    BEGIN_LOAD = "begin_load.lua";
    LOAD_BUYERS = "load_buyers.lua";
    FINISH_LOAD = "finish_load.lua";
    STOP = "stop.lua";
    STANDING = "standing.lua";
    CLAIM = "claim.lua";
    CLAIM_OF = "claim_of.lua";
    ACKNOWLEDGE = "acknowledge.lua";
    BURY = "bury.lua";
    UNBURY = "unbury.lua";
    FIND = "find.lua";
    FORGET = "forget.lua";
    GIVE = "give.lua";
    RECEIVE = "receive.lua";
    CONCLUDE = "conclude.lua";
}

macro_rules! parts {
    ($($file:literal),* $(,)?) => {
        /// The shared parts, with their files.
        const PARTS: &[(&str, &str)] = &[$(($file, include_str!(concat!("scripts/", $file)))),*];
    };
}

parts![
    "whole.lua",
    "server.lua",
    "now.lua",
    "order_of.lua",
    "dead_of.lua",
    "marks.lua",
    "may_write.lua",
    "types.lua",
    "terms.lua"
];

/// Inserts the shared parts where a script includes them. Redis requires the `#!lua` line first, so
/// they cannot simply be prepended.
fn assemble(code: &str) -> Script {
    let mut code = code.to_owned();
    for (file, part) in PARTS {
        code = code.replace(&format!("--@include {file}"), part);
    }
    Script::new(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_begins_with_its_shebang_and_says_what_it_is() {
        for (file, script) in all() {
            let mut lines = script.code().lines();
            assert!(lines.next().unwrap().starts_with("#!lua"), "{file}");
            let header = format!("-- {file}: ");
            assert!(lines.next().unwrap().starts_with(&header), "{file}");
            for part in ["-- KEYS ", "-- Reply "] {
                assert!(script.code().contains(part), "{file} lacks `{part}`");
            }
            assert!(!script.code().contains("@include"), "{file}");
        }
    }

    /// An entry of the queue is an accepted order: the stream must never be trimmed.
    #[test]
    fn no_script_trims_the_queue() {
        for (file, script) in all() {
            for word in ["MAXLEN", "XTRIM", "NOACK"] {
                assert!(!script.code().contains(word), "{file} has {word}");
            }
        }
    }
}
