//! Orders per second into the ledger, in batches, beside a bare batched INSERT of the same rows.
//!
//! Bare means: one statement for the batch into a table with the columns and keys of the ledger's orders, and
//! nothing else. No stock is guarded, no entry is recognized, no journal is written and nobody is told.

use std::time::{Duration, Instant, SystemTime};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};
use tenure::Fence;
use tenure_sale::NewItem;
use tenure_sale::gate::{Entry as Queued, Wanted};
use tenure_sale::ledger::Ledger;
use tenure_testkit::PostgresServer;
use tokio::runtime::Runtime;

use crate::rounds::{Entry, interleave};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

const ITEM: &str = "sku-7";
const BATCHES: [usize; 2] = [100, 500];
/// How long everybody runs per round.
const SLICE: Duration = Duration::from_millis(700);

const BARE_TABLE: &str = "CREATE TABLE bare_orders (item TEXT NOT NULL, epoch BIGINT NOT NULL, \
    number BIGINT NOT NULL, buyer TEXT NOT NULL, request TEXT NOT NULL, units BIGINT NOT NULL, \
    state TEXT NOT NULL, accepted_at BIGINT NOT NULL, committed_at BIGINT NOT NULL, pay_by BIGINT, \
    round BIGINT NOT NULL DEFAULT 1, note TEXT, PRIMARY KEY (item, epoch, number))";
const BARE_KEYS: &str = "CREATE UNIQUE INDEX bare_request ON bare_orders (item, buyer, request); \
    CREATE INDEX bare_buyer ON bare_orders (buyer)";
const INSERT_POSTGRES: &str = "INSERT INTO bare_orders (item, epoch, number, buyer, request, units, state, \
    accepted_at, committed_at) SELECT 'sku-7', 1, n, b, r, 1, 'reserved', $1, $1 \
    FROM unnest($2::bigint[], $3::text[], $4::text[]) AS w (n, b, r)";
const INSERT_SQLITE: &str = "INSERT INTO bare_orders (item, epoch, number, buyer, request, units, state, \
    accepted_at, committed_at) SELECT 'sku-7', 1, value ->> 0, value ->> 1, value ->> 2, 1, 'reserved', \
    $1, $1 FROM json_each($2)";

pub fn measure(setting: &Setting) -> Vec<Row> {
    let server = PostgresServer::start();
    let dir = tempfile::tempdir().expect("a directory can be made");
    let runtime = two_workers();
    let mut rows = Vec::new();
    for batch in BATCHES {
        let url = server.create_database();
        let bare = runtime.block_on(Bare::postgres(&url));
        rows.push(beside(setting, &runtime, "PostgreSQL", &url, bare, batch));
        let path = dir.path().join(format!("bench-{batch}.db"));
        let url = format!("sqlite:{}", path.display());
        let bare = runtime.block_on(Bare::sqlite(&path));
        rows.push(beside(setting, &runtime, "SQLite", &url, bare, batch));
    }
    rows
}

fn beside(
    setting: &Setting,
    runtime: &Runtime,
    name: &str,
    url: &str,
    mut bare: Bare,
    batch: usize,
) -> Row {
    let mut ours = runtime.block_on(Ours::open(url));
    let title = format!("ledger, {name}, batches of {batch}");
    // Statements are prepared and caches are filled.
    runtime.block_on(ours.run(batch, SLICE / 4));
    runtime.block_on(bare.run(batch, SLICE / 4));
    let entries = vec![
        Entry::new("bare INSERT", || runtime.block_on(bare.run(batch, SLICE))),
        Entry::new("ours", || runtime.block_on(ours.run(batch, SLICE))),
    ];
    let results = interleave(&title, setting.rounds, entries);
    let named = |label: &str| results.samples(label, |rate| *rate);
    Row::ratio(
        &format!("orders/s into the ledger, {name}, batches of {batch}"),
        (&named("ours"), Unit::PerSecond),
        ("bare INSERT", &named("bare INSERT")),
        Target::AtLeast(0.4),
    )
}

/// Our ledger, with one who commits.
struct Ours {
    ledger: Ledger,
    next: u64,
}

