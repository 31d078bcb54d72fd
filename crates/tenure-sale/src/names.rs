//! Names that people give: of items, of buyers, of requests.

use crate::error::{Error, ErrorKind, Result};

/// The longest name of an item, in bytes. It stands in every key of the item.
pub const ITEM_BYTES_MAX: usize = 256;
/// The longest name of a buyer, in bytes.
pub const BUYER_BYTES_MAX: usize = 128;
/// The longest id of a request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 128;

/// Checks the name of an item and keeps it.
pub(crate) fn item_name(item: &str) -> Result<String> {
    if item.contains(['{', '}']) {
        // The name is the keys' hash tag: a brace inside would put them into different slots.
        let cause = "it holds a brace, which Redis reads as the mark of a slot";
        return Err(refused(
            ErrorKind::InvalidItem,
            "the name of an item",
            item,
            cause,
        ));
    }
    let wrong = |cause: &str| refused(ErrorKind::InvalidItem, "the name of an item", item, cause);
    checked(item, ITEM_BYTES_MAX, wrong)
}

/// Checks the name of a buyer and keeps it.
pub(crate) fn buyer_name(buyer: &str) -> Result<String> {
    let wrong = |cause: &str| refused(ErrorKind::InvalidBuyer, "the name of a buyer", buyer, cause);
    checked(buyer, BUYER_BYTES_MAX, wrong)
}

/// Checks the id of a request and keeps it.
pub(crate) fn request_id(request: &str) -> Result<String> {
    let wrong = |cause: &str| {
        refused(
            ErrorKind::InvalidRequest,
            "the id of a request",
            request,
            cause,
        )
    };
    checked(request, REQUEST_BYTES_MAX, wrong)
}

fn checked(name: &str, bytes_max: usize, wrong: impl Fn(&str) -> Error) -> Result<String> {
    if name.is_empty() {
        Err(wrong("it is empty"))
    } else if name.len() > bytes_max {
        Err(wrong(&format!("it is longer than {bytes_max} bytes")))
    } else if name.contains(char::is_control) {
        // A line feed parts the buyer from the request where answers are remembered.
        Err(wrong("it holds a control character"))
    } else {
        Ok(name.to_owned())
    }
}

fn refused(kind: ErrorKind, what: &str, name: &str, cause: &str) -> Error {
    let shown: String = name.chars().take(64).collect();
    Error::new(
        kind,
        format!("cannot use `{}` as {what}: {cause}", shown.escape_debug()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_the_keys_are_refused() {
        assert!(item_name("sku-7").is_ok());
        assert!(item_name(&"x".repeat(ITEM_BYTES_MAX)).is_ok());
        for wrong in ["", "a{b", "a}b", &"x".repeat(ITEM_BYTES_MAX + 1)] {
            let error = item_name(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidItem, "{wrong}");
        }
    }
}
