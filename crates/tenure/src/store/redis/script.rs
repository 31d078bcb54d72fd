//! Lua scripts: one file each, loaded only here.

use std::sync::LazyLock;

use crate::mode::Mode;
use crate::seeded::{self, Bug};

/// A Lua script for [`Client::script`](super::Client::script).
///
/// It is sent by its hash; a server that does not know it gets the text once.
#[derive(Clone, Debug)]
pub struct Script {
    code: String,
    hash: String,
}

impl Script {
    /// Stores `code` and computes its hash.
    pub fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let hash = sha1_smol::Sha1::from(&code).hexdigest();
        Self { code, hash }
    }

    /// The text.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Its SHA-1, by which the server knows it.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

macro_rules! script {
    ($($file:literal),*) => {{
        let code = assemble(include_str!(concat!("scripts/", $($file),*)));
        Script::new(seeded::script(concat!($($file),*), code))
    }};
}

pub(super) static RECORD: LazyLock<Script> = LazyLock::new(|| script!("record.lua"));
pub(super) static REIGN: LazyLock<Script> = LazyLock::new(|| script!("reign.lua"));
pub(super) static CLIENTS: LazyLock<Script> = LazyLock::new(|| script!("clients.lua"));
pub(super) static STAY: LazyLock<Script> = LazyLock::new(|| script!("stay.lua"));
pub(super) static WAITERS: LazyLock<Script> = LazyLock::new(|| script!("waiters.lua"));
/// Not in Redisson's layout, whose releases also wake the waiters of other libraries.
pub(super) static RELEASE_ALL: LazyLock<Script> =
    LazyLock::new(|| script!("native/release_all.lua"));

pub(super) static RENEW_ALL: LazyLock<Script> = LazyLock::new(|| script!("native/renew_all.lua"));

pub(super) static ACQUIRE_SEVERAL: LazyLock<Script> =
    LazyLock::new(|| script!("native/acquire_several.lua"));

/// Not in Redisson's layout, as the fair locks of runs.
pub(super) static ONCE: LazyLock<Script> = LazyLock::new(|| script!("native/once.lua"));

/// Not in Redisson's layout, which has no latches of ours.
pub(super) static LATCH: LazyLock<Script> = LazyLock::new(|| script!("native/latch.lua"));

/// The scripts of a lock in one layout. Keys, arguments and replies are the same in all layouts,
/// except what release.lua must know about other libraries' channels.
pub(super) struct LockScripts {
    pub(super) exclusive: LeaseScripts,
    /// Native in every layout: a client refuses shared leases before it sends anything, if its layout
    /// does not have them.
    pub(super) shared: LeaseScripts,
    pub(super) permits: PermitScripts,
    /// Instead of the script of an exclusive lease, for those who are served strictly in order. Native in
    /// every layout.
    pub(super) fair_acquire: Script,
    pub(super) turn: Script,
    pub(super) look: Script,
    pub(super) proclaim: Script,
    /// Native in every layout, as shared leases are.
    pub(super) downgrade: Script,
    pub(super) upgrade: Script,
}

/// The scripts of leases of one mode.
pub(super) struct LeaseScripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) adopt: Script,
}

/// The scripts of a semaphore.
pub(super) struct PermitScripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) resize: Script,
}

impl LockScripts {
    /// The script that renews leases of this mode.
    pub(super) fn renew(&self, mode: Mode) -> &Script {
        match mode {
            Mode::Exclusive => &self.exclusive.renew,
            Mode::Shared => &self.shared.renew,
            Mode::Permit => &self.permits.renew,
        }
    }

    /// The same scripts, publishing only to the shard of a cluster that has the lock. Separate
    /// scripts: an argument would cost every release on every server.
    fn sharded(&self) -> Self {
        let sharded = |script: &Script| {
            if seeded::bug(Bug::ShardNotTold) {
                return script.clone();
            }
            let code = script.code().replace("'PUBLISH'", "'SPUBLISH'");
            Script::new(code.replace("'NUMSUB'", "'SHARDNUMSUB'"))
        };
        let sharded_leases = |scripts: &LeaseScripts| LeaseScripts {
            acquire: sharded(&scripts.acquire),
            release: sharded(&scripts.release),
            renew: scripts.renew.clone(),
            adopt: scripts.adopt.clone(),
        };
        Self {
            exclusive: sharded_leases(&self.exclusive),
            shared: sharded_leases(&self.shared),
            permits: PermitScripts {
                acquire: sharded(&self.permits.acquire),
                release: sharded(&self.permits.release),
                renew: self.permits.renew.clone(),
                resize: sharded(&self.permits.resize),
            },
            fair_acquire: sharded(&self.fair_acquire),
            turn: sharded(&self.turn),
            look: self.look.clone(),
            proclaim: self.proclaim.clone(),
            downgrade: sharded(&self.downgrade),
            upgrade: sharded(&self.upgrade),
        }
    }
}

