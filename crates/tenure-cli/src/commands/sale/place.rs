//! Where a sale is: its gate and its ledger.

use anyhow::{Context, Result};
use tenure_sale::{ErrorKind, Sale};

use crate::exit::Failed;
use crate::runtime;
use crate::server::{Server, ServerArgs};

/// Options of every command about sales.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaceArgs {
    /// Where the orders are written: `postgres://user@host/db`, `sqlite:file` [env: `TENURE_LEDGER`]
    ///
    /// Its tables are made if they are missing. A password does not belong on a command line: put the
    /// URL into the variable or, as `ledger`, into the configuration file, or use PGPASSWORD or
    /// ~/.pgpass. A sale has one gate: one --url.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    ledger: Option<String>,

    /// Print the result as JSON, on one line
    #[arg(long, help_heading = None::<&str>)]
    pub json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl PlaceArgs {
    /// Opens the sale and does something with it.
    pub fn with_sale<T>(&self, work: impl AsyncFnOnce(Sale) -> Result<T>) -> Result<T> {
        let server = self.server.resolve()?;
        let ledger = self.ledger_url(&server)?;
        let [gate] = server.urls() else {
            return Err(Failed::config(format!(
                "a sale has one gate, and not the independent servers `{}`: its stock cannot be held \
                 by a majority; give one URL",
                server.place()
            ))
            .into());
        };
        if gate.starts_with("memory:") {
            return Err(Failed::config(
                "cannot hold a sale at `memory://`: such a gate belongs to one process and ends with \
                 it; give the URL of a Redis",
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
                "there is no ledger: give --ledger, TENURE_LEDGER or `ledger` in the configuration \
                 file, like `sqlite:shop.db` or `postgres://user@host/database`",
            )
            .into());
        };
        if url.ends_with(":memory:") {
            return Err(Failed::config(
                "cannot keep a ledger in `sqlite::memory:`: it ends with this command; name a file, \
                 as in `sqlite:shop.db`",
            )
            .into());
        }
        Ok(url)
    }
}

/// Whether what was asked for may have been done all the same.
pub fn is_unknown(error: &tenure_sale::Error) -> bool {
    let unknown = [ErrorKind::Store, ErrorKind::Ledger, ErrorKind::Stale];
    unknown.contains(&error.kind())
}
