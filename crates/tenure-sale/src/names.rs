//! Names of items, buyers and requests.

use crate::error::{Error, ErrorKind, Result};

/// The longest item name, in bytes. It is part of every key of the item.
pub const ITEM_BYTES_MAX: usize = 256;
/// The longest buyer name, in bytes.
pub const BUYER_BYTES_MAX: usize = 128;
/// The longest request id, in bytes.
pub const REQUEST_BYTES_MAX: usize = 128;

/// The beginning of the names of the locks that a sale uses itself.
const LOCK_PREFIX: &str = "sale:{";

/// Whether a lock with this name belongs to sales. Whoever holds one of these stops a rebuild, so a
/// program whose users name locks must refuse such names.
///
/// ```
/// assert!(tenure_sale::is_reserved_lock("sale:{sku-7}:rebuild"));
/// assert!(!tenure_sale::is_reserved_lock("sale:sku-7"));
/// ```
pub fn is_reserved_lock(name: &str) -> bool {
    name.starts_with(LOCK_PREFIX)
}

/// The lock of an item for this purpose, in the slot of the item.
pub(crate) fn lock_name(item: &str, purpose: &str) -> String {
    format!("{LOCK_PREFIX}{item}}}:{purpose}")
}

/// Validates an item name.
pub(crate) fn item_name(item: &str) -> Result<String> {
    if item.contains(['{', '}']) {
        // The name is the hash tag of the keys: a brace inside would put them into different slots.
        let cause = "it contains a brace, which Redis uses for hash tags";
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

/// Validates a buyer name.
pub(crate) fn buyer_name(buyer: &str) -> Result<String> {
    let wrong = |cause: &str| refused(ErrorKind::InvalidBuyer, "the name of a buyer", buyer, cause);
    checked(buyer, BUYER_BYTES_MAX, wrong)
}

/// Validates a request id.
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
        // A line feed separates buyer and request in the keys of remembered answers.
        Err(wrong("it contains a control character"))
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
