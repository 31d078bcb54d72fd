//! Who uses a SQLite file: every user holds a lock on the file `<file>.lock`, shared or exclusive.
//! The lock ends with the process, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// A use of this ledger.
#[derive(Debug)]
pub(super) struct Presence {
    file: File,
    path: PathBuf,
}

impl Presence {
    /// Uses the ledger together with others. Refused if another user has it exclusively.
    pub(super) fn shared(ledger: &Path) -> Result<Self> {
        let mut path = ledger.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let opened = private_file(ledger).open(&path);
        let file = opened.map_err(|error| {
            let message = format!("cannot open the ledger's lock file `{}`", path.display());
            Error::new(ErrorKind::Ledger, message).with_source(error)
        })?;
        let presence = Self { file, path };
        match presence.file.try_lock_shared() {
            Ok(()) => Ok(presence),
            Err(TryLockError::WouldBlock) => Err(presence.refused(
                "another process, or another part of this one, uses it exclusively, because \
                     its gate is in memory: use that one, or a gate on Redis",
            )),
            Err(TryLockError::Error(error)) => Err(presence.failed(error)),
        }
    }

    /// Makes the use exclusive.
    pub(super) fn alone(&self) -> Result<()> {
        // Converting a held lock is not defined on all platforms.
        let taken = self.file.unlock().map_err(TryLockError::Error);
        match taken.and_then(|()| self.file.try_lock()) {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                let refused = self.refused(
                    "another process uses it, but a gate in memory must be the only one: stop \
                     the other process, or use a gate on Redis",
                );
                // If another user got it exclusively in between, it keeps it; waiting for it would
                // never end.
                let _ = self.file.try_lock_shared();
                Err(refused)
            }
            Err(TryLockError::Error(error)) => Err(self.failed(error)),
        }
    }

    fn refused(&self, cause: &str) -> Error {
        let message = format!(
            "cannot use the ledger with the lock file `{}`: {cause}",
            self.path.display()
        );
        Error::new(ErrorKind::LedgerInUse, message)
    }

    fn failed(&self, error: std::io::Error) -> Error {
        let message = format!(
            "cannot lock `{}`: does its file system support locks?",
            self.path.display()
        );
        Error::new(ErrorKind::Ledger, message).with_source(error)
    }
}

/// How to open or create the file of a ledger, or one beside it: it holds who bought what, so only the
/// owner may read a new one. A file beside a ledger that exists is as accessible as that ledger.
pub(super) fn private_file(ledger: &Path) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
        let known = std::fs::metadata(ledger).map(|found| found.mode() & 0o666);
        options.mode(known.unwrap_or(0o600));
    }
    options
}
