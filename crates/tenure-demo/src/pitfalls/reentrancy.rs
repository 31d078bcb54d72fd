//! Mistakes with reentrant locks.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::life::shown;
use super::pitfall::{Observed, Pitfall};
use super::room::Room;
use super::scene::Scene;
use crate::plain_store::PlainStore;

pub(crate) const PITFALLS: [Pitfall; 5] = [
    Pitfall {
        name: "lock-again",
        mistake: |scene| Box::pin(waits_for_itself(scene)),
        tenure: |scene| Box::pin(re_enters(scene)),
    },
    Pitfall {
        name: "inner-release",
        mistake: |scene| Box::pin(frees_the_callers_lock(scene)),
        tenure: |scene| Box::pin(is_freed_by_the_last(scene)),
    },
    Pitfall {
        name: "count-off-by-one",
        mistake: |scene| Box::pin(counts_too_few(scene)),
        tenure: |scene| Box::pin(is_freed_by_the_last(scene)),
    },
    Pitfall {
        name: "one-flag",
        mistake: |scene| Box::pin(treats_a_second_lock_as_held(scene)),
        tenure: |scene| Box::pin(asks_for_each_name(scene)),
    },
    Pitfall {
        name: "flag-too-early",
        mistake: |scene| Box::pin(succeeds_the_second_time(scene)),
        tenure: |scene| Box::pin(is_refused_each_time(scene)),
    },
];

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// Time limit for a wait that would never end.
const LONG_ENOUGH: Duration = Duration::from_millis(500);
/// The depth of nested calls.
const DEPTH: usize = 3;

async fn waits_for_itself(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    store.set_nx_px(&key, "A", LONG).await?;
    let inner = store.take_within(&key, "A", LONG, LONG_ENOUGH).await?;
    let words = if inner {
        "the called function got the lock".to_owned()
    } else {
        let time = shown(LONG_ENOUGH);
        format!("the called function still waits for its own caller after {time}")
    };
    Ok(Observed::when(!inner, words))
}

async fn re_enters(scene: Scene) -> Result<Observed> {
    let (owner, name) = (scene.process("A").await?.owner(), scene.key("lock"));
    let outer = owner.lock(&name).acquire().await?;
    let begun = Instant::now();
    let inner = owner.lock(&name).wait(LONG_ENOUGH).acquire().await?;
    let time = shown(begun.elapsed());
    let is_same = inner.fence() == outer.fence();
    inner.release().await?;
    outer.release().await?;
    let lease = if is_same { "the same" } else { "another" };
    let words = format!("the called function acquired it after {time}, with {lease} lease");
    Ok(Observed::when(is_same, words))
}

/// The thread keeps a flag that it has the lock, and every release frees it.
async fn frees_the_callers_lock(scene: Scene) -> Result<Observed> {
    let (store, key, room) = (scene.store(), scene.key("lock"), Room::default());
    let mut thread = FlaggedThread::new(&store);
    thread.try_lock(&key).await?;
    let visit = room.enter();
    // The called function.
    thread.try_lock(&key).await?;
    thread.release(&key).await?;
    enter_if_free(&store, &key, &room).await?;
    drop(visit);
    Ok(while_the_caller_works(&room))
}

async fn counts_too_few(scene: Scene) -> Result<Observed> {
    let (store, key, room) = (scene.store(), scene.key("lock"), Room::default());
    let mut thread = CountingThread::new(&store);
    thread.lock(&key).await?;
    let visit = room.enter();
    // The called function.
    thread.lock(&key).await?;
    thread.release(&key).await?;
    enter_if_free(&store, &key, &room).await?;
    drop(visit);
    Ok(while_the_caller_works(&room))
}

async fn enter_if_free(store: &PlainStore, key: &str, room: &Room) -> Result<()> {
    if store.set_nx_px(key, "B", LONG).await? {
        drop(room.enter());
    }
    Ok(())
}

fn while_the_caller_works(room: &Room) -> Observed {
    let words = if room.most() == 2 {
        "two holders: the inner release freed the lock while the caller works"
    } else {
        "the caller's lock stayed"
    };
    Observed::when(room.most() == 2, words)
}

