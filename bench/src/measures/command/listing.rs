//! Listing: `tenure ls` with 1 000 locks, alone and among 1 000 000 keys of others.

use std::time::{Duration, Instant};

use tenure::{Guard, Tenure};
use tenure_testkit::RedisServer;
use tokio::runtime::Runtime;

use super::{output, tenure};
use crate::progress;
use crate::rounds::{Entry, interleave_often};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

const LOCKS: usize = 1_000;
const FOREIGN_KEYS: usize = 1_000_000;
/// So many that one script is over soon.
const BATCH: usize = 50_000;
const LISTS: usize = 10;
/// Until the records are written.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with locks that are listed, for as long as it lives.
struct Stage {
    server: RedisServer,
    _held: Vec<Guard>,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let (alone, crowded) = (Stage::set(&runtime), Stage::set(&runtime));
    crowded.fill();
    let entries = vec![
        Entry::new("no other keys", || alone.list_millis()),
        Entry::new("ours", || crowded.list_millis()),
    ];
    let results = interleave_often("command_ls", setting.rounds, LISTS, entries);
    let named = |label: &str| results.samples(label, |millis| *millis).median_of(LISTS);
    vec![Row::ratio(
        "`tenure ls`, 1 000 locks among 1 000 000 foreign keys",
        (&named("ours"), Unit::Millis),
        ("no other keys", &named("no other keys")),
        Target::AtMost(10.0),
    )]
}

impl Stage {
    fn set(runtime: &Runtime) -> Self {
        let server = RedisServer::start();
        let held = runtime.block_on(async {
            let client = Tenure::connect(server.url()).await.expect("it is there");
            let mut held = Vec::with_capacity(LOCKS);
            for number in 0..LOCKS {
                let guard = client.lock(format!("listed-{number}")).acquire().await;
                held.push(guard.expect("nobody has it"));
            }
            let begun = Instant::now();
            loop {
                let clients = client.clients().await.expect("it answers");
                let listed: usize = clients.iter().map(|client| client.leases.len()).sum();
                if listed == LOCKS {
                    return held;
                }
                assert!(begun.elapsed() < PATIENCE, "{listed} of {LOCKS} are listed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self {
            server,
            _held: held,
        }
    }

    /// Keys that have nothing to do with locks.
    fn fill(&self) {
        progress::tell("command_ls: a million foreign keys");
        let mut redis = self.server.client();
        let fill = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'foreign:' .. i, 'x') end";
        for from in (0..FOREIGN_KEYS).step_by(BATCH) {
            let (from, to) = (from.to_string(), (from + BATCH - 1).to_string());
            redis.command(&["EVAL", fill, "0", &from, &to]);
        }
        let keys = redis.command(&["DBSIZE"]).int();
        assert!(usize::try_from(keys).is_ok_and(|keys| keys >= FOREIGN_KEYS));
    }

    fn list_millis(&self) -> f64 {
        let url = self.server.url();
        let begun = Instant::now();
        let listed = output(&mut tenure(&["ls", "--json", "--url", &url]));
        let millis = begun.elapsed().as_secs_f64() * 1e3;
        let last = format!("listed-{}", LOCKS - 1);
        assert!(listed.contains(&last), "{last} is not listed");
        millis
    }
}
