//! Whether every item sells again soon after everything was healed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_sale::{Request, Sale};
use tenure_testkit::sale::Recorder;

use crate::client::submit;
use crate::items::OnSale;
use crate::patience::stretched;

/// So soon, where processes need not wait for a core.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// Who asks. No other buyer is called so.
const BUYER: &str = "clerk";

/// Asks for a unit of each item until there is an answer, which may be that it is sold out. Returns how
/// long that took for the last one.
pub async fn sells_again(
    sale: &Sale,
    items: &[OnSale],
    recorder: &Arc<Recorder>,
    healed: Instant,
) -> (Duration, Vec<String>) {
    let asking = items.iter().map(|item| {
        let (sale, recorder, item) = (sale.clone(), Arc::clone(recorder), item.name);
        tokio::spawn(async move { ask(&sale, &recorder, item, healed).await })
    });
    let asking: Vec<_> = asking.collect();
    let mut complaints = Vec::new();
    for answer in asking {
        complaints.extend(answer.await.unwrap());
    }
    (healed.elapsed(), complaints)
}

async fn ask(sale: &Sale, recorder: &Recorder, item: &str, healed: Instant) -> Option<String> {
    let mut number = 0;
    loop {
        // Each time another request: what became of the last one is another question.
        number += 1;
        let request = Request::new(item, BUYER, format!("again-{number}")).unwrap();
        let asked = recorder.ask(item, BUYER, request.id(), 1);
        if submit(sale, &request, asked).await.is_settled() {
            return None;
        }
        let waited = healed.elapsed();
        if waited > stretched(LIMIT) {
            return Some(format!("`{item}` did not sell again within {waited:.1?}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
