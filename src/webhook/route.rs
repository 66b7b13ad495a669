//! A webhook endpoint, from `config.yaml` or `webhook_subscriptions.json`, checked.

use hookgate_adapters::ChatTarget;
use secrecy::SecretString;

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
    /// A configured header.
    Hmac(HmacOptions),
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
        /// Template of the chat's id.
        chat_id: String,
        /// Template of the thread's id.
        thread_id: Option<String>,
    },
    /// Several of them.
    Many(Vec<Deliver>),
}

/// What a route takes from its surroundings.
#[derive(Debug, Clone, Default)]
pub struct RouteDefaults {
    /// The listener's secret, for routes without their own.
    pub secret: Option<SecretString>,
    /// Whether only this machine can reach the listener.
    pub loopback: bool,
    /// Where a bare `telegram` goes.
    pub telegram_home: Option<ChatTarget>,
    /// Telegram is configured.
    pub telegram_enabled: bool,
}

/// Something wrong in a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteProblem {
    /// The key inside the route, `deliver_extra.chat_id`; empty: the route itself.
    pub path: String,
    /// What is wrong, one sentence.
    pub message: String,
    /// What was probably meant, or what to do.
    pub suggestion: Option<String>,
    /// Only a warning.
    pub warning: bool,
}

/// Reads a route, from either file. `Ok` comes with its warnings.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_route(
    name: &str,
    value: &serde_json::Value,
    defaults: &RouteDefaults,
) -> Result<(Route, Vec<RouteProblem>), Vec<RouteProblem>> {
    let problem = |warning: bool, path: &str, message: &str, suggestion: Option<&str>| RouteProblem {
        path: path.to_owned(),
        message: message.to_owned(),
        suggestion: suggestion.map(str::to_owned),
        warning,
    };
    let error = |path: &str, message: &str| vec![problem(false, path, message, None)];
    let Some(map) = value.as_object() else { return Err(error("", "a route is a mapping")) };
    let mut warnings = Vec::new();
    if map.contains_key("deliver_chat_d") {
        let suggestion = Some("did you mean `deliver_extra.chat_id`?");
        warnings.push(problem(true, "deliver_chat_d", "there is no such key, it does nothing", suggestion));
    }
    let secret = match map.get("secret") {
        Some(secret) => secret.as_str().map(SecretString::from),
        None => defaults.secret.clone(),
    };
    let Some(secret) = secret else { return Err(error("secret", "the route has no secret")) };
    let insecure = secrecy::ExposeSecret::expose_secret(&secret) == "INSECURE_NO_AUTH";
    if insecure && !defaults.loopback {
        return Err(error("secret", "INSECURE_NO_AUTH works on loopback only"));
    }
    if insecure {
        warnings.push(problem(true, "secret", "nothing verifies requests to this route", None));
    }
    let text = |key: &str| map.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let extra = map.get("deliver_extra").and_then(|extra| extra.get("chat_id")?.as_str());
    if extra == Some("") {
        return Err(error("deliver_extra.chat_id", "must be an id, not blank"));
    }
    let chat = |chat_id: &str| {
        let platform = hookgate_adapters::Platform::Telegram;
        ChatTarget { platform, account: String::new(), chat_id: chat_id.to_owned(), thread_id: None }
    };
    let deliver = match (text("deliver").as_str(), extra, &defaults.telegram_home) {
        ("" | "log", ..) => Deliver::Log,
        ("telegram", Some(extra), _) if defaults.telegram_enabled => Deliver::Chat(chat(extra)),
        ("telegram", None, Some(home)) if defaults.telegram_enabled => Deliver::Chat(home.clone()),
        _ => return Err(error("deliver", "goes nowhere")),
    };
    let route = Route {
        name: name.to_owned(),
        secrets: if insecure { Vec::new() } else { vec![secret] },
        insecure,
        scheme: Scheme::Auto,
        events: Vec::new(),
        prompt: text("prompt"),
        deliver,
        deliver_only: map.get("deliver_only") == Some(&true.into()),
        enabled: map.get("enabled") != Some(&false.into()),
        description: text("description"),
        replay_guard: false,
        missing: Missing::Keep,
        raw_limit: 4_000,
        session: SessionChoice::Delivery,
        rate_limit: None,
    };
    Ok((route, warnings))
}
