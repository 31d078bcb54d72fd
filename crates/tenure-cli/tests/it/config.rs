//! The configuration file and the environment.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use tenure_testkit::RedisServer;

use crate::command::{Ended, run, tenure};

/// A directory with a configuration file, and a ledger for what needs one.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// A command that asks the server for nothing but whether it is there.
    fn looks(&self, arguments: &[&str]) -> Command {
        let mut command = tenure(&["sale", "item", "ls"]);
        command.args(arguments);
        let ledger = format!("sqlite:{}", self.path("shop.db").display());
        command.env("TENURE_LEDGER", ledger);
        command
    }
}

/// A URL that is wrong is told at once, so where it came from can be seen without a server.
fn of(source: &str) -> String {
    format!("http://{source}/")
}

#[track_caller]
fn uses(command: &mut Command, source: &str) {
    let ended = run(command);
    ended.ended_with(78);
    ended.complains(&format!("`http://{source}/`"));
}

#[tenure_testkit::test]
fn options_go_before_the_environment_before_the_file_before_redis_url() {
    let files = Files::new();
    let config = files.write("t.toml", &format!("url = \"{}\"", of("file")));
    let mut command = files.looks(&["--url", &of("option"), "--config", &config]);
    command.env("TENURE_URL", of("variable"));
    uses(command.env("REDIS_URL", of("redis-url")), "option");
    let mut command = files.looks(&["--config", &config]);
    command.env("TENURE_URL", of("variable"));
    uses(command.env("REDIS_URL", of("redis-url")), "variable");
    let mut command = files.looks(&["--config", &config]);
    uses(command.env("REDIS_URL", of("redis-url")), "file");
    let mut command = files.looks(&[]);
    uses(command.env("REDIS_URL", of("redis-url")), "redis-url");
    // A variable that is empty says nothing.
    let mut command = files.looks(&[]);
    command.env("TENURE_URL", "");
    uses(command.env("REDIS_URL", of("redis-url")), "redis-url");
}

/// An unset variable in a script must not lead to another server.
#[tenure_testkit::test]
fn an_option_that_is_empty_is_refused() {
    let ended = run(&mut Files::new().looks(&["--url", ""]));
    ended.ended_with(64);
    ended.complains("tenure: empty URL (is a variable unset?)");
}

#[tenure_testkit::test]
fn a_password_file_that_cannot_be_read_is_told() {
    let files = Files::new();
    let ended = run(&mut files.looks(&["--password-file", "/nonexistent"]));
    ended.ended_with(78);
    ended.complains("cannot read the password file `/nonexistent`: No such file");
}

#[tenure_testkit::test]
fn the_file_is_that_of_the_option_the_variable_or_the_user() {
    let files = Files::new();
    let option = files.write("option.toml", &format!("url = \"{}\"", of("option")));
    let variable = files.write("variable.toml", &format!("url = \"{}\"", of("variable")));
    files.write(
        "xdg/tenure/config.toml",
        &format!("url = \"{}\"", of("xdg")),
    );
    files.write(
        "home/.config/tenure/config.toml",
        &format!("url = \"{}\"", of("home")),
    );
    let mut command = files.looks(&["--config", &option]);
    uses(command.env("TENURE_CONFIG", &variable), "option");
    let mut command = files.looks(&[]);
    command.env("XDG_CONFIG_HOME", files.path("xdg"));
    uses(command.env("TENURE_CONFIG", &variable), "variable");
    let mut command = files.looks(&[]);
    command.env("HOME", files.path("home"));
    uses(command.env("XDG_CONFIG_HOME", files.path("xdg")), "xdg");
    let mut command = files.looks(&[]);
    command.env("HOME", files.path("home"));
    uses(command.env_remove("XDG_CONFIG_HOME"), "home");
}

