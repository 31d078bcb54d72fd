//! A database that is gone, slow or locked: errors in time, nothing half done, and work again afterwards.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tenure::Fence;
use tenure_sale::gate::Entry;
use tenure_sale::ledger::{Fate, Ledger};
use tenure_sale::{ErrorKind, NewItem, OrderState};
use tenure_testkit::PostgresServer;

use super::setup::{ITEM, Setup, id, order};

/// Longer than any limit of the ledger.
const IN_TIME: Duration = Duration::from_secs(8);

async fn selling(url: &str) -> Ledger {
    let ledger = Ledger::open(url).await.unwrap();
    let new = NewItem::new(ITEM, 1_000_000).unwrap();
    ledger.create(&new).await.unwrap();
    ledger.next_epoch(ITEM, Fence::new(1)).await.unwrap();
    ledger
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_is_used_again_without_an_error() {
    let server = PostgresServer::start();
    let ledger = selling(&server.create_database()).await;
    // Several connections, all of which die.
    let writers: Vec<_> = (1..=6)
        .map(|number| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.commit(&[order(number, "bob", 1)]).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    server.restart();
    let fates = ledger.commit(&[order(7, "bob", 1)]).await.unwrap();
    assert_eq!(fates, [Fate::Settled(OrderState::Reserved)]);
    server.restart();
    let item = ledger.item(ITEM).await.unwrap().unwrap();
    assert_eq!(item.sold, 7);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_is_an_error_in_time() {
    let server = PostgresServer::start();
    let ledger = selling(&server.create_database()).await;
    server.kill();
    let begun = Instant::now();
    let error = ledger.commit(&[order(1, "bob", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    assert!(error.to_string().contains("commit 1 entries"), "{error}");
    let error = ledger.item(ITEM).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    assert!(begun.elapsed() < 2 * IN_TIME, "{:?}", begun.elapsed());
    server.restart();
    ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_nothing_is_an_error_in_time() {
    let server = PostgresServer::start();
    let ledger = selling(&server.create_database()).await;
    ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    server.pause();
    let begun = Instant::now();
    let error = ledger.commit(&[order(2, "bob", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    assert!(error.to_string().contains("no reply"), "{error}");
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    // More callers than connections, all of whom learn it in time.
    let begun = Instant::now();
    let callers: Vec<_> = (0..12)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.pay(&id(1, 1)).await.unwrap_err().kind() })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), ErrorKind::Ledger);
    }
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    server.resume();
    let fates = ledger.commit(&[order(2, "bob", 1)]).await.unwrap();
    let reserved = OrderState::Reserved;
    assert!([Fate::Settled(reserved), Fate::Known(reserved)].contains(&fates[0]));
    let item = ledger.item(ITEM).await.unwrap().unwrap();
    assert_eq!(item.sold, 2);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_leaves_nothing_half_done() {
    let server = PostgresServer::start();
    let url = server.create_database();
    let ledger = selling(&url).await;
    let mut writers = Vec::new();
    for writer in 0..4_u64 {
        let ledger = ledger.clone();
        writers.push(tokio::spawn(async move {
            for round in 0..40 {
                let first = 1 + writer * 100_000 + round * 100;
                let batch: Vec<Entry> = (first..first + 20).map(|n| order(n, "bob", 1)).collect();
                let mut fates = ledger.commit(&batch).await;
                while let Err(error) = fates {
                    assert_eq!(error.kind(), ErrorKind::Ledger, "{error:?}");
                    fates = ledger.commit(&batch).await;
                }
                let fates = fates.unwrap();
                assert!(fates.windows(2).all(|pair| pair[0] == pair[1]), "{fates:?}");
            }
        }));
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        tokio::task::block_in_place(|| server.restart());
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let item = ledger.item(ITEM).await.unwrap().unwrap();
    assert_eq!(item.sold, 4 * 40 * 20);
    // Each batch is one change, once.
    let changes = ledger.changes(ITEM, 0, 10_000).await.unwrap();
    assert_eq!(changes.len(), 4 * 40);
    let database = url.rsplit('/').next().unwrap();
    let journal = server.run_sql_in(database, "SELECT sum(units) FROM sale_journal");
    assert_eq!(journal, item.sold.to_string());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_keeps_an_item_locked_is_an_error_in_time() {
    let setup = Setup::postgres().await;
    setup.selling(10).await;
    let mut other = sqlx::PgConnection::connect(&setup.url).await.unwrap();
    let lock = "BEGIN; SELECT 1 FROM sale_items FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    let begun = Instant::now();
    let error = setup
        .ledger
        .commit(&[order(1, "bob", 1)])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_process_writes_is_waited_for_and_then_an_error() {
    let setup = Setup::file().await;
    setup.selling(10).await;
    let mut other = SqliteConnection::connect(&setup.url).await.unwrap();
    let lock = "BEGIN IMMEDIATE";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    let ledger = setup.ledger.clone();
    let waiting = tokio::spawn(async move { ledger.commit(&[order(1, "bob", 1)]).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Readers need not wait.
    assert_eq!(setup.item().await.sold, 0);
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    waiting.await.unwrap().unwrap();

    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    let begun = Instant::now();
    let error = setup
        .ledger
        .commit(&[order(2, "bob", 1)])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    // On a crowded machine our own limit may come before that of the database.
    let told = error.to_string();
    let is_told = told.contains("another process") || told.contains("no reply within");
    assert!(is_told, "{told}");
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    setup.ledger.commit(&[order(2, "bob", 1)]).await.unwrap();
    assert_eq!(setup.item().await.sold, 2);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_does_not_keep_the_file_from_others() {
    let setup = Setup::file().await;
    setup.selling(1_000_000).await;
    let options = setup.url.parse::<SqliteConnectOptions>().unwrap();
    let options = options.busy_timeout(Duration::from_secs(2));
    let mut other = options.connect().await.unwrap();
    for round in 0..40_u64 {
        let first = 1 + round * 100;
        let batch: Vec<Entry> = (first..first + 50).map(|n| order(n, "bob", 1)).collect();
        let patience = Duration::from_micros(round * 100);
        let _ = tokio::time::timeout(patience, setup.ledger.commit(&batch)).await;
        let written = sqlx::raw_sql("BEGIN IMMEDIATE; COMMIT");
        written.execute(&mut other).await.unwrap();
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_to_a_file_is_there_when_it_is_opened_again() {
    let setup = Setup::file().await;
    setup.selling(10).await;
    setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    let again = Ledger::open(&setup.url).await.unwrap();
    assert_eq!(again.item(ITEM).await.unwrap().unwrap().sold, 1);
    again.commit(&[order(2, "bob", 1)]).await.unwrap();
    assert_eq!(setup.item().await.sold, 2);
}
