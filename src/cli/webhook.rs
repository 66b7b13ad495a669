//! `hookgate webhook subscribe|list|show|test|pause|resume|rotate|remove|deliveries`. Subscriptions live in the file that
//! the running gateway reads for each request, so a change works at once.

mod deliveries;
mod test;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use super::Context;
use super::output::table;
use crate::config::Config;
use crate::console::ConsoleFile;
use crate::error::UserError;
use crate::store::lock::HomeLock;
use crate::webhook::route::Route;
use crate::webhook::subscriptions::{self, FILE_NAME, RouteSet, Saved, Subscription, SubscriptionError, Subscriptions};

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
    /// Send a test delivery, signed as the route wants it, to the running gateway; exit 0 only if it was taken
    Test(test::Test),
    /// Turn a subscription off, with all it has kept; it answers 403
    Pause {
        /// Its name
        name: String,
    },
    /// Turn a subscription on again
    Resume {
        /// Its name
        name: String,
    },
    /// Give a subscription a new secret, which is shown once
    Rotate {
        /// Its name
        name: String,
        /// The new secret, where the provider makes it [default: a random one]
        #[arg(long, value_name = "SECRET")]
        secret: Option<String>,
        /// Accept the old secrets too; `rotate --secret` with the new one, without this, ends that
        #[arg(long)]
        keep_old: bool,
    },
    /// Remove a subscription
    #[command(visible_alias = "rm")]
    Remove {
        /// Its name
        name: String,
    },
    /// List what came, newest first, where it went and how it ended
    Deliveries(deliveries::Deliveries),
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
    /// Skills for the model, separated by commas; kept, and without effect yet
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    skills: Vec<String>,
    /// Not supported yet: a subscription with a script is refused
    #[arg(long, value_name = "FILE")]
    script: Option<String>,
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
        WebhookCommand::Test(wanted) => {
            let route = find(&config, &wanted.name).await?;
            test::run(context, &config, &route, wanted).await
        }
        WebhookCommand::Pause { name } => enable(context, &config, &name, false),
        WebhookCommand::Resume { name } => enable(context, &config, &name, true),
        WebhookCommand::Rotate { name, secret, keep_old } => rotate(context, &config, &name, secret, keep_old),
        WebhookCommand::Remove { name } => {
            let removed = subscriptions::remove(&file(&config), &name).map_err(|error| unchanged(&config, &error))?;
            context.output.result(&json!({ "removed": removed }), || format!("Removed {removed}."));
            Ok(0)
        }
        WebhookCommand::Deliveries(wanted) => deliveries::run(context, &config, wanted).await,
    }
}

fn file(config: &Config) -> PathBuf {
    config.home.join(FILE_NAME)
}

fn failed(error: &SubscriptionError) -> UserError {
    UserError::failed(error.to_string())
}

/// The same for a command that changes what is there: a route of config.yaml is changed there.
fn unchanged(config: &Config, error: &SubscriptionError) -> UserError {
    match error {
        SubscriptionError::Unknown(name) if config.webhook.routes.contains_key(name) => {
            UserError::failed(format!("{name} is a route of config.yaml, not a subscription; change it there."))
        }
        error => failed(error),
    }
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
    let listed = |list: &[String]| {
        list.iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect::<Vec<_>>()
    };
    let wanted = Subscription {
        name: subscribe.name,
        description: subscribe.description,
        events: listed(&subscribe.events),
        prompt: subscribe.prompt,
        skills: listed(&subscribe.skills),
        deliver: subscribe.deliver,
        deliver_chat_id: subscribe.deliver_chat_id,
        secret: subscribe.secret.map(SecretString::from),
        deliver_only: subscribe.deliver_only,
        script: subscribe.script,
    };
    let saved = subscriptions::subscribe(&file(config), &wanted, &config.webhook.route_defaults)
        .map_err(|error| failed(&error))?;
    let notes = notes(config, &saved);
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
        lines.extend(note_lines(&notes));
        lines.join("\n")
    });
    Ok(0)
}

