//! What is in the server, byte by byte.

use tenure::Released;
use tenure_testkit::{RedisServer, RespClient};

use super::{ours, stage};
use crate::stage::ms;

/// The names that Redisson's rule knows, with the counter and the channel beside them.
const NAMES: [(&str, &str, &str); 4] = [
    (
        "orders",
        "redisson_lock_token:{orders}",
        "redisson_lock__channel:{orders}",
    ),
    (
        "a{b}c",
        "redisson_lock_token:a{b}c",
        "redisson_lock__channel:a{b}c",
    ),
    (
        "{x}",
        "redisson_lock_token:{x}",
        "redisson_lock__channel:{x}",
    ),
    (
        "two words, é",
        "redisson_lock_token:{two words, é}",
        "redisson_lock__channel:{two words, é}",
    ),
];

#[tenure_testkit::test]
async fn a_held_lock_is_a_hash_with_one_field_and_an_end() {
    let (server, ours, _java) = stage().await;
    let mut redis = server.client();
    for (name, counter, _) in NAMES {
        let guard = ours.lock(name).acquire().await.unwrap();
        let fields = redis.command(&["HGETALL", name]);
        let [field, value] = fields.array() else {
            panic!("{fields:?}");
        };
        assert_eq!(field.text(), guard.lease_id().as_str());
        assert!(is_redissons_field(field.text()), "{field:?}");
        assert_eq!(value.text(), "1");
        let left = redis.command(&["PTTL", name]).int();
        assert!((1..=30_000).contains(&left), "{left}");
        let fence = i64::try_from(guard.fence().get()).unwrap();
        assert_eq!(redis.command(&["GET", counter]).int(), fence);
        assert_eq!(
            redis.command(&["PTTL", counter]).int(),
            -1,
            "never forgotten"
        );
        guard.release().await.unwrap();
    }
}

/// `^[0-9a-f-]{36}:\d+$`, as Redisson writes it.
fn is_redissons_field(field: &str) -> bool {
    let Some((uuid, number)) = field.split_once(':') else {
        return false;
    };
    let is_hex = |byte: u8| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    uuid.len() == 36 && uuid.bytes().all(is_hex) && number.bytes().all(|it| it.is_ascii_digit())
}

#[tenure_testkit::test]
async fn a_release_deletes_and_says_zero_on_redissons_channel() {
    let (server, ours, _java) = stage().await;
    for (name, _, channel) in NAMES {
        let mut ear = listening(&server, channel);
        let guard = ours.lock(name).acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        let message = ear.next_message(ms(5_000)).unwrap();
        assert_eq!(
            (message.channel.as_str(), message.payload.as_str()),
            (channel, "0")
        );
        assert_eq!(server.client().command(&["EXISTS", name]).int(), 0);
    }
}

fn listening(server: &RedisServer, channel: &str) -> RespClient {
    let mut ear = server.client();
    ear.subscribe(&[channel]);
    ear
}

/// Reentrancy is counted on our side: what Redisson sees is one hold.
#[tenure_testkit::test]
async fn a_re_entered_lock_still_counts_one() {
    let (server, ours, mut java) = stage().await;
    let owner = ours.owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    let inner = owner.lock("n").acquire().await.unwrap();
    let mut redis = server.client();
    let count = redis.command(&["HGET", "n", outer.lease_id().as_str()]);
    assert_eq!(count.text(), "1");
    inner.release().await.unwrap();
    assert!(!java.try_lock("n"), "the outer guard holds it");
    outer.release().await.unwrap();
    assert!(java.try_lock("n"));
}

/// No other client gets in between two of ours: to all others the lock is held the whole time.
#[tenure_testkit::test]
async fn an_offer_is_a_lock_of_the_waiters_lease() {
    let (server, ours_1, mut java) = stage().await;
    let guard = ours_1.lock("n").acquire().await.unwrap();
    let dead = "00000000-0000-8000-8000-000000000007:100060000";
    let mut redis = server.client();
    redis.command(&["ZADD", "tenure:queue:{n}", "1", dead]);
    let mut ear = server.client();
    ear.subscribe(&["tenure:wake:{n}"]);
    guard.release().await.unwrap();
    assert_eq!(ear.next_message(ms(5_000)).unwrap().payload, dead);
    assert_eq!(redis.command(&["HGET", "n", dead]).text(), "1");
    let left = redis.command(&["PTTL", "n"]).int();
    assert!((1..=2_000).contains(&left), "{left}");
    assert!(!java.try_lock("n"));
    let ours_2 = ours(&server).await;
    let holder = ours_2.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.lease.as_str(), dead);
    assert!(holder.lease.is_tenure());
}

#[tenure_testkit::test]
async fn a_free_lock_is_taken_in_one_round_trip_and_released_in_one() {
    let (server, ours, _java) = stage().await;
    server.reset_stats();
    for _ in 0..10 {
        let guard = ours.lock("n").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(server.command_calls("evalsha"), 20);
    assert_eq!(server.command_calls("eval"), 0);
    assert_eq!(server.command_calls("subscribe"), 0);
    assert_eq!(server.command_calls("publish"), 10, "Java may be waiting");
}
