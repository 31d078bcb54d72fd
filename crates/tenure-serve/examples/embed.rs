//! Mounts Tenure's service into another axum program, below `/tenure`.
//!
//! `cargo run -p tenure-serve --example embed`, then open <http://127.0.0.1:8080/tenure/>.
//! With `-- --check` it asks its own service once and ends.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tenure::Tenure;
use tenure_serve::{App, Parts, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Locks inside this process; `redis://127.0.0.1` for those of a server.
const URL: &str = "memory://embed";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let is_check = std::env::args().any(|arg| arg == "--check");
    let port = if is_check { 0 } else { 8080 };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;

    // A lease must keep its id: no hand-off inside the process.
    let tenure = Tenure::builder(URL).hand_off(false).connect().await?;
    let settings = Settings {
        address,
        base_path: "/tenure".to_owned(),
        ..Settings::default()
    };
    let app = App::new(settings, Parts::new(tenure.as_locks().clone(), [URL]));

    let router = Router::new()
        .route("/", get(|| async { "a shop of its own\n" }))
        .merge(app.router());
    let background = tokio::spawn({
        let app = app.clone();
        async move { app.run_background().await }
    });
    // Where requests come from is what limits by address count.
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let stopping = {
        let app = app.clone();
        async move {
            if is_check {
                let answer = ask(address).await.unwrap_or_else(|error| error.to_string());
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            } else {
                let _ = tokio::signal::ctrl_c().await;
            }
            app.stop();
        }
    };
    axum::serve(listener, service)
        .with_graceful_shutdown(stopping)
        .await?;
    background.await?;
    Ok(())
}

/// Asks the mounted service what runs here.
async fn ask(address: SocketAddr) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /tenure/api/v1/about HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
