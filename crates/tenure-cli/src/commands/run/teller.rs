//! Prints messages without ever blocking: a stderr that is not read must not keep a command alive.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tenure_view::output::complain;
use tokio::sync::oneshot;

/// How many lines to keep while stderr is not read.
const UNREAD_MAX: usize = 100;

/// Prints messages on its own thread, which starts with the first message.
#[derive(Debug, Default)]
pub struct Teller {
    thread: Option<SyncSender<Word>>,
}

enum Word {
    Line(String),
    /// Answered when all lines before it are printed.
    Flush(oneshot::Sender<()>),
}

impl Teller {
    /// Prints a line. It is dropped if too many are unread.
    pub fn print(&mut self, line: String) {
        let thread = self.thread.take().or_else(start);
        if let Some(thread) = &thread {
            let _ = thread.try_send(Word::Line(line));
        }
        self.thread = thread;
    }

    /// Waits until all lines are printed, but at most this long.
    pub async fn finish(&self, at_most: Duration) {
        let Some(thread) = &self.thread else { return };
        let (done, flushed) = oneshot::channel();
        if thread.try_send(Word::Flush(done)).is_ok() {
            let _ = tokio::time::timeout(at_most, flushed).await;
        }
    }
}

fn start() -> Option<SyncSender<Word>> {
    let (words, received) = sync_channel(UNREAD_MAX);
    let thread = thread::Builder::new().name("teller".to_owned());
    thread.spawn(move || print_all(&received)).ok()?;
    Some(words)
}

fn print_all(words: &Receiver<Word>) {
    for word in words {
        match word {
            Word::Line(line) => complain(line),
            Word::Flush(done) => drop(done.send(())),
        }
    }
}
