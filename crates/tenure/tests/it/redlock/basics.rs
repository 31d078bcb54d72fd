use std::time::{Duration, Instant};

use tenure::{Redlock, Released};
use tenure_testkit::{Fsync, RedisServer};

fn nodes(n: usize) -> Vec<RedisServer> {
    (0..n)
        .map(|_| RedisServer::builder().aof(Fsync::Always).start())
        .collect()
}

async fn connect(nodes: &[RedisServer]) -> Redlock {
    Redlock::connect(nodes.iter().map(RedisServer::url))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_locks() {
    let nodes = nodes(5);
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").acquire().await.unwrap();
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    let fence = guard.fence();
    let waiting = tokio::spawn({
        let b = b.clone();
        async move { b.lock("n").acquire().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let at = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let guard = waiting.await.unwrap();
    eprintln!("woken after {:?}", at.elapsed());
    assert!(guard.fence() > fence);
    drop(guard);
    for i in 0..3 {
        let at = Instant::now();
        for j in 0..300 {
            let g = a.lock(format!("x{j}")).acquire().await.unwrap();
            g.release().await.unwrap();
        }
        eprintln!("{i}: {:?} per pair", at.elapsed() / 300);
    }
    let at = Instant::now();
    nodes[0].pause();
    for j in 0..300 {
        let g = a.lock(format!("x{j}")).acquire().await.unwrap();
        g.release().await.unwrap();
    }
    eprintln!("hung: {:?} per pair", at.elapsed() / 300);
    nodes[0].resume();
}
