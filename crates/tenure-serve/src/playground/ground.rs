//! The playground, and the feed of its runs.

use std::sync::Arc;

use axum::http::StatusCode;
use tenure_demo::playground::{Playground, RUNS_MAX, Refused, Run, RunUpdate};

use crate::feed::{Feed, Message, Source};
use crate::problem::{Kind, Problem};

const RUNNING: Kind = Kind::new(StatusCode::CONFLICT, "running", "a run is in progress");

/// The playground, and the feed of its runs.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) playground: Arc<Playground>,
    feed: Arc<Feed>,
}

impl Ground {
    pub(crate) fn new(urls: &[String]) -> Self {
        let feed = Feed::new();
        let runs = Arc::clone(&feed);
        let publish =
            move |update: &RunUpdate| runs.publish("playground.run", &update.run.id, update);
        let playground = Playground::new(urls, publish);
        Self { playground, feed }
    }

    /// The runs for an event stream: `playground.snapshot`, then `playground.run`.
    pub(crate) fn source(&self) -> Source {
        let playground = Arc::clone(&self.playground);
        let feed = Arc::clone(&self.feed);
        let snapshot = move || {
            let runs = playground.list();
            Some(feed.snapshot(&Message::now("playground.snapshot", "", &runs)))
        };
        Source {
            snapshot: Box::new(snapshot),
            wanted: Box::new(|_| true),
            feed: Arc::clone(&self.feed),
        }
    }

    /// A run by its id.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<Run>, Problem> {
        self.playground.find(id).ok_or_else(|| {
            let detail = format!("run `{id}` not found: only the last {RUNS_MAX} are kept");
            Problem::new(Kind::NOT_FOUND, detail)
        })
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Invalid(_) => Self::new(Kind::INVALID, detail),
            Refused::Running(id) => Self::new(RUNNING, detail).with("id", id),
            Refused::Conflict(_) => Self::new(Kind::CONFLICT, detail),
            Refused::Store(error) => match error.downcast::<tenure_sale::Error>() {
                Ok(error) => error.into(),
                Err(_) => Self::new(Kind::CONFLICT, detail),
            },
            Refused::Internal => Self::new(Kind::INTERNAL, detail),
        }
    }
}
