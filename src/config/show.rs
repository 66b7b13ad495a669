//! The effective configuration as people and programs read it, without its secrets.

use std::collections::BTreeMap;
use std::path::Path;

use hookgate_adapters::AllowBots;
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use super::agent::in_money;
use super::build::{TELEGRAM_API, in_seconds};
use super::keys::ACCOUNTS;
use super::{Budget, Config, Model, Provider, ReplyToMode, Telegram};
use crate::session::ResetMode;
use crate::store::UncertainSends;
use crate::webhook::route::{Deliver, Route};

const REDACTED: &str = "***";

/// Every key of `config.example.yaml` with its effective value, nested as in the file; secrets are `"***"`, or null when
/// there is none. `platforms.telegram` holds only defaults while Telegram is off.
pub fn redacted_json(config: &Config) -> Value {
    Value::Object(nested(effective(config)))
}

fn nested<'p>(values: impl IntoIterator<Item = (&'p str, Value)>) -> Map<String, Value> {
    let mut root = Map::new();
    for (path, value) in values {
        let mut segments: Vec<&str> = path.split('.').collect();
        let last = segments.pop().unwrap_or_default();
        let mut map = &mut root;
        for segment in segments {
            let below = map.entry(segment).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(below) = below else { unreachable!("no key's path is the beginning of another's") };
            map = below;
        }
        map.insert(last.to_owned(), value);
    }
    root
}

/// The same as YAML, to be read by people.
pub fn redacted_yaml(config: &Config) -> String {
    serde_yaml::to_string(&redacted_json(config)).unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
}

fn hidden(secret: Option<&SecretString>) -> Value {
    secret.map_or(Value::Null, |_| REDACTED.into())
}

/// An address without its password and its query, which may hold a key.
pub(crate) fn address(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(mut parsed) if parsed.password().is_some() || parsed.query().is_some() => {
            if parsed.password().is_some() {
                // Only an address without a host refuses it, and that has no password.
                let _ = parsed.set_password(Some(REDACTED));
            }
            parsed.query().is_some().then(|| parsed.set_query(Some(REDACTED)));
            parsed.to_string()
        }
        _ => url.to_owned(),
    }
}

/// Every key that takes effect and its value, in the order of the example.
fn effective(config: &Config) -> Vec<(&'static str, Value)> {
    let Config { storage, console, limits, model, webhook, .. } = config;
    let mut values = vec![
        ("storage.url", json!(storage.url.to_string())),
        ("storage.retention_days", json!(storage.retention_days)),
        ("storage.max_gb", json!(storage.max_gb)),
        ("console.enabled", json!(console.enabled)),
        ("console.host", json!(console.host)),
        ("console.port", json!(console.port)),
        ("console.token", hidden(console.token.as_ref())),
        ("model.default", json!(model.name)),
        ("model.provider", json!(provider(model))),
        ("model.api_mode", json!(api_mode(model))),
        ("model.base_url", json!(address(&model.base_url))),
        ("model.api_key", hidden(model.api_key.as_ref())),
        ("model.system_prompt", json!(model.system_prompt)),
        ("model.timeout", in_seconds(model.timeout)),
        ("model.max_tokens", json!(model.max_tokens)),
        ("model.context_length", json!(model.context_length)),
        ("model.record", shown_file(model.record.as_deref())),
        ("model.replay", shown_file(model.replay.as_deref())),
        ("model.prices.input", json!(model.prices.map(|prices| in_money(prices.input_micros)))),
        ("model.prices.output", json!(model.prices.map(|prices| in_money(prices.output_micros)))),
        ("fallback_providers", model.fallbacks.iter().map(fallback).collect()),
        ("allowed_users", json!(config.allowed.users)),
        ("allow_all_users", json!(config.allowed.all)),
        ("roles.owner", json!(config.roles.owner)),
        ("roles.admin", json!(config.roles.admin)),
        ("roles.guest", json!(config.roles.guest)),
    ];
    values.extend(of_telegram(config.telegram.get("")));
    let accounts = config.telegram.iter().filter(|(name, _)| !name.is_empty());
    let accounts = accounts.map(|(name, telegram)| {
        let own = of_telegram(Some(telegram)).into_iter();
        let own = own.filter_map(|(path, value)| Some((path.strip_prefix("platforms.telegram.")?, value)));
        (name.clone(), Value::Object(nested(own)))
    });
    values.push((ACCOUNTS, accounts.collect::<Map<_, _>>().into()));
    values.extend([
        ("platforms.webhook.enabled", json!(webhook.enabled)),
        ("platforms.webhook.extra.host", json!(webhook.host)),
        ("platforms.webhook.extra.port", json!(webhook.port)),
        ("platforms.webhook.extra.secret", hidden(webhook.route_defaults.secret.as_ref())),
        ("platforms.webhook.extra.rate_limit", json!(webhook.rate_limit)),
        ("platforms.webhook.extra.max_body_bytes", json!(webhook.max_body_bytes)),
        ("platforms.webhook.extra.deliver_wait", in_seconds(webhook.deliver_wait)),
        ("platforms.webhook.extra.trusted_proxies", json!(webhook.trusted_proxies)),
        ("platforms.webhook.extra.public_url", json!(webhook.route_defaults.public_url.as_deref().map(address))),
        (
            "platforms.webhook.extra.routes",
            json!(webhook.routes.iter().map(|(name, route)| (name, shown_route(route))).collect::<BTreeMap<_, _>>()),
        ),
        ("drain_timeout", in_seconds(config.drain_timeout)),
        ("max_update_age", in_seconds(config.max_update_age)),
        (
            "session_reset.mode",
            json!(match config.reset.mode {
                ResetMode::None => "none",
                ResetMode::Idle => "idle",
                ResetMode::Daily => "daily",
                ResetMode::Both => "both",
            }),
        ),
        ("session_reset.at_hour", json!(config.reset.hour)),
        ("session_reset.idle_minutes", json!(config.reset.idle.as_secs() / 60)),
        ("session_reset.notify", json!(config.tells_of_reset)),
        ("session_reset.notify_exclude_platforms", json!(config.silent_of_reset)),
        ("timezone", json!(config.reset.zone.iana_name())),
        ("edits", json!(if config.edits { "turn" } else { "ignore" })),
        (
            "uncertain_sends",
            json!(match config.uncertain_sends {
                UncertainSends::Resend => "resend",
                UncertainSends::Hold => "hold",
            }),
        ),
        ("group_sessions_per_user", json!(config.sharing.group_sessions_per_user)),
        ("thread_sessions_per_user", json!(config.sharing.thread_sessions_per_user)),
    ]);
    values.extend(of_agent(config));
    values.extend([
        ("limits.turns", json!(limits.turns)),
        ("limits.waiting_per_chat", json!(limits.waiting_per_chat)),
        ("limits.failed_signatures_per_minute", json!(limits.failed_signatures_per_minute)),
        ("limits.hook_processes", json!(limits.hook_processes)),
        ("limits.tool_output_bytes", json!(limits.tool_output_bytes)),
    ]);
    values
}

