//! Dropped guards and programs that end. Hazards H41 (a guard dropped where no runtime is, or
//! none any more) and H42 (a drop that blocks): no drop may panic, block or leave the lock held.

use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Guard, Tenure, blocking};
use tenure_testkit::{ClientProcess, Proxy, RedisServer, eventually};
use tokio::runtime::{Builder, Runtime};

use crate::contract::waiting::begun;
use crate::stage::{Stage, ms};

/// A drop that takes longer has waited for something.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Names the program that a child process is to play.
const PROGRAM: &str = "TENURE_TEST_PROGRAM";
const URL: &str = "TENURE_TEST_URL";

/// Runs each case on both stores: `everywhere! { case, case, ... }`.
macro_rules! everywhere {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[test]
            fn $case() {
                super::within_5_s(|| super::$case(&$crate::stage::Stage::memory()));
            })*
        }

        mod redis {
            $(#[test]
            fn $case() {
                super::within_5_s(|| super::$case(&$crate::stage::Stage::redis()));
            })*
        }
    };
}

everywhere! {
    h41_a_guard_dropped_in_a_task_frees_the_lock,
    h41_a_guard_dropped_in_a_plain_thread_frees_the_lock,
    h41_a_guard_dropped_outside_any_runtime_frees_the_lock,
    h41_a_guard_dropped_by_a_panic_frees_the_lock,
    h41_a_guard_dropped_by_a_panic_in_a_task_frees_the_lock,
    h41_a_guard_of_a_task_of_a_dropped_runtime_frees_the_lock,
    h41_a_guard_of_a_runtime_shut_down_in_the_background_frees_the_lock,
    h41_a_guard_dropped_with_its_thread_frees_the_lock,
    h41_an_acquire_of_a_dropped_runtime_leaves_the_lock_free,
    h41_a_guard_outlives_its_client_and_its_runtime,
    h42_a_guard_dropped_in_a_current_thread_runtime_does_not_block_it,
    h42_a_blocking_guard_dropped_in_a_current_thread_runtime_does_not_block_it,
}

fn h41_a_guard_dropped_in_a_task_frees_the_lock(stage: &Stage) {
    let runtime = multi_thread();
    let guard = runtime.block_on(hold(stage));
    runtime
        .block_on(runtime.spawn(async move { drop(guard) }))
        .unwrap();
    is_free(stage);
}

fn h41_a_guard_dropped_in_a_plain_thread_frees_the_lock(stage: &Stage) {
    let runtime = multi_thread();
    let guard = runtime.block_on(hold(stage));
    thread::spawn(move || drops_at_once(guard)).join().unwrap();
    is_free(stage);
}

fn h41_a_guard_dropped_outside_any_runtime_frees_the_lock(stage: &Stage) {
    let runtime = multi_thread();
    let guard = runtime.block_on(hold(stage));
    drop(runtime);
    drops_at_once(guard);
    is_free(stage);
}

fn h41_a_guard_dropped_by_a_panic_frees_the_lock(stage: &Stage) {
    let guard = blocking::block_on(hold(stage));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _guard = guard;
        panic!("the protected work failed");
    }));
    assert!(ended.is_err());
    is_free(stage);
}

fn h41_a_guard_dropped_by_a_panic_in_a_task_frees_the_lock(stage: &Stage) {
    let runtime = current_thread();
    let guard = runtime.block_on(hold(stage));
    let task = runtime.spawn(async move {
        let _guard = guard;
        panic!("the protected work failed");
    });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    is_free(stage);
}

fn h41_a_guard_of_a_task_of_a_dropped_runtime_frees_the_lock(stage: &Stage) {
    for runtime in [multi_thread(), current_thread()] {
        runtime.block_on(keep_in_a_task(stage));
        drop(runtime);
        is_free(stage);
    }
}

fn h41_a_guard_of_a_runtime_shut_down_in_the_background_frees_the_lock(stage: &Stage) {
    for runtime in [multi_thread(), current_thread()] {
        runtime.block_on(keep_in_a_task(stage));
        runtime.shutdown_background();
        is_free(stage);
    }
}

/// The last place where a guard can live: what a thread keeps for itself is dropped after its
/// end has begun, when thread-locals of others may be gone already.
fn h41_a_guard_dropped_with_its_thread_frees_the_lock(stage: &Stage) {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<blocking::Guard>> = const { std::cell::RefCell::new(None) };
    }
    let tenure = blocking::Tenure::connect(stage.url()).unwrap();
    let thread = thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| *kept = Some(tenure.lock("n").acquire().unwrap()));
    });
    thread.join().unwrap();
    is_free(stage);
}

fn h41_an_acquire_of_a_dropped_runtime_leaves_the_lock_free(stage: &Stage) {
    let guard = blocking::block_on(hold(stage));
    for runtime in [multi_thread(), current_thread()] {
        runtime.block_on(async {
            let tenure = stage.client().await;
            tokio::spawn(async move { tenure.lock("n").acquire().await });
            tokio::time::sleep(ms(50)).await;
        });
        drop(runtime);
    }
    drop(guard);
    is_free(stage);
}

