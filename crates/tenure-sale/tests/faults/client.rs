//! A process of the sale: an instance of the shop, or a consumer.

mod consumer;
mod follow;
mod instance;

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

pub use consumer::IDLE;
pub use follow::look;
pub use instance::submit;
use tenure_sale::Sale;
use tokio_util::sync::CancellationToken;

/// How a process is to be.
#[derive(Debug, Clone)]
pub struct Order {
    pub number: u64,
    pub seed: u64,
    pub role: Role,
    /// How long the run is broken, which says what is on sale.
    pub time: Duration,
    pub gate_url: String,
    pub ledger_url: String,
    pub dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Instance,
    Consumer,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Consumer => "consumer",
        }
    }
}

impl Order {
    const VARIABLE: &str = "TENURE_SALE_FAULTS_CLIENT";

    /// The order for this process, if it is one of the sale.
    pub fn from_env() -> Option<Self> {
        let text = std::env::var(Self::VARIABLE).ok()?;
        let mut parts = text.splitn(7, ' ');
        let mut part = || parts.next().expect("an order has seven parts");
        Some(Self {
            number: part().parse().unwrap(),
            seed: part().parse().unwrap(),
            role: match part() {
                "instance" => Role::Instance,
                _ => Role::Consumer,
            },
            time: Duration::from_millis(part().parse().unwrap()),
            gate_url: part().into(),
            ledger_url: part().into(),
            dir: part().into(),
        })
    }

    /// This program again, in its role; dying at a step of the engine, if one is named.
    pub fn command(&self, failpoint: Option<&str>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let (role, time_ms, dir) = (self.role.name(), self.time.as_millis(), self.dir.display());
        let (gate_url, ledger_url) = (&self.gate_url, &self.ledger_url);
        let (number, seed) = (self.number, self.seed);
        command.env(
            Self::VARIABLE,
            format!("{number} {seed} {role} {time_ms} {gate_url} {ledger_url} {dir}"),
        );
        if let Some(failpoint) = failpoint {
            command.env("TENURE_SALE_FAILPOINT", failpoint);
        }
        command
    }
}

pub fn run(order: &Order) {
    let finish = CancellationToken::new();
    let told = finish.clone();
    thread::spawn(move || {
        let mut line = String::new();
        // A line, or the end of the test process: both say the same.
        let _ = std::io::stdin().read_line(&mut line);
        told.cancel();
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match order.role {
            Role::Instance => instance::run(order, &finish).await,
            Role::Consumer => consumer::run(order, &finish).await,
        }
    });
}

/// Opens the sale, however often that fails: the process may have been started amid a fault.
async fn open(order: &Order, finish: &CancellationToken) -> Option<Sale> {
    while !finish.is_cancelled() {
        if let Ok(sale) = Sale::open(&order.gate_url, &order.ledger_url).await {
            return Some(sale);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}
