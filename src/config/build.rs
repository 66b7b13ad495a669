//! From settings to the effective [`Config`]: defaults, ranges, and what values mean together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hookgate_adapters::{AllowBots, ChatTarget, GroupRules, Platform, Proxies, WebhookOptions};
use jiff::tz::TimeZone;
use secrecy::{ExposeSecret, SecretString};

use super::agent;
use super::env_file::Assignment;
use super::settings::{Settings, Wrong, shown, text, whole};
use super::yaml::{Node, Value};
use super::{
    Allowed, Config, Console, Limits, ReplyToMode, Roles, Severity, Storage, Telegram, TelegramServer, Webhook,
};
use crate::session::{ResetMode, ResetPolicy, Sharing};
use crate::store::{StoreUrl, UncertainSends};
use crate::webhook::route::{Route, RouteDefaults, parse_route};

pub(super) const DAY: f64 = 86_400.0;
pub(super) const TELEGRAM_API: &str = "https://api.telegram.org";
/// Shorter values are not redacted: they would blank out ordinary words.
const SHORTEST_SECRET: usize = 6;
/// Keys of a route whose values are text, whatever they look like.
const ROUTE_TEXTS: &[&str] = &[
    "secret",
    "prompt",
    "description",
    "deliver",
    "deliver_fallback",
    "chat_id",
    "thread_id",
    "message_thread_id",
    "events",
    "scheme",
    "session",
    "header",
    "prefix",
    "signed",
    "tools",
];

/// Builds the configuration. It is only to be used when no problem is an error: defaults stand in for what is wrong.
pub(super) fn build(settings: &mut Settings, home: PathBuf, assignments: &[Assignment], proxies: Proxies) -> Config {
    let mut secrets = Secrets::default();
    for assignment in assignments {
        let name = assignment.name.to_ascii_uppercase();
        if ["TOKEN", "SECRET", "KEY", "PASSWORD"].iter().any(|end| name.ends_with(end)) {
            if !assignment.value.contains("${") {
                secrets.add(&assignment.value);
            }
            secrets.add(settings.variable(&assignment.name).unwrap_or_default());
        }
    }
    [&proxies.http, &proxies.https, &proxies.all].into_iter().for_each(|proxy| secrets.add_proxy(proxy.as_ref()));
    let telegram_server = telegram_server(settings, &mut secrets);
    let telegram = telegrams(settings, telegram_server.clone(), &mut secrets);
    let model = super::model::model(settings, &home, proxies.clone(), &mut secrets);
    let agent = agent::agent(settings);
    let config = Config {
        storage: storage(settings, &mut secrets),
        console: console(settings, &mut secrets),
        limits: Limits {
            turns: settings.number("limits.turns", 32, 1, 4096),
            waiting_per_chat: settings.number("limits.waiting_per_chat", 200, 1, 1_000_000),
            failed_signatures_per_minute: settings.number("limits.failed_signatures_per_minute", 300, 1, 1_000_000),
            hook_processes: settings.number("limits.hook_processes", 16, 1, 1024),
            tool_output_bytes: settings.number("limits.tool_output_bytes", 50_000, 1_000, 100_000_000),
        },
        drain_timeout: settings.seconds("drain_timeout", 20, 0.0, DAY),
        max_update_age: settings.seconds("max_update_age", 86_400, 0.0, 365.0 * DAY),
        uncertain_sends: settings.choice(
            "uncertain_sends",
            UncertainSends::Resend,
            &[("resend", UncertainSends::Resend), ("hold", UncertainSends::Hold)],
        ),
        edits: settings.choice("edits", false, &[("ignore", false), ("turn", true)]),
        reset: reset_policy(settings),
        tells_of_reset: settings.boolean("session_reset.notify", false),
        silent_of_reset: settings.list("session_reset.notify_exclude_platforms"),
        sharing: Sharing {
            group_sessions_per_user: settings
                .boolean("group_sessions_per_user", Sharing::default().group_sessions_per_user),
            thread_sessions_per_user: settings
                .boolean("thread_sessions_per_user", Sharing::default().thread_sessions_per_user),
        },
        toolsets: agent::toolsets(settings, &agent.disabled_tools),
        agent,
        approvals: agent::approvals(settings),
        command_allowlist: settings.texts("command_allowlist"),
        terminal: agent::terminal(settings, &home),
        files: agent::files(settings),
        web: agent::web(settings, &mut secrets),
        tool_env: agent::passed(settings, "secrets.pass_to_tools", &mut secrets),
        hook_env: agent::passed(settings, "secrets.pass_to_hooks", &mut secrets),
        budgets: agent::budgets(settings, model.prices.is_some()),
        model,
        webhook: webhook(settings, &telegram, &mut secrets),
        telegram,
        telegram_server,
        proxies,
        allowed: Allowed {
            users: settings.list("allowed_users"),
            all: settings.boolean("allow_all_users", false),
            ..Allowed::default()
        },
        roles: Roles {
            owner: members(settings, "roles.owner"),
            admin: members(settings, "roles.admin"),
            guest: members(settings, "roles.guest"),
        },
        secrets: Vec::new(),
        home,
    };
    Config { secrets: secrets.finish(), ..config }
}