fn h41_a_guard_outlives_its_client_and_its_runtime(stage: &Stage) {
    let runtime = current_thread();
    let guard = runtime.block_on(async {
        let tenure = stage.client().await;
        let guard = tenure.lock("n").ttl(ms(1_000)).acquire().await.unwrap();
        drop(tenure);
        guard
    });
    drop(runtime);
    thread::sleep(ms(1_500));
    assert!(guard.is_valid(), "renewed without its client");
    drops_at_once(guard);
    is_free(stage);
}

fn h42_a_guard_dropped_in_a_current_thread_runtime_does_not_block_it(stage: &Stage) {
    current_thread().block_on(async {
        let guard = hold(stage).await;
        drops_at_once(guard);
        // Nothing else has to run on this thread for the lock to be free.
        is_free(stage);
    });
}

fn h42_a_blocking_guard_dropped_in_a_current_thread_runtime_does_not_block_it(stage: &Stage) {
    let tenure = blocking::Tenure::connect(stage.url()).unwrap();
    current_thread().block_on(async {
        // The last handle of its client: its drop waits for the release.
        let guard = tenure.lock("n").acquire().unwrap();
        drop(tenure);
        drop(guard);
        is_free(stage);
    });
}

#[test]
fn h42_guards_dropped_while_redis_is_stopped_return_at_once() {
    within_5_s(|| {
        let server = RedisServer::start();
        let tenure = blocking::block_on(Tenure::connect(server.url())).unwrap();
        let acquire = |n: u32| blocking::block_on(tenure.lock(format!("n{n}")).acquire()).unwrap();
        let guards: Vec<Guard> = (0..100).map(acquire).collect();
        server.pause();
        drops_at_once(guards);
        drops_at_once(tenure);
        server.resume();
        let tenure = blocking::Tenure::connect(server.url()).unwrap();
        for n in 0..100 {
            let free = tenure.lock(format!("n{n}")).wait(ms(1_000)).acquire();
            assert!(free.is_ok(), "n{n}: {free:?}");
        }
    });
}

#[test]
fn h42_a_guard_dropped_by_a_panic_while_redis_is_stopped_returns_at_once() {
    within_5_s(|| {
        let server = RedisServer::start();
        let tenure = blocking::block_on(Tenure::connect(server.url())).unwrap();
        let guard = blocking::block_on(tenure.lock("n").acquire()).unwrap();
        server.pause();
        let begun = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _guard = guard;
            // Unwinds without the message and the backtrace, which take their time.
            std::panic::resume_unwind(Box::new("the protected work failed"));
        }));
        assert!(
            ended.is_err() && begun.elapsed() < AT_ONCE,
            "{:?}",
            begun.elapsed()
        );
    });
}

#[test]
fn h42_the_last_blocking_handle_waits_for_its_releases() {
    let server = RedisServer::start();
    let took = || {
        let program = Program::start("drops_and_ends", &server.url());
        program.expect("held");
        let begun = Instant::now();
        program.go_on();
        program.process.wait_for_success(Duration::from_secs(10));
        assert!(server.client().command(&["GET", "n"]).is_nil());
        begun.elapsed()
    };
    // A second would be all that it waits. On a crowded machine a process may take long to end.
    assert!((0..5).any(|_| took() < ms(900)), "it waits for nothing");
}

#[test]
fn h42_the_last_blocking_handle_waits_a_second_at_most() {
    let server = RedisServer::start();
    let program = Program::start("drops_and_ends", &server.url());
    program.expect("held");
    server.pause();
    let begun = Instant::now();
    program.go_on();
    program.process.wait_for_success(Duration::from_secs(5));
    let took = begun.elapsed();
    assert!(took > ms(900) && took < ms(4_500), "{took:?}");
}

#[test]
fn h42_other_handles_do_not_wait() {
    within_5_s(|| {
        let server = RedisServer::start();
        let tenure = blocking::Tenure::connect(server.url()).unwrap();
        let guard = tenure.lock("n").acquire().unwrap();
        let clone = tenure.clone();
        server.pause();
        drops_at_once(guard);
        drops_at_once(clone);
        let begun = Instant::now();
        drop(tenure);
        let took = begun.elapsed();
        assert!(took > ms(800) && took < ms(4_500), "{took:?}");
    });
}

#[test]
fn h41_the_threads_end_with_the_last_handle() {
    let server = RedisServer::start();
    for stage_url in ["memory://threads".to_owned(), server.url()] {
        let program = Program::start("counts_threads", &stage_url);
        program.process.wait_for_success(Duration::from_secs(10));
    }
}

#[test]
fn h41_the_threads_end_though_redis_is_stopped() {
    let server = RedisServer::start();
    let program = Program::start("ends_threads", &server.url());
    program.expect("held");
    server.pause();
    program.go_on();
    program.process.wait_for_success(Duration::from_secs(10));
}

