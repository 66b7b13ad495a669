//! What `model` and `fallback_providers` mean together: who is asked, where, and with which key.

use std::path::{Path, PathBuf};

use hookgate_adapters::Proxies;
use secrecy::{ExposeSecret as _, SecretString};

use super::agent::{prices, prices_in};
use super::build::{DAY, Secrets, is_placeholder, web_address};
use super::settings::{Found, Origin, Settings, Wrong, shown, text, whole};
use super::suggest::nearest;
use super::yaml::{Entry, Node, Value};
use super::{Model, Provider, Severity};

pub(super) const OPENAI_API: &str = "https://api.openai.com/v1";
pub(super) const ANTHROPIC_API: &str = "https://api.anthropic.com";
const FALLBACKS: &str = "fallback_providers";
/// What an entry of [`FALLBACKS`] may hold.
const OF_A_FALLBACK: &[&str] =
    &["provider", "model", "default", "name", "base_url", "api_key", "api_mode", "max_tokens", "timeout", "prices"];
/// What it may hold in the reference.
const LATER_OF_A_FALLBACK: &[&str] = &["context_length", "extra_body", "reasoning_effort", "temperature"];
const LARGEST: u32 = 100_000_000;
const COMPATIBLE: &str = "for any OpenAI-compatible server set `provider: openai`, `base_url` and `api_key`";

pub(super) fn model(settings: &mut Settings, home: &Path, proxies: Proxies, secrets: &mut Secrets) -> Model {
    let name = not_empty(settings.text("model.default"));
    let base_url = settings.read("model.base_url", optional_address).flatten();
    secrets.add_address(base_url.as_ref());
    let mut api_key = settings.secret("model.api_key").filter(|key| !key.expose_secret().is_empty());
    secrets.add_secret(api_key.as_ref());
    if api_key.as_ref().is_some_and(is_placeholder) {
        let message = "this is a placeholder, not a key; it is not used";
        let suggestion = format!("set {} in .env, or remove the key", key_variable(settings.speaks_anthropic()));
        settings.tell_about(Severity::Warning, "model.api_key", message, &suggestion);
        api_key = None;
    }
    warn_of_a_foreign_key(settings);
    let replay = file(settings, "model.replay", home);
    let provider = provider(settings, name.as_deref(), base_url.is_some(), api_key.is_some());
    if provider == Provider::Replay && replay.is_none() {
        let message = "replay needs a file to answer from";
        settings.tell_about(Severity::Error, "model.provider", message, "set model.replay");
    }
    let name = match (provider, name) {
        (Provider::Echo, name) => name.unwrap_or_else(|| "echo".to_owned()),
        (Provider::Replay, name) => name.unwrap_or_default(),
        (Provider::OpenAi | Provider::Anthropic, Some(name)) => name,
        (Provider::OpenAi | Provider::Anthropic, None) if base_url.is_some() => {
            let message = "no model is named; the server is asked for `default`";
            settings.tell_about(Severity::Warning, "model.default", message, "set model.default");
            "default".to_owned()
        }
        (Provider::OpenAi | Provider::Anthropic, None) => {
            settings.tell_about(Severity::Error, "model.default", "no model is named", "set model.default");
            String::new()
        }
    };
    let mut model = Model {
        provider,
        name,
        base_url: base_url.unwrap_or_else(|| own_server(provider).to_owned()),
        api_key,
        system_prompt: settings.text("model.system_prompt").filter(|prompt| !prompt.trim().is_empty()),
        timeout: settings.seconds("model.timeout", 120, 1.0, DAY),
        max_tokens: settings.read("model.max_tokens", |node| tokens(node, 1)),
        context_length: settings.read("model.context_length", |node| tokens(node, 1000)),
        prices: prices(settings),
        record: file(settings, "model.record", home),
        replay,
        proxies,
        fallbacks: Vec::new(),
    };
    model.fallbacks = fallbacks(settings, &model, secrets);
    model
}

fn not_empty(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn optional_address(node: &Node) -> Result<Option<String>, Wrong> {
    if text(node)?.trim().is_empty() { Ok(None) } else { web_address(node).map(Some) }
}

fn tokens(node: &Node, least: u32) -> Result<u32, Wrong> {
    let value = u32::try_from(whole(node)?).ok().filter(|value| (least..=LARGEST).contains(value));
    value.ok_or_else(|| Wrong::new(format!("{} is not from {least} to {LARGEST}", shown(node))))
}

/// A file, seen from the home.
fn file(settings: &mut Settings, path: &'static str, home: &Path) -> Option<PathBuf> {
    not_empty(settings.text(path)).map(|file| home.join(file))
}

fn own_server(provider: Provider) -> &'static str {
    if provider == Provider::Anthropic { ANTHROPIC_API } else { OPENAI_API }
}