/// A script with one text for both layouts, which differ in how a lock is encoded.
macro_rules! script_of_layout {
    ($layout:literal, $file:literal) => {{
        let code = include_str!(concat!("scripts/", $file));
        let code = assemble(&code.replace("LAYOUT", $layout));
        Script::new(seeded::script(concat!($layout, "/", $file), code))
    }};
}

macro_rules! lock_scripts {
    ($folder:literal) => {
        LazyLock::new(|| LockScripts {
            exclusive: LeaseScripts {
                acquire: script!($folder, "/acquire.lua"),
                release: script!($folder, "/release.lua"),
                renew: script!($folder, "/renew.lua"),
                adopt: script!($folder, "/adopt.lua"),
            },
            shared: LeaseScripts {
                acquire: script!("native/shared_acquire.lua"),
                release: script!("native/shared_release.lua"),
                renew: script!("native/shared_renew.lua"),
                adopt: script!("native/shared_adopt.lua"),
            },
            permits: PermitScripts {
                acquire: script!("native/permit_acquire.lua"),
                release: script!("native/permit_release.lua"),
                renew: script!("native/permit_renew.lua"),
                resize: script!("native/resize.lua"),
            },
            fair_acquire: script!("native/fair_acquire.lua"),
            turn: script!($folder, "/turn.lua"),
            look: script!($folder, "/look.lua"),
            proclaim: script_of_layout!($folder, "proclaim.lua"),
            downgrade: script!("native/downgrade.lua"),
            upgrade: script!("native/upgrade.lua"),
        })
    };
}

pub(super) static NATIVE: LazyLock<LockScripts> = lock_scripts!("native");
pub(super) static REDISSON: LazyLock<LockScripts> = lock_scripts!("redisson");
pub(super) static NATIVE_SHARDED: LazyLock<LockScripts> = LazyLock::new(|| NATIVE.sharded());
pub(super) static REDISSON_SHARDED: LazyLock<LockScripts> = LazyLock::new(|| REDISSON.sharded());

/// The scripts that a Redlock node runs instead of acquire.lua and release.lua. One text for both
/// layouts, which differ in how a lock is encoded.
pub(super) struct RedlockScripts {
    pub(super) vote: Script,
    pub(super) vote_all: Script,
    pub(super) wait: Script,
    pub(super) release: Script,
    pub(super) release_all: Script,
    pub(super) repair: Script,
    pub(super) nodes: Script,
    pub(super) longest_ttl: Script,
}

macro_rules! redlock_script {
    ($layout:literal, $file:literal) => {{
        let code = include_str!(concat!("scripts/redlock/", $file));
        let code = assemble(&code.replace("LAYOUT", $layout));
        Script::new(seeded::script(concat!("redlock/", $file), code))
    }};
}

macro_rules! redlock_scripts {
    ($layout:literal) => {
        LazyLock::new(|| RedlockScripts {
            vote: redlock_script!($layout, "vote.lua"),
            vote_all: redlock_script!($layout, "vote_all.lua"),
            wait: redlock_script!($layout, "wait.lua"),
            release: redlock_script!($layout, "release.lua"),
            release_all: redlock_script!($layout, "release_all.lua"),
            repair: redlock_script!($layout, "repair.lua"),
            nodes: redlock_script!($layout, "nodes.lua"),
            longest_ttl: redlock_script!($layout, "longest_ttl.lua"),
        })
    };
}

pub(super) static REDLOCK_NATIVE: LazyLock<RedlockScripts> = redlock_scripts!("native");
pub(super) static REDLOCK_REDISSON: LazyLock<RedlockScripts> = redlock_scripts!("redisson");

