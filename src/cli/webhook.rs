//! `hookgate webhook subscribe|list|show|test|remove`. Subscriptions live in the file that the running gateway reads for
//! each request, so a change works at once.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sha2::Sha256;

use super::Context;
use super::output::table;
use crate::config::Config;
use crate::console::ConsoleFile;
use crate::error::UserError;
use crate::store::lock::HomeLock;
use crate::webhook::route::{Route, Scheme};
use crate::webhook::subscriptions::{self, FILE_NAME, RouteSet, Subscription, SubscriptionError, Subscriptions};

/// The reference's time limit for a test delivery; a `deliver_only` route may use all of its `deliver_wait`.
const TEST: Duration = Duration::from_secs(10);
/// So much of a prompt is shown.
const PREVIEW: usize = 80;

#[derive(Debug, Subcommand)]
pub(super) enum WebhookCommand {
    /// Add a subscription, or replace the one of that name (its secret is kept)
    #[command(visible_alias = "add")]
    Subscribe(Subscribe),
    /// List routes: where they listen, what they want, and which are off and why
    #[command(visible_alias = "ls")]
    List,
    /// Show one route
    Show {
        /// Its name
        name: String,
        /// Show its secret too
        #[arg(long)]
        secret: bool,
    },
    /// Send a signed test delivery to the running gateway; exit 0 only if it was taken
    Test {
        /// The route's name
        name: String,
        /// The body, or @FILE [default: a small event of GitHub's shape]
        #[arg(long, value_name = "JSON")]
        payload: Option<String>,
        /// The event's type [default: the first one the route wants, else test]
        #[arg(long, value_name = "TYPE")]
        event: Option<String>,
    },
    /// Remove a subscription
    #[command(visible_alias = "rm")]
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct Subscribe {
    /// Its name in the address: lower-case letters, digits, - and _
    name: String,
    /// Template of the prompt or message, such as '{issue.title}'; empty: the whole event
    #[arg(long, default_value = "", value_name = "TEMPLATE")]
    prompt: String,
    /// Wanted event types, separated by commas; none: all
    #[arg(long, value_delimiter = ',', value_name = "TYPES")]
    events: Vec<String>,
    /// What it is for
    #[arg(long, default_value = "", value_name = "TEXT")]
    description: String,
    /// Where the answer goes: log, telegram, telegram:CHAT[:THREAD], telegram@ACCOUNT[:CHAT], local, local:CHAT
    #[arg(long, default_value = "log", value_name = "TARGET")]
    deliver: String,
    /// The chat of the target; may be a template
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    deliver_chat_id: Option<String>,
    /// The secret [default: the one it has, else a new one]
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,
    /// Send the rendered prompt itself, without a model
    #[arg(long)]
    deliver_only: bool,
}

pub(super) async fn run(context: &Context, command: WebhookCommand) -> Result<u8, UserError> {
    let config = context.quiet_config()?;
    match command {
        WebhookCommand::Subscribe(subscribe) => add(context, &config, subscribe),
        WebhookCommand::List => list(context, &config).await,
        WebhookCommand::Show { name, secret } => show(context, &config, &name, secret).await,
        WebhookCommand::Test { name, payload, event } => test(context, &config, &name, payload, event).await,
        WebhookCommand::Remove { name } => {
            let removed = subscriptions::remove(&file(&config), &name).map_err(|error| failed(&error))?;
            context.output.result(&json!({ "removed": removed }), || format!("Removed {removed}."));
            Ok(0)
        }
    }
}

fn file(config: &Config) -> PathBuf {
    config.home.join(FILE_NAME)
}

fn failed(error: &SubscriptionError) -> UserError {
    UserError::failed(error.to_string())
}

async fn routes(config: &Config) -> std::sync::Arc<RouteSet> {
    let (routes, defaults) = (config.webhook.routes.clone(), config.webhook.route_defaults.clone());
    Subscriptions::open(file(config), routes, defaults).current().await
}

/// Where the listener is reached: as it runs, else as it is configured.
fn base_url(config: &Config) -> String {
    let running = HomeLock::holder(&config.home).and_then(|_| ConsoleFile::read(&config.home)?.webhook_url);
    running.unwrap_or_else(|| {
        let host = config.webhook.host.as_str();
        let host = match host {
            "" | "0.0.0.0" | "::" => "localhost".to_owned(),
            host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
            host => host.to_owned(),
        };
        format!("http://{host}:{}", config.webhook.port)
    })
}

fn address(config: &Config, name: &str) -> String {
    format!("{}/webhooks/{name}", base_url(config))
}

fn add(context: &Context, config: &Config, subscribe: Subscribe) -> Result<u8, UserError> {
    let wanted = Subscription {
        name: subscribe.name,
        description: subscribe.description,
        events: subscribe
            .events
            .iter()
            .map(|event| event.trim().to_owned())
            .filter(|event| !event.is_empty())
            .collect(),
        prompt: subscribe.prompt,
        skills: Vec::new(),
        deliver: subscribe.deliver,
        deliver_chat_id: subscribe.deliver_chat_id,
        secret: subscribe.secret.map(SecretString::from),
        deliver_only: subscribe.deliver_only,
        script: None,
    };
    let saved = subscriptions::subscribe(&file(config), &wanted, &config.webhook.route_defaults)
        .map_err(|error| failed(&error))?;
    let mut notes: Vec<String> = saved.warnings.iter().map(ToString::to_string).collect();
    if config.webhook.routes.contains_key(&saved.name) {
        notes.push(format!("config.yaml has a route {} too, and that one is served", saved.name));
    }
    if !config.webhook.enabled {
        notes.push("the webhook listener is off (platforms.webhook.enabled)".into());
    }
    let url = address(config, &saved.name);
    // The secret is shown here and only here: the person is about to enter it at the provider.
    let secret = saved.secret.as_ref().map(|secret| secret.expose_secret().to_owned());
    let report = json!({
        "name": saved.name,
        "created": saved.is_new,
        "url": url,
        "secret": secret,
        "secret_changed": saved.secret_changed,
        "route": described(&saved.route),
        "warnings": notes,
    });
    context.output.result(&report, || {
        let verb = if saved.is_new { "Created" } else { "Updated" };
        let mut lines = vec![format!("{verb} {}", saved.name), format!("  url      {url}")];
        if let Some(secret) = &secret {
            let kept = if saved.is_new || saved.secret_changed { "" } else { "  (unchanged)" };
            lines.push(format!("  secret   {secret}{kept}"));
        }
        lines.extend(details(&saved.route));
        lines.extend(notes.iter().map(|note| format!("  note     {note}")));
        lines.join("\n")
    });
    Ok(0)
}

fn events(route: &Route) -> String {
    if route.events.is_empty() { "(all)".into() } else { route.events.join(", ") }
}

fn details(route: &Route) -> Vec<String> {
    let mode = if route.deliver_only { "deliver only, no model" } else { "a model answers" };
    let prompt: String = route.prompt.chars().take(PREVIEW).collect();
    let prompt = match route.prompt.trim() {
        "" => "(the whole event)".into(),
        whole if whole.chars().count() > PREVIEW => format!("{prompt}…"),
        _ => prompt,
    };
    vec![
        format!("  events   {}", events(route)),
        format!("  deliver  {} ({mode})", route.deliver),
        format!("  prompt   {}", prompt.replace('\n', " ")),
    ]
}

fn described(route: &Route) -> Value {
    json!({
        "description": route.description,
        "enabled": route.enabled,
        "scheme": scheme(route),
        "events": route.events,
        "prompt": route.prompt,
        "deliver": route.deliver.to_string(),
        "deliver_only": route.deliver_only,
    })
}

fn scheme(route: &Route) -> &'static str {
    if route.insecure {
        return "none (INSECURE_NO_AUTH)";
    }
    route.scheme.name()
}

