//! The ledger of the service.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tenure_sale::Sale;

use crate::exit::Failed;
use crate::server::Server;

/// The ledger that was asked for; without a URL of Redis, a file of the user.
pub fn find(given: Option<&str>, server: &Server) -> Result<Option<String>> {
    match server.ledger_url(given)? {
        Some(url) => Ok(Some(url)),
        None if is_embedded(server) => own_file().map(Some),
        None => Ok(None),
    }
}

/// Opens the sale, if there is a ledger.
pub async fn open(ledger: Option<&str>, server: &Server) -> Result<Option<Sale>> {
    let Some(ledger) = ledger else {
        return Ok(None);
    };
    let [gate] = server.urls() else {
        return Err(Failed::config(format!(
            "a sale cannot use the independent servers `{}`: its stock needs one gate; give one \
             URL, or no ledger",
            server.place()
        ))
        .into());
    };
    let opened = Sale::open(gate, ledger).await;
    opened
        .with_context(|| format!("cannot open the sale at `{}`", server.place()))
        .map(Some)
}

/// The ledger as it may be shown.
pub fn shown(url: &str) -> String {
    if url.starts_with("sqlite:") {
        url.to_owned()
    } else {
        tenure::masked_url(url)
    }
}

fn is_embedded(server: &Server) -> bool {
    server.urls().iter().all(|url| url.starts_with("memory:"))
}

/// `tenure/shop.db` in the user's data directory.
fn own_file() -> Result<String> {
    let of_home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.filter(|path| path.is_absolute()).or_else(of_home);
    let Some(folder) = data.map(|data| data.join("tenure")) else {
        return Ok("sqlite::memory:".to_owned());
    };
    private_folder(&folder).map_err(|error| {
        let shown = folder.display();
        Failed::config(format!(
            "cannot create the directory `{shown}` for the ledger: {error}; give --ledger"
        ))
    })?;
    Ok(format!("sqlite:{}", folder.join("shop.db").display()))
}

/// Creates the folder, for this user alone: older versions let others read it.
fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}
