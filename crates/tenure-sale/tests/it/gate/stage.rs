//! Where the contract runs: one deployment of each kind for all tests, and an item of its own for
//! each of them.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use tenure::Fence;
use tenure_sale::gate::{Applied, Entry, Gate, Load};
use tenure_sale::ledger::{Change, What};
use tenure_sale::{Answer, ItemState, OrderId, Outcome, Request, Terms};
use tenure_testkit::{Cluster, RedisServer, Sentinels};

static SINGLE: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
static SENTINELS: LazyLock<Sentinels> = LazyLock::new(Sentinels::start);
static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

/// A kind of gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Redis,
    Sentinel,
    Cluster,
}

/// An item at a gate.
pub(crate) struct Stage {
    pub(crate) gate: Gate,
    pub(crate) item: String,
    url: String,
}

impl Stage {
    /// An item that nobody has loaded.
    pub(crate) async fn empty(kind: Kind) -> Self {
        let unique = rand::random::<u64>();
        let url = match kind {
            Kind::Memory => format!("memory://gate-{unique:016x}"),
            Kind::Redis => SINGLE.url(),
            Kind::Sentinel => SENTINELS.url(),
            Kind::Cluster => CLUSTER.url(),
        };
        Self::at(url).await
    }

    pub(crate) async fn at(url: String) -> Self {
        Self {
            gate: Gate::connect(&url).await.unwrap(),
            item: format!("sku-{:016x}", rand::random::<u64>()),
            url,
        }
    }

    /// An item with so many units on these terms.
    pub(crate) async fn with(kind: Kind, units: u64, terms: Terms) -> Self {
        let stage = Self::empty(kind).await;
        stage.load(load(1, Some(units), terms)).await;
        stage
    }

    /// An item with so many units.
    pub(crate) async fn of(kind: Kind, units: u64) -> Self {
        Self::with(kind, units, Terms::default()).await
    }

    /// The gate as another process sees it.
    pub(crate) async fn again(&self) -> Gate {
        Gate::connect(&self.url).await.unwrap()
    }

    /// Loads the item; fences are as great as epochs.
    pub(crate) async fn load(&self, load: Load) {
        let (gate, item) = (&self.gate, &self.item);
        assert!(gate.begin_load(item, load.epoch, load.fence).await.unwrap());
        assert!(gate.finish_load(item, &load).await.unwrap());
    }

    pub(crate) fn request(&self, buyer: &str, id: &str) -> Request {
        Request::new(&self.item, buyer, id).unwrap()
    }

    pub(crate) async fn ask(&self, buyer: &str, id: &str) -> Outcome {
        self.answer(buyer, id, 1).await.outcome
    }

    pub(crate) async fn answer(&self, buyer: &str, id: &str, units: u64) -> Answer {
        let request = self.request(buyer, id).units(units).unwrap();
        self.gate.ask(&request).await.unwrap()
    }

    /// An order that must be accepted.
    pub(crate) async fn order(&self, buyer: &str, id: &str) -> OrderId {
        match self.ask(buyer, id).await {
            Outcome::Accepted(order) => order,
            other => panic!("not accepted but {other:?}"),
        }
    }

    pub(crate) async fn left(&self) -> Option<u64> {
        self.gate.standing(&self.item).await.unwrap().unwrap().left
    }

    /// Tells the gate of a change, which it must not know yet.
    pub(crate) async fn tell(&self, number: u64, what: What) {
        let changes = [change(number, what)];
        let standing = self.gate.standing(&self.item).await.unwrap().unwrap();
        let telling = self
            .gate
            .apply(&self.item, standing.epoch, number - 1, &changes);
        assert_eq!(telling.await.unwrap(), Applied::Done);
    }

    /// New entries, without waiting.
    pub(crate) async fn read(&self, count: usize) -> Vec<Entry> {
        let reading = self.gate.read(&self.item, "c1", count, Duration::ZERO);
        reading.await.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn key(&self, what: &str) -> String {
        format!("tenure:sale:{{{}}}:{what}", self.item)
    }
}

pub(crate) fn load(epoch: u64, left: Option<u64>, terms: Terms) -> Load {
    Load {
        epoch,
        fence: Fence::new(epoch),
        state: ItemState::Open,
        left,
        change: 0,
        terms,
    }
}

pub(crate) fn change(number: u64, what: What) -> Change {
    Change {
        number,
        at: SystemTime::UNIX_EPOCH,
        what,
    }
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
