//! The configuration: `config.yaml`, `.env` and the environment, typed and checked. Read once at start.
//!
//! Precedence: command line › process environment › `.env` › `config.yaml` › defaults (`spec/decisions.md` §1).
//! Everything wrong is a [`Problem`] with its place; nothing is dropped in silence.

mod agent;
mod build;
mod env_file;
mod expand;
mod home;
mod keys;
mod model;
mod proxies;
mod schema;
mod settings;
mod show;
pub(crate) mod suggest;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hookgate_adapters::{ChatTarget, GroupRules, Platform, Proxies, ReplyToMode, WebhookOptions};
use secrecy::SecretString;

use crate::session::{ResetPolicy, Sharing};
use crate::store::{StoreUrl, UncertainSends};
use crate::webhook::route::{Route, RouteDefaults};

pub use agent::{
    AgentLimits, ApprovalMode, Approvals, Budget, Budgets, FileAccess, OnTimeout, Prices, TerminalDefaults, Web,
};
pub use home::{Home, resolve_home};
pub use schema::json_schema;
pub(crate) use show::address;
pub use show::{redacted_json, redacted_yaml};

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
    /// The Telegram bots that are on, by account: `platforms.telegram` itself has no name, the others are those of
    /// `platforms.telegram.accounts`.
    pub telegram: BTreeMap<String, Telegram>,
    /// Where Telegram is asked, whether or not there is a bot.
    pub telegram_server: TelegramServer,
    /// What `HTTPS_PROXY` and its like say, in the process environment or in `.env`.
    pub proxies: Proxies,
    /// `platforms.webhook`.
    pub webhook: Webhook,
    /// `GATEWAY_ALLOWED_USERS`, `GATEWAY_ALLOW_ALL_USERS`.
    pub allowed: Allowed,
    /// `session_reset` and `timezone`.
    pub reset: ResetPolicy,
    /// `session_reset.notify`: people are told of a reset with the next answer.
    pub tells_of_reset: bool,
    /// `session_reset.notify_exclude_platforms`: but not there.
    pub silent_of_reset: Vec<String>,
    /// `edits: turn`: an edited message is a new one.
    pub edits: bool,
    /// `roles`.
    pub roles: Roles,
    /// `agent`.
    pub agent: AgentLimits,
    /// `platform_toolsets`: the tools of each platform it names, without those that are disabled. [`Config::tools_of`] knows
    /// the others'.
    pub toolsets: BTreeMap<Platform, Vec<String>>,
    /// `approvals`.
    pub approvals: Approvals,
    /// `command_allowlist`: descriptions of dangerous commands that are always approved, as the reference writes them.
    pub command_allowlist: Vec<String>,
    /// `terminal`.
    pub terminal: TerminalDefaults,
    /// `files`.
    pub files: FileAccess,
    /// `web`.
    pub web: Web,
    /// `secrets.pass_to_tools`: variables of the processes of tools, by name.
    pub tool_env: Vec<(String, SecretString)>,
    /// `secrets.pass_to_hooks`: variables of the processes of hooks, by name.
    pub hook_env: Vec<(String, SecretString)>,
    /// `budgets`.
    pub budgets: Budgets,
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
    /// The same as `users`, in groups only.
    pub group_users: Vec<String>,
    /// Groups in which everybody may talk, as strings; `*` is every group.
    pub group_chats: Vec<String>,
    /// `allow_admin_from`: where it is not empty, only these run every command in private chats.
    pub admins: Vec<String>,
    /// `group_allow_admin_from`: the same everywhere else.
    pub group_admins: Vec<String>,
    /// `user_allowed_commands`: what the others may run in private chats; empty: the list for groups.
    pub user_commands: Vec<String>,
    /// `group_user_allowed_commands`: the same everywhere else.
    pub group_user_commands: Vec<String>,
}

/// `roles`: what somebody with access may do; who is not listed is a user. Members are written `telegram:7`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// May do everything.
    pub owner: Vec<String>,
    /// May do everything.
    pub admin: Vec<String>,
    /// May only talk.
    pub guest: Vec<String>,
}

