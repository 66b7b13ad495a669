//! A webhook endpoint, from `config.yaml` or `webhook_subscriptions.json`, checked.
//!
//! [`parse_route`] turns one JSON value into a [`Route`] or says everything that is wrong with it; [`resolve_targets`]
//! fills the templates of its targets for one delivery. Both are pure: nothing is read, sent or looked up.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::http::HeaderName;
use hookgate_adapters::{ChatTarget, Platform};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use crate::agent::toolset;
use crate::store::Target;
use crate::webhook::signature::{INSECURE_NO_AUTH, svix_key};
use crate::webhook::template::{RenderContext, check_template, has_placeholder, has_stray_brace, render_id};

/// One endpoint, `POST /webhooks/<name>`.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its name in the address; case-sensitive.
    pub name: String,
    /// Accepted secrets, the route's own or the listener's; empty: no request can be verified (403).
    pub secrets: Vec<SecretString>,
    /// `INSECURE_NO_AUTH`: nothing is verified (loopback only).
    pub insecure: bool,
    /// How requests are signed.
    pub scheme: Scheme,
    /// Wanted event types; empty: all.
    pub events: Vec<String>,
    /// The template; empty: a preface and the JSON.
    pub prompt: String,
    /// Where the answer goes.
    pub deliver: Deliver,
    /// No turn: the rendered template is the message.
    pub deliver_only: bool,
    /// `enabled: false` answers 403.
    pub enabled: bool,
    /// Informational.
    pub description: String,
    /// `replay_guard: body`.
    pub replay_guard: bool,
    /// `missing: keep | empty | error`: what a template does about a missing path.
    pub missing: Missing,
    /// `raw_limit`: characters of `{__raw__}`; 4,000.
    pub raw_limit: usize,
    /// `session: delivery | route | "{template}"`.
    pub session: SessionChoice,
    /// `rate_limit` of the route, else the listener's.
    pub rate_limit: Option<u32>,
    /// `public_url` of the route: its whole address as the provider has it; else the listener's `public_url`, to which
    /// the path is added. `scheme: twilio` signs it.
    pub public_url: Option<String>,
    /// `tools`: the tools of its turns, toolsets expanded; `None`: those of the platform. `agent.disabled_toolsets` is not
    /// taken off yet: [`crate::config::Config::tools_of_route`] does that.
    pub tools: Option<Vec<String>>,
}

/// How requests are signed (`spec/decisions.md` §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// By the headers, in the reference's order, without falling through.
    Auto,
    /// `X-Hub-Signature-256`.
    GitHub,
    /// `X-Gitlab-Token`, the secret itself.
    GitLab,
    /// `Stripe-Signature`.
    Stripe,
    /// `svix-id`, `svix-timestamp`, `svix-signature`.
    Svix,
    /// The same as `webhook-…`, by the Standard Webhooks specification.
    Standard,
    /// `X-Slack-Signature`.
    Slack,
    /// `X-Shopify-Hmac-Sha256`.
    Shopify,
    /// `Linear-Signature`.
    Linear,
    /// `X-Gitea-Signature`, also as Forgejo and Gogs name it.
    Gitea,
    /// `X-Hub-Signature`.
    Bitbucket,
    /// `Sentry-Hook-Signature`.
    Sentry,
    /// `Paddle-Signature`.
    Paddle,
    /// `X-PagerDuty-Signature`.
    PagerDuty,
    /// `X-Twilio-Signature`, which covers the route's public address.
    Twilio,
    /// `X-Telegram-Bot-Api-Secret-Token`, the secret itself.
    Telegram,
    /// `Authorization: Bearer`, the secret itself.
    Bearer,
    /// `Authorization: Basic`; the secret is `user:password`, or the password alone.
    Basic,
    /// A configured header.
    Hmac(HmacOptions),
}

impl Scheme {
    /// Those that need no options, by their names in a route's `scheme`.
    pub(crate) const NAMED: [(&'static str, Self); 18] = [
        ("auto", Self::Auto),
        ("github", Self::GitHub),
        ("gitlab", Self::GitLab),
        ("stripe", Self::Stripe),
        ("svix", Self::Svix),
        ("standard", Self::Standard),
        ("slack", Self::Slack),
        ("shopify", Self::Shopify),
        ("linear", Self::Linear),
        ("gitea", Self::Gitea),
        ("bitbucket", Self::Bitbucket),
        ("sentry", Self::Sentry),
        ("paddle", Self::Paddle),
        ("pagerduty", Self::PagerDuty),
        ("twilio", Self::Twilio),
        ("telegram", Self::Telegram),
        ("bearer", Self::Bearer),
        ("basic", Self::Basic),
    ];

    /// The name in a route's `scheme`.
    pub fn name(&self) -> &'static str {
        Self::NAMED.iter().find(|(_, scheme)| scheme == self).map_or("hmac", |(name, _)| name)
    }
}

/// Options of `scheme: hmac`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HmacOptions {
    /// The header with the signature.
    pub header: String,
    /// `sha256` by default.
    pub algorithm: Algorithm,
    /// `either` by default.
    pub encoding: Encoding,
    /// Stands before the value; with none configured, `sha256=` and its like are accepted and not required.
    pub prefix: Option<String>,
    /// The header with the time, Unix seconds.
    pub timestamp_header: Option<String>,
    /// Template of the signed bytes over `{timestamp}` and `{body}`; `{body}` by default.
    pub signed: String,
    /// Seconds a timestamp may be off, either way; 300.
    pub tolerance: i64,
}

/// The digest under an HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Algorithm {
    Sha1,
    #[default]
    Sha256,
    Sha512,
}

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Encoding {
    Hex,
    Base64,
    #[default]
    Either,
}

/// What a template does about a missing path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// It stays as written.
    #[default]
    Keep,
    /// It becomes nothing.
    Empty,
    /// The request is refused.
    Error,
}

/// Who shares a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    /// Each delivery has its own.
    #[default]
    Delivery,
    /// All of the route.
    Route,
    /// Those whose rendered template is the same.
    Template(String),
}

/// A route's target, before its templates are filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deliver {
    /// The log.
    Log,
    /// A chat with literal ids.
    Chat(ChatTarget),
    /// A chat whose ids are templates.
    Template {
        /// The platform.
        platform: hookgate_adapters::Platform,
        /// Which of our accounts there.
        account: String,
        /// Template of the chat's id.
        chat_id: String,
        /// Template of the thread's id.
        thread_id: Option<String>,
    },
    /// Several of them.
    Many(Vec<Deliver>),
}

impl std::fmt::Display for Deliver {
    /// As it is written in a route; several parted by commas.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log => f.write_str("log"),
            Self::Chat(chat) => chat.fmt(f),
            Self::Template { platform, account, chat_id, thread_id } => {
                write!(f, "{}:{chat_id}", platform.with_account(account))?;
                thread_id.as_ref().map_or(Ok(()), |thread| write!(f, ":{thread}"))
            }
            Self::Many(list) => f.write_str(&list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Something wrong with a route. Everything told about it is safe to show: no values of secrets.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RouteProblem {
    /// The key's path inside the route, `deliver_extra.chat_id`; empty for the route itself.
    pub path: String,
    /// What is wrong, one sentence.
    pub message: String,
    /// What was probably meant, or what to do.
    pub suggestion: Option<String>,
    /// The route works anyway.
    pub warning: bool,
}

impl std::fmt::Display for RouteProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " ({suggestion})"),
            None => Ok(()),
        }
    }
}