/// Not a test of its own: what a child process plays, see [`Program`].
#[test]
fn program() {
    let Ok(name) = std::env::var(PROGRAM) else {
        return;
    };
    let url = std::env::var(URL).unwrap();
    match name.as_str() {
        "drops_and_ends" => drops_and_ends(&url),
        "counts_threads" => counts_threads(&url),
        "ends_threads" => ends_threads(&url),
        other => panic!("no program `{other}`"),
    }
}

#[expect(clippy::exit, reason = "the end of a program is what is tested")]
fn drops_and_ends(url: &str) {
    let tenure = blocking::Tenure::connect(url).unwrap();
    let guard = tenure.lock("n").acquire().unwrap();
    tell_and_wait("held");
    drop(tenure);
    drop(guard);
    std::process::exit(0);
}

/// In a process of its own, because other tests have threads too.
fn counts_threads(url: &str) {
    let connect = || blocking::block_on(Tenure::connect(url)).unwrap();
    let clients = [connect(), connect(), connect()];
    let guard = blocking::block_on(clients[0].lock("n").acquire()).unwrap();
    let waiting = clients[1].lock("n").wait(ms(100));
    let gave_up = blocking::block_on(waiting.acquire());
    assert!(gave_up.is_err());
    assert_eq!(tenure_threads(), 3);
    drop((clients, waiting));
    assert!(
        eventually(ms(2_000), || tenure_threads() == 1),
        "the guard's"
    );
    assert!(guard.is_valid());
    drop(guard);
    assert!(eventually(ms(2_000), || tenure_threads() == 0));
}

fn ends_threads(url: &str) {
    let tenure = blocking::block_on(Tenure::connect(url)).unwrap();
    let guard = blocking::block_on(tenure.lock("n").acquire()).unwrap();
    tell_and_wait("held");
    drop((tenure, guard));
    assert!(eventually(ms(7_000), || tenure_threads() == 0));
}

fn tenure_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end between its listing and the look at its name.
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    threads
        .filter_map(name)
        .filter(|name| name.trim_end() == "tenure")
        .count()
}

fn tell_and_wait(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n{line}").unwrap();
    stdout.flush().unwrap();
    std::io::stdin()
        .lock()
        .read_line(&mut String::new())
        .unwrap();
}

/// This test binary again, playing a small program.
struct Program {
    process: ClientProcess,
}

impl Program {
    fn start(name: &str, url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "drops::program", "--nocapture"]);
        command.env(PROGRAM, name).env(URL, url);
        Self {
            process: ClientProcess::spawn(&command),
        }
    }

    /// Waits for a line among what the test harness prints.
    #[track_caller]
    fn expect(&self, line: &str) {
        while self.process.expect_line(Duration::from_secs(5)) != line {}
    }

    fn go_on(&self) {
        self.process.send_line("go on");
    }
}

/// H42's watchdog: fails if `work` hangs.
#[track_caller]
fn within_5_s(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match is_done.recv_timeout(Duration::from_secs(5)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {}
    }
    if let Err(panicked) = worker.join() {
        std::panic::resume_unwind(panicked);
    }
}

#[track_caller]
fn drops_at_once<T>(thing: T) {
    let begun = Instant::now();
    drop(thing);
    let took = begun.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
}

/// Waits for less time than any lease here has left: if the lock can be had, it was released.
#[track_caller]
fn is_free(stage: &Stage) {
    let tenure = blocking::Tenure::connect(stage.url()).unwrap();
    let taken = tenure.lock("n").wait(ms(500)).acquire();
    assert!(taken.is_ok(), "{taken:?}");
}

async fn hold(stage: &Stage) -> Guard {
    let tenure = stage.client().await;
    tenure.lock("n").acquire().await.unwrap()
}

/// A task that holds the lock and never ends by itself.
async fn keep_in_a_task(stage: &Stage) {
    let guard = hold(stage).await;
    tokio::spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A renewal is under way, for which giving the lease away has to wait. The caller goes away meanwhile.
#[tenure_testkit::test]
async fn a_lease_is_given_away_though_its_caller_goes_away() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let tenure = Tenure::connect(proxy.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(5_000)).acquire().await.unwrap();
    let id = guard.lease_id().as_str().to_owned();
    tokio::time::sleep(ms(300)).await;
    proxy.hold_requests();
    let before = proxy.counts().request_chunks;
    drop(begun(guard.ensure(ms(4_800))));
    let sent = proxy.wait_for(ms(5_000), |counts| counts.request_chunks > before);
    assert!(sent, "nothing was sent");
    drop(begun(guard.detach_for(ms(600_000))));
    proxy.release_requests();
    let mut redis = server.client();
    let is_kept = || redis.command(&["PTTL", "n"]).int() > 5_000;
    assert!(eventually(ms(10_000), is_kept), "it was not given away");
    assert_eq!(redis.command(&["GET", "n"]).text(), id);
}
