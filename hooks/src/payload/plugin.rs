//! Payloads of plugin and shell hooks. Ids that are not known are `""`.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Sanitised;

/// `pre_gateway_dispatch`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreGatewayDispatch {
    /// The message.
    pub event: DispatchEvent,
}

/// A message as `pre_gateway_dispatch` shows it: the data of the reference's `MessageEvent`, and `media`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DispatchEvent {
    /// The text or caption; empty when there is only media.
    pub text: String,
    /// `text`, `location`, `photo`, `video`, `audio`, `voice`, `document`, `sticker` or `command`.
    pub message_type: String,
    /// Who and where.
    pub source: DispatchSource,
    /// The platform's id of the message.
    pub message_id: Option<String>,
    /// The platform's number of the update.
    pub platform_update_id: Option<i64>,
    /// Local paths of the media that were downloaded.
    pub media_urls: Vec<String>,
    /// Their MIME types.
    pub media_types: Vec<String>,
    /// All media of the message, downloaded or not.
    pub media: Vec<DispatchMedia>,
    /// The message it answers.
    pub reply_to_message_id: Option<String>,
    /// That message's text.
    pub reply_to_text: Option<String>,
    /// That message's author.
    pub reply_to_author_id: Option<String>,
    /// The author's display name.
    pub reply_to_author_name: Option<String>,
    /// Whether we wrote it.
    pub reply_to_is_own_message: bool,
    /// A skill bound to the chat.
    pub auto_skill: Option<String>,
    /// A prompt bound to the chat.
    pub channel_prompt: Option<String>,
    /// What was said around it.
    pub channel_context: Option<String>,
    /// Always false: messages of our own are not shown.
    pub internal: bool,
    /// What else the adapter knows.
    pub metadata: Map<String, Value>,
    /// When it was said, RFC 3339.
    pub timestamp: String,
}

/// One thing in a message that is not text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DispatchMedia {
    /// `photo`, `voice`, `document`, …
    pub kind: String,
    /// The file's name.
    pub name: Option<String>,
}

/// Where a message comes from: the data of the reference's `SessionSource`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DispatchSource {
    /// The platform.
    pub platform: String,
    /// The chat.
    pub chat_id: String,
    /// What people call it.
    pub chat_name: Option<String>,
    /// `dm`, `group`, …
    pub chat_type: String,
    /// The sender.
    pub user_id: Option<String>,
    /// The sender's display name.
    pub user_name: Option<String>,
    /// The topic or thread.
    pub thread_id: Option<String>,
    /// The topic's name.
    pub chat_topic: Option<String>,
    /// Another id of the sender.
    pub user_id_alt: Option<String>,
    /// Another id of the chat.
    pub chat_id_alt: Option<String>,
    /// Whether the sender is a bot.
    pub is_bot: bool,
    /// The guild or workspace.
    pub scope_id: Option<String>,
    /// The same.
    pub guild_id: Option<String>,
    /// The chat a thread hangs on.
    pub parent_chat_id: Option<String>,
    /// The platform's id of the message.
    pub message_id: Option<String>,
    /// Whether a role of the platform grants access.
    pub role_authorized: bool,
    /// The profile, where there are several.
    pub profile: Option<String>,
    /// Whether the thread was opened for this message.
    pub auto_thread_created: bool,
    /// The name it was given.
    pub auto_thread_initial_name: Option<String>,
    /// Whether a relay passed it on.
    pub delivered_via_upstream_relay: bool,
}

/// `on_session_start`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnSessionStart {
    /// The session.
    pub session_id: String,
    /// The model.
    pub model: String,
    /// The platform.
    pub platform: String,
}

