//! Answers that many requests have in common, for the document `/openapi.json`: a handler names them among
//! its own.

use std::collections::BTreeMap;

use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::problem::Problem;

/// One line for each: its status, and when it is given. The body is a problem.
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
    NotFound = 404, "There is none";
    NoItem = 404, "There is no such item";
    SoldOut = 409, "`sold_out`, with `left` and `port`";
    Invalid = 422, "A value is not allowed";
    TooManyStreams = 429, "Too many streams are open";
    NoLedger = 501, "There is no ledger";
    StoreAway = 503, "The store does not serve now";
    LedgerAway = 503, "The ledger is away";
    SaleAway = 503, "Gate or ledger is away";
}

fn problem(status: u16, when: &str) -> BTreeMap<String, RefOr<Response>> {
    let schema = Ref::from_schema_name(Problem::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(when)
        .content("application/json", content);
    [(status.to_string(), response.into())].into()
}