#[tenure_testkit::test]
fn the_ledger_comes_from_option_variable_or_file() {
    let files = Files::new();
    let config = files.write(
        "t.toml",
        "ledger = \"file:x\"\nurl = \"redis://127.0.0.1:1\"",
    );
    let server = RedisServer::start();
    let told = |command: &mut Command, source: &str| {
        let ended = run(command.env("TENURE_URL", server.url()));
        ended.ended_with(78);
        ended.complains(&format!("unknown kind of ledger `{source}`"));
    };
    let mut command = files.looks(&["--config", &config, "--ledger", "option:x"]);
    told(command.env("TENURE_LEDGER", "variable:x"), "option");
    let mut command = files.looks(&["--config", &config]);
    told(command.env("TENURE_LEDGER", "variable:x"), "variable");
    told(
        files
            .looks(&["--config", &config])
            .env_remove("TENURE_LEDGER"),
        "file",
    );
    let ended = run(files.looks(&[]).env_remove("TENURE_LEDGER"));
    ended.ended_with(64);
    ended.complains("tenure: no ledger given: use --ledger, TENURE_LEDGER or `ledger`");
}

#[tenure_testkit::test]
fn a_bad_file_is_told_by_its_line_and_never_by_what_it_holds() {
    let files = Files::new();
    let config = files.write("t.toml", "client_name = \"a\"\npasword = \"secret\"\n");
    let ended = run(&mut files.looks(&["--config", &config]));
    ended.ended_with(78);
    let told =
        format!("tenure: cannot use the configuration file `{config}`: line 2: unknown field");
    ended.complains(&told);
    ended.complains("`pasword`");
    ended.keeps("secret");
}

#[tenure_testkit::test]
fn a_file_that_cannot_be_read_is_told() {
    let files = Files::new();
    let missing = files.path("missing.toml");
    let ended = run(files.looks(&["--config"]).arg(&missing));
    ended.ended_with(78);
    let path = missing.display();
    let told = format!("tenure: cannot read the configuration file `{path}`: No such file");
    ended.complains(&told);
    // One that is there and is no file is not passed over.
    fs::create_dir_all(files.path("xdg/tenure/config.toml")).unwrap();
    let ended = run(files.looks(&[]).env("XDG_CONFIG_HOME", files.path("xdg")));
    ended.ended_with(78);
    ended.complains("cannot read the configuration file");
}

/// A server with a password, and a command that gets it in some way.
fn with_password(give: impl FnOnce(&Files, &RedisServer, &mut Command)) -> Ended {
    let files = Files::new();
    let server = RedisServer::builder().password("s3cr3t/@:").start();
    let mut command = files.looks(&[]);
    command.env("TENURE_URL", format!("redis://{}", server.addr()));
    give(&files, &server, &mut command);
    let ended = run(&mut command);
    ended.keeps("s3cr3t");
    ended
}

#[tenure_testkit::test]
fn a_password_comes_from_a_file_a_variable_or_a_url() {
    let ways: [fn(&Files, &RedisServer, &mut Command); 6] = [
        |files, _, command| {
            command.args(["--password-file", &files.write("p", "s3cr3t/@:\nmore\n")]);
            command.env("TENURE_PASSWORD", "wrong");
        },
        |_, _, command| {
            command.env("TENURE_PASSWORD", "s3cr3t/@:");
            command.env("REDISCLI_AUTH", "wrong");
        },
        |_, _, command| {
            command.env("REDISCLI_AUTH", "s3cr3t/@:");
        },
        |files, _, command| {
            let file = files.write("p", "s3cr3t/@:");
            let config = files.write("t.toml", &format!("password_file = \"{file}\""));
            command.env("TENURE_CONFIG", config);
        },
        |_, server, command| {
            let url = format!("redis://:s3cr3t%2F%40%3A@{}", server.addr());
            command.env("TENURE_URL", url);
            // One of its own goes before.
            command.env("TENURE_PASSWORD", "wrong");
        },
        |files, server, command| {
            let url = format!("redis://:s3cr3t%2F%40%3A@{}", server.addr());
            let config = files.write("t.toml", &format!("url = \"{url}\""));
            command.env_remove("TENURE_URL");
            command.env("TENURE_CONFIG", config);
        },
    ];
    for way in ways {
        with_password(way).ended_with(0);
    }
}

