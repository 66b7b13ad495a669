//! The keys: which ones take effect, under which other names they are known, and which ones are known but do nothing yet.
//!
//! Paths are canonical: what stands under `gateway:` or in a top-level block of a platform is looked up as if it stood
//! at the top level or under `platforms:`.

/// What an unresolved `${NAME}` in a key's value means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A warning; the text stays.
    Setting,
    /// An error: the value names a place to reach or to listen on.
    Address,
    /// An error; and the value is never shown.
    Secret,
    /// A mapping of its own kind; each key in it is judged by its name.
    Routes,
    /// Names with the keys of the platform below each.
    Accounts,
    /// A list of mappings of their own kind; each key in one is judged by its name.
    Models,
}

/// A key that takes effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) path: &'static str,
    pub(crate) holds: Holds,
}

const fn key(path: &'static str) -> Key {
    Key { path, holds: Holds::Setting }
}

const fn address(path: &'static str) -> Key {
    Key { path, holds: Holds::Address }
}

const fn secret(path: &'static str) -> Key {
    Key { path, holds: Holds::Secret }
}

/// The bots besides the one of `platforms.telegram` itself.
pub(crate) const ACCOUNTS: &str = "platforms.telegram.accounts";

/// What belongs to one bot and is never taken over from `platforms.telegram`.
pub(crate) const OF_ONE_ACCOUNT: &[&str] = &[
    "platforms.telegram.enabled",
    "platforms.telegram.token",
    "platforms.telegram.home_channel.chat_id",
    "platforms.telegram.home_channel.thread_id",
    "platforms.telegram.extra.webhook_url",
    "platforms.telegram.extra.webhook_port",
    "platforms.telegram.extra.webhook_secret",
    ACCOUNTS,
];

/// Every key that takes effect, in the order of `config.example.yaml`.
pub(crate) const KEYS: &[Key] = &[
    address("storage.url"),
    key("storage.retention_days"),
    key("storage.max_gb"),
    key("console.enabled"),
    address("console.host"),
    key("console.port"),
    secret("console.token"),
    key("model.default"),
    key("model.provider"),
    key("model.api_mode"),
    address("model.base_url"),
    secret("model.api_key"),
    key("model.system_prompt"),
    key("model.timeout"),
    key("model.max_tokens"),
    key("model.context_length"),
    address("model.record"),
    address("model.replay"),
    key("model.prices.input"),
    key("model.prices.output"),
    Key { path: "fallback_providers", holds: Holds::Models },
    key("allowed_users"),
    key("allow_all_users"),
    key("roles.owner"),
    key("roles.admin"),
    key("roles.guest"),
    key("platforms.telegram.enabled"),
    secret("platforms.telegram.token"),
    key("platforms.telegram.allow_from"),
    key("platforms.telegram.allow_all_users"),
    key("platforms.telegram.group_allow_from"),
    key("platforms.telegram.group_allowed_chats"),
    key("platforms.telegram.allowed_chats"),
    key("platforms.telegram.allowed_topics"),
    key("platforms.telegram.ignored_threads"),
    key("platforms.telegram.require_mention"),
    key("platforms.telegram.free_response_chats"),
    key("platforms.telegram.free_response_topics"),
    key("platforms.telegram.mention_patterns"),
    key("platforms.telegram.exclusive_bot_mentions"),
    key("platforms.telegram.allow_bots"),
    key("platforms.telegram.allow_admin_from"),
    key("platforms.telegram.group_allow_admin_from"),
    key("platforms.telegram.user_allowed_commands"),
    key("platforms.telegram.group_user_allowed_commands"),
    address("platforms.telegram.home_channel.chat_id"),
    address("platforms.telegram.home_channel.thread_id"),
    key("platforms.telegram.reply_to_mode"),
    key("platforms.telegram.typing_indicator"),
    secret("platforms.telegram.proxy"),
    address("platforms.telegram.extra.webhook_url"),
    address("platforms.telegram.extra.webhook_host"),
    key("platforms.telegram.extra.webhook_port"),
    secret("platforms.telegram.extra.webhook_secret"),
    key("platforms.telegram.extra.command_menu"),
    address("platforms.telegram.extra.base_url"),
    Key { path: ACCOUNTS, holds: Holds::Accounts },
    key("platforms.webhook.enabled"),
    address("platforms.webhook.extra.host"),
    key("platforms.webhook.extra.port"),
    secret("platforms.webhook.extra.secret"),
    key("platforms.webhook.extra.rate_limit"),
    key("platforms.webhook.extra.max_body_bytes"),
    key("platforms.webhook.extra.deliver_wait"),
    address("platforms.webhook.extra.trusted_proxies"),
    address("platforms.webhook.extra.public_url"),
    Key { path: "platforms.webhook.extra.routes", holds: Holds::Routes },
    key("drain_timeout"),
    key("max_update_age"),
    key("edits"),
    key("uncertain_sends"),
    key("session_reset.mode"),
    key("session_reset.at_hour"),
    key("session_reset.idle_minutes"),
    key("session_reset.notify"),
    key("session_reset.notify_exclude_platforms"),
    key("timezone"),
    key("group_sessions_per_user"),
    key("thread_sessions_per_user"),
    key("agent.max_turns"),
    key("agent.max_verify_nudges"),
    key("agent.disabled_toolsets"),
    key("platform_toolsets"),
    key("approvals.mode"),
    key("approvals.timeout"),
    key("approvals.on_timeout"),
    key("approvals.deny"),
    key("approvals.destructive_slash_confirm"),
    key("command_allowlist"),
    address("terminal.cwd"),
    key("terminal.timeout"),
    key("terminal.max_timeout"),
    address("files.roots"),
    address("files.deny"),
    address("web.search_url"),
    secret("web.search_api_key"),
    address("web.allow_private"),
    key("secrets.pass_to_tools"),
    key("secrets.pass_to_hooks"),
    key("budgets.turn.tokens"),
    key("budgets.turn.tool_calls"),
    key("budgets.turn.cost"),
    key("budgets.user.tokens"),
    key("budgets.user.tool_calls"),
    key("budgets.user.cost"),
    key("budgets.route.tokens"),
    key("budgets.route.tool_calls"),
    key("budgets.route.cost"),
    key("limits.turns"),
    key("limits.waiting_per_chat"),
    key("limits.failed_signatures_per_minute"),
    key("limits.hook_processes"),
    key("limits.tool_output_bytes"),
];

