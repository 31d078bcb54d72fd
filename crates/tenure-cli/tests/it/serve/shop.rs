//! A service with something to sell.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::{PostgresServer, RedisServer, eventually};

use super::{Answer, Service};
use crate::command::tenure;

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// Fails unless it comes about.
#[track_caller]
pub fn soon(condition: impl FnMut() -> bool) {
    assert!(eventually(LIMIT, condition), "it does not come about");
}

impl Service {
    /// Embedded, for those who may change items and stock.
    pub fn shop() -> Self {
        Self::start(&["--allow-admin"])
    }

    /// One of several instances on one Redis and one ledger.
    pub fn instance(gate: &str, ledger: &str, arguments: &[&str]) -> Self {
        let mut command = tenure(&["serve", "--allow-admin", "--url", gate]);
        Self::of(command.args(["--ledger", ledger]).args(arguments))
    }

    /// Puts an item on sale.
    #[track_caller]
    pub fn stock(&self, item: &str, units: u64) {
        self.stock_on(item, &json!({"units": units}));
    }

    /// Puts an item on sale, on terms.
    #[track_caller]
    pub fn stock_on(&self, item: &str, terms: &Value) {
        let mut body = json!({"item": item, "open": true});
        let fields = terms.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        self.post("/api/v1/items", &body).is(201);
    }

    pub fn order(&self, item: &str, buyer: &str, request: &str) -> Answer {
        let body = json!({"item": item, "buyer": buyer, "request": request});
        self.post("/api/v1/orders", &body)
    }

    /// The id of an order that must be taken.
    #[track_caller]
    pub fn ordered(&self, item: &str, buyer: &str, request: &str) -> String {
        let answer = self.order(item, buyer, request);
        let order = answer.is(202).json()["order_id"].clone();
        order.as_str().unwrap().to_owned()
    }

    /// The state of an order, after waiting for the ledger.
    #[track_caller]
    pub fn state_of(&self, order: &str) -> String {
        let path = format!("/api/v1/orders/{order}?wait_ms=30000");
        let state = self.get(&path).is(200).json()["state"].clone();
        state.as_str().unwrap().to_owned()
    }
}

/// A gate and a ledger of servers.
pub struct Grown {
    pub redis: RedisServer,
    pub ledger: String,
}

impl Grown {
    pub fn up() -> Self {
        Self {
            redis: RedisServer::start(),
            ledger: PostgresServer::shared().create_database(),
        }
    }

    pub fn instance(&self, arguments: &[&str]) -> Service {
        Service::instance(&self.redis.url(), &self.ledger, arguments)
    }
}
