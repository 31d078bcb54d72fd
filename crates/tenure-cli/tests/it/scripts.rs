//! `tenure acquire`, `renew`, `release`, `is-locked`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::blocking::Tenure;
use tenure::{ErrorKind, Lease};
use tenure_testkit::{Cluster, RedisServer, RedlockNodes, eventually};

use crate::command::{Ended, account, run, tenure};
use crate::masks::{host, without};

pub const SOON: Duration = Duration::from_secs(20);

/// The command at a server, or at several.
pub fn at(urls: &str, arguments: &[&str]) -> Command {
    let mut command = tenure(arguments);
    command.env("TENURE_URL", urls).env_remove("TENURE_LEASE");
    command
}

pub fn run_at(urls: &str, arguments: &[&str]) -> Ended {
    run(&mut at(urls, arguments))
}

fn acquired(urls: &str, arguments: &[&str]) -> (String, Lease) {
    let ended = run_at(urls, arguments);
    ended.ended_with(0);
    let token = ended.stdout.trim_end().to_owned();
    let lease = token.parse().unwrap();
    (token, lease)
}

/// A process that does not outlive a test that failed.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes, renews, releases; then it is gone.
fn goes_round(urls: &str) {
    let (token, lease) = acquired(urls, &["acquire", "a name", "--ttl", "20s"]);
    assert_eq!(lease.name().as_str(), "a name");
    assert_eq!(lease.ttl(), Duration::from_secs(20));
    run_at(urls, &["is-locked", "a name"]).ended_with(0);
    let shown = run_at(urls, &["show", "a name", "--json"]);
    shown.says(&format!("\"lease_id\":\"{}\"", lease.id()));
    shown.says(&format!("\"fence\":{}", lease.fence()));
    for _ in 0..2 {
        let ended = run_at(urls, &["renew", "--lease", &token]);
        ended.ended_with(0);
        assert_eq!(ended.stdout + &ended.stderr, "");
    }
    let ended = run_at(urls, &["release", "a name", "--lease", &token]);
    ended.ended_with(0);
    assert_eq!(ended.stdout + &ended.stderr, "");
    let ended = run_at(urls, &["is-locked", "a name"]);
    ended.ended_with(1);
    assert_eq!(ended.stdout + &ended.stderr, "");

    let ended = run_at(urls, &["release", "--lease", &token]);
    ended.ended_with(79);
    assert_eq!(
        ended.stderr,
        "tenure: lock `a name` was no longer held: its lease had expired, so the work was not \
         protected to its end\n"
    );
    let ended = run_at(urls, &["renew", "--lease", &token]);
    ended.ended_with(79);
    assert_eq!(
        ended.stderr,
        "tenure: lock `a name` is no longer held: the store no longer has it\n"
    );
}

#[tenure_testkit::test]
fn a_script_takes_renews_and_releases_a_lock() {
    goes_round(&RedisServer::start().url());
}

#[tenure_testkit::test]
fn a_script_takes_renews_and_releases_a_lock_on_a_majority() {
    let nodes = RedlockNodes::start();
    let urls = nodes.urls().join(" ");
    goes_round(&urls);
    // A restarted node must have heard of every lease, so none may be longer.
    let ended = run_at(&urls, &["acquire", "n", "--ttl", "31s"]);
    ended.ended_with(64);
    ended.complains("cannot use `31s` as ttl");
    let (_, lease) = acquired(&urls, &["acquire", "n"]);
    assert_eq!(lease.ttl(), Duration::from_secs(30));
}

#[tenure_testkit::test]
fn a_script_takes_renews_and_releases_a_lock_in_a_cluster() {
    goes_round(&Cluster::builder().steady().start().url());
}

