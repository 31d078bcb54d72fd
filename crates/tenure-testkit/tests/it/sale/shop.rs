//! A shop on a real Redis: gate, queue, consumer and ledger, correct except for one bug.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_testkit::sale::{Answer, Books, Counter, Item, Order, State, Wish};
use tenure_testkit::{RedisServer, Reply, RespClient};

use super::ledger::Ledger;

pub(super) const ITEM: &str = "a";
const QUEUE: &str = "{a}:queue";
const ANSWERS: &str = "{a}:answers";
const BUYERS: &str = "{a}:buyers";
const RELEASED: &str = "{a}:released";
const GROUP: &str = "consumers";
/// The length to which the shop with [`Bug::MaxLen`] trims its queue.
const MAX_LEN: &str = "4";

/// Checks everything, then publishes, decrements and stores the answer, in one step.
const TAKE: &str = r"
local known = redis.call('HGET', KEYS[3], ARGV[2] .. ' ' .. ARGV[3])
if known and ARGV[5] == '0' then return {'replayed', known} end
local units, off = tonumber(ARGV[1]), tonumber(ARGV[6])
local has = tonumber(redis.call('HGET', KEYS[4], ARGV[2]) or '0')
if ARGV[7] == '0' and has + units > tonumber(ARGV[4]) then return {'limit-reached'} end
if tonumber(redis.call('GET', KEYS[1])) + off < units then return {'sold-out'} end
local add = {'XADD', KEYS[2]}
if ARGV[8] ~= '' then add[3] = 'MAXLEN'; add[4] = ARGV[8] end
for _, word in ipairs({'*', 'buyer', ARGV[2], 'request', ARGV[3], 'units', ARGV[1]}) do
  add[#add + 1] = word
end
local id = redis.call(unpack(add))
redis.call('DECRBY', KEYS[1], units)
redis.call('HINCRBY', KEYS[4], ARGV[2], units)
redis.call('HSET', KEYS[3], ARGV[2] .. ' ' .. ARGV[3], id)
return {'accepted', id}";

/// Releases the units of an order, once.
const RELEASE: &str = r"
if redis.call('HSETNX', KEYS[3], ARGV[1], '1') == 0 then return 0 end
redis.call('INCRBY', KEYS[1], ARGV[3])
redis.call('HINCRBY', KEYS[2], ARGV[2], -ARGV[3])
return 1";

/// The bug of a shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    GetSet,
    DecrementThenSend,
    OffByOne,
    UnconditionalRevert,
    AckBeforeCommit,
    MaxLen,
    PreheatOverwrites,
    NoUniqueKey,
    NoRequestId,
    LimitReadBefore,
    Buckets,
    BlindCancel,
    NoClaim,
}

/// The answer to a buyer.
pub(super) struct Response {
    pub(super) answer: Answer,
    pub(super) word: &'static str,
    pub(super) order: Option<String>,
}

pub(super) struct Shop {
    bug: Option<Bug>,
    server: RedisServer,
    ledger: Mutex<Ledger>,
    total: u64,
    limit: u64,
    /// Counts consumers: every batch has its own.
    consumer: AtomicU64,
}

impl Shop {
    pub(super) fn open(bug: Option<Bug>, total: u64, limit: u64) -> Self {
        let shop = Self {
            bug,
            server: RedisServer::start(),
            ledger: Mutex::default(),
            total,
            limit,
            consumer: AtomicU64::new(0),
        };
        let mut redis = shop.redis();
        redis.command(&["XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM"]);
        let shelves = shop.shelves();
        let units = (total / shelves.len() as u64).to_string();
        for shelf in shelves {
            redis.command(&["SET", shelf, &units]);
        }
        shop
    }

    pub(super) fn redis(&self) -> RespClient {
        self.server.client()
    }

    /// Places an order; the server process may die in the middle.
    pub(super) fn ask(&self, redis: &mut RespClient, wish: &Wish, rng: &mut StdRng) -> Response {
        match self.bug {
            Some(Bug::GetSet) => self.ask_by_get_and_set(redis, wish),
            Some(Bug::DecrementThenSend) => {
                self.ask_by_decrement(redis, wish, rng.random_bool(0.05))
            }
            _ => self.ask_by_script(redis, wish),
        }
    }

    /// Places an order at a server process that does not die.
    pub(super) fn ask_alive(
        &self,
        redis: &mut RespClient,
        wish: &Wish,
        rng: &mut StdRng,
    ) -> Response {
        match self.bug {
            Some(Bug::DecrementThenSend) => self.ask_by_decrement(redis, wish, false),
            _ => self.ask(redis, wish, rng),
        }
    }

    pub(super) fn state(&self, order: &str) -> State {
        self.ledger.lock().unwrap().state(order)
    }

    pub(super) fn pay(&self, order: &str) -> Option<State> {
        let mut ledger = self.ledger.lock().unwrap();
        ledger.change(order, State::Paid, false)?;
        Some(State::Paid)
    }

