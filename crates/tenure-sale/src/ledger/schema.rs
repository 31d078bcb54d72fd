//! The ledger's tables, and how they come to be.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Connection as _, PgConnection, SqliteConnection};

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::fault::told;
use crate::ledger::place::Place;

/// Where the applied versions are written down. A database may be shared with others, who have a table
/// of their own for that.
const VERSIONS: &str = "sale_schema_versions";

static SQLITE: Migrator = sqlx::migrate!("migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("migrations/postgres");

/// Brings the tables up to date. A second process that does so at the same time waits.
pub(super) async fn prepare_sqlite(place: &Place, writer: &mut SqliteConnection) -> Result<()> {
    let doing = doing(place);
    let begun = writer.begin_with("BEGIN IMMEDIATE").await;
    let mut transaction = begun.map_err(|error| told(&doing, error))?;
    let done = own(&SQLITE)
        .run_direct(None, &mut *transaction, false)
        .await;
    done.map_err(|error| refused(place, &SQLITE, error))?;
    let committed = transaction.commit().await;
    committed.map_err(|error| told(&doing, error))
}

/// The same; here the migrator itself locks others out.
pub(super) async fn prepare_postgres(place: &Place, connection: &mut PgConnection) -> Result<()> {
    let done = own(&POSTGRES).run_direct(None, connection, false).await;
    done.map_err(|error| refused(place, &POSTGRES, error))
}

fn own(migrator: &Migrator) -> Migrator {
    let mut own = Migrator {
        migrations: migrator.migrations.clone(),
        ..Migrator::DEFAULT
    };
    own.dangerous_set_table_name(VERSIONS);
    own
}

fn doing(place: &Place) -> String {
    format!("prepare the tables of the ledger `{place}`")
}

fn refused(place: &Place, migrator: &Migrator, error: MigrateError) -> Error {
    let ours = migrator.iter().map(|step| step.version).max().unwrap_or(0);
    match error {
        MigrateError::VersionMissing(theirs) => {
            let message = format!(
                "cannot use the ledger `{place}`: its schema is of version {theirs} and this program \
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