#[tenure_testkit::test]
fn a_lease_that_is_not_renewed_ends_by_itself() {
    let server = RedisServer::start();
    let (token, _) = acquired(&server.url(), &["acquire", "n", "-t", "300ms"]);
    let is_free = || run_at(&server.url(), &["is-locked", "n"]).code == 1;
    assert!(eventually(SOON, is_free));
    let ended = run_at(&server.url(), &["renew", "--lease", &token]);
    ended.ended_with(79);
    run_at(&server.url(), &["is-locked", "n"]).ended_with(1);
}

#[tenure_testkit::test]
fn the_results_are_told_to_programs() {
    let server = RedisServer::start();
    let url = server.url();
    let taken = run_at(&url, &["acquire", "n", "--json", "--meta", "job=7"]);
    taken.ended_with(0);
    let varying = [
        "lease",
        "lease_id",
        "fence",
        "expires_at",
        "waited_ms",
        "pid",
        "left_ms",
        "client",
        "version",
    ];
    assert_eq!(
        without(&taken.stdout, &varying),
        "{\"name\":\"n\",\"lease\":#,\"lease_id\":#,\"fence\":#,\"ttl_ms\":60000,\
         \"expires_at\":#,\"waited_ms\":#}\n"
    );
    let busy = run_at(&url, &["acquire", "n", "--json", "-n"]);
    busy.ended_with(75);
    let expected = "{\"error\":\"not_acquired\",\"name\":\"n\",\"holder\":null,\"lease_id\":#,\
                    \"left_ms\":#,\"meta\":{\"host\":\"HOST\",\"job\":\"7\",\"pid\":#,\
                    \"user\":\"USER\"},\"waited_ms\":#}\n";
    // Which client it is takes a moment to find out.
    let holder =
        "{\"client\":#,\"host\":\"HOST\",\"pid\":#,\"name\":null,\"about\":{},\"version\":#}";
    assert_eq!(
        without(&busy.stdout, &varying).replace(&holder.replace("HOST", &host()), "null"),
        expected
            .replace("HOST", &host())
            .replace("USER", &account())
    );
    assert_eq!(busy.stderr, "");
    let taken: serde_json::Value = serde_json::from_str(&taken.stdout).unwrap();
    let lease = taken["lease"].as_str().unwrap();
    let renewed = run_at(&url, &["renew", "--lease", lease, "--ttl", "5m", "--json"]);
    assert_eq!(
        without(&renewed.stdout, &varying),
        "{\"name\":\"n\",\"renewed\":true,\"ttl_ms\":300000,\"expires_at\":#}\n"
    );
    for word in ["was_held", "already_gone"] {
        let released = run_at(&url, &["release", "--lease", lease, "--json"]);
        assert_eq!(
            released.stdout,
            format!("{{\"name\":\"n\",\"released\":\"{word}\"}}\n")
        );
    }
}

#[tenure_testkit::test]
fn exported_lines_survive_the_shell() {
    let server = RedisServer::start();
    let script = r#"
        lines=$("$tenure" acquire "it's \$HOME" --export) || exit
        eval "$lines"
        printf '%s\n' "$TENURE_NAME"
        test "${TENURE_LEASE%% *}" = "$TENURE_FENCE" || exit 9
        "$tenure" renew && "$tenure" release "it's \$HOME"
    "#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("TENURE_URL", server.url());
    shell.env("tenure", env!("CARGO_BIN_EXE_tenure"));
    let ended = run(&mut shell);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "it's $HOME\n");
    run_at(&server.url(), &["is-locked", "it's $HOME"]).ended_with(1);
}

