//! The location of a sale: its gate and its ledger.

use anyhow::{Context, Result};
use tenure_sale::{ErrorKind, Sale};

use crate::exit::Failed;
use crate::runtime;
use crate::server::{Server, ServerArgs};

/// Options of every command about sales.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaceArgs {
    /// Database for orders: `postgres://user@host/db`, `sqlite:file` [env: `TENURE_LEDGER`]
    ///
    /// Missing tables are created. For a password, put the URL into the variable or, as `ledger`,
    /// into the configuration file, or use PGPASSWORD or ~/.pgpass. A sale uses one --url.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    ledger: Option<String>,

    /// Print the result as JSON
    #[arg(long, help_heading = None::<&str>)]
    pub json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl PlaceArgs {
    /// Opens the sale and runs an operation on it.
    pub fn with_sale<T>(&self, work: impl AsyncFnOnce(Sale) -> Result<T>) -> Result<T> {
        let server = self.server.resolve()?;
        let ledger = self.ledger_url(&server)?;
        let [gate] = server.urls() else {
            return Err(Failed::config(format!(
                "a sale cannot use the independent servers `{}`: its stock needs one gate; give \
                 one URL",
                server.place()
            ))
            .into());
        };
        if gate.starts_with("memory:") {
            return Err(Failed::config(
                "cannot run a sale on `memory://`: such a gate exists in one process only; use the \
                 URL of a Redis server",
            )
            .into());
        }
        runtime::block_on(async {
            let opened = Sale::open(gate, &ledger).await;
            let sale =
                opened.with_context(|| format!("cannot open the sale at `{}`", server.place()))?;
            work(sale).await
        })
    }

    fn ledger_url(&self, server: &Server) -> Result<String> {
        let Some(url) = server.ledger_url(self.ledger.as_deref())? else {
            return Err(Failed::usage(
                "no ledger given: use --ledger, TENURE_LEDGER or `ledger` in the configuration \
                 file, such as `sqlite:shop.db` or `postgres://user@host/database`",
            )
            .into());
        };
        if url.ends_with(":memory:") {
            return Err(Failed::config(
                "cannot use `sqlite::memory:` as the ledger: it ends with this command; use a \
                 file, such as `sqlite:shop.db`",
            )
            .into());
        }
        Ok(url)
    }
}

/// Whether the operation may have succeeded despite the error.
pub fn is_unknown(error: &tenure_sale::Error) -> bool {
    let unknown = [ErrorKind::Store, ErrorKind::Ledger, ErrorKind::Stale];
    unknown.contains(&error.kind())
}
