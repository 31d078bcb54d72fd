//! Living: what it costs the server that 10 000 waiters say that they live, and one release after all
//! of them have died.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tenure_testkit::{RedisServer, RespClient};

use crate::clock::main_thread_cpu_ns;
use crate::progress;
use crate::scripts::{self, NATIVE};
use crate::setting::Setting;
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const WAITERS: usize = 10_000;
/// How often each says it: see `heartbeat.rs` in `engine`.
const EVERY: Duration = Duration::from_secs(2);
const NAME: &str = "wanted";
const QUEUE: &str = "tenure:queue:{wanted}";
const ALIVE: &str = "tenure:alive:{wanted}";
const HOLDER: &str = "tenure:ffffffffffffffffffffffffffffffff:1:30000";
const WHAT: &str = "server CPU (of one core) of 10 000 waiters that say that they live";

pub fn measure(setting: &Setting) -> Vec<Row> {
    // Of its own: so many connections are no setting for other measures.
    let server = RedisServer::builder().config("maxclients", "10500").start();
    let mut redis = server.client();
    let room = redis.command(&["CONFIG", "GET", "maxclients"]);
    if room.array()[1].text().parse::<usize>().unwrap_or(0) < WAITERS + 100 {
        let why = "the server may not have so many connections: raise `ulimit -n`";
        return vec![Row::missing(WHAT, why)];
    }
    let Some((stay, release)) = load(&mut redis) else {
        return vec![Row::missing(WHAT, "not built yet")];
    };
    progress::tell("living: 10 000 connections");
    let mut crowd = Crowd::gather(&server, &stay);
    let (mut cpu, mut rate, mut swept) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..setting.rounds {
        stand(&mut redis, 6_000);
        let idle = server_cpu(&server, || thread::sleep(EVERY));
        let before = commands(&server);
        cpu.push(server_cpu(&server, || crowd.say_once()) - idle);
        rate.push((commands(&server) - before) / EVERY.as_secs_f64());
        stand(&mut redis, -1);
        swept.push(sweep(&mut redis, &release));
    }
    let row = |what: &str, samples: Vec<f64>, unit| {
        Row::figure(what, (&Samples::new(samples), unit), Target::None)
    };
    vec![
        row(WHAT, cpu, Unit::Percent),
        row(
            "– commands, those of the script included",
            rate,
            Unit::PerSecond,
        ),
        row(
            "– one release after all of them have died",
            swept,
            Unit::Millis,
        ),
    ]
}

fn load(redis: &mut RespClient) -> Option<(String, String)> {
    let mut load = |file| {
        let code = scripts::read(NATIVE, file)?;
        Some(redis.command(&["SCRIPT", "LOAD", &code]).text().to_owned())
    };
    Some((load("stay.lua")?, load("release.lua")?))
}

fn place(number: usize) -> String {
    format!("tenure:{number:032x}:8134027364518830627:30000")
}

/// Lets all stand in the queue, living for so long.
fn stand(redis: &mut RespClient, lives_for_ms: i64) {
    let time = redis.command(&["TIME"]);
    let now: i64 = time.array()[0].text().parse().expect("a number");
    let until = (now * 1_000 + lives_for_ms).to_string();
    for numbers in (0..WAITERS).collect::<Vec<_>>().chunks(500) {
        for (key, score) in [(QUEUE, "1"), (ALIVE, until.as_str())] {
            let mut words = vec!["ZADD".to_owned(), key.to_owned()];
            words.extend(numbers.iter().flat_map(|it| [score.to_owned(), place(*it)]));
            redis.command(&words);
        }
    }
}

/// How long a release takes that finds all of them dead, in milliseconds.
fn sweep(redis: &mut RespClient, release: &str) -> f64 {
    redis.command(&["SET", NAME, HOLDER, "PX", "30000"]);
    let begun = Instant::now();
    let reply = redis.command(&["EVALSHA", release, "3", NAME, QUEUE, ALIVE, HOLDER]);
    let took = begun.elapsed();
    assert_eq!(reply.int(), 1, "nobody lives to be offered the lock");
    assert_eq!(redis.command(&["EXISTS", QUEUE, ALIVE]).int(), 0);
    took.as_secs_f64() * 1e3
}

/// How much of one core the server uses meanwhile, in percent.
fn server_cpu(server: &RedisServer, work: impl FnOnce()) -> f64 {
    let (before, begun) = (main_thread_cpu_ns(server.pid()), Instant::now());
    work();
    let used = main_thread_cpu_ns(server.pid()) - before;
    used as f64 / begun.elapsed().as_nanos() as f64 * 100.0
}

fn commands(server: &RedisServer) -> f64 {
    let stats = server.client().command(&["INFO", "commandstats"]);
    let lines = stats.text().lines();
    let lines = lines.filter(|line| !line.starts_with("cmdstat_info"));
    let calls = lines.filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
    calls.filter_map(|calls| calls.parse::<f64>().ok()).sum()
}

/// Waiters in processes of their own, as far as the server can see.
struct Crowd(Vec<(TcpStream, Vec<u8>)>);

impl Crowd {
    fn gather(server: &RedisServer, stay: &str) -> Self {
        let connect = |number| {
            let socket = TcpStream::connect(server.addr()).expect("the server listens");
            socket
                .set_nodelay(true)
                .expect("a socket takes its options");
            let words = ["EVALSHA", stay, "2", QUEUE, ALIVE, &place(number)];
            let mut bytes = format!("*{}\r\n", words.len());
            for word in words {
                bytes += &format!("${}\r\n{word}\r\n", word.len());
            }
            (socket, bytes.into_bytes())
        };
        Self((0..WAITERS).map(connect).collect())
    }

    /// Each says once that it lives, spread over the time in which it would.
    fn say_once(&mut self) {
        let begun = Instant::now();
        for (number, (socket, bytes)) in self.0.iter_mut().enumerate() {
            let due = begun + EVERY.mul_f64(number as f64 / WAITERS as f64);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            socket.write_all(bytes).expect("the server reads");
            let mut reply = [0; 4];
            socket.read_exact(&mut reply).expect("the server answers");
            assert_eq!(&reply, b":1\r\n", "it stands in the queue");
        }
        thread::sleep((begun + EVERY).saturating_duration_since(Instant::now()));
    }
}