/// `on_session_end`. Exactly one of `completed`, `interrupted` and `failed` is true.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnSessionEnd {
    /// The session.
    pub session_id: String,
    /// The task of the turn.
    pub task_id: String,
    /// The turn.
    pub turn_id: String,
    /// There is an answer.
    pub completed: bool,
    /// It was stopped.
    pub interrupted: bool,
    /// The model.
    pub model: String,
    /// The platform.
    pub platform: String,
    /// It could not be answered.
    pub failed: bool,
}

/// `on_session_finalize`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnSessionFinalize {
    session_id: Option<String>,
    platform: String,
    reason: &'static str,
    #[serde(flatten)]
    new_session: Option<NewSession>,
}

impl OnSessionFinalize {
    /// The gateway stops while a turn of the session is running.
    pub fn shutdown(session_id: &str) -> Self {
        Self {
            session_id: Some(session_id.to_owned()),
            platform: "gateway".to_owned(),
            reason: "shutdown",
            new_session: None,
        }
    }

    /// The session was idle for too long, or its day is over.
    pub fn expired(session_id: &str, platform: &str) -> Self {
        Self {
            session_id: Some(session_id.to_owned()),
            platform: platform.to_owned(),
            reason: "session_expired",
            new_session: None,
        }
    }

    /// The operator ended the session from outside; the next message begins another.
    pub fn boundary(session_id: &str, platform: &str) -> Self {
        Self {
            session_id: Some(session_id.to_owned()),
            platform: platform.to_owned(),
            reason: "session_boundary",
            new_session: None,
        }
    }

    /// `/new`; there may have been no session before.
    pub fn new_session(platform: &str, sessions: NewSession) -> Self {
        Self {
            session_id: sessions.old_session_id.clone(),
            platform: platform.to_owned(),
            reason: "new_session",
            new_session: Some(sessions),
        }
    }
}

/// The two sessions of a `/new`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewSession {
    /// The one that is over.
    pub old_session_id: Option<String>,
    /// The one that begins.
    pub new_session_id: String,
}

/// `on_session_reset`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnSessionReset {
    session_id: String,
    platform: String,
    reason: &'static str,
    #[serde(flatten)]
    sessions: NewSession,
}

impl OnSessionReset {
    /// `/new`.
    pub fn new_session(platform: &str, sessions: NewSession) -> Self {
        Self {
            session_id: sessions.new_session_id.clone(),
            platform: platform.to_owned(),
            reason: "new_session",
            sessions,
        }
    }
}

/// `pre_llm_call`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreLlmCall {
    /// The session.
    pub session_id: String,
    /// The task of the turn.
    pub task_id: String,
    /// The turn.
    pub turn_id: String,
    /// The question: a text or a list of content parts.
    pub user_message: Value,
    /// What was said before: `{"role", "content"}`, oldest first.
    pub conversation_history: Vec<Value>,
    /// Whether nothing was said before.
    pub is_first_turn: bool,
    /// The model.
    pub model: String,
    /// The platform.
    pub platform: String,
    /// Who asks; empty if unknown.
    pub sender_id: String,
}

/// `post_llm_call`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PostLlmCall {
    /// The session.
    pub session_id: String,
    /// The task of the turn.
    pub task_id: String,
    /// The turn.
    pub turn_id: String,
    /// The question: a text or a list of content parts.
    pub user_message: Value,
    /// The final answer.
    pub assistant_response: String,
    /// The conversation with this turn: `{"role", "content"}`, oldest first.
    pub conversation_history: Vec<Value>,
    /// The model.
    pub model: String,
    /// The platform.
    pub platform: String,
}

/// `transform_llm_output`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransformLlmOutput {
    /// The answer; never empty.
    pub response_text: String,
    /// The session.
    pub session_id: String,
    /// The model.
    pub model: String,
    /// The platform.
    pub platform: String,
}