async fn is_freed_by_the_last(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let (owner, name) = (a.owner(), scene.key("lock"));
    let mut chain = Vec::new();
    for _ in 0..DEPTH {
        chain.push(owner.lock(&name).wait(LONG_ENOUGH).acquire().await?);
    }
    while let Some(guard) = chain.pop() {
        guard.release().await?;
        if b.lock(&name).try_acquire().await?.is_some() {
            let releases = DEPTH - chain.len();
            let words = format!("locked {DEPTH} times, and free after {releases} releases");
            return Ok(Observed::when(releases == DEPTH, words));
        }
    }
    Ok(Observed::when(false, "still locked after the last release"))
}

/// A thread with one flag for all locks.
struct FlaggedThread {
    store: PlainStore,
    has_lock: bool,
}

impl FlaggedThread {
    fn new(store: &PlainStore) -> Self {
        Self {
            store: store.clone(),
            has_lock: false,
        }
    }

    async fn try_lock(&mut self, key: &str) -> Result<bool> {
        if !self.has_lock {
            self.has_lock = self.store.set_nx_px(key, "A", LONG).await?;
        }
        Ok(self.has_lock)
    }

    /// The same, with its two steps in the wrong order.
    async fn try_lock_flag_first(&mut self, key: &str) -> Result<bool> {
        if self.has_lock {
            return Ok(true);
        }
        self.has_lock = true;
        self.store.set_nx_px(key, "A", LONG).await
    }

    async fn release(&mut self, key: &str) -> Result<()> {
        self.has_lock = false;
        self.store.del(key).await
    }
}

/// A thread that counts how often it has locked.
struct CountingThread {
    store: PlainStore,
    count: u32,
}

impl CountingThread {
    fn new(store: &PlainStore) -> Self {
        Self {
            store: store.clone(),
            count: 0,
        }
    }

    async fn lock(&mut self, key: &str) -> Result<()> {
        if self.count > 0 {
            let mut count = self.count;
            // Stores the result of `count++`: the old number.
            self.count = increment_afterwards(&mut count);
        } else if self.store.set_nx_px(key, "A", LONG).await? {
            self.count = 1;
        }
        Ok(())
    }

    async fn release(&mut self, key: &str) -> Result<()> {
        self.count -= 1;
        if self.count == 0 {
            self.store.del(key).await?;
        }
        Ok(())
    }
}

/// `number++`
fn increment_afterwards(number: &mut u32) -> u32 {
    let before = *number;
    *number += 1;
    before
}

async fn treats_a_second_lock_as_held(scene: Scene) -> Result<Observed> {
    let (store, one, two) = (scene.store(), scene.key("one"), scene.key("two"));
    store.set_nx_px(&two, "B", LONG).await?;
    let mut thread = FlaggedThread::new(&store);
    thread.try_lock(&one).await?;
    let second = thread.try_lock(&two).await?;
    let words = if second {
        "two holders: holding one lock, A also \"has\" the lock of B"
    } else {
        "the second lock was refused"
    };
    Ok(Observed::when(second, words))
}

async fn asks_for_each_name(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let (one, two) = (scene.key("one"), scene.key("two"));
    let of_b = b.lock(&two).acquire().await?;
    let owner = a.owner();
    let first = owner.lock(&one).acquire().await?;
    let second = owner.lock(&two).try_acquire().await?;
    let is_refused = second.is_none();
    drop(second);
    first.release().await?;
    of_b.release().await?;
    let words = if is_refused {
        "A is refused the lock of B, whatever else it holds"
    } else {
        "two holders"
    };
    Ok(Observed::when(is_refused, words))
}

async fn succeeds_the_second_time(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    store.set_nx_px(&key, "B", LONG).await?;
    let mut thread = FlaggedThread::new(&store);
    let first = thread.try_lock_flag_first(&key).await?;
    let second = thread.try_lock_flag_first(&key).await?;
    Ok(Observed::when(!first && second, two_answers(first, second)))
}

async fn is_refused_each_time(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let (owner, name) = (a.owner(), scene.key("lock"));
    let of_b = b.lock(&name).acquire().await?;
    let first = owner.lock(&name).try_acquire().await?.is_some();
    let second = owner.lock(&name).try_acquire().await?.is_some();
    of_b.release().await?;
    Ok(Observed::when(
        !first && !second,
        two_answers(first, second),
    ))
}

fn two_answers(first: bool, second: bool) -> String {
    let answer = |granted| if granted { "yes" } else { "no" };
    let (first, second) = (answer(first), answer(second));
    format!("B holds it; A's first try returns {first}, the second {second}")
}
