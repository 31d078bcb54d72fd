//! The examples run, and print what their headers say.

use tenure_testkit::RedisServer;

use crate::stage::Stage;

#[path = "../../examples/fence_file.rs"]
#[expect(dead_code, reason = "its `main` is not run here")]
mod fence_file;
#[path = "../../examples/fence_redis.rs"]
#[expect(dead_code, reason = "its `main` is not run here")]
mod fence_redis;
#[path = "../../examples/fence_sql.rs"]
#[expect(dead_code, reason = "its `main` is not run here")]
mod fence_sql;
#[path = "../../examples/hello.rs"]
#[expect(dead_code, reason = "its `main` is not run here")]
mod hello;

#[tenure_testkit::test]
async fn hello() {
    for stage in [Stage::memory(), Stage::redis()] {
        let mut out = Vec::new();
        hello::run(&stage.url(), &mut out).await.unwrap();
        prints_what_it_says(&out, include_str!("../../examples/hello.rs"));
    }
}

#[test]
fn fence_sql() {
    let mut out = Vec::new();
    fence_sql::run(&mut out).unwrap();
    prints_what_it_says(&out, include_str!("../../examples/fence_sql.rs"));
}

#[tenure_testkit::test]
async fn fence_redis() {
    let server = RedisServer::start();
    let mut out = Vec::new();
    fence_redis::run(&server.url(), &mut out).await.unwrap();
    prints_what_it_says(&out, include_str!("../../examples/fence_redis.rs"));
    let left = server.client().command(&["KEYS", "example:*"]);
    assert!(left.array().is_empty(), "{left:?}");
}

#[test]
fn fence_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    fence_file::run(&dir.path().join("report"), &mut out).unwrap();
    prints_what_it_says(&out, include_str!("../../examples/fence_file.rs"));
}

#[test]
fn the_index_names_every_example() {
    let index = include_str!("../../examples/README.md");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_named = name == "README.md" || index.contains(&format!("]({name})"));
        assert!(is_named, "`{name}` is missing in the index");
    }
}

/// Compares the output with the block after "It prints:" in the example's header. Numbers differ
/// from run to run.
#[track_caller]
fn prints_what_it_says(out: &[u8], source: &str) {
    let said = source.split("//! ```text\n").nth(1).unwrap();
    let said = said.split("//! ```\n").next().unwrap();
    let said: String = said
        .lines()
        .map(|line| line.replacen("//! ", "", 1) + "\n")
        .collect();
    let printed = String::from_utf8(out.to_vec()).unwrap();
    assert_eq!(without_fences(&printed), without_fences(&said));
}

/// The text with fences, which have many digits, and times made equal.
fn without_fences(text: &str) -> String {
    let mask = |word: &str| {
        let number = word.trim_end_matches([',', 's']);
        match number.parse::<f64>() {
            Ok(number) if number > 1e6 => word.replace(|c: char| c.is_ascii_digit(), ""),
            Ok(_) if word.ends_with('s') => "a while".to_owned(),
            _ => word.to_owned(),
        }
    };
    let line = |line: &str| line.split(' ').map(mask).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