/// `pre_api_request`. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreApiRequest {
    /// The task of the turn.
    pub task_id: String,
    /// The turn.
    pub turn_id: String,
    /// This request; the same for all its attempts.
    pub api_request_id: String,
    /// The session.
    pub session_id: String,
    /// The question: a text or a list of content parts.
    pub user_message: Value,
    /// What was said before.
    pub conversation_history: Vec<Value>,
    /// The platform.
    pub platform: String,
    /// The model.
    pub model: String,
    /// `openai`, `anthropic`, …
    pub provider: String,
    /// Where it is sent.
    pub base_url: String,
    /// The dialect: `chat_completions`, `anthropic_messages`.
    pub api_mode: String,
    /// Which request of the turn, from 1.
    pub api_call_count: u32,
    /// The messages of the request.
    pub request_messages: Vec<Value>,
    /// How many.
    pub message_count: usize,
    /// How many tools are offered.
    pub tool_count: usize,
    /// A guess at the tokens of the request.
    pub approx_input_tokens: u64,
    /// Its characters.
    pub request_char_count: u64,
    /// The limit of the answer, if one is set.
    pub max_tokens: Option<u64>,
    /// When the attempt began.
    pub started_at: f64,
    /// Empty: there is no middleware here.
    pub middleware_trace: Vec<Value>,
    /// The request, [`Sanitised::request`].
    pub request: Sanitised,
}

/// `post_api_request`. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PostApiRequest {
    /// The task of the turn.
    pub task_id: String,
    /// The turn.
    pub turn_id: String,
    /// The request.
    pub api_request_id: String,
    /// The session.
    pub session_id: String,
    /// The platform.
    pub platform: String,
    /// The model that was asked.
    pub model: String,
    /// `openai`, `anthropic`, …
    pub provider: String,
    /// Where it was sent.
    pub base_url: String,
    /// The dialect.
    pub api_mode: String,
    /// Which request of the turn, from 1.
    pub api_call_count: u32,
    /// Seconds the attempt took.
    pub api_duration: f64,
    /// When it began.
    pub started_at: f64,
    /// When it ended.
    pub ended_at: f64,
    /// Why the model stopped: `stop`, `tool_calls`, `length`, …
    pub finish_reason: String,
    /// How many messages the request had.
    pub message_count: usize,
    /// The model that answered, by its own account.
    pub response_model: Option<String>,
    /// The answer, [`Sanitised::response`].
    pub response: Sanitised,
    /// Tokens, as the provider counts them; null if it does not.
    pub usage: Value,
    /// The message: `{"role", "content", "tool_calls"}`.
    pub assistant_message: Value,
    /// Characters of its text.
    pub assistant_content_chars: usize,
    /// How many tools it calls.
    pub assistant_tool_call_count: usize,
}

/// `api_request_error`. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApiRequestError {
    /// The task of the turn.
    pub task_id: String,
    /// The turn.
    pub turn_id: String,
    /// The request.
    pub api_request_id: String,
    /// The session.
    pub session_id: String,
    /// The platform.
    pub platform: String,
    /// The model that was asked.
    pub model: String,
    /// `openai`, `anthropic`, …
    pub provider: String,
    /// Where it was sent.
    pub base_url: String,
    /// The dialect.
    pub api_mode: String,
    /// Which request of the turn, from 1.
    pub api_call_count: u32,
    /// Seconds the attempt took.
    pub api_duration: f64,
    /// When it began.
    pub started_at: f64,
    /// When it ended.
    pub ended_at: f64,
    /// The HTTP status, if there was an answer.
    pub status_code: Option<u16>,
    /// How many attempts failed before this one.
    pub retry_count: u32,
    /// How many may.
    pub max_retries: u32,
    /// Whether another attempt can help.
    pub retryable: bool,
    /// The kind of failure: `rate_limit`, `timeout`, `server_error`, …
    pub reason: String,
    /// The failure.
    pub error: ApiError,
    /// The request, [`Sanitised::request`].
    pub request: Sanitised,
}

/// The failure in [`ApiRequestError`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApiError {
    /// The provider's or our name for it.
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened, without secrets.
    pub message: String,
}
