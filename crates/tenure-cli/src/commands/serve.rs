//! `tenure serve`: locks and sales over HTTP, and a page that shows them.

mod ledger;
mod limits;
mod listen;
pub mod token;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::FutureExt as _;
use serde::Serialize;
use tenure::Locks;
use tenure_demo::item::stock_demo;
use tenure_sale::{ConsumerOptions, Sale};
use tenure_serve::{Access, App, BrokenLocks, Log, Parts, Settings};
use tenure_view::output::{complain, say, say_json};
use tenure_view::time;
use tokio::net::TcpListener;

use self::limits::LimitArgs;
use super::interrupt;
use crate::exit::Exit;
use crate::server::{Server, ServerArgs};

/// How long the lock client may take to shut down.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(300);

const EXAMPLES: &str = "\
Examples:
  tenure serve                              no server needed: open http://127.0.0.1:8080
  tenure serve --url redis://127.0.0.1      the locks of a Redis server, for any language
  tenure serve --url redis://127.0.0.1 --ledger postgres://shop@db/shop --listen 8081
  tenure serve --listen 0.0.0.0:8080 --token-file /etc/tenure.token

A lock from the shell:
  curl -X POST http://127.0.0.1:8080/api/v1/locks/nightly -H 'content-type: application/json' \\
    -d '{\"ttl_ms\": 30000, \"wait_ms\": 5000}'

Without --url, locks and stock live in this process; orders are kept in a file. With --url, any
number of instances serve the same locks, and with --ledger the same sales.";

/// Serve locks and sales over HTTP, with a web page
///
/// /openapi.json describes the API. Without a token it listens on localhost only.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct ServeArgs {
    /// Port, or address and port, to listen on; port 0 picks a free one
    #[arg(
        short,
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "TENURE_LISTEN"
    )]
    #[arg(value_parser = listen::parse)]
    listen: std::net::SocketAddr,

    /// Database for orders: `postgres://user@host/db`, `sqlite:file`, `sqlite::memory:` [env:
    /// `TENURE_LEDGER`]
    ///
    /// Without --url, the default is a file in the user's data directory; with --url but no ledger,
    /// sales are off. For a password, put the URL into the variable or, as `ledger`, into the
    /// configuration file, or use PGPASSWORD or ~/.pgpass.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    ledger: Option<String>,

    /// Do not consume orders: run `tenure sale consume` elsewhere
    #[arg(long)]
    no_consumer: bool,

    /// Take over orders of a consumer that was not heard of for this long
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = time::parse)]
    dead_after: Duration,

    /// Prefix of every path, such as `/tenure`, for a proxy that does not strip it
    #[arg(long, value_name = "PATH", default_value = "", value_parser = listen::base_path)]
    base_path: String,

    /// Put 5000 of item 1001 on sale, and serve the classic broken locks at
    /// /order/v1/submitOrder/v0 to v4
    #[arg(long)]
    demo: bool,

    /// Print the address as JSON
    #[arg(long)]
    json: bool,

    /// File whose first line is the token that requests must send [env: `TENURE_TOKEN` holds the
    /// token]
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    token_file: Option<PathBuf>,

    /// Accept requests from other machines without a token
    #[arg(long, help_heading = "Access")]
    without_token: bool,

    /// Accepted Host header where there is no token; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Access")]
    host_name: Vec<String>,

    /// Allow releasing locks of others and changing items and stock
    #[arg(long, help_heading = "Access")]
    allow_admin: bool,

    /// Refuse all changes and do not consume orders
    #[arg(long, help_heading = "Access", conflicts_with_all = ["allow_admin", "demo"])]
    read_only: bool,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct Listening {
    url: String,
    locks: String,
    ledger: Option<String>,
}

pub fn run(args: &ServeArgs) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime: out of threads or file descriptors?")?;
    let exit = runtime.block_on(serve(args));
    runtime.shutdown_background();
    exit
}

async fn serve(args: &ServeArgs) -> Result<Exit> {
    let token = token::find(args.token_file.as_deref())?;
    listen::check(args.listen, token.is_some() || args.without_token)?;
    let server = args.server.resolve_or("memory://serve")?;
    let server = server.about("command", "tenure serve");
    let ledger = ledger::find(args.ledger.as_deref(), &server)?;
    let (listener, address) = listen::bind(args.listen)?;
    let locks = server.connect_for_service().await?;
    let sale = ledger::open(ledger.as_deref(), &server).await?;
    let broken_locks = demonstrate(args, &server, sale.as_ref()).await?;
    let settings = Settings {
        access: Access {
            token,
            host_names: args.host_name.clone(),
            admin: args.allow_admin,
            read_only: args.read_only,
        },
        limits: args.limits.settings(),
        demo: args.demo,
        consumer: (!args.no_consumer && !args.read_only)
            .then(|| ConsumerOptions::default().dead_after(args.dead_after)),
        address,
        base_path: args.base_path.clone(),
        ledger: ledger.as_deref().map(ledger::shown),
        log: Log::default(),
    };
    // A program that reads the address may stop the service at once: handle signals first.
    let mut ending = Box::pin(interrupt::asked_to_end());
    let _ = (&mut ending).now_or_never();
    print_addresses(args, &settings, &server.place())?;
    let parts = Parts {
        locks: locks.clone(),
        urls: server.urls().to_vec(),
        sale,
        broken_locks,
    };
    let app = App::new(settings, parts);
    Ok(until_asked(&app, listener, &locks, ending).await)
}

/// In demo mode an item is on sale, and the classic broken locks are served.
async fn demonstrate(
    args: &ServeArgs,
    server: &Server,
    sale: Option<&Sale>,
) -> Result<Option<BrokenLocks>> {
    if !args.demo {
        return Ok(None);
    }
    if let Some(sale) = sale {
        let stocked = stock_demo(sale).await;
        stocked.context("cannot create the demo item")?;
    }
    // A stock needs one server.
    match server.urls() {
        [url] => BrokenLocks::open(url).await.map(Some),
        _ => Ok(None),
    }
}

/// Serves until a signal arrives.
async fn until_asked(
    app: &App,
    listener: TcpListener,
    locks: &Locks,
    ending: impl Future<Output = Exit>,
) -> Exit {
    let serving = app.serve(listener);
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return Exit::Done,
        _ = ending => {}
    }
    complain("tenure: stopping");
    app.stop();
    serving.await;
    let _ = locks.shutdown(SHUTDOWN_LIMIT).await;
    Exit::Done
}

/// Prints the addresses.
fn print_addresses(args: &ServeArgs, settings: &Settings, locks: &str) -> Result<()> {
    let Settings {
        address,
        base_path,
        ledger,
        ..
    } = settings;
    let url = format!("http://{address}{base_path}");
    if args.json {
        return Ok(say_json(&Listening {
            url,
            locks: locks.to_owned(),
            ledger: ledger.clone(),
        })?);
    }
    say(format_args!("tenure: serving at {url}"))?;
    say(format_args!("  page    {url}/"))?;
    say(format_args!(
        "  API     {url}/api/v1, description at {url}/openapi.json"
    ))?;
    say(format_args!("  locks   {locks}"))?;
    let ledger = ledger.as_deref();
    say(format_args!(
        "  ledger  {}",
        ledger.unwrap_or("none, sales are off: give --ledger")
    ))?;
    Ok(())
}