/// What a route takes from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct RouteDefaults {
    /// The listener's secret, for routes without the key.
    pub secret: Option<SecretString>,
    /// The listener is on loopback only, so `INSECURE_NO_AUTH` may be used.
    pub loopback: bool,
    /// The Telegram bots by account, each with its home channel: where a bare `telegram` goes.
    pub telegram: BTreeMap<String, Option<ChatTarget>>,
    /// The listener's `public_url`.
    pub public_url: Option<String>,
}

/// The chat of a bare `local`: the one the console opens with.
const CONSOLE_CHAT: &str = "console";

/// The forms of `deliver`, for problems.
const TARGET_FORMS: &str =
    "`log`, `telegram`, `telegram:CHAT`, `telegram:CHAT:THREAD`, `telegram@ACCOUNT:CHAT`, `local`, `local:CHAT`";

/// Secrets shorter than this are guessable.
const SHORT_SECRET: usize = 8;

/// Keys that are read.
const KEYS: [&str; 27] = [
    "secret",
    "events",
    "prompt",
    "deliver",
    "deliver_extra",
    "deliver_only",
    "enabled",
    "scheme",
    "header",
    "algorithm",
    "encoding",
    "prefix",
    "timestamp_header",
    "signed",
    "tolerance",
    "replay_guard",
    "missing",
    "raw_limit",
    "session",
    "rate_limit",
    "description",
    "created_at",
    "engine",
    "filters",
    "script",
    "public_url",
    "tools",
];

/// Keys that exist and do nothing yet; the route runs without them.
const IDLE_KEYS: [&str; 3] = ["skills", "concurrency", "deliver_fallback"];

/// Keys that people write, and what they are called here.
const OTHER_NAMES: [(&str, &str); 9] = [
    ("hmac", "scheme"),
    ("deliver_chat_id", "deliver_extra.chat_id"),
    ("deliver_thread_id", "deliver_extra.thread_id"),
    ("chat_id", "deliver_extra.chat_id"),
    ("thread_id", "deliver_extra.thread_id"),
    ("message_thread_id", "deliver_extra.message_thread_id"),
    ("template", "prompt"),
    ("target", "deliver"),
    ("signature_header", "header"),
];

/// Options of `scheme: hmac`.
const HMAC_KEYS: [&str; 7] = ["header", "algorithm", "encoding", "prefix", "timestamp_header", "signed", "tolerance"];

/// Reads one route. `Ok` comes with its warnings; `Err` has everything, at least one problem not being a warning.
///
/// A route without any usable secret is an error: of a static route the start fails, a dynamic one is off. `name` may be
/// anything that fits into one segment of an address.
pub fn parse_route(
    name: &str,
    value: &Value,
    defaults: &RouteDefaults,
) -> Result<(Route, Vec<RouteProblem>), Vec<RouteProblem>> {
    let mut parser = Parser { fields: &Map::new(), problems: Vec::new() };
    if name.trim().is_empty() || name.contains('/') || name.contains(char::is_control) {
        parser.error("", "the name of a route must not be empty or contain `/`", None);
    }
    let Value::Object(fields) = value else {
        parser.error("", format!("a route is a mapping, not {}", kind(value)), None);
        return Err(parser.problems);
    };
    parser.fields = fields;
    parser.check_keys();
    let scheme = parser.scheme();
    let (secrets, insecure) = parser.secrets(&scheme, defaults);
    let prompt = parser.text("prompt").unwrap_or_default();
    for problem in check_template(&prompt) {
        parser.problems.push(RouteProblem { path: "prompt".to_owned(), ..problem });
    }
    let deliver = parser.deliver(defaults);
    let route = Route {
        name: name.to_owned(),
        secrets,
        insecure,
        scheme,
        events: parser.events(),
        prompt,
        deliver: deliver.unwrap_or(Deliver::Log),
        deliver_only: parser.flag("deliver_only"),
        enabled: parser.enabled(),
        description: parser.text("description").unwrap_or_default(),
        replay_guard: parser.replay_guard(),
        missing: parser.missing(),
        raw_limit: parser
            .number("raw_limit", 100, 1_000_000)
            .map_or(4_000, |limit| usize::try_from(limit).unwrap_or(4_000)),
        session: parser.session(),
        rate_limit: parser.number("rate_limit", 1, u32::MAX.into()).and_then(|limit| u32::try_from(limit).ok()),
        public_url: parser.public_url(name, defaults),
        tools: parser.tools(),
    };
    if route.scheme == Scheme::Twilio && route.public_url.is_none() {
        let suggestion = Some("set it to the address that is entered at Twilio".to_owned());
        parser.error("public_url", "`scheme: twilio` signs the address of the route, so it must be known", suggestion);
    }
    parser.refuse_what_is_to_come();
    if parser.problems.iter().any(|problem| !problem.warning) {
        return Err(parser.problems);
    }
    Ok((route, parser.problems))
}

/// Everything that must never be shown, for redaction by value.
pub fn webhook_secret_values(route: &Route) -> &[SecretString] {
    &route.secrets
}

/// The route's targets for one delivery, templates filled, each once. The error is one sentence for the record: an id
/// that cannot be resolved is never sent to as it stands, and never replaced by another chat.
pub fn resolve_targets(route: &Route, context: &RenderContext<'_>) -> Result<Vec<Target>, String> {
    fn resolve(deliver: &Deliver, context: &RenderContext<'_>, targets: &mut Vec<Target>) -> Result<(), String> {
        let target = match deliver {
            Deliver::Log => Target::Log,
            Deliver::Chat(chat) => Target::Chat(chat.clone()),
            Deliver::Template { platform, account, chat_id, thread_id } => {
                let chat = render_id(chat_id, context).map_err(|error| format!("the {platform} chat: {error}"))?;
                let thread = thread_id.as_ref().map(|thread| render_id(thread, context)).transpose();
                let thread = thread.map_err(|error| format!("the {platform} thread: {error}"))?;
                check_ids(*platform, &chat, thread.as_deref())?;
                Target::Chat(ChatTarget { account: account.clone(), ..chat_target(*platform, chat, thread) })
            }
            Deliver::Many(list) => return list.iter().try_for_each(|deliver| resolve(deliver, context, targets)),
        };
        if !targets.contains(&target) {
            targets.push(target);
        }
        Ok(())
    }
    let mut targets = Vec::new();
    resolve(&route.deliver, context, &mut targets)?;
    Ok(targets)
}

/// The nearest of several names, if it is near enough to have been meant.
pub(crate) fn closest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let name = name.trim().to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::normalized_damerau_levenshtein(&name, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= 0.6)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}

fn chat_target(platform: Platform, chat_id: String, thread_id: Option<String>) -> ChatTarget {
    ChatTarget { platform, account: String::new(), chat_id, thread_id }
}

