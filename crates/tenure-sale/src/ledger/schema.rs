//! The ledger's tables and their migrations.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{Connection as _, PgConnection, SqlStr, SqliteConnection};

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::fault::told;
use crate::ledger::place::Place;

/// The table of applied versions. A database may be shared with other programs, which have their
/// own.
const VERSIONS: &str = "sale_schema_versions";

/// The migrations, in order. They are not read by sqlx's macro, which would compile every database
/// driver a second time.
const SQLITE: &[Step] = &[
    Step {
        version: 1,
        description: "ledger",
        sql: include_str!("../../migrations/sqlite/0001_ledger.sql"),
    },
    Step {
        version: 2,
        description: "spread",
        sql: include_str!("../../migrations/sqlite/0002_spread.sql"),
    },
    Step {
        version: 3,
        description: "epochs",
        sql: include_str!("../../migrations/sqlite/0003_epochs.sql"),
    },
    Step {
        version: 4,
        description: "lost orders",
        sql: include_str!("../../migrations/sqlite/0004_lost.sql"),
    },
    Step {
        version: 5,
        description: "pairing",
        sql: include_str!("../../migrations/sqlite/0005_pairing.sql"),
    },
];
const POSTGRES: &[Step] = &[
    Step {
        version: 1,
        description: "ledger",
        sql: include_str!("../../migrations/postgres/0001_ledger.sql"),
    },
    Step {
        version: 2,
        description: "spread",
        sql: include_str!("../../migrations/postgres/0002_spread.sql"),
    },
    Step {
        version: 3,
        description: "epochs",
        sql: include_str!("../../migrations/postgres/0003_epochs.sql"),
    },
    Step {
        version: 4,
        description: "lost orders",
        sql: include_str!("../../migrations/postgres/0004_lost.sql"),
    },
    Step {
        version: 5,
        description: "pairing",
        sql: include_str!("../../migrations/postgres/0005_pairing.sql"),
    },
];

struct Step {
    version: i64,
    description: &'static str,
    sql: &'static str,
}

/// Migrates the tables. A second process that does so at the same time waits.
pub(super) async fn prepare_sqlite(place: &Place, writer: &mut SqliteConnection) -> Result<()> {
    let doing = doing(place);
    let begun = writer.begin_with("BEGIN IMMEDIATE").await;
    let mut transaction = begun.map_err(|error| told(&doing, error))?;
    let done = migrator(SQLITE)
        .run_direct(None, &mut *transaction, false)
        .await;
    done.map_err(|error| refused(place, SQLITE, error))?;
    let committed = transaction.commit().await;
    committed.map_err(|error| told(&doing, error))
}

/// The same; here the migrator itself takes a lock.
pub(super) async fn prepare_postgres(place: &Place, connection: &mut PgConnection) -> Result<()> {
    let done = migrator(POSTGRES).run_direct(None, connection, false).await;
    done.map_err(|error| refused(place, POSTGRES, error))
}

fn migrator(steps: &[Step]) -> Migrator {
    let migration = |step: &Step| {
        let sql = SqlStr::from_static(step.sql);
        let description = step.description.into();
        Migration::new(step.version, description, MigrationType::Simple, sql, false)
    };
    let mut migrator = Migrator::with_migrations(steps.iter().map(migration).collect());
    migrator.dangerous_set_table_name(VERSIONS);
    migrator
}

fn doing(place: &Place) -> String {
    format!("prepare the tables of the ledger `{place}`")
}

fn refused(place: &Place, steps: &[Step], error: MigrateError) -> Error {
    let ours = steps.iter().map(|step| step.version).max().unwrap_or(0);
    match error {
        MigrateError::VersionMissing(theirs) => {
            let message = format!(
                "cannot use the ledger `{place}`: its schema has version {theirs} and this program \
                 knows versions up to {ours}: upgrade the program"
            );
            Error::new(ErrorKind::LedgerInUse, message)
        }
        MigrateError::VersionMismatch(version) => {
            let message = format!(
                "cannot use the ledger `{place}`: version {version} of its schema was made by another \
                 program than this one"
            );
            Error::new(ErrorKind::LedgerInUse, message)
        }
        MigrateError::Execute(error) => told(&doing(place), error),
        other => {
            let message = format!("cannot {}: a step failed", doing(place));
            Error::new(ErrorKind::Ledger, message).with_source(other)
        }
    }
}