/// Secret values as they are met.
#[derive(Default)]
pub(super) struct Secrets(BTreeSet<String>);

impl Secrets {
    fn add(&mut self, value: &str) {
        let value = value.trim();
        if value.chars().count() >= SHORTEST_SECRET && value != "INSECURE_NO_AUTH" {
            self.0.insert(value.to_owned());
        }
    }

    /// The password in an address.
    pub(super) fn add_address(&mut self, address: Option<&String>) {
        let url = address.and_then(|address| reqwest::Url::parse(address).ok());
        self.add(url.as_ref().and_then(reqwest::Url::password).unwrap_or_default());
    }

    pub(super) fn add_secret(&mut self, value: Option<&SecretString>) {
        if let Some(value) = value {
            self.add(value.expose_secret());
        }
    }

    /// A proxy's password, and its address as a whole where it holds one.
    fn add_proxy(&mut self, proxy: Option<&SecretString>) {
        let url = proxy.and_then(|proxy| hookgate_adapters::proxy_address(proxy.expose_secret()).ok());
        if let Some(password) = url.as_ref().and_then(reqwest::Url::password) {
            self.add(password);
            self.add_secret(proxy);
        }
    }

    /// Longest first, so that a secret that contains another is redacted whole.
    fn finish(self) -> Vec<SecretString> {
        let mut values: Vec<String> = self.0.into_iter().collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.into_iter().map(SecretString::from).collect()
    }
}

fn storage(settings: &mut Settings, secrets: &mut Secrets) -> Storage {
    let url = settings.read("storage.url", |node| {
        let url = StoreUrl::from(text(node)?);
        match url.check() {
            Ok(()) => Ok(url),
            Err(unfit) => Err(Wrong::new(unfit.message).suggest(unfit.suggestion)),
        }
    });
    let url = url.unwrap_or_else(|| "sqlite:hookgate.db".into());
    url.secrets().iter().for_each(|secret| secrets.add(secret));
    Storage {
        url,
        retention_days: settings.number("storage.retention_days", 30, 1, 36_500),
        max_gb: settings.number("storage.max_gb", 5, 1, 1_000_000),
    }
}

fn console(settings: &mut Settings, secrets: &mut Secrets) -> Console {
    let token = settings.secret("console.token").filter(|token| !token.expose_secret().is_empty());
    if token.as_ref().is_some_and(is_placeholder) {
        let suggestion = "remove the key: hookgate makes a token at its first start and keeps it in console.json";
        settings.tell_about(Severity::Error, "console.token", "this is a placeholder, not a token", suggestion);
    }
    secrets.add_secret(token.as_ref());
    Console {
        enabled: settings.boolean("console.enabled", true),
        host: host(settings, "console.host"),
        port: settings.number("console.port", 8642, 0, u16::MAX),
        token,
    }
}

/// The address to listen on. Nothing and null mean loopback; `""` means all interfaces, as in the reference.
fn host(settings: &mut Settings, path: &'static str) -> String {
    let host = settings.read(path, |node| {
        let host = text(node)?;
        let host = host.trim().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.contains(|c: char| c.is_whitespace() || c == '/')
            || host.contains(':') && host.parse::<IpAddr>().is_err()
        {
            return Err(Wrong::new(format!("{} is neither an address nor a host name", shown(node)))
                .suggest("write the port under `port`"));
        }
        Ok(host)
    });
    match host.as_deref() {
        None => "127.0.0.1".to_owned(),
        Some("") => {
            let message = "an empty host listens on all interfaces";
            settings.tell_about(Severity::Warning, path, message, "write `0.0.0.0` if that is meant, else `127.0.0.1`");
            "0.0.0.0".to_owned()
        }
        Some(host) => host.to_owned(),
    }
}

