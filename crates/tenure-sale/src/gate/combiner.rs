//! Requests of concurrent buyers travel together.
//!
//! While the server answers one call, others gather and make the next one. A buyer who finds room
//! sends at once, from its own task; whoever comes when enough calls are under way waits and is sent
//! by a task that goes on for as long as somebody waits. Nobody depends on another buyer's future: a
//! call with several requests never belongs to one of them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::order::{Answer, Outcome, Request};

/// Requests of one call. The server serves nobody else meanwhile: about a millisecond.
const REQUESTS_MAX: usize = 128;
/// Calls of one item that are under way at once.
const CALLS_MAX: usize = 4;
/// Requests of one item that wait in this process. Who comes then is told that the gate is busy.
const WAITING_MAX: usize = 16 * 1024;
/// How often a request whose sender was ended with its runtime looks for another.
const TRIES_MAX: usize = 3;

/// How requests reach the server.
pub(super) trait Call: Clone + Send + Sync + 'static {
    /// Asks for several orders of one item, and gets as many answers, in their order.
    fn call(
        &self,
        item: &str,
        requests: &[Request],
    ) -> impl Future<Output = Result<Vec<Answer>>> + Send;
}

/// Brings requests for the same item together.
#[derive(Clone)]
pub(super) struct Combiner<C: Call> {
    call: C,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    // A std mutex, not an async one: no call waits while it is held.
    lines: Mutex<HashMap<String, Line>>,
}

/// The requests for one item. It exists while a call is under way.
#[derive(Default)]
struct Line {
    calls: usize,
    waiting: VecDeque<Ask>,
}

struct Ask {
    request: Request,
    answer: oneshot::Sender<Result<Answer>>,
}

enum Joined<C: Call> {
    /// Send it yourself.
    Room(Place<C>),
    /// Somebody will.
    Waits(oneshot::Receiver<Result<Answer>>),
    Full,
}

impl<C: Call> Combiner<C> {
    pub(super) fn new(call: C) -> Self {
        Self {
            call,
            shared: Arc::default(),
        }
    }

    pub(super) async fn ask(&self, request: &Request) -> Result<Answer> {
        for _ in 0..TRIES_MAX {
            match self.join(request) {
                Joined::Room(place) => {
                    let answers = self
                        .call
                        .call(request.item(), std::slice::from_ref(request));
                    let answers = answers.await;
                    if let Err(error) = &answers {
                        place.fail_waiting(error);
                    }
                    drop(place);
                    return one(request.item(), answers?);
                }
                Joined::Waits(answer) => {
                    // An error: its sender is gone, because its runtime was shut down.
                    if let Ok(answer) = answer.await {
                        return answer;
                    }
                }
                Joined::Full => {
                    return Ok(Answer {
                        outcome: Outcome::Busy,
                        left: None,
                    });
                }
            }
        }
        Err(unsent(request.item()))
    }

    fn join(&self, request: &Request) -> Joined<C> {
        let mut lines = self.shared.lines();
        let line = match lines.get_mut(request.item()) {
            Some(line) => line,
            None => lines.entry(request.item().to_owned()).or_default(),
        };
        if line.calls < CALLS_MAX {
            line.calls += 1;
            return Joined::Room(Place {
                combiner: self.clone(),
                item: request.item().to_owned(),
                kind: Kind::Own,
            });
        }
        if line.waiting.len() >= WAITING_MAX {
            return Joined::Full;
        }
        let (answer, waits) = oneshot::channel();
        line.waiting.push_back(Ask {
            request: request.clone(),
            answer,
        });
        Joined::Waits(waits)
    }
}

/// One of the calls that may be under way. When it is over, those who wait go next.
struct Place<C: Call> {
    combiner: Combiner<C>,
    item: String,
    kind: Kind,
}

enum Kind {
    /// Of a buyer who sends its own request.
    Own,
    /// Of a task that sends for others.
    Sender,
    /// Given up already.
    Left,
}

impl<C: Call> Place<C> {
    /// Those who go next. If nobody waits, the place is given up in the same step: who comes then
    /// finds room.
    fn next(&mut self) -> Vec<Ask> {
        let mut lines = self.combiner.shared.lines();
        let Some(line) = lines.get_mut(&self.item) else {
            return Vec::new();
        };
        let mut next = Vec::new();
        while next.len() < REQUESTS_MAX
            && let Some(ask) = line.waiting.pop_front()
        {
            // Who is gone meanwhile needs no answer.
            if !ask.answer.is_closed() {
                next.push(ask);
            }
        }
        if next.is_empty() {
            self.kind = Kind::Left;
            line.calls -= 1;
            if line.calls == 0 {
                lines.remove(&self.item);
            }
        }
        next
    }

    /// What failed for one would fail for those who wait, each after as long a wait.
    fn fail_waiting(&self, error: &Error) {
        let waiting = {
            let mut lines = self.combiner.shared.lines();
            let line = lines.get_mut(&self.item);
            line.map(|line| std::mem::take(&mut line.waiting))
        };
        for ask in waiting.into_iter().flatten() {
            let message = format!(
                "the order of `{}` was not asked for, because the gate failed others before it: ask \
                 again",
                self.item
            );
            let _ = ask.answer.send(Err(error.shared().saying(message)));
        }
    }
}

impl<C: Call> Drop for Place<C> {
    fn drop(&mut self) {
        let mut lines = self.combiner.shared.lines();
        let Some(line) = lines.get_mut(&self.item) else {
            return;
        };
        match self.kind {
            Kind::Left => return,
            Kind::Own if !line.waiting.is_empty() => {
                if let Ok(runtime) = Handle::try_current() {
                    drop(lines);
                    let place = Self {
                        combiner: self.combiner.clone(),
                        item: self.item.clone(),
                        kind: Kind::Sender,
                    };
                    runtime.spawn(send_waiting(place));
                    return;
                }
            }
            // A sender that ends here was shut down with its runtime.
            Kind::Own | Kind::Sender => {}
        }
        line.calls -= 1;
        if line.calls == 0 {
            // Those who still wait learn by this that nobody sends for them, and try again.
            let abandoned = lines.remove(&self.item);
            drop(lines);
            drop(abandoned);
        }
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, HashMap<String, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Call> fmt::Debug for Combiner<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Combiner")
    }
}

/// The only answer.
fn one(item: &str, mut answers: Vec<Answer>) -> Result<Answer> {
    answers.pop().ok_or_else(|| unsent(item))
}

fn unsent(item: &str) -> Error {
    let message = format!(
        "the order of `{item}` got no answer, and what became of it is unknown: ask again with the \
         same request id"
    );
    Error::new(ErrorKind::Store, message)
}

/// Sends for those who wait, until nobody does.
async fn send_waiting<C: Call>(mut place: Place<C>) {
    loop {
        // Who was just answered may ask again at once: let them join.
        tokio::task::yield_now().await;
        let (requests, answers): (Vec<_>, Vec<_>) = {
            let next = place.next().into_iter();
            next.map(|ask| (ask.request, ask.answer)).unzip()
        };
        if requests.is_empty() {
            return;
        }
        match place.combiner.call.call(&place.item, &requests).await {
            Ok(given) => {
                for (waiting, answer) in answers.into_iter().zip(given) {
                    let _ = waiting.send(Ok(answer));
                }
            }
            Err(error) => {
                for waiting in answers {
                    let _ = waiting.send(Err(error.shared()));
                }
                place.fail_waiting(&error);
            }
        }
    }
}
