//! How much of a list is wanted.

use serde::Deserialize;
use utoipa::IntoParams;

const LISTED: usize = 100;
const LISTED_MAX: usize = 1_000;

/// How many to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Listing {
    /// At most so many: 100 if nothing is said, and never more than 1000.
    limit: Option<usize>,
}

impl Listing {
    pub(crate) fn count(&self) -> usize {
        self.limit.unwrap_or(LISTED).min(LISTED_MAX)
    }
}