/// Whether only this machine can reach a listener on `host`.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim().to_ascii_lowercase();
    matches!(host.as_str(), "localhost" | "ip6-localhost" | "ip6-loopback")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// An `http` or `https` address without a slash at its end.
pub(super) fn web_address(node: &Node) -> Result<String, Wrong> {
    let given = text(node)?;
    let address = given.trim().trim_end_matches('/').to_owned();
    let fits = reqwest::Url::parse(&address)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
    if fits {
        Ok(address)
    } else {
        Err(Wrong::new(format!("{} is not an http or https address", shown(node)))
            .suggest("write it as `https://host` or `http://host:port`"))
    }
}

/// Whether a secret was plainly never filled in.
pub(super) fn is_placeholder(secret: &SecretString) -> bool {
    let value = secret.expose_secret().trim().to_ascii_lowercase();
    let words: Vec<&str> = value.split(['-', '_', ' ']).collect();
    let is_one_letter = value.len() >= 3
        && matches!(value.as_bytes()[0], b'x' | b'.' | b'*')
        && value.bytes().all(|byte| byte == value.as_bytes()[0]);
    value.is_empty()
        || value.starts_with('<') && value.ends_with('>')
        || is_one_letter
        || words[0] == "your" && words.len() > 1
        || matches!(words.as_slice(), ["replace" | "insert" | "paste" | "put" | "enter", _, ..])
        || matches!(
            value.as_str(),
            "changeme"
                | "change-me"
                | "change_me"
                | "change me"
                | "placeholder"
                | "replaceme"
                | "todo"
                | "none"
                | "null"
        )
}

/// The bots by their accounts: that of `platforms.telegram` has no name.
fn telegrams(settings: &mut Settings, server: TelegramServer, secrets: &mut Secrets) -> BTreeMap<String, Telegram> {
    let mut bots: BTreeMap<String, Telegram> = BTreeMap::new();
    bots.extend(telegram(settings, "", server, secrets).map(|bot| (String::new(), bot)));
    for name in settings.accounts() {
        let Some((bot, enabled)) = settings.in_account(&name, |settings| {
            let server = telegram_server(settings, secrets);
            let bot = telegram(settings, &name, server, secrets);
            (bot, settings.read("platforms.telegram.enabled", super::settings::boolean))
        }) else {
            continue;
        };
        let Some(bot) = bot else {
            if enabled != Some(false) && !settings.problems.iter().any(|one| one.severity == Severity::Error) {
                let get = "get a token from @BotFather and write it as `token: ${NAME}`, with NAME in .env";
                settings.tell_about_account(&name, "the account has no bot token", get);
            }
            continue;
        };
        let same = |(account, other): (&String, &Telegram)| {
            let is = |same: bool, what: &str| same.then(|| (account.clone(), what.to_owned()));
            let listens = |bot: &Telegram| bot.webhook.as_ref().map(|webhook| (webhook.host.clone(), webhook.port));
            is(other.token.expose_secret() == bot.token.expose_secret(), "the bot token")
                .or(is(listens(other).is_some() && listens(other) == listens(&bot), "the webhook's host and port"))
        };
        if let Some((other, what)) = bots.iter().find_map(same) {
            let other = Platform::Telegram.with_account(&other);
            settings.tell_about_account(
                &name,
                format!("{what} is that of {other} too"),
                "give each account its own; Telegram serves one listener per bot",
            );
        }
        bots.insert(name, bot);
    }
    bots
}

/// Where a bot is asked for.
fn telegram_server(settings: &mut Settings, secrets: &mut Secrets) -> TelegramServer {
    let base_url = settings.read("platforms.telegram.extra.base_url", |node| {
        let address = web_address(node)?;
        if address.contains(['?', '#']) {
            return Err(Wrong::new("the address of a Bot API server takes no `?` and no `#`"));
        }
        Ok(address.strip_suffix("/bot").unwrap_or(&address).trim_end_matches('/').to_owned())
    });
    secrets.add_address(base_url.as_ref());
    let proxy = proxy(settings, secrets);
    TelegramServer { base_url: base_url.unwrap_or_else(|| TELEGRAM_API.to_owned()), proxy }
}

