//! What the agent may do and spend: approvals, toolsets, where commands and file tools work, variables that are passed on,
//! budgets and the web. The types, and how they are read; nothing is decided here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hookgate_adapters::Platform;
use secrecy::{ExposeSecret as _, SecretString};

use super::build::{DAY, Secrets, is_placeholder, web_address};
use super::expand::is_name;
use super::home::from_tilde;
use super::keys::OTHER_PLATFORMS;
use super::settings::{Settings, Wrong, decimal, list, shown, text, whole};
use super::suggest::nearest;
use super::yaml::{Node, Place, Typed, Value};
use super::{Config, Severity};
use crate::agent::toolset::{TOOLS, default_of, expand};
use crate::webhook::route::Route;

/// `approvals`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approvals {
    /// `manual`.
    pub mode: ApprovalMode,
    /// How long an answer is waited for: 60 s.
    pub timeout: Duration,
    /// Globs, as `fnmatch` has them; a command that one of them matches never runs.
    pub deny: Vec<String>,
    /// false.
    pub destructive_slash_confirm: bool,
    /// `continue`.
    pub on_timeout: OnTimeout,
}

/// `approvals.mode`: who is asked about a dangerous command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApprovalMode {
    /// A person.
    #[default]
    Manual,
    /// The model first, and a person where it does not decide.
    Smart,
    /// Nobody.
    Off,
}

impl ApprovalMode {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Smart => "smart",
            Self::Off => "off",
        }
    }
}

/// `approvals.on_timeout`: what a turn does when nobody answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnTimeout {
    /// The command is blocked, and the model goes on.
    #[default]
    Continue,
    /// The turn ends.
    Halt,
}

impl OnTimeout {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Halt => "halt",
        }
    }
}

/// `agent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimits {
    /// Steps of a turn, each a request to the model: 90.
    pub max_turns: u32,
    /// How often a hook of `pre_verify` may send the model back to work: 3.
    pub max_verify_nudges: u32,
    /// As they are written.
    pub disabled_toolsets: Vec<String>,
    /// The tools they stand for: no platform and no route gets them.
    pub disabled_tools: Vec<String>,
}

/// `terminal`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalDefaults {
    /// Where commands run: absolute; where the gateway was started.
    pub cwd: PathBuf,
    /// How long a command may take that does not say: 60 s. Never more than `max_timeout`.
    pub timeout: Duration,
    /// The most it may say: 600 s.
    pub max_timeout: Duration,
}

/// `files`: what the file tools may touch. `~` is replaced; relative paths begin in the session's working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAccess {
    /// Inside these: `.`. None: nothing at all.
    pub roots: Vec<PathBuf>,
    /// But not these paths or globs.
    pub deny: Vec<String>,
}

/// `budgets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budgets {
    /// Of one turn.
    pub turn: Budget,
    /// Of one user and day.
    pub user: Budget,
    /// Of one webhook route and day.
    pub route: Budget,
}

/// What may be spent; `None` is no limit, and no limit is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Of questions and answers together.
    pub tokens: Option<u64>,
    /// Calls of tools.
    pub tool_calls: Option<u64>,
    /// Millionths of the currency that [`Prices`] are in. There are prices where there is one.
    pub cost_micros: Option<u64>,
}

impl Budget {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `model.prices`: millionths of a currency for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Of what the model reads.
    pub input_micros: u64,
    /// Of what it writes.
    pub output_micros: u64,
}

/// `web`.
#[derive(Debug, Clone, Default)]
pub struct Web {
    /// Who is asked what is on the web; `None`: there is no search.
    pub search_url: Option<String>,
    /// Its key.
    pub search_api_key: Option<SecretString>,
    /// Private places that may be read all the same: a host in lower case, without brackets, and a port.
    pub allow_private: Vec<(String, u16)>,
}

