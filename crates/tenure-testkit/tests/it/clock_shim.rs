//! A server that lives by a clock of ours.

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
fn a_step_back_lengthens_a_life() {
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
