//! How the command ends.

use std::process::ExitCode;

use tenure::ErrorKind;

/// How the command ends, as a number that scripts can branch on: those of `sysexits.h` where they
/// say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked for.
    Done = 0,
    /// It did, and found that something does not hold.
    Broken = 1,
    /// The command line or a setting is wrong.
    Usage = 64,
    /// The server cannot be reached, or cannot serve.
    Unavailable = 69,
    /// Something that should not happen.
    Internal = 70,
    /// The server refused us.
    Denied = 77,
    /// Ended by Ctrl-C, as a shell would say it.
    Interrupted = 130,
}

impl Exit {
    /// The end that an error means: decided by the first error of ours among its causes.
    pub fn of(error: &anyhow::Error) -> Self {
        let ours = error
            .chain()
            .find_map(|cause| cause.downcast_ref::<tenure::Error>());
        match ours.map(tenure::Error::kind) {
            Some(ErrorKind::InvalidUrl | ErrorKind::InvalidName | ErrorKind::InvalidSetting) => {
                Self::Usage
            }
            Some(
                ErrorKind::Unavailable
                | ErrorKind::ReadOnly
                | ErrorKind::OutOfMemory
                | ErrorKind::Unsupported,
            ) => Self::Unavailable,
            Some(ErrorKind::Denied) => Self::Denied,
            _ => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
