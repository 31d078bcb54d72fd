//! `tenure --help` and `tenure --version`.

use crate::command::{run, tenure};

#[tenure_testkit::test]
fn the_long_help_has_examples_and_exit_codes() {
    let ended = run(&mut tenure(&["--help"]));
    ended.ended_with(0);
    ended.says("Usage: tenure <COMMAND>");
    ended.says("tenure run nightly -- /opt/backup.sh");
    ended.says("69   the server is unreachable");
    assert_eq!(ended.stderr, "");
}

#[tenure_testkit::test]
fn the_short_help_is_short() {
    let ended = run(&mut tenure(&["-h"]));
    ended.ended_with(0);
    ended.says("demo");
    assert!(!ended.stdout.contains("Examples"), "{ended}");
}

#[tenure_testkit::test]
fn the_help_of_the_demo_tells_its_options_but_no_url_of_the_environment() {
    let mut command = tenure(&["demo", "--help"]);
    let ended = run(command.env("TENURE_URL", "redis://:secret@h/"));
    ended.ended_with(0);
    for option in ["--url", "--stock", "--buyers", "--clients", "TENURE_URL"] {
        ended.says(option);
    }
    ended.keeps("secret");
}

#[tenure_testkit::test]
fn the_version_is_that_of_the_package() {
    let ended = run(&mut tenure(&["--version"]));
    ended.ended_with(0);
    assert_eq!(
        ended.stdout,
        format!("tenure {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[tenure_testkit::test]
fn without_a_command_it_shows_the_help_and_is_a_usage_error() {
    let ended = run(&mut tenure(&[]));
    ended.ended_with(64);
    ended.complains("Usage: tenure <COMMAND>");
    assert_eq!(ended.stdout, "");
}

#[tenure_testkit::test]
fn locks_of_sales_cannot_be_acquired() {
    let name = "sale:{sku-7}:rebuild";
    for arguments in [
        &["run", name, "--", "true"][..],
        &["run", "job", "--also", name, "--", "true"],
        &["run", "-j", "2", name, "--", "true"],
        &["elect", name, "--", "true"],
        &["acquire", name],
    ] {
        let mut command = tenure(arguments);
        let ended = run(command.env("TENURE_URL", "memory://"));
        ended.ended_with(64);
        ended.complains("names with the prefix `sale:{` are locks of sales");
    }
}