#[tenure_testkit::test]
fn a_busy_lock_is_told_with_its_holder() {
    let server = RedisServer::start();
    let url = server.url();
    let (_, _) = acquired(&url, &["acquire", "n", "--meta", "pid=77"]);
    let ended = run_at(&url, &["acquire", "n", "-n"]);
    ended.ended_with(75);
    let (host, account) = (host(), account());
    assert_eq!(
        ended.stderr,
        format!("tenure: cannot acquire lock `n`: it is held by {host}:77 ({account})\n")
    );
    let ended = run_at(&url, &["acquire", "n", "-w", ".3", "-E", "3"]);
    ended.ended_with(3);
    ended.complains("; gave up after ");
    assert!(ended.took >= Duration::from_millis(300), "{ended}");
    let ended = run_at(&url, &["is-locked", "-v", "n"]);
    ended.ended_with(0);
    assert!(
        ended
            .stdout
            .starts_with(&format!("held by {host}:77 ({account}), ")),
        "{ended}"
    );
    let ended = run_at(&url, &["is-locked", "-v", "m"]);
    ended.ended_with(1);
    assert_eq!(ended.stdout, "free\n");
}

#[tenure_testkit::test]
fn a_lease_that_is_none_is_refused() {
    let url = RedisServer::start().url();
    let id = "tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:30000";
    let token = format!("7 30000 {id} n");
    let of_a_run = format!(
        "tenure: cannot use `{id}`: it is the id of a lease that its holder, such as `tenure run`, \
         renews and releases itself; to end it, use `tenure force-unlock NAME LEASE_ID`\n"
    );
    let cases: [(&[&str], &str); 4] = [
        (
            &[],
            "tenure: no lease given: use --lease, or TENURE_LEASE as set by `tenure acquire \
             --export`\n",
        ),
        (&["--lease", id], &of_a_run),
        (
            &["--lease", "soon"],
            "tenure: cannot read `soon` as a lease: expected `<fence> <ttl in \
             ms>[+<replicas>] <id> <name>`, as a lease prints itself\n",
        ),
        (
            &["m", "--lease", &token],
            "tenure: the lease belongs to lock `n`, not to `m`\n",
        ),
    ];
    for command in ["renew", "release"] {
        for (arguments, told) in cases {
            let ended = run_at(&url, &[&[command], arguments].concat());
            ended.ended_with(64);
            assert_eq!(ended.stderr, told);
        }
    }
}