/// Other spellings, and the key each one means. The first is what the reference writes.
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("agent.restart_drain_timeout", "drain_timeout"),
    ("fallback_model", "fallback_providers"),
    ("model.model", "model.default"),
    ("model.name", "model.default"),
    ("platforms.telegram.allowed_users", "platforms.telegram.allow_from"),
    ("platforms.telegram.extra.allow_from", "platforms.telegram.allow_from"),
    ("platforms.telegram.extra.group_allow_from", "platforms.telegram.group_allow_from"),
    ("platforms.telegram.extra.group_allowed_chats", "platforms.telegram.group_allowed_chats"),
    ("platforms.telegram.extra.allowed_chats", "platforms.telegram.allowed_chats"),
    ("platforms.telegram.extra.allowed_topics", "platforms.telegram.allowed_topics"),
    ("platforms.telegram.extra.ignored_threads", "platforms.telegram.ignored_threads"),
    ("platforms.telegram.extra.require_mention", "platforms.telegram.require_mention"),
    ("platforms.telegram.extra.free_response_chats", "platforms.telegram.free_response_chats"),
    ("platforms.telegram.extra.free_response_topics", "platforms.telegram.free_response_topics"),
    ("platforms.telegram.extra.mention_patterns", "platforms.telegram.mention_patterns"),
    ("platforms.telegram.extra.exclusive_bot_mentions", "platforms.telegram.exclusive_bot_mentions"),
    ("platforms.telegram.extra.allow_bots", "platforms.telegram.allow_bots"),
    ("platforms.telegram.extra.allow_admin_from", "platforms.telegram.allow_admin_from"),
    ("platforms.telegram.extra.group_allow_admin_from", "platforms.telegram.group_allow_admin_from"),
    ("platforms.telegram.extra.user_allowed_commands", "platforms.telegram.user_allowed_commands"),
    ("platforms.telegram.extra.group_user_allowed_commands", "platforms.telegram.group_user_allowed_commands"),
    ("platforms.telegram.group_allowed_users", "platforms.telegram.group_allow_from"),
    ("platforms.telegram.free_response_channels", "platforms.telegram.free_response_chats"),
    ("platforms.telegram.extra.free_response_channels", "platforms.telegram.free_response_chats"),
    ("platforms.telegram.proxy_url", "platforms.telegram.proxy"),
    ("platforms.telegram.extra.proxy", "platforms.telegram.proxy"),
    ("platforms.telegram.extra.proxy_url", "platforms.telegram.proxy"),
    ("platforms.telegram.webhook_url", "platforms.telegram.extra.webhook_url"),
    ("platforms.telegram.webhook_port", "platforms.telegram.extra.webhook_port"),
    ("platforms.telegram.webhook_secret", "platforms.telegram.extra.webhook_secret"),
    ("platforms.telegram.bot_token", "platforms.telegram.token"),
    ("tool_output.max_bytes", "limits.tool_output_bytes"),
];

