//! `#[locked]`: functions that run under a lock.
//!
//! ```sh
//! cargo run -p tenure-macros --example locked
//! ```
//!
//! It prints:
//!
//! ```text
//! order 7 is shipped
//! order 7 is busy: lock `order:7` was not free
//! order 8 is shipped
//! ```

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use tenure::{ErrorKind, Tenure};
use tenure_macros::locked;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run("memory://", &mut std::io::stdout()).await
}

pub(crate) async fn run(url: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let shop = Shop {
        // Ships only when told to, so that two of them meet.
        go: Notify::new(),
        tenure: Tenure::connect(url).await?,
    };
    let (shipped, busy) = tokio::join!(shop.ship(7), async {
        // The first one has the lock.
        while !shop.tenure.lock("order:7").is_locked().await? {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let busy = shop.ship(7).await;
        shop.go.notify_one();
        Ok::<_, tenure::Error>(busy)
    });
    writeln!(out, "{}", shipped?)?;
    match busy? {
        Err(error) if error.kind() == ErrorKind::Busy => {
            let error = error.to_string();
            let brief = error.split(" within").next().unwrap_or_default();
            writeln!(out, "order 7 is busy: {brief}")?;
        }
        other => return Err(format!("not busy: {other:?}").into()),
    }
    shop.go.notify_one();
    writeln!(out, "{}", shop.ship(8).await?)?;
    Ok(())
}

struct Shop {
    tenure: Tenure,
    go: Notify,
}

impl Shop {
    /// Two calls for one order never overlap, in whatever process.
    #[locked("order:{id}", client = self.tenure, wait = "0s")]
    async fn ship(&self, id: u64) -> Result<String, tenure::Error> {
        self.go.notified().await;
        Ok(format!("order {id} is shipped"))
    }
}
