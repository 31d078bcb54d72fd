//! What ledger and gate say when all is quiet: the ledger's tables and the gate's keys, by questions of
//! our own.

use std::collections::{BTreeMap, HashMap};

use sqlx::{Connection, PgConnection, Row};
use tenure_sale::ledger::What;
use tenure_sale::{OrderId, OrderState, Sale};
use tenure_testkit::RespClient;
use tenure_testkit::sale::{Books, Counter, Item, Movement, Order, Posting, State};

use crate::items::OnSale;
use crate::stage::Stage;

/// Changes in one question.
const PAGE: usize = 1_000;

/// The books, and where the ledger's own journal does not say what its changes do.
pub async fn read(sale: &Sale, items: &[OnSale], stage: &Stage) -> (Books, Vec<String>) {
    let mut ledger = PgConnection::connect(&stage.ledger_url()).await.unwrap();
    let mut books = Books {
        orders: orders(&mut ledger).await,
        ..Books::default()
    };
    for on_sale in items {
        books.items.push(item(stage, &mut ledger, on_sale).await);
        let journal = journal(sale, on_sale.name, &books.orders).await;
        books.journal.extend(journal);
    }
    let complaints = contradictions(&mut ledger, &books).await;
    (books, complaints)
}

async fn orders(ledger: &mut PgConnection) -> Vec<Order> {
    let sql = "SELECT item, epoch, number, buyer, request, units, state FROM sale_orders";
    let rows = sqlx::query(sql).fetch_all(ledger).await.unwrap();
    let orders = rows.iter().map(|row| {
        let (item, epoch, number): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        Order {
            id: format!("{item}.{epoch}.{number}"),
            item,
            buyer: row.get(3),
            request: row.get(4),
            units: row.get::<i64, _>(5).unsigned_abs(),
            state: row.get::<String, _>(6).parse::<State>().unwrap(),
        }
    });
    orders.collect()
}

async fn item(stage: &Stage, ledger: &mut PgConnection, on_sale: &OnSale) -> Item {
    let sql = "SELECT total, unlimited, sold FROM sale_items WHERE name = $1";
    let row = sqlx::query(sql).bind(on_sale.name).fetch_one(ledger);
    let row = row.await.unwrap();
    let (total, unlimited, sold): (i64, bool, i64) = (row.get(0), row.get(1), row.get(2));
    let mut counter = Counter::default();
    let mut quotas = BTreeMap::new();
    for shelf in shelves(stage, on_sale.name) {
        let mut gate = stage.server_of(&shelf).client();
        let key = |what: &str| format!("{shelf}{what}");
        let left = gate.command(&["HGET", &key("gate"), "left"]);
        let given = gate.command(&["HGET", &key("gate"), "out"]);
        assert!(given.is_nil(), "units of `{shelf}` are still on their way");
        let pending = gate.command(&["XPENDING", &key("orders"), "ledger"]);
        let mut length = |what: &str| gate.command(&["XLEN", &key(what)]).int().unsigned_abs();
        // Queued units: of none, because who has some is not quiet anyway.
        counter.left += if left.is_nil() { 0 } else { left.int() };
        counter.queued += length("orders");
        counter.pending += pending.array()[0].int().unsigned_abs();
        counter.dead += length("dead");
        for (buyer, units) in quotas_at(&mut gate, &key("buyers")) {
            // A buyer has one home.
            assert_eq!(quotas.insert(buyer, units), None);
        }
    }
    Item {
        name: on_sale.name.into(),
        total: (!unlimited).then_some(total.unsigned_abs()),
        sold: sold.unsigned_abs(),
        limit: on_sale.limit,
        counter,
        quotas: on_sale.limit.map(|_| quotas),
    }
}

/// What the keys of each shelf of an item begin with.
fn shelves(stage: &Stage, item: &str) -> Vec<String> {
    let mut shelves = vec![format!("tenure:sale:{{{item}}}:")];
    for key in stage.keys(&format!("tenure:sale:{{{item}#*}}:shelf:gate")) {
        shelves.push(key.trim_end_matches("gate").to_owned());
    }
    shelves
}