fn telegram(settings: &mut Settings, account: &str, server: TelegramServer, secrets: &mut Secrets) -> Option<Telegram> {
    let home_channel = home_channel(settings, account);
    let enabled = settings.read("platforms.telegram.enabled", super::settings::boolean);
    let token = settings.secret("platforms.telegram.token");
    secrets.add_secret(token.as_ref());
    let allowed = Allowed {
        users: settings.list("platforms.telegram.allow_from"),
        all: settings.boolean("platforms.telegram.allow_all_users", false),
        group_users: settings.list("platforms.telegram.group_allow_from"),
        group_chats: settings.list("platforms.telegram.group_allowed_chats"),
        admins: settings.list("platforms.telegram.allow_admin_from"),
        group_admins: settings.list("platforms.telegram.group_allow_admin_from"),
        user_commands: settings.list("platforms.telegram.user_allowed_commands"),
        group_user_commands: settings.list("platforms.telegram.group_user_allowed_commands"),
    };
    let groups = group_rules(settings);
    let webhook = telegram_webhook(settings, secrets);
    let command_menu = settings.boolean("platforms.telegram.extra.command_menu", true);
    let reply_to_mode = settings.choice(
        "platforms.telegram.reply_to_mode",
        ReplyToMode::First,
        &[
            ("first", ReplyToMode::First),
            ("all", ReplyToMode::All),
            ("off", ReplyToMode::Off),
            ("false", ReplyToMode::Off),
            ("no", ReplyToMode::Off),
        ],
    );
    let typing = settings.boolean("platforms.telegram.typing_indicator", true);
    if enabled == Some(false) {
        return None;
    }
    let where_to_get = "get a token from @BotFather and set TELEGRAM_BOT_TOKEN in .env";
    let Some(token) = token else {
        if enabled == Some(true) {
            let message = "Telegram is enabled but has no token, so it stays off";
            settings.tell_about(Severity::Warning, "platforms.telegram.enabled", message, where_to_get);
        }
        return None;
    };
    let path = "platforms.telegram.token";
    if is_placeholder(&token) {
        let message = "the bot token is empty or a placeholder, so Telegram stays off";
        settings.tell_about(Severity::Warning, path, message, where_to_get);
        return None;
    }
    if token.expose_secret().contains(|c: char| c.is_whitespace() || c.is_control() || "/?#%".contains(c)) {
        let message = "the bot token holds characters that no token has";
        settings.tell_about(Severity::Error, path, message, "copy it again from @BotFather: digits, `:`, letters");
    }
    Some(Telegram {
        token,
        base_url: server.base_url,
        allowed,
        home_channel,
        reply_to_mode,
        typing,
        proxy: server.proxy,
        webhook,
        command_menu,
        groups,
    })
}

