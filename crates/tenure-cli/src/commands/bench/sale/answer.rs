//! The response of a service to an order.

use hyper::body::Bytes;
use serde::Deserialize;

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was accepted, now or by an earlier request.
    Accepted { order_id: String },
    /// It was refused, for this reason.
    Refused { code: String },
    /// Unknown: there was no response, or the service itself does not know.
    Unknown,
}

/// The fields of a response that are used.
#[derive(Debug, Default, Deserialize)]
struct Said {
    order_id: Option<String>,
    code: Option<String>,
}

/// Refusals with a status that leaves the result open, although the service did nothing.
const NOTHING_DONE: [&str; 4] = ["backlog", "rebuilding", "stopping", "no_sales"];

impl Answer {
    pub fn read(status: u16, body: &Bytes) -> Self {
        let said: Said = serde_json::from_slice(body).unwrap_or_default();
        let code = said.code.unwrap_or_else(|| format!("status {status}"));
        match (status, said.order_id) {
            (200..=299, Some(order_id)) => Self::Accepted { order_id },
            (500.., _) if !NOTHING_DONE.contains(&code.as_str()) => Self::Unknown,
            _ => Self::Refused { code },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &'static str, answer: &Answer) {
        let read = Answer::read(status, &Bytes::from_static(body.as_bytes()));
        assert_eq!(&read, answer, "{status} {body}");
    }

    #[test]
    fn answers_are_orders_refusals_or_unknown() {
        let refused = |code: &str| Answer::Refused {
            code: code.to_owned(),
        };
        let order_id = "sku-7.1.2".to_owned();
        check(
            202,
            r#"{"order_id": "sku-7.1.2", "left": 3}"#,
            &Answer::Accepted { order_id },
        );
        check(409, r#"{"code": "sold_out"}"#, &refused("sold_out"));
        check(503, r#"{"code": "backlog"}"#, &refused("backlog"));
        check(503, r#"{"code": "unavailable"}"#, &Answer::Unknown);
        check(502, "<html>", &Answer::Unknown);
        check(404, "", &refused("status 404"));
    }
}