impl Roles {
    /// Whether there are none, and everybody may do everything.
    pub fn is_empty(&self) -> bool {
        self.owner.is_empty() && self.admin.is_empty() && self.guest.is_empty()
    }
}

/// `storage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// `sqlite:hookgate.db`, relative to the home, or `postgres://…`.
    pub url: StoreUrl,
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
    /// 50000; the reference's `tool_output.max_bytes` is read too.
    pub tool_output_bytes: usize,
}

/// `model`, or one of `fallback_providers`.
#[derive(Debug, Clone)]
pub struct Model {
    /// Which wire dialect; of `provider` and `api_mode` together.
    pub provider: Provider,
    /// `model.default`: the model's name, as the provider writes it.
    pub name: String,
    /// With or without `/chat/completions`, or `/v1/messages`.
    pub base_url: String,
    /// The key; may be missing for local servers.
    pub api_key: Option<SecretString>,
    /// `model.system_prompt`: our own key; a short default otherwise.
    pub system_prompt: Option<String>,
    /// `model.timeout`: seconds without a byte from the model before the attempt counts as failed; 120.
    pub timeout: Duration,
    /// `model.max_tokens`: the longest answer, in tokens.
    pub max_tokens: Option<u32>,
    /// `model.context_length`: how much the model can read at once, in tokens.
    pub context_length: Option<u32>,
    /// `model.prices`: what its tokens cost.
    pub prices: Option<Prices>,
    /// `model.record`: where exchanges are kept.
    pub record: Option<PathBuf>,
    /// `model.replay`: the file that `provider: replay` answers from.
    pub replay: Option<PathBuf>,
    /// The same as [`Config::proxies`].
    pub proxies: Proxies,
    /// `fallback_providers`: asked in order where this one fails; they have none themselves.
    pub fallbacks: Vec<Model>,
}

impl Default for Model {
    /// The built-in echo, which needs nothing.
    fn default() -> Self {
        Self {
            provider: Provider::Echo,
            name: String::new(),
            base_url: String::new(),
            api_key: None,
            system_prompt: None,
            timeout: Duration::from_secs(120),
            max_tokens: None,
            context_length: None,
            prices: None,
            record: None,
            replay: None,
            proxies: Proxies::default(),
            fallbacks: Vec::new(),
        }
    }
}

/// The built-in dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Answers with the text it was given; needs nothing.
    Echo,
    /// Any OpenAI-compatible server (`openai`, `custom`; `api_mode: chat_completions`).
    OpenAi,
    /// Anthropic, or a server that speaks its Messages (`api_mode: anthropic_messages`).
    Anthropic,
    /// Answers from a recording.
    Replay,
}

/// Where the Bot API is and how it is reached.
#[derive(Debug, Clone)]
pub struct TelegramServer {
    /// `platforms.telegram.extra.base_url`, without a trailing `/bot`; `https://api.telegram.org`.
    pub base_url: String,
    /// `platforms.telegram.proxy`.
    pub proxy: Option<SecretString>,
}

