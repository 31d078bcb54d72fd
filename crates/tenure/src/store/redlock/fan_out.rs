//! Sends a request to several nodes at once, and yields the replies as they come.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use crate::store::BoxFuture;

/// One request to each of several nodes. Dropping it drops the futures, but not what was sent.
pub(super) struct FanOut<T> {
    waiting: Vec<(usize, BoxFuture<'static, T>)>,
    answers: VecDeque<(usize, T)>,
}

impl<T> FanOut<T> {
    /// Sends all requests: each future is polled once before this returns.
    pub(super) fn begin(requests: Vec<(usize, BoxFuture<'static, T>)>) -> Self {
        let mut replies = Self {
            waiting: requests,
            answers: VecDeque::new(),
        };
        // `next` polls again, with a waker.
        replies.poll_all(&mut Context::from_waker(Waker::noop()));
        replies
    }

    /// The next reply and the index of its node; `None` when all have come.
    pub(super) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        if self.answers.is_empty() {
            self.poll_all(context);
        }
        match self.answers.pop_front() {
            Some(answer) => Poll::Ready(Some(answer)),
            None if self.waiting.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn poll_all(&mut self, context: &mut Context<'_>) {
        let mut at = 0;
        while let Some((node, request)) = self.waiting.get_mut(at) {
            match request.as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(answer) => {
                    self.answers.push_back((*node, answer));
                    drop(self.waiting.swap_remove(at));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn answers_come_as_they_are_given_and_the_slow_one_holds_up_nobody() {
        let (slow, answer) = oneshot::channel::<u32>();
        let mut replies = FanOut::begin(vec![
            (
                0,
                Box::pin(async move { answer.await.unwrap() }) as BoxFuture<'static, u32>,
            ),
            (1, Box::pin(ready(11))),
            (2, Box::pin(ready(12))),
        ]);
        let mut first = [replies.next().await, replies.next().await];
        first.sort();
        assert_eq!(first, [Some((1, 11)), Some((2, 12))]);
        slow.send(10).unwrap();
        assert_eq!(replies.next().await, Some((0, 10)));
        assert_eq!(replies.next().await, None);
    }

    #[test]
    fn all_questions_are_asked_before_the_first_answer_is_read() {
        let asked = std::cell::Cell::new(0);
        let asked = &*Box::leak(Box::new(std::sync::atomic::AtomicU32::new(asked.get())));
        let request = move || {
            asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        let request = |node| -> (usize, BoxFuture<'static, ()>) {
            (node, Box::pin(async move { request() }))
        };
        drop(FanOut::begin(vec![request(0), request(1), request(2)]));
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 3);
    }
}
