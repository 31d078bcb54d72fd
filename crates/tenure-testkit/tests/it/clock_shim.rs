//! A server with a clock that the test changes.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tenure_testkit::{ClockShim, RedisServer, RespClient};

#[test]
fn a_step_forward_expires_a_key_at_once() {
    let Some((clock, server)) = server_with_clock() else {
        return;
    };
    let mut client = server.client();
    client.command(&["SET", "k", "v", "PX", "30000"]);
    assert_eq!(client.command(&["GET", "k"]).text(), "v");
    clock.step_forward(Duration::from_mins(1));
    assert!(client.command(&["GET", "k"]).is_nil());
    assert_eq!(client.command(&["PTTL", "k"]).int(), -2);
}

#[test]
fn a_step_back_extends_an_expiry() {
    let Some((clock, server)) = server_with_clock() else {
        return;
    };
    let mut client = server.client();
    client.command(&["SET", "k", "v", "PX", "30000"]);
    clock.step_back(Duration::from_hours(1));
    let left = client.command(&["PTTL", "k"]).int();
    assert!((3_620_000..=3_630_000).contains(&left), "`{left}` ms left");
    clock.reset();
    let left = client.command(&["PTTL", "k"]).int();
    assert!((20_000..=30_000).contains(&left), "`{left}` ms left");
}

#[test]
fn a_rate_is_followed_without_a_jump() {
    let Some((clock, server)) = server_with_clock() else {
        return;
    };
    let mut client = server.client();
    clock.set_rate(3.0);
    let (start, start_us) = (Instant::now(), server_us(&mut client));
    thread::sleep(Duration::from_millis(200));
    let (real, served_us) = (start.elapsed(), server_us(&mut client) - start_us);
    let expected_us = 3.0 * real.as_secs_f64() * 1e6;
    assert!(
        (served_us / expected_us - 1.0).abs() < 0.1,
        "`{served_us}` µs in `{real:?}`"
    );
    clock.set_rate(1.0);
    let ahead = Duration::from_nanos(clock.ahead_ns().unsigned_abs());
    assert!(ahead >= Duration::from_millis(400), "`{ahead:?}` ahead");
    let now_us = server_us(&mut client);
    assert!(now_us - start_us >= served_us, "the clock jumped back");
}

#[test]
fn other_programs_follow_too_and_clocks_are_separate() {
    let (Some(clock), Some(other)) = (ClockShim::compile(), ClockShim::compile()) else {
        return;
    };
    clock.step_forward(Duration::from_secs(1_000_000));
    let (ahead, right) = (date(&clock), date(&other));
    assert!(
        (ahead - right - 1_000_000).abs() <= 2,
        "{ahead} and {right}"
    );
}

/// Reads each clock of the process with a program that uses the C library.
#[test]
fn a_suspend_moves_the_boot_clock_alone() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let before = clocks(&clock);
    clock.sleep_through(Duration::from_secs(1_000_000));
    let after = clocks(&clock);
    let moved = |index: usize| after[index] - before[index];
    let [real, monotonic, boot] = [moved(0), moved(1), moved(2)];
    assert!((0..1_000).contains(&real), "wall clock by {real} s");
    assert!(
        (0..1_000).contains(&monotonic),
        "monotonic by {monotonic} s"
    );
    assert!((1_000_000..1_001_000).contains(&boot), "boot by {boot} s");
    clock.reset();
    assert!(clocks(&clock)[2] < before[2] + 1_000);
}

/// The seconds of `CLOCK_REALTIME`, `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` as this program reads them in a
/// process that uses `clock`.
fn clocks(clock: &ClockShim) -> Vec<i64> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "clock_shim::print_clocks", "--ignored"])
        .arg("--nocapture");
    clock.apply(&mut command);
    let output = command.output().unwrap().stdout;
    let output = String::from_utf8(output).unwrap();
    let seconds = output.lines().find_map(|line| line.strip_prefix("clocks "));
    let seconds = seconds.unwrap_or_else(|| panic!("{output}"));
    seconds.split(' ').map(|it| it.parse().unwrap()).collect()
}

#[test]
#[ignore = "not a test, but the process with another clock"]
fn print_clocks() {
    use nix::time::{ClockId, clock_gettime};
    let seconds = |clock| clock_gettime(clock).unwrap().tv_sec();
    let real = seconds(ClockId::CLOCK_REALTIME);
    let monotonic = seconds(ClockId::CLOCK_MONOTONIC);
    let boot = seconds(ClockId::CLOCK_BOOTTIME);
    println!("\nclocks {real} {monotonic} {boot}");
}

fn server_with_clock() -> Option<(ClockShim, RedisServer)> {
    let clock = ClockShim::compile()?;
    let server = RedisServer::builder().clock(clock.clone()).start();
    Some((clock, server))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is compared")]
fn server_us(client: &mut RespClient) -> f64 {
    let time = client.command(&["TIME"]);
    (time.array()[0].int() * 1_000_000 + time.array()[1].int()) as f64
}

fn date(clock: &ClockShim) -> i64 {
    let mut command = Command::new("date");
    command.arg("+%s");
    clock.apply(&mut command);
    let output = command.output().unwrap().stdout;
    String::from_utf8(output).unwrap().trim().parse().unwrap()
}
