//! Reads and writes client records in Redis.

use std::sync::Arc;

use super::command::{Cmd, Pipeline, cmd};
use super::connection::SendOptions;
use super::keys::Key;
use super::node::Node;
use super::operation::pairs;
use super::redis_store::RedisStore;
use super::script;
use super::script::Script;
use super::script_call::ScriptCall;
use super::value::Value;
use crate::lease::ClientId;
use crate::moment::Moment;
use crate::store::{Failure, Record, RecordChange, RecordWritten};

/// Clients whose records are on one node.
type ClientsOnNode = (Arc<Node>, Vec<ClientId>);

impl RedisStore {
    pub(super) async fn try_write_record(
        &self,
        client: ClientId,
        change: &RecordChange,
        limit: Moment,
    ) -> Result<RecordWritten, Failure> {
        let limit = self.command_limit(limit);
        let key = self.keys.client(client);
        let ttl_ms = change.ttl.as_millis().to_string();
        if change.ttl.is_zero() {
            let command = cmd("DEL").arg(key.as_str()).clone();
            self.run_at_key(&key, &command, limit).await?;
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
            let reply = self
                .script_at_key(&key, &script::RECORD, arguments, limit)
                .await?;
            if reply.as_int() != Some(1) {
                return Ok(RecordWritten::Missing);
            }
        }
        let arguments = [client.to_string(), ttl_ms];
        self.script_at_key(
            &self.keys.clients(),
            &script::CLIENTS,
            arguments.into(),
            limit,
        )
        .await?;
        Ok(RecordWritten::Yes)
    }

    pub(super) async fn try_records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> Result<Vec<Record>, Failure> {
        let limit = self.command_limit(limit);
        let clients = if let Some(client) = only {
            vec![client]
        } else {
            let arguments = [String::new(), "0".to_owned()];
            let reply = self
                .script_at_key(
                    &self.keys.clients(),
                    &script::CLIENTS,
                    arguments.into(),
                    limit,
                )
                .await?;
            let ids = reply.as_array().unwrap_or_default().iter();
            ids.filter_map(|id| ClientId::parse(id.as_str()?)).collect()
        };
        let mut records = Vec::with_capacity(clients.len());
        for (node, clients) in self.group_clients(clients)? {
            records.extend(self.records_at(&node, clients, limit).await?);
        }
        records.retain(|(_, record)| !record.is_empty());
        Ok(records)
    }

    /// Groups clients by the node that has their records.
    fn group_clients(&self, clients: Vec<ClientId>) -> Result<Vec<ClientsOnNode>, Failure> {
        let mut groups: Vec<ClientsOnNode> = Vec::new();
        for client in clients {
            let node = self.routes.route(self.keys.client(client).as_str())?.node;
            let known = groups
                .iter_mut()
                .find(|(known, _)| Arc::ptr_eq(known, &node));
            match known {
                Some((_, clients)) => clients.push(client),
                None => groups.push((node, vec![client])),
            }
        }
        Ok(groups)
    }

    async fn records_at(
        &self,
        node: &Arc<Node>,
        clients: Vec<ClientId>,
        limit: Moment,
    ) -> Result<Vec<Record>, Failure> {
        let connection = node.commands.connection(limit).await;
        let connection = connection.map_err(|failure| self.routes.note_failure(node, failure))?;
        let mut pipeline = Pipeline::new();
        for client in &clients {
            pipeline
                .cmd("HGETALL")
                .arg(self.keys.client(*client).as_str());
        }
        let replies = connection
            .run_all(&pipeline, SendOptions::until(limit))
            .await;
        let replies = replies.map_err(|failure| self.routes.note_failure(node, failure))?;
        let mut records = Vec::with_capacity(clients.len());
        for (client, mut reply) in clients.into_iter().zip(replies) {
            if let Value::Error(error) = &reply {
                // It may have moved: read it on its own.
                self.routes.note_error_reply(node, error);
                let key = self.keys.client(client);
                let command = cmd("HGETALL").arg(key.as_str()).clone();
                reply = self.run_at_key(&key, &command, limit).await?;
            }
            records.push((client, pairs(&reply)));
        }
        Ok(records)
    }

    /// Runs a command on the node that has the key.
    pub(super) async fn run_at_key(
        &self,
        key: &Key,
        command: &Cmd,
        limit: Moment,
    ) -> Result<Value, Failure> {
        let mut route = self.routes.route(key.as_str())?;
        loop {
            let answer = route.run(command, limit).await;
            let Err(failure) = answer else { return answer };
            let next = self.routes.next_route(key.as_str(), route, failure, limit);
            route = next.await?;
        }
    }

    /// Runs a script on the node that has the key.
    async fn script_at_key(
        &self,
        key: &Key,
        script: &Script,
        arguments: Vec<String>,
        limit: Moment,
    ) -> Result<Value, Failure> {
        let call = ScriptCall::new(script).key(key.clone()).args(arguments);
        let mut route = self.routes.route(key.as_str())?;
        loop {
            let answer = route.script(&call, limit).await;
            let Err(failure) = answer else { return answer };
            let next = self.routes.next_route(key.as_str(), route, failure, limit);
            route = next.await?;
        }
    }
}
