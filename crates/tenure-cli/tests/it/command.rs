//! Starting the command, and what it said.

use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

/// How the command ended.
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

/// The command with these arguments, in an environment that says nothing.
pub fn tenure(arguments: &[&str]) -> Command {
    heed_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(arguments);
    let ours = |name: &str| name.starts_with("TENURE_") || name.starts_with("PG");
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    for variable in ["REDIS_URL", "REDISCLI_AUTH", "NO_COLOR"] {
        command.env_remove(variable);
    }
    // No file of the user who runs the tests.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Tests that run in the background, or by `nohup`, ignore signals, and so would all
/// that they start. A handler ends that: it is not inherited.
pub fn heed_signals() {
    static HEEDED: OnceLock<()> = OnceLock::new();
    HEEDED.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let _inside = runtime.enter();
        // HUP, INT, QUIT, USR1, USR2, TERM, TSTP, TTIN, TTOU.
        for number in [1, 2, 3, 10, 12, 15, 20, 21, 22] {
            if mask >> (number - 1) & 1 == 1 {
                // It stays when the stream is gone.
                drop(signal(SignalKind::from_raw(number)).unwrap());
            }
        }
    });
}

/// The account that runs the tests, as the command should call it.
pub fn account() -> String {
    let uid = nix::unistd::Uid::current();
    let user = nix::unistd::User::from_uid(uid).unwrap();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// Runs it to its end.
pub fn run(command: &mut Command) -> Ended {
    let begun = Instant::now();
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    Ended {
        code: status.code().expect("it was not killed"),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
        took: begun.elapsed(),
    }
}

impl Ended {
    /// Fails with everything that was said if `text` is not on stdout.
    #[track_caller]
    pub fn says(&self, text: &str) {
        assert!(self.stdout.contains(text), "no `{text}` in\n{self}");
    }

    #[track_caller]
    pub fn complains(&self, text: &str) {
        assert!(self.stderr.contains(text), "no `{text}` in\n{self}");
    }

    #[track_caller]
    pub fn ended_with(&self, code: i32) {
        assert_eq!(self.code, code, "{self}");
    }

    /// Fails if `secret` was printed anywhere.
    #[track_caller]
    pub fn keeps(&self, secret: &str) {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert!(!all.contains(secret), "`{secret}` in\n{self}");
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            code,
            stdout,
            stderr,
            took,
        } = self;
        write!(
            f,
            "exit code {code} after {took:?}\n-- stdout\n{stdout}\n-- stderr\n{stderr}"
        )
    }
}
