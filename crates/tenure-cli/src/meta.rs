//! Metadata of a lease, on the command line.

/// Parses `KEY=VALUE`. Only the first `=` separates.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) =
        pair.ok_or_else(|| format!("invalid metadata `{text}`: expected KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_a_key_and_a_value() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("a").is_err());
        assert!(pair("=b").is_err());
    }
}