    pub(super) fn cancel(
        &self,
        redis: &mut RespClient,
        order: &str,
        rng: &mut StdRng,
    ) -> Option<State> {
        let blindly = self.has(Bug::BlindCancel);
        let mut ledger = self.ledger.lock().unwrap();
        let order = ledger.change(order, State::Cancelled, blindly)?;
        drop(ledger);
        // The process may die after the release and repeat it.
        let times = if rng.random_bool(0.2) { 2 } else { 1 };
        for _ in 0..times {
            self.release(redis, &order);
        }
        Some(State::Cancelled)
    }

    /// Moves queued orders to the ledger. Of three consumers one dies before the commit and one after.
    pub(super) fn consume(&self) {
        let mut redis = self.redis();
        let entries = self.read(&mut redis);
        if entries.is_empty() {
            return;
        }
        if self.has(Bug::PreheatOverwrites) {
            // An instance starts while orders are in the queue, and trusts the ledger.
            let left = self.total - self.ledger.lock().unwrap().sold().min(self.total);
            redis.command(&["SET", self.shelves()[0], &left.to_string()]);
        }
        if self.has(Bug::AckBeforeCommit) {
            acknowledge(&mut redis, &entries);
        }
        let fate = self.consumer.fetch_add(1, Ordering::Relaxed) % 3;
        if fate != 1 {
            self.commit(&entries);
        }
        if fate == 0 {
            acknowledge(&mut redis, &entries);
        }
    }

    /// Consumes until nothing is queued, including the entries of dead consumers.
    pub(super) fn drain(&self) {
        let mut redis = self.redis();
        loop {
            let mut entries = self.read(&mut redis);
            if !self.has(Bug::NoClaim) {
                let claim = [
                    "XAUTOCLAIM",
                    QUEUE,
                    GROUP,
                    "drain",
                    "0",
                    "0",
                    "COUNT",
                    "100",
                ];
                entries.extend(orders(&redis.command(&claim).array()[1]));
            }
            if entries.is_empty() {
                return;
            }
            self.commit(&entries);
            acknowledge(&mut redis, &entries);
        }
    }

    pub(super) fn books(&self) -> Books {
        let mut redis = self.redis();
        let shelves = self.shelves().iter();
        let left = shelves
            .map(|shelf| redis.command(&["GET", shelf]).int())
            .sum();
        let pending = redis.command(&["XPENDING", QUEUE, GROUP]).array()[0].int();
        let waiting = redis.command(&["XRANGE", QUEUE, "-", "+"]);
        let waiting = orders(&waiting);
        let ledger = self.ledger.lock().unwrap();
        let item = Item {
            name: ITEM.into(),
            total: Some(self.total),
            sold: ledger.sold(),
            limit: Some(self.limit),
            counter: Counter {
                left,
                queued: waiting.len() as u64,
                queued_units: waiting.iter().map(|order| order.units).sum(),
                pending: pending.unsigned_abs(),
                dead: 0,
            },
            quotas: self.quotas(&mut redis),
        };
        Books {
            items: vec![item],
            orders: ledger.orders.clone(),
            journal: ledger.journal.clone(),
        }
    }

    /// The units of each buyer at the gate; the naive shops do not track them.
    fn quotas(&self, redis: &mut RespClient) -> Option<BTreeMap<String, u64>> {
        if self.has(Bug::GetSet) || self.has(Bug::DecrementThenSend) {
            return None;
        }
        let reply = redis.command(&["HGETALL", BUYERS]);
        let pairs = reply.array().chunks_exact(2);
        let quotas = pairs.map(|pair| (pair[0].text().to_owned(), pair[1].int().unsigned_abs()));
        Some(quotas.filter(|(_, units)| *units > 0).collect())
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The stock counters; the shop with buckets has two.
    fn shelves(&self) -> &'static [&'static str] {
        if self.has(Bug::Buckets) {
            &["{a}:left:0", "{a}:left:1"]
        } else {
            &["{a}:left"]
        }
    }

    fn ask_by_script(&self, redis: &mut RespClient, wish: &Wish) -> Response {
        let shelves = self.shelves();
        let shelf = shelves[wish.buyer.len() % shelves.len()];
        let flag = |bug| if self.has(bug) { "1" } else { "0" };
        if self.has(Bug::LimitReadBefore) {
            if let Some(known) = known(redis, wish) {
                return known;
            }
            // Reads the ledger, so queued orders do not count.
            let has = self.ledger.lock().unwrap().held_by(&wish.buyer);
            if has + wish.units > self.limit {
                return refused("limit-reached");
            }
        }
        let (units, limit) = (wish.units.to_string(), self.limit.to_string());
        let cut = if self.has(Bug::MaxLen) { MAX_LEN } else { "" };
        let words = [
            "EVAL",
            TAKE,
            "4",
            shelf,
            QUEUE,
            ANSWERS,
            BUYERS,
            &units,
            &wish.buyer,
            &wish.request,
            &limit,
            flag(Bug::NoRequestId),
            flag(Bug::OffByOne),
            flag(Bug::LimitReadBefore),
            cut,
        ];
        response(&redis.command(&words))
    }