/// The proxy of Telegram's calls. Its password is a secret, so the address is never shown.
fn proxy(settings: &mut Settings, secrets: &mut Secrets) -> Option<SecretString> {
    let proxy = settings.secret("platforms.telegram.proxy").filter(|proxy| !proxy.expose_secret().is_empty())?;
    let url = reqwest::Url::parse(proxy.expose_secret());
    let url = url.ok().filter(|url| matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") && url.has_host());
    match url {
        Some(url) => secrets.add(url.password().unwrap_or_default()),
        None => settings.tell_about(
            Severity::Error,
            "platforms.telegram.proxy",
            "this is not the address of a proxy",
            "write `http://host:port`, `https://…`, `socks5://…` or `socks5h://…`, with `user:password@` if it wants them",
        ),
    }
    secrets.add_secret(Some(&proxy));
    Some(proxy)
}

/// Where Telegram posts updates. Without a secret anybody could post as anybody.
fn telegram_webhook(settings: &mut Settings, secrets: &mut Secrets) -> Option<WebhookOptions> {
    let path = "platforms.telegram.extra.webhook_url";
    let url = settings.read(path, |node| match text(node)?.trim() {
        "" => Ok(None),
        _ => web_address(node).map(Some),
    });
    let host = host(settings, "platforms.telegram.extra.webhook_host");
    let port = settings.number("platforms.telegram.extra.webhook_port", 8443, 1, u16::MAX);
    let secret = settings.secret("platforms.telegram.extra.webhook_secret");
    secrets.add_secret(secret.as_ref());
    let url = url.flatten()?;
    secrets.add_address(Some(&url));
    let is_usable = |secret: &&SecretString| {
        let text = secret.expose_secret();
        let fits = (8..=256).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        fits && !is_placeholder(secret)
    };
    let Some(secret) = secret.as_ref().filter(is_usable).cloned() else {
        let message = "the webhook needs TELEGRAM_WEBHOOK_SECRET: 8 to 256 letters, digits, `_` and `-`";
        settings.tell_about(Severity::Error, path, message, "make one with `openssl rand -hex 32`");
        return None;
    };
    Some(WebhookOptions { url, host, port, secret })
}

fn group_rules(settings: &mut Settings) -> GroupRules {
    GroupRules {
        allowed_chats: settings.list("platforms.telegram.allowed_chats"),
        allowed_topics: settings.list("platforms.telegram.allowed_topics"),
        ignored_threads: settings.list("platforms.telegram.ignored_threads"),
        require_mention: settings.boolean("platforms.telegram.require_mention", false),
        free_response_chats: settings.list("platforms.telegram.free_response_chats"),
        free_response_topics: settings.list("platforms.telegram.free_response_topics"),
        exclusive_bot_mentions: settings.boolean("platforms.telegram.exclusive_bot_mentions", true),
        mention_patterns: settings.patterns("platforms.telegram.mention_patterns"),
        allow_bots: settings.choice(
            "platforms.telegram.allow_bots",
            AllowBots::None,
            &[
                ("none", AllowBots::None),
                ("mentions", AllowBots::Mentions),
                ("all", AllowBots::All),
                ("false", AllowBots::None),
                ("true", AllowBots::All),
            ],
        ),
    }
}

/// `session_reset`. Numbers out of range are warnings, as in the reference.
fn reset_policy(settings: &mut Settings) -> ResetPolicy {
    let mode = settings.choice(
        "session_reset.mode",
        ResetMode::None,
        &[("none", ResetMode::None), ("idle", ResetMode::Idle), ("daily", ResetMode::Daily), ("both", ResetMode::Both)],
    );
    let mut number = |path: &'static str, default: i64, range: std::ops::RangeInclusive<i64>| {
        let given = settings.read(path, |node| Ok(i64::try_from(whole(node)?).unwrap_or(i64::MAX)))?;
        if !range.contains(&given) {
            let message = format!("{given} is not from {} to {}; {default} counts", range.start(), range.end());
            settings.tell_about(Severity::Warning, path, message, "correct the number");
            return Some(default);
        }
        Some(given)
    };
    let hour = number("session_reset.at_hour", 4, 0..=23).unwrap_or(4);
    let minutes = number("session_reset.idle_minutes", 1_440, 1..=525_600).unwrap_or(1_440);
    let zone = settings.read("timezone", |node| match text(node)?.trim() {
        "" => Ok(TimeZone::system()),
        name => TimeZone::get(name).map_err(|_| {
            Wrong::new(format!("{} is not a time zone of this machine", shown(node)))
                .suggest("write a name such as `Europe/Berlin`; the zones are in the package tzdata")
        }),
    });
    ResetPolicy {
        mode,
        idle: Duration::from_secs(minutes.unsigned_abs() * 60),
        hour: i8::try_from(hour).unwrap_or(4),
        zone: zone.unwrap_or_else(TimeZone::system),
    }
}

/// Who has a role: `telegram:7`.
fn members(settings: &mut Settings, path: &'static str) -> Vec<String> {
    settings.list_of(path, |item| match item.split_once(':') {
        Some((platform, id)) if platform.parse::<Platform>().is_ok() && !id.trim().is_empty() => Ok(item.to_owned()),
        _ => Err(Wrong::new("a member of a role is a platform and a user id")
            .suggest("write each as `telegram:7`, in quotes")),
    })
}

fn home_channel(settings: &mut Settings, account: &str) -> Option<ChatTarget> {
    let chat_id = settings.read("platforms.telegram.home_channel.chat_id", |node| {
        let chat = text(node)?;
        let chat = chat.trim();
        let digits = chat.strip_prefix('-').unwrap_or(chat);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = chat.len() > 1 && chat.starts_with('@');
        if is_number || is_name || chat.is_empty() {
            return Ok(chat.to_owned());
        }
        Err(Wrong::new(format!("{} is not a Telegram chat", shown(node)))
            .suggest("write its number, such as `-1001234567890`, or `@name`; the thread goes under `thread_id`"))
    });
    let thread_id = settings.read("platforms.telegram.home_channel.thread_id", |node| {
        let thread = text(node)?;
        let thread = thread.trim();
        if thread.bytes().all(|byte| byte.is_ascii_digit()) {
            Ok(thread.to_owned())
        } else {
            Err(Wrong::new(format!("{} is not the number of a topic", shown(node))))
        }
    });
    let not_empty = |id: Option<String>| id.filter(|id| !id.is_empty());
    Some(ChatTarget {
        platform: Platform::Telegram,
        account: account.to_owned(),
        chat_id: not_empty(chat_id)?,
        thread_id: not_empty(thread_id),
    })
}