fn key_variable(is_anthropic: bool) -> &'static str {
    if is_anthropic { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" }
}

/// The key of the environment wins over the file's, and then it goes to the file's server.
fn warn_of_a_foreign_key(settings: &mut Settings) {
    // The same key in both places, usually `${OPENAI_API_KEY}`, is no surprise to anybody.
    let in_force = settings.secret("model.api_key");
    let written = settings.in_file("model.api_key").and_then(|found| text(&found.node).ok());
    if in_force.zip(written).is_some_and(|(one, other)| one.expose_secret() == other.trim()) {
        return;
    }
    let wins = settings.winner("model.api_key").and_then(|found| match found.origin {
        Origin::File => None,
        Origin::Process(name) | Origin::EnvFile(name, _) => Some(name),
    });
    let in_file = settings.in_file("model.api_key").is_some();
    let server_in_file = settings.winner("model.base_url").is_some_and(|found| found.origin == Origin::File);
    if let Some(name) = wins
        && in_file
        && server_in_file
    {
        let message = format!("{name} wins over model.api_key and is sent to model.base_url");
        settings.tell_about(Severity::Warning, "model.api_key", message, "remove one of the two keys");
    }
}

/// What a provider's name says.
enum Named {
    Nothing,
    Is(Provider),
    /// An OpenAI-compatible server of one's own.
    Custom,
    /// No name we know, and the one it may be meant for.
    Unknown(Option<&'static str>),
}

fn named(given: Option<&str>) -> Named {
    match given {
        None | Some("" | "auto") => Named::Nothing,
        Some("echo") => Named::Is(Provider::Echo),
        Some("openai") => Named::Is(Provider::OpenAi),
        Some("anthropic") => Named::Is(Provider::Anthropic),
        Some("replay") => Named::Is(Provider::Replay),
        Some("custom") => Named::Custom,
        Some(other) => Named::Unknown(nearest(other, ["echo", "openai", "anthropic", "custom", "replay"])),
    }
}

/// The words of `api_mode`.
const API_MODES: &[(&str, Option<Provider>)] = &[
    ("chat_completions", Some(Provider::OpenAi)),
    ("anthropic_messages", Some(Provider::Anthropic)),
    ("auto", None),
    ("", None),
];

fn provider(settings: &mut Settings, name: Option<&str>, has_server: bool, has_key: bool) -> Provider {
    let given = settings.text("model.provider").map(|provider| provider.trim().to_ascii_lowercase());
    let mode = settings.choice("model.api_mode", None, API_MODES);
    match named(given.as_deref()) {
        Named::Nothing => {}
        Named::Is(provider @ (Provider::OpenAi | Provider::Anthropic)) => {
            let spoken = mode.unwrap_or(provider);
            if spoken != provider && !has_server {
                let message = "this provider's own server speaks another dialect";
                settings.tell_about(Severity::Error, "model.api_mode", message, "remove it, or set model.base_url");
            } else if !has_server && !has_key {
                let is_anthropic = provider == Provider::Anthropic;
                let message = format!("{}'s own server needs a key", if is_anthropic { "Anthropic" } else { "OpenAI" });
                let suggestion = format!("set {} in .env", key_variable(is_anthropic));
                settings.tell_about(Severity::Error, "model.provider", message, &suggestion);
            }
            return spoken;
        }
        Named::Is(offline) => return offline,
        Named::Custom => {
            if !has_server {
                let message = "a custom provider needs the address of its server";
                settings.tell_about(Severity::Error, "model.provider", message, "set model.base_url");
            }
            return mode.unwrap_or(Provider::OpenAi);
        }
        Named::Unknown(None) if has_server => {
            if mode.is_none() {
                let message = "this provider is not known, so its server is spoken to as an OpenAI-compatible one";
                settings.tell_about(Severity::Warning, "model.provider", message, "set `provider: openai`");
            }
            return mode.unwrap_or(Provider::OpenAi);
        }
        Named::Unknown(near) => {
            let message = "this provider is not known; there are echo, openai, anthropic, custom and replay";
            let suggestion = near.map_or_else(|| COMPATIBLE.to_owned(), |near| format!("did you mean `{near}`?"));
            settings.tell_about(Severity::Error, "model.provider", message, &suggestion);
            return Provider::Echo;
        }
    }
    let is_configured =
        ["model.default", "model.base_url", "model.api_key"].iter().any(|path| settings.in_file(path).is_some());
    if !is_configured {
        let key = settings.winner("model.api_key").cloned();
        if let Some(key @ Found { origin: Origin::EnvFile(name, _), .. }) = key {
            let message = "a key is set but no model is named, so the built-in echo answers";
            let provider = if name == "ANTHROPIC_API_KEY" { "model.provider to anthropic and " } else { "" };
            let suggestion = format!("set {provider}model.default in config.yaml");
            settings.tell(Severity::Warning, &key, message, Some(suggestion));
        }
        return Provider::Echo;
    }
    match name {
        Some("echo") => Provider::Echo,
        _ if has_server || has_key => mode.unwrap_or(Provider::OpenAi),
        Some(_) => {
            let message = "a model is named, but there is neither a key nor a server for it";
            let suggestion = if settings.variable("ANTHROPIC_API_KEY").is_some_and(|key| !key.trim().is_empty()) {
                "set `model.provider: anthropic` to use ANTHROPIC_API_KEY"
            } else {
                "set OPENAI_API_KEY in .env, or model.base_url, or `model.provider: echo`"
            };
            settings.tell_about(Severity::Error, "model.default", message, suggestion);
            Provider::Echo
        }
        None => Provider::Echo,
    }
}

/// The models that are asked where the first one fails.
fn fallbacks(settings: &mut Settings, first: &Model, secrets: &mut Secrets) -> Vec<Model> {
    let nodes = settings.read(FALLBACKS, |node| match &node.value {
        Value::Map(entries) if entries.is_empty() => Ok(Vec::new()),
        Value::Map(_) => Ok(vec![node.clone()]),
        Value::List(items) => Ok(items.iter().filter(|item| !item.is_null()).cloned().collect()),
        Value::Scalar(_) => Err(Wrong::new(format!("a list of models is wanted, not {}", shown(node)))
            .suggest("write each as `{provider: …, model: …}`")),
    });
    let written = settings.winner(FALLBACKS).map_or_else(|| FALLBACKS.to_owned(), |found| found.written.clone());
    let nodes = nodes.unwrap_or_default();
    let entries = nodes.iter().enumerate().filter_map(|(number, node)| {
        let mut entry = Fallback { settings, written: format!("{written}[{number}]"), node };
        entry.model(first, secrets)
    });
    entries.collect()
}

/// One entry while it is read.
struct Fallback<'a> {
    settings: &'a mut Settings,
    written: String,
    node: &'a Node,
}

