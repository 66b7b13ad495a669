//! The configuration: `config.yaml`, `.env` and the environment, typed and checked. Read once at start.
//!
//! Precedence: command line › process environment › `.env` › `config.yaml` › defaults (`spec/decisions.md` §1).
//! Everything wrong is a [`Problem`] with its place; nothing is dropped in silence.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hookgate_adapters::ChatTarget;
use secrecy::SecretString;

use crate::session::Sharing;
use crate::store::UncertainSends;
use crate::webhook::route::Route;

/// The effective configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The home directory; exists.
    pub home: PathBuf,
    /// `storage`.
    pub storage: Storage,
    /// `console`: the private listener.
    pub console: Console,
    /// `limits`.
    pub limits: Limits,
    /// `drain_timeout` (20 s), or the reference's `agent.restart_drain_timeout`.
    pub drain_timeout: Duration,
    /// `max_update_age` (24 h).
    pub max_update_age: Duration,
    /// `uncertain_sends`: `resend` or `hold`.
    pub uncertain_sends: UncertainSends,
    /// `group_sessions_per_user`, `thread_sessions_per_user`.
    pub sharing: Sharing,
    /// `model`.
    pub model: Model,
    /// `platforms.telegram`; `None` when there is no token or it is disabled.
    pub telegram: Option<Telegram>,
    /// `platforms.webhook`.
    pub webhook: Webhook,
    /// `GATEWAY_ALLOWED_USERS`, `GATEWAY_ALLOW_ALL_USERS`.
    pub allowed: Allowed,
    /// Every secret value of config, `.env` and environment that hookgate uses, for redaction by value.
    pub secrets: Vec<SecretString>,
}

/// Who may talk to the bot: nobody unless listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// User ids as strings; `*` allows everybody.
    pub users: Vec<String>,
    /// Everybody.
    pub all: bool,
}

/// `storage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// `sqlite:hookgate.db`, relative to the home.
    pub url: String,
    /// 30.
    pub retention_days: u32,
    /// 5.
    pub max_gb: u64,
}

/// `console`.
#[derive(Debug, Clone)]
pub struct Console {
    /// true.
    pub enabled: bool,
    /// `127.0.0.1`.
    pub host: String,
    /// 8642; 0 lets the system choose.
    pub port: u16,
    /// `None`: made at first start and kept in `<home>/console.json`.
    pub token: Option<SecretString>,
}

/// `limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Turns at once over all chats: 32.
    pub turns: usize,
    /// Messages that may wait in one chat: 200.
    pub waiting_per_chat: usize,
    /// Per client address: 300.
    pub failed_signatures_per_minute: u32,
    /// 16.
    pub hook_processes: usize,
    /// 50000.
    pub tool_output_bytes: usize,
}

/// `model`.
#[derive(Debug, Clone)]
pub struct Model {
    /// Which wire dialect.
    pub provider: Provider,
    /// `model.default`: the model's name, as the provider writes it.
    pub name: String,
    /// With or without `/chat/completions`.
    pub base_url: String,
    /// The key; may be missing for local servers.
    pub api_key: Option<SecretString>,
    /// `model.system_prompt`: our own key; a short default otherwise.
    pub system_prompt: Option<String>,
    /// `model.timeout`: seconds without a byte from the model before the attempt counts as failed; 120.
    pub timeout: Duration,
}

/// The built-in dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Answers with the text it was given; needs nothing.
    Echo,
    /// Any OpenAI-compatible server (`openai`, `custom`).
    OpenAi,
}

/// `platforms.telegram`.
#[derive(Debug, Clone)]
pub struct Telegram {
    /// `TELEGRAM_BOT_TOKEN`, `platforms.telegram.token`.
    pub token: SecretString,
    /// `extra.base_url`, without a trailing `/bot`; `https://api.telegram.org`.
    pub base_url: String,
    /// `TELEGRAM_ALLOWED_USERS`, `TELEGRAM_ALLOW_ALL_USERS`, `allow_from`.
    pub allowed: Allowed,
    /// `TELEGRAM_HOME_CHANNEL`, `home_channel`: where a route's bare `telegram` goes.
    pub home_channel: Option<ChatTarget>,
    /// `reply_to_mode`: whether answers quote the message: `first` (default), `all` (every part), `off`.
    pub reply_to_mode: ReplyToMode,
    /// `typing_indicator`: true.
    pub typing: bool,
}

/// Which parts of an answer quote the message they answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyToMode {
    /// The first.
    #[default]
    First,
    /// All.
    All,
    /// None.
    Off,
}

/// `platforms.webhook`.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// On by default (loopback); `enabled: false` turns it off.
    pub enabled: bool,
    /// `extra.host`: `127.0.0.1`.
    pub host: String,
    /// `extra.port`: 8644; 0 lets the system choose.
    pub port: u16,
    /// `extra.secret`, `WEBHOOK_SECRET`: for routes without their own.
    pub secret: Option<SecretString>,
    /// `extra.routes`, checked.
    pub routes: BTreeMap<String, Route>,
    /// `extra.rate_limit`: verified, new requests per route and minute: 30.
    pub rate_limit: u32,
    /// `extra.max_body_bytes`: 1 MiB, inclusive.
    pub max_body_bytes: usize,
    /// `extra.deliver_wait`: how long a `deliver_only` request waits for its delivery: 5 s.
    pub deliver_wait: Duration,
    /// `extra.trusted_proxies`: peers whose `X-Forwarded-For` is believed. Addresses, exact.
    pub trusted_proxies: Vec<std::net::IpAddr>,
}

/// Something wrong in a file or the environment, told so that a person can fix it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Whether the gateway refuses to start with it.
    pub severity: Severity,
    /// The file, or the name of the environment variable.
    pub origin: String,
    /// From 1; 0 when there is no place in a file.
    pub line: usize,
    /// From 1; 0 when there is no place in a file.
    pub column: usize,
    /// The key's path, `platforms.telegram.tokn`.
    pub path: String,
    /// What is wrong, one sentence.
    pub message: String,
    /// What was probably meant, or what to do.
    pub suggestion: Option<String>,
}

/// How bad a [`Problem`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Told; an error under `config check --strict`.
    Warning,
    /// The gateway does not start (exit 78).
    Error,
}