/// Accepted because existing files hold them; they only describe.
pub(crate) const DESCRIBE: &[&str] = &[
    "platforms.telegram.home_channel.name",
    "platforms.telegram.home_channel.platform",
    "platforms.webhook.extra.description",
];

/// Sections that may be a single value, and the key that value is for.
pub(crate) const SHORT_FORMS: &[(&str, &str)] =
    &[("model", "model.default"), ("platforms.telegram.home_channel", "platforms.telegram.home_channel.chat_id")];

/// Platforms of the reference that hookgate does not speak yet.
pub(crate) const OTHER_PLATFORMS: &[&str] = &[
    "api_server",
    "bluebubbles",
    "dingtalk",
    "discord",
    "email",
    "feishu",
    "homeassistant",
    "local",
    "matrix",
    "mattermost",
    "qqbot",
    "signal",
    "slack",
    "sms",
    "wecom",
    "wecom_callback",
    "weixin",
    "whatsapp",
    "yuanbao",
];

/// Sections of the reference that hold more keys than are listed here: one without a near name is named as not supported.
pub(crate) const OPEN: &[&str] = &["agent", "terminal", "tool_output", "web"];

/// Known keys without effect, and the value of each that changes nothing: it is what happens anyway.
pub(crate) const AS_IT_IS: &[(&str, &str)] = &[("approvals.cron_mode", "deny"), ("terminal.backend", "local")];

/// Known keys without effect that guard something, and what follows from that.
const GUARDS: &[(&str, &str)] = &[
    ("hooks", "no shell hook runs: what these hooks would block is NOT blocked"),
    ("hooks_json", "no hooks.json is read: what its hooks would block is NOT blocked"),
    (
        "policies",
        "no policy is applied: what these policies would skip, limit or rewrite is handled like anything else",
    ),
    ("approvals.cron_mode", "there are no scheduled jobs"),
    ("terminal.backend", "commands run on this machine as the gateway's user, in NO container"),
    ("security", "none of it is enforced"),
    ("max_concurrent_sessions", "it limits nothing; limits.turns bounds the turns at once"),
    ("unauthorized_dm_behavior", "strangers are handled by the allowlist alone"),
    ("platforms.telegram.unauthorized_dm_behavior", "strangers are handled by the allowlist alone"),
    ("platforms.telegram.extra.unauthorized_dm_behavior", "strangers are handled by the allowlist alone"),
    ("platforms.telegram.dm_policy", "only the allowlist decides who may talk"),
    ("platforms.telegram.extra.dm_policy", "only the allowlist decides who may talk"),
    ("platforms.telegram.group_policy", "only the allowlist decides who may talk, in groups too"),
    ("platforms.telegram.extra.group_policy", "only the allowlist decides who may talk, in groups too"),
];

