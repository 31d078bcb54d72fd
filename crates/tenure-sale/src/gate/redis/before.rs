//! The answers of an epoch that has ended: they say whose its orders were.

use tenure::redis::{Command, Value};

use super::keys::{read_answer, read_answer_field};
use super::{RedisGate, failed, not_understood};
use crate::entry::Lost;
use crate::error::Result;
use crate::gate::load::Page;
use crate::order::OrderId;

/// Answers per step: other clients need the server in between.
const AT_ONCE: usize = 500;

impl RedisGate {
    /// Some of these answers, and where to continue.
    pub(in crate::gate) async fn before(
        &self,
        item: &str,
        from: Page,
    ) -> Result<(Vec<(OrderId, Lost)>, Option<Page>)> {
        let shelves = self.shelves(item).await?;
        let Some(shelf) = shelves.nth(from.shelf) else {
            return Ok((Vec::new(), None));
        };
        let command = Command::new("HSCAN").arg(&shelf.keys.before);
        let command = command.arg(&from.cursor).arg("COUNT").arg(AT_ONCE);
        let reply = self.redis.run(command).await;
        let reply = reply.map_err(|error| failed(item, error))?;
        let [cursor, pairs] = reply.as_array().unwrap_or_default() else {
            return Err(not_understood(item, &reply));
        };
        let pairs = pairs.as_array().unwrap_or_default().chunks_exact(2);
        let told = pairs.filter_map(|pair| read(item, &pair[0], &pair[1]));
        let cursor = cursor.as_str().unwrap_or("0").to_owned();
        let next = match cursor.as_str() {
            "0" => Page::at_shelf(from.shelf + 1),
            _ => Page { cursor, ..from },
        };
        let more = shelves.nth(next.shelf).map(|_| next);
        Ok((told.collect(), more))
    }

    pub(in crate::gate) async fn forget_before(&self, item: &str) -> Result<()> {
        for shelf in self.shelves(item).await?.all() {
            let command = Command::new("UNLINK").arg(&shelf.keys.before);
            let reply = self.redis.run(command).await;
            reply.map_err(|error| failed(item, error))?;
        }
        Ok(())
    }
}

/// One answer; `None` if it is none.
fn read(item: &str, field: &Value, value: &Value) -> Option<(OrderId, Lost)> {
    let (order, units) = read_answer(item, value.as_str()?)?;
    let number = order.number();
    let Value::Bytes(field) = field else {
        return None;
    };
    let lost = match read_answer_field(field) {
        Some((buyer, request)) => Lost {
            number,
            buyer,
            request,
            units,
            is_no_order: false,
        },
        None => Lost {
            number,
            is_no_order: true,
            ..Lost::default()
        },
    };
    Some((order, lost))
}
