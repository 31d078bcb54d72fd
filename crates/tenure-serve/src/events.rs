//! `GET /events`: one stream of everything that a page shows.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::event_stream;
use crate::extract::{Query, TEXT_MAX, check_length};
use crate::feed::Source;
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// The longest list of topics, in bytes: longer than all that exist.
const TOPICS_MAX: usize = 128;

/// What to follow.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Comma-separated: `locks`, `stats`, `playground`, `sales`. Default: `locks`.
    topics: Option<String>,
    /// Prefix of lock names.
    #[serde(default)]
    prefix: String,
}

/// Streams the current state and then changes, as server-sent events.
///
/// `locks.snapshot`, `lock.changed`, `lock.gone`, `lock.event`, `store.away`, `store.back`; each second
/// `stats`; `sale.snapshot`, `sale.item`; `playground.snapshot`, `playground.run`. `resync` means
/// that the reader fell behind: a full snapshot follows.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "locks", params(Wanted),
    responses(
        (status = 200, description = "A stream of events", body = String, content_type = "text/event-stream"),
        (status = 422, description = "Unknown topic, or a text that is too long", body = Problem),
        responses::TooManyStreams,
    )
)]
pub(crate) async fn follow(
    State(app): State<AppState>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    let topics = wanted.topics.as_deref().unwrap_or("locks");
    check_length("topics", topics, TOPICS_MAX)?;
    check_length("prefix", &wanted.prefix, TEXT_MAX)?;
    let mut topics: Vec<&str> = topics.split(',').collect();
    topics.sort_unstable();
    topics.dedup();
    let sources = topics.into_iter().map(|topic| {
        source(&app, topic, &wanted.prefix).ok_or_else(|| {
            let topics = "`locks`, `stats`, `playground` and `sales`";
            let detail = format!("unknown topic `{topic}`: expected {topics}");
            Problem::new(Kind::INVALID, detail)
        })
    });
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    event_stream::respond_after(&app, sources, last)
}

/// The feeds of each topic.
fn source(app: &AppState, topic: &str, prefix: &str) -> Option<Source> {
    match topic {
        "locks" => Some(app.board.source(prefix)),
        "stats" => Some(app.stats.source()),
        "sales" => Some(app.shop.source()),
        "playground" => Some(app.ground.source()),
        _ => None,
    }
}