async fn list(context: &Context, config: &Config) -> Result<u8, UserError> {
    let set = routes(config).await;
    let mut names: Vec<&String> = set.routes.keys().collect();
    names.sort();
    let rows: Vec<Value> = names
        .iter()
        .map(|name| {
            let route = &set.routes[*name];
            let mut row = described(route);
            row["name"] = json!(name);
            row["url"] = json!(address(config, name));
            row["source"] = json!(if set.dynamic.contains(*name) { "subscription" } else { "config" });
            row["state"] = json!(if route.enabled { "on" } else { "disabled" });
            row
        })
        .collect();
    let off: Vec<Value> =
        set.off.iter().map(|(name, problems)| json!({ "name": name, "problems": problems })).collect();
    let report = json!({ "routes": rows, "off": off, "file_error": set.file_error });
    context.output.result(&report, || {
        let mut text = if rows.is_empty() {
            "No routes. `hookgate webhook subscribe NAME` adds one.".to_owned()
        } else {
            let cell = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let lines: Vec<Vec<String>> = names
                .iter()
                .zip(&rows)
                .map(|(name, row)| {
                    let route = &set.routes[*name];
                    let mode = if route.deliver_only { " (deliver only)" } else { "" };
                    vec![
                        cell(row, "name"),
                        cell(row, "state"),
                        cell(row, "source"),
                        events(route),
                        format!("{}{mode}", route.deliver),
                        cell(row, "url"),
                    ]
                })
                .collect();
            table(&["NAME", "STATE", "SOURCE", "EVENTS", "DELIVER", "URL"], &lines)
        };
        for line in set.off_lines() {
            text.push_str(&format!("\noff: {line}"));
        }
        if let Some(error) = &set.file_error {
            text.push_str(&format!("\n{error}"));
        }
        text
    });
    Ok(0)
}

