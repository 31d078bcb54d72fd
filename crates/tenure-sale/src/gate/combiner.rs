//! Batches the requests of concurrent buyers.
//!
//! While the server works on one call, further requests queue up and form the next one. A buyer
//! that finds a free slot sends at once, from its own task. If enough calls are in flight, it waits
//! and is sent by a background task, which runs as long as there are waiting requests. No request
//! depends on another buyer's future: a call with several requests never belongs to one of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::order::{Answer, Outcome, Request};

/// Requests per call. The server serves no one else meanwhile: about half a millisecond.
const REQUESTS_MAX: usize = 128;
/// Calls in flight to one place. While the server works on one, the next is on its way; more would
/// only make them smaller.
const CALLS_MAX: usize = 2;
/// Requests for one place that wait in this process. Further ones are answered with *busy*.
const WAITING_MAX: usize = 16 * 1024;
/// How often a request looks for another sender if its sender ended with its runtime.
const TRIES_MAX: usize = 3;

/// How requests reach the server.
pub(super) trait Call: Send + Sync + 'static {
    /// Where requests go; those for the same place are batched.
    type Place: AsRef<Line<Self::Packed>> + Send + Sync;
    /// A request as it waits and travels.
    type Packed: Send + Sync + 'static;

    /// The item that is sold there.
    fn item(place: &Self::Place) -> &str;

    fn pack(&self, request: &Request) -> Self::Packed;

    /// Submits several requests for one item, and returns as many answers, in order.
    fn call(
        &self,
        place: &Self::Place,
        requests: &[Self::Packed],
    ) -> impl Future<Output = Result<Vec<Answer>>> + Send;
}

/// Batches the requests for the same place.
pub(super) struct Combiner<C> {
    call: Arc<C>,
}

/// The requests for one place: part of the place, so that nobody has to look for it.
pub(super) struct Line<P> {
    // A std mutex, not an async one: no call waits while it is held.
    state: Mutex<LineState<P>>,
}

struct LineState<P> {
    calls: usize,
    waiting: VecDeque<Ask<P>>,
}

struct Ask<P> {
    request: P,
    answer: oneshot::Sender<Result<Answer>>,
}

enum Joined<C: Call> {
    /// Send it yourself.
    Room(Turn<C>, C::Packed),
    /// A background task will send it.
    Waits(oneshot::Receiver<Result<Answer>>),
    Full,
}

impl<C: Call> Combiner<C> {
    pub(super) fn new(call: C) -> Self {
        Self {
            call: Arc::new(call),
        }
    }

