//! The private listener: the chat page and the JSON routes behind it, which `hookgate chat` uses too. Everything but the
//! page's static files wants the token; a browser keeps it as a cookie. Messages go through the same `accept` as all others.

mod events;
mod file;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use hookgate_adapters::{
    Button, ChatType, Inbound as _, InboundMessage, LONGEST_BUTTON_DATA, LocalAdapter, NotAccepted, Platform, Press,
    Source,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::gateway::Gateway;
use crate::server::json;
use crate::session::Role;
use crate::store::{Accepted, Admission, OutboxId, Said, SentPart, Store, StoreError};

pub use file::{ConsoleFile, token};

/// The chat of the page, and of a route's bare `local`.
pub const DEFAULT_CHAT: &str = "console";
const COOKIE: &str = "hookgate";
/// The longest body of a request, in bytes.
const MAX_BODY: usize = 1 << 20;
/// How much of a chat the page shows at first.
const SHOWN: u32 = 100;

/// The private routes and what they need.
pub(crate) struct Console {
    gateway: Gateway,
    store: Arc<dyn Store>,
    local: Arc<LocalAdapter>,
    token: SecretString,
    cookie: String,
    clock: Clock,
    streams: CancellationToken,
}

impl Console {
    /// `streams` ends the event streams.
    pub(crate) fn new(
        gateway: Gateway,
        store: Arc<dyn Store>,
        local: Arc<LocalAdapter>,
        token: SecretString,
        clock: Clock,
        streams: CancellationToken,
    ) -> Self {
        // The cookie opens the console but does not tell the token.
        let cookie = hex::encode(Sha256::digest(format!("hookgate console\n{}", token.expose_secret())));
        Self { gateway, store, local, token, cookie, clock, streams }
    }

    /// The page, its files, and the guarded routes.
    pub(crate) fn routes(self) -> Router {
        let console = Arc::new(self);
        let guarded = Router::new()
            .route("/api/messages", post(say))
            .route("/api/press", post(press))
            .route("/api/history", get(history))
            .route("/api/events", get(watch))
            .route("/api/sessions/reset", post(reset))
            .route("/api/approvals/revoke", post(revoke))
            .layer(middleware::from_fn_with_state(Arc::clone(&console), guard));
        Router::new()
            .route("/", get(page))
            .route("/console.js", get(|| async { asset("text/javascript", include_str!("console/console.js")) }))
            .route("/console.css", get(|| async { asset("text/css", include_str!("console/console.css")) }))
            .merge(guarded)
            .method_not_allowed_fallback(|| async { refusal(StatusCode::METHOD_NOT_ALLOWED, "Not that way") })
            .fallback(|| async { refusal(StatusCode::NOT_FOUND, "There is nothing here") })
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::map_response(harden))
            .with_state(console)
    }

    fn knows_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .any(|(name, value)| name == COOKIE && equal(value, &self.cookie))
    }

    fn knows_bearer(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        value.and_then(|value| value.split_once(' ')).is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && equal(token.trim(), self.token.expose_secret())
        })
    }
}

fn equal(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))], text).into_response()
}

/// Lets in who knows the token. A browser must also come from this very page, whatever cookie it sends along.
async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !same_origin(headers) {
        return refusal(StatusCode::FORBIDDEN, "Requests from other pages are refused").into_response();
    }
    if !console.knows_bearer(headers) && !console.knows_cookie(headers) {
        return refusal(StatusCode::UNAUTHORIZED, "The console token is missing or wrong").into_response();
    }
    next.run(request).await
}

/// No `Origin` (not a page), or the very host that was asked.
fn same_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let origin = origin.to_str().unwrap_or_default();
    let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")).unwrap_or_default();
    !host.is_empty() && origin.eq_ignore_ascii_case(host)
}

async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[derive(Deserialize)]
struct PageQuery {
    token: Option<String>,
}

/// `GET /`: with the token in the address the cookie is set and the address cleaned; then the page.
async fn page(State(console): State<Arc<Console>>, query: Asked<PageQuery>, headers: HeaderMap) -> Response {
    let Ok(Query(query)) = query else { return locked(StatusCode::BAD_REQUEST) };
    if let Some(token) = query.token {
        if !equal(&token, console.token.expose_secret()) {
            return locked(StatusCode::UNAUTHORIZED);
        }
        let cookie = format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000", console.cookie);
        return ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response();
    }
    if !console.knows_cookie(&headers) {
        return locked(StatusCode::UNAUTHORIZED);
    }
    asset("text/html", include_str!("console/page.html"))
}

fn locked(status: StatusCode) -> Response {
    (status, asset("text/html", include_str!("console/locked.html"))).into_response()
}

#[derive(Deserialize)]
struct ChatQuery {
    chat: Option<String>,
}

