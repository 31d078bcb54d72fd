//! The steps of docs/restoring.md, as they are written there.

use std::path::{Path, PathBuf};

use super::Shop;

/// The command lines of the page, after `tenure sale`.
fn steps() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/restoring.md");
    let page = std::fs::read_to_string(page).unwrap();
    let steps = page
        .lines()
        .filter_map(|line| line.trim().strip_prefix("$ tenure sale "));
    steps.map(str::to_owned).collect()
}

fn file(shop: &Shop) -> PathBuf {
    shop.ledger.strip_prefix("sqlite:").unwrap().into()
}

/// A database and its log, which no command has open.
fn copy(from: &Path, to: &Path) {
    for end in ["", "-wal", "-shm"] {
        let named = |path: &Path| format!("{}{end}", path.display());
        // What is there is of another time.
        let _ = std::fs::remove_file(named(to));
        if Path::new(&named(from)).exists() && end != "-shm" {
            std::fs::copy(named(from), named(to)).unwrap();
        }
    }
}

#[tenure_testkit::test]
fn the_steps_for_a_ledger_that_was_put_back_work() {
    let shop = Shop::new();
    shop.done("item create sku-7 --stock 10 --open");
    let confirmed = |buyer: &str| {
        shop.done(&format!("order submit sku-7 --buyer {buyer} --request r"));
        // It commits what is queued.
        shop.done("item rebuild sku-7");
    };
    confirmed("anna");
    let (file, backup) = (file(&shop), file(&shop).with_extension("backup"));
    copy(&file, &backup);
    for buyer in ["ben", "carl"] {
        shop.done(&format!("order submit sku-7 --buyer {buyer} --request r"));
    }
    shop.done("item rebuild sku-7");
    copy(&backup, &file);

    let steps = steps();
    assert_eq!(steps.len(), 6, "{steps:?}");
    let put_back = shop.run(&steps[0]);
    put_back.ended_with(1);
    assert!(
        format!("{put_back}").contains("the ledger was put back"),
        "{put_back}"
    );
    shop.done(&steps[1]);
    let letters = shop.done(&steps[2]);
    for told in ["sku-7.2.0", "ben", "sku-7.2.1", "carl"] {
        letters.says(told);
    }
    shop.done(&steps[3]);
    shop.done(&steps[4]);
    shop.done(&steps[5]);
    let item = shop.done("item show sku-7 --json");
    item.says(r#""left":8"#);
    shop.done("order show sku-7.2.0 --json")
        .says(r#""state":"reserved""#);
}
