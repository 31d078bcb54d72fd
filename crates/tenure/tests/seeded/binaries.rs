//! Runs test binaries, and reads what they say.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::table::{Catcher, Settings};

/// Where the library looks for the bug to plant.
const PLANTED: &str = "TENURE_SEEDED_BUG";
/// Ten times what the slowest catcher takes. Who needs longer would also need it in CI.
const LIMIT: Duration = Duration::from_secs(120);
/// What cargo tells a test of its package. Build scripts look at it, and would run again.
const OF_PACKAGE: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_"];

/// The tests that catch, built with the feature.
pub struct Binaries {
    unit: PathBuf,
    it: PathBuf,
    faults: PathBuf,
    /// The paths of all tests in `it`.
    in_it: Vec<String>,
}

/// What became of a planted bug, and how that showed.
pub enum Verdict {
    Caught(String),
    Survived(String),
    /// Neither: it ended in another way.
    Broken(String),
}

/// What a binary printed, and whether it was content; `None` if it did not end in time.
struct Said {
    text: String,
    success: Option<bool>,
}

impl Binaries {
    pub fn build() -> Self {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["test", "--package", "tenure", "--features", "seeded-bugs"]);
        cargo.args(["--lib", "--test", "it", "--test", "faults"]);
        cargo.args(["--no-run", "--message-format=json"]);
        let of_package = |name: &OsString| {
            let name = name.to_string_lossy();
            OF_PACKAGE.iter().any(|prefix| name.starts_with(prefix))
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(name)) {
            cargo.env_remove(name);
        }
        let output = cargo.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "the tests do not compile");
        let messages = String::from_utf8(output.stdout).unwrap();
        let it = executable(&messages, "it");
        let list = said(Command::new(&it).arg("--list")).text;
        let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
        Self {
            in_it: tests.map(str::to_owned).collect(),
            unit: executable(&messages, "tenure"),
            faults: executable(&messages, "faults"),
            it,
        }
    }

    /// Runs these tests without any bug: all of them must exist and pass.
    pub fn pass(&self, tests: &BTreeSet<&str>) -> Result<(), String> {
        let (of_it, of_unit): (Vec<&str>, Vec<&str>) =
            tests.iter().partition(|test| self.is_in_it(test));
        let parts = [(&self.it, of_it), (&self.unit, of_unit)];
        // `--exact` without a name would run them all.
        for (binary, tests) in parts.iter().filter(|(_, tests)| !tests.is_empty()) {
            let said = said(Command::new(binary).arg("--exact").args(tests));
            let passed = |test: &&str| said.text.contains(&format!("test {test} ... ok"));
            if let Some(test) = tests.iter().find(|test| !passed(test)) {
                return Err(format!("`{test}` does not pass\n{}", said.text));
            }
        }
        Ok(())
    }

    /// A fault run without any bug: it must find nothing.
    pub fn pass_faults(&self, settings: &Settings) -> Result<(), String> {
        let said = said(Command::new(&self.faults).envs(settings.iter().cloned()));
        let green = said.success == Some(true);
        green.then_some(()).ok_or(said.text)
    }

    /// Lets a catcher run, with this bug planted.
    pub fn run(&self, catcher: &Catcher, bug: &str) -> Verdict {
        match catcher {
            Catcher::Test(test) => {
                let binary = if self.is_in_it(test) {
                    &self.it
                } else {
                    &self.unit
                };
                let mut command = Command::new(binary);
                // A second attempt, because the machine stalled, could pass despite the bug.
                let command = command
                    .args(["--exact", test])
                    .env("TENURE_TEST_ATTEMPTS", "1");
                let said = said(command.env(PLANTED, bug));
                let failed = said.text.contains(&format!("test {test} ... FAILED"));
                said.verdict(failed, || reason(&said.text))
            }
            Catcher::Faults { settings, checkers } => {
                let mut command = Command::new(&self.faults);
                let command = command.envs(settings.iter().cloned());
                let said = said(command.env(PLANTED, bug));
                let found = |checker: &String| said.text.lines().find(|it| it.starts_with(checker));
                let found: Option<Vec<&str>> = checkers.iter().map(found).collect();
                said.verdict(found.is_some(), || {
                    found.clone().unwrap_or_default().join("; ")
                })
            }
        }
    }

    fn is_in_it(&self, test: &str) -> bool {
        self.in_it.iter().any(|known| known == test)
    }
}

impl Said {
    fn verdict(&self, caught: bool, why: impl Fn() -> String) -> Verdict {
        match self.success {
            Some(false) if caught => Verdict::Caught(why()),
            Some(true) => Verdict::Survived("all is green".into()),
            Some(false) => Verdict::Broken(format!("failed elsewhere\n{}", self.text)),
            None => Verdict::Broken(format!("not done within {LIMIT:?}\n{}", self.text)),
        }
    }
}

/// Where cargo put the test binary of this name, by its own account.
fn executable(messages: &str, name: &str) -> PathBuf {
    let named = format!("\"name\":\"{name}\"");
    let mut built = messages.lines().filter(|line| line.contains(&named));
    let path = |line: &str| {
        let (_, path) = line.split_once("\"executable\":\"")?;
        path.split('"').next().map(PathBuf::from)
    };
    built
        .find_map(path)
        .unwrap_or_else(|| panic!("cargo built no test `{name}`"))
}

/// Runs it to its end, or to the end of our patience. Into a file: a child of it that lives on
/// would keep a pipe open.
fn said(command: &mut Command) -> Said {
    let mut file = tempfile::tempfile().unwrap();
    let (out, err) = (file.try_clone().unwrap(), file.try_clone().unwrap());
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let command = command.current_dir(dir).env("RUST_BACKTRACE", "0");
    let mut child = command.stdout(out).stderr(err).spawn().unwrap();
    let begun = Instant::now();
    let success = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status.success());
        }
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Said {
        text: read(&mut file),
        success,
    }
}

fn read(file: &mut File) -> String {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the test said when it failed: the place of its panic, and the lines behind it.
fn reason(text: &str) -> String {
    let mut lines = text.lines();
    let place = lines.find(|line| line.contains("panicked at"));
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with("note: ");
    let said: Vec<&str> = lines.take(3).take_while(is_said).map(str::trim).collect();
    let said = said.join(" ");
    let place = place.and_then(|line| line.split("panicked at ").nth(1));
    let place = place.and_then(|place| place.rsplit('/').next());
    let said: String = said.chars().take(120).collect();
    format!("{} {said}", place.unwrap_or_default())
}
