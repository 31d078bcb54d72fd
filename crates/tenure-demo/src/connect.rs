//! Connecting a client that holders lists show under a name.

use tenure::{Locks, Redlock, Tenure};

/// A client of one store, or of several independent servers, with this name where holders are listed.
pub(crate) async fn connect_as(urls: &[String], name: &str) -> Result<Locks, tenure::Error> {
    if let [url] = urls {
        let tenure = Tenure::builder(url).name(name).connect().await?;
        return Ok(Locks::clone(&tenure));
    }
    let redlock = Redlock::builder(urls).name(name).connect().await?;
    Ok(Locks::clone(&redlock))
}
