use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::Service;
use crate::command::tenure;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// They hold who bought what.
#[tenure_testkit::test]
fn the_files_of_the_own_ledger_belong_to_the_user_alone() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("tenure");
    // An older version created it for everybody.
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let service = Service::of(tenure(&["serve"]).env("XDG_DATA_HOME", data.path()));
    service.get("/api/v1/items").is(200);
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        assert_eq!(mode(&file.path()), 0o600, "{file:?}");
    }
    service.stop();
}

/// A group may have been allowed to read it, for backups.
#[tenure_testkit::test]
fn a_ledger_that_exists_keeps_its_mode() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("shop.db");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let ledger = format!("sqlite:{}", file.display());
    let service = Service::of(tenure(&["serve"]).args(["--ledger", &ledger]));
    service.get("/api/v1/items").is(200);
    for name in ["shop.db", "shop.db-wal", "shop.db-shm", "shop.db.lock"] {
        assert_eq!(mode(&data.path().join(name)), 0o640, "{name}");
    }
    service.stop();
}