/// `platforms.telegram`.
#[derive(Debug, Clone)]
pub struct Telegram {
    /// `TELEGRAM_BOT_TOKEN`, `platforms.telegram.token`.
    pub token: SecretString,
    /// `extra.base_url`, without a trailing `/bot`; `https://api.telegram.org`.
    pub base_url: String,
    /// `TELEGRAM_ALLOWED_USERS`, `TELEGRAM_ALLOW_ALL_USERS`, `allow_from`, and the lists for groups.
    pub allowed: Allowed,
    /// `TELEGRAM_HOME_CHANNEL`, `home_channel`: where a route's bare `telegram` goes.
    pub home_channel: Option<ChatTarget>,
    /// `reply_to_mode`: whether answers quote the message: `first` (default), `all` (every part), `off`.
    pub reply_to_mode: ReplyToMode,
    /// `typing_indicator`: true.
    pub typing: bool,
    /// `proxy`, `TELEGRAM_PROXY`; `None`: those of [`Config::proxies`].
    pub proxy: Option<SecretString>,
    /// `extra.webhook_url` and its like; `None`: updates are fetched by polling.
    pub webhook: Option<WebhookOptions>,
    /// `extra.command_menu`: true.
    pub command_menu: bool,
    /// What is heard in groups, and what of it is meant for the bot.
    pub groups: GroupRules,
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
    /// What routes take from elsewhere: `extra.secret` or `WEBHOOK_SECRET`, the home channel, whether the host is loopback.
    pub route_defaults: RouteDefaults,
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

impl fmt::Display for Problem {
    /// One line, `file:line:column: path: message (suggestion)`; what does not apply is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.origin.clone();
        for number in [self.line, self.column].into_iter().take_while(|number| *number > 0) {
            line.push_str(&format!(":{number}"));
        }
        line.push_str(": ");
        if !self.path.is_empty() {
            line.push_str(&format!("{}: ", self.path));
        }
        line.push_str(&self.message);
        if let Some(suggestion) = &self.suggestion {
            line.push_str(&format!(" ({suggestion})"));
        }
        f.write_str(&line.replace(char::is_control, " "))
    }
}

/// What [`load`] starts from.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// `--home DIR`.
    pub home: Option<PathBuf>,
    /// The process environment. Values that are not UTF-8 are better left out than guessed at.
    pub environment: BTreeMap<String, String>,
}

impl LoadOptions {
    /// With the environment of this process.
    pub fn from_process(home: Option<PathBuf>) -> Self {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let environment = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        Self { home, environment }
    }
}

/// What [`load`] found.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// `None` when any problem is an error.
    pub config: Option<Config>,
    /// Where Telegram is asked, and through what, also while other things are wrong; `None` when that cannot be told.
    pub telegram: Option<(TelegramServer, Proxies)>,
    /// File by file, in the order of their lines.
    pub problems: Vec<Problem>,
    /// The home directory, unless it is itself the problem.
    pub home: Option<PathBuf>,
    /// One line to print at start: another program's home is used.
    pub home_note: Option<String>,
    /// The files that are read, whether or not they exist: `config.yaml`, `.env`.
    pub files: Vec<ConfigFile>,
}

/// A file [`load`] reads.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ConfigFile {
    /// Where it is, or would be.
    pub path: PathBuf,
    /// Whether it is there.
    pub exists: bool,
}