    pub(super) async fn ask(&self, place: &Arc<C::Place>, request: &Request) -> Result<Answer> {
        for _ in 0..TRIES_MAX {
            match self.join(place, request) {
                Joined::Room(turn, packed) => {
                    let answers = self.call.call(place, std::slice::from_ref(&packed));
                    let answers = answers.await;
                    if let Err(error) = &answers {
                        turn.fail_waiting(error);
                    }
                    drop(turn);
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

    fn join(&self, place: &Arc<C::Place>, request: &Request) -> Joined<C> {
        // Before the line is locked: others want it too.
        let packed = self.call.pack(request);
        let line = (**place).as_ref();
        let mut state = line.state();
        if state.calls < CALLS_MAX {
            state.calls += 1;
            let turn = Turn {
                call: Arc::clone(&self.call),
                place: Arc::clone(place),
                kind: Kind::Own,
            };
            return Joined::Room(turn, packed);
        }
        if state.waiting.len() >= WAITING_MAX {
            return Joined::Full;
        }
        let (answer, waits) = oneshot::channel();
        state.waiting.push_back(Ask {
            request: packed,
            answer,
        });
        Joined::Waits(waits)
    }
}

/// One of the allowed calls in flight. When it ends, the waiting requests are next.
struct Turn<C: Call> {
    call: Arc<C>,
    place: Arc<C::Place>,
    kind: Kind,
}

enum Kind {
    /// Of a buyer that sends its own request.
    Own,
    /// Of a task that sends for others.
    Sender,
    /// Already given up.
    Left,
}

/// Requests that are sent together, and where their answers go.
type Batch<P> = (Vec<P>, Vec<oneshot::Sender<Result<Answer>>>);

impl<C: Call> Turn<C> {
    fn line(&self) -> &Line<C::Packed> {
        (*self.place).as_ref()
    }

    /// The next requests. If none wait, the slot is freed in the same step, so that the next
    /// request finds it.
    fn next(&mut self) -> Batch<C::Packed> {
        let mut state = (*self.place).as_ref().state();
        let most = state.waiting.len().min(REQUESTS_MAX);
        let (mut requests, mut answers) = (Vec::with_capacity(most), Vec::with_capacity(most));
        while requests.len() < REQUESTS_MAX
            && let Some(ask) = state.waiting.pop_front()
        {
            // A receiver that is gone needs no answer.
            if !ask.answer.is_closed() {
                requests.push(ask.request);
                answers.push(ask.answer);
            }
        }
        if requests.is_empty() {
            self.kind = Kind::Left;
            state.calls -= 1;
            // Nothing remains of a rush.
            state.waiting.shrink_to(REQUESTS_MAX);
        }
        (requests, answers)
    }

    /// What failed for one request would fail for the waiting ones, each after the same delay.
    fn fail_waiting(&self, error: &Error) {
        let waiting = std::mem::take(&mut self.line().state().waiting);
        for ask in waiting {
            let message = format!(
                "the order of `{}` was not sent, because the gate failed for earlier requests: try \
                 again",
                C::item(&self.place)
            );
            let _ = ask.answer.send(Err(error.shared().saying(message)));
        }
    }
}

impl<C: Call> Drop for Turn<C> {
    fn drop(&mut self) {
        let mut state = (*self.place).as_ref().state();
        match self.kind {
            Kind::Left => return,
            Kind::Own if !state.waiting.is_empty() => {
                if let Ok(runtime) = Handle::try_current() {
                    drop(state);
                    let turn = Self {
                        call: Arc::clone(&self.call),
                        place: Arc::clone(&self.place),
                        kind: Kind::Sender,
                    };
                    runtime.spawn(send_waiting(turn));
                    return;
                }
            }
            // A sender that ends here was shut down with its runtime.
            Kind::Own | Kind::Sender => {}
        }
        state.calls -= 1;
        if state.calls == 0 {
            // The waiting requests learn from this that they have no sender, and try again.
            let abandoned = std::mem::take(&mut state.waiting);
            drop(state);
            drop(abandoned);
        }
    }
}

impl<P> Line<P> {
    fn state(&self) -> MutexGuard<'_, LineState<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> Default for Line<P> {
    fn default() -> Self {
        Self {
            state: Mutex::new(LineState {
                calls: 0,
                waiting: VecDeque::new(),
            }),
        }
    }
}

impl<P> fmt::Debug for Line<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl<C> Clone for Combiner<C> {
    fn clone(&self) -> Self {
        Self {
            call: Arc::clone(&self.call),
        }
    }
}

impl<C> fmt::Debug for Combiner<C> {
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
        "the order of `{item}` got no reply, and its outcome is unknown: try again with the \
         same request id"
    );
    Error::new(ErrorKind::Store, message)
}

/// Sends waiting requests until there are none.
async fn send_waiting<C: Call>(mut turn: Turn<C>) {
    loop {
        // Callers that were just answered may submit again at once: let them join.
        tokio::task::yield_now().await;
        let (requests, answers) = turn.next();
        if requests.is_empty() {
            return;
        }
        match turn.call.call(&turn.place, &requests).await {
            Ok(given) => {
                for (waiting, answer) in answers.into_iter().zip(given) {
                    let _ = waiting.send(Ok(answer));
                }
            }
            Err(error) => {
                for waiting in answers {
                    let _ = waiting.send(Err(error.shared()));
                }
                turn.fail_waiting(&error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::order::OrderId;

    /// A server that replies when allowed, and numbers its requests.
    #[derive(Clone)]
    struct Server {
        item: Arc<Item>,
        let_through: Arc<Semaphore>,
        numbers: Arc<AtomicUsize>,
        calls: Arc<Mutex<Vec<Vec<String>>>>,
        fails: bool,
    }

    impl Server {
        fn new() -> Self {
            Self {
                item: Arc::default(),
                let_through: Arc::new(Semaphore::new(0)),
                numbers: Arc::default(),
                calls: Arc::default(),
                fails: false,
            }
        }

        fn calls(&self) -> Vec<Vec<String>> {
            self.calls.lock().unwrap().clone()
        }
    }

    #[derive(Default)]
    struct Item {
        line: Line<String>,
    }

    impl AsRef<Line<String>> for Item {
        fn as_ref(&self) -> &Line<String> {
            &self.line
        }
    }

    impl Call for Server {
        type Place = Item;
        type Packed = String;

        fn item(_: &Item) -> &'static str {
            "item"
        }

        fn pack(&self, request: &Request) -> String {
            request.id().to_owned()
        }

        async fn call(&self, _: &Item, requests: &[String]) -> Result<Vec<Answer>> {
            self.calls.lock().unwrap().push(requests.to_vec());
            self.let_through.acquire().await.unwrap().forget();
            if self.fails {
                return Err(Error::new(ErrorKind::Store, "gone"));
            }
            let answer = |_| {
                let number = self.numbers.fetch_add(1, Ordering::Relaxed) as u64;
                Answer {
                    outcome: Outcome::Accepted(OrderId::new("item", 1, number)),
                    left: None,
                }
            };
            Ok(requests.iter().map(answer).collect())
        }
    }

    fn request(id: usize) -> Request {
        Request::new("item", "ann", format!("r{id}")).unwrap()
    }

    async fn ask(combiner: &Combiner<Server>, id: usize) -> Result<Answer> {
        combiner.ask(&combiner.call.item, &request(id)).await
    }

    /// Submits `count` requests concurrently, in order as far as possible.
    async fn ask_all(
        combiner: &Combiner<Server>,
        ids: std::ops::Range<usize>,
    ) -> Vec<tokio::task::JoinHandle<Result<Answer>>> {
        let mut asking = Vec::new();
        for id in ids {
            let combiner = combiner.clone();
            asking.push(tokio::spawn(async move { ask(&combiner, id).await }));
            tokio::task::yield_now().await;
        }
        asking
    }

    impl<P> Line<P> {
        fn is_idle(&self) -> bool {
            let state = self.state();
            state.calls == 0 && state.waiting.is_empty()
        }
    }

    /// Whether nothing is under way and nothing waits, after a moment.
    async fn is_idle(combiner: &Combiner<Server>) -> bool {
        for _ in 0..100 {
            if combiner.call.item.line.is_idle() {
                return true;
            }
            // The background task notices a little later that there are no waiting requests.
            tokio::task::yield_now().await;
        }
        false
    }

    #[tokio::test]
    async fn who_comes_alone_is_sent_at_once() {
        let server = Server::new();
        let combiner = Combiner::new(server.clone());
        server.let_through.add_permits(3);
        for id in 0..3 {
            assert!(ask(&combiner, id).await.is_ok());
        }
        assert_eq!(server.calls(), [["r0"], ["r1"], ["r2"]]);
        assert!(is_idle(&combiner).await);
    }

    #[tokio::test]
    async fn those_who_wait_travel_together_in_their_order() {
        let server = Server::new();
        let combiner = Combiner::new(server.clone());
        let asking = ask_all(&combiner, 0..300).await;
        assert_eq!(server.calls().len(), CALLS_MAX);
        server.let_through.add_permits(1000);
        for (id, answer) in asking.into_iter().enumerate() {
            let answer = answer.await.unwrap().unwrap();
            let order = answer.outcome.order().unwrap().number();
            assert_eq!(order, id as u64);
        }
        let calls = server.calls();
        let largest = calls.iter().map(Vec::len).max();
        assert_eq!(largest, Some(REQUESTS_MAX), "{calls:?}");
        let sent = calls.concat();
        let ids: Vec<String> = (0..300).map(|id| format!("r{id}")).collect();
        assert_eq!(sent, ids);
        assert!(is_idle(&combiner).await);
    }

    #[tokio::test]
    async fn who_sends_and_is_dropped_leaves_nobody_behind() {
        let server = Server::new();
        let combiner = Combiner::new(server.clone());
        let asking = ask_all(&combiner, 0..CALLS_MAX + 10).await;
        for asked in &asking[..CALLS_MAX] {
            asked.abort();
        }
        server.let_through.add_permits(1000);
        for answer in asking.into_iter().skip(CALLS_MAX) {
            let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
            assert!(answer.unwrap().unwrap().is_ok());
        }
        assert!(is_idle(&combiner).await);
    }

    #[tokio::test]
    async fn who_waits_and_is_dropped_is_not_sent() {
        let server = Server::new();
        let combiner = Combiner::new(server.clone());
        let asking = ask_all(&combiner, 0..CALLS_MAX + 3).await;
        asking[CALLS_MAX + 1].abort();
        tokio::task::yield_now().await;
        server.let_through.add_permits(1000);
        for (id, answer) in asking.into_iter().enumerate() {
            assert_eq!(answer.await.is_ok(), id != CALLS_MAX + 1);
        }
        assert!(
            !server
                .calls()
                .concat()
                .contains(&format!("r{}", CALLS_MAX + 1))
        );
        assert!(is_idle(&combiner).await);
    }

    #[tokio::test]
    async fn a_failure_reaches_everybody_at_once() {
        let mut server = Server::new();
        server.fails = true;
        let combiner = Combiner::new(server.clone());
        let asking = ask_all(&combiner, 0..500).await;
        server.let_through.add_permits(1);
        let mut unsent = 0;
        for answer in asking.into_iter().skip(CALLS_MAX) {
            let error = answer.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store);
            unsent += usize::from(error.to_string().contains("was not sent"));
        }
        assert_eq!(unsent, 500 - CALLS_MAX);
        assert_eq!(server.calls().len(), CALLS_MAX);
    }

    #[tokio::test]
    async fn too_many_are_told_that_it_is_busy() {
        let server = Server::new();
        let combiner = Combiner::new(server.clone());
        let asking = ask_all(&combiner, 0..CALLS_MAX + WAITING_MAX).await;
        let beyond = ask(&combiner, 1_000_000).await.unwrap();
        assert_eq!(beyond.outcome, Outcome::Busy);
        server.let_through.add_permits(1000);
        for answer in asking {
            assert!(answer.await.unwrap().is_ok());
        }
        assert!(is_idle(&combiner).await);
    }

    /// A runtime that is shut down ends its tasks, including those that send for buyers on other
    /// runtimes.
    #[test]
    fn a_sender_that_ends_with_its_runtime_leaves_nobody_behind() {
        let runtime = || {
            tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
        };
        let (doomed, other) = (runtime().unwrap(), runtime().unwrap());
        let server = Server::new();
        let combiner = Combiner::new(server.clone());
        let first = doomed.block_on(ask_all(&combiner, 0..CALLS_MAX + 5));
        while server.calls().len() < CALLS_MAX {
            std::thread::yield_now();
        }
        let asking = other.block_on(ask_all(&combiner, 100..120));
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
        doomed.shutdown_background();
        server.let_through.add_permits(1000);
        other.block_on(async {
            for answer in asking {
                let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
                assert!(answer.unwrap().unwrap().is_ok());
            }
        });
    }
}