/// What the agent may do and spend.
fn of_agent(config: &Config) -> Vec<(&'static str, Value)> {
    let Config { agent, approvals, terminal, files, web, budgets, .. } = config;
    let names = |env: &[(String, SecretString)]| env.iter().map(|(name, _)| Value::from(name.as_str())).collect();
    let place = |(host, port): &(String, u16)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let cost = |budget: Budget| json!(budget.cost_micros.map(in_money));
    vec![
        ("agent.max_turns", json!(agent.max_turns)),
        ("agent.max_verify_nudges", json!(agent.max_verify_nudges)),
        ("agent.disabled_toolsets", json!(agent.disabled_toolsets)),
        (
            "platform_toolsets",
            json!(config.toolsets.iter().map(|(name, tools)| (name.as_str(), tools)).collect::<BTreeMap<_, _>>()),
        ),
        ("approvals.mode", json!(approvals.mode.as_str())),
        ("approvals.timeout", in_seconds(approvals.timeout)),
        ("approvals.on_timeout", json!(approvals.on_timeout.as_str())),
        ("approvals.deny", json!(approvals.deny)),
        ("approvals.destructive_slash_confirm", json!(approvals.destructive_slash_confirm)),
        ("command_allowlist", json!(config.command_allowlist)),
        ("terminal.cwd", shown_file(Some(&terminal.cwd))),
        ("terminal.timeout", in_seconds(terminal.timeout)),
        ("terminal.max_timeout", in_seconds(terminal.max_timeout)),
        ("files.roots", files.roots.iter().map(|root| shown_file(Some(root))).collect()),
        ("files.deny", json!(files.deny)),
        ("web.search_url", json!(web.search_url.as_deref().map(address))),
        ("web.search_api_key", hidden(web.search_api_key.as_ref())),
        ("web.allow_private", json!(web.allow_private.iter().map(place).collect::<Vec<_>>())),
        ("secrets.pass_to_tools", names(&config.tool_env)),
        ("secrets.pass_to_hooks", names(&config.hook_env)),
        ("budgets.turn.tokens", json!(budgets.turn.tokens)),
        ("budgets.turn.tool_calls", json!(budgets.turn.tool_calls)),
        ("budgets.turn.cost", cost(budgets.turn)),
        ("budgets.user.tokens", json!(budgets.user.tokens)),
        ("budgets.user.tool_calls", json!(budgets.user.tool_calls)),
        ("budgets.user.cost", cost(budgets.user)),
        ("budgets.route.tokens", json!(budgets.route.tokens)),
        ("budgets.route.tool_calls", json!(budgets.route.tool_calls)),
        ("budgets.route.cost", cost(budgets.route)),
    ]
}

fn shown_file(file: Option<&Path>) -> Value {
    json!(file.map(|file| file.display().to_string()))
}

fn provider(model: &Model) -> &'static str {
    match model.provider {
        Provider::Echo => "echo",
        Provider::OpenAi => "openai",
        Provider::Anthropic => "anthropic",
        Provider::Replay => "replay",
    }
}

fn api_mode(model: &Model) -> &'static str {
    if model.provider == Provider::Anthropic { "anthropic_messages" } else { "chat_completions" }
}