/// Known top-level keys without effect: those of the reference and our own that belong to later work.
const LATER: &[&str] = &[
    "_config_version",
    "always_log_local",
    "api_server",
    "auxiliary",
    "bedrock",
    "browser",
    "busy_input_mode",
    "checkpoints",
    "code_execution",
    "compression",
    "context",
    "credential_pool_strategies",
    "cron",
    "curator",
    "custom_providers",
    "dashboard",
    "delegation",
    "delivery_ledger",
    "display",
    "file_read_max_chars",
    "filter_silence_narration",
    "gateway_hooks",
    "gateway_restart_notification",
    "goals",
    "honcho",
    "hooks_auto_accept",
    "hooks_consent",
    "human_delay",
    "kanban",
    "logging",
    "lsp",
    "max_inbound_media_bytes",
    "mcp_servers",
    "memory",
    "moa",
    "model_aliases",
    "model_catalog",
    "multiplex_profiles",
    "network",
    "onboarding",
    "openrouter",
    "personalities",
    "platform_connect_timeout",
    "plugins",
    "prefill_messages_file",
    "privacy",
    "profile_routes",
    "prompt_caching",
    "providers",
    "quick_commands",
    "reset_by_platform",
    "reset_by_type",
    "reset_triggers",
    "restart_loop_guard",
    "session_reset.bg_process_max_age_hours",
    "session_store_max_age_days",
    "sessions",
    "skills",
    "smart_model_routing",
    "streaming",
    "stt",
    "toolsets",
    "tts",
    "updates",
    "voice",
    "write_sessions_json",
    "x_search",
    // Of sections that are read.
    "approvals.discord_prompt_timeout",
    "approvals.mcp_reload_confirm",
    "tool_output.max_line_length",
    "tool_output.max_lines",
    "model.extra_body",
    "model.reasoning_effort",
    "model.temperature",
    "platforms.webhook.extra.script_timeout_seconds",
];

/// Keys of any platform's block, or of its `extra`, that have no effect yet.
const LATER_OF_PLATFORMS: &[&str] = &[
    "api_key",
    "channel_overrides",
    "channel_prompts",
    "channel_skill_bindings",
    "exclusive_bot_mentions",
    "free_response_channels",
    "gateway_restart_notification",
    "mention_patterns",
    "notice_delivery",
    "reply_in_thread",
    "reply_prefix",
    "typing_status_text",
];

/// Keys of Telegram's block, or of its `extra`, that have no effect yet.
const LATER_OF_TELEGRAM: &[&str] = &[
    "base_file_url",
    "disable_link_previews",
    "dm_topics",
    "fallback_ips",
    "group_topics",
    "guest_mode",
    "ignore_root_dm",
    "local_mode",
    "observe_unmentioned_group_messages",
    "reactions",
    "rich_drafts",
    "rich_messages",
    "status_indicator",
];