impl Config {
    /// The tools of a platform's turns: those of `platform_toolsets`, else everything for chats and the safe few for
    /// webhooks; in both cases without `agent.disabled_toolsets`.
    pub fn tools_of(&self, platform: Platform) -> Vec<String> {
        match self.toolsets.get(&platform) {
            Some(tools) => tools.clone(),
            None => self.enabled(expand(&[default_of(platform).to_owned()], TOOLS).tools),
        }
    }

    /// The tools of a route's turns: its own, else those of webhooks; without `agent.disabled_toolsets`.
    pub fn tools_of_route(&self, route: &Route) -> Vec<String> {
        match &route.tools {
            Some(tools) => self.enabled(tools.clone()),
            None => self.tools_of(Platform::Webhook),
        }
    }

    fn enabled(&self, tools: Vec<String>) -> Vec<String> {
        without(tools, &self.agent.disabled_tools)
    }
}

fn without(mut tools: Vec<String>, disabled: &[String]) -> Vec<String> {
    tools.retain(|tool| !disabled.contains(tool));
    tools
}

pub(super) fn approvals(settings: &mut Settings) -> Approvals {
    Approvals {
        mode: approval_mode(settings),
        timeout: settings.seconds("approvals.timeout", 60, 1.0, DAY),
        deny: settings.texts("approvals.deny"),
        destructive_slash_confirm: settings.boolean("approvals.destructive_slash_confirm", false),
        on_timeout: settings.choice(
            "approvals.on_timeout",
            OnTimeout::Continue,
            &[("continue", OnTimeout::Continue), ("halt", OnTimeout::Halt)],
        ),
    }
}

