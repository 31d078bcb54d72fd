//! Connects a client with a name that lists of holders show.

use tenure::{Locks, Redlock, Tenure};

/// Connects to one store or several independent servers. Lists of holders show `name`.
pub(crate) async fn connect_as(urls: &[String], name: &str) -> Result<Locks, tenure::Error> {
    if let [url] = urls {
        let tenure = Tenure::builder(url).name(name).connect().await?;
        return Ok(tenure.as_locks().clone());
    }
    let redlock = Redlock::builder(urls).name(name).connect().await?;
    Ok(redlock.as_locks().clone())
}