/// What a canonical path is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    /// Takes effect.
    Key(&'static Key),
    /// Holds keys.
    Section,
    /// Holds keys, or is short for one of them.
    ShortFor(&'static Key),
    /// Described only.
    Describes,
    /// Has no effect yet; what follows from that, where something does.
    Later(Option<&'static str>),
}

/// Looks a canonical path up.
pub(crate) fn lookup(path: &str) -> Option<Known> {
    let path = ALIASES.iter().find(|(alias, _)| *alias == path).map_or(path, |(_, path)| path);
    if let Some((_, short)) = SHORT_FORMS.iter().find(|(section, _)| *section == path) {
        return find(short).map(Known::ShortFor);
    }
    if let Some(key) = find(path) {
        return Some(Known::Key(key));
    }
    let holds = |known: &str| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    if path == "gateway" || KEYS.iter().any(|key| holds(key.path)) || ALIASES.iter().any(|(alias, _)| holds(alias)) {
        return Some(Known::Section);
    }
    if DESCRIBE.contains(&path) {
        return Some(Known::Describes);
    }
    if let Some((_, consequence)) = GUARDS.iter().find(|(guard, _)| *guard == path) {
        return Some(Known::Later(Some(consequence)));
    }
    let of_platform = path
        .strip_prefix("platforms.telegram.")
        .map(|rest| (rest, LATER_OF_TELEGRAM))
        .or_else(|| path.strip_prefix("platforms.webhook.").map(|rest| (rest, &[][..])))
        .map(|(rest, own)| (rest.strip_prefix("extra.").unwrap_or(rest), own));
    let is_later = LATER.contains(&path)
        || path.strip_prefix("platforms.").is_some_and(|platform| OTHER_PLATFORMS.contains(&platform))
        || of_platform.is_some_and(|(name, own)| LATER_OF_PLATFORMS.contains(&name) || own.contains(&name));
    is_later.then_some(Known::Later(None))
}

/// The key at a canonical path.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The names known directly below a canonical path (empty: the top level), for suggestions.
pub(crate) fn names_below(section: &str) -> Vec<&'static str> {
    let known = KEYS
        .iter()
        .map(|key| key.path)
        .chain(ALIASES.iter().map(|(alias, _)| *alias))
        .chain(GUARDS.iter().map(|(guard, _)| *guard))
        .chain(LATER.iter().copied());
    let mut names: Vec<&str> = known
        .filter_map(|path| {
            let rest = if section.is_empty() { path } else { path.strip_prefix(section)?.strip_prefix('.')? };
            rest.split('.').next()
        })
        .collect();
    match section {
        "" => names.extend(["gateway", "platforms", "telegram", "webhook", "discord"]),
        "platforms" => names.extend(OTHER_PLATFORMS),
        _ => {}
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// The keys that have this name elsewhere, as their full paths.
pub(crate) fn elsewhere(name: &str) -> Vec<&'static str> {
    KEYS.iter()
        .map(|key| key.path)
        .chain(LATER.iter().copied())
        .filter(|path| path.rsplit('.').next() == Some(name))
        .collect()
}

/// What a variable of the environment sets.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
}

/// Variables that set a key. The three of the webhook listener apply only while `WEBHOOK_ENABLED` is true, those of a
/// provider only where its dialect is spoken.
pub(crate) const VARIABLES: &[Variable] = &[
    Variable { name: "TELEGRAM_BOT_TOKEN", path: "platforms.telegram.token" },
    Variable { name: "TELEGRAM_ALLOWED_USERS", path: "platforms.telegram.allow_from" },
    Variable { name: "TELEGRAM_ALLOW_ALL_USERS", path: "platforms.telegram.allow_all_users" },
    Variable { name: "TELEGRAM_GROUP_ALLOWED_USERS", path: "platforms.telegram.group_allow_from" },
    Variable { name: "TELEGRAM_GROUP_ALLOWED_CHATS", path: "platforms.telegram.group_allowed_chats" },
    Variable { name: "TELEGRAM_ALLOWED_CHATS", path: "platforms.telegram.allowed_chats" },
    Variable { name: "TELEGRAM_ALLOWED_TOPICS", path: "platforms.telegram.allowed_topics" },
    Variable { name: "TELEGRAM_IGNORED_THREADS", path: "platforms.telegram.ignored_threads" },
    Variable { name: "TELEGRAM_REQUIRE_MENTION", path: "platforms.telegram.require_mention" },
    Variable { name: "TELEGRAM_FREE_RESPONSE_CHATS", path: "platforms.telegram.free_response_chats" },
    Variable { name: "TELEGRAM_FREE_RESPONSE_TOPICS", path: "platforms.telegram.free_response_topics" },
    Variable { name: "TELEGRAM_MENTION_PATTERNS", path: "platforms.telegram.mention_patterns" },
    Variable { name: "TELEGRAM_EXCLUSIVE_BOT_MENTIONS", path: "platforms.telegram.exclusive_bot_mentions" },
    Variable { name: "TELEGRAM_ALLOW_BOTS", path: "platforms.telegram.allow_bots" },
    Variable { name: "TELEGRAM_HOME_CHANNEL", path: "platforms.telegram.home_channel.chat_id" },
    Variable { name: "TELEGRAM_HOME_CHANNEL_THREAD_ID", path: "platforms.telegram.home_channel.thread_id" },
    Variable { name: "TELEGRAM_PROXY", path: "platforms.telegram.proxy" },
    Variable { name: "TELEGRAM_WEBHOOK_URL", path: "platforms.telegram.extra.webhook_url" },
    Variable { name: "TELEGRAM_WEBHOOK_PORT", path: "platforms.telegram.extra.webhook_port" },
    Variable { name: "TELEGRAM_WEBHOOK_SECRET", path: "platforms.telegram.extra.webhook_secret" },
    Variable { name: "TELEGRAM_REPLY_TO_MODE", path: "platforms.telegram.reply_to_mode" },
    Variable { name: "GATEWAY_ALLOWED_USERS", path: "allowed_users" },
    Variable { name: "GATEWAY_ALLOW_ALL_USERS", path: "allow_all_users" },
    Variable { name: "SESSION_IDLE_MINUTES", path: "session_reset.idle_minutes" },
    Variable { name: "SESSION_RESET_HOUR", path: "session_reset.at_hour" },
    Variable { name: "WEBHOOK_ENABLED", path: "platforms.webhook.enabled" },
    Variable { name: "WEBHOOK_PORT", path: "platforms.webhook.extra.port" },
    Variable { name: "WEBHOOK_SECRET", path: "platforms.webhook.extra.secret" },
    Variable { name: "OPENAI_API_KEY", path: "model.api_key" },
    Variable { name: "OPENAI_BASE_URL", path: "model.base_url" },
    Variable { name: "ANTHROPIC_API_KEY", path: "model.api_key" },
    Variable { name: "HERMES_RESTART_DRAIN_TIMEOUT", path: "drain_timeout" },
    Variable { name: "HERMES_MAX_ITERATIONS", path: "agent.max_turns" },
];

/// Variables of the reference that are known and have no effect yet, and what follows where something does.
pub(crate) const LATER_VARIABLES: &[(&str, Option<&str>)] = &[
    ("TELEGRAM_GUEST_MODE", None),
    ("TELEGRAM_OBSERVE_UNMENTIONED_GROUP_MESSAGES", None),
    ("TELEGRAM_REACTIONS", None),
    ("TELEGRAM_FALLBACK_IPS", None),
    ("HERMES_TELEGRAM_TEXT_BATCH_DELAY_SECONDS", None),
    ("HERMES_TELEGRAM_TEXT_BATCH_SPLIT_DELAY_SECONDS", None),
    ("HERMES_TELEGRAM_MEDIA_BATCH_DELAY_SECONDS", None),
    ("HERMES_TELEGRAM_FOLLOWUP_GRACE_SECONDS", None),
    ("HERMES_TELEGRAM_NOTIFICATIONS", None),
    ("DISCORD_BOT_TOKEN", Some("Discord is not connected")),
    ("API_SERVER_ENABLED", Some("the API server is not started")),
    ("API_SERVER_KEY", Some("the API server is not started")),
    ("GATEWAY_MULTIPLEX_PROFILES", None),
    ("HERMES_AGENT_TIMEOUT", None),
    ("HERMES_AGENT_TIMEOUT_WARNING", None),
    ("HERMES_AGENT_NOTIFY_INTERVAL", None),
    ("HERMES_GATEWAY_BUSY_INPUT_MODE", None),
    ("HERMES_GATEWAY_BUSY_TEXT_MODE", None),
    ("HERMES_GATEWAY_BUSY_ACK_ENABLED", None),
    ("HERMES_GATEWAY_BUSY_STEER_ACK_ENABLED", None),
    ("HERMES_HUMAN_DELAY_MODE", None),
    ("HERMES_HUMAN_DELAY_MIN_MS", None),
    ("HERMES_HUMAN_DELAY_MAX_MS", None),
    ("HERMES_YOLO_MODE", None),
    ("HERMES_BACKGROUND_NOTIFICATIONS", None),
];

/// Variables that describe, or that other parts read; never reported.
pub(crate) const OTHER_VARIABLES: &[&str] = &[
    "TELEGRAM_HOME_CHANNEL_NAME",
    "HOOKGATE_HOME",
    "HOOKGATE_LOG",
    "HERMES_HOME",
    "HERMES_ACCEPT_HOOKS",
    "HERMES_SAFE_MODE",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_agree_with_each_other() {
        for (alias, path) in ALIASES.iter().chain(SHORT_FORMS) {
            assert!(find(path).is_some(), "{path} of {alias} is not a key");
            assert!(find(alias).is_none(), "{alias} is both");
        }
        for variable in VARIABLES {
            assert!(find(variable.path).is_some(), "{} sets nothing", variable.name);
            assert!(LATER_VARIABLES.iter().all(|(name, _)| *name != variable.name));
        }
        let mut seen = std::collections::BTreeSet::new();
        for path in KEYS.iter().map(|key| key.path).chain(LATER.iter().copied()).chain(GUARDS.iter().map(|one| one.0)) {
            assert!(seen.insert(path), "{path} is listed twice");
        }
        for path in LATER.iter().copied().chain(GUARDS.iter().map(|one| one.0)) {
            assert!(matches!(lookup(path), Some(Known::Later(_))), "{path}");
        }
    }

    #[test]
    fn names_are_those_of_the_place() {
        assert_eq!(names_below("storage"), ["max_gb", "retention_days", "url"]);
        assert!(names_below("").contains(&"gateway"));
        assert!(names_below("platforms").contains(&"telegram"));
        assert_eq!(elsewhere("retention_days"), ["storage.retention_days"]);
    }
}
