//! Tells people what happens, and never waits until they read it: a stderr that nobody reads must
//! not keep a command alive.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tenure_view::output::complain;
use tokio::sync::oneshot;

/// How many lines to keep for one who does not read.
const UNTOLD_MAX: usize = 100;

/// Tells things by a thread of its own, which is started for the first of them.
#[derive(Debug, Default)]
pub struct Teller {
    thread: Option<SyncSender<Word>>,
}

enum Word {
    Line(String),
    /// All before this was told.
    Told(oneshot::Sender<()>),
}

impl Teller {
    /// Tells a line. It is dropped if there are too many that nobody has read.
    pub fn tell(&mut self, line: String) {
        let thread = self.thread.take().or_else(start);
        if let Some(thread) = &thread {
            let _ = thread.try_send(Word::Line(line));
        }
        self.thread = thread;
    }

    /// Waits until all was told, but not for longer than this.
    pub async fn finish(&self, at_most: Duration) {
        let Some(thread) = &self.thread else { return };
        let (told, is_told) = oneshot::channel();
        if thread.try_send(Word::Told(told)).is_ok() {
            let _ = tokio::time::timeout(at_most, is_told).await;
        }
    }
}

fn start() -> Option<SyncSender<Word>> {
    let (words, heard) = sync_channel(UNTOLD_MAX);
    let thread = thread::Builder::new().name("teller".to_owned());
    thread.spawn(move || tell_all(&heard)).ok()?;
    Some(words)
}

fn tell_all(words: &Receiver<Word>) {
    for word in words {
        match word {
            Word::Line(line) => complain(line),
            Word::Told(told) => drop(told.send(())),
        }
    }
}
