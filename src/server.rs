//! The two listeners: public (webhooks and health) and private (console and health). Slow and hostile peers are bounded
//! here: header time, connections, graceful stop. What a request means is elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::status::StatusSource;

/// A peer that has not sent its request's head by then is dropped; also how long a kept-alive connection may rest.
const HEADER_TIME: Duration = Duration::from_secs(30);
/// A peer that takes nothing of its answer for so long is dropped.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Room for a request's head, and for what is read of a body at once. A longer head is answered 431.
const READ_BUFFER: usize = 64 << 10;
/// Connections at once on one listener, at most; more wait to be accepted.
const CONNECTIONS: usize = 4_096;
/// After a stop, requests under way may take so long to end.
const GRACE: Duration = Duration::from_secs(10);

/// A JSON answer with the reference's content type.
pub(crate) fn json(status: StatusCode, body: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], body.to_string()).into_response()
}

/// `/health` and `/ready`, the same on both listeners (`spec/decisions.md` §1).
pub(crate) fn health_routes(status: Arc<StatusSource>) -> Router {
    async fn health() -> Response {
        json(StatusCode::OK, &serde_json::json!({ "status": "ok", "platform": "webhook" }))
    }
    async fn ready(State(status): State<Arc<StatusSource>>) -> Response {
        let ready = status.ready();
        let code = if ready.is_down() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        json(code, &serde_json::to_value(&ready).unwrap_or_default())
    }
    Router::new().route("/health", get(health)).route("/ready", get(ready)).with_state(status)
}

/// Opens a listening socket; the error names the address and what to do.
pub(crate) async fn bind(what: &str, host: &str, port: u16) -> anyhow::Result<TcpListener> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((host, port)).await.with_context(|| {
        format!("cannot listen on {host}:{port} for the {what}; is another program using the port? Choose another port in config.yaml")
    })
}

/// Serves until `stop`, then lets requests under way end.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    serve_patiently(listener, router, stop, WRITE_TIME).await;
}

async fn serve_patiently(listener: TcpListener, router: Router, stop: CancellationToken, write_time: Duration) {
    let connections = TaskTracker::new();
    let permits = Arc::new(Semaphore::new(most_connections()));
    loop {
        let (stream, peer, permit) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = next_connection(&listener, &permits) => match accepted {
                Some(accepted) => accepted,
                None => continue,
            },
        };
        let routes = TowerToHyperService::new(router.clone());
        let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            hyper::service::Service::call(&routes, request)
        });
        let stop = stop.clone();
        connections.spawn(async move {
            let _permit = permit;
            let _ = stream.set_nodelay(true);
            let mut stream = Box::pin(TimeoutStream::new(stream));
            stream.as_mut().set_write_timeout_pinned(Some(write_time));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME)
                .max_buf_size(READ_BUFFER)
                // Who closes its own side after the request still gets its answer.
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            // An error here is a peer that went away or spoke nonsense; it has its own logs.
            tokio::select! {
                _ = connection.as_mut() => {}
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(GRACE, connection).await;
                }
            }
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// A quarter of the descriptors a process may have: two listeners leave half of them for the store, for platforms and
/// for what the gateway starts.
fn most_connections() -> usize {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft);
    usize::try_from(descriptors / 4).unwrap_or(CONNECTIONS).clamp(16, CONNECTIONS)
}

/// Lets the process have as many descriptors as it may: the usual limit is meant for programs that use `select`.
pub(crate) fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "The limit of open files stays as it is.");
    }
}

async fn next_connection(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(error) => {
            // Out of descriptors, or the peer left already: wait a moment instead of spinning.
            tracing::warn!(%error, "A connection could not be accepted.");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

/// The address a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_does_not_read_its_answer_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || vec![b'x'; 32 << 20]));
        let write_time = Duration::from_millis(300);
        tokio::spawn(serve_patiently(listener, router, CancellationToken::new(), write_time));
        let ask = async || {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
            peer
        };
        let mut stuck = ask().await;
        tokio::time::sleep(write_time * 3).await;
        let mut got = Vec::new();
        let ended = stuck.read_to_end(&mut got).await;
        assert!(ended.is_err() || got.len() < 32 << 20, "it was waited for");

        // One that reads slowly is served.
        let mut slow = ask().await;
        let (begun, mut total, mut buffer) = (Instant::now(), 0, vec![0; 4 << 20]);
        while let n @ 1.. = slow.read(&mut buffer).await.unwrap() {
            total += n;
            if begun.elapsed() < write_time * 2 {
                tokio::time::sleep(write_time / 6).await;
            }
        }
        assert!(total > 32 << 20);
    }
}
