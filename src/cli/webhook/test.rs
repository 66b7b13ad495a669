//! `hookgate webhook test`: a delivery as the route's provider would sign it, and what the gateway made of it.

use std::io::Read as _;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use clap::Args;
use serde_json::{Value, json};

use super::super::Context;
use super::{address, events, preview};
use crate::config::Config;
use crate::error::UserError;
use crate::webhook::payload::{self, Payload};
use crate::webhook::route::{Missing, Route, Scheme, resolve_targets};
use crate::webhook::signature::{ToSign, sign};
use crate::webhook::template::{RenderContext, render};

/// The reference's time limit for a test delivery.
const SHORTEST: Duration = Duration::from_secs(10);
/// What an answer may take beyond the time a `deliver_only` route waits for its delivery.
const MARGIN: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(in crate::cli) struct Test {
    /// The route's name
    pub(super) name: String,
    /// The body, or @FILE [default: a small event with what templates usually name]
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The event's type [default: the first one the route wants, else test]
    #[arg(long, value_name = "TYPE")]
    event: Option<String>,
}

/// Where a scheme's provider names the event and the delivery, when it does so in headers that are not signed.
#[derive(Debug, Default)]
struct Names {
    event: Option<&'static str>,
    id: Option<&'static str>,
}

impl Names {
    fn of(scheme: &Scheme) -> Self {
        let both = |event, id| Self { event: Some(event), id: Some(id) };
        let id = |id| Self { event: None, id: Some(id) };
        match scheme {
            Scheme::Auto | Scheme::GitHub => both("x-github-event", "x-github-delivery"),
            Scheme::GitLab => both("x-gitlab-event", "idempotency-key"),
            Scheme::Gitea => both("x-gitea-event", "x-gitea-delivery"),
            Scheme::Bitbucket => both("x-event-key", "x-request-uuid"),
            Scheme::Shopify => both("x-shopify-topic", "x-shopify-webhook-id"),
            Scheme::Linear => both("linear-event", "linear-delivery"),
            Scheme::Sentry => both("sentry-hook-resource", "request-id"),
            Scheme::Twilio => id("i-twilio-idempotency-token"),
            Scheme::Bearer | Scheme::Basic | Scheme::Hmac(_) => id("x-request-id"),
            // Theirs are signed, or stand in the body.
            Scheme::Svix
            | Scheme::Standard
            | Scheme::Stripe
            | Scheme::Slack
            | Scheme::Paddle
            | Scheme::PagerDuty
            | Scheme::Telegram => Self::default(),
        }
    }
}

/// A request that is ready to be sent.
struct Delivery {
    headers: HeaderMap,
    body: String,
}

/// What the route makes of it, worked out here: the gateway's answer does not say.
struct Outlook {
    event: String,
    prompt: Result<String, String>,
    target: Result<String, String>,
    missing: Vec<String>,
}

pub(super) async fn run(context: &Context, config: &Config, route: &Route, test: Test) -> Result<u8, UserError> {
    let delivery = delivery(route, test)?;
    let outlook = outlook(route, &delivery)?;
    let url = address(config, &route.name);
    let at_most = SHORTEST.max(config.webhook.deliver_wait + MARGIN);
    let request = crate::http::loopback_client(at_most).post(&url).headers(delivery.headers).body(delivery.body);
    let response = request.send().await.map_err(|_| {
        UserError::failed(format!("No answer from {url}; does the gateway run? `hookgate gateway run` starts it."))
    })?;
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    let answer: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    let is = |word: &str| answer["status"] == word;
    let taken = status.is_success() && !is("ignored") && !is("duplicate");
    let report = json!({
        "status": status.as_u16(),
        "answer": answer,
        "taken": taken,
        "event": outlook.event,
        "target": outlook.target.as_ref().ok(),
        "prompt": outlook.prompt.as_ref().ok(),
        "missing": outlook.missing,
    });
    context.output.result(&report, || {
        let mut lines = vec![if is("ignored") {
            format!("{status}: the route does not want the event {}; it wants {}", outlook.event, events(route))
        } else if is("duplicate") {
            format!("{status}: the gateway has had this delivery already; give it another id in --payload")
        } else {
            format!("{status}: {answer}")
        }];
        lines.extend(outlook.lines(route));
        lines.join("\n")
    });
    Ok(u8::from(!taken))
}

impl Outlook {
    fn lines(&self, route: &Route) -> Vec<String> {
        let told = |text: &Result<String, String>| match text {
            Ok(text) => preview(text),
            Err(why) => format!("cannot be filled in: {why}"),
        };
        let mut lines = vec![
            format!("  event    {}", self.event),
            format!("  target   {}", told(&self.target)),
            format!("  prompt   {}", told(&self.prompt)),
        ];
        if !self.missing.is_empty() {
            let fate = if route.missing == Missing::Empty { "left out" } else { "stay as written" };
            lines.push(format!("  missing  {} ({fate})", self.missing.join(", ")));
        }
        lines
    }
}

