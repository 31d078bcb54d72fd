//! Measures how long a server takes to reply, if timings are wanted.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Connection;
use crate::moment::Moment;
use crate::store::Failure;
use crate::store::redis::command::{Cmd, Pipeline};
use crate::store::redis::script::{self, Script};
use crate::timings::{Call, CallOutcome};

/// When a call started; `None` unless timings are wanted.
pub(in crate::store::redis) struct CallStart(pub(in crate::store::redis) Option<Moment>);

impl Connection {
    pub(in crate::store::redis) fn start_call(&self) -> CallStart {
        let timings = &self.server.stats.timings;
        CallStart(timings.is_wanted().then(|| self.server.clock.now()))
    }

    /// Records the outcome of a call. `call` is evaluated only if timings are wanted.
    pub(in crate::store::redis) fn finish_call<T>(
        &self,
        start: &CallStart,
        call: impl FnOnce() -> Call,
        answer: &Result<T, Failure>,
    ) {
        self.note_call(start.0, call, answer);
    }

    /// The same for a call that started at this moment; `None` unless timings are wanted.
    pub(in crate::store::redis) fn note_call<T>(
        &self,
        started_at: Option<Moment>,
        call: impl FnOnce() -> Call,
        answer: &Result<T, Failure>,
    ) {
        let Some(start) = started_at else { return };
        let outcome = match answer {
            Ok(_) => CallOutcome::Answered,
            Err(failure) if failure.in_flight.is_some() => CallOutcome::Unanswered,
            Err(_) => CallOutcome::Refused,
        };
        let took = self.server.clock.now().saturating_since(start);
        self.timings.note(call(), outcome, took);
    }
}

/// The call that a pipeline makes: that of its first command about locks.
pub(super) fn call_of_all(pipeline: &Pipeline) -> Call {
    let mut calls = pipeline.commands().iter().map(call_of);
    let found = calls.find(|call| *call != Call::Other);
    found.unwrap_or(Call::Other)
}

/// The call that a command makes.
pub(super) fn call_of(command: &Cmd) -> Call {
    let mut words = command.words();
    match words.next() {
        Some(b"EVALSHA" | b"EVAL") => {
            let call = words.next().and_then(|script| SCRIPTS.get(script));
            call.copied().unwrap_or(Call::Other)
        }
        Some(b"WAIT") => Call::Confirm,
        Some(b"GET" | b"HGET" | b"HEXISTS" | b"PTTL" | b"ZRANK") => Call::Look,
        Some(b"HGETALL") => Call::Clients,
        _ => Call::Other,
    }
}

/// Our own scripts, by hash and by text.
static SCRIPTS: LazyLock<HashMap<&'static [u8], Call>> = LazyLock::new(|| {
    let of_locks = [
        &script::NATIVE,
        &script::REDISSON,
        &script::NATIVE_SHARDED,
        &script::REDISSON_SHARDED,
    ];
    let of_locks = of_locks
        .into_iter()
        .flat_map(|scripts| script::all(scripts));
    let of_redlock = [&script::REDLOCK_NATIVE, &script::REDLOCK_REDISSON];
    let of_redlock = of_redlock.into_iter().flat_map(|scripts| scripts.all());
    let names = |(file, script): (&str, &'static Script)| {
        let call = call_of_file(file);
        [
            (script.hash().as_bytes(), call),
            (script.code().as_bytes(), call),
        ]
    };
    of_locks.chain(of_redlock).flat_map(names).collect()
});

fn call_of_file(file: &str) -> Call {
    let modes = ["shared_", "permit_", "fair_"];
    let plain = modes.into_iter().find_map(|mode| file.strip_prefix(mode));
    match plain.unwrap_or(file) {
        "acquire.lua" | "acquire_several.lua" => Call::Acquire,
        "release.lua" | "release_all.lua" => Call::Release,
        "turn.lua" => Call::Turn,
        "renew.lua" | "renew_all.lua" => Call::Renew,
        "adopt.lua" => Call::Adopt,
        "downgrade.lua" => Call::Downgrade,
        "upgrade.lua" => Call::Upgrade,
        "resize.lua" => Call::Resize,
        "look.lua" => Call::Look,
        "proclaim.lua" => Call::Proclaim,
        "once.lua" => Call::Once,
        "latch.lua" => Call::Latch,
        "record.lua" => Call::Record,
        "clients.lua" => Call::Clients,
        "reign.lua" => Call::Reign,
        "stay.lua" => Call::Stay,
        "waiters.lua" => Call::Waiters,
        "vote.lua" | "vote_all.lua" | "wait.lua" => Call::Vote,
        "repair.lua" => Call::Repair,
        _ => Call::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::command::cmd;

    #[test]
    fn every_script_of_ours_has_its_word() {
        for (file, script) in script::all(&script::NATIVE) {
            for (word, text) in [("EVALSHA", script.hash()), ("EVAL", script.code())] {
                let call = call_of(cmd(word).arg(text).arg(1).arg("n"));
                let file = file.replace("_all", "").replace("_several", "");
                let file = ["shared_", "permit_", "fair_"]
                    .iter()
                    .fold(file, |file, mode| file.replace(mode, ""));
                assert_eq!(format!("{call}.lua"), file, "{word}");
            }
        }
        for (file, script) in script::REDLOCK_REDISSON.all() {
            let call = call_of(cmd("EVALSHA").arg(script.hash()));
            let is_rare = ["nodes.lua", "longest_ttl.lua"].contains(&file);
            let file = file.replace("_all", "").replace("wait", "vote");
            assert!(is_rare || format!("{call}.lua") == file, "{file}");
        }
        assert_eq!(call_of(cmd("EVALSHA").arg("0123")), Call::Other);
        assert_eq!(call_of(&Cmd::default()), Call::Other);
    }
}
