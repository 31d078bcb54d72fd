//! Exit codes.

use std::process::ExitCode;

use tenure::ErrorKind;
use tenure_demo::ways::CannotSell;

/// The exit code: from `sysexits.h` where one fits, and those of `timeout` and the shell for a
/// command that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// The check failed.
    Broken,
    /// The command line is wrong.
    Usage,
    /// The server is unreachable or unavailable.
    Unavailable,
    /// Internal error.
    Internal,
    /// Another holder has the lock.
    NotAcquired,
    /// The server refused access.
    Denied,
    /// A URL or the configuration file is wrong.
    Config,
    /// The lock was lost while it was needed.
    Lost,
    /// The command exceeded its time limit.
    TimedOut,
    /// The command was found and cannot be started.
    NotRunnable,
    /// The command was not found.
    NotFound,
    /// Ended by a signal, in the shell's convention.
    Signal(u8),
    /// The exit code of the command that was run, or the one that the caller asked for.
    Code(u8),
}

impl Exit {
    /// Ended by Ctrl-C.
    pub const INTERRUPTED: Self = Self::Signal(2);

    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Broken => 1,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::NotAcquired => 75,
            Self::Denied => 77,
            Self::Config => 78,
            Self::Lost => 79,
            Self::TimedOut => 124,
            Self::NotRunnable => 126,
            Self::NotFound => 127,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
            Self::Code(code) => code,
        }
    }

    /// The exit code for an error: decided by the first of its causes that has one.
    pub fn of(error: &anyhow::Error) -> Self {
        let said = error.chain().find_map(|cause| {
            let failed = cause.downcast_ref::<Failed>().map(|failed| failed.exit);
            let ours = || cause.downcast_ref::<tenure::Error>().map(of_kind);
            let of_sale = || cause.downcast_ref().and_then(of_sale);
            let of_demo = || cause.downcast_ref::<CannotSell>().map(|_| Self::Broken);
            failed.or_else(ours).or_else(of_sale).or_else(of_demo)
        });
        said.unwrap_or(Self::Internal)
    }
}

/// An error of the command itself, with its exit code.
#[derive(Debug)]
pub struct Failed {
    exit: Exit,
    message: String,
}

impl Failed {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { exit, message }
    }

    /// The command line is wrong in a way that the parser cannot detect.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The configuration file or a URL is wrong.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Exit::Config, message)
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failed {}

fn of_kind(error: &tenure::Error) -> Exit {
    match error.kind() {
        ErrorKind::InvalidName
        | ErrorKind::InvalidSetting
        | ErrorKind::NotALock
        | ErrorKind::Mismatch => Exit::Usage,
        ErrorKind::InvalidUrl => Exit::Config,
        ErrorKind::Unavailable
        | ErrorKind::ReadOnly
        | ErrorKind::OutOfMemory
        | ErrorKind::NotReplicated
        | ErrorKind::Protocol
        | ErrorKind::Unsupported => Exit::Unavailable,
        ErrorKind::Denied => Exit::Denied,
        ErrorKind::Busy => Exit::NotAcquired,
        ErrorKind::Lost => Exit::Lost,
        _ => Exit::Internal,
    }
}

/// `None` if its source decides.
fn of_sale(error: &tenure_sale::Error) -> Option<Exit> {
    use tenure_sale::ErrorKind as Kind;
    Some(match error.kind() {
        Kind::Store => return None,
        Kind::InvalidItem
        | Kind::InvalidBuyer
        | Kind::InvalidRequest
        | Kind::InvalidOrder
        | Kind::InvalidSetting
        | Kind::InvalidUnits => Exit::Usage,
        Kind::InvalidUrl => Exit::Config,
        Kind::NoItem
        | Kind::NoOrder
        | Kind::ItemExists
        | Kind::Conflict
        | Kind::NotLoaded
        | Kind::AlreadyLoaded => Exit::Broken,
        Kind::Stale | Kind::Ledger | Kind::LedgerInUse => Exit::Unavailable,
        Kind::LedgerDenied => Exit::Denied,
        _ => Exit::Internal,
    })
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