/// Whether literal ids can exist on the platform. The error does not repeat them: they may come from a payload.
fn check_ids(platform: Platform, chat_id: &str, thread_id: Option<&str>) -> Result<(), String> {
    let is_number = |text: &str| (1..=19).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_handle = |text: &str| {
        text.strip_prefix('@').is_some_and(|name| {
            (4..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    };
    if chat_id.trim().is_empty() || chat_id.len() > 200 || chat_id.contains(char::is_control) {
        return Err(format!("the {platform} chat is not a usable id"));
    }
    if platform == Platform::Telegram {
        let is_chat = is_number(chat_id.strip_prefix('-').unwrap_or(chat_id)) && chat_id.parse::<i64>().is_ok();
        if !is_chat && !is_handle(chat_id) {
            return Err("the telegram chat is neither a number nor an @name".to_owned());
        }
        if thread_id.is_some_and(|thread| !is_number(thread)) {
            return Err("the telegram thread is not a number".to_owned());
        }
    }
    Ok(())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// Whether the value says nothing.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Number(_) => false,
    }
}

/// The chat and thread of `deliver_extra`.
#[derive(Default)]
struct Extra {
    chat_id: Option<String>,
    thread_id: Option<String>,
}

struct Parser<'v> {
    fields: &'v Map<String, Value>,
    problems: Vec<RouteProblem>,
}

impl<'v> Parser<'v> {
    fn error(&mut self, path: &str, message: impl Into<String>, suggestion: Option<String>) {
        self.problems.push(RouteProblem { path: path.to_owned(), message: message.into(), suggestion, warning: false });
    }

    fn warn(&mut self, path: &str, message: impl Into<String>, suggestion: Option<String>) {
        self.problems.push(RouteProblem { path: path.to_owned(), message: message.into(), suggestion, warning: true });
    }

    /// A field that is there and not null.
    fn field(&self, key: &str) -> Option<&'v Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    fn wrong_type(&mut self, path: &str, wanted: &str, value: &Value) {
        self.error(path, format!("must be {wanted}, not {}", kind(value)), None);
    }

    fn text(&mut self, key: &str) -> Option<String> {
        match self.field(key)? {
            Value::String(text) => Some(text.clone()),
            other => {
                self.wrong_type(key, "text", other);
                None
            }
        }
    }

    fn number(&mut self, key: &str, min: u64, max: u64) -> Option<u64> {
        let value = self.field(key)?;
        let number = match value {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_u64(),
        };
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.error(key, format!("must be a whole number from {min} to {max}"), None);
        }
        number
    }

    /// True and false, also by the words that YAML 1.1 takes for them.
    fn flag(&mut self, key: &str) -> bool {
        let Some(value) = self.field(key) else { return false };
        let word = match value {
            Value::Bool(on) => return *on,
            Value::String(text) => text.trim().to_lowercase(),
            _ => String::new(),
        };
        match word.as_str() {
            "true" | "yes" | "on" => true,
            "false" | "no" | "off" => false,
            _ => {
                self.error(key, "must be true or false", None);
                false
            }
        }
    }

    /// One of several words.
    fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.field(key)?;
        let found = value.as_str().and_then(|text| choices.iter().find(|(name, _)| *name == text.trim()));
        if let Some((_, choice)) = found {
            return Some(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let suggestion = value.as_str().and_then(|text| closest(text, names.iter().copied()));
        self.error(
            key,
            format!("must be one of {}", names.join(", ")),
            suggestion.map(|name| format!("did you mean `{name}`?")),
        );
        None
    }

    fn check_keys(&mut self) {
        for key in self.fields.keys() {
            if KEYS.contains(&key.as_str()) || IDLE_KEYS.contains(&key.as_str()) {
                continue;
            }
            let names = KEYS.iter().chain(&IDLE_KEYS).copied().chain(OTHER_NAMES.iter().map(|(name, _)| *name));
            let suggestion = closest(key, names).map(|near| {
                let name = OTHER_NAMES.iter().find(|(other, _)| *other == near).map_or(near, |(_, name)| name);
                format!("did you mean `{name}`?")
            });
            self.warn(key, "there is no such key, it does nothing", suggestion);
        }
    }

    fn scheme(&mut self) -> Scheme {
        let name = self.text("scheme").unwrap_or_else(|| "auto".to_owned());
        let name = Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or("auto");
        if name == "hmac" {
            return self.hmac().map_or(Scheme::Auto, Scheme::Hmac);
        }
        let found = Scheme::NAMED.into_iter().find(|(known, _)| *known == name);
        let scheme = found.map(|(_, scheme)| scheme).unwrap_or_else(|| {
            let names: Vec<&str> = Scheme::NAMED.iter().map(|(name, _)| *name).chain(["hmac"]).collect();
            let suggestion = closest(name, names.iter().copied())
                .map(|near| format!("did you mean `{near}`?"))
                .unwrap_or_else(|| format!("schemes are {}", names.join(", ")));
            self.error("scheme", format!("there is no scheme `{name}`"), Some(suggestion));
            Scheme::Auto
        });
        for key in HMAC_KEYS {
            if self.field(key).is_some() {
                self.error(key, "is an option of `scheme: hmac`", Some("add `scheme: hmac`, or remove it".to_owned()));
            }
        }
        scheme
    }

    /// The route's address as the provider has it, without a query.
    fn public_url(&mut self, name: &str, defaults: &RouteDefaults) -> Option<String> {
        let own = self.text("public_url").filter(|url| !url.trim().is_empty());
        let url = match (&own, &defaults.public_url) {
            (Some(own), _) => own.trim().to_owned(),
            (None, Some(listener)) => format!("{}/webhooks/{name}", listener.trim_end_matches('/')),
            (None, None) => return None,
        };
        if !url.starts_with("https://") && !url.starts_with("http://") {
            let suggestion = Some("write `https://example.org/webhooks/…`".to_owned());
            self.error("public_url", "is not an http or https address", suggestion);
            return None;
        }
        Some(url)
    }

    fn hmac(&mut self) -> Option<HmacOptions> {
        let header = self.header_name("header");
        if self.field("header").is_none() {
            let example = "for example `header: X-Signature`".to_owned();
            self.error("header", "`scheme: hmac` needs the name of the header with the signature", Some(example));
        }
        let digests = [("sha256", Algorithm::Sha256), ("sha1", Algorithm::Sha1), ("sha512", Algorithm::Sha512)];
        let encodings = [("either", Encoding::Either), ("hex", Encoding::Hex), ("base64", Encoding::Base64)];
        let timestamp_header = self.header_name("timestamp_header");
        let signed = self.text("signed").unwrap_or_else(|| "{body}".to_owned());
        if !signed.contains("{body}") {
            self.error("signed", "must contain {body}: else any body would verify", None);
        }
        if signed.replace("{body}", "").replace("{timestamp}", "").contains(['{', '}']) {
            self.error("signed", "knows {timestamp} and {body} only", None);
        }
        let signs_time = signed.contains("{timestamp}");
        if signs_time && timestamp_header.is_none() {
            self.error("timestamp_header", "is needed, since `signed` contains {timestamp}", None);
        }
        if !signs_time && timestamp_header.is_some() {
            let suggestion = Some("for example `signed: \"{timestamp}.{body}\"`".to_owned());
            self.warn(
                "signed",
                "does not contain {timestamp}: whoever replays a request may change its time",
                suggestion,
            );
        }
        Some(HmacOptions {
            header: header?,
            algorithm: self.choice("algorithm", &digests).unwrap_or_default(),
            encoding: self.choice("encoding", &encodings).unwrap_or_default(),
            prefix: self.text("prefix").filter(|prefix| !prefix.is_empty()),
            timestamp_header,
            signed,
            tolerance: self.number("tolerance", 1, 86_400).map_or(300, |seconds| i64::try_from(seconds).unwrap_or(300)),
        })
    }

    fn header_name(&mut self, key: &str) -> Option<String> {
        let name = self.text(key)?;
        match HeaderName::from_bytes(name.trim().as_bytes()) {
            Ok(name) => Some(name.as_str().to_owned()),
            Err(_) => {
                self.error(key, "is not a header's name", None);
                None
            }
        }
    }

    /// The route's secrets, and whether nothing is verified. The key being there, even empty, hides the listener's.
    fn secrets(&mut self, scheme: &Scheme, defaults: &RouteDefaults) -> (Vec<SecretString>, bool) {
        let values: Vec<String> = match self.fields.get("secret") {
            None => defaults.secret.iter().map(|secret| secret.expose_secret().to_owned()).collect(),
            Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(list)) if list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Some(Value::Number(_)) => {
                self.error("secret", "must be text, not a number", Some("write it in quotes".to_owned()));
                return (Vec::new(), false);
            }
            Some(_) => {
                self.error("secret", "must be text or a list of texts", None);
                return (Vec::new(), false);
            }
        };
        if values.is_empty() || values.iter().any(|secret| secret.trim().is_empty()) {
            let (message, suggestion) = match self.fields.contains_key("secret") {
                true => ("is blank", "set one, or remove the key to use the listener's"),
                false => ("is missing, here and for the listener", "set `secret`"),
            };
            self.error("secret", message, Some(suggestion.to_owned()));
            return (Vec::new(), false);
        }
        if values.iter().any(|secret| secret.trim() == INSECURE_NO_AUTH) {
            if values.len() > 1 {
                self.error("secret", format!("{INSECURE_NO_AUTH} cannot stand beside other secrets"), None);
            } else if defaults.loopback {
                self.warn(
                    "secret",
                    format!("{INSECURE_NO_AUTH}: nothing is verified, anybody on this machine can post"),
                    None,
                );
            } else {
                let suggestion = Some("set a secret, or listen on 127.0.0.1".to_owned());
                self.error("secret", format!("{INSECURE_NO_AUTH} works on loopback only"), suggestion);
            }
            return (Vec::new(), true);
        }
        for secret in &values {
            self.check_secret(secret, scheme);
        }
        (values.into_iter().map(SecretString::from).collect(), false)
    }

    fn check_secret(&mut self, secret: &str, scheme: &Scheme) {
        let is_pinned = matches!(scheme, Scheme::Svix | Scheme::Standard);
        match svix_key(secret) {
            Err(reason) if is_pinned => self.error("secret", reason, None),
            Err(reason) if *scheme == Scheme::Auto && secret.trim_start().starts_with("v1,") => {
                self.warn("secret", reason, None);
            }
            _ => {}
        }
        if secret.trim() != secret {
            self.warn("secret", "begins or ends with a blank, which counts", None);
        }
        if secret.chars().count() < SHORT_SECRET {
            self.warn("secret", format!("is shorter than {SHORT_SECRET} characters and can be guessed"), None);
        }
    }

    /// The tools that the names stand for. A misspelt one is an error: its route would run with less than it needs.
    fn tools(&mut self) -> Option<Vec<String>> {
        let names: Vec<String> = match self.field("tools")? {
            Value::String(text) => text.split(',').map(str::to_owned).collect(),
            Value::Array(list) if list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => {
                let suggestion = Some("for example `tools: [web, clarify]`, or `[none]`".to_owned());
                self.error("tools", "must be a list of toolsets or tools", suggestion);
                return None;
            }
        };
        let names: Vec<String> = names.into_iter().filter(|name| !name.trim().is_empty()).collect();
        let expanded = toolset::expand(&names, toolset::TOOLS);
        for (name, near) in &expanded.unknown {
            let suggestion = near.map_or_else(
                || "toolsets are terminal, file, web, messaging, clarify, todo, safe, all, none".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            self.error("tools", format!("there is no toolset or tool `{name}`"), Some(suggestion));
        }
        if !expanded.not_yet.is_empty() {
            self.warn("tools", format!("not supported yet: {}", expanded.not_yet.join(", ")), None);
        }
        Some(expanded.tools)
    }

    fn events(&mut self) -> Vec<String> {
        let events: Vec<String> = match self.field("events") {
            None => Vec::new(),
            Some(Value::String(text)) => text.split(',').map(str::to_owned).collect(),
            Some(Value::Array(list)) if list.iter().all(|event| event.is_string() || event.is_number()) => {
                list.iter().map(|event| event.as_str().map_or_else(|| event.to_string(), str::to_owned)).collect()
            }
            Some(_) => {
                self.error("events", "must be a list of event names", None);
                Vec::new()
            }
        };
        events.iter().map(|event| event.trim().to_owned()).filter(|event| !event.is_empty()).collect()
    }

    /// Only the boolean `false` disables, as in the reference.
    fn enabled(&mut self) -> bool {
        match self.field("enabled") {
            None | Some(Value::Bool(true)) => true,
            Some(Value::Bool(false)) => false,
            Some(_) => {
                let suggestion = Some("write false without quotes to disable it".to_owned());
                self.warn("enabled", "is not true or false: the route stays enabled", suggestion);
                true
            }
        }
    }

    fn replay_guard(&mut self) -> bool {
        match self.field("replay_guard") {
            Some(Value::Bool(on)) => *on,
            _ => self.choice("replay_guard", &[("body", true), ("off", false)]).unwrap_or(false),
        }
    }

    fn missing(&mut self) -> Missing {
        let choices = [("keep", Missing::Keep), ("empty", Missing::Empty), ("error", Missing::Error)];
        self.choice("missing", &choices).unwrap_or_default()
    }

    fn session(&mut self) -> SessionChoice {
        let Some(text) = self.text("session") else { return SessionChoice::Delivery };
        match text.trim() {
            "delivery" => SessionChoice::Delivery,
            "route" => SessionChoice::Route,
            template if has_placeholder(template) => {
                for problem in check_template(template) {
                    self.problems.push(RouteProblem { path: "session".to_owned(), ..problem });
                }
                SessionChoice::Template(template.to_owned())
            }
            _ => {
                let suggestion = Some("for example `session: \"{repository.full_name}\"`".to_owned());
                self.error("session", "must be `delivery`, `route` or a text with a placeholder", suggestion);
                SessionChoice::Delivery
            }
        }
    }

    /// Running a route without its filter or script would handle events that were meant to be dropped.
    fn refuse_what_is_to_come(&mut self) {
        for key in ["filters", "script"] {
            // An empty object of filters matches nothing in the reference: it is a filter too.
            let value = self.field(key).filter(|value| !is_blank(value) || value.is_object());
            if value.is_some() {
                let suggestion = Some("remove it to handle every event".to_owned());
                self.error(key, format!("`{key}` is not supported yet, and without it events would pass"), suggestion);
            }
        }
        match self.text("engine").as_deref().map(str::trim) {
            None | Some("") => {}
            Some("jinja") => self.error("engine", "`engine: jinja` is not supported yet", None),
            Some(_) => self.error("engine", "there is no such engine", Some("remove the key".to_owned())),
        }
        for key in IDLE_KEYS {
            if self.field(key).is_some_and(|value| !is_blank(value)) {
                self.warn(key, format!("`{key}` is not supported yet and does nothing"), None);
            }
        }
    }

    fn deliver(&mut self, defaults: &RouteDefaults) -> Option<Deliver> {
        let extra = self.extra();
        let targets: Vec<&str> = match self.field("deliver") {
            None => vec!["log"],
            Some(Value::String(text)) => vec![text.as_str()],
            Some(Value::Array(list)) if !list.is_empty() && list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => {
                self.error("deliver", "must be a target or a list of targets", Some(valid_forms()));
                return None;
            }
        };
        self.check_extra_chat(&targets, &extra);
        let mut parsed = Vec::new();
        for target in targets {
            parsed.push(self.target(target.trim(), &extra, defaults)?);
        }
        if parsed.len() > 1 { Some(Deliver::Many(parsed)) } else { parsed.pop() }
    }

    /// Warns of a `chat_id` that no target takes.
    fn check_extra_chat(&mut self, targets: &[&str], extra: &Extra) {
        let Some(chat_id) = &extra.chat_id else { return };
        let is_log = |target: &&&str| matches!(target.trim(), "" | "log");
        let chats: Vec<&str> = targets.iter().filter(|target| !is_log(target)).copied().collect();
        if chats.is_empty() {
            let suggestion = Some("set `deliver`, for example to `telegram`".to_owned());
            self.warn("deliver_extra.chat_id", "does nothing while `deliver` is `log`", suggestion);
            return;
        }
        let named = |target: &str| split_target(target).get(1).map(|chat| chat.trim().to_owned());
        if chats.iter().all(|target| named(target).is_some())
            && let Some(target) = chats.iter().find(|target| named(target).as_ref() != Some(chat_id))
        {
            let target = target.trim();
            let message = format!("does nothing: `deliver` names the chat already, as `{target}`");
            self.warn("deliver_extra.chat_id", message, None);
        }
    }

    fn extra(&mut self) -> Extra {
        let fields = match self.field("deliver_extra") {
            None => return Extra::default(),
            Some(Value::Object(fields)) => fields,
            Some(other) => {
                self.wrong_type("deliver_extra", "a mapping", other);
                return Extra::default();
            }
        };
        const NAMES: [&str; 3] = ["chat_id", "message_thread_id", "thread_id"];
        for key in fields.keys().filter(|key| !NAMES.contains(&key.as_str())) {
            let suggestion = closest(key, NAMES).map(|name| format!("did you mean `{name}`?"));
            self.warn(&format!("deliver_extra.{key}"), "there is no such key, it does nothing", suggestion);
        }
        let mut id = |key: &str| {
            let path = format!("deliver_extra.{key}");
            match fields.get(key)? {
                Value::Null => None,
                Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
                Value::Number(number) if !number.is_f64() => Some(number.to_string()),
                _ => {
                    self.error(&path, "must be an id or a template of one, not blank", None);
                    None
                }
            }
        };
        let (chat_id, message_thread_id, thread_id) = (id("chat_id"), id("message_thread_id"), id("thread_id"));
        Extra { chat_id, thread_id: message_thread_id.or(thread_id) }
    }

    fn target(&mut self, text: &str, extra: &Extra, defaults: &RouteDefaults) -> Option<Deliver> {
        let parts = split_target(text);
        let explicit = |index: usize| parts.get(index).map(|part| part.trim().to_owned());
        let (name, account) = match parts[0].split_once('@') {
            Some((_, "")) | None => (parts[0], ""),
            Some(both) => both,
        };
        let platform = match (name, parts.len()) {
            ("" | "log", 1) if account.is_empty() => return Some(Deliver::Log),
            ("telegram", 1..=3) => Platform::Telegram,
            ("local", 1..=2) if account.is_empty() => Platform::Local,
            (name, count) => {
                self.error("deliver", unusable_target(text, name, count), Some(valid_forms()));
                return None;
            }
        };
        if parts[1..].iter().any(|part| part.trim().is_empty()) {
            self.error("deliver", format!("`{text}` names no chat after the `:`"), Some(valid_forms()));
            return None;
        }
        let home = defaults.telegram.get(account);
        if platform == Platform::Telegram && home.is_none() {
            let (message, suggestion) = if account.is_empty() {
                let suggestion = match defaults.telegram.keys().next() {
                    None => "set TELEGRAM_BOT_TOKEN, or deliver elsewhere".to_owned(),
                    Some(named) => format!("name an account, `telegram@{named}`, or set TELEGRAM_BOT_TOKEN"),
                };
                ("goes to Telegram, which is not configured".to_owned(), suggestion)
            } else {
                let named = defaults.telegram.keys().filter(|name| !name.is_empty()).map(|name| format!("`{name}`"));
                let named = named.collect::<Vec<_>>().join(", ");
                let suggestion = match named.as_str() {
                    "" => "platforms.telegram.accounts has none".to_owned(),
                    named => format!("there are {named}"),
                };
                (format!("there is no Telegram account `{account}`"), suggestion)
            };
            self.error("deliver", message, Some(suggestion));
            return None;
        }
        let mut thread_id = explicit(2).or_else(|| extra.thread_id.clone());
        let chat_id = match (explicit(1).or_else(|| extra.chat_id.clone()), platform) {
            (Some(chat), _) => chat,
            (None, Platform::Local) => CONSOLE_CHAT.to_owned(),
            (None, _) => match home.and_then(Option::as_ref) {
                Some(home) => {
                    thread_id = thread_id.or_else(|| home.thread_id.clone());
                    home.chat_id.clone()
                }
                None => {
                    let home = match account {
                        "" => "TELEGRAM_HOME_CHANNEL".to_owned(),
                        account => format!("platforms.telegram.accounts.{account}.home_channel"),
                    };
                    let suggestion = format!("write `{}:CHAT`, set deliver_extra.chat_id, or set {home}", parts[0]);
                    let message = format!("`{}` names no chat and there is no home channel", parts[0]);
                    self.error("deliver", message, Some(suggestion));
                    return None;
                }
            },
        };
        let path = if explicit(1).is_some() { "deliver" } else { "deliver_extra" };
        let ids: Vec<&str> = std::iter::once(chat_id.as_str()).chain(thread_id.as_deref()).collect();
        for problem in ids.iter().flat_map(|id| check_template(id)) {
            self.problems.push(RouteProblem { path: path.to_owned(), ..problem });
        }
        let is_template = ids.iter().any(|id| has_placeholder(id));
        let problem = match ids.iter().find(|id| has_stray_brace(id)) {
            Some(id) => Err(format!("`{id}` is not a placeholder that can be filled")),
            None if is_template => Ok(()),
            None => check_ids(platform, &chat_id, thread_id.as_deref()),
        };
        if let Err(message) = problem {
            self.error(path, message, Some(valid_forms()));
            return None;
        }
        Some(match is_template {
            true => Deliver::Template { platform, account: account.to_owned(), chat_id, thread_id },
            false => {
                let account = account.to_owned();
                Deliver::Chat(ChatTarget { account, ..chat_target(platform, chat_id, thread_id) })
            }
        })
    }
}

