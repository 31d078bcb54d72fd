//! The table in docs/testing.md: which bugs there are, and what catches each.

use std::path::Path;

/// One bug.
#[derive(Debug)]
pub struct Row {
    pub bug: String,
    /// Each of them must notice it.
    pub catchers: Vec<Catcher>,
}

/// What a fault run finds in its environment.
pub type Settings = Vec<(String, String)>;

/// What must notice a bug.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Catcher {
    /// A test of the library or of its integration tests, by its path.
    Test(String),
    /// A fault run with these settings, and which of its checkers.
    Faults {
        settings: Settings,
        checkers: Vec<String>,
    },
}

/// All rows below the heading, `| bug | what it does | caught by | seconds |`.
pub fn read() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/testing.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("\n## Seeded bugs\n").unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<Row> = rows.map(Row::parse).collect();
    assert!(!rows.is_empty(), "docs/testing.md lists no seeded bugs");
    rows
}

impl Row {
    fn parse(line: &str) -> Self {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, bug, _, caught_by, _, _] = cells[..] else {
            panic!("a row of another shape: {line}");
        };
        Self {
            bug: bug.trim_matches('`').to_owned(),
            catchers: caught_by.split("; ").map(Catcher::parse).collect(),
        }
    }
}

impl Catcher {
    /// `` `path::of::a_test` `` or `` `faults SEED=7 SECONDS=10`: C1, C6 ``.
    fn parse(cell: &str) -> Self {
        let (code, rest) = cell.trim_start_matches('`').split_once('`').unwrap();
        let Some(settings) = code.strip_prefix("faults ") else {
            return Self::Test(code.to_owned());
        };
        let setting = |word: &str| {
            let (name, value) = word.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let checkers = rest.trim_start_matches([':', ' ']).split(", ");
        Self::Faults {
            settings: settings.split(' ').map(setting).collect(),
            checkers: checkers.map(str::to_owned).collect(),
        }
    }

    pub fn test(&self) -> Option<&str> {
        match self {
            Self::Test(path) => Some(path),
            Self::Faults { .. } => None,
        }
    }

    pub fn settings(&self) -> Option<&Settings> {
        match self {
            Self::Test(_) => None,
            Self::Faults { settings, .. } => Some(settings),
        }
    }
}
