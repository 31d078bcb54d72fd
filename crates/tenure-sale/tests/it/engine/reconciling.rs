//! Whether all tell the same story.

use tenure_sale::{ErrorKind, Mode, Sale};

use super::stage::{Stage, agrees, buy, drained, left, on_sale, reserve};

on! { [redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    drift_is_found_and_repaired,
}

on! { [memory_sqlite, redis_sqlite, spread_sqlite]:
    a_report_is_a_table,
}

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    an_undisturbed_sale_is_verified,
}

async fn drift_is_found_and_repaired(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 10).await;
    reserve(&sale, "anna").await;
    drained(&sale).await;
    agrees(&sale).await;
    // The gate is changed by hand.
    plant_units(&stage, "i", 5);
    assert_eq!(left(&sale).await, 14);
    let report = reconcile(&sale, Mode::DryRun).await;
    assert_eq!(report.drift(), Some(-5), "{report}");
    assert!(!report.is_clean() && !report.repaired, "{report}");
    assert!(report.to_string().contains("disagree"), "{report}");
    let drifting: Vec<u64> = report.drifting().map(|shelf| shelf.nth).collect();
    assert_eq!(drifting, if stage.spread > 1 { vec![0] } else { vec![] });
    let broken = sale.verify("i").await.unwrap().broken().join("\n");
    let named = broken.contains("shelf 0 has 5 units more");
    assert_eq!(named, stage.spread > 1, "{broken}");
    assert_eq!(left(&sale).await, 14);

    let report = reconcile(&sale, Mode::Repair).await;
    assert!(report.repaired && report.is_clean(), "{report}");
    assert_eq!((report.left, report.drift()), (Some(9), Some(0)));
    let report = reconcile(&sale, Mode::Repair).await;
    assert!(!report.repaired, "{report}");
}

async fn an_undisturbed_sale_is_verified(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 10).await;
    let order = reserve(&sale, "anna").await;
    reserve(&sale, "ben").await;
    sale.cancel(&order).await.unwrap();
    drained(&sale).await;
    let verdict = sale.verify("i").await.unwrap();
    assert!(verdict.holds() && verdict.report.settled, "{verdict:?}");
    assert_eq!((verdict.audit.sold, verdict.report.left), (1, Some(9)));
    let error = sale.verify("unknown").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoItem);
}

async fn a_report_is_a_table(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    for buyer in 0..3 {
        buy(&sale, &buyer.to_string()).await;
    }
    let report = reconcile(&sale, Mode::DryRun).await;
    assert!(report.settled && report.is_clean(), "{report}");
    let text = report.to_string();
    assert!(text.contains("total                 10"), "{text}");
    assert!(text.ends_with("0  all agree"), "{text}");
    // At a gate on Redis they were not consumed.
    let queued = if stage.redis.is_some() { 3 } else { 0 };
    assert_eq!((report.queued, report.item.sold), (queued, 3 - queued));
}

async fn reconcile(sale: &Sale, mode: Mode) -> tenure_sale::Report {
    sale.reconcile("i", mode).await.unwrap()
}

fn plant_units(stage: &Stage, item: &str, units: i64) {
    let mut client = stage.redis().client();
    let key = format!("tenure:sale:{{{item}}}:gate");
    client.command(&["HINCRBY", &key, "left", &units.to_string()]);
}