fn valid_forms() -> String {
    format!("valid are {TARGET_FORMS}")
}

fn unusable_target(text: &str, name: &str, parts: usize) -> String {
    let mut message = format!("`{text}` is not a target");
    let known = ["log", "telegram", "local"];
    if known.contains(&name) {
        let _ = write!(message, ": `{name}` does not take {} parts", parts - 1);
    } else if matches!(name, "discord" | "slack" | "github_comment" | "webhook") {
        let _ = write!(message, ": `{name}` is not supported yet");
    } else if let Some(near) = closest(name.split('/').next().unwrap_or_default(), known) {
        let _ = write!(message, "; did you mean `{near}`?");
    }
    message
}

/// Splits `platform:chat:thread` at colons that are not inside braces.
fn split_target(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|character| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ':' && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use serde_json::json;

    use super::*;
    use crate::webhook::payload::Payload;

    fn defaults() -> RouteDefaults {
        RouteDefaults {
            secret: Some(SecretString::from("listener secret")),
            loopback: true,
            telegram: home(Some(chat_target(Platform::Telegram, "-1001".to_owned(), Some("7".to_owned())))),
            public_url: None,
        }
    }

    fn home(of_the_unnamed: Option<ChatTarget>) -> BTreeMap<String, Option<ChatTarget>> {
        BTreeMap::from([(String::new(), of_the_unnamed)])
    }

    fn parsed(value: &Value) -> (Route, Vec<RouteProblem>) {
        parse_route("r", value, &defaults()).unwrap_or_else(|problems| panic!("{value}: {problems:?}"))
    }

    fn route(value: &Value) -> Route {
        let (route, warnings) = parsed(value);
        assert_eq!(warnings, [], "{value}");
        route
    }

    /// The errors, shown.
    fn errors(value: &Value, defaults: &RouteDefaults) -> String {
        let problems = parse_route("r", value, defaults).map(|(route, _)| route).expect_err(&value.to_string());
        let errors = problems.iter().filter(|problem| !problem.warning).map(ToString::to_string);
        errors.collect::<Vec<_>>().join("; ")
    }

    fn warnings(value: &Value) -> String {
        parsed(value).1.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn telegram(chat: &str, thread: Option<&str>) -> Deliver {
        Deliver::Chat(chat_target(Platform::Telegram, chat.to_owned(), thread.map(str::to_owned)))
    }

    #[test]
    fn an_empty_route_has_the_defaults() {
        let route = route(&json!({}));
        assert_eq!(route.name, "r");
        assert_eq!(route.secrets[0].expose_secret(), "listener secret");
        assert_eq!((route.scheme, route.deliver, route.session), (Scheme::Auto, Deliver::Log, SessionChoice::Delivery));
        assert_eq!((route.raw_limit, route.rate_limit, route.missing), (4_000, None, Missing::Keep));
        assert!(route.enabled && !route.deliver_only && !route.insecure && !route.replay_guard);
        assert!(route.events.is_empty() && route.prompt.is_empty());
    }

    #[test]
    fn the_reference_routes_load() {
        let route = route(&json!({
            "description": "pushes", "events": ["push", "issues.opened"], "secret": "s3cret s3cret", "prompt": "D {m}",
            "skills": [], "deliver": "telegram", "created_at": "2026-11-30T19:08:13Z", "deliver_only": true,
            "deliver_extra": {"chat_id": "{chat}", "message_thread_id": "{th}"}, "filters": null, "script": "",
        }));
        assert_eq!(route.events, ["push", "issues.opened"]);
        assert!(route.deliver_only);
        let template = Deliver::Template {
            platform: Platform::Telegram,
            account: String::new(),
            chat_id: "{chat}".to_owned(),
            thread_id: Some("{th}".to_owned()),
        };
        assert_eq!(route.deliver, template);
    }

    #[test]
    fn targets_are_read_in_all_their_forms() {
        let local = |chat: &str| Deliver::Chat(chat_target(Platform::Local, chat.to_owned(), None));
        for (deliver, extra, expected) in [
            (json!("log"), json!({}), Deliver::Log),
            (json!(""), json!(null), Deliver::Log),
            (json!("telegram"), json!({}), telegram("-1001", Some("7"))),
            (json!("telegram"), json!({"chat_id": -42}), telegram("-42", None)),
            (json!("telegram"), json!({"chat_id": "42", "thread_id": 5}), telegram("42", Some("5"))),
            (json!("telegram:-42"), json!({}), telegram("-42", None)),
            (json!("telegram:-42"), json!({"thread_id": "5"}), telegram("-42", Some("5"))),
            (json!("telegram:-42:5"), json!({"thread_id": "9"}), telegram("-42", Some("5"))),
            (json!("telegram:@news_room"), json!({}), telegram("@news_room", None)),
            (json!("local"), json!({}), local("console")),
            (json!("local:ops"), json!({}), local("ops")),
            (json!(["log", "telegram:42"]), json!({}), Deliver::Many(vec![Deliver::Log, telegram("42", None)])),
            (json!(["local"]), json!({}), local("console")),
        ] {
            assert_eq!(
                route(&json!({"deliver": deliver, "deliver_extra": extra})).deliver,
                expected,
                "{deliver} {extra}"
            );
        }
        let with_filter = route(&json!({"deliver": "telegram:{chat.id|default:42}:{t|default:7}"}));
        let template = Deliver::Template {
            platform: Platform::Telegram,
            account: String::new(),
            chat_id: "{chat.id|default:42}".to_owned(),
            thread_id: Some("{t|default:7}".to_owned()),
        };
        assert_eq!(with_filter.deliver, template, "a colon inside braces belongs to the filter");
    }

    #[test]
    fn a_target_names_the_bot_that_speaks() {
        let bot = |chat: &str, thread: Option<&str>| ChatTarget {
            account: "ops".to_owned(),
            ..chat_target(Platform::Telegram, chat.to_owned(), thread.map(str::to_owned))
        };
        let bots = BTreeMap::from([("ops".to_owned(), Some(bot("-5", Some("3")))), ("quiet".to_owned(), None)]);
        let defaults = RouteDefaults { telegram: bots, ..defaults() };
        let deliver = |deliver: &str| {
            let parsed = parse_route("r", &json!({"deliver": deliver}), &defaults).map(|(route, _)| route.deliver);
            parsed.map_err(|problems| problems[0].to_string())
        };
        assert_eq!(deliver("telegram@ops"), Ok(Deliver::Chat(bot("-5", Some("3")))));
        assert_eq!(deliver("telegram@ops:42:7"), Ok(Deliver::Chat(bot("42", Some("7")))));
        let template = deliver("telegram@ops:{chat}").unwrap();
        assert_eq!(template.to_string(), "telegram@ops:{chat}");
        let route = Route { deliver: template, ..route(&json!({})) };
        let payload = Payload::parse(Some("application/json"), br#"{"chat": 42}"#).unwrap();
        let context = RenderContext {
            payload: &payload,
            event: "e",
            route: "r",
            headers: &HeaderMap::new(),
            missing: Missing::Keep,
            raw_limit: 4_000,
        };
        assert_eq!(resolve_targets(&route, &context), Ok(vec![Target::Chat(bot("42", None))]));
        for (wrong, told) in [
            ("telegram@nobody:42", "deliver: there is no Telegram account `nobody` (there are `ops`, `quiet`)"),
            (
                "telegram:42",
                "deliver: goes to Telegram, which is not configured (name an account, `telegram@ops`, or set TELEGRAM_BOT_TOKEN)",
            ),
            (
                "telegram@quiet",
                "deliver: `telegram@quiet` names no chat and there is no home channel (write `telegram@quiet:CHAT`, set deliver_extra.chat_id, or set platforms.telegram.accounts.quiet.home_channel)",
            ),
        ] {
            assert_eq!(deliver(wrong), Err(told.to_owned()));
        }
        for wrong in ["log@ops", "local@ops:x", "telegram@:5"] {
            assert!(deliver(wrong).unwrap_err().contains("is not a target"), "{wrong}");
        }
    }

    #[test]
    fn unusable_targets_are_errors_that_list_the_forms() {
        for deliver in [
            "telegarm",
            "telegram/all",
            "telegram:",
            "telegram: ",
            "telegram::5",
            "telegram:42:",
            "telegram:1:2:3",
            "telegram:all",
            "telegram:{chat-id}",
            "telegram:{",
            "local:",
            "log:x",
            "Telegram",
            "discord",
            "email",
            "local:{x-y}",
            "local:{a}{x-y}",
            "telegram:42:main",
        ] {
            let errors = errors(&json!({"deliver": deliver}), &defaults());
            assert!(errors.contains(TARGET_FORMS), "{deliver}: {errors}");
        }
        assert!(errors(&json!({"deliver": "telegarm"}), &defaults()).contains("did you mean `telegram`?"));
        for deliver in [json!([]), json!(5), json!(["log", 5]), json!({"telegram": 42})] {
            errors(&json!({"deliver": deliver}), &defaults());
        }
        for chat_id in [json!(""), json!("  "), json!(1.5), json!(true), json!(["42"]), json!("all")] {
            errors(&json!({"deliver": "telegram", "deliver_extra": {"chat_id": chat_id}}), &defaults());
        }
        let homeless = RouteDefaults { telegram: home(None), ..defaults() };
        assert!(errors(&json!({"deliver": "telegram"}), &homeless).contains("no home channel"));
        let without = RouteDefaults { telegram: BTreeMap::new(), ..defaults() };
        assert!(errors(&json!({"deliver": "telegram:42"}), &without).contains("not configured"));
    }

    #[test]
    fn secrets_follow_their_rules() {
        assert_eq!(route(&json!({"secret": ["old secret", "new secret"]})).secrets.len(), 2);
        let no_default = RouteDefaults { secret: None, ..defaults() };
        assert!(errors(&json!({}), &no_default).contains("missing"));
        for blank in [json!(""), json!(null), json!([]), json!("   "), json!(["good secret", " "])] {
            let errors = errors(&json!({"secret": blank}), &defaults());
            assert!(errors.contains("secret: is blank"), "no fallback to the listener's: {errors}");
        }
        for wrong in [json!(12345678), json!(true), json!({"a": 1}), json!(["good secret", 5])] {
            errors(&json!({"secret": wrong}), &defaults());
        }
        assert!(warnings(&json!({"secret": "short"})).contains("shorter than 8"));
        assert!(warnings(&json!({"secret": "long enough\n"})).contains("blank"));

        let (open, problems) = parsed(&json!({"secret": INSECURE_NO_AUTH}));
        assert!(open.insecure && open.secrets.is_empty() && problems[0].warning);
        let public = RouteDefaults { loopback: false, ..defaults() };
        assert!(errors(&json!({"secret": INSECURE_NO_AUTH}), &public).contains("loopback only"));
        assert!(errors(&json!({"secret": [INSECURE_NO_AUTH, "good secret"]}), &defaults()).contains("beside"));
        let inherited = RouteDefaults { secret: Some(SecretString::from(INSECURE_NO_AUTH)), ..public };
        assert!(errors(&json!({}), &inherited).contains("loopback only"));
    }

    #[test]
    fn secrets_that_the_vectors_refuse_are_refused_and_not_shown() {
        let file = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/signature.json"));
        let file: Value = serde_json::from_str(file).expect("vectors");
        let cases = file["cases"].as_array().expect("cases").iter().filter(|case| case["scheme"] == "config");
        let mut checked = 0;
        for case in cases {
            assert_eq!(case["load_error"], true, "{case}");
            for scheme in [case["for_scheme"].as_str().expect("scheme"), "standard"] {
                let errors = errors(&json!({"scheme": scheme, "secret": case["secret"]}), &defaults());
                assert!(errors.starts_with("secret: "), "{case}: {errors}");
                assert!(!errors.contains("MfKQ9r8") && !errors.contains("!!!!"), "{errors}");
            }
            checked += 1;
        }
        assert_eq!(checked, 4);
        assert!(errors(&json!({"scheme": "svix", "secret": "whsec_QQ=="}), &defaults()).contains("16 bytes"));
        route(&json!({"scheme": "svix", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}));
        route(&json!({"scheme": "svix", "secret": "rawsecretvalue0123456789"}));
        route(&json!({"scheme": "stripe", "secret": "whsec_not+base64!"}));
        route(&json!({"secret": "whsec_not+base64!"}));
        let (pasted, warnings) = parsed(&json!({"secret": "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}));
        assert!(warnings[0].message.contains("v1,"));
        let shown = format!("{pasted:?} {warnings:?}");
        assert!(!shown.contains("MfKQ9r8"), "{shown}");
        assert_eq!(webhook_secret_values(&pasted).len(), 1);
    }

    #[test]
    fn schemes_and_their_options() {
        let redmine = route(&json!({"scheme": "hmac", "header": "X-Redmine-Signature-256", "algorithm": "sha256"}));
        let Scheme::Hmac(options) = redmine.scheme else { panic!("{:?}", redmine.scheme) };
        assert_eq!(options.header, "x-redmine-signature-256");
        assert_eq!((options.encoding, options.tolerance, options.signed.as_str()), (Encoding::Either, 300, "{body}"));
        let all = route(&json!({
            "scheme": "hmac", "header": "x-sig", "algorithm": "sha512", "encoding": "base64", "prefix": "v0=",
            "timestamp_header": "X-Time", "signed": "{timestamp}.{body}", "tolerance": 60,
        }));
        let Scheme::Hmac(options) = all.scheme else { panic!("{:?}", all.scheme) };
        assert_eq!(options.timestamp_header.as_deref(), Some("x-time"));
        assert_eq!((options.algorithm, options.tolerance), (Algorithm::Sha512, 60));
        for wrong in [
            json!({"scheme": "hmac"}),
            json!({"scheme": "hmac", "header": "a b"}),
            json!({"scheme": "hmac", "header": "x", "algorithm": "md5"}),
            json!({"scheme": "hmac", "header": "x", "signed": "{timestamp}"}),
            json!({"scheme": "hmac", "header": "x", "signed": "{timestamp}{body}"}),
            json!({"scheme": "hmac", "header": "x", "signed": "{ts}.{body}"}),
            json!({"scheme": "hmac", "header": "x", "tolerance": -1}),
            json!({"header": "x-sig"}),
            json!({"scheme": "github", "header": "x-sig"}),
            json!({"scheme": "slak"}),
            json!({"scheme": "twilio"}),
            json!({"scheme": "twilio", "public_url": "hooks.example.org"}),
            json!({"scheme": 5}),
        ] {
            errors(&wrong, &defaults());
        }
        for (name, scheme) in Scheme::NAMED {
            let address = json!({"scheme": name, "public_url": "https://hooks.example.org/webhooks/x"});
            assert_eq!(route(&address).scheme, scheme);
        }
        let listener = RouteDefaults { public_url: Some("https://hooks.example.org".to_owned()), ..defaults() };
        let value = json!({"scheme": "twilio", "secret": "a-long-secret"});
        let (twilio, _) = parse_route("sms", &value, &listener).expect("usable");
        assert_eq!(twilio.public_url.as_deref(), Some("https://hooks.example.org/webhooks/sms"));
        assert!(errors(&json!({"scheme": "Github"}), &defaults()).contains("did you mean `github`?"));
        assert!(warnings(&json!({"scheme": "hmac", "header": "x", "timestamp_header": "t"})).contains("replays"));
    }

    #[test]
    fn only_a_false_without_quotes_disables() {
        assert!(!route(&json!({"enabled": false})).enabled);
        let (route, warnings) = parsed(&json!({"enabled": "false"}));
        assert!(route.enabled && warnings[0].path == "enabled");
    }

    #[test]
    fn every_other_field_has_a_type() {
        let full = route(&json!({
            "events": "push, issues ,", "replay_guard": "body", "missing": "empty", "raw_limit": 500, "rate_limit": 5,
            "session": "{repository.full_name}", "deliver_only": "yes",
        }));
        assert_eq!(full.events, ["push", "issues"]);
        assert_eq!((full.missing, full.raw_limit, full.rate_limit), (Missing::Empty, 500, Some(5)));
        assert_eq!(full.session, SessionChoice::Template("{repository.full_name}".to_owned()));
        assert!(full.replay_guard && full.deliver_only);
        for (key, wrong) in [
            ("events", json!({"push": 1})),
            ("events", json!([["push"]])),
            ("prompt", json!(["a"])),
            ("deliver_only", json!("maybe")),
            ("deliver_extra", json!("42")),
            ("replay_guard", json!("id")),
            ("missing", json!("drop")),
            ("raw_limit", json!(0)),
            ("rate_limit", json!(0)),
            ("rate_limit", json!(1.5)),
            ("session", json!("shared")),
            ("engine", json!("jinja")),
            ("filters", json!([{"field": "x", "exists": true}])),
            ("filters", json!({})),
            ("script", json!("check.sh")),
        ] {
            let problems = parse_route("r", &json!({key: wrong}), &defaults()).map(|(route, _)| route).expect_err(key);
            assert!(problems.iter().any(|problem| problem.path == key && !problem.warning), "{key}: {problems:?}");
        }
        for value in [json!(null), json!("x"), json!([]), json!(5)] {
            errors(&value, &defaults());
        }
        for name in ["", " ", "a/b", "a\n"] {
            assert!(parse_route(name, &json!({}), &defaults()).is_err(), "{name:?}");
        }
        assert!(parse_route("Ünïcode name.v2", &json!({}), &defaults()).is_ok());
    }

    #[test]
    fn the_tools_of_a_route_are_toolsets_and_tools() {
        for (value, tools) in [
            (json!(null), None),
            (json!([]), Some(&[][..])),
            (json!(["none"]), Some(&[])),
            (json!("web, todo"), Some(&["web_search", "web_extract", "todo"][..])),
            (json!(["read_file", "safe"]), Some(&["read_file", "web_search", "web_extract", "clarify"][..])),
        ] {
            let found = route(&json!({"tools": value})).tools;
            assert_eq!(found, tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()), "{value}");
        }
        assert!(warnings(&json!({"tools": ["vision", "web"]})).contains("tools: not supported yet: vision"));
        for (value, told) in [
            (json!(["termnal"]), "there is no toolset or tool `termnal` (did you mean `terminal`?)"),
            (json!(["qqqq"]), "there is no toolset or tool `qqqq` (toolsets are terminal, file"),
            (json!([1]), "must be a list of toolsets or tools"),
            (json!(true), "must be a list of toolsets or tools"),
        ] {
            let errors = errors(&json!({"tools": value}), &defaults());
            assert!(errors.contains(told), "{value}: {errors}");
        }
    }

    #[test]
    fn keys_that_do_nothing_are_told() {
        assert!(warnings(&json!({"promt": "x"})).contains("did you mean `prompt`?"));
        assert!(warnings(&json!({"deliver_chat_d": "1"})).contains("did you mean `deliver_extra.chat_id`?"));
        assert!(warnings(&json!({"chat_id": "1"})).contains("did you mean `deliver_extra.chat_id`?"));
        assert!(warnings(&json!({"skills": ["review"]})).contains("skills: "));
        assert!(warnings(&json!({"zzzzzzzz": 1})).contains("no such key"));
        assert!(warnings(&json!({"deliver_extra": {"chat_id": "5"}})).contains("while `deliver` is `log`"));
        let extra = json!({"deliver": "telegram:1", "deliver_extra": {"chat_id": "2", "chatid": "3"}});
        let (route, problems) = parsed(&extra);
        assert_eq!(route.deliver, telegram("1", None), "the chat that is named is never replaced");
        assert_eq!(
            problems.iter().map(|problem| problem.path.as_str()).collect::<Vec<_>>(),
            ["deliver_extra.chatid", "deliver_extra.chat_id"]
        );
        let problems = warnings(&json!({"prompt": "see {payload} {title|uper}"}));
        assert!(
            problems.contains("prompt: ") && problems.contains("{__raw__}") && problems.contains("`upper`"),
            "{problems}"
        );
    }

    #[test]
    fn targets_are_resolved_for_each_delivery_or_not_at_all() {
        let resolve = |deliver: Value, extra: Value, body: &str| {
            let route = parsed(&json!({"deliver": deliver, "deliver_extra": extra})).0;
            let payload = Payload::parse(None, body.as_bytes()).expect("json");
            let headers = HeaderMap::new();
            let context = RenderContext {
                payload: &payload,
                event: "e",
                route: "r",
                headers: &headers,
                missing: Missing::Keep,
                raw_limit: 4_000,
            };
            resolve_targets(&route, &context)
        };
        let chat = |chat: &str, thread: Option<&str>| {
            Target::Chat(chat_target(Platform::Telegram, chat.to_owned(), thread.map(str::to_owned)))
        };
        let extra = json!({"chat_id": "{chat}", "thread_id": "{th}"});
        let found = resolve(json!("telegram"), extra.clone(), r#"{"chat":"777","th":42}"#);
        assert_eq!(found, Ok(vec![chat("777", Some("42"))]));
        let found =
            resolve(json!(["telegram:{chat.id}", "log", "telegram:-5", "log"]), json!({}), r#"{"chat":{"id":-5}}"#);
        assert_eq!(found, Ok(vec![chat("-5", None), Target::Log]), "each target once");
        for body in [
            "{}",
            r#"{"chat":"777"}"#,
            r#"{"chat":"","th":1}"#,
            r#"{"chat":" ","th":1}"#,
            r#"{"chat":null,"th":1}"#,
            r#"{"chat":{"id":1},"th":1}"#,
            r#"{"chat":true,"th":1}"#,
            r#"{"chat":"{chat}","th":1}"#,
            r#"{"chat":"someone else","th":1}"#,
            r#"{"chat":1.5,"th":1}"#,
            r#"{"chat":"1","th":"x"}"#,
            "[]",
        ] {
            let error = resolve(json!("telegram"), extra.clone(), body).expect_err(body);
            assert!(error.starts_with("the telegram ") && !error.contains("someone"), "{error}");
        }
        let fallback = resolve(json!("telegram:{chat|default:9}"), json!({}), r#"{"chat":null}"#);
        assert_eq!(fallback, Ok(vec![chat("9", None)]));
        assert!(resolve(json!("local:{room}"), json!({}), r#"{"room":"a\nb"}"#).is_err());
    }
}
