//! The size of a list.

use serde::Deserialize;
use utoipa::IntoParams;

const LISTED: usize = 100;
const LISTED_MAX: usize = 1_000;

/// How many to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Listing {
    /// Maximum number of results: default 100, at most 1000.
    limit: Option<usize>,
}

impl Listing {
    pub(crate) fn count(&self) -> usize {
        self.limit.unwrap_or(LISTED).min(LISTED_MAX)
    }
}
