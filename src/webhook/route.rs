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
