//! The name of an item, as it stands in keys.

use crate::error::{Error, ErrorKind, Result};

/// The longest name of an item, in bytes. It stands in every key of the item.
pub const ITEM_BYTES_MAX: usize = 256;

/// Checks a name and keeps it.
pub(crate) fn item_name(item: &str) -> Result<String> {
    let cause = if item.is_empty() {
        "it is empty"
    } else if item.len() > ITEM_BYTES_MAX {
        "it is longer than 256 bytes"
    } else if item.contains(['{', '}']) {
        // The name is the keys' hash tag: a brace inside would put them into different slots.
        "it holds a brace, which Redis reads as the mark of a slot"
    } else {
        return Ok(item.to_owned());
    };
    let shown: String = item.chars().take(64).collect();
    Err(Error::new(
        ErrorKind::InvalidItem,
        format!("cannot use `{shown}` as the name of an item: {cause}"),
    ))
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