type Asked<Q> = Result<Query<Q>, QueryRejection>;

/// Why a request is not done, as its sender is told.
struct Refusal {
    status: StatusCode,
    error: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json(self.status, &json!({ "error": self.error }))
    }
}

fn refusal(status: StatusCode, error: &str) -> Refusal {
    Refusal { status, error: error.to_owned() }
}

/// The JSON object of a request's body; `keys` says what belongs into it.
fn read<T: for<'a> Deserialize<'a>>(body: Result<Bytes, BytesRejection>, keys: &str) -> Result<T, Refusal> {
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => refusal(StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than 1 MiB"),
        status => refusal(status, "The body cannot be read"),
    })?;
    let error = || refusal(StatusCode::BAD_REQUEST, &format!("The body must be a JSON object with {keys}"));
    serde_json::from_slice(&body).map_err(|_| error())
}

/// The chat a query names.
fn asked_chat(query: Asked<ChatQuery>) -> Result<String, Refusal> {
    let Query(query) = query.map_err(|_| refusal(StatusCode::BAD_REQUEST, "The query cannot be read"))?;
    chat_name(query.chat.as_deref())
}

/// Whether a chat may be called so.
pub(crate) fn check_chat_name(chat: &str) -> Result<String, &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if chat.is_empty() || chat.len() > 64 || !chat.chars().all(fits) {
        return Err("A chat's name has 1 to 64 letters, digits, - or _");
    }
    Ok(chat.to_owned())
}

fn chat_name(chat: Option<&str>) -> Result<String, Refusal> {
    check_chat_name(chat.unwrap_or(DEFAULT_CHAT)).map_err(|error| refusal(StatusCode::BAD_REQUEST, error))
}

fn source(chat: &str) -> Source {
    Source {
        platform: Platform::Local,
        account: String::new(),
        chat_id: chat.to_owned(),
        chat_name: Some(chat.to_owned()),
        chat_type: ChatType::Dm,
        user_id: Some("local".into()),
        user_name: None,
        thread_id: None,
        is_bot: false,
    }
}

/// `POST /api/messages`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Say {
    /// The chat; the page's by default.
    pub(crate) chat: Option<String>,
    /// Chosen by the sender: the same id is the same message, however often it is sent.
    pub(crate) id: String,
    /// What is said.
    pub(crate) text: String,
}

/// Stores it, 202. What was said before under this id is a `duplicate`; its `replies` tell how many it got, once it is
/// through.
async fn say(State(console): State<Arc<Console>>, body: Result<Bytes, BytesRejection>) -> Result<Response, Refusal> {
    let bad = |error: &str| Err(refusal(StatusCode::BAD_REQUEST, error));
    let say: Say = read(body, "the texts id and text")?;
    let chat = chat_name(say.chat.as_deref())?;
    check_id("id", &say.id)?;
    if say.text.trim().is_empty() {
        return bad("The text is empty");
    }
    if console.gateway.is_draining() {
        return Err(unavailable("The gateway is stopping"));
    }
    let message = InboundMessage {
        source: source(&chat),
        message_id: say.id.clone(),
        dedup_key: format!("local:{chat}:{}", say.id),
        text: say.text,
        media: Vec::new(),
        quoted: None,
        sent_at: console.clock.now(),
        addressed: true,
        edited: false,
    };
    let (dedup_key, target) = (message.dedup_key.clone(), message.source.reply_target());
    let accepted = console.gateway.accept(Accepted { message, deliver: Vec::new(), delivery: None, tools: None }).await;
    let answer = match accepted.map_err(|error| store_failed(&error))? {
        Admission::New(_) => json!({ "status": "accepted", "id": say.id }),
        Admission::Duplicate => {
            let replies = console.store.replies_of(&dedup_key, &target, &say.id).await;
            match replies.map_err(|error| store_failed(&error))? {
                Some(replies) => json!({ "status": "duplicate", "id": say.id, "replies": replies }),
                None => json!({ "status": "duplicate", "id": say.id }),
            }
        }
    };
    Ok(json(StatusCode::ACCEPTED, &answer))
}

fn check_id(name: &str, id: &str) -> Result<(), Refusal> {
    match id.len() {
        1..=100 => Ok(()),
        _ => Err(refusal(StatusCode::BAD_REQUEST, &format!("The {name} must have 1 to 100 bytes"))),
    }
}

/// `POST /api/press`.
#[derive(Debug, Deserialize)]
struct Pressed {
    /// The chat; the page's by default.
    chat: Option<String>,
    /// Chosen by who presses: the same id is the same press, however often it is sent.
    id: String,
    /// The reply whose button it is.
    message_id: String,
    /// The button's data.
    data: String,
}

