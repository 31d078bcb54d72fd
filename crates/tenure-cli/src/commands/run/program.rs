//! The command to run: looked up before the lock is acquired, so that a typo fails at once.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::exit::{Exit, Failed};

/// Where a shell looks if there is no PATH.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that can be started, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// The name it was called by: argument zero.
    pub called: OsString,
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Looks for a program as a shell does.
    pub fn find(called: &OsStr, arguments: &[OsString]) -> Result<Self, Failed> {
        let path = if called.as_encoded_bytes().contains(&b'/') {
            check(Path::new(called))?;
            PathBuf::from(called)
        } else {
            find_in_path(called)?
        };
        Ok(Self {
            path,
            called: called.to_owned(),
            arguments: arguments.to_vec(),
        })
    }

    /// `sh -c line`.
    pub fn of_shell(line: &OsStr) -> Result<Self, Failed> {
        Self::find(OsStr::new("sh"), &[OsString::from("-c"), line.to_owned()])
    }

    /// What may be shown of it: its name, never its arguments, which may contain secrets.
    pub fn shown(&self) -> String {
        let name = self.path.file_name().unwrap_or(&self.called);
        name.to_string_lossy().into_owned()
    }
}

fn find_in_path(called: &OsStr) -> Result<PathBuf, Failed> {
    let path = env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    let mut refused = None;
    for directory in env::split_paths(&path) {
        let candidate = directory.join(called);
        if !candidate.is_file() {
            continue;
        }
        match check(&candidate) {
            // An absolute path works from any directory.
            Ok(()) => return Ok(std::path::absolute(&candidate).unwrap_or(candidate)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let message = format!("cannot find the command `{}` in PATH", called.display());
        Failed::new(Exit::NotFound, message)
    }))
}

fn check(path: &Path) -> Result<(), Failed> {
    let shown = path.display();
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(Failed::new(
            Exit::NotRunnable,
            format!("cannot run `{shown}`: {error}"),
        )),
        Err(error) => Err(Failed::new(
            Exit::NotFound,
            format!("cannot find the command `{shown}`: {error}"),
        )),
        Ok(found) if found.is_dir() => Err(Failed::new(
            Exit::NotRunnable,
            format!("cannot run `{shown}`: it is a directory"),
        )),
        Ok(_) => access(path, Access::EXEC_OK).map_err(|error| {
            let message = format!("cannot run `{shown}`: {error}; is it executable?");
            Failed::new(Exit::NotRunnable, message)
        }),
    }
}
