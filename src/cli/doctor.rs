//! `hookgate doctor`: looks at everything the gateway needs and says what to do. Changes nothing.

use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::Context;
use crate::config::{Config, Model, Provider, Severity, Telegram, address};
use crate::error::UserError;
use crate::store::lock::{HomeLock, reference_gateway};
use crate::store::{SqlStore, StoreError};
use crate::webhook::subscriptions::{FILE_NAME, Subscriptions};

/// Asking Telegram takes no longer.
const ASK: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    state: State,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warning,
    Failed,
}

pub(super) async fn run(context: &Context) -> Result<u8, UserError> {
    let loaded = context.load();
    let mut findings = Vec::new();
    for problem in &loaded.problems {
        let state = if problem.severity == Severity::Error { State::Failed } else { State::Warning };
        findings.push(Finding { name: "config", state, message: crate::redact::redact(&problem.to_string()) });
    }
    if loaded.problems.is_empty() {
        findings.push(ok("config", "no problems"));
    }
    if let Some(config) = &loaded.config {
        findings.push(home(&config.home));
        findings.push(store(config).await);
        findings.extend(gateway(config).await);
        if config.telegram.is_empty() {
            findings.push(ok("telegram", "off; set TELEGRAM_BOT_TOKEN in .env to turn it on"));
        }
        for (account, bot) in &config.telegram {
            findings.push(telegram(config, account, bot).await);
        }
        findings.extend(models(config).await);
        findings.extend(webhooks(config).await);
    }
    let failed = findings.iter().any(|finding| finding.state == State::Failed);
    context.output.result(&serde_json::json!({ "ok": !failed, "findings": findings }), || {
        let line = |finding: &Finding| {
            let mark = match finding.state {
                State::Ok => "ok     ",
                State::Warning => "warning",
                State::Failed => "FAILED ",
            };
            format!("{mark}  {:<9} {}", finding.name, finding.message)
        };
        findings.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(u8::from(failed))
}

fn ok(name: &'static str, message: impl Into<String>) -> Finding {
    Finding { name, state: State::Ok, message: message.into() }
}

fn warning(name: &'static str, message: impl Into<String>) -> Finding {
    Finding { name, state: State::Warning, message: message.into() }
}

fn failed(name: &'static str, message: impl Into<String>) -> Finding {
    Finding { name, state: State::Failed, message: message.into() }
}

fn home(home: &Path) -> Finding {
    match tempfile_in(home) {
        Ok(()) => ok("home", format!("{} is writable", home.display())),
        Err(error) => failed("home", UserError::unwritable(home, &error).message),
    }
}

fn tempfile_in(home: &Path) -> std::io::Result<()> {
    let path = home.join(format!("hookgate.lock.doctor-{}", std::process::id()));
    std::fs::write(&path, b"")?;
    std::fs::remove_file(path)
}

async fn store(config: &Config) -> Finding {
    let url = &config.storage.url;
    match SqlStore::open_read_only(&config.home, url).await {
        Ok(store) => {
            let checked = store.check().await;
            let counts = store.counts().await;
            store.close().await;
            match (checked, counts) {
                (Ok(()), Ok(counts)) if counts.outbox_dead + counts.outbox_uncertain > 0 => warning(
                    "store",
                    format!(
                        "sound; replies given up: {}, of unknown outcome: {}; the log of that time says why",
                        counts.outbox_dead, counts.outbox_uncertain
                    ),
                ),
                (Ok(()), Ok(_)) => ok("store", format!("{url} is sound")),
                (Err(error @ StoreError::Damaged(_)), _) | (_, Err(error @ StoreError::Damaged(_))) => damaged(&error),
                (Err(error), _) | (_, Err(error)) => failed("store", error.to_string()),
            }
        }
        Err(error @ StoreError::Damaged(_)) => damaged(&error),
        Err(error) => failed("store", error.to_string()),
    }
}

fn damaged(error: &StoreError) -> Finding {
    let error = one_line(&error.to_string());
    failed("store", format!("{error}. Start the gateway: it keeps the damaged file and carries over what can be read."))
}

/// SQLite's report has many lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

async fn gateway(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(match HomeLock::holder(&config.home) {
        Some(pid) => ok("gateway", format!("runs (process {pid})")),
        None => ok("gateway", "does not run; `hookgate gateway run` starts it"),
    });
    if HomeLock::holder(&config.home).is_none() {
        let listeners = [
            ("console", config.console.enabled, &config.console.host, config.console.port),
            ("webhooks", config.webhook.enabled, &config.webhook.host, config.webhook.port),
        ];
        for (name, _, host, port) in listeners.into_iter().filter(|(_, enabled, ..)| *enabled) {
            if let Err(error) = crate::server::bind(name, host, port).await {
                findings.push(failed(if name == "console" { "console" } else { "webhooks" }, format!("{error:#}")));
            }
        }
    }
    findings.extend(reference_gateway(&config.home).map(|what| warning("gateway", what)));
    findings
}

async fn telegram(config: &Config, account: &str, telegram: &Telegram) -> Finding {
    let list = match account {
        "" => "TELEGRAM_ALLOWED_USERS".to_owned(),
        account => format!("platforms.telegram.accounts.{account}.allow_from"),
    };
    let proxies = config.proxies.or_through(telegram.proxy.as_ref());
    let asked = hookgate_adapters::check_token(&telegram.base_url, telegram.token.clone(), &proxies, ASK).await;
    let lists = [&telegram.allowed.users, &telegram.allowed.group_users, &telegram.allowed.group_chats];
    let nobody = lists.iter().all(|list| list.is_empty()) && !telegram.allowed.all;
    let nobody = nobody && config.allowed.users.is_empty() && !config.allowed.all;
    let named = if account.is_empty() { String::new() } else { format!("{account}: ") };
    match asked {
        Err(error) => failed("telegram", crate::redact::redact(&format!("{named}{error}"))),
        Ok(bot) if nobody => warning(
            "telegram",
            format!("{named}the token is @{bot}'s, but nobody may talk to it; set {list} to your user id"),
        ),
        Ok(bot) => ok("telegram", format!("{named}the token is @{bot}'s")),
    }
}

/// The model, and those that stand in for it.
async fn models(config: &Config) -> Vec<Finding> {
    let mut findings = vec![model(&config.model).await];
    for fallback in &config.model.fallbacks {
        findings.push(model(fallback).await);
    }
    findings
}

async fn model(model: &Model) -> Finding {
    let shown = format!("{} at {}", model.name, address(&model.base_url));
    let variable = match model.provider {
        Provider::Echo => {
            return ok("model", "echo: answers with the text it was given; set model: for a real one");
        }
        Provider::Replay => {
            return match crate::agent::reach_model(model, ASK).await {
                Err(error) => failed("model", crate::redact::redact(&error)),
                Ok(()) => ok("model", "replay: answers from a recording"),
            };
        }
        Provider::OpenAi => "OPENAI_API_KEY",
        Provider::Anthropic => "ANTHROPIC_API_KEY",
    };
    match crate::agent::reach_model(model, ASK).await {
        Err(error) => failed("model", crate::redact::redact(&format!("{shown}: {error}"))),
        Ok(()) if model.api_key.as_ref().is_none_or(|key| key.expose_secret().is_empty()) => {
            warning("model", format!("{shown}, without a key; set {variable} if the server wants one"))
        }
        Ok(()) => ok("model", shown),
    }
}

async fn webhooks(config: &Config) -> Vec<Finding> {
    if !config.webhook.enabled {
        return vec![ok("webhooks", "off (platforms.webhook.enabled)")];
    }
    let (routes, defaults) = (config.webhook.routes.clone(), config.webhook.route_defaults.clone());
    let file = config.home.join(FILE_NAME);
    let routes = Subscriptions::open(file.clone(), routes, defaults).current().await;
    let mut findings: Vec<Finding> =
        routes.off_lines().into_iter().map(|line| failed("webhooks", format!("off: {line}"))).collect();
    findings.extend(routes.unreadable(&file).map(|error| failed("webhooks", error)));
    if findings.is_empty() {
        findings.push(ok("webhooks", format!("routes: {}", routes.names().len())));
    }
    findings
}
