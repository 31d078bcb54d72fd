//! Futures run on any executor, and the blocking API needs none.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{ErrorKind, LostReason, Released, Tenure, blocking};
use tokio::runtime::Builder;

use crate::stage::{Stage, ms};

/// Runs [`everything`] on each executor and each store: `executors! { name = run, ... }`.
macro_rules! executors {
    ($($name:ident = $run:expr;)*) => {
        mod memory {
            use super::*;
            $(#[tenure_testkit::test]
            fn $name() {
                let stage = Stage::memory();
                $run(everything(stage.url()));
            })*
        }

        mod redis {
            use super::*;
            $(#[tenure_testkit::test]
            fn $name() {
                let stage = Stage::redis();
                $run(everything(stage.url()));
            })*
        }
    };
}

executors! {
    tokio_current_thread = |work| run_on(one_thread().enable_all(), work);
    tokio_multi_thread = |work| run_on(two_threads().enable_all(), work);
    tokio_current_thread_without_time_and_io = |work| run_on(&mut one_thread(), work);
    tokio_multi_thread_without_time_and_io = |work| run_on(&mut two_threads(), work);
    smol_block_on = smol::block_on;
    smol_tasks = |work| smol::block_on(async { smol::spawn(work).await });
    own_block_on = blocking::block_on;
    without_wakers = poll_again_and_again;
}

/// Programs may have thousands of waiting callers.
#[test]
fn a_future_that_waits_for_a_lock_is_small() {
    blocking::block_on(async {
        let tenure = connect("memory://").await;
        let lock = tenure.lock("n");
        let size = size_of_val(&lock.acquire());
        assert!(size <= 256, "{size} bytes");
    });
}

/// Whatever a caller can wait for.
async fn everything(url: String) {
    let (a, b) = (connect(&url).await, connect(&url).await);

    let guard = a.lock("n").acquire().await.unwrap();
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert!(b.lock("n").holder().await.unwrap().is_some());
    let busy = b.lock("n").wait(ms(30)).acquire().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);

    let wanted = b.lock("n");
    let (released, next) = tokio::join!(guard.release(), wanted.acquire());
    assert_eq!(released.unwrap(), Released::WasHeld);
    next.unwrap().release().await.unwrap();

    let done = a.lock("n").with(async |guard| guard.fence()).await;
    done.unwrap();
    renewed_and_lost(&a).await;

    let owner = a.owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    let inner = owner.lock("n").acquire().await.unwrap();
    drop((outer, inner));
    let guard = b.lock("n").wait(ms(2_000)).acquire().await.unwrap();
    let adopted = a.adopt(&guard.detach().unwrap()).await.unwrap();
    assert_eq!(a.shutdown(ms(2_000)).await, vec![]);
    assert_eq!(adopted.lost().await, LostReason::Shutdown);
    assert!(!b.lock("n").is_locked().await.unwrap());
}

/// What needs a clock: it is not the caller's.
async fn renewed_and_lost(tenure: &Tenure) {
    let renewed = tenure.lock("r").ttl(ms(1_000)).acquire().await.unwrap();
    let fixed = tenure
        .lock("f")
        .ttl(ms(2_000))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    assert_eq!(fixed.lost().await, LostReason::Expired);
    assert!(renewed.is_valid(), "two leases long");
    renewed.ensure(ms(100)).await.unwrap();
}

#[tenure_testkit::test]
fn redis_commands_need_no_runtime_either() {
    let Stage::Redis { server, .. } = Stage::redis() else {
        unreachable!()
    };
    poll_again_and_again(async {
        let redis = tenure::redis::Client::connect(server.url()).await.unwrap();
        let command = tenure::redis::Command::new("INCR").arg("n");
        assert_eq!(redis.run(command).await.unwrap().as_int(), Some(1));
    });
}

#[tenure_testkit::test]
fn blocking_needs_no_runtime() {
    for stage in [Stage::memory(), Stage::redis()] {
        block(&stage.url());
    }
}

#[tenure_testkit::test]
fn blocking_works_in_spawn_blocking() {
    for stage in [Stage::memory(), Stage::redis()] {
        let runtime = one_thread().enable_all().build().unwrap();
        let url = stage.url();
        runtime.block_on(async {
            tokio::task::spawn_blocking(move || block(&url))
                .await
                .unwrap();
        });
    }
}

/// Bad manners, as it stops the executor, but no panic and no deadlock.
#[tenure_testkit::test]
fn blocking_works_inside_a_future() {
    for stage in [Stage::memory(), Stage::redis()] {
        let (url, same_url) = (stage.url(), stage.url());
        let runtime = one_thread().enable_all().build().unwrap();
        runtime.block_on(async move { block(&url) });
        smol::block_on(async move { block(&same_url) });
    }
}

/// The blocking API, with a second thread that wants the same lock.
fn block(url: &str) {
    let tenure = blocking::Tenure::connect(url).unwrap();
    let outer = tenure.lock("n").acquire().unwrap();
    let inner = tenure.lock("n").try_acquire().unwrap();
    assert!(inner.is_some(), "this thread holds it");
    let waiting = thread::spawn({
        let tenure = tenure.clone();
        move || {
            assert!(tenure.lock("n").try_acquire().unwrap().is_none());
            tenure.lock("n").wait(ms(5_000)).acquire().unwrap().fence()
        }
    });
    thread::sleep(ms(30));
    let fence = outer.fence();
    drop(inner);
    assert_eq!(outer.release().unwrap(), Released::WasHeld);
    assert!(waiting.join().unwrap() > fence);
}

async fn connect(url: &str) -> Tenure {
    Tenure::connect(url).await.unwrap()
}

/// Runs it in a task of the runtime.
fn run_on(builder: &mut Builder, work: impl Future<Output = ()> + Send + 'static) {
    let runtime = builder.build().unwrap();
    let task = runtime.spawn(work);
    runtime.block_on(task).unwrap();
}

fn one_thread() -> Builder {
    Builder::new_current_thread()
}

fn two_threads() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2);
    builder
}

/// The poorest executor there is: it gives no way to be woken.
fn poll_again_and_again<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::sleep(ms(1));
    }
    panic!("not done within 20 s");
}
