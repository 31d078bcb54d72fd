//! Client records, stored on every node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::RedlockShared;
use crate::lease::ClientId;
use crate::moment::Moment;
use crate::store::{Failure, Record, RecordChange, RecordWritten, Store};

/// Writes to all nodes; done when a majority has it.
pub(super) async fn write(
    shared: &Arc<RedlockShared>,
    client: ClientId,
    change: &RecordChange,
    limit: Moment,
) -> Result<RecordWritten, Failure> {
    let mut replies = shared.send_to_all(|store| {
        let change = change.clone();
        async move { store.write_record(client, &change, limit).await }
    });
    let (mut written, mut missing, mut failure) = (0, false, None);
    while written < shared.majority {
        match replies.next().await {
            Some((_, Ok(answer))) => {
                written += 1;
                missing |= answer == RecordWritten::Missing;
            }
            Some((_, Err(failed))) => failure = Some(failed),
            None => break,
        }
    }
    // Counted as pending, so that the record of a closing client is also deleted on the other
    // nodes, unless they hang.
    shared.spawn_pending(async move { while replies.next().await.is_some() {} });
    match failure {
        Some(failure) if written < shared.majority => Err(failure),
        _ if missing => Ok(RecordWritten::Missing),
        _ => Ok(RecordWritten::Yes),
    }
}

/// The records found on any of the nodes that reply.
pub(super) async fn read(
    shared: &Arc<RedlockShared>,
    only: Option<ClientId>,
    limit: Moment,
) -> Result<Vec<Record>, Failure> {
    let mut replies = shared.send_to_all(|store| async move { store.records(only, limit).await });
    let mut found: HashMap<ClientId, BTreeMap<String, String>> = HashMap::new();
    let (mut answered, mut failure) = (0, None);
    while answered < shared.majority {
        match replies.next().await {
            Some((_, Ok(records))) => {
                answered += 1;
                found.extend(records);
            }
            Some((_, Err(failed))) => failure = Some(failed),
            None => break,
        }
    }
    match failure {
        Some(failure) if answered < shared.majority => Err(failure),
        _ => Ok(found.into_iter().collect()),
    }
}
