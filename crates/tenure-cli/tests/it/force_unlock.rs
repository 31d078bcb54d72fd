//! `tenure force-unlock`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure::LostReason;
use tenure::blocking::{Guard, Tenure};
use tenure_testkit::{RedisServer, eventually};

use crate::command::Ended;
use crate::masks::{host, without, without_digits};
use crate::scripts::run_at;

const SOON: Duration = Duration::from_secs(20);

fn held(server: &RedisServer) -> (Tenure, Guard) {
    let builder = tenure::Tenure::builder(server.url());
    let builder = builder
        .about("command", "backup.sh")
        .about("user", "deploy");
    let tenure = Tenure::connect_with(builder).unwrap();
    let guard = tenure.lock("n").acquire().unwrap();
    (tenure, guard)
}

/// Waits until listings name the holder.
fn is_listed(tenure: &Tenure) {
    let listed = || tenure.list(|_| true).unwrap().locks.len() == 1;
    assert!(eventually(SOON, listed));
}

#[tenure_testkit::test]
fn the_holder_learns_of_it_at_once() {
    let server = RedisServer::start();
    let (_tenure, guard) = held(&server);
    // From then on it is watched: without that it would take a third of the ttl, which is 10 s.
    std::thread::sleep(Duration::from_millis(1_500));
    let id = guard.lease_id().to_string();
    let ended = run_at(&server.url(), &["force-unlock", "n", &id, "--force"]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "released `n`\n");
    let lost = || !guard.is_valid();
    assert!(eventually(Duration::from_secs(5), lost));
    assert_eq!(guard.wait_lost(), LostReason::Gone);
    let ended = run_at(&server.url(), &["force-unlock", "n", &id, "--force"]);
    ended.ended_with(1);
    assert_eq!(
        ended.stderr,
        "tenure: lock `n` is not held: nothing to release\n"
    );
}

#[tenure_testkit::test]
fn another_lease_is_not_touched() {
    let server = RedisServer::start();
    let (tenure, guard) = held(&server);
    is_listed(&tenure);
    let old = "tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:30000";
    let arguments = ["force-unlock", "n", old, "--force"];
    let ended = run_at(&server.url(), &arguments);
    ended.ended_with(1);
    let (id, pid, host) = (guard.lease_id(), std::process::id(), host());
    assert_eq!(
        ended.stderr,
        format!(
            "tenure: lock `n` now has another lease, `{id}` of {host}:{pid} (deploy, backup.sh): \
             nothing was changed\n"
        )
    );
    let ended = run_at(&server.url(), &[&arguments[..], &["--json"]].concat());
    ended.ended_with(1);
    assert!(
        ended.stdout.starts_with(&format!(
            "{{\"error\":\"lease_changed\",\"name\":\"n\",\"lease_id\":\"{old}\",\"now\":\
             {{\"name\":\"n\",\"held\":true,\"who\":\"{host}:{pid} (deploy, backup.sh)\",\
             \"lease_id\":\"{id}\","
        )),
        "{ended}"
    );
    assert!(guard.is_valid());
    let id = id.to_string();
    let ended = run_at(&server.url(), &["force-unlock", "n", &id, "-f", "--json"]);
    assert_eq!(
        without(&ended.stdout, &["lease_id"]),
        "{\"name\":\"n\",\"lease_id\":#,\"released\":\"was_held\"}\n"
    );
}

#[tenure_testkit::test]
fn without_a_terminal_it_does_not_ask_and_does_nothing() {
    let server = RedisServer::start();
    let (_tenure, guard) = held(&server);
    let id = guard.lease_id().to_string();
    let ended = run_at(&server.url(), &["force-unlock", "n", &id]);
    ended.ended_with(64);
    assert_eq!(
        ended.stderr,
        "tenure: refusing to release a held lock without confirmation, and stdin is not a \
         terminal: use --force\n"
    );
    assert!(run_at(&server.url(), &["is-locked", "n"]).code == 0);
}

/// Runs the command on its own terminal, with an answer.
fn answered(server: &RedisServer, id: &str, answer: &str) -> Ended {
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let line = format!("{tenure} force-unlock n {id}");
    crate::command::heed_signals();
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]);
    script
        .env("TENURE_URL", server.url())
        .env("SHELL", "/bin/sh");
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = script.spawn().unwrap();
    let mut stdin = running.stdin.take().unwrap();
    stdin.write_all(answer.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    drop(stdin);
    Ended {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap().replace('\r', ""),
        stderr: String::new(),
        took: Duration::ZERO,
    }
}

#[tenure_testkit::test]
fn on_a_terminal_it_shows_the_lock_and_asks() {
    let server = RedisServer::start();
    let (tenure, guard) = held(&server);
    is_listed(&tenure);
    let id = guard.lease_id().to_string();
    let ended = answered(&server, &id, "y\n");
    ended.ended_with(1);
    ended.says("tenure: cancelled: the answer was not \"yes\"");
    assert!(guard.is_valid());
    let ended = answered(&server, &id, "yes\n");
    ended.ended_with(0);
    ended.says("Only \"yes\" will be accepted:");
    ended.says("released `n`");
    let shown = ended.stdout.find("Force-release").unwrap();
    let shown = ended.stdout[shown..].lines().take(7);
    let shown: Vec<&str> = shown.collect();
    let shown = shown.join("\n").replace(&id, "LEASE");
    let shown = shown.replace(&format!("{}:{}", host(), std::process::id()), "HOLDER");
    assert_eq!(
        without_digits(&shown),
        "Force-release `n`?\n  Holder:  HOLDER (deploy, backup.sh)\n  Lease:  LEASE\n  \
         Fence:  ################\n  Held:  #.#s, since ####-##-##T##:##:##.###Z\n  \
         Left:  ##.#s of ##.#s unless renewed\n  About:  command=backup.sh, user=deploy"
    );
}

#[tenure_testkit::test]
fn what_has_no_end_is_not_deleted() {
    let server = RedisServer::start();
    server.client().command(&["SET", "stock", "100"]);
    let ended = run_at(&server.url(), &["force-unlock", "--force", "stock", "100"]);
    ended.ended_with(1);
    ended.complains("tenure: refusing to delete `stock`: it has no expiry");
    assert_eq!(server.client().command(&["GET", "stock"]).text(), "100");
}
