//! Hearing by webhook: Telegram posts each update to a listener of ours, and keeps it until the answer is 200, which waits
//! for the update to be stored.
//!
//! One update at a time, in order: the webhook is registered for a single connection, and what comes is handed on through
//! one channel. Who cannot name the secret is refused before anything is read.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use subtle::ConstantTimeEq;
use teloxide::payloads::GetWebhookInfo;
use teloxide::requests::Payload;
use teloxide::types::AllowedUpdate;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::api::Failure;
use super::poll::{CALL_DEADLINE, Listener, Webhook};
use super::update;
use crate::AdapterState;

/// No update comes near this size.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// How long a request's head, and then its body, may take to arrive.
const READ_TIME: Duration = Duration::from_secs(30);
/// How long requests under way may take to end at a stop.
const GRACE: Duration = Duration::from_secs(1);
/// Connections at once. Telegram needs few; the others are those of strangers, who must not keep it out.
const MOST_CONNECTIONS: usize = 512;
/// A request's head has arrived by then, or the connection makes room for another.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How often it is looked whether the webhook is still ours.
const CHECK_EVERY: Duration = Duration::from_secs(60);
const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";

/// Where Telegram posts updates, and where they arrive.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// The public address, as Telegram reaches it.
    pub url: String,
    /// The address to listen on; a reverse proxy passes `url` on to it.
    pub host: String,
    /// The port to listen on.
    pub port: u16,
    /// What Telegram names with every update.
    pub secret: SecretString,
}

/// Spelt out here: teloxide's would be sent as a form with a certificate.
#[derive(Serialize)]
struct SetWebhook<'a> {
    url: &'a str,
    secret_token: &'a str,
    allowed_updates: Vec<AllowedUpdate>,
    drop_pending_updates: bool,
    max_connections: u8,
}

impl Payload for SetWebhook<'_> {
    type Output = bool;
    const NAME: &'static str = "setWebhook";
}

/// An update that was posted, and who waits for its answer.
struct Posted {
    body: Bytes,
    answer_tx: oneshot::Sender<StatusCode>,
}

impl Listener<'_> {
    /// Hears until the stop. The webhook stays registered, so that Telegram keeps what is said meanwhile.
    pub(super) async fn serve(&mut self, options: &WebhookOptions) {
        let Some(listener) = self.bind(options).await else { return };
        let (posted_tx, posted) = mpsc::channel(1);
        let accepting = accept(listener, options.secret.clone(), posted_tx, self.stop.clone());
        tokio::join!(accepting, self.hear_posted(options, posted));
    }

    async fn bind(&mut self, options: &WebhookOptions) -> Option<TcpListener> {
        let WebhookOptions { host, port, .. } = options;
        loop {
            match TcpListener::bind((host.as_str(), *port)).await {
                Ok(listener) => return Some(listener),
                Err(error) => {
                    let text = format!("cannot listen on {host}:{port} for Telegram's webhook: {error}");
                    if self.adapter.status.set(AdapterState::Failed, Some(text.clone())) {
                        warn!(platform = "telegram", "{text}");
                    }
                }
            }
            let wait = self.backoff.next();
            self.pause(wait).await?;
        }
    }

    async fn hear_posted(&mut self, options: &WebhookOptions, mut posted: mpsc::Receiver<Posted>) {
        while let Err(failure) = match self.register(options, true).await {
            Some(outcome) => outcome,
            None => return,
        } {
            if self.wait_after(&failure).await.is_none() {
                return;
            }
        }
        info!(platform = "telegram", host = options.host, port = options.port, "Telegram's updates come by webhook");
        let stop = self.stop.clone();
        let mut check = tokio::time::interval_at(tokio::time::Instant::now() + CHECK_EVERY, CHECK_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(Posted { body, answer_tx }) = posted.recv() => {
                    let answer = self.hear(&body).await;
                    let _ = answer_tx.send(answer);
                }
                _ = check.tick() => match self.register(options, false).await {
                    Some(Ok(())) => {}
                    Some(Err(failure)) => debug!(platform = "telegram", ?failure, "the webhook was not checked"),
                    None => return,
                },
            }
        }
    }

    /// Makes the webhook ours, if it is not (`always`: anyway, since the secret may be new). `None` when stopped.
    async fn register(&mut self, options: &WebhookOptions, always: bool) -> Option<Result<(), Failure>> {
        let registered = match self.call::<_, Webhook>(&GetWebhookInfo::new(), CALL_DEADLINE).await? {
            Ok(webhook) => webhook,
            Err(failure) => return Some(Err(failure)),
        };
        let is_ours = registered.url == options.url;
        if is_ours && !always {
            return Some(Ok(()));
        }
        if !is_ours && !registered.url.is_empty() {
            let host = registered.host();
            warn!(
                platform = "telegram",
                host,
                "the bot had a webhook at {host}, of another program with the same token or of an earlier \
                 configuration; hookgate replaces it and waiting updates are kept"
            );
        } else if !is_ours && !always {
            warn!(platform = "telegram", "another program removed the bot's webhook; hookgate sets it again");
        }
        let set = SetWebhook {
            url: &options.url,
            secret_token: options.secret.expose_secret(),
            allowed_updates: self.adapter.allowed_updates(),
            drop_pending_updates: false,
            max_connections: 1,
        };
        let outcome = self.call::<_, bool>(&set, CALL_DEADLINE).await?;
        if outcome.is_ok() {
            self.connected();
        }
        Some(outcome.map(drop))
    }

    /// Takes one update in. What cannot be read is taken as well: it would only come again.
    async fn hear(&mut self, body: &[u8]) -> StatusCode {
        let raw = std::str::from_utf8(body).unwrap_or_default();
        let Some(id) = update::update_id(raw) else {
            self.log_once("update without a readable id");
            return StatusCode::OK;
        };
        let Some(heard) = self.sort(raw, id).await else { return StatusCode::OK };
        if self.offer_once(&heard).await {
            self.connected();
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// Serves connections until the stop; requests under way are answered.
async fn accept(listener: TcpListener, secret: SecretString, posted_tx: mpsc::Sender<Posted>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        let stream = match stop.run_until_cancelled(listener.accept()).await {
            None => break,
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                debug!(platform = "telegram", %error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (secret, posted_tx, stop) = (secret.clone(), posted_tx.clone(), stop.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, secret.clone(), posted_tx.clone()));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            // An error is a peer that went away.
            tokio::select! {
                _ = connection.as_mut() => {}
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
    let _ = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

async fn answer(
    request: Request<Incoming>,
    secret: SecretString,
    posted_tx: mpsc::Sender<Posted>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = status_of(request, &secret, &posted_tx).await;
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}

async fn status_of(request: Request<Incoming>, secret: &SecretString, posted_tx: &mpsc::Sender<Posted>) -> StatusCode {
    let named = request.headers().get(SECRET_HEADER).map(|value| value.as_bytes()).unwrap_or_default();
    if !bool::from(named.ct_eq(secret.expose_secret().as_bytes())) {
        return StatusCode::UNAUTHORIZED;
    }
    if request.method() != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED;
    }
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    let body = match tokio::time::timeout(READ_TIME, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return StatusCode::PAYLOAD_TOO_LARGE,
        Err(_) => return StatusCode::REQUEST_TIMEOUT,
    };
    let (answer_tx, answer) = oneshot::channel();
    if posted_tx.send(Posted { body, answer_tx }).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    answer.await.unwrap_or(StatusCode::SERVICE_UNAVAILABLE) // the gateway stops: Telegram keeps it
}