fn outlook(route: &Route, delivery: &Delivery) -> Result<Outlook, UserError> {
    let content_type = delivery.headers.get("content-type").and_then(|value| value.to_str().ok());
    let payload = Payload::parse(content_type, delivery.body.as_bytes()).map_err(|_| unreadable())?;
    let event = payload::event_type(&delivery.headers, &payload);
    let context = RenderContext {
        payload: &payload,
        event: &event,
        route: &route.name,
        headers: &delivery.headers,
        missing: route.missing,
        raw_limit: route.raw_limit,
    };
    let targets = resolve_targets(route, &context);
    let target = targets.map(|targets| targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let (prompt, missing) = match render(&route.prompt, &context) {
        Ok(rendered) => (Ok(rendered.text), rendered.missing),
        Err(missing) => (Err(missing.to_string()), Vec::new()),
    };
    Ok(Outlook { event, prompt, target, missing })
}

/// The request, signed with the route's first secret.
fn delivery(route: &Route, test: Test) -> Result<Delivery, UserError> {
    let id = format!("test-{}", hex::encode(rand::random::<[u8; 8]>()));
    let now = jiff::Timestamp::now();
    let wanted = test.event.or_else(|| route.events.first().cloned()).unwrap_or_else(|| "test".to_owned());
    let names = Names::of(&route.scheme);
    // Where a header names the event, `issues.opened` is the type with the action.
    let (event, action) = wanted.split_once('.').unwrap_or((&wanted, "opened"));
    let body = match test.payload {
        Some(payload) => given(payload)?,
        None if route.scheme == Scheme::Twilio => form(&wanted, &id),
        None => sample(if names.event.is_some() { event } else { &wanted }, action, &wanted, &id).to_string(),
    };
    let body = if route.scheme == Scheme::Linear { with_time(body, now.as_millisecond()) } else { body };
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok();
    let content_type = if is_json { "application/json" } else { "application/x-www-form-urlencoded" };
    let mut headers = match route.secrets.first() {
        None => HeaderMap::new(),
        Some(secret) => {
            let public_url = route.public_url.as_deref();
            let unsigned = ToSign { body: body.as_bytes(), url: public_url, now: now.as_second(), id: &id };
            sign(&route.scheme, secret, unsigned).map_err(|error| {
                UserError::failed(format!("The route's secret {error}; the provider could not sign with it either."))
            })?
        }
    };
    for (name, value) in [(Some("content-type"), content_type), (names.event, event), (names.id, &id)] {
        let value = HeaderValue::from_str(value).map_err(|_| UserError {
            message: format!("The event {value:?} cannot stand in a header; use plain letters and digits."),
            exit_code: 2,
        })?;
        headers.extend(name.map(|name| (HeaderName::from_static(name), value)));
    }
    Ok(Delivery { headers, body })
}

/// `--payload`: the body itself, or the file after `@`.
fn given(payload: String) -> Result<String, UserError> {
    let body = match payload.strip_prefix('@') {
        Some(file) => read_at_most(file).map_err(|error| UserError {
            message: format!("The payload's file {file} cannot be read: {error}."),
            exit_code: 2,
        })?,
        None => payload,
    };
    Payload::parse(None, body.as_bytes()).map_err(|_| unreadable())?;
    Ok(body)
}

/// A file that may be a pipe (`<(…)`), but not one without an end.
fn read_at_most(file: &str) -> std::io::Result<String> {
    const LONGEST: u64 = 64 << 20;
    let mut text = String::new();
    std::fs::File::open(file)?.take(LONGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 {
        0..=LONGEST => Ok(text),
        _ => Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is larger than 64 MiB")),
    }
}

fn unreadable() -> UserError {
    UserError { message: "The payload is neither JSON nor a form.".into(), exit_code: 2 }
}

/// The body with the time of now, which Linear signs; a recorded one would be too old.
fn with_time(body: String, millis: i64) -> String {
    match serde_json::from_str(&body) {
        Ok(Value::Object(mut members)) => {
            members.insert("webhookTimestamp".to_owned(), millis.into());
            Value::Object(members).to_string()
        }
        _ => body,
    }
}

/// A small event with what templates usually name, and a new id wherever a provider's body has one.
fn sample(event: &str, action: &str, wanted: &str, id: &str) -> Value {
    let title = "A test delivery from hookgate webhook test";
    let thing = json!({ "number": 1, "title": title, "body": title, "html_url": "https://example.org/1",
        "state": "open", "user": { "login": "octocat" } });
    json!({
        "test": true,
        "id": id,
        "event_id": id,
        "update_id": rand::random_range(1..i32::MAX),
        "event_type": event,
        "type": wanted,
        "action": action,
        "message": title,
        "event": { "id": id, "event_type": wanted, "text": title },
        "data": { "object": { "id": id, "customer_email": "octocat@example.org", "amount_due": 1000, "currency": "eur" } },
        "repository": { "full_name": "octo/hello-world", "name": "hello-world", "html_url": "https://example.org" },
        "sender": { "login": "octocat" },
        "issue": thing,
        "pull_request": thing,
        "ref": "refs/heads/main",
        "commits": [{ "id": "0000000", "message": title, "author": { "name": "octocat" } }],
    })
}

/// A message as Twilio posts it.
fn form(wanted: &str, id: &str) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("MessageSid", id),
            ("From", "+15550001"),
            ("To", "+15550002"),
            ("Body", "A test delivery from hookgate webhook test"),
            ("type", wanted),
        ])
        .finish()
}