    fn ask_by_get_and_set(&self, redis: &mut RespClient, wish: &Wish) -> Response {
        let shelf = self.shelves()[0];
        let left = redis.command(&["GET", shelf]).int().unsigned_abs();
        if let Some(known) = known(redis, wish) {
            return known;
        }
        if left < wish.units {
            return refused("sold-out");
        }
        let left = left - wish.units;
        redis.command(&["SET", shelf, &left.to_string()]);
        publish(redis, wish)
    }

    fn ask_by_decrement(&self, redis: &mut RespClient, wish: &Wish, dies: bool) -> Response {
        let (shelf, units) = (self.shelves()[0], wish.units.to_string());
        if let Some(known) = known(redis, wish) {
            return known;
        }
        if redis.command(&["DECRBY", shelf, &units]).int() < 0 {
            return refused("sold-out");
        }
        if dies {
            return Response {
                answer: Answer::Unknown,
                word: "",
                order: None,
            };
        }
        publish(redis, wish)
    }

    fn release(&self, redis: &mut RespClient, order: &Order) {
        let shelves = self.shelves();
        let shelf = shelves[order.buyer.len() % shelves.len()];
        let units = order.units.to_string();
        if self.has(Bug::UnconditionalRevert) {
            redis.command(&["INCRBY", shelf, &units]);
            return;
        }
        let words = [
            "EVAL",
            RELEASE,
            "3",
            shelf,
            BUYERS,
            RELEASED,
            &order.id,
            &order.buyer,
            &units,
        ];
        redis.command(&words);
    }

    fn read(&self, redis: &mut RespClient) -> Vec<Order> {
        let name = format!("c{}", self.consumer.load(Ordering::Relaxed));
        let words = [
            "XREADGROUP",
            "GROUP",
            GROUP,
            &name,
            "COUNT",
            "20",
            "STREAMS",
            QUEUE,
            ">",
        ];
        let reply = redis.command(&words);
        if reply.is_nil() {
            return Vec::new();
        }
        orders(&reply.array()[0].array()[1])
    }

    fn commit(&self, entries: &[Order]) {
        let unique = !self.has(Bug::NoUniqueKey);
        let mut ledger = self.ledger.lock().unwrap();
        for order in entries {
            ledger.insert(order.clone(), unique);
        }
    }
}

fn acknowledge(redis: &mut RespClient, entries: &[Order]) {
    for order in entries {
        redis.command(&["XACK", QUEUE, GROUP, &order.id]);
        redis.command(&["XDEL", QUEUE, &order.id]);
    }
}

fn known(redis: &mut RespClient, wish: &Wish) -> Option<Response> {
    let field = format!("{} {}", wish.buyer, wish.request);
    match redis.command(&["HGET", ANSWERS, &field]) {
        Reply::Text(order) => Some(Response {
            answer: Answer::Replayed,
            word: "",
            order: Some(order),
        }),
        _ => None,
    }
}

fn publish(redis: &mut RespClient, wish: &Wish) -> Response {
    let units = wish.units.to_string();
    let words = [
        "XADD",
        QUEUE,
        "*",
        "buyer",
        &wish.buyer,
        "request",
        &wish.request,
        "units",
        &units,
    ];
    let id = redis.command(&words).text().to_owned();
    let field = format!("{} {}", wish.buyer, wish.request);
    redis.command(&["HSET", ANSWERS, &field, &id]);
    Response {
        answer: Answer::Accepted,
        word: "",
        order: Some(id),
    }
}

fn refused(word: &'static str) -> Response {
    Response {
        answer: Answer::Refused,
        word,
        order: None,
    }
}

fn response(reply: &Reply) -> Response {
    let parts = reply.array();
    let order = parts.get(1).map(|order| order.text().to_owned());
    let (answer, word) = match parts[0].text() {
        "accepted" => (Answer::Accepted, ""),
        "replayed" => (Answer::Replayed, ""),
        "sold-out" => (Answer::Refused, "sold-out"),
        _ => (Answer::Refused, "limit-reached"),
    };
    Response {
        answer,
        word,
        order,
    }
}

/// Entries of a stream as orders. Skips pending entries that were trimmed.
fn orders(entries: &Reply) -> Vec<Order> {
    let entries = entries.array().iter().filter(|entry| !entry.is_nil());
    let entries = entries.filter(|entry| !entry.array()[1].is_nil());
    let orders = entries.map(|entry| {
        let (id, fields) = (entry.array()[0].text(), entry.array()[1].array());
        Order {
            id: id.to_owned(),
            item: ITEM.into(),
            buyer: fields[1].text().into(),
            request: fields[3].text().into(),
            units: fields[5].int().unsigned_abs(),
            state: State::Reserved,
        }
    });
    orders.collect()
}