#[tenure_testkit::test]
fn a_waiter_that_is_asked_to_end_leaves_the_queue() {
    let server = RedisServer::start();
    let (_, _) = acquired(&server.url(), &["acquire", "n"]);
    let mut command = at(&server.url(), &["acquire", "n"]);
    let mut waiting = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let mut client = server.client();
    let mut waiters = || client.command(&["ZCARD", "tenure:queue:{n}"]).int();
    assert!(eventually(SOON, || waiters() == 1));
    let pid = Pid::from_raw(waiting.0.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(waiting.0.wait().unwrap().code(), Some(143));
    assert_eq!(waiters(), 0);
}

#[tenure_testkit::test]
fn a_user_without_the_right_ends_with_77_and_the_server_s_words() {
    let server = RedisServer::builder()
        .user("limited", "on >secret ~other:* ~tenure:* &* +@all")
        .start();
    let url = format!("redis://limited:secret@{}/", server.addr());
    let token = "7 30000 tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:30000 n";
    let commands: [&[&str]; 5] = [
        &["acquire", "n", "-n"],
        &["renew", "--lease", token],
        &["release", "--lease", token],
        &["is-locked", "n"],
        &["show", "n"],
    ];
    for arguments in commands {
        let ended = run_at(&url, arguments);
        ended.ended_with(77);
        ended.complains("no permissions");
        ended.keeps("secret");
    }
    run_at(&url, &["acquire", "other:n"]).ended_with(0);
}

#[tenure_testkit::test]
fn a_key_that_is_not_a_lock_is_told_and_is_not_free() {
    let server = RedisServer::start();
    server.client().command(&["HSET", "h", "a", "b"]);
    for command in [&["is-locked", "h"][..], &["acquire", "h"], &["show", "h"]] {
        let ended = run_at(&server.url(), command);
        ended.ended_with(64);
        assert_eq!(
            ended.stderr,
            "tenure: cannot lock `h`: the key holds a hash, perhaps a lock of Redisson; use the \
             layout `redisson`, or another name\n"
        );
    }
}

#[tenure_testkit::test]
fn a_server_that_cannot_be_asked_ends_with_69() {
    let server = RedisServer::start();
    let (token, _) = acquired(&server.url(), &["acquire", "n"]);
    server.pause();
    for command in ["renew", "release"] {
        let ended = run_at(&server.url(), &[command, "--lease", &token]);
        ended.ended_with(69);
        ended.complains(server.url().trim_end_matches('/'));
        ended.complains("did not answer in time");
    }
    server.resume();
    run_at(&server.url(), &["release", "--lease", &token]).ended_with(0);
}

/// Whether any process has this on its command line.
fn is_running(words: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .into_iter()
        .any(|line| String::from_utf8_lossy(&line).contains(words))
}

#[tenure_testkit::test]
fn a_kept_lease_is_renewed_until_its_process_ends() {
    let server = RedisServer::start();
    let url = server.url();
    let mut sleep = Command::new("sleep");
    sleep.arg("600").stdout(Stdio::null()).stderr(Stdio::null());
    let mut script = Killed(sleep.spawn().unwrap());
    let pid = script.0.id().to_string();
    // The keeper has the name on its command line, but no secret: other users can see that.
    let name = format!("kept-{}", std::process::id());
    let arguments = ["acquire", &name, "--ttl", "1s", "--while", &pid];
    // It returns, though the keeper lives on: nothing of ours stays open.
    let (_, lease) = acquired(&url, &arguments);
    assert!(is_running(&name));
    assert!(!is_running(lease.id().as_str()));
    let ours = Tenure::connect(&url).unwrap();
    let waited = ours.lock(&name).wait(Duration::from_secs(3)).acquire();
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Busy);
    let holder = ours.lock(&name).holder().unwrap().unwrap();
    assert_eq!(&holder.lease, lease.id());
    script.0.kill().unwrap();
    assert!(eventually(SOON, || !ours.lock(&name).is_locked().unwrap()));
    assert!(eventually(SOON, || !is_running(&name)));
    drop(script);

    let (token, _) = acquired(&url, &["acquire", &name, "-t", "1s", "--while", "1"]);
    run_at(&url, &["release", "--lease", &token]).ended_with(0);
    assert!(eventually(SOON, || !is_running(&name)));
    run_at(&url, &["is-locked", &name]).ended_with(1);
    for nobody in ["0", "-7", "2147483647"] {
        let ended = run_at(&url, &["acquire", "n", &format!("--while={nobody}")]);
        ended.ended_with(64);
        ended.complains(&format!("cannot watch process `{nobody}`: "));
        run_at(&url, &["is-locked", "n"]).ended_with(1);
    }
}

/// Otherwise the script would go on unprotected.
#[tenure_testkit::test]
fn a_lease_that_nobody_reads_is_released_and_is_no_success() {
    let server = RedisServer::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = at(&server.url(), &["acquire", "n"]);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn();
    drop(command);
    let ended = child.unwrap().wait_with_output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(70), "{told}");
    assert!(
        told.starts_with("tenure: cannot print the lease of `n`, so it was released: "),
        "{told}"
    );
    assert_eq!(server.client().command(&["EXISTS", "n"]).int(), 0);
}

/// `eval` of nothing would be a success.
#[tenure_testkit::test]
fn what_is_exported_fails_if_the_lock_was_not_taken() {
    let server = RedisServer::start();
    let (_, _) = acquired(&server.url(), &["acquire", "n"]);
    let mut shell = Command::new("sh");
    let script = r#"eval "$("$tenure" acquire n -n --export)"; echo "code $?""#;
    shell.args(["-c", script]).env("TENURE_URL", server.url());
    shell.env("tenure", env!("CARGO_BIN_EXE_tenure"));
    let ended = run(&mut shell);
    assert_eq!(ended.stdout, "code 75\n", "{ended}");
}
