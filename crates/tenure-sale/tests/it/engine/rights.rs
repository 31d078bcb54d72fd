//! Single commands that an ACL forbids.

use tenure_sale::ErrorKind;

use super::stage::{Stage, agrees, ask, buy, consume, fails, left, on_sale, request, settled};

on! { [redis_sqlite, spread_sqlite]:
    an_order_that_cannot_be_written_is_refused_as_a_whole,
}

/// The script adds the order to the queue first: without the right to write what follows, it would be
/// confirmed although the buyer was told that nothing was ordered.
async fn an_order_that_cannot_be_written_is_refused_as_a_whole(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    // The gate's scripts are known, and the buyer's shelf has units.
    buy(&sale, "anna").await;
    for command in ["hset", "xadd"] {
        let acl = |sign: char| {
            let rule = format!("{sign}{command}");
            stage.redis().run(&["ACL", "SETUSER", "default", &rule]);
        };
        acl('-');
        fails(
            sale.submit(&request("ben", command)).await,
            ErrorKind::Store,
        );
        acl('+');
        let standing = sale.gate().standing("i").await.unwrap().unwrap();
        assert_eq!(standing.queued, 1, "without `{command}`");
        assert_eq!(left(&sale).await, 9, "without `{command}`");
    }
    let _consumer = consume(&sale);
    let outcome = ask(&sale, "ben", "hset").await;
    let order = outcome.order().expect("the gate works again").clone();
    settled(&sale, &order).await;
    agrees(&sale).await;
}
