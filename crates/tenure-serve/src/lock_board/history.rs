//! The history of each lock: its last holders and events. Bounded in every dimension.

use std::collections::{HashMap, VecDeque};
use std::time::SystemTime;

use serde::Serialize;
use tenure_view::changes::{Change, Event};
use utoipa::ToSchema;

/// Limits: entries per lock, number of locks, events of all locks together.
const KEPT_OF_EACH: usize = 100;
const LOCKS_MAX: usize = 2_000;
const KEPT_OF_ALL: usize = 1_000;
/// How many characters of a holder's description are kept; it can be 4 kB long.
const WHO_MAX: usize = 200;

/// The histories of all locks.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    by_lock: HashMap<String, History>,
    recent: VecDeque<Change>,
    /// Counts recorded events, to find the lock that was idle for longest.
    noted: u64,
}

#[derive(Debug, Default)]
struct History {
    holds: VecDeque<Hold>,
    events: VecDeque<Change>,
    last: u64,
}

/// One hold, as far as this instance saw it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Hold {
    pub(crate) lease_id: Option<String>,
    pub(crate) fence: Option<u64>,
    pub(crate) who: String,
    /// Since when it was held; seen, perhaps, a moment later.
    pub(crate) from: String,
    /// Null while it is held; seen a moment later, but not after the next one began.
    pub(crate) to: Option<String>,
    /// Null while it is held; `forced`, `expired`, or `released`, which is all that ends before its time.
    pub(crate) end: Option<&'static str>,
}

impl Histories {
    pub(crate) fn note(&mut self, change: &Change) {
        let change = &shortened(change.clone());
        self.noted += 1;
        self.make_room(&change.name);
        let history = self.by_lock.entry(change.name.clone()).or_default();
        history.last = self.noted;
        history.note(change);
        keep(&mut self.recent, change.clone(), KEPT_OF_ALL);
    }

    pub(crate) fn of(&self, name: &str) -> (Vec<Hold>, Vec<Change>) {
        let Some(history) = self.by_lock.get(name) else {
            return (Vec::new(), Vec::new());
        };
        let holds = history.holds.iter().cloned().collect();
        (holds, history.events.iter().cloned().collect())
    }

    pub(crate) fn recent(&self) -> Vec<Change> {
        self.recent.iter().cloned().collect()
    }

    /// Drops the locks that were idle for longest, several at a time.
    fn make_room(&mut self, name: &str) {
        if self.by_lock.len() < LOCKS_MAX || self.by_lock.contains_key(name) {
            return;
        }
        let mut quiet: Vec<u64> = self.by_lock.values().map(|history| history.last).collect();
        quiet.sort_unstable();
        let keep_after = quiet[LOCKS_MAX / 10];
        self.by_lock.retain(|_, history| history.last > keep_after);
    }
}

impl History {
    fn note(&mut self, change: &Change) {
        match change.event {
            Event::Held | Event::Taken => self.begin(change),
            Event::HandedOn => {
                self.end(change, None);
                self.begin(change);
            }
            Event::Ended => self.end(change, change.ends),
            Event::Forced => {
                // It may have been too short to be seen.
                if self.holds.back().is_none_or(|hold| hold.to.is_some()) {
                    self.begin(change);
                }
                self.end_by(change, "forced");
            }
            Event::Waiting | Event::Renewed => {}
        }
        // Of consecutive renewals, the last one is enough.
        let is_again = |last: &Change| {
            last.event == Event::Renewed
                && change.event == Event::Renewed
                && last.fence == change.fence
        };
        if self.events.back().is_some_and(is_again) {
            self.events.pop_back();
        }
        keep(&mut self.events, change.clone(), KEPT_OF_EACH);
    }

    fn begin(&mut self, change: &Change) {
        let mut from = change.since.clone().unwrap_or_else(|| change.at.clone());
        // An end has the time at which it was seen. Timestamps sort as text.
        if let Some(before) = self.holds.back_mut() {
            from = from.max(before.from.clone());
            before.to = before.to.take().map(|to| to.min(from.clone()));
        }
        let hold = Hold {
            lease_id: change.lease_id.clone(),
            fence: change.fence,
            who: change.who.clone(),
            from,
            to: None,
            end: None,
        };
        keep(&mut self.holds, hold, KEPT_OF_EACH);
    }

    fn end(&mut self, change: &Change, was_to_end: Option<SystemTime>) {
        let has_run_out = was_to_end.is_some_and(|ends| ends <= SystemTime::now());
        self.end_by(change, if has_run_out { "expired" } else { "released" });
    }