impl Fallback<'_> {
    /// What is not written is as with `first`; its server and its key only where the provider is the same.
    fn model(&mut self, first: &Model, secrets: &mut Secrets) -> Option<Model> {
        let Some(entries) = self.node.entries() else {
            self.tell(Severity::Error, "", "a model is wanted here", "write it as `{provider: …, model: …}`");
            return None;
        };
        self.warn_of_unknown_keys(entries);
        let name = not_empty(["model", "default", "name"].iter().find_map(|key| self.read(key, text)));
        let base_url = self.read("base_url", optional_address).flatten();
        let given = self.read("provider", text).map(|provider| provider.trim().to_ascii_lowercase());
        let mode = self.read("api_mode", |node| {
            let word = text(node)?.trim().to_ascii_lowercase();
            let known = API_MODES.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode);
            known.ok_or_else(|| {
                Wrong::new(format!("{} is not one of chat_completions, anthropic_messages", shown(node)))
            })
        });
        let mode = mode.flatten();
        let own_key = self.read("api_key", text).map(|key| SecretString::from(key.trim()));
        let own_key = own_key.filter(|key| !key.expose_secret().is_empty());
        if own_key.as_ref().is_some_and(is_placeholder) {
            let message = "this is a placeholder, not a key; it is not used";
            self.tell(Severity::Warning, "api_key", message, "write it as `${NAME}`, with NAME in .env, or remove it");
        }
        let own_key = own_key.filter(|key| !is_placeholder(key));
        let first_given = self.settings.winner("model.provider").and_then(|found| text(&found.node).ok());
        let is_same = given.is_none() || given == first_given.map(|given| given.trim().to_ascii_lowercase());
        let is_asked_there = is_same && base_url.is_none();
        let provider = match named(given.as_deref()) {
            _ if is_asked_there && !matches!(first.provider, Provider::Echo | Provider::Replay) => {
                mode.unwrap_or(first.provider)
            }
            Named::Is(provider @ (Provider::OpenAi | Provider::Anthropic)) => mode.unwrap_or(provider),
            Named::Nothing | Named::Custom | Named::Unknown(None) if base_url.is_some() => {
                mode.unwrap_or(Provider::OpenAi)
            }
            Named::Nothing | Named::Custom => {
                self.tell(
                    Severity::Error,
                    "",
                    "nothing says where this model is asked",
                    "set its `provider` or its `base_url`",
                );
                return None;
            }
            Named::Is(_) | Named::Unknown(_) => {
                let message = "it is not asked: a fallback is at openai, anthropic or custom";
                self.tell(Severity::Warning, "provider", message, COMPATIBLE);
                return None;
            }
        };
        let Some(name) = name else {
            self.tell(Severity::Error, "", "no model is named", "set its `model`");
            return None;
        };
        let variable = key_variable(provider == Provider::Anthropic);
        let api_key = match own_key {
            Some(key) => Some(key),
            None if is_asked_there => first.api_key.clone(),
            None if base_url.is_none() => {
                let key = self.settings.variable(variable).map(str::trim).filter(|key| !key.is_empty());
                key.map(SecretString::from)
            }
            None => None,
        };
        if base_url.is_none() && api_key.is_none() && !is_asked_there {
            let suggestion = format!("set {variable} in .env, or its `api_key`");
            self.tell(Severity::Warning, "", "it is not asked: its server needs a key", &suggestion);
            return None;
        }
        secrets.add_address(base_url.as_ref());
        secrets.add_secret(api_key.as_ref());
        let here = if is_asked_there { first.base_url.clone() } else { self.own_server(provider) };
        let timeout = self.read("timeout", |node| super::settings::seconds(node, 1.0, DAY));
        Some(Model {
            provider,
            name,
            base_url: base_url.unwrap_or(here),
            api_key,
            timeout: timeout.unwrap_or(first.timeout),
            max_tokens: self.read("max_tokens", |node| tokens(node, 1)).or(first.max_tokens),
            prices: self.read("prices", prices_in).or(first.prices),
            proxies: first.proxies.clone(),
            ..Model::default()
        })
    }

    /// The server of a provider that needs no address, and to which the environment's key belongs.
    fn own_server(&self, provider: Provider) -> String {
        let address = self.settings.variable("OPENAI_BASE_URL").filter(|_| provider == Provider::OpenAi);
        let address = address.and_then(|address| web_address(&Node::from_text(address)).ok());
        address.unwrap_or_else(|| own_server(provider).to_owned())
    }

    fn warn_of_unknown_keys(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| !OF_A_FALLBACK.contains(&entry.key.as_str())) {
            let key = entry.key.as_str();
            let path = format!("{}.{key}", self.written);
            let (message, suggestion) = if LATER_OF_A_FALLBACK.contains(&key) {
                ("not supported yet; it has no effect".to_owned(), None)
            } else {
                let near = nearest(key, OF_A_FALLBACK.iter().copied());
                let suggestion = near.map(|near| format!("did you mean `{near}`?"));
                (format!("unknown key `{key}`; it has no effect"), suggestion)
            };
            self.settings.tell_in_file(Severity::Warning, entry.key_place, &path, message, suggestion);
        }
    }

    fn read<T>(&mut self, key: &str, typing: impl Fn(&Node) -> Result<T, Wrong>) -> Option<T> {
        let entry = self.node.entry(key).filter(|entry| !entry.value.is_null())?;
        match typing(&entry.value) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let path = format!("{}.{key}", self.written);
                self.settings.tell_wrong(entry.value.place, &path, wrong);
                None
            }
        }
    }

    /// About the entry, or about one of its keys.
    fn tell(&mut self, severity: Severity, key: &str, message: &str, suggestion: &str) {
        let dot = if key.is_empty() { "" } else { "." };
        let place = self.node.entry(key).map_or(self.node.place, |entry| entry.key_place);
        let path = format!("{}{dot}{key}", self.written);
        self.settings.tell_in_file(severity, place, &path, message.to_owned(), Some(suggestion.to_owned()));
    }
}