/// The route of a name, as it is typed or as `subscribe` would write it.
async fn find(config: &Config, name: &str) -> Result<std::sync::Arc<Route>, UserError> {
    let set = routes(config).await;
    let normal = subscriptions::normal_name(name).ok();
    if let Some(route) = [Some(name), normal.as_deref()].into_iter().flatten().find_map(|name| set.routes.get(name)) {
        return Ok(std::sync::Arc::clone(route));
    }
    let name = normal.as_deref().unwrap_or(name);
    let off = set.off_lines().into_iter().find(|line| line.starts_with(&format!("{name}: ")));
    Err(UserError::failed(match off {
        Some(line) => format!("The route is off: {line}."),
        None => format!("There is no route {name:?}; `hookgate webhook list` shows them."),
    }))
}

async fn show(context: &Context, config: &Config, name: &str, with_secret: bool) -> Result<u8, UserError> {
    let route = find(config, name).await?;
    let name = route.name.as_str();
    let secret = route.secrets.first().filter(|_| with_secret).map(|secret| secret.expose_secret().to_owned());
    let mut report = described(&route);
    report["name"] = json!(name);
    report["url"] = json!(address(config, name));
    if with_secret {
        report["secret"] = json!(secret);
    }
    context.output.result(&report, || {
        let mut lines = vec![name.to_owned(), format!("  url      {}", address(config, name))];
        lines.push(format!("  scheme   {}", scheme(&route)));
        lines.extend(secret.iter().map(|secret| format!("  secret   {secret}")));
        lines.extend(details(&route));
        lines.join("\n")
    });
    Ok(0)
}

async fn test(
    context: &Context,
    config: &Config,
    name: &str,
    payload: Option<String>,
    event: Option<String>,
) -> Result<u8, UserError> {
    let route = find(config, name).await?;
    let name = route.name.as_str();
    let wanted = event.or_else(|| route.events.first().cloned()).unwrap_or_else(|| "test".to_owned());
    // `issues.opened` is the type with the action.
    let (event, action) = wanted.split_once('.').unwrap_or((&wanted, "opened"));
    let body = match payload {
        None => sample(event, action),
        Some(payload) => match payload.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(file).map_err(|error| UserError {
                message: format!("The payload's file {file} cannot be read: {error}."),
                exit_code: 2,
            })?,
            None => payload,
        },
    };
    if serde_json::from_str::<serde::de::IgnoredAny>(&body).is_err() {
        return Err(UserError { message: "The payload is not JSON.".into(), exit_code: 2 });
    }
    if !matches!(route.scheme, Scheme::Auto | Scheme::GitHub) {
        return Err(UserError::failed(format!(
            "Test deliveries are signed as GitHub signs them, and this route wants the scheme {}.",
            route.scheme.name()
        )));
    }
    let mut request = crate::http::loopback_client(TEST)
        .post(address(config, name))
        .header("content-type", "application/json")
        .header("x-github-event", event)
        .header("x-github-delivery", format!("test-{}", hex::encode(rand::random::<[u8; 8]>())));
    if let Some(secret) = route.secrets.first() {
        let mut mac = <Hmac<Sha256>>::new_from_slice(secret.expose_secret().as_bytes())
            .map_err(|error| UserError::failed(format!("The secret cannot be used: {error}.")))?;
        mac.update(body.as_bytes());
        let signature = hex::encode(mac.finalize().into_bytes());
        request = request.header("x-hub-signature-256", format!("sha256={signature}"));
    }
    let response = request.body(body).send().await.map_err(|_| {
        UserError::failed(format!(
            "No answer from {}; does the gateway run? `hookgate gateway run` starts it.",
            address(config, name)
        ))
    })?;
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    let answer: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    let ignored = answer["status"] == "ignored";
    let report = json!({ "status": status.as_u16(), "answer": answer });
    context.output.result(&report, || match ignored {
        true => format!("{status}: the route does not want the event {event}; it wants {}", events(&route)),
        false => format!("{status}: {answer}"),
    });
    Ok(u8::from(!status.is_success() || ignored))
}

/// A small event of GitHub's shape, with what templates usually name.
fn sample(event: &str, action: &str) -> String {
    let title = "A test delivery from hookgate webhook test";
    let thing = json!({ "number": 1, "title": title, "body": title, "html_url": "https://example.org/1",
        "state": "open", "user": { "login": "octocat" } });
    json!({
        "test": true,
        "event_type": event,
        "action": action,
        "message": title,
        "repository": { "full_name": "octo/hello-world", "name": "hello-world", "html_url": "https://example.org" },
        "sender": { "login": "octocat" },
        "issue": thing,
        "pull_request": thing,
        "ref": "refs/heads/main",
        "commits": [{ "id": "0000000", "message": title, "author": { "name": "octocat" } }],
    })
    .to_string()
}
