//! The command: what `tenure` costs from a shell.
//!
//! The binary is the one that `TENURE_BIN` names, or what `cargo build --release` made.

mod listing;
mod starting;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use listing::measure as list;
pub use starting::measure as start;
pub use waiting::measure as wait;

/// The command with these arguments, in an environment that says nothing.
pub fn tenure(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    for variable in ["TENURE_URL", "REDIS_URL", "TENURE_CONFIG", "TENURE_TOKEN"] {
        command.env_remove(variable);
    }
    command
}

fn binary() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/tenure");
    let path = std::env::var_os("TENURE_BIN").map_or_else(built, PathBuf::from);
    assert!(
        path.is_file(),
        "no command at `{}`: build it with `cargo build --release -p tenure-cli`, or say where it \
         is by TENURE_BIN",
        path.display()
    );
    path
}

/// Runs it to its end and returns what it said; panics with its complaint if it failed.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("the command can be started");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
