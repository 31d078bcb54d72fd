//! The command line: `[--rounds N] [--only NAME[,NAME..]]`.

use crate::measures::{self, Measure};

/// Enough for a median that one disturbed round cannot move.
const ROUNDS_DEFAULT: usize = 3;

/// What to run.
#[derive(Debug)]
pub struct Options {
    pub rounds: usize,
    only: Vec<String>,
}

impl Options {
    /// Reads the arguments, or says how they should be.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            rounds: ROUNDS_DEFAULT,
            only: Vec::new(),
        };
        for pair in arguments.chunks(2) {
            match pair {
                [flag, value] if flag == "--rounds" => options.rounds = rounds(value)?,
                [flag, value] if flag == "--only" => options.only = names(value)?,
                _ => return Err(format!("unknown argument `{}`; {}", pair[0], usage())),
            }
        }
        Ok(options)
    }

    pub fn selects(&self, measure: &Measure) -> bool {
        let by_default = self.only.is_empty() && !measure.is_extra;
        by_default || self.only.iter().any(|name| name == measure.name)
    }
}

fn rounds(value: &str) -> Result<usize, String> {
    let rounds = value.parse().ok().filter(|rounds| *rounds > 0);
    rounds.ok_or_else(|| format!("`{value}` is no number of rounds; {}", usage()))
}

fn names(value: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
    let is_known = |name: &&String| measures::ALL.iter().any(|measure| measure.name == *name);
    match names.iter().find(|name| !is_known(name)) {
        None => Ok(names),
        Some(unknown) => Err(format!("no measure is called `{unknown}`; {}", usage())),
    }
}

fn usage() -> String {
    let names = |is_extra| {
        let measures = measures::ALL.iter();
        let measures = measures.filter(|measure| measure.is_extra == is_extra);
        measures
            .map(|measure| measure.name)
            .collect::<Vec<_>>()
            .join(" ")
    };
    format!(
        "usage: make bench [ROUNDS={ROUNDS_DEFAULT}] [ONLY=name,name..], names: {}; only if selected: {}",
        names(false),
        names(true)
    )
}