/// A button was pressed; `toast` is to be shown for a moment, null when there is nothing to say.
async fn press(State(console): State<Arc<Console>>, body: Result<Bytes, BytesRejection>) -> Result<Response, Refusal> {
    let Pressed { chat, id, message_id, data } = read(body, "the texts id, message_id and data")?;
    let chat = chat_name(chat.as_deref())?;
    check_id("id", &id)?;
    check_id("message_id", &message_id)?;
    if data.is_empty() || data.len() > LONGEST_BUTTON_DATA {
        let error = format!("The data must have 1 to {LONGEST_BUTTON_DATA} bytes");
        return Err(refusal(StatusCode::BAD_REQUEST, &error));
    }
    if console.gateway.is_draining() {
        return Err(unavailable("The gateway is stopping"));
    }
    let press = Press { press_id: format!("local:{chat}:{id}"), source: source(&chat), message_id, data };
    let not_accepted = |error: NotAccepted| {
        tracing::debug!(%error, "A press was not accepted.");
        unavailable("The gateway cannot store now")
    };
    let toast = console.gateway.pressed(press).await.map_err(not_accepted)?;
    Ok(json(StatusCode::OK, &json!({ "toast": toast })))
}

fn store_failed(error: &StoreError) -> Refusal {
    tracing::debug!(%error, "A console request failed.");
    unavailable("The gateway cannot store now")
}

fn unavailable(error: &str) -> Refusal {
    refusal(StatusCode::SERVICE_UNAVAILABLE, error)
}

/// One line of a chat, as the page shows it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// `user` or `assistant`.
    pub(crate) role: Role,
    /// The reply's id; `None` for the person's own lines.
    pub(crate) id: Option<String>,
    /// The message a reply answers.
    pub(crate) reply_to: Option<String>,
    /// The text.
    pub(crate) text: String,
    /// What can be pressed below a reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) buttons: Vec<Vec<Button>>,
    /// Unix milliseconds.
    pub(crate) at: i64,
}

/// `GET /api/history`: what was sent to the chat and what was said in it, in order. Commands are not remembered.
async fn history(State(console): State<Arc<Console>>, query: Asked<ChatQuery>) -> Result<Response, Refusal> {
    let chat = asked_chat(query)?;
    let lines = lines(&console, &chat).await.map_err(|error| store_failed(&error))?;
    Ok(json(StatusCode::OK, &json!({ "chat": chat, "messages": lines })))
}

async fn lines(console: &Console, chat: &str) -> Result<Vec<Line>, StoreError> {
    let source = source(chat);
    let sent = console.store.sent_to(&source.reply_target(), SHOWN).await?.into_iter().map(|part| {
        let SentPart { id: OutboxId(id), text, buttons, reply_to, at } = part;
        (id, Line { role: Role::Assistant, id: Some(id.to_string()), reply_to, text, buttons, at })
    });
    let said = console.store.said_in(&console.gateway.session_key(&source), SHOWN).await?.into_iter().map(|said| {
        let Said { id, text, at } = said;
        (id, Line { role: Role::User, id: None, reply_to: None, text, buttons: Vec::new(), at })
    });
    let mut lines: Vec<(i64, Line)> = sent.chain(said).collect();
    lines.sort_by_key(|(id, _)| *id);
    let surplus = lines.len().saturating_sub(SHOWN as usize);
    Ok(lines.into_iter().skip(surplus).map(|(_, line)| line).collect())
}

/// `GET /api/events`: what happens in the chat from now on, as server-sent events.
async fn watch(State(console): State<Arc<Console>>, query: Asked<ChatQuery>) -> Result<Response, Refusal> {
    let chat = asked_chat(query)?;
    Ok(events::stream(console.local.subscribe(&chat), console.streams.clone()))
}

#[derive(Deserialize)]
struct Reset {
    session: String,
}

/// `POST /api/sessions/reset`: ends the current session of a key or id; `session_id` is null when there was none.
async fn reset(State(console): State<Arc<Console>>, body: Result<Bytes, BytesRejection>) -> Result<Response, Refusal> {
    let Reset { session } = read(body, "the text session")?;
    let ended = console.gateway.reset_session(&session).await.map_err(|error| store_failed(&error))?;
    Ok(json(StatusCode::OK, &json!({ "session_id": ended.map(|session| session.id) })))
}

#[derive(Deserialize)]
struct Revoke {
    id: i64,
}

/// `POST /api/approvals/revoke`: takes back what was approved from now on; `key` is null when there was no such approval.
async fn revoke(State(console): State<Arc<Console>>, body: Result<Bytes, BytesRejection>) -> Result<Response, Refusal> {
    let Revoke { id } = read(body, "the number id")?;
    let revoked = console.gateway.revoke_rule(id).await.map_err(|error| store_failed(&error))?;
    Ok(json(StatusCode::OK, &json!({ "key": revoked.map(|rule| rule.key) })))
}
