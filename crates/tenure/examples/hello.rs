//! Hello: acquire a lock, print its fence, release it.
//!
//! Run it without a server, or on one:
//!
//! ```sh
//! cargo run -p tenure --example hello
//! cargo run -p tenure --example hello -- redis://127.0.0.1/
//! ```
//!
//! It prints:
//!
//! ```text
//! holding `order:1001` with fence 1763244000000000, for 29.7s unless renewed
//! somebody else would have to wait
//! released: WasHeld
//! and the next fence is greater
//! ```

use std::error::Error;
use std::io::Write;

use tenure::Tenure;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    run(
        url.as_deref().unwrap_or("memory://"),
        &mut std::io::stdout(),
    )
    .await
}

pub(crate) async fn run(url: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let tenure = Tenure::connect(url).await?;

    // Waits until the lock is free. It is renewed for as long as the guard lives.
    let guard = tenure.lock("order:1001").acquire().await?;
    let fence = guard.fence();
    let left = guard.remaining();
    writeln!(
        out,
        "holding `{}` with fence {fence}, for {left:.1?} unless renewed",
        guard.name()
    )?;

    // Busy is an outcome, not an error.
    if tenure.lock("order:1001").try_acquire().await?.is_none() {
        writeln!(out, "somebody else would have to wait")?;
    }

    // Here the protected work is done; show `fence` to whatever it writes to.

    // Dropping the guard would release too, but cannot say what happened.
    let released = guard.release().await?;
    writeln!(out, "released: {released:?}")?;

    let next = tenure.lock("order:1001").acquire().await?;
    if next.fence() > fence {
        writeln!(out, "and the next fence is greater")?;
    }
    next.release().await?;
    Ok(())
}
