//! What one sentinel reports about the primary, and which one to believe when they disagree.

use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::Failure;
use crate::store::redis::command::{Pipeline, cmd};
use crate::store::redis::connection::{Connection, SendOptions};
use crate::store::redis::value::Value;

/// What one sentinel reports about the primary.
#[derive(Debug)]
pub(super) enum View {
    Knows(PrimaryAddress),
    /// It monitors other primaries.
    Ignorant {
        knows: Vec<String>,
    },
    Silent(Failure),
}

/// The address of a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrimaryAddress {
    pub(super) host: String,
    pub(super) port: u16,
    /// How many failovers the sentinels have agreed on: a higher number is right.
    pub(super) epoch: u64,
}

impl View {
    pub(super) fn named(&self) -> Option<&PrimaryAddress> {
        match self {
            Self::Knows(named) => Some(named),
            Self::Ignorant { .. } | Self::Silent(_) => None,
        }
    }
}

/// Queries a sentinel.
pub(super) async fn query(connection: &Connection, master: &str, limit: Moment) -> View {
    match try_query(connection, master, limit).await {
        Ok(view) => view,
        Err(failure) => View::Silent(failure),
    }
}

async fn try_query(connection: &Connection, master: &str, limit: Moment) -> Result<View, Failure> {
    let mut pipeline = Pipeline::new();
    // During a failover this names the new primary sooner than `SENTINEL MASTER`, which tells the
    // epoch.
    let address = pipeline.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
    address.arg(master);
    pipeline.cmd("SENTINEL").arg("MASTER").arg(master);
    let replies = connection
        .run_all(&pipeline, SendOptions::until(limit))
        .await?;
    let [address, details] = &replies[..] else {
        return Err(query_error(connection, "its reply is incomplete"));
    };
    match address {
        Value::Array(parts) => {
            let named = read_address(parts, epoch_of(details));
            let named =
                named.ok_or_else(|| query_error(connection, "its reply has an invalid address"))?;
            Ok(View::Knows(named))
        }
        Value::Nil => Ok(View::Ignorant {
            knows: masters(connection, limit).await?,
        }),
        Value::Error(error) if error.contains("unknown command") => Err(query_error(
            connection,
            "it is a Redis server, not a Sentinel: is the port correct?",
        )),
        Value::Error(error) => Err(connection.failure_from_reply(error)),
        _ => Err(query_error(connection, "its reply is invalid")),
    }
}

fn read_address(parts: &[Value], epoch: u64) -> Option<PrimaryAddress> {
    let [host, port] = parts else { return None };
    Some(PrimaryAddress {
        host: host.as_str()?.to_owned(),
        port: u16::try_from(port.as_int()?).ok()?,
        epoch,
    })
}

/// Zero where the user may not read it: then all views count the same.
fn epoch_of(details: &Value) -> u64 {
    let fields = details.as_array().unwrap_or_default().chunks_exact(2);
    let mut epochs = fields.filter(|field| field[0].as_str() == Some("config-epoch"));
    let epoch = epochs.next().and_then(|field| field[1].as_int());
    epoch
        .and_then(|epoch| u64::try_from(epoch).ok())
        .unwrap_or(0)
}

/// The names of the primaries that the sentinel monitors.
async fn masters(connection: &Connection, limit: Moment) -> Result<Vec<String>, Failure> {
    let mut command = cmd("SENTINEL");
    let reply = connection
        .run(command.arg("MASTERS"), SendOptions::until(limit))
        .await?;
    let masters = reply.as_array().unwrap_or_default().iter();
    let name = |master: &Value| {
        let fields = master.as_array()?.chunks_exact(2);
        let mut names = fields.filter(|field| field[0].as_str() == Some("name"));
        names.next()?[1].lossy()
    };
    Ok(masters.filter_map(name).collect())
}

fn query_error(connection: &Connection, cause: &str) -> Failure {
    Failure::refused(Error::new(
        ErrorKind::Protocol,
        format!(
            "cannot ask `{}` for the primary: {cause}",
            connection.target()
        ),
    ))
}

/// Which view to believe: one with the highest epoch, the first of them in the order of the URL.
/// `present` is the current primary; an older view than that is believed only if all sentinels
/// share it, because a sentinel that was cut off does not know what it missed.
pub(super) fn choose_primary<'a>(
    views: &'a [Option<View>],
    present: Option<&PrimaryAddress>,
) -> Option<&'a PrimaryAddress> {
    let named: Vec<&PrimaryAddress> = views.iter().flatten().filter_map(View::named).collect();
    let newest = named.iter().map(|named| named.epoch).max()?;
    let mut newest_ones = named.iter().copied().filter(|named| named.epoch == newest);
    let Some(present) = present else {
        return newest_ones.next();
    };
    if newest < present.epoch && named.len() < views.len() {
        return None;
    }
    let first = newest_ones.clone().next();
    // If equal views disagree, moving gains nothing.
    newest_ones.find(|named| *named == present).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(port: u16, epoch: u64) -> PrimaryAddress {
        PrimaryAddress {
            host: "h".to_owned(),
            port,
            epoch,
        }
    }

    fn knows(port: u16, epoch: u64) -> View {
        View::Knows(named(port, epoch))
    }

    fn silent() -> View {
        let error = Error::new(ErrorKind::Unavailable, "silent");
        View::Silent(Failure::not_sent(error))
    }

    #[test]
    fn who_knows_of_the_most_failovers_is_believed() {
        let views = [knows(1, 3), knows(2, 4), silent()].map(Some);
        assert_eq!(choose_primary(&views, None), Some(&named(2, 4)));
        assert_eq!(
            choose_primary(&views, Some(&named(1, 3))),
            Some(&named(2, 4))
        );
    }

    #[test]
    fn the_first_of_equals_is_believed_and_then_kept() {
        let views = [None, Some(knows(1, 3)), Some(knows(2, 3))];
        assert_eq!(choose_primary(&views, None), Some(&named(1, 3)));
        assert_eq!(
            choose_primary(&views, Some(&named(2, 3))),
            Some(&named(2, 3))
        );
    }

    #[test]
    fn an_older_view_is_believed_only_if_it_is_everybodys() {
        let present = named(2, 4);
        let cut_off = [knows(1, 3), silent(), silent()].map(Some);
        assert_eq!(choose_primary(&cut_off, Some(&present)), None);
        // The sentinels were set up again.
        let anew = [knows(1, 0), knows(1, 0), knows(1, 0)].map(Some);
        assert_eq!(choose_primary(&anew, Some(&present)), Some(&named(1, 0)));
    }

    #[test]
    fn nobody_is_believed_who_knows_nothing() {
        let ignorant = View::Ignorant { knows: Vec::new() };
        let views = [Some(silent()), Some(ignorant), None];
        assert_eq!(choose_primary(&views, None), None);
    }
}