/// A word that nobody knows means that a person is asked, as in the reference.
fn approval_mode(settings: &mut Settings) -> ApprovalMode {
    const MODES: [ApprovalMode; 3] = [ApprovalMode::Manual, ApprovalMode::Smart, ApprovalMode::Off];
    let path = "approvals.mode";
    let given = settings.read(path, |node| {
        let word = text(node)?.trim().to_ascii_lowercase();
        let is_false = matches!(&node.value, Value::Scalar(scalar) if scalar.typed() == Typed::Bool(false));
        Ok((if is_false { "off".to_owned() } else { word }, shown(node)))
    });
    let Some((word, shown)) = given else { return ApprovalMode::Manual };
    if let Some(mode) = MODES.into_iter().find(|mode| mode.as_str() == word) {
        return mode;
    }
    let message = format!("{shown} is not one of manual, smart, off; manual counts");
    let suggestion = match nearest(&word, MODES.map(ApprovalMode::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write one of the three".to_owned(),
    };
    settings.tell_about(Severity::Warning, path, message, &suggestion);
    ApprovalMode::Manual
}

pub(super) fn agent(settings: &mut Settings) -> AgentLimits {
    let (disabled_toolsets, disabled_tools) = disabled(settings);
    AgentLimits {
        max_turns: settings.number("agent.max_turns", 90, 1, 1000),
        max_verify_nudges: settings.number("agent.max_verify_nudges", 3, 0, 100),
        disabled_toolsets,
        disabled_tools,
    }
}

/// A misspelt name is an error here: what it was meant for would stay on.
fn disabled(settings: &mut Settings) -> (Vec<String>, Vec<String>) {
    let path = "agent.disabled_toolsets";
    let written = written(settings, path);
    let (mut names, mut tools) = (Vec::new(), Vec::new());
    for (place, name) in settings.read(path, list).unwrap_or_default() {
        let expanded = expand(std::slice::from_ref(&name), TOOLS);
        for (name, near) in expanded.unknown {
            let severity = if near.is_some() { Severity::Error } else { Severity::Warning };
            unknown_name(settings, severity, place, &written, &name, near);
        }
        tools.extend(expanded.tools);
        names.push(name);
    }
    (names, tools)
}

/// `platform_toolsets`. `cli` is the reference's name for what is `local` here.
pub(super) fn toolsets(settings: &mut Settings, disabled: &[String]) -> BTreeMap<Platform, Vec<String>> {
    let path = "platform_toolsets";
    let platforms = settings.read(path, |node| match &node.value {
        Value::Map(entries) => Ok(entries.clone()),
        Value::List(items) if items.is_empty() => Ok(Vec::new()),
        _ => Err(Wrong::new(format!("platforms with their toolsets are wanted, not {}", node.kind()))
            .suggest("write `platform_toolsets:` and below it, indented, lines such as `telegram: [web, file]`")),
    });
    let platforms = platforms.unwrap_or_default();
    let place = settings.winner(path).map_or_else(Place::default, |found| found.node.place);
    let written = written(settings, path);
    let has_local = platforms.iter().any(|entry| entry.key == "local" && !entry.value.is_null());
    let mut toolsets = BTreeMap::new();
    let (mut other_platforms, mut not_yet) = (Vec::new(), Vec::new());
    for entry in platforms.iter().filter(|entry| !entry.value.is_null()) {
        let (key, here) = (entry.key.as_str(), format!("{written}.{}", entry.key));
        let platform = match key {
            "cli" if has_local => {
                let message = format!("this has no effect, because `{written}.local` is set and wins");
                let suggestion = Some("keep one of the two".to_owned());
                settings.tell_in_file(Severity::Warning, entry.key_place, &here, message, suggestion);
                continue;
            }
            "cli" => Some(Platform::Local),
            key => key.parse().ok(),
        };
        let Some(platform) = platform else {
            if OTHER_PLATFORMS.contains(&key) || key == "cron" {
                other_platforms.push(key);
            } else {
                let near = nearest(
                    key,
                    ["telegram", "webhook", "local", "cli"].into_iter().chain(OTHER_PLATFORMS.iter().copied()),
                );
                let suggestion = near.map(|near| format!("did you mean `{near}`?"));
                let message = format!("unknown platform `{key}`; it has no effect");
                settings.tell_in_file(Severity::Warning, entry.key_place, &here, message, suggestion);
            }
            continue;
        };
        let names = match list(&entry.value) {
            Ok(names) => names,
            Err(wrong) => {
                settings.tell_wrong(entry.value.place, &here, wrong);
                continue;
            }
        };
        for (place, name) in &names {
            let expanded = expand(std::slice::from_ref(name), TOOLS);
            for (name, near) in expanded.unknown {
                unknown_name(settings, Severity::Warning, *place, &here, &name, near);
            }
            not_yet.extend(expanded.not_yet.into_iter().filter(|name| !not_yet.contains(name)).collect::<Vec<_>>());
        }
        let names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
        toolsets.insert(platform, without(expand(&names, TOOLS).tools, disabled));
    }
    for (what, names) in [("platforms", other_platforms.join(", ")), ("toolsets", not_yet.join(", "))] {
        if !names.is_empty() {
            let message = format!("{what} that are not supported yet: {names}");
            settings.tell_in_file(Severity::Warning, place, &written, message, None);
        }
    }
    toolsets
}

fn unknown_name(
    settings: &mut Settings,
    severity: Severity,
    place: Place,
    path: &str,
    name: &str,
    near: Option<&'static str>,
) {
    let message = format!("there is no toolset or tool `{name}`");
    let suggestion = near.map(|near| format!("did you mean `{near}`?"));
    settings.tell_in_file(severity, place, path, message, suggestion);
}

/// The path as the user wrote it.
fn written(settings: &Settings, path: &str) -> String {
    settings.winner(path).map_or_else(|| path.to_owned(), |found| found.written.clone())
}

/// A path of the user's, with `~` replaced.
fn user_path(settings: &Settings, path: &str) -> PathBuf {
    from_tilde(path, settings.variable("HOME"))
}

/// `home` stands in where there is no directory the gateway was started in any more.
pub(super) fn terminal(settings: &mut Settings, home: &Path) -> TerminalDefaults {
    let path = "terminal.cwd";
    let started_in = std::env::current_dir().unwrap_or_else(|_| home.to_owned());
    let given = settings.text(path).map(|cwd| cwd.trim().to_owned()).filter(|cwd| !cwd.is_empty());
    let cwd = started_in.join(user_path(settings, given.as_deref().unwrap_or(".")));
    let cwd = std::path::absolute(&cwd).unwrap_or(cwd);
    if given.is_some() && !cwd.is_dir() {
        let message = "there is no such directory; until it is made, no command can run";
        settings.tell_about(Severity::Warning, path, message, "create it, or correct the path");
    }
    let timeout = settings.seconds("terminal.timeout", 60, 1.0, DAY);
    let longest = settings.read("terminal.max_timeout", |node| super::settings::seconds(node, 1.0, DAY));
    if longest.is_some_and(|longest| longest < timeout) {
        let message = "this is less than terminal.timeout, and counts for every command";
        settings.tell_about(Severity::Warning, "terminal.max_timeout", message, "lower terminal.timeout too");
    }
    let longest = longest.unwrap_or_else(|| timeout.max(Duration::from_secs(600)));
    TerminalDefaults { cwd, timeout: timeout.min(longest), max_timeout: longest }
}

pub(super) fn files(settings: &mut Settings) -> FileAccess {
    let names = |node: &Node| Ok(list(node)?.into_iter().map(|(_, text)| text).collect::<Vec<_>>());
    let roots = settings.read("files.roots", names).unwrap_or_else(|| vec![".".to_owned()]);
    let deny = settings.list("files.deny");
    FileAccess {
        roots: roots.iter().map(|root| user_path(settings, root)).collect(),
        deny: deny.iter().map(|path| user_path(settings, path).to_string_lossy().into_owned()).collect(),
    }
}

/// The variables that `path` names, with their values in the process environment or in `.env`.
pub(super) fn passed(
    settings: &mut Settings,
    path: &'static str,
    secrets: &mut Secrets,
) -> Vec<(String, SecretString)> {
    let names = settings.list_of(path, |name| {
        if is_name(name) {
            return Ok(name.to_owned());
        }
        Err(Wrong::new("this is not the name of a variable").suggest("write names such as `[GITHUB_TOKEN]`, no values"))
    });
    let mut passed: Vec<(String, SecretString)> = Vec::new();
    for name in names {
        if passed.iter().any(|(other, _)| *other == name) {
            continue;
        }
        match settings.variable(&name).filter(|value| !value.is_empty()).map(SecretString::from) {
            Some(value) => {
                secrets.add_secret(Some(&value));
                passed.push((name, value));
            }
            None => {
                let message = format!("the variable `{name}` is not set, so it is not passed on");
                settings.tell_about(Severity::Warning, path, message, "set it in .env, or remove the name");
            }
        }
    }
    passed
}

/// A cost cannot be counted without prices.
pub(super) fn budgets(settings: &mut Settings, has_prices: bool) -> Budgets {
    let mut budget = |tokens, tool_calls, cost| {
        let cost_micros = settings.read(cost, |node| match micros(node)? {
            0 => Err(Wrong::new(format!("{} is not more than 0", shown(node)))),
            micros => Ok(micros),
        });
        if cost_micros.is_some() && !has_prices {
            let message = "a budget of costs needs the prices of the model";
            settings.tell_about(Severity::Error, cost, message, "set model.prices.input and model.prices.output");
        }
        Budget { tokens: settings.read(tokens, count), tool_calls: settings.read(tool_calls, count), cost_micros }
    };
    Budgets {
        turn: budget("budgets.turn.tokens", "budgets.turn.tool_calls", "budgets.turn.cost"),
        user: budget("budgets.user.tokens", "budgets.user.tool_calls", "budgets.user.cost"),
        route: budget("budgets.route.tokens", "budgets.route.tool_calls", "budgets.route.cost"),
    }
}

/// Both prices, or none.
pub(super) fn prices(settings: &mut Settings) -> Option<Prices> {
    let (input, output) = ("model.prices.input", "model.prices.output");
    let mut price = |path| (settings.winner(path).is_some(), settings.read(path, micros));
    match (price(input), price(output)) {
        ((_, Some(input_micros)), (_, Some(output_micros))) => Some(Prices { input_micros, output_micros }),
        ((true, _), (false, _)) => {
            let message = "the price of what the model reads needs that of what it writes";
            settings.tell_about(Severity::Error, input, message, "set model.prices.output too");
            None
        }
        ((false, _), (true, _)) => {
            let message = "the price of what the model writes needs that of what it reads";
            settings.tell_about(Severity::Error, output, message, "set model.prices.input too");
            None
        }
        _ => None,
    }
}

/// The prices of a fallback, written as `{input: …, output: …}`.
pub(super) fn prices_in(node: &Node) -> Result<Prices, Wrong> {
    let wrong = || Wrong::new("the prices of a model are wanted").suggest("write `{input: 2.5, output: 10}`");
    let price = |key: &str| node.entry(key).filter(|entry| !entry.value.is_null()).ok_or_else(wrong);
    if node.entries().is_none_or(|entries| entries.len() != 2) {
        return Err(wrong());
    }
    Ok(Prices { input_micros: micros(&price("input")?.value)?, output_micros: micros(&price("output")?.value)? })
}

fn count(node: &Node) -> Result<u64, Wrong> {
    let most = 1_000_000_000_000;
    let value = u64::try_from(whole(node)?).ok().filter(|value| (1..=most).contains(value));
    value.ok_or_else(|| Wrong::new(format!("{} is not from 1 to {most}", shown(node))))
}

/// Millionths of an amount of money.
fn micros(node: &Node) -> Result<u64, Wrong> {
    const MOST: f64 = 1e9;
    let value = decimal(node, "an amount of money")?;
    if !(0.0..=MOST).contains(&value) {
        return Err(Wrong::new(format!("{} is not from 0 to {MOST}", shown(node))));
    }
    Ok((value * 1e6).round() as u64)
}

/// The amount of money, as it is written.
pub(super) fn in_money(micros: u64) -> serde_json::Value {
    if micros.is_multiple_of(1_000_000) { (micros / 1_000_000).into() } else { (micros as f64 / 1e6).into() }
}

pub(super) fn web(settings: &mut Settings, secrets: &mut Secrets) -> Web {
    let search_url = settings.read("web.search_url", |node| match text(node)?.trim() {
        "" => Ok(None),
        _ => web_address(node).map(Some),
    });
    let search_url = search_url.flatten();
    secrets.add_address(search_url.as_ref());
    let mut key = settings.secret("web.search_api_key").filter(|key| !key.expose_secret().is_empty());
    secrets.add_secret(key.as_ref());
    if key.as_ref().is_some_and(is_placeholder) {
        let message = "this is a placeholder, not a key; it is not used";
        settings.tell_about(Severity::Warning, "web.search_api_key", message, "write the key, or remove it");
        key = None;
    }
    Web { search_url, search_api_key: key, allow_private: settings.list_of("web.allow_private", host_and_port) }
}

fn host_and_port(item: &str) -> Result<(String, u16), Wrong> {
    let parts = item.rsplit_once(':').and_then(|(host, port)| {
        let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
        let is_address = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => Some(host).filter(|host| is_address(host)),
            None => Some(host).filter(|host| {
                let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
                !host.is_empty() && host.chars().all(fits)
            }),
        };
        Some((host?.to_ascii_lowercase(), port))
    });
    parts.ok_or_else(|| {
        Wrong::new("a private place is a host and a port")
            .suggest("write each as `10.0.0.2:8080`, `wiki.internal:443` or `[::1]:8080`")
    })
}
