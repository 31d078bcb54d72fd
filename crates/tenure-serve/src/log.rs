//! Where the service reports what operators should know.

use std::fmt::{self, Display};
use std::sync::Arc;

use tenure_view::output;
use tenure_view::printable::printable;

/// Where the service reports what operators should know: the store is unavailable or back, an
/// administrator ended a lease. One line each, on stderr unless a function is given. Cheap to
/// clone.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Calls `write` with each line.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    pub(crate) fn line(&self, line: impl Display) {
        // It may quote what others wrote.
        (self.0)(&printable(&line.to_string()));
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new(|line| output::complain(line))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}
