//! What is particular to a ledger in PostgreSQL.

use sqlx::{Connection as _, PgConnection};
use tenure_sale::ItemState;
use tenure_sale::ledger::Ledger;
use tenure_testkit::{PgBouncer, PostgresServer};
use tokio::time::{Duration, Instant, sleep};

use super::setup::{ITEM, Setup, order};

const ORDERS: i64 = 20_000;

/// Confirmed orders must not depend on what somebody set for the whole database.
#[tenure_testkit::test]
async fn settings_of_the_database_do_not_weaken_a_commit() {
    for (theirs, ours) in [
        ("off", "on"),
        ("local", "local"),
        ("remote_apply", "remote_apply"),
    ] {
        let url = PostgresServer::shared().create_database();
        let name = url.rsplit('/').next().unwrap();
        let settings = format!(
            "ALTER DATABASE {name} SET synchronous_commit = {theirs}; \
             ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
        );
        run(&url, &settings).await;
        let setup = Setup::at(url).await;
        // What a commit runs under.
        run(
            &setup.url,
            "CREATE TABLE seen (commits TEXT, isolation TEXT); \
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO seen VALUES (current_setting('synchronous_commit'), \
             current_setting('transaction_isolation')); RETURN NEW; END $$; \
             CREATE TRIGGER see AFTER INSERT ON sale_changes FOR EACH ROW EXECUTE FUNCTION see()",
        )
        .await;
        setup.selling(1).await;
        let (from, to) = ([ItemState::Draft], ItemState::Open);
        setup.ledger.set_state(ITEM, &from, to).await.unwrap();
        setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
        let mut connection = PgConnection::connect(&setup.url).await.unwrap();
        let seen: Vec<(String, String)> = sqlx::query_as("SELECT DISTINCT * FROM seen")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert_eq!(seen, [(ours.to_owned(), "read committed".to_owned())]);
    }
}

/// `PgBouncer` refuses connections that ask for settings when they begin.
#[tenure_testkit::test]
async fn a_ledger_behind_pgbouncer_has_its_settings() {
    let server = PostgresServer::shared();
    let direct = server.create_database();
    let name = direct.rsplit('/').next().unwrap();
    let Some(bouncer) = PgBouncer::start(server) else {
        eprintln!("skipped: `make test` installs pgbouncer");
        return;
    };
    let setup = Setup::at(bouncer.url_of(name)).await;
    run(
        &direct,
        "CREATE TABLE seen (setting TEXT); \
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO seen VALUES (current_setting('lock_timeout')); RETURN NEW; END $$; \
         CREATE TRIGGER see AFTER INSERT ON sale_orders FOR EACH ROW EXECUTE FUNCTION see()",
    )
    .await;
    setup.selling(1).await;
    setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    let mut connection = PgConnection::connect(&direct).await.unwrap();
    let seen: Vec<String> = sqlx::query_scalar("SELECT DISTINCT setting FROM seen")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(seen, ["4s"]);
}

/// All pages together read each order about once, though the planner knows nothing of the table.
#[tenure_testkit::test]
async fn pages_are_read_from_an_index() {
    let setup = Setup::postgres().await;
    setup.selling(1).await;
    let orders = format!(
        "ALTER TABLE sale_orders SET (autovacuum_enabled = false); \
         INSERT INTO sale_orders (item, epoch, number, buyer, request, units, state, accepted_at, \
         committed_at) SELECT '{ITEM}', 1, n, 'buyer' || n, 'r', 1, 'reserved', 1, 1 \
         FROM generate_series(1, {ORDERS}) AS n"
    );
    run(&setup.url, &orders).await;
    drop(setup.ledger);
    let before = rows_read(&setup.url).await;
    let ledger = Ledger::open(&setup.url).await.unwrap();
    let (mut buyers, mut after) = (0, None);
    loop {
        let page = ledger.buyers(ITEM, after.as_deref(), 500).await.unwrap();
        let Some((last, _)) = page.last() else {
            break;
        };
        buyers += page.len();
        after = Some(last.clone());
    }
    let (mut answers, mut after) = (0, None);
    loop {
        let page = ledger.answers(ITEM, Duration::MAX, after.as_ref(), 500);
        let page = page.await.unwrap();
        let Some(last) = page.last() else {
            break;
        };
        answers += page.len();
        after = Some(last.order.clone());
    }
    let all = usize::try_from(ORDERS).unwrap();
    assert_eq!((buyers, answers), (all, all));
    drop(ledger);
    let read = rows_read(&setup.url).await - before;
    assert!(
        (2 * ORDERS..3 * ORDERS).contains(&read),
        "{read} rows were read"
    );
}

/// How many rows of the orders were read, by all connections that are closed by now.
async fn rows_read(url: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid() \
                  AND backend_type = 'client backend' AND application_name = 'tenure-sale'";
    loop {
        let count: i64 = sqlx::query_scalar(others)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        if count == 0 {
            break;
        }
        assert!(Instant::now() < end, "{count} connections are still open");
        sleep(Duration::from_millis(20)).await;
    }
    let read = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) \
                FROM pg_stat_user_tables WHERE relname = 'sale_orders'";
    sqlx::query_scalar(read)
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

async fn run(url: &str, sql: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
}