#[tenure_testkit::test]
fn a_password_that_is_missing_or_wrong_is_told_without_it() {
    let ended = with_password(|_, _, _| {});
    ended.ended_with(77);
    ended.complains("it requires a password: use `redis://:password@host`");
    let ended = with_password(|_, _, command| {
        command.env("TENURE_PASSWORD", "wr0ng");
    });
    ended.ended_with(77);
    ended.complains("wrong user or password");
    ended.keeps("wr0ng");
}

/// Nobody can tell where the password ends then.
#[tenure_testkit::test]
fn a_password_whose_host_was_forgotten_is_not_shown() {
    for url in [
        "redis://me:s3cr3t",
        "redis://:s3cr3t/0",
        "redis://me:s3/cr3t?x=s3cr3t",
    ] {
        let ended = run(tenure(&["ls"]).env("TENURE_URL", url));
        ended.ended_with(78);
        ended.complains(":***");
        ended.keeps("cr3t");
        let ended = run(&mut tenure(&["ls", "--url", url]));
        ended.ended_with(78);
        ended.keeps("cr3t");
    }
}

/// Some programs read it as a password. It is a user, and the error says so.
#[tenure_testkit::test]
fn what_stands_alone_before_the_host_is_a_user() {
    let ended = with_password(|_, server, command| {
        command.env("TENURE_URL", format!("redis://s3cr3t@{}", server.addr()));
    });
    ended.ended_with(77);
    ended.complains("(the user goes before the `:`)");
    let ended = with_password(|_, server, command| {
        command.env("TENURE_URL", format!("redis://default@{}", server.addr()));
        command.env("TENURE_PASSWORD", "s3cr3t/@:");
    });
    ended.ended_with(0);
}

/// The option, the variable and the file each lead to the same lock, whose key has the prefix.
#[tenure_testkit::test]
fn a_prefix_is_set_like_the_url() {
    let server = RedisServer::start();
    let files = Files::new();
    let config = files.write("t.toml", "prefix = \"file:\"");
    let acquire = |arguments: &[&str]| {
        let mut command = tenure(&["acquire", "n", "--ttl", "60s", "--config", &config]);
        command.args(arguments).env("TENURE_URL", server.url());
        command
    };
    let has = |key| server.client().command(&["EXISTS", key]).int() == 1;
    run(&mut acquire(&[])).ended_with(0);
    assert!(has("file:n"));
    run(acquire(&[]).env("TENURE_PREFIX", "variable:")).ended_with(0);
    assert!(has("variable:n"));
    let mut command = acquire(&["--prefix", "option:"]);
    run(command.env("TENURE_PREFIX", "variable:")).ended_with(0);
    assert!(has("option:n"));
    let mut command = tenure(&["ls"]);
    let url = format!("{}?prefix=url:", server.url());
    let ended = run(command
        .env("TENURE_URL", url)
        .env("TENURE_PREFIX", "variable:"));
    ended.ended_with(64);
    ended.complains("`prefix=url:`");
    let ended = run(tenure(&["ls", "--prefix", "a{b}"]).env("TENURE_URL", server.url()));
    ended.ended_with(78);
    ended.complains("it contains a brace");
}

/// Holders under another prefix are not there, and names are shown without it.
#[tenure_testkit::test]
fn listings_show_the_names_of_one_prefix() {
    let server = RedisServer::start();
    let of_team = |team: &str, arguments: &[&str]| {
        let mut command = tenure(arguments);
        command.env("TENURE_URL", server.url());
        command.env("TENURE_PREFIX", team);
        command
    };
    let acquire = run(&mut of_team("a:", &["acquire", "n", "--ttl", "60s"]));
    acquire.ended_with(0);
    assert!(!acquire.stdout.contains("a:n"), "{acquire}");
    let show = run(&mut of_team("a:", &["show", "n", "--json"]));
    show.ended_with(0);
    assert!(
        show.stdout.contains("\"n\"") && !show.stdout.contains("a:n"),
        "{show}"
    );
    let lease = acquire.stdout.trim();
    let is_locked = |team| run(&mut of_team(team, &["is-locked", "n"]));
    is_locked("a:").ended_with(0);
    is_locked("b:").ended_with(1);
    let release = |team| run(&mut of_team(team, &["release", "--lease", lease]));
    assert_ne!(release("b:").code, 0);
    release("a:").ended_with(0);
}
