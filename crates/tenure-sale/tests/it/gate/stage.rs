//! Where the contract runs: one deployment of each kind for all tests, and an item of its own for
//! each of them.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use tenure::Fence;
use tenure_sale::gate::{Applied, Entry, Gate, Load};
use tenure_sale::ledger::{Change, What};
use tenure_sale::{Answer, ItemState, OrderId, Outcome, Request, Terms};
use tenure_testkit::{Cluster, RedisServer, RespClient, Sentinels};

static SINGLE: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
static SENTINELS: LazyLock<Sentinels> = LazyLock::new(|| Sentinels::builder().steady().start());
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::builder().steady().start());

/// A kind of gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Redis,
    Sentinel,
    Cluster,
    /// The same with items that are spread over [`SPREAD`] shelves.
    MemorySpread,
    RedisSpread,
    ClusterSpread,
}

/// Over how many shelves an item is spread where it is.
pub(crate) const SPREAD: u64 = 4;

impl Kind {
    fn spread(self) -> u64 {
        match self {
            Self::Memory | Self::Redis | Self::Sentinel | Self::Cluster => 1,
            Self::MemorySpread | Self::RedisSpread | Self::ClusterSpread => SPREAD,
        }
    }
}

/// An item at a gate.
pub(crate) struct Stage {
    pub(crate) gate: Gate,
    pub(crate) item: String,
    pub(crate) spread: u64,
    url: String,
}

impl Stage {
    /// An item that was never loaded.
    pub(crate) async fn empty(kind: Kind) -> Self {
        let unique = rand::random::<u64>();
        let url = match kind {
            Kind::Memory | Kind::MemorySpread => format!("memory://gate-{unique:016x}"),
            Kind::Redis | Kind::RedisSpread => SINGLE.url(),
            Kind::Sentinel => SENTINELS.url(),
            Kind::Cluster | Kind::ClusterSpread => CLUSTER.url(),
        };
        Self {
            spread: kind.spread(),
            ..Self::at(url).await
        }
    }

    pub(crate) async fn at(url: String) -> Self {
        Self {
            gate: Gate::connect(&url).await.unwrap(),
            item: format!("sku-{:016x}", rand::random::<u64>()),
            spread: 1,
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
        assert!(self.begin(load.epoch, load.fence).await.unwrap());
        assert!(self.finish(load).await.unwrap());
    }

    pub(crate) async fn begin(&self, epoch: u64, fence: Fence) -> tenure_sale::Result<bool> {
        let (gate, spread) = (&self.gate, self.spread);
        gate.begin_load(&self.item, epoch, fence, spread).await
    }

    pub(crate) async fn finish(&self, load: Load) -> tenure_sale::Result<bool> {
        let spread = self.spread;
        let load = Load { spread, ..load };
        self.gate.finish_load(&self.item, &load).await
    }

    /// Whether the item really lies on several shelves: in memory there is only one place.
    pub(crate) fn is_spread(&self) -> bool {
        self.spread > 1 && !self.gate.is_memory()
    }

    /// The number of an order among those of its shelf.
    pub(crate) fn nth(&self, order: &OrderId) -> u64 {
        if self.is_spread() {
            order.number() / self.spread
        } else {
            order.number()
        }
    }

    /// What an answer says is left; of one shelf of several nothing is said.
    pub(crate) fn said(&self, left: u64) -> Option<u64> {
        (!self.is_spread()).then_some(left)
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

    /// The servers of an item that is spread: what one writes to them, the gate does not know of.
    fn server_of(&self, key: &str) -> &'static RedisServer {
        if self.url == SINGLE.url() {
            &SINGLE
        } else {
            CLUSTER.master_of_key(key)
        }
    }

    /// A command behind the gate's back; its first argument is a key.
    pub(crate) fn redis(&self, command: &[&str]) {
        self.client_of(command[1]).command(command);
    }

    /// A connection to the server that has a key.
    pub(crate) fn client_of(&self, key: &str) -> RespClient {
        self.server_of(key).client()
    }

    /// The port of the server that has a key.
    pub(crate) fn port_of(&self, key: &str) -> u16 {
        self.server_of(key).port()
    }

    /// The key of the gate on a shelf.
    pub(crate) fn shelf(&self, nth: u64) -> String {
        if nth == 0 {
            return self.key("gate");
        }
        let pattern = format!("tenure:sale:{{{}#{nth}/*}}:shelf:gate", self.item);
        let servers: Vec<&RedisServer> = if self.url == SINGLE.url() {
            vec![&*SINGLE]
        } else {
            CLUSTER.servers().iter().collect()
        };
        let mut found = servers.into_iter().flat_map(|server| {
            let keys = server.client().command(&["KEYS", &pattern]);
            let keys = keys.array().iter().map(|key| key.text().to_owned());
            keys.collect::<Vec<_>>()
        });
        found.next().unwrap()
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
        spread: 1,
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