/// Reads the configuration: the home directory, its `.env` and `config.yaml`, and the environment.
///
/// Never panics and never fails: everything wrong is in [`Loaded::problems`], and with an error among them there is no
/// [`Config`] (exit code 78 of `gateway run`). Creates the home directory when there is none; writes nothing else.
pub fn load(options: LoadOptions) -> Loaded {
    let LoadOptions { home, environment } = options;
    let home = match resolve_home(home.as_deref(), &environment) {
        Ok(home) => home,
        Err(problem) => {
            return Loaded {
                config: None,
                telegram: None,
                problems: vec![problem],
                home: None,
                home_note: None,
                files: Vec::new(),
            };
        }
    };
    let yaml_path = home.path.join("config.yaml");
    let env_path = home.path.join(".env");
    let mut problems = Vec::new();

    let env_text = read_file(&env_path, &mut problems);
    let (assignments, bad_lines) = env_file::parse(env_text.as_deref().unwrap_or_default());
    for bad in bad_lines {
        let message = format!("{}; it is passed over", bad.message);
        problems.push(in_file(Severity::Warning, &env_path, bad.line, 0, message));
    }
    let (variables, unresolved) = env_file::merge(&environment, &assignments);

    let file = yaml_path.display().to_string();
    let mut settings = settings::Settings::new(file, env_path.display().to_string(), variables);
    settings.problems = problems;
    for (assignment, message) in unresolved {
        settings.unresolved_assignment(&assignment, &message);
    }
    let yaml_text = read_file(&yaml_path, &mut settings.problems);
    let mut is_read = yaml_text.is_some() || !yaml_path.exists();
    match yaml::parse(yaml_text.as_deref().unwrap_or_default()) {
        Ok(document) => settings.add_document(&document),
        Err(fault) => {
            is_read = false;
            let yaml::Place { line, column } = fault.place;
            let problem = in_file(Severity::Error, &yaml_path, line, column, fault.message);
            settings.problems.push(Problem { suggestion: fault.suggestion, ..problem });
        }
    }
    settings.add_variables(&environment, &assignments);
    warn_of_unread_files(&home.path, yaml_text.is_some(), &mut settings.problems);
    warn_of_idle_directories(&home.path, &mut settings.problems);

    let proxies = proxies::read(&mut settings, &environment, &assignments);
    let config = build::build(&mut settings, home.path.clone(), &assignments, proxies);
    let problems = by_line(settings.problems);
    let is_usable = problems.iter().all(|problem| problem.severity < Severity::Error);
    let files = [yaml_path, env_path].map(|path| ConfigFile { exists: path.exists(), path });
    let is_about_the_way = |problem: &Problem| {
        let path = problem.path.to_ascii_lowercase();
        problem.severity == Severity::Error && (path.ends_with("base_url") || path.contains("proxy"))
    };
    let is_known = is_read && !problems.iter().any(is_about_the_way);
    Loaded {
        telegram: is_known.then(|| (config.telegram_server.clone(), config.proxies.clone())),
        config: is_usable.then_some(config),
        problems,
        home: Some(home.path),
        home_note: home.note,
        files: files.into(),
    }
}

/// The text of a file; `None` when there is no such file or it cannot be read, which is an error.
fn read_file(path: &Path, problems: &mut Vec<Problem>) -> Option<String> {
    let bytes = match crate::files::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            let message = format!("cannot read the file{}: {error}", home::as_user(&error));
            let suggestion = home::remedy_for_file(&error, path);
            problems.push(Problem { suggestion, ..in_file(Severity::Error, path, 0, 0, message) });
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let problem = in_file(Severity::Error, path, line, 0, "the file is not UTF-8 text".to_owned());
            problems.push(Problem { suggestion: Some("save it as UTF-8".to_owned()), ..problem });
            None
        }
    }
}

fn warn_of_unread_files(home: &Path, has_config: bool, problems: &mut Vec<Problem>) {
    for (name, suggestion) in
        [("gateway.json", "move what you need into config.yaml"), ("config.yml", "rename it to config.yaml")]
    {
        let path = home.join(name);
        if path.exists() && !(name == "config.yml" && has_config) {
            let problem = in_file(Severity::Warning, &path, 0, 0, "this file is not read".to_owned());
            problems.push(Problem { suggestion: Some(suggestion.to_owned()), ..problem });
        }
    }
}

/// Directories of the reference that would run code. A guard in one of them guards nothing here.
fn warn_of_idle_directories(home: &Path, problems: &mut Vec<Problem>) {
    for (name, what) in [("hooks", "gateway hooks"), ("plugins", "plugins")] {
        let path = home.join(name);
        if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
            let message =
                format!("{what} are not supported yet: nothing in here runs, and what it would block is NOT blocked");
            problems.push(in_file(Severity::Warning, &path, 0, 0, message));
        }
    }
}

fn by_line(mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut origins: Vec<String> = Vec::new();
    for problem in &problems {
        if !origins.contains(&problem.origin) {
            origins.push(problem.origin.clone());
        }
    }
    problems.sort_by_key(|problem| {
        (origins.iter().position(|origin| *origin == problem.origin), problem.line, problem.column)
    });
    problems
}

fn in_file(severity: Severity, path: &Path, line: usize, column: usize, message: String) -> Problem {
    Problem {
        severity,
        origin: path.display().to_string(),
        line,
        column,
        path: String::new(),
        message,
        suggestion: None,
    }
}
