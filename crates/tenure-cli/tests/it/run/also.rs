//! Several locks for one command.

use tenure_testkit::eventually;

use super::{SOON, code, hold, run, server, start, waiters};

fn text(words: &[&str]) -> String {
    let reply = server().client().command(words);
    if reply.is_nil() {
        String::new()
    } else {
        reply.text().to_owned()
    }
}

fn is_free(name: &str) -> bool {
    server().client().command(&["EXISTS", name]).int() == 0
}

#[tenure_testkit::test]
fn also_holds_all_locks_and_tells_the_command_of_each() {
    let line = "echo $TENURE_NAME $TENURE_NAME_2 $TENURE_NAME_3; \
                echo $TENURE_LEASE $TENURE_LEASE_2 $TENURE_LEASE_3; \
                echo $TENURE_FENCE $TENURE_FENCE_2 $TENURE_FENCE_3; read _; true";
    let names = ["also:c", "also:a", "also:b"];
    let [first, second, third] = names;
    let holder = start(&["run", first, "--also", second, "--also", third, "-c", line]);
    assert_eq!(holder.expect_line(SOON), names.join(" "));
    let leases = names.map(|name| text(&["GET", name]));
    assert_eq!(holder.expect_line(SOON), leases.join(" "));
    let fences = holder.expect_line(SOON);
    let fences: Vec<u64> = fences.split(' ').map(|it| it.parse().unwrap()).collect();
    assert_eq!(fences.len(), 3);
    holder.close_stdin();
    assert_eq!(code(&holder), 0);
    assert!(names.into_iter().all(is_free), "not released");
}

#[tenure_testkit::test]
fn a_busy_lock_is_named_and_none_is_held() {
    let holder = hold("busy:b");
    for options in [&["-n"][..], &["-w", "0.2"], &["-w", "1.5"]] {
        let words = [&["run"], options, &["busy:a", "--also", "busy:b", "true"]].concat();
        let ended = run(&words);
        ended.ended_with(75);
        assert!(
            ended.stderr.contains("`busy:b` is held by"),
            "{}",
            ended.stderr
        );
        assert!(is_free("busy:a"), "{options:?}");
    }
    let ended = run(&["run", "--skip", "busy:a", "--also", "busy:b", "true"]);
    ended.ended_with(0);
    assert_eq!(ended.stderr, "");
    let ended = run(&["try", "busy:a", "--also", "busy:b", "true"]);
    ended.ended_with(75);
    drop(holder);
}

#[tenure_testkit::test]
fn a_command_waits_until_all_its_locks_are_free() {
    let holder = start(&["run", "all:b", "-c", "echo held; read _"]);
    assert_eq!(holder.expect_line(SOON), "held");
    let waiter = start(&["run", "-v", "all:a", "--also", "all:b", "-c", "echo mine"]);
    assert!(eventually(SOON, || waiters(server(), "all:b") == 1));
    holder.close_stdin();
    assert_eq!(waiter.expect_line(SOON), "mine");
    assert_eq!(code(&waiter), 0);
    let said = waiter.stderr();
    for part in [
        "`all:a` acquired after",
        "`all:b` acquired after",
        "released `all:b`",
    ] {
        assert!(said.contains(part), "`{part}` is missing in {said}");
    }
}

#[tenure_testkit::test]
fn a_command_ends_with_the_first_lock_that_is_lost() {
    let holder = start(&[
        "run",
        "-t",
        "2",
        "lost:a",
        "--also",
        "lost:b",
        "-c",
        "echo held; exec sleep 60",
    ]);
    assert_eq!(holder.expect_line(SOON), "held");
    server().client().command(&["DEL", "lost:b"]);
    assert_eq!(code(&holder), 79);
    assert!(
        holder.stderr().contains("lost `lost:b`"),
        "{}",
        holder.stderr()
    );
    assert!(eventually(SOON, || is_free("lost:a")), "not released");
}

#[tenure_testkit::test]
fn at_least_keeps_all_locks() {
    run(&[
        "run",
        "--at-least",
        "20",
        "kept:a",
        "--also",
        "kept:b",
        "true",
    ])
    .ended_with(0);
    for name in ["kept:a", "kept:b"] {
        let left = server().client().command(&["PTTL", name]).int();
        assert!((10_000..=20_000).contains(&left), "{name}: {left}");
    }
}

#[tenure_testkit::test]
fn a_lock_that_is_named_twice_is_refused() {
    let ended = run(&["run", "twice", "--also", "twice", "true"]);
    ended.ended_with(64);
    for part in ["`twice`", "given twice"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    assert!(is_free("twice"));
}

/// A command under a lock of its own is not told the locks of the command around it.
#[tenure_testkit::test]
fn a_command_inside_another_knows_its_own_locks_only() {
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let inner =
        format!("exec {tenure} run inner -c 'echo ${{TENURE_NAME-}} ${{TENURE_NAME_2-none}}'");
    let ended = run(&["run", "outer:a", "--also", "outer:b", "-c", &inner]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "inner none\n");
}

#[tenure_testkit::test]
fn a_command_that_would_wait_for_itself_is_refused() {
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let inner = format!("exec {tenure} run other --also self:b true");
    let ended = run(&["run", "self:a", "--also", "self:b", "-c", &inner]);
    ended.ended_with(64);
    let expected = "`self:b` is held by the `tenure run` that runs this command";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}
