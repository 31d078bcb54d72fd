//! A script with its keys and arguments.

use super::arguments::Arguments;
use super::command::{Cmd, Pipeline};
use super::keys::Key;
use super::script::Script;

/// A script with its keys and arguments.
pub(crate) struct ScriptCall<'a, T = Key> {
    script: &'a Script,
    keys: Vec<T>,
    arguments: Arguments,
}

impl<'a> ScriptCall<'a> {
    pub(super) fn new(script: &'a Script) -> Self {
        Self::with(script, Vec::new(), Arguments::new())
    }

    pub(super) fn key(mut self, key: Key) -> Self {
        self.keys.push(key);
        self
    }

    pub(super) fn keys(mut self, keys: impl IntoIterator<Item = Key>) -> Self {
        self.keys.extend(keys);
        self
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and texts are passed alike"
    )]
    pub(super) fn arg(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string());
        self
    }

    pub(super) fn args(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        for argument in arguments {
            self.arguments.push(argument);
        }
        self
    }
}

impl<'a, T: AsRef<[u8]>> ScriptCall<'a, T> {
    pub(super) fn with(script: &'a Script, keys: Vec<T>, arguments: Arguments) -> Self {
        Self {
            script,
            keys,
            arguments,
        }
    }

    /// The keys and the arguments.
    pub(super) fn into_parts(self) -> (Vec<T>, Arguments) {
        (self.keys, self.arguments)
    }

    /// The command for a server that knows the script.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", self.script.hash())
    }

    /// The command for a server that does not.
    pub(super) fn by_text(&self) -> Cmd {
        self.command("EVAL", self.script.code())
    }

    fn command(&self, eval: &str, script: &str) -> Cmd {
        let keys: usize = self.keys.iter().map(|key| key.as_ref().len() + 16).sum();
        let bytes = eval.len() + script.len() + keys + self.arguments.bytes() + 64;
        let mut command = Cmd::with_capacity(eval, bytes);
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_ref());
        }
        command.append(&self.arguments);
        command
    }
}

/// Several calls of one script, sent together. With `text`, the first one carries the script, so that
/// the server knows it for the others.
pub(super) fn batch<'a>(calls: impl IntoIterator<Item = ScriptCall<'a>>, text: bool) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for (index, call) in calls.into_iter().enumerate() {
        let command = if text && index == 0 {
            call.by_text()
        } else {
            call.by_hash()
        };
        pipeline.add_command(command);
    }
    pipeline
}
