//! What a model is to the agent: a conversation goes in, an answer comes out in pieces. Nothing here knows a wire format;
//! each dialect below does, and each says of its failures whether another attempt may help.

mod anthropic;
mod body;
mod calls;
mod echo;
mod http;
mod message;
mod openai;
mod recording;
mod refusal;
mod replay;
mod retry_after;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config;

pub use anthropic::Anthropic;
pub use echo::Echo;
pub use message::{Message, RequestedCall, ToolResult, ToolSpec, Usage};
pub use openai::OpenAi;
pub use recording::Recording;
pub use replay::Replay;

/// The models that the configuration names: the one of `model`, then those of `fallback_providers`, in order.
///
/// # Errors
/// When an address, a name or a key can never work, or a file of recordings cannot be used; the sentence names the key of
/// the configuration.
pub fn all_from_config(model: &config::Model) -> anyhow::Result<Vec<Arc<dyn Model>>> {
    let mut all = Vec::with_capacity(1 + model.fallbacks.len());
    all.push(from_config(model)?);
    for (number, fallback) in (1..).zip(&model.fallbacks) {
        all.push(from_config(fallback).with_context(|| format!("fallback_providers, entry {number}"))?);
    }
    let Some(path) = &model.record else { return Ok(all) };
    let keys = std::iter::once(model).chain(&model.fallbacks).filter_map(|model| model.api_key.clone()).collect();
    let file = recording::File::open(path, keys)
        .with_context(|| format!("model.record: cannot write to {}", path.display()))?;
    let file = Arc::new(file);
    let recorded = all.into_iter().map(|model| Arc::new(Recording::new(model, Arc::clone(&file))) as Arc<dyn Model>);
    Ok(recorded.collect())
}

fn from_config(model: &config::Model) -> anyhow::Result<Arc<dyn Model>> {
    Ok(match model.provider {
        config::Provider::Echo => Arc::new(Echo::default()),
        config::Provider::OpenAi => Arc::new(OpenAi::new(model)?),
        config::Provider::Anthropic => Arc::new(Anthropic::new(model)?),
        config::Provider::Replay => Arc::new(Replay::new(model)?),
    })
}

/// Whether the server of `model` is there and takes the key, by the list of its models, which costs nothing.
///
/// # Errors
/// One sentence that says what to do.
pub(super) async fn reach(model: &config::Model, at_most: Duration) -> Result<(), String> {
    let unusable = |error| format!("{error:#}");
    match model.provider {
        config::Provider::Echo => Ok(()),
        config::Provider::OpenAi => OpenAi::new(model).map_err(unusable)?.reach(at_most).await,
        config::Provider::Anthropic => Anthropic::new(model).map_err(unusable)?.reach(at_most).await,
        config::Provider::Replay => Replay::new(model).map(drop).map_err(unusable),
    }
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
    /// fails may have given some. The reply's text is all pieces joined; calls of tools come with the reply alone.
    ///
    /// # Errors
    /// [`ModelError`]: no usable answer came of this attempt.
    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError>;
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// `echo`, `openai`, `anthropic`, `replay`.
    pub provider: &'static str,
    /// The model's name, as the provider writes it.
    pub name: String,
    /// Where it is asked, without credentials and query; empty when it needs no address.
    pub base_url: String,
    /// The wire dialect, by the reference's word for it: `chat_completions`, `anthropic_messages`.
    pub api_mode: &'static str,
}

/// What a model is asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: String,
    /// The conversation: starts with the user, ends with the user or with the results of tools. Person and model
    /// alternate, no text is blank, and calls are followed at once by their results, one for each.
    pub messages: Vec<Message>,
    /// The last question alone as it was asked, without fences and hooks' additions; for [`Echo`].
    pub plain_text: String,
    /// What the model may ask for. Shared, since most requests of a gateway have the same ones.
    pub tools: Arc<[ToolSpec]>,
    /// The longest answer, in tokens; without it the limit of the configuration holds.
    pub max_tokens: Option<u32>,
    /// The model is to answer and call nothing more. The tools stay declared, for the conversation shows calls of them.
    pub must_answer: bool,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelReply {
    /// The answer; may be empty, most of all where there are calls.
    pub text: String,
    /// The tools it asks for, in order. What makes an answer one that asks for tools: not its `finish_reason`, which
    /// some servers leave at `stop`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<RequestedCall>,
    /// Why it ended: `stop`, `length`, `tool_calls`, `content_filter`, …, in this dialect's words whatever the provider's.
    pub finish_reason: Option<String>,
    /// The model that answered, as it calls itself.
    pub model: Option<String>,
    /// Tokens used.
    pub usage: Option<Usage>,
    /// The same in the provider's own words, with whatever else it reports.
    pub raw_usage: Option<Value>,
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