impl Ours {
    async fn open(url: &str) -> Self {
        let ledger = Ledger::open(url).await.expect("the ledger opens");
        let item = NewItem::new(ITEM, 1 << 50).expect("a name");
        ledger.create(&item).await.expect("the item is new");
        let begun = ledger.next_epoch(ITEM, Fence::new(1)).await;
        begun.expect("the fence is the first");
        Self { ledger, next: 1 }
    }

    async fn run(&mut self, batch: usize, length: Duration) -> f64 {
        let (begun, first) = (Instant::now(), self.next);
        while begun.elapsed() < length {
            let entries: Vec<Queued> = (0..batch).map(|_| self.entry()).collect();
            let fates = self.ledger.commit(&entries).await;
            assert_eq!(fates.expect("the ledger is there").len(), batch);
        }
        rate(first, self.next, begun)
    }

    fn entry(&mut self) -> Queued {
        let number = self.next;
        self.next += 1;
        Queued {
            id: format!("{ITEM}.1.{number}").parse().expect("an id"),
            what: Ok(Wanted::Order {
                buyer: buyer(number),
                request: request(number),
                units: 1,
            }),
            accepted_at: SystemTime::now(),
            terms: None,
            deliveries: 1,
        }
    }
}

/// Nothing but the rows.
struct Bare {
    database: Database,
    next: u64,
}

enum Database {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

impl Bare {
    async fn postgres(url: &str) -> Self {
        let connected = PgConnection::connect(url).await;
        let mut connection = connected.expect("the server is there");
        for sql in [BARE_TABLE, BARE_KEYS] {
            let made = sqlx::raw_sql(sql).execute(&mut connection).await;
            made.expect("the database is empty");
        }
        Self::of(Database::Postgres(connection))
    }

    async fn sqlite(path: &std::path::Path) -> Self {
        let connected = SqliteConnectOptions::new()
            .filename(path.with_extension("bare"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .connect()
            .await;
        let mut connection = connected.expect("a file can be made");
        for sql in [
            sqlx::AssertSqlSafe(format!("{BARE_TABLE} WITHOUT ROWID")),
            sqlx::AssertSqlSafe(BARE_KEYS.to_owned()),
        ] {
            let made = sqlx::raw_sql(sql).execute(&mut connection).await;
            made.expect("the database is empty");
        }
        Self::of(Database::Sqlite(connection))
    }

    fn of(database: Database) -> Self {
        Self { database, next: 1 }
    }

    async fn run(&mut self, batch: usize, length: Duration) -> f64 {
        let (begun, first) = (Instant::now(), self.next);
        while begun.elapsed() < length {
            let numbers = self.next..self.next + batch as u64;
            self.next = numbers.end;
            self.insert(numbers).await;
        }
        rate(first, self.next, begun)
    }

    async fn insert(&mut self, numbers: std::ops::Range<u64>) {
        let now = 1_700_000_000_000_i64;
        let buyers: Vec<String> = numbers.clone().map(buyer).collect();
        let requests: Vec<String> = numbers.clone().map(request).collect();
        let numbers: Vec<i64> = numbers.map(u64::cast_signed).collect();
        let written = match &mut self.database {
            Database::Postgres(connection) => sqlx::query(INSERT_POSTGRES)
                .bind(now)
                .bind(numbers)
                .bind(buyers)
                .bind(requests)
                .execute(connection)
                .await
                .map(|done| done.rows_affected()),
            Database::Sqlite(connection) => {
                let rows = numbers.iter().zip(&buyers).zip(&requests);
                let rows = rows.map(|((number, buyer), request)| {
                    format!("[{number},\"{buyer}\",\"{request}\"]")
                });
                let json = format!("[{}]", rows.collect::<Vec<_>>().join(","));
                let query = sqlx::query(INSERT_SQLITE).bind(now).bind(json);
                let done = query.execute(connection).await;
                done.map(|done| done.rows_affected())
            }
        };
        assert!(written.expect("the rows are new") > 0);
    }
}

/// Buyers come in no order, as they do.
fn buyer(number: u64) -> String {
    format!("buyer-{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn request(number: u64) -> String {
    format!("request-{number}")
}

fn rate(first: u64, next: u64, begun: Instant) -> f64 {
    (next - first) as f64 / begun.elapsed().as_secs_f64()
}
