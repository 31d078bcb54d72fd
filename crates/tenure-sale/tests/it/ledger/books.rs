//! Looking into the database itself, past the ledger.

use sqlx::{Connection as _, PgConnection, Row as _, SqliteConnection};

use super::setup::Setup;

/// What the journal says is sold, what the orders say, and what the item says.
const BALANCE: &str = "SELECT i.name, i.sold, \
    (SELECT CAST(coalesce(sum(CASE kind WHEN 'reserve' THEN units ELSE -units END), 0) AS BIGINT) \
     FROM sale_journal AS j WHERE j.item = i.name), \
    (SELECT CAST(coalesce(sum(units), 0) AS BIGINT) FROM sale_orders AS o \
     WHERE o.item = i.name AND o.state IN ('reserved', 'paid', 'dead')) FROM sale_items AS i";

/// Everything that the ledger says about units agrees.
pub(super) async fn assert_balanced(setup: &Setup) {
    for (name, sold, journal, orders) in balances(setup).await {
        assert_eq!(sold, journal, "the journal of `{name}`");
        assert_eq!(sold, orders, "the orders of `{name}`");
    }
}

async fn balances(setup: &Setup) -> Vec<(String, i64, i64, i64)> {
    if setup.url.starts_with("postgres") {
        let mut connection = PgConnection::connect(&setup.url).await.unwrap();
        let rows = sqlx::query(BALANCE)
            .fetch_all(&mut connection)
            .await
            .unwrap();
        let row = |row: &sqlx::postgres::PgRow| (row.get(0), row.get(1), row.get(2), row.get(3));
        rows.iter().map(row).collect()
    } else if setup.url.ends_with(":memory:") {
        // No other process can read it.
        Vec::new()
    } else {
        let mut connection = SqliteConnection::connect(&setup.url).await.unwrap();
        let rows = sqlx::query(BALANCE)
            .fetch_all(&mut connection)
            .await
            .unwrap();
        let row = |row: &sqlx::sqlite::SqliteRow| (row.get(0), row.get(1), row.get(2), row.get(3));
        rows.iter().map(row).collect()
    }
}
