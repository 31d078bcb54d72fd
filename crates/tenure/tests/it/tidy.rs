//! Architecture: who may know whom, and what must be where. The invariants of ARCHITECTURE.md that
//! a program can check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Our crates, each of which may depend only on those before it.
const CRATES: [&str; 6] = [
    "tenure",
    "tenure-sale",
    "tenure-view",
    "tenure-demo",
    "tenure-serve",
    "tenure-cli",
];
/// Crates for programs that lock, which know `tenure` and nothing else of ours.
const BESIDE: [&str; 2] = ["tenure-macros", "tenure-tower"];
/// Functions longer than this do not fit a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// The hazards of docs/testing.md that exist so far.
const HAZARDS: std::ops::RangeInclusive<u32> = 1..=54;

#[test]
fn only_the_redis_store_speaks_the_protocol() {
    for file in sources("crates/tenure/src") {
        if !file.path.contains("store/redis/") {
            file.lacks(&["redis::wire", "redis::command", "MULTI\""]);
        }
    }
}

#[test]
fn scripts_are_read_in_one_place() {
    for file in sources("crates/tenure/src") {
        if !file.path.ends_with("store/redis/script.rs") {
            file.lacks(&["include_str!(\"scripts", "concat!(\"scripts"]);
        }
    }
}

#[test]
fn the_machine_is_pure() {
    let machine = source("crates/tenure/src/store/memory/machine.rs");
    machine.lacks(&[
        "async ",
        ".await",
        "rand::",
        "Clock",
        "Instant",
        "SystemTime",
        "tokio",
    ]);
}

#[test]
fn the_foundation_knows_nobody_above_it() {
    for name in ["name", "lease", "moment", "belief"] {
        let file = source(&format!("crates/tenure/src/{name}.rs"));
        file.lacks(&[
            "crate::engine",
            "store::redis",
            "store::memory",
            "crate::core",
        ]);
    }
}

#[test]
fn the_engine_knows_stores_only_by_their_trait() {
    for file in sources("crates/tenure/src/engine") {
        file.lacks(&["store::redis", "store::memory"]);
    }
}

#[test]
fn the_library_neither_prints_nor_exits_nor_reads_the_environment() {
    for file in sources("crates/tenure/src") {
        // Which bug is planted, and how long to test: in builds that no user gets.
        let of_tests = ["src/seeded.rs", "store/conformance.rs"];
        if !of_tests.iter().any(|path| file.path.ends_with(path)) {
            file.lacks(&["process::exit", "process::abort", "env::var"]);
        }
    }
}

#[test]
fn the_wall_clock_is_read_in_one_place() {
    for file in sources("crates/tenure/src") {
        if !file.path.ends_with("src/moment.rs") {
            file.lacks(&["SystemTime::now", "Instant::now"]);
        }
    }
}

#[test]
fn crates_know_only_what_they_may() {
    let depends_on = |krate: &str, dependency: &str| {
        let manifest = read(&format!("crates/{krate}/Cargo.toml"));
        let line = |line: &str| {
            line.starts_with(&format!("{dependency}."))
                || line.starts_with(&format!("{dependency} "))
        };
        manifest.lines().any(line)
    };
    for krate in CRATES.into_iter().chain(["tenure-testkit"]) {
        assert!(
            krate == "tenure-cli" || !depends_on(krate, "clap"),
            "only the command knows clap, not {krate}"
        );
        assert!(
            krate == "tenure-serve" || !depends_on(krate, "axum"),
            "only the service knows axum, not {krate}"
        );
        assert!(
            !depends_on(krate, "redis"),
            "{krate} must not use a client crate: `tenure::redis` is ours"
        );
    }
    for krate in BESIDE {
        for other in CRATES.into_iter().skip(1).chain(BESIDE) {
            assert!(!depends_on(krate, other), "{krate} must not know {other}");
            assert!(!depends_on(other, krate), "{other} must not know {krate}");
        }
        assert!(!depends_on("tenure", krate), "tenure must not know {krate}");
    }
    for (place, krate) in CRATES.into_iter().enumerate() {
        for dependency in &CRATES[place..] {
            assert!(
                !depends_on(krate, dependency),
                "{krate} must not know {dependency}"
            );
        }
        assert!(
            !depends_on("tenure-testkit", krate),
            "the kit must not know {krate}"
        );
    }
}