fn quotas_at(gate: &mut RespClient, key: &str) -> BTreeMap<String, u64> {
    let reply = gate.command(&["HGETALL", key]);
    let pairs = reply.array().chunks_exact(2);
    // One field is the mark of the hash: no buyer is named by a line feed.
    let pairs = pairs.filter(|pair| pair[0].text() != "\n");
    pairs
        .map(|pair| (pair[0].text().to_owned(), pair[1].int().unsigned_abs()))
        .collect()
}

/// The ledger's changes are numbered in the order of the commits.
async fn journal(sale: &Sale, item: &str, orders: &[Order]) -> Vec<Posting> {
    let mut folding = Folding {
        known: orders.iter().map(|it| (it.id.as_str(), it)).collect(),
        held: HashMap::new(),
    };
    let mut postings = Vec::new();
    let mut after = 0;
    loop {
        let changes = sale.ledger().changes(item, after, PAGE).await.unwrap();
        let Some(last) = changes.last() else {
            return postings;
        };
        after = last.number;
        let moved = changes.iter().flat_map(|it| folding.movements(&it.what));
        postings.extend(moved.map(|movement| Posting {
            item: item.to_owned(),
            movement,
        }));
    }
}

/// Makes movements of units of what the ledger announces.
struct Folding<'a> {
    known: HashMap<&'a str, &'a Order>,
    /// Whether an order holds its units; none that it never did.
    held: HashMap<String, bool>,
}

impl Folding<'_> {
    fn movements(&mut self, what: &What) -> Vec<Movement> {
        match what {
            What::Committed { orders, state } if state.holds_units() => {
                orders.iter().map(|id| self.reserved(id)).collect()
            }
            // Paid for too late, and given units again.
            What::Moved {
                order,
                state: OrderState::Paid,
            } if self.held.get(&order.to_string()) == Some(&false) => vec![self.reserved(order)],
            What::Released {
                order,
                state: OrderState::Cancelled | OrderState::Expired,
                buyer,
                units,
            } => {
                // One that was cancelled before it came never had units in the ledger.
                let known = self.held.insert(order.to_string(), false);
                let release = known.map(|_| Movement::Released {
                    order: order.to_string(),
                    buyer: buyer.clone(),
                    units: *units,
                });
                release.into_iter().collect()
            }
            // Any other went back at the gate only, where it was set aside in vain.
            What::Added { units, .. } => vec![Movement::Added(*units)],
            What::Withdrawn { units, .. } => vec![Movement::Withdrawn(*units)],
            _ => Vec::new(),
        }
    }

    fn reserved(&mut self, id: &OrderId) -> Movement {
        let order = id.to_string();
        let known = self.known.get(order.as_str());
        let (buyer, units) =
            known.map_or_else(Default::default, |known| (known.buyer.clone(), known.units));
        self.held.insert(order.clone(), true);
        Movement::Reserved {
            order,
            buyer,
            units,
        }
    }
}

/// Orders that the ledger's journal moves otherwise than its changes do.
async fn contradictions(ledger: &mut PgConnection, books: &Books) -> Vec<String> {
    let mut moved: BTreeMap<String, i64> = BTreeMap::new();
    for posting in &books.journal {
        let (order, step) = match &posting.movement {
            Movement::Reserved { order, units, .. } => (order, (1_000_000 + units).cast_signed()),
            Movement::Released { order, units, .. } => (order, units.cast_signed()),
            Movement::Added(_) | Movement::Withdrawn(_) => continue,
        };
        *moved.entry(order.clone()).or_default() += step;
    }
    let sql = "SELECT item, epoch, number, kind, units FROM sale_journal";
    let rows = sqlx::query(sql).fetch_all(ledger).await.unwrap();
    for row in rows {
        let (item, epoch, number): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let (kind, units): (String, i64) = (row.get(3), row.get(4));
        let step = if kind == "reserve" {
            1_000_000 + units
        } else {
            units
        };
        *moved.entry(format!("{item}.{epoch}.{number}")).or_default() -= step;
    }
    moved.retain(|_, difference| *difference != 0);
    let orders = moved.keys().take(10);
    orders
        .map(|order| format!("journal and changes move `{order}` differently"))
        .collect()
}
