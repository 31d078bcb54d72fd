//! A client in a process of its own, to be paused or to live by another clock. It is this test
//! binary, asked to be a client instead.

use std::collections::VecDeque;
use std::env;
use std::io::{self, BufRead};
use std::process::Command;
use std::time::Duration;

use tenure::{Guard, Tenure};
use tenure_testkit::{ClientProcess, ClockShim};
use tokio::task::JoinHandle;

use crate::contract::waiting::begun;
use crate::stage::ms;

const URL: &str = "TENURE_TEST_CLIENT_URL";
/// Tells answers from what the test harness prints.
const ANSWER: &str = "client: ";
const ANSWER_LIMIT: Duration = ms(10_000);

pub struct Program {
    pub process: ClientProcess,
}

impl Program {
    pub fn start(url: &str) -> Self {
        Self::spawn(url, None)
    }

    /// A client whose wall clock the test turns.
    pub fn start_by(clock: &ClockShim, url: &str) -> Self {
        Self::spawn(url, Some(clock))
    }

    fn spawn(url: &str, clock: Option<&ClockShim>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "hazards::program::client_program"])
            .args(["--ignored", "--nocapture"])
            .env(URL, url);
        if let Some(clock) = clock {
            clock.apply(&mut command);
        }
        let program = Self {
            process: ClientProcess::spawn(&command),
        };
        assert_eq!(program.answer(), "connected");
        program
    }

    /// Sends a line and waits for the answer to it.
    #[track_caller]
    pub fn ask(&self, line: &str) -> String {
        self.process.send_line(line);
        self.answer()
    }

    #[track_caller]
    pub fn answer(&self) -> String {
        loop {
            let line = self.process.expect_line(ANSWER_LIMIT);
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.to_owned();
            }
        }
    }
}

#[test]
#[ignore = "not a test, but the process that others pause"]
fn client_program() {
    let Ok(url) = env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let builder = Tenure::builder(&url);
        let mut client = Client {
            // However slow the machine, only what a test is about shall end a chain.
            tenure: builder.hand_off_time(ms(600_000)).connect().await.unwrap(),
            other: Tenure::connect(&url).await.unwrap(),
            guard: None,
            line: VecDeque::new(),
        };
        say("connected");
        for line in io::stdin().lock().lines() {
            let words: Vec<String> = line.unwrap().split(' ').map(str::to_owned).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            say(&client.answer(&words).await);
        }
    });
}

/// What the process has: two clients of one store, and the guard of the first.
struct Client {
    tenure: Tenure,
    other: Tenure,
    guard: Option<Guard>,
    /// Those who wait for the first client's lock, in their order.
    line: VecDeque<JoinHandle<Guard>>,
}

impl Client {
    async fn answer(&mut self, words: &[&str]) -> String {
        match (words, self.guard.as_ref()) {
            (["acquire", name, ttl_ms], _) => {
                let lock = self.tenure.lock(name).ttl(ms(ttl_ms.parse().unwrap()));
                match lock.acquire().await {
                    Ok(guard) => {
                        let fence = guard.fence();
                        self.guard = Some(guard);
                        format!("granted {fence}")
                    }
                    Err(error) => format!("error {:?}", error.kind()),
                }
            }
            (["keep", name, ttl_ms], _) => {
                let ttl = ms(ttl_ms.parse().unwrap());
                let lock = self.tenure.lock(name).ttl(ttl).keep(ttl / 2);
                while self.tenure.stats().kept == 0 {
                    drop(lock.acquire().await.unwrap());
                    tokio::time::sleep(ms(1)).await;
                }
                "kept".to_owned()
            }
            (["line", "up", name, ttl_ms], _) => {
                let lock = self.tenure.lock(name).ttl(ms(ttl_ms.parse().unwrap()));
                let waiting = begun(async move { lock.acquire().await.unwrap() });
                self.line.push_back(tokio::spawn(waiting));
                "in line".to_owned()
            }
            (["next"], _) => {
                let next = self.line.front_mut().unwrap();
                match tokio::time::timeout(ms(500), next).await {
                    Ok(guard) => {
                        self.line.pop_front();
                        let guard = self.guard.insert(guard.unwrap());
                        format!("granted {}", guard.fence())
                    }
                    Err(_) => "not yet".to_owned(),
                }
            }
            (["other", "tries", name], _) => match self.other.lock(name).try_acquire().await {
                Ok(Some(_)) => "granted".to_owned(),
                Ok(None) => "busy".to_owned(),
                Err(error) => format!("error {:?}", error.kind()),
            },
            (["check"], Some(guard)) => format!("{:?}", guard.standing()),
            (["lost"], Some(guard)) => format!("{:?}", guard.lost().await),
            (["release"], Some(_)) => {
                let released = self.guard.take().unwrap().release().await;
                format!("{:?}", released.unwrap())
            }
            _ => panic!("what is {words:?}"),
        }
    }
}

#[expect(clippy::print_stdout, reason = "that is how the process answers")]
fn say(answer: &str) {
    // On a line of its own: the harness may have begun one.
    println!("\n{ANSWER}{answer}");
}
