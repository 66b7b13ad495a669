//! Webhooks: from a signed request to a stored delivery. `receive` is the order of checks (`spec/hermes-gateway.md` §1.6
//! as changed by `spec/decisions.md` §5); everything it calls but the body and the store is pure.

pub mod json;
pub mod limit;
pub mod payload;
pub mod route;
pub mod signature;
pub mod subscriptions;
pub mod template;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use futures_util::StreamExt as _;
use hookgate_adapters::{ChatTarget, ChatType, InboundMessage, Platform, Source, without_delimiters};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
use crate::gateway::Gateway;
use crate::server::{Peer, json};
use crate::store::{
    Accepted, DeliveryAdmission, DeliveryRef, DeliveryWork, NewDelivery, NewReply, SessionedMessage, Store, StoreError,
    Target,
};
use limit::{MINUTE, SlidingLog, client_key};
use payload::Payload;
use route::{Route, SessionChoice};
use subscriptions::Subscriptions;
use template::RenderContext;

/// A body that has not arrived by then is given up.
const BODY_TIME: Duration = Duration::from_secs(30);
/// So much of a refused body is read, at most so long: a sender that writes all of it before it reads would not hear why,
/// since the end of a connection with unread bytes takes what was answered away.
const DISCARDED: usize = 16 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(5);
/// Routes and client addresses that are counted at once.
const KEYS: usize = 10_000;

/// The bodies that are being read and checked take so much memory at once; more are asked to come again. So a flood of
/// large bodies, which nobody has verified yet, cannot take the machine's.
const BODIES: usize = 64 << 20;

/// Memory for bodies, in bytes.
pub(crate) struct BodyBudget(Arc<Semaphore>);

impl BodyBudget {
    /// Two of the largest always fit.
    pub(crate) fn new(max_body_bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(BODIES.max(max_body_bytes.saturating_mul(2)).min(Semaphore::MAX_PERMITS))))
    }

    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let bytes = u32::try_from(bytes).map_err(|_| Refusal::Busy)?;
        Arc::clone(&self.0).try_acquire_many_owned(bytes).map_err(|_| Refusal::Busy)
    }
}

/// What receiving needs.
pub(crate) struct Webhooks {
    pub(crate) gateway: Gateway,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) clock: Clock,
    pub(crate) max_body_bytes: usize,
    pub(crate) bodies: BodyBudget,
    pub(crate) rate_limit: u32,
    pub(crate) deliver_wait: Duration,
    pub(crate) trusted_proxies: Vec<IpAddr>,
    pub(crate) limits: Limits,
    pub(crate) missing_told: MissingTold,
}

/// Which missing paths were logged.
#[derive(Default)]
pub(crate) struct MissingTold(Mutex<HashSet<(String, String)>>);

impl MissingTold {
    fn first_time(&self, route: &str, path: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < KEYS && told.insert((route.to_owned(), path.to_owned()))
    }
}

/// The counters behind 429.
pub(crate) struct Limits {
    routes: SlidingLog<String>,
    failures: SlidingLog<IpAddr>,
    failures_per_minute: u32,
}

impl Limits {
    /// `failures_per_minute` bad signatures are answered per client address and minute.
    pub(crate) fn new(failures_per_minute: u32) -> Self {
        Self { routes: SlidingLog::new(MINUTE, KEYS), failures: SlidingLog::new(MINUTE, KEYS), failures_per_minute }
    }
}

/// `POST /webhooks/{route}`, also under a profile's prefix.
pub(crate) fn routes(webhooks: Arc<Webhooks>) -> Router {
    async fn plain(
        Path(route): Path<String>,
        State(webhooks): State<Arc<Webhooks>>,
        Extension(peer): Extension<Peer>,
        RawQuery(query): RawQuery,
        headers: HeaderMap,
        body: Body,
    ) -> Response {
        take(webhooks, Incoming { route, peer, query, headers }, body).await
    }

    async fn profiled(
        Path((_profile, route)): Path<(String, String)>,
        State(webhooks): State<Arc<Webhooks>>,
        Extension(peer): Extension<Peer>,
        RawQuery(query): RawQuery,
        headers: HeaderMap,
        body: Body,
    ) -> Response {
        take(webhooks, Incoming { route, peer, query, headers }, body).await
    }

    async fn take(webhooks: Arc<Webhooks>, incoming: Incoming, body: Body) -> Response {
        let mut body = body.into_data_stream();
        let outcome = receive(&webhooks, &incoming, &mut body).await;
        // A body that broke off or stopped has nothing more to read.
        if !matches!(outcome, Ok(_) | Err(Refusal::BadRequest)) {
            discard(&incoming.headers, &mut body).await;
        }
        answer(outcome)
    }

    Router::new()
        .route("/webhooks/{route}", post(plain))
        .route("/p/{profile}/webhooks/{route}", post(profiled))
        .layer(DefaultBodyLimit::disable())
        .with_state(webhooks)
}