fn webhook(settings: &mut Settings, telegram: &BTreeMap<String, Telegram>, secrets: &mut Secrets) -> Webhook {
    let host = host(settings, "platforms.webhook.extra.host");
    let secret = settings.secret("platforms.webhook.extra.secret").filter(|secret| !secret.expose_secret().is_empty());
    secrets.add_secret(secret.as_ref());
    let route_defaults = RouteDefaults {
        secret,
        loopback: is_loopback(&host),
        telegram: telegram.iter().map(|(account, bot)| (account.clone(), bot.home_channel.clone())).collect(),
        public_url: settings.read("platforms.webhook.extra.public_url", web_address),
    };
    secrets.add_address(route_defaults.public_url.as_ref());
    let routes = routes(settings, &route_defaults, secrets);
    Webhook {
        enabled: settings.boolean("platforms.webhook.enabled", true),
        host,
        port: settings.number("platforms.webhook.extra.port", 8644, 0, u16::MAX),
        route_defaults,
        routes,
        rate_limit: settings.number("platforms.webhook.extra.rate_limit", 30, 1, 1_000_000),
        max_body_bytes: settings.number("platforms.webhook.extra.max_body_bytes", 1 << 20, 1, 1 << 30),
        deliver_wait: settings.seconds("platforms.webhook.extra.deliver_wait", 5, 0.0, 300.0),
        trusted_proxies: settings.list_of("platforms.webhook.extra.trusted_proxies", |item| {
            item.parse::<IpAddr>().map_err(|_| {
                Wrong::new("a proxy is an exact IP address")
                    .suggest("write each as `10.0.0.2`, not as a name or a range")
            })
        }),
    }
}

fn routes(settings: &mut Settings, defaults: &RouteDefaults, secrets: &mut Secrets) -> BTreeMap<String, Route> {
    let path = "platforms.webhook.extra.routes";
    let nodes = settings.read(path, |node| match &node.value {
        Value::Map(entries) => Ok(entries.clone()),
        Value::List(items) if items.is_empty() => Ok(Vec::new()),
        _ => Err(Wrong::new(format!("routes are wanted, not {}", node.kind()))
            .suggest("write `routes:` and below it, indented, `name:` with the route's keys")),
    });
    let written = settings.winner(path).map_or_else(|| path.to_owned(), |found| found.written.clone());
    let mut routes = BTreeMap::new();
    for entry in nodes.unwrap_or_default() {
        let value = entry.value.to_json(&|key| ROUTE_TEXTS.contains(&key));
        match value.get("secret") {
            Some(serde_json::Value::String(secret)) => secrets.add(secret),
            Some(serde_json::Value::Array(all)) => {
                all.iter().filter_map(|one| one.as_str()).for_each(|one| secrets.add(one))
            }
            _ => {}
        }
        let problems = match parse_route(&entry.key, &value, defaults) {
            Ok((route, warnings)) => {
                route.secrets.iter().for_each(|secret| secrets.add_secret(Some(secret)));
                routes.insert(entry.key.clone(), route);
                warnings
            }
            Err(problems) => problems,
        };
        for problem in problems {
            let place = entry.value.place_of(&problem.path).unwrap_or(entry.key_place);
            let dot = if problem.path.is_empty() { "" } else { "." };
            let path = format!("{written}.{}{dot}{}", entry.key, problem.path);
            let severity = if problem.warning { Severity::Warning } else { Severity::Error };
            settings.tell_in_file(severity, place, &path, problem.message, problem.suggestion);
        }
    }
    routes
}

/// Seconds for `config show`: whole ones as whole numbers.
pub(super) fn in_seconds(duration: Duration) -> serde_json::Value {
    if duration.subsec_nanos() == 0 { duration.as_secs().into() } else { duration.as_secs_f64().into() }
}
