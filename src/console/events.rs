//! A chat's events as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use hookgate_adapters::LocalEvents;
use tokio_util::sync::CancellationToken;

/// A line that keeps proxies and clients sure that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams events until the reader leaves or `stop`. The first event is `ready`: from then on nothing is missed.
pub(super) fn stream(events: LocalEvents, stop: CancellationToken) -> Response {
    let first = stream::iter([Ok::<_, Infallible>(Event::default().data(r#"{"type":"ready"}"#))]);
    let rest = stream::unfold((events, stop), |(mut events, stop)| async move {
        let event = tokio::select! {
            event = events.next() => event?,
            () = stop.cancelled() => return None,
        };
        let json = serde_json::to_string(&event).unwrap_or_default();
        Some((Ok(Event::default().data(json)), (events, stop)))
    });
    let all = futures_util::StreamExt::chain(first, rest);
    Sse::new(all).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