/// A request without its body.
struct Incoming {
    route: String,
    peer: Peer,
    query: Option<String>,
    headers: HeaderMap,
}

/// Why a request was not taken, and how it is answered.
enum Refusal {
    UnknownRoute(String),
    Disabled(String),
    TooLarge,
    BadRequest,
    NoSecret,
    BadSignature,
    TooManyFailures(Duration),
    RateLimited(Duration),
    CannotParse,
    MissingPath(String),
    BadTarget,
    Conflict(String),
    Replay(String),
    Unavailable,
    Busy,
    Stopping,
}

/// How a request that was taken is answered.
enum Receipt {
    Ignored { event: String },
    Duplicate { delivery_id: String },
    Accepted { route: String, event: String, delivery_id: String },
    Delivered { route: String, target: String, delivery_id: String },
    Queued { route: String, target: String, delivery_id: String },
    NotDelivered { delivery_id: String },
}

/// Takes one request: limits → signature over the raw bytes → parse → event and delivery id → template → stored.
async fn receive(webhooks: &Webhooks, incoming: &Incoming, body: &mut BodyDataStream) -> Result<Receipt, Refusal> {
    let (name, headers) = (incoming.route.as_str(), &incoming.headers);
    if webhooks.gateway.is_draining() {
        return Err(Refusal::Stopping);
    }
    let routes = webhooks.subscriptions.current().await;
    let route = routes.routes.get(name).ok_or_else(|| Refusal::UnknownRoute(name.to_owned()))?;
    if !route.enabled {
        return Err(Refusal::Disabled(name.to_owned()));
    }
    let (body, _held) = read_body(headers, body, webhooks).await?;
    verify(webhooks, route, incoming, &body)?;

    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let payload = Payload::parse(content_type, &body).map_err(|_| Refusal::CannotParse)?;
    let event = payload::event_type(headers, &payload);
    let delivery = DeliveryRef {
        route: name.to_owned(),
        delivery_id: signature::delivery_id(headers, Some(&payload), &route.scheme, &body),
    };
    let body_hash = signature::body_hash(&body);

    let per_minute = route.rate_limit.unwrap_or(webhooks.rate_limit);
    let ticket = match webhooks.limits.routes.take(name.to_owned(), per_minute, Instant::now()) {
        Ok(ticket) => ticket,
        Err(wait) => {
            let known = known(webhooks, &delivery, &body_hash).await?;
            return known.map_or(Err(Refusal::RateLimited(wait)), |known| repeated(&known, delivery));
        }
    };
    let wanted = payload::matches_events(&route.events, &event, headers, &payload);
    let context = RenderContext {
        payload: &payload,
        event: &event,
        route: name,
        headers,
        missing: route.missing,
        raw_limit: route.raw_limit,
    };
    let work = if wanted { work(webhooks, route, &context, &delivery) } else { Ok(Work::ignored()) };
    let work = match work {
        Ok(work) => work,
        Err(refusal) => {
            let Some(known) = known(webhooks, &delivery, &body_hash).await? else {
                ticket.keep();
                return Err(refusal);
            };
            webhooks.limits.routes.refund(ticket);
            return repeated(&known, delivery);
        }
    };
    let settled = webhooks.gateway.follow(&delivery);
    let new = NewDelivery {
        delivery: delivery.clone(),
        body_hash,
        event: event.clone(),
        target: work.target.clone(),
        replay_guard: route.replay_guard,
        work: work.what,
    };
    let sends = matches!(new.work, DeliveryWork::Send(_));
    let inbox = match webhooks.gateway.accept_delivery(new).await {
        Ok(DeliveryAdmission::New { inbox, .. }) => inbox,
        Ok(known) => {
            webhooks.limits.routes.refund(ticket);
            return repeated(&known, delivery);
        }
        Err(error) => {
            webhooks.limits.routes.refund(ticket);
            return Err(unavailable(error));
        }
    };
    ticket.keep();
    if let Some(text) = work.for_log {
        tracing::info!(route = %delivery.route, delivery_id = %delivery.delivery_id, ?text, "A webhook was delivered to the log.");
    }
    let (route, delivery_id) = (delivery.route, delivery.delivery_id);
    if inbox.is_some() {
        return Ok(Receipt::Accepted { route, event, delivery_id });
    }
    if !sends {
        return Ok(Receipt::Ignored { event });
    }
    Ok(match settled.within(webhooks.deliver_wait).await {
        Some(Ok(())) => Receipt::Delivered { route, target: work.answered_target, delivery_id },
        Some(Err(_)) => Receipt::NotDelivered { delivery_id },
        None => Receipt::Queued { route, target: work.answered_target, delivery_id },
    })
}

