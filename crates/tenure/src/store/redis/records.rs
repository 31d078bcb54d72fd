//! What clients say of themselves.

use ::redis::Pipeline;

use super::{RedisStore, reply, script};
use crate::lease::ClientId;
use crate::moment::Moment;
use crate::store::{Failure, Record, RecordChange, RecordWritten};

/// The index of client records.
const CLIENTS_KEY: &str = "tenure:clients";

impl RedisStore {
    pub(super) async fn try_write_record(
        &self,
        client: ClientId,
        change: &RecordChange,
        limit: Moment,
    ) -> Result<RecordWritten, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.routes.any()?.commands.connection(limit).await?;
        let key = format!("tenure:client:{client}");
        let ttl_ms = change.ttl.as_millis().to_string();
        if change.ttl.is_zero() {
            connection
                .run(::redis::cmd("DEL").arg(&key), limit, 0)
                .await?;
        } else {
            let mode = if change.all { "all" } else { "changes" };
            let mut arguments = vec![
                ttl_ms.clone(),
                mode.to_owned(),
                change.set.len().to_string(),
            ];
            for (field, value) in &change.set {
                arguments.extend([field.clone(), value.clone()]);
            }
            arguments.extend(change.removed.iter().cloned());
            let reply = connection
                .script(&script::RECORD, &[&key], &arguments, limit, 0)
                .await?;
            if reply.as_int() != Some(1) {
                return Ok(RecordWritten::Missing);
            }
        }
        let arguments = [client.to_string(), ttl_ms];
        connection
            .script(&script::CLIENTS, &[CLIENTS_KEY], &arguments, limit, 0)
            .await?;
        Ok(RecordWritten::Yes)
    }

    pub(super) async fn try_records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> Result<Vec<Record>, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.routes.any()?.commands.connection(limit).await?;
        let clients = if let Some(client) = only {
            vec![client]
        } else {
            let reply = connection
                .script(&script::CLIENTS, &[CLIENTS_KEY], &["", "0"], limit, 0)
                .await?;
            let ids = reply.as_array().unwrap_or_default().iter();
            ids.filter_map(|id| ClientId::parse(id.as_str()?)).collect()
        };
        if clients.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        for client in &clients {
            pipeline
                .cmd("HGETALL")
                .arg(format!("tenure:client:{client}"));
        }
        let replies = connection.run_all(&pipeline, limit).await?;
        let records = clients.into_iter().zip(replies.iter().map(reply::pairs));
        Ok(records.filter(|(_, record)| !record.is_empty()).collect())
    }
}
