//! What a buyer does with an order: looks at it, pays, cancels, sometimes both at once.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_sale::{Error, ErrorKind, Order, OrderId, Sale};
use tenure_testkit::sale::{Answer, Kind, PendingOperation, Recorder};

use super::instance::Shop;
use crate::items::OnSale;

pub async fn follow(shop: &Shop, item: &OnSale, order: &str, rng: &mut StdRng) {
    let id: OrderId = order.parse().unwrap();
    pause(rng).await;
    act(shop, Kind::Look, &id).await;
    let kinds: &[Kind] = if item.cancels {
        &[Kind::Pay, Kind::Cancel, Kind::Pay, Kind::Look]
    } else {
        &[Kind::Pay, Kind::Look]
    };
    let first = kinds[rng.random_range(0..kinds.len())];
    let second = kinds[rng.random_range(0..kinds.len())];
    if rng.random_bool(0.3) {
        tokio::join!(act(shop, first, &id), act(shop, second, &id));
    } else {
        act(shop, first, &id).await;
        pause(rng).await;
        act(shop, second, &id).await;
    }
    pause(rng).await;
    act(shop, Kind::Look, &id).await;
}

/// About as long as an order of the briefest item lives.
async fn pause(rng: &mut StdRng) {
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..250))).await;
}

async fn act(shop: &Shop, kind: Kind, id: &OrderId) {
    if kind == Kind::Look {
        // What it cannot say now it says in the end.
        let _ = look(&shop.sale, &shop.recorder, id).await;
        return;
    }
    let asked = shop.recorder.about(kind, id.item(), &id.to_string());
    let done = match kind {
        Kind::Pay => shop.sale.pay(id).await,
        _ => shop.sale.cancel(id).await,
    };
    // The state that it is in now, whether or not that is what was wished for.
    let _ = tell(asked, done);
}

/// Looks at an order and writes down what was told.
pub async fn look(sale: &Sale, recorder: &Recorder, id: &OrderId) -> Result<(), Error> {
    let asked = recorder.about(Kind::Look, id.item(), &id.to_string());
    tell(asked, sale.order(id).await)
}

fn tell(asked: PendingOperation<'_>, told: Result<Order, Error>) -> Result<(), Error> {
    match told {
        Ok(order) => asked.answered(Answer::State, order.state.word(), None),
        Err(error) => {
            let (answer, word) = match error.kind() {
                ErrorKind::NoOrder => (Answer::Refused, "no-order".to_owned()),
                ErrorKind::Conflict => (Answer::Refused, "conflict".to_owned()),
                kind => (Answer::Unknown, format!("{kind:?}")),
            };
            asked.answered(answer, &word, None);
            return Err(error);
        }
    }
    Ok(())
}