/// The whole body, at most as long as is configured, inclusive, and what it takes of the memory for bodies.
async fn read_body(
    headers: &HeaderMap,
    chunks: &mut BodyDataStream,
    webhooks: &Webhooks,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refusal> {
    let limit = webhooks.max_body_bytes;
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(Refusal::TooLarge);
    }
    let read = async {
        let Some(first) = chunks.next().await else { return Ok((Bytes::new(), None)) };
        let first = first.map_err(|_| Refusal::BadRequest)?;
        if first.len() > limit {
            return Err(Refusal::TooLarge);
        }
        let mut held = webhooks.bodies.take(first.len())?;
        // A small body comes in one piece and is not copied.
        let Some(mut next) = chunks.next().await else { return Ok((first, Some(held))) };
        let mut whole = Vec::with_capacity(announced.map_or(first.len() * 2, |length| length as usize));
        whole.extend_from_slice(&first);
        loop {
            let chunk = next.map_err(|_| Refusal::BadRequest)?;
            if whole.len() + chunk.len() > limit {
                return Err(Refusal::TooLarge);
            }
            held.merge(webhooks.bodies.take(chunk.len())?);
            whole.extend_from_slice(&chunk);
            match chunks.next().await {
                Some(chunk) => next = chunk,
                None => return Ok((Bytes::from(whole), Some(held))),
            }
        }
    };
    tokio::time::timeout(BODY_TIME, read).await.unwrap_or(Err(Refusal::BadRequest))
}