/// One of `fallback_providers`.
fn fallback(model: &Model) -> Value {
    json!({
        "provider": provider(model),
        "model": model.name,
        "api_mode": api_mode(model),
        "base_url": address(&model.base_url),
        "api_key": hidden(model.api_key.as_ref()),
        "timeout": in_seconds(model.timeout),
        "max_tokens": model.max_tokens,
        "prices": model.prices.map(|prices| json!({
            "input": in_money(prices.input_micros),
            "output": in_money(prices.output_micros),
        })),
    })
}

/// The keys of one bot.
fn of_telegram(telegram: Option<&Telegram>) -> Vec<(&'static str, Value)> {
    let home_channel = telegram.and_then(|telegram| telegram.home_channel.as_ref());
    let reply_to_mode = match telegram.map(|telegram| telegram.reply_to_mode).unwrap_or_default() {
        ReplyToMode::First => "first",
        ReplyToMode::All => "all",
        ReplyToMode::Off => "off",
    };
    let groups = telegram.map(|telegram| telegram.groups.clone()).unwrap_or_default();
    let allowed = telegram.map(|telegram| telegram.allowed.clone()).unwrap_or_default();
    let posted = telegram.and_then(|telegram| telegram.webhook.as_ref());
    let patterns: Vec<&str> = groups.mention_patterns.iter().map(|pattern| pattern.as_str()).collect();
    vec![
        ("platforms.telegram.enabled", json!(telegram.is_some())),
        ("platforms.telegram.token", hidden(telegram.map(|telegram| &telegram.token))),
        ("platforms.telegram.allow_from", json!(allowed.users)),
        ("platforms.telegram.allow_all_users", json!(allowed.all)),
        ("platforms.telegram.group_allow_from", json!(allowed.group_users)),
        ("platforms.telegram.group_allowed_chats", json!(allowed.group_chats)),
        ("platforms.telegram.allowed_chats", json!(groups.allowed_chats)),
        ("platforms.telegram.allowed_topics", json!(groups.allowed_topics)),
        ("platforms.telegram.ignored_threads", json!(groups.ignored_threads)),
        ("platforms.telegram.require_mention", json!(groups.require_mention)),
        ("platforms.telegram.free_response_chats", json!(groups.free_response_chats)),
        ("platforms.telegram.free_response_topics", json!(groups.free_response_topics)),
        ("platforms.telegram.mention_patterns", json!(patterns)),
        ("platforms.telegram.exclusive_bot_mentions", json!(groups.exclusive_bot_mentions)),
        (
            "platforms.telegram.allow_bots",
            json!(match groups.allow_bots {
                AllowBots::None => "none",
                AllowBots::Mentions => "mentions",
                AllowBots::All => "all",
            }),
        ),
        ("platforms.telegram.allow_admin_from", json!(allowed.admins)),
        ("platforms.telegram.group_allow_admin_from", json!(allowed.group_admins)),
        ("platforms.telegram.user_allowed_commands", json!(allowed.user_commands)),
        ("platforms.telegram.group_user_allowed_commands", json!(allowed.group_user_commands)),
        ("platforms.telegram.home_channel.chat_id", json!(home_channel.map(|chat| &chat.chat_id))),
        ("platforms.telegram.home_channel.thread_id", json!(home_channel.and_then(|chat| chat.thread_id.as_ref()))),
        ("platforms.telegram.reply_to_mode", json!(reply_to_mode)),
        ("platforms.telegram.typing_indicator", json!(telegram.is_none_or(|telegram| telegram.typing))),
        ("platforms.telegram.proxy", hidden(telegram.and_then(|telegram| telegram.proxy.as_ref()))),
        ("platforms.telegram.extra.webhook_url", json!(posted.map(|webhook| address(&webhook.url)))),
        ("platforms.telegram.extra.webhook_host", json!(posted.map_or("127.0.0.1", |webhook| webhook.host.as_str()))),
        ("platforms.telegram.extra.webhook_port", json!(posted.map_or(8443, |webhook| webhook.port))),
        ("platforms.telegram.extra.webhook_secret", hidden(posted.map(|webhook| &webhook.secret))),
        ("platforms.telegram.extra.command_menu", json!(telegram.is_none_or(|telegram| telegram.command_menu))),
        (
            "platforms.telegram.extra.base_url",
            json!(telegram.map_or(TELEGRAM_API.to_owned(), |telegram| address(&telegram.base_url))),
        ),
    ]
}

fn shown_route(route: &Route) -> Value {
    json!({
        "enabled": route.enabled,
        "description": route.description,
        "scheme": route.scheme.name(),
        "secret": if route.secrets.is_empty() { Value::Null } else { REDACTED.into() },
        "insecure": route.insecure,
        "events": route.events,
        "prompt": route.prompt,
        "deliver": shown_target(&route.deliver),
        "deliver_only": route.deliver_only,
        "rate_limit": route.rate_limit,
        "tools": route.tools,
    })
}

fn shown_target(target: &Deliver) -> Value {
    match target {
        Deliver::Many(targets) => targets.iter().map(shown_target).collect(),
        one => one.to_string().into(),
    }
}