/// What a person should know about what was saved.
fn notes(config: &Config, saved: &Saved) -> Vec<String> {
    let mut notes: Vec<String> = saved.warnings.iter().map(ToString::to_string).collect();
    if config.webhook.routes.contains_key(&saved.name) {
        notes.push(format!("config.yaml has a route {} too, and that one is served", saved.name));
    }
    if !config.webhook.enabled {
        notes.push("the webhook listener is off (platforms.webhook.enabled)".into());
    }
    notes
}

fn note_lines(notes: &[String]) -> impl Iterator<Item = String> {
    notes.iter().map(|note| format!("  note     {note}"))
}

fn enable(context: &Context, config: &Config, name: &str, enabled: bool) -> Result<u8, UserError> {
    let value = if enabled { Value::Null } else { false.into() };
    let changes = Map::from_iter([("enabled".to_owned(), value)]);
    let saved = subscriptions::update(&file(config), name, &changes, &config.webhook.route_defaults)
        .map_err(|error| unchanged(config, &error))?;
    let notes = notes(config, &saved);
    let report = json!({ "name": saved.name, "enabled": enabled, "warnings": notes });
    context.output.result(&report, || {
        let told = match enabled {
            true => format!("{} is on.", saved.name),
            false => format!("{} is paused; `hookgate webhook resume {}` turns it on.", saved.name, saved.name),
        };
        std::iter::once(told).chain(note_lines(&notes)).collect::<Vec<_>>().join("\n")
    });
    Ok(0)
}

fn rotate(
    context: &Context,
    config: &Config,
    name: &str,
    secret: Option<String>,
    keep_old: bool,
) -> Result<u8, UserError> {
    let secret = secret.map_or_else(subscriptions::new_secret, SecretString::from);
    let saved = subscriptions::rotate(&file(config), name, &secret, keep_old, &config.webhook.route_defaults)
        .map_err(|error| unchanged(config, &error))?;
    let (notes, accepted) = (notes(config, &saved), saved.route.secrets.len());
    let report =
        json!({ "name": saved.name, "secret": secret.expose_secret(), "accepted": accepted, "warnings": notes });
    context.output.result(&report, || {
        let old = match accepted {
            1 => "the old one is no longer accepted".to_owned(),
            _ => format!("accepted beside it: {}; `rotate --secret` with this one ends that", accepted - 1),
        };
        let mut lines = vec![saved.name.clone(), format!("  secret   {}  ({old})", secret.expose_secret())];
        lines.extend(note_lines(&notes));
        lines.join("\n")
    });
    Ok(0)
}

fn events(route: &Route) -> String {
    if route.events.is_empty() { "(all)".into() } else { route.events.join(", ") }
}

fn details(route: &Route) -> Vec<String> {
    let mode = if route.deliver_only { "deliver only, no model" } else { "a model answers" };
    let prompt = if route.prompt.trim().is_empty() { "(the whole event)".into() } else { preview(&route.prompt) };
    let about = Some(route.description.trim()).filter(|description| !description.is_empty());
    let mut lines: Vec<String> = about.map(|about| format!("  about    {}", one_line(about))).into_iter().collect();
    lines.extend([
        format!("  events   {}", events(route)),
        format!("  deliver  {} ({mode})", route.deliver),
        format!("  prompt   {prompt}"),
    ]);
    lines
}

/// The beginning of a prompt, on one line.
fn preview(prompt: &str) -> String {
    let beginning: String = prompt.chars().take(PREVIEW).collect();
    let mark = if prompt.chars().count() > PREVIEW { "…" } else { "" };
    format!("{}{mark}", one_line(&beginning))
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
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
    let file_error = set.unreadable(&file(config));
    let report = json!({ "routes": rows, "off": off, "file_error": file_error });
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
                        one_line(&route.description),
                    ]
                })
                .collect();
            table(&["NAME", "STATE", "SOURCE", "EVENTS", "DELIVER", "URL", "DESCRIPTION"], &lines)
        };
        for line in set.off_lines() {
            text.push_str(&format!("\noff: {line}"));
        }
        if let Some(error) = &file_error {
            text.push_str(&format!("\n{error}"));
        }
        text
    });
    Ok(u8::from(file_error.is_some()))
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