/// Reads what is left of a refused body.
async fn discard(headers: &HeaderMap, chunks: &mut BodyDataStream) {
    if headers.contains_key(header::EXPECT) {
        return; // The sender waits for our word before it sends any.
    }
    let read = async {
        let mut left = DISCARDED;
        while let Some(Ok(chunk)) = chunks.next().await {
            let Some(rest) = left.checked_sub(chunk.len()) else { break };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}

fn verify(webhooks: &Webhooks, route: &Route, incoming: &Incoming, body: &[u8]) -> Result<(), Refusal> {
    if route.insecure {
        return Ok(());
    }
    if route.secrets.is_empty() {
        return Err(Refusal::NoSecret);
    }
    let url = route.public_url.as_ref().map(|url| match &incoming.query {
        Some(query) if !url.contains('?') => format!("{url}?{query}"),
        _ => url.clone(),
    });
    let request =
        signature::Request { headers: &incoming.headers, body, url: url.as_deref(), now: webhooks.clock.now() / 1_000 };
    let Err(error) = signature::verify(&route.scheme, &route.secrets, request) else { return Ok(()) };
    let client = client_address(webhooks, incoming.peer, &incoming.headers);
    // A request that verifies is never refused for the failures of its address.
    let limits = &webhooks.limits;
    match limits.failures.take(client_key(client), limits.failures_per_minute, Instant::now()) {
        Ok(ticket) => {
            ticket.keep();
            tracing::warn!(route = %route.name, %client, %error, "A webhook request was not signed as the route demands.");
            Err(Refusal::BadSignature)
        }
        Err(wait) => Err(Refusal::TooManyFailures(wait)),
    }
}

/// Who sent the request: the peer, or whom a trusted proxy names.
fn client_address(webhooks: &Webhooks, peer: Peer, headers: &HeaderMap) -> IpAddr {
    let mut client = peer.0.ip().to_canonical();
    let forwarded = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = forwarded.flat_map(|value| value.split(',')).map(str::trim).collect();
    for hop in hops.iter().rev() {
        if !webhooks.trusted_proxies.contains(&client) {
            break;
        }
        match hop.parse::<IpAddr>() {
            Ok(address) => client = address.to_canonical(),
            Err(_) => break,
        }
    }
    client
}

/// What a delivery leads to.
struct Work {
    what: DeliveryWork,
    /// For the record: `telegram:42`.
    target: String,
    /// For the answer: `telegram`, as the reference says it.
    answered_target: String,
    /// What is delivered to the log, once it is recorded.
    for_log: Option<String>,
}

impl Work {
    fn ignored() -> Self {
        Self { what: DeliveryWork::Ignore, target: String::new(), answered_target: String::new(), for_log: None }
    }
}

fn work(
    webhooks: &Webhooks,
    route: &Route,
    context: &RenderContext<'_>,
    delivery: &DeliveryRef,
) -> Result<Work, Refusal> {
    let render = if route.deliver_only { template::render_for_chat } else { template::render };
    let rendered = render(&route.prompt, context).map_err(|missing| Refusal::MissingPath(missing.path))?;
    webhooks.report_missing(route, &rendered.missing);
    let targets = route::resolve_targets(route, context).map_err(|error| {
        tracing::error!(route = %route.name, delivery_id = %delivery.delivery_id, %error, "A webhook's target could not be filled in.");
        Refusal::BadTarget
    })?;
    let names = |name: &dyn Fn(&Target) -> String| targets.iter().map(name).collect::<Vec<_>>().join(",");
    let target = names(&Target::to_string);
    let answered_target = names(&|target| match target {
        Target::Log => "log".into(),
        Target::Chat(chat) => chat.platform.to_string(),
    });
    let for_log = (route.deliver_only && targets.contains(&Target::Log))
        .then(|| without_delimiters(&rendered.text).chars().take(200).collect());
    let what = if route.deliver_only {
        let replies = replies(webhooks, &targets, &rendered.text, delivery);
        if replies.is_empty() && !targets.contains(&Target::Log) {
            let (route, id) = (&delivery.route, &delivery.delivery_id);
            tracing::warn!(%route, delivery_id = %id, "The route's template gave no text, so nothing was sent.");
            return Ok(Work::ignored());
        }
        DeliveryWork::Send(replies)
    } else {
        let source = source(route, context, delivery)?;
        DeliveryWork::Turn(Box::new(SessionedMessage {
            session_key: webhooks.gateway.session_key(&source),
            accepted: Accepted {
                message: InboundMessage {
                    source,
                    message_id: delivery.delivery_id.clone(),
                    dedup_key: format!("webhook:{}:{}", delivery.route, delivery.delivery_id),
                    text: rendered.text,
                    media: Vec::new(),
                    quoted: None,
                    sent_at: webhooks.clock.now(),
                    addressed: true,
                    edited: false,
                },
                deliver: targets,
                delivery: Some(delivery.clone()),
                tools: route.tools.clone(),
            },
        }))
    };
    Ok(Work { what, target, answered_target, for_log })
}

fn replies(webhooks: &Webhooks, targets: &[Target], text: &str, delivery: &DeliveryRef) -> Vec<NewReply> {
    let chats = targets.iter().filter_map(|target| match target {
        Target::Chat(chat) => Some(chat),
        Target::Log => None,
    });
    let reply = |target: &ChatTarget| NewReply {
        parts: webhooks.gateway.split_rendered(target, text),
        target: target.clone(),
        reply_to: None,
        delivery: Some(delivery.clone()),
        session_key: None,
    };
    chats.map(reply).filter(|reply| !reply.parts.is_empty()).collect()
}

/// Where a webhook's turn comes from (`spec/hermes-gateway.md` §1.13).
fn source(route: &Route, context: &RenderContext<'_>, delivery: &DeliveryRef) -> Result<Source, Refusal> {
    let chat_id = match &route.session {
        SessionChoice::Delivery => format!("webhook:{}:{}", route.name, delivery.delivery_id),
        SessionChoice::Route => format!("webhook:{}", route.name),
        SessionChoice::Template(session) => {
            let rendered = template::render(session, context).map_err(|missing| Refusal::MissingPath(missing.path))?;
            let name: String = rendered.text.trim().chars().take(200).collect();
            format!("webhook:{}:session:{name}", route.name)
        }
    };
    Ok(Source {
        platform: Platform::Webhook,
        account: String::new(),
        chat_id,
        chat_name: Some(format!("webhook/{}", route.name)),
        chat_type: ChatType::Webhook,
        user_id: Some(format!("webhook:{}", route.name)),
        user_name: Some(route.name.clone()),
        thread_id: None,
        is_bot: false,
    })
}

impl Webhooks {
    /// Missing paths are told once per route and path.
    fn report_missing(&self, route: &Route, missing: &[String]) {
        for path in missing {
            if self.missing_told.first_time(&route.name, path) {
                tracing::warn!(route = %route.name, %path, "The template names a path that the payload does not have; it stays as written.");
            }
        }
    }
}

fn repeated(known: &DeliveryAdmission, delivery: DeliveryRef) -> Result<Receipt, Refusal> {
    let DeliveryRef { route, delivery_id } = delivery;
    match known {
        DeliveryAdmission::Conflict => Err(Refusal::Conflict(delivery_id)),
        DeliveryAdmission::Replay => Err(Refusal::Replay(delivery_id)),
        DeliveryAdmission::Duplicate | DeliveryAdmission::New { .. } => {
            tracing::info!(%route, %delivery_id, "A webhook delivery came again and was not run again.");
            Ok(Receipt::Duplicate { delivery_id })
        }
    }
}

/// What a delivery that came before is; a repeat is answered as such and costs the route nothing.
async fn known(
    webhooks: &Webhooks,
    delivery: &DeliveryRef,
    body_hash: &str,
) -> Result<Option<DeliveryAdmission>, Refusal> {
    webhooks.store.known_delivery(delivery, body_hash).await.map_err(unavailable)
}

#[expect(clippy::needless_pass_by_value, reason = "the form map_err wants")]
fn unavailable(error: StoreError) -> Refusal {
    tracing::debug!(%error, "A webhook could not be stored; its sender is asked to come again.");
    Refusal::Unavailable
}

/// The reference's bodies, and ours where it has none (`spec/decisions.md` §5).
fn answer(outcome: Result<Receipt, Refusal>) -> Response {
    let retry = |status, wait: Duration, error: &str| {
        let mut response = json(status, &json!({ "error": error }));
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        response
    };
    let error = |status, text: String| json(status, &json!({ "error": text }));
    match outcome {
        Ok(Receipt::Ignored { event }) => json(StatusCode::OK, &json!({ "status": "ignored", "event": event })),
        Ok(Receipt::Duplicate { delivery_id }) => {
            json(StatusCode::OK, &json!({ "status": "duplicate", "delivery_id": delivery_id }))
        }
        Ok(Receipt::Accepted { route, event, delivery_id }) => json(
            StatusCode::ACCEPTED,
            &json!({ "status": "accepted", "route": route, "event": event, "delivery_id": delivery_id }),
        ),
        Ok(Receipt::Delivered { route, target, delivery_id }) => json(
            StatusCode::OK,
            &json!({ "status": "delivered", "route": route, "target": target, "delivery_id": delivery_id }),
        ),
        Ok(Receipt::Queued { route, target, delivery_id }) => json(
            StatusCode::ACCEPTED,
            &json!({ "status": "queued", "route": route, "target": target, "delivery_id": delivery_id }),
        ),
        Ok(Receipt::NotDelivered { delivery_id }) => json(
            StatusCode::BAD_GATEWAY,
            &json!({ "status": "error", "error": "Delivery failed", "delivery_id": delivery_id }),
        ),
        Err(Refusal::UnknownRoute(name)) => error(StatusCode::NOT_FOUND, format!("Unknown route: {name}")),
        Err(Refusal::Disabled(name)) => error(StatusCode::FORBIDDEN, format!("Route disabled: {name}")),
        Err(Refusal::TooLarge) => {
            let mut response = error(StatusCode::PAYLOAD_TOO_LARGE, "Payload too large".into());
            // The rest of the body is not read.
            response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            response
        }
        Err(Refusal::BadRequest) => error(StatusCode::BAD_REQUEST, "Bad request".into()),
        Err(Refusal::NoSecret) => error(StatusCode::FORBIDDEN, "Webhook route is missing an HMAC secret".into()),
        Err(Refusal::BadSignature) => error(StatusCode::UNAUTHORIZED, "Invalid signature".into()),
        Err(Refusal::TooManyFailures(wait) | Refusal::RateLimited(wait)) => {
            retry(StatusCode::TOO_MANY_REQUESTS, wait, "Rate limit exceeded")
        }
        Err(Refusal::CannotParse) => error(StatusCode::BAD_REQUEST, "Cannot parse body".into()),
        Err(Refusal::MissingPath(path)) => error(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("The payload lacks {path}, which the route's template needs"),
        ),
        Err(Refusal::BadTarget) => {
            error(StatusCode::UNPROCESSABLE_ENTITY, "The payload lacks what the route's target needs".into())
        }
        Err(Refusal::Conflict(delivery_id)) => json(
            StatusCode::CONFLICT,
            &json!({ "error": "Delivery id reused with another body", "delivery_id": delivery_id }),
        ),
        Err(Refusal::Replay(delivery_id)) => json(
            StatusCode::CONFLICT,
            &json!({ "error": "Body seen before under another delivery id", "delivery_id": delivery_id }),
        ),
        Err(Refusal::Unavailable) => {
            retry(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(5), "The gateway cannot store now")
        }
        Err(Refusal::Busy) => retry(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(5), "The gateway is busy"),
        Err(Refusal::Stopping) => {
            retry(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(5), "The gateway is stopping")
        }
    }
}
