//! Names of locks as people write them, for commands that acquire.

/// Refuses names of locks that Tenure's own sales use. The library checks the rest.
pub fn parse(name: &str) -> Result<String, String> {
    if tenure_sale::is_reserved_lock(name) {
        return Err("names with the prefix `sale:{` are locks of sales: choose another".to_owned());
    }
    Ok(name.to_owned())
}