/// Otherwise a key could lack the client's prefix.
#[test]
fn only_one_file_names_the_keys_of_the_redis_store() {
    // The value of a key; examples of messages.
    let named = ["store/redis/keys.rs", "vote_request.rs", "told_offer.rs"];
    for file in sources("crates/tenure/src/store/redis") {
        if !named.iter().any(|known| file.path.ends_with(known)) {
            file.lacks(&["\"tenure:", "\"redisson_lock", "name.as_str().as_bytes()"]);
        }
    }
}

#[test]
fn functions_fit_a_screen() {
    let mut long = Vec::new();
    for krate in CRATES.into_iter().chain(BESIDE).chain(["tenure-testkit"]) {
        for file in sources(&format!("crates/{krate}/src")) {
            long.extend(file.long_functions());
        }
    }
    assert!(
        long.is_empty(),
        "longer than {FUNCTION_LINES_MAX} lines: {long:#?}"
    );
}

#[test]
fn the_changelog_names_the_version() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("CHANGELOG.md").contains(&format!("## {version}")));
}

#[test]
fn documents_have_one_title() {
    for path in files(&root(), "md") {
        let text = fs::read_to_string(&path).unwrap();
        let mut in_code = false;
        let mut titles = 0;
        for line in text.lines() {
            in_code ^= line.starts_with("```");
            titles += usize::from(!in_code && line.starts_with("# "));
        }
        // The tour is a part of the library's page, which has its title already.
        let expected = if path.ends_with("docs/tour.md") {
            titles
        } else {
            1
        };
        assert_eq!(titles, expected, "{}", path.display());
    }
}

/// docs/guarantees.md links each promise to the test that shows it, in whatever column that stands.
#[test]
fn every_test_that_the_guarantees_name_exists() {
    let mut code = String::new();
    for dir in [
        "crates/tenure/src",
        "crates/tenure/tests",
        "crates/tenure-sale/tests",
        "crates/tenure-serve/src",
        "crates/tenure-serve/tests",
        "crates/tenure-cli/tests",
    ] {
        code.extend(sources(dir).into_iter().map(|file| file.text));
    }
    let text = read("docs/guarantees.md");
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let mut named = 0;
    for name in rows.flat_map(|row| row.split('`').skip(1).step_by(2)) {
        if let Some(phase) = name.strip_prefix("faults ") {
            assert_is_phase(phase);
        } else if names_a_test(name) {
            let test = format!("fn {}", name.trim_end_matches('…'));
            assert!(code.contains(&test), "no test is called `{name}`");
            named += 1;
        }
    }
    assert!(
        named > 60,
        "only {named} tests are named: was a table changed?"
    );
}

/// Tests have sentences for names, and other words in code have not.
fn names_a_test(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '…';
    name.chars().all(is_word) && (name.ends_with('…') || name.matches('_').count() > 2)
}

/// `redlock forgetful`: a deployment, and a phase of the fault run on it.
fn assert_is_phase(words: &str) {
    let (deployment, phase) = words.split_once(' ').unwrap();
    let deployments = read("crates/tenure/tests/faults/deployment.rs");
    assert!(
        deployments.contains(&format!("=> \"{deployment}\"")),
        "no fault run has a deployment `{deployment}`"
    );
    let phases = read("crates/tenure/tests/faults/phases.rs");
    let static_of = format!("static OF_{}", deployment.to_uppercase());
    let (_, phases_of_it) = phases.split_once(&static_of).unwrap();
    let (phases_of_it, _) = phases_of_it.split_once("\n];").unwrap();
    // All of them begin with a phase that is called so unless it says otherwise.
    let named = format!("name: \"{phase}\"");
    assert!(
        phase == "kept" || phases_of_it.contains(&named),
        "the fault run on `{deployment}` has no phase `{phase}`"
    );
}

