//! What a model is to the agent: a conversation goes in, an answer comes out in pieces. Nothing here knows a wire format;
//! each dialect below does, and each says of its failures whether another attempt may help.

mod echo;
mod openai;
mod refusal;
mod retry_after;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::config;
use crate::session::Role;

pub use echo::Echo;
pub use openai::OpenAi;

/// The built-in model that `model` in the configuration asks for.
///
/// # Errors
/// When the address, the name or the key can never work; the sentence names the key of the configuration.
pub fn from_config(model: &config::Model) -> anyhow::Result<Arc<dyn Model>> {
    Ok(match model.provider {
        config::Provider::Echo => Arc::new(Echo::default()),
        config::Provider::OpenAi => Arc::new(OpenAi::new(model)?),
    })
}

/// Is given each new piece of an answer.
pub type OnDelta<'a> = dyn FnMut(&str) + Send + 'a;

/// Something that answers. Dropping the future of [`complete`](Self::complete) ends the work at once.
#[async_trait]
pub trait Model: Send + Sync {
    /// Who answers, for hooks and logs.
    fn about(&self) -> &About;

    /// The request as it goes over the wire, without the key. Built only for hooks that watch requests.
    fn body(&self, request: &ModelRequest) -> Value;

    /// One attempt, without retries. `on_delta` is given each new piece of the answer as it arrives; an attempt that
    /// fails may have given some. The reply's text is all pieces joined.
    ///
    /// # Errors
    /// [`ModelError`]: no usable answer came of this attempt.
    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError>;
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// `echo`, `openai`.
    pub provider: &'static str,
    /// The model's name, as the provider writes it.
    pub name: String,
    /// Where it is asked, without credentials and query; empty when it needs no address.
    pub base_url: String,
    /// The wire dialect, by the reference's word for it: `chat_completions`.
    pub api_mode: &'static str,
}

/// What a model is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: String,
    /// The conversation: starts and ends with the user, sides alternate, no content is blank.
    pub messages: Vec<Message>,
    /// The last question alone as it was asked, without fences and hooks' additions; for [`Echo`].
    pub plain_text: String,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelReply {
    /// The answer; may be empty.
    pub text: String,
    /// Why it ended: `stop`, `length`, `content_filter`, …
    pub finish_reason: Option<String>,
    /// The model that answered, as it calls itself.
    pub model: Option<String>,
    /// Tokens used, as the provider reports them.
    pub usage: Option<Value>,
}

/// Why an attempt brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct ModelError {
    /// The kind of failure.
    pub reason: Reason,
    /// The HTTP status, when there was an answer that had one.
    pub status: Option<u16>,
    /// Whether another attempt may help.
    pub retry: Retry,
    /// One full sentence for the person who asked, with what to do. No secrets, nothing the provider wrote.
    pub for_user: String,
    /// For the log; may quote the provider, capped and without the key.
    pub cause: String,
}

/// Whether and when an attempt may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It would fail again.
    Never,
    /// It may help after a while.
    BackOff,
    /// The provider said how long to wait.
    After(Duration),
}

/// The kinds of failure, as `api_request_error` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No connection, or it broke before the answer began.
    Unreachable,
    /// Nothing came for too long, or the whole took too long.
    Timeout,
    /// The answer stopped midway or was not what the dialect promises.
    Broken,
    /// Too many requests for now.
    RateLimit,
    /// The provider has trouble of its own.
    ServerError,
    /// The key is missing, wrong, or not allowed this.
    Auth,
    /// The account has no credit left.
    Quota,
    /// No such model or address.
    NotFound,
    /// The conversation does not fit.
    ContextLength,
    /// Any other refusal of the request.
    BadRequest,
    /// The answer was longer than we take.
    TooLong,
}

impl Reason {
    /// The name in hook payloads and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::RateLimit => "rate_limit",
            Self::ServerError => "server_error",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::NotFound => "not_found",
            Self::ContextLength => "context_length",
            Self::BadRequest => "bad_request",
            Self::TooLong => "too_long",
        }
    }
}
