//! The ids of the gate and of its ledger, in a key of its own.

use tenure::redis::Command;

use super::RedisGate;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Pair;

impl RedisGate {
    /// One in each database and under each prefix. No item has such a key: the name of an item is in
    /// braces.
    fn pair_key(&self) -> String {
        format!("{}tenure:sale:gate", self.redis.prefix())
    }

    pub(in crate::gate) async fn pair(&self) -> Result<Option<Pair>> {
        let key = self.pair_key();
        let reply = self.redis.run(Command::new("GET").arg(&key)).await;
        let reply = reply.map_err(|error| Error::store("cannot read whose gate this is", error))?;
        if reply.is_nil() {
            return Ok(None);
        }
        let ids = reply.as_str().and_then(|ids| ids.split_once(' '));
        let Some((ledger, gate)) = ids else {
            let message = format!(
                "cannot read whose gate this is: the key `{key}` has been overwritten; delete it"
            );
            return Err(Error::new(ErrorKind::Protocol, message));
        };
        Ok(Some(Pair {
            ledger: ledger.to_owned(),
            gate: gate.to_owned(),
        }))
    }

    /// Does nothing if there is one already.
    pub(in crate::gate) async fn set_pair(&self, pair: &Pair) -> Result<()> {
        let ids = format!("{} {}", pair.ledger, pair.gate);
        let command = Command::new("SET").arg(self.pair_key()).arg(ids).arg("NX");
        let reply = self.redis.run(command).await;
        reply.map_err(|error| Error::store("cannot write whose gate this is", error))?;
        Ok(())
    }
}
