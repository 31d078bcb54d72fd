//! What a server that dies remembers, by how it writes things down.

use std::fs::OpenOptions;
use std::path::PathBuf;

use tenure::{Fence, Lease, Tenure};
use tenure_testkit::{Fsync, RedisServer, eventually};

use crate::stage::ms;

/// Takes a lock for longer than any test lasts, and does not renew it.
async fn taken(server: &RedisServer) -> (Lease, Fence) {
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let lock = tenure.lock("n").ttl(ms(60_000)).no_renewal();
    let guard = lock.acquire().await.unwrap();
    let fence = guard.fence();
    (guard.detach().unwrap(), fence)
}

/// The fence of a second holder, if there can be one.
async fn taken_again(server: &RedisServer) -> Option<Fence> {
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").try_acquire().await.unwrap();
    guard.map(|guard| guard.fence())
}

/// With `everysec` the reply may come before the write: Redis waits for a slow disk that way.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_lock_survives_the_crash_of_a_server_that_has_written_it() {
    for fsync in [Fsync::Always, Fsync::Everysec] {
        let server = RedisServer::builder().aof(fsync).start();
        let _lease = taken(&server).await;
        if fsync == Fsync::Everysec {
            assert!(eventually(ms(60_000), || has_written_all(&server)));
        }
        server.kill();
        server.restart();
        assert_eq!(taken_again(&server).await, None, "{fsync:?}");
    }
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_server_without_one_forgets_its_locks_and_fences_grow() {
    let server = RedisServer::start();
    let (_lease, fence) = taken(&server).await;
    server.kill();
    server.restart();
    let again = taken_again(&server).await;
    assert!(again.expect("it was forgotten") > fence);
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn what_a_power_cut_takes_from_an_append_only_file_is_forgotten_and_fences_grow() {
    let server = RedisServer::builder().aof(Fsync::Everysec).start();
    let written = append_only_file(&server);
    let synced = written.metadata().unwrap().len();
    let (_lease, fence) = taken(&server).await;
    server.kill();
    // The operating system had it, and the disk had not.
    let file = OpenOptions::new().write(true).open(&written);
    file.unwrap().set_len(synced).unwrap();
    server.restart();
    let again = taken_again(&server).await;
    assert!(again.expect("it was forgotten") > fence);
}

fn has_written_all(server: &RedisServer) -> bool {
    let info = server.client().command(&["INFO", "persistence"]);
    info.text()
        .lines()
        .any(|line| line == "aof_buffer_length:0")
}

fn append_only_file(server: &RedisServer) -> PathBuf {
    let reply = server.client().command(&["CONFIG", "GET", "dir"]);
    let dir = PathBuf::from(reply.array()[1].text()).join("appendonlydir");
    let files = std::fs::read_dir(dir).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    let is_increment = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    paths.find(is_increment).unwrap()
}