    fn end_by(&mut self, change: &Change, end: &'static str) {
        if let Some(hold) = self.holds.back_mut().filter(|hold| hold.to.is_none()) {
            hold.to = Some(change.at.clone());
            hold.end = Some(end);
        }
    }
}

fn shortened(mut change: Change) -> Change {
    let cut = change.who.char_indices().nth(WHO_MAX);
    if let Some((at, _)) = cut {
        change.who.truncate(at);
        change.who.shrink_to_fit();
    }
    change
}

fn keep<T>(kept: &mut VecDeque<T>, one: T, most: usize) {
    if kept.len() == most {
        kept.pop_front();
    }
    kept.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_view::holders::LockReport;

    fn change(event: Event, name: &str, fence: u64) -> Change {
        let mut lock = LockReport::of_holder(name, None, &[]);
        lock.fence = Some(fence);
        Change::of(event, &lock)
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut histories = Histories::default();
        for number in 0..300 {
            histories.note(&change(Event::Taken, "busy", number));
            histories.note(&change(Event::Ended, "busy", number));
        }
        let (holds, events) = histories.of("busy");
        assert_eq!((holds.len(), events.len()), (KEPT_OF_EACH, KEPT_OF_EACH));
        assert_eq!(holds.last().unwrap().fence, Some(299));
        for number in 0..5_000 {
            histories.note(&change(Event::Taken, &format!("lock {number}"), 1));
        }
        assert!(histories.by_lock.len() <= LOCKS_MAX);
        assert_eq!(histories.of("lock 4999").0.len(), 1, "the last are kept");
        assert!(
            histories.of("busy").0.is_empty(),
            "what was quiet goes first"
        );
        assert_eq!(histories.recent().len(), KEPT_OF_ALL);
    }

    #[test]
    fn of_long_words_the_beginning_is_kept() {
        let mut histories = Histories::default();
        let mut taken = change(Event::Taken, "n", 1);
        taken.who = "é".repeat(4_000);
        histories.note(&taken);
        let (holds, events) = histories.of("n");
        for who in [&holds[0].who, &events[0].who, &histories.recent()[0].who] {
            assert_eq!(*who, "é".repeat(WHO_MAX));
        }
    }

    #[test]
    fn renewals_in_a_row_are_one_event() {
        let mut histories = Histories::default();
        histories.note(&change(Event::Taken, "n", 1));
        for _ in 0..1_000 {
            histories.note(&change(Event::Renewed, "n", 1));
        }
        assert_eq!(histories.of("n").1.len(), 2);
    }

    #[test]
    fn nobody_holds_before_the_one_before_has_ended() {
        let at = |event, fence, since: &str, at: &str| {
            let mut change = change(event, "n", fence);
            (change.since, change.at) = (Some(since.to_owned()), at.to_owned());
            change
        };
        let mut histories = Histories::default();
        histories.note(&at(Event::Taken, 1, "01", "02"));
        histories.note(&at(Event::Ended, 1, "01", "05"));
        histories.note(&at(Event::Taken, 2, "03", "05"));
        histories.note(&at(Event::HandedOn, 3, "06", "07"));
        // As reported by a client whose clock is late.
        histories.note(&at(Event::HandedOn, 4, "04", "08"));
        histories.note(&at(Event::Ended, 4, "04", "09"));
        let holds = histories.of("n").0;
        let times: Vec<_> = holds
            .iter()
            .map(|hold| (hold.from.as_str(), hold.to.as_deref().unwrap()))
            .collect();
        assert_eq!(
            times,
            [("01", "03"), ("03", "06"), ("06", "06"), ("06", "09")]
        );
    }

    #[test]
    fn a_hold_tells_how_it_ended() {
        let ends = |events: &[Change]| -> Option<&'static str> {
            let mut histories = Histories::default();
            for event in events {
                histories.note(event);
            }
            histories.of("n").0.last().unwrap().end
        };
        let taken = change(Event::Taken, "n", 1);
        let mut run_out = change(Event::Ended, "n", 1);
        run_out.ends = Some(SystemTime::UNIX_EPOCH);
        let forced = change(Event::Forced, "n", 1);
        let ended = change(Event::Ended, "n", 1);
        assert_eq!(ends(std::slice::from_ref(&taken)), None);
        assert_eq!(ends(&[taken.clone(), ended.clone()]), Some("released"));
        assert_eq!(ends(&[taken.clone(), run_out]), Some("expired"));
        assert_eq!(ends(&[taken, forced.clone(), ended]), Some("forced"));
        assert_eq!(ends(&[forced]), Some("forced"), "too short to be seen");
    }
}