/// docs/testing.md lists the seeded bugs with what catches them, and `make seeded` reads it there.
#[test]
fn every_seeded_bug_is_listed() {
    let text = read("crates/tenure/src/seeded.rs");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let planted = lines.windows(2).filter_map(|pair| {
        let (_, name) = pair[1].strip_suffix("\",")?.split_once(" = \"")?;
        Some((name.to_owned(), pair[0].strip_prefix("/// ")?.to_owned()))
    });
    let text = read("docs/testing.md");
    let (_, section) = text.split_once("## Seeded bugs").unwrap();
    let rows = section.lines().take_while(|line| !line.starts_with("## "));
    let rows = rows.filter(|line| line.starts_with("| `"));
    let listed = rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let name = cells.next().unwrap().trim_matches('`');
        (name.to_owned(), cells.next().unwrap().to_owned())
    });
    let (planted, listed): (BTreeSet<_>, BTreeSet<_>) = (planted.collect(), listed.collect());
    assert_eq!(planted, listed);
    assert!(planted.len() >= 15, "only {}", planted.len());
}

/// Every hazard has a test that carries its number.
#[test]
fn every_hazard_has_a_test() {
    let mut tested = BTreeSet::new();
    for dir in ["crates/tenure/src", "crates/tenure/tests"] {
        for file in sources(dir) {
            tested.extend(file.lines().flat_map(hazards_in));
        }
    }
    let missing: Vec<u32> = HAZARDS.filter(|hazard| !tested.contains(hazard)).collect();
    assert!(
        missing.is_empty(),
        "no test carries the numbers {missing:?}"
    );
}

/// The hazards that the name of a test on this line carries: `fn h20_h21_…`.
fn hazards_in(line: &str) -> Vec<u32> {
    let Some((_, name)) = line.split_once("fn h") else {
        return Vec::new();
    };
    let name = format!("h{name}");
    let numbers = name
        .split('_')
        .map_while(|part| part.strip_prefix('h')?.parse().ok());
    numbers.collect()
}

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The code, without comments.
    fn lines(&self) -> impl Iterator<Item = &str> {
        self.text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
    }

    #[track_caller]
    fn lacks(&self, words: &[&str]) {
        for (line, word) in self
            .lines()
            .flat_map(|line| words.iter().map(move |word| (line, word)))
        {
            assert!(
                !line.contains(word),
                "{} must not contain `{word}`: {line}",
                self.path
            );
        }
    }

    /// Functions are recognized by their indentation, as rustfmt sets it. Those without a body end with
    /// a semicolon.
    fn long_functions(&self) -> Vec<String> {
        let lines: Vec<&str> = self.text.lines().collect();
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut long = Vec::new();
        for (begin, first) in lines.iter().enumerate() {
            if !first.contains("fn ") || first.trim_start().starts_with("//") {
                continue;
            }
            let is_last = |line: &&str| {
                indent(line) == indent(first) && (line.ends_with('}') || line.ends_with(';'))
            };
            let length = lines[begin..].iter().position(is_last);
            if length.is_some_and(|length| length > FUNCTION_LINES_MAX) {
                long.push(format!("{}:{}", self.path, begin + 1));
            }
        }
        long
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn source(path: &str) -> Source {
    Source {
        text: read(path),
        path: path.to_owned(),
    }
}

fn sources(dir: &str) -> Vec<Source> {
    let sources: Vec<Source> = files(&root().join(dir), "rs")
        .into_iter()
        .map(|path| Source {
            text: fs::read_to_string(&path).unwrap(),
            path: path.display().to_string(),
        })
        .collect();
    assert!(!sources.is_empty(), "`{dir}` has no sources: was it moved?");
    sources
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}
