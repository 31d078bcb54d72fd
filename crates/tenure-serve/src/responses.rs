//! Responses that many requests share, for `/openapi.json`: handlers list them together with their
//! own.

use std::collections::BTreeMap;

use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::problem::Problem;

/// One line each: status and description. The body is a problem.
macro_rules! responses {
    ($($name:ident = $status:literal, $when:literal;)*) => {
        $(pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                problem($status, $when)
            }
        })*
    };
}

responses! {
    NoAdmin = 403, "Administration is off";
    NotFound = 404, "Not found";
    NoItem = 404, "Item not found";
    SoldOut = 409, "`sold_out`, with `left` and `port`";
    Invalid = 422, "Invalid value";
    TooManyStreams = 429, "Too many open streams";
    NoLedger = 501, "No ledger is configured";
    StoreAway = 503, "Redis is unavailable";
    LedgerAway = 503, "The ledger is unavailable";
    SaleAway = 503, "Gate or ledger is unavailable";
}

fn problem(status: u16, when: &str) -> BTreeMap<String, RefOr<Response>> {
    let schema = Ref::from_schema_name(Problem::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(when)
        .content("application/json", content);
    [(status.to_string(), response.into())].into()
}