impl RedlockScripts {
    /// All of them, with their files.
    pub(super) fn all(&self) -> [(&'static str, &Script); 8] {
        [
            ("vote.lua", &self.vote),
            ("vote_all.lua", &self.vote_all),
            ("wait.lua", &self.wait),
            ("release.lua", &self.release),
            ("release_all.lua", &self.release_all),
            ("repair.lua", &self.repair),
            ("nodes.lua", &self.nodes),
            ("longest_ttl.lua", &self.longest_ttl),
        ]
    }
}

/// All scripts that a client may send, with their files.
pub(super) fn all(scripts: &LockScripts) -> [(&'static str, &Script); 28] {
    let LockScripts {
        exclusive,
        shared,
        permits,
        ..
    } = scripts;
    [
        ("acquire.lua", &exclusive.acquire),
        ("release.lua", &exclusive.release),
        ("renew.lua", &exclusive.renew),
        ("adopt.lua", &exclusive.adopt),
        ("shared_acquire.lua", &shared.acquire),
        ("shared_release.lua", &shared.release),
        ("shared_renew.lua", &shared.renew),
        ("shared_adopt.lua", &shared.adopt),
        ("permit_acquire.lua", &permits.acquire),
        ("permit_release.lua", &permits.release),
        ("permit_renew.lua", &permits.renew),
        ("resize.lua", &permits.resize),
        ("fair_acquire.lua", &scripts.fair_acquire),
        ("turn.lua", &scripts.turn),
        ("look.lua", &scripts.look),
        ("proclaim.lua", &scripts.proclaim),
        ("downgrade.lua", &scripts.downgrade),
        ("upgrade.lua", &scripts.upgrade),
        ("record.lua", &RECORD),
        ("clients.lua", &CLIENTS),
        ("reign.lua", &REIGN),
        ("stay.lua", &STAY),
        ("waiters.lua", &WAITERS),
        ("release_all.lua", &RELEASE_ALL),
        ("renew_all.lua", &RENEW_ALL),
        ("acquire_several.lua", &ACQUIRE_SEVERAL),
        ("once.lua", &ONCE),
        ("latch.lua", &LATCH),
    ]
}

macro_rules! parts {
    ($($file:literal),* $(,)?) => {
        /// Parts that scripts share, with their files.
        const PARTS: &[(&str, &str)] = &[$(($file, include_str!(concat!("scripts/", $file)))),*];
    };
}

parts! {
    "whole.lua",
    // Before what it includes itself.
    "in_time.lua",
    "master.lua",
    "native/shared.lua",
    "native/shared_queue.lua",
    "native/permits.lua",
    "native/permit_queue.lua",
    "known_term.lua",
    "named.lua",
    "native/lease_at.lua",
    "native/last_fence.lua",
    "native/handed_on.lua",
    "native/offer.lua",
    // After what includes them.
    "native/fence.lua",
    "living.lua",
    "heard.lua",
    "native/lock.lua",
    "redlock/stored_fence.lua",
    "redlock/keep_longest.lua",
    "redlock/cast_vote.lua",
    "redlock/vote_for_one.lua",
    // After what includes it.
    "term.lua",
    // Before what it includes itself.
    "redisson/lock.lua",
    "redisson/lease_at.lua",
    "redisson/holder_at.lua",
    "redisson/fence.lua",
    "redisson/handed_on.lua",
}

/// Inserts the shared parts where a script includes them. Redis wants the `#!lua` line first, so
/// they cannot simply be prepended.
fn assemble(code: &str) -> String {
    let mut code = code.to_owned();
    for (file, part) in PARTS {
        code = code.replace(&format!("--@include {file}"), part);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that a changed script does not leave a seeded bug without effect.
    #[test]
    fn every_seeded_bug_finds_its_place() {
        for (bug, file, good, _) in seeded::IN_SCRIPTS {
            let (folder, name) = file.split_once('/').unwrap();
            let scripts = match folder {
                "native" => all(&NATIVE).to_vec(),
                _ => REDLOCK_NATIVE.all().to_vec(),
            };
            let (_, script) = scripts.iter().find(|(known, _)| *known == name).unwrap();
            let places = script.code().matches(good).count();
            assert_eq!(places, 1, "{bug:?}: `{good}` in {file}");
        }
    }

    /// A subscriber to one kind of channel gets no messages of the other kind.
    #[test]
    fn sharded_scripts_speak_in_their_shard_only() {
        for scripts in [&NATIVE_SHARDED, &REDISSON_SHARDED] {
            for (file, script) in all(scripts) {
                for plain in ["'PUBLISH'", "'NUMSUB'"] {
                    assert!(!script.code().contains(plain), "{file} has {plain}");
                }
                let speaks = [
                    "release.lua",
                    "turn.lua",
                    "fair_acquire.lua",
                    "shared_acquire.lua",
                    "shared_release.lua",
                    "permit_acquire.lua",
                    "permit_release.lua",
                    "resize.lua",
                    "downgrade.lua",
                    "upgrade.lua",
                ];
                let publishes = script.code().contains("'SPUBLISH'");
                assert_eq!(publishes, speaks.contains(&file), "{file}");
            }
        }
    }

    #[test]
    fn every_script_begins_with_its_shebang_and_says_what_it_is() {
        let redlock = [&*REDLOCK_NATIVE, &*REDLOCK_REDISSON].map(RedlockScripts::all);
        let lock = [&*NATIVE, &*REDISSON].map(all);
        for (file, script) in lock
            .into_iter()
            .flatten()
            .chain(redlock.into_iter().flatten())
        {
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
            assert!(!script.code().contains("LAYOUT"), "{file}");
        }
    }
}
