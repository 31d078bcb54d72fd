//! Opening a ledger: where it is, who else uses it, of which version it is.

use std::process::Command;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tenure_sale::ErrorKind;
use tenure_sale::ledger::Ledger;
use tenure_testkit::{ClientProcess, PostgresServer};

use super::setup::Setup;

const SECONDS: Duration = Duration::from_secs(20);
/// What the process of [`a_process_that_uses_the_ledger`] receives.
const URL: &str = "TENURE_TEST_LEDGER";
const ALONE: &str = "TENURE_TEST_ALONE";

#[tenure_testkit::test]
async fn urls_that_cannot_be_opened_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let missing = format!("sqlite:{}/nowhere/sale.db", dir.path().display());
    let directory = format!("sqlite:{}", dir.path().display());
    let text = dir.path().join("text.db");
    std::fs::write(
        &text,
        "not a database, but long enough to be read as one".repeat(100),
    )
    .unwrap();
    let text = format!("sqlite:{}", text.display());
    let nobody = "postgres://shop:geheim@127.0.0.1:1/sale";
    for (url, kind, words) in [
        ("mysql://host/db", ErrorKind::InvalidUrl, "`mysql`"),
        ("sqlite:", ErrorKind::InvalidUrl, "has no file name"),
        (&missing, ErrorKind::Ledger, "does not exist"),
        (&directory, ErrorKind::Ledger, "is a directory"),
        (&text, ErrorKind::Ledger, "not a database"),
        (nobody, ErrorKind::Ledger, "postgres://127.0.0.1:1/sale"),
    ] {
        let error = Ledger::open(url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(words), "{shown}");
        assert!(!shown.contains("geheim"), "{shown}");
    }
}

#[tenure_testkit::test]
async fn a_database_that_is_not_there_is_named() {
    let server = PostgresServer::shared();
    let error = Ledger::open(server.url_of("nowhere")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    assert!(error.to_string().contains("no such database"), "{error}");
}

#[tenure_testkit::test]
async fn passwords_are_not_shown() {
    let setup = Setup::postgres().await;
    let url = setup.url.replace("tenure@", "tenure:geheim@");
    let ledger = Ledger::open(&url).await.unwrap();
    let shown = format!("{ledger:?}");
    assert!(shown.contains("127.0.0.1"), "{shown}");
    assert!(!shown.contains("geheim"), "{shown}");
}

#[tenure_testkit::test]
async fn a_schema_from_a_newer_version_is_refused() {
    let newer = "INSERT INTO sale_schema_versions (version, description, success, checksum, \
                 execution_time) VALUES (9, 'from the future', true, ";
    let file = Setup::file().await;
    let mut connection = SqliteConnection::connect(&file.url).await.unwrap();
    let sql = sqlx::AssertSqlSafe(format!("{newer} x'00', 0)"));
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    let postgres = Setup::postgres().await;
    let mut connection = PgConnection::connect(&postgres.url).await.unwrap();
    let sql = sqlx::AssertSqlSafe(format!("{newer} '\\x00', 0)"));
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    for setup in [file, postgres] {
        let error = Ledger::open(&setup.url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LedgerInUse);
        let told = error.to_string();
        assert!(
            told.contains("version 9") && told.contains("upgrade"),
            "{told}"
        );
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_prepare_the_tables_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("sale.db").display());
    for url in [file, PostgresServer::shared().create_database()] {
        let open = |_| {
            let url = url.clone();
            tokio::spawn(async move { open_patiently(&url).await })
        };
        let opening: Vec<_> = (0..6).map(open).collect();
        for opened in opening {
            opened.await.unwrap();
        }
    }
}

/// On a crowded disk, the others may write for longer than one waits for them.
async fn open_patiently(url: &str) -> Ledger {
    for _ in 0..10 {
        match Ledger::open(url).await {
            Err(error) if error.to_string().ends_with("try again") => {}
            opened => return opened.unwrap(),
        }
    }
    panic!("the others never stopped writing");
}

#[tenure_testkit::test]
async fn a_database_may_be_shared_with_others() {
    let url = PostgresServer::shared().create_database();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    // Another program that keeps its versions where sqlx does by itself.
    let theirs = "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, \
                  installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), success BOOLEAN NOT NULL, \
                  checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL); \
                  INSERT INTO _sqlx_migrations VALUES (7, 'theirs', now(), true, '\\x00', 0); \
                  CREATE TABLE orders (id INT)";
    sqlx::raw_sql(theirs)
        .execute(&mut connection)
        .await
        .unwrap();
    let ledger = Ledger::open(&url).await.unwrap();
    assert_eq!(ledger.items(&[]).await.unwrap(), []);
}

#[tenure_testkit::test]
async fn a_ledger_in_memory_is_alone_anyway_and_one_on_postgres_never() {
    let memory = Setup::memory().await;
    memory.ledger.claim_alone().await.unwrap();
    let postgres = Setup::postgres().await;
    let error = postgres.ledger.claim_alone().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LedgerInUse);
    assert!(error.to_string().contains("SQLite"), "{error}");
}

#[tenure_testkit::test]
async fn whoever_is_alone_keeps_other_processes_out() {
    let setup = Setup::file().await;
    setup.ledger.claim_alone().await.unwrap();
    let refused = other_process(&setup.url, false);
    let told = refused.expect_line(SECONDS);
    assert!(
        told.starts_with("LedgerInUse") && told.contains("another process"),
        "{told}"
    );
    // Its clones keep it, and the last of them lets go.
    let clone = setup.ledger.clone();
    drop(setup.ledger);
    let refused = other_process(&setup.url, false).expect_line(SECONDS);
    assert!(refused.starts_with("LedgerInUse"), "{refused}");
    drop(clone);
    assert_eq!(other_process(&setup.url, true).expect_line(SECONDS), "open");
}

#[tenure_testkit::test]
async fn nobody_is_alone_while_another_process_is_there() {
    let setup = Setup::file().await;
    let other = other_process(&setup.url, false);
    assert_eq!(other.expect_line(SECONDS), "open");
    let error = setup.ledger.claim_alone().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LedgerInUse);
    assert!(error.to_string().contains("uses it"), "{error}");
    // It ends with the process, however that ends.
    other.kill();
    setup.ledger.claim_alone().await.unwrap();
}

fn other_process(url: &str, alone: bool) -> ClientProcess {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "ledger::opening::a_process_that_uses_the_ledger"])
        .args(["--ignored", "--nocapture", "--quiet"])
        .env(URL, url);
    if alone {
        command.env(ALONE, "1");
    }
    let process = ClientProcess::spawn(&command);
    // The test harness speaks first.
    while process
        .read_line(SECONDS)
        .is_some_and(|line| line != "begin")
    {}
    process
}

/// Not a test: what another process does.
#[tenure_testkit::test]
#[ignore = "run by the tests above, in a process of its own"]
async fn a_process_that_uses_the_ledger() {
    println!("\nbegin");
    let url = std::env::var(URL).unwrap();
    let opened = Ledger::open(url).await;
    let used = match &opened {
        Ok(ledger) if std::env::var_os(ALONE).is_some() => ledger.claim_alone().await,
        Ok(_) => Ok(()),
        Err(error) => {
            println!("{:?} {error}", error.kind());
            return;
        }
    };
    match used {
        Ok(()) => println!("open"),
        Err(error) => println!("{:?} {error}", error.kind()),
    }
    // Until the parent has seen enough.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}
