//! Payloads of gateway events.

use serde::Serialize;

use super::Excerpt;

/// `gateway:startup`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GatewayStartup {
    /// Platforms that are connected, in the order they came up.
    pub platforms: Vec<String>,
    /// Names of the hooks that are loaded.
    pub hooks: Vec<String>,
    /// Our version.
    pub version: String,
}

/// `gateway:shutdown`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GatewayShutdown {
    /// Platforms that are connected.
    pub platforms: Vec<String>,
    /// `signal`, `restart`, `command`, …
    pub reason: String,
}

/// `session:start`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionStart {
    /// The platform; empty if unknown.
    pub platform: String,
    /// Who wrote the first message.
    pub user_id: Option<String>,
    /// The new session.
    pub session_id: String,
    /// The conversation it is a stretch of.
    pub session_key: String,
    /// Why there is a new one: `first`, `reset`, `idle`, `daily`.
    pub reason: String,
}

/// `session:end`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionEnd {
    /// The platform; empty if unknown.
    pub platform: String,
    /// Who ended it, or spoke in it last.
    pub user_id: Option<String>,
    /// The conversation it was a stretch of.
    pub session_key: String,
    /// The session that is over.
    pub session_id: String,
    /// Why: `reset`, `webhook_complete`, `idle`, `daily`.
    pub reason: String,
}

/// `session:reset`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionReset {
    /// The platform; empty if unknown.
    pub platform: String,
    /// Who asked for it.
    pub user_id: Option<String>,
    /// The conversation.
    pub session_key: String,
    /// `reset`.
    pub reason: String,
}

/// `agent:start` and `agent:turn_start`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentStart {
    /// The platform; empty if unknown.
    pub platform: String,
    /// Who asks.
    pub user_id: Option<String>,
    /// Where; empty if unknown.
    pub chat_id: String,
    /// The topic or thread; empty for none.
    pub thread_id: String,
    /// `dm`, `group`, …; empty if unknown.
    pub chat_type: String,
    /// The session.
    pub session_id: String,
    /// The question as it was prepared for the model.
    pub message: Excerpt,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnStatus {
    /// There is an answer.
    Completed,
    /// There is none; the user was told.
    Failed,
    /// Stopped by a person or by the gateway's own stop.
    Interrupted,
}

/// `agent:end` and `agent:turn_end`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentEnd {
    /// What `agent:start` told.
    #[serde(flatten)]
    pub start: AgentStart,
    /// The answer; empty if there is none.
    pub response: Excerpt,
    /// How the turn ended.
    pub status: TurnStatus,
    /// Why it failed, in the words the user was told.
    pub error: Option<String>,
}

/// `agent:step`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentStep {
    /// The platform; empty if unknown.
    pub platform: String,
    /// Who asks.
    pub user_id: Option<String>,
    /// The session.
    pub session_id: String,
    /// Which request of the turn, from 1.
    pub iteration: u32,
    /// Names of the tools called in the step before.
    pub tool_names: Vec<String>,
    /// Those calls.
    pub tools: Vec<StepTool>,
}

/// One tool call in `agent:step`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTool {
    /// The tool.
    pub name: String,
    /// What it gave back.
    pub result: Option<String>,
    /// The arguments, as the JSON text the model wrote.
    pub arguments: String,
}

/// `command:before:<name>` and `command:<name>`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Command {
    platform: String,
    user_id: Option<String>,
    command: String,
    raw_command: String,
    args: String,
    raw_args: String,
}

impl Command {
    /// `command` is canonical, `raw_command` as it was typed (lower case, without slash and `@bot`); `args` is trimmed and
    /// is told twice, as `args` and `raw_args`.
    pub fn new(platform: &str, user_id: Option<&str>, command: &str, raw_command: &str, args: &str) -> Self {
        Self {
            platform: platform.to_owned(),
            user_id: user_id.map(str::to_owned),
            command: command.to_owned(),
            raw_command: raw_command.to_owned(),
            args: args.to_owned(),
            raw_args: args.to_owned(),
        }
    }
}

/// `message:received`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MessageReceived {
    /// The platform.
    pub platform: String,
    /// The chat.
    pub chat_id: String,
    /// `dm`, `group`, …
    pub chat_type: String,
    /// The sender.
    pub user_id: Option<String>,
    /// The sender's display name.
    pub user_name: Option<String>,
    /// The topic or thread.
    pub thread_id: Option<String>,
    /// The platform's id of the message.
    pub message_id: String,
    /// The whole text.
    pub text: String,
    /// The conversation it belongs to.
    pub session_key: String,
}

/// `message:sent`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MessageSent {
    /// The platform.
    pub platform: String,
    /// The chat.
    pub chat_id: String,
    /// The topic or thread.
    pub thread_id: Option<String>,
    /// The platform's id of the new message, where it tells one.
    pub message_id: Option<String>,
    /// The message it answers.
    pub reply_to: Option<String>,
    /// The text of this part.
    pub text: String,
    /// Which part of the reply, from 1.
    pub part: u32,
    /// How many parts the reply has.
    pub parts: u32,
    /// The conversation, if the reply belongs to one.
    pub session_key: Option<String>,
}

/// `webhook:received`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WebhookReceived {
    /// The route.
    pub route: String,
    /// The event's type.
    pub event: String,
    /// The delivery.
    pub delivery_id: String,
}

/// `webhook:delivered`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WebhookDelivered {
    /// The route.
    pub route: String,
    /// The delivery.
    pub delivery_id: String,
    /// What it reached, `telegram:42`.
    pub target: String,
}

/// `webhook:failed`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WebhookFailed {
    /// The route.
    pub route: String,
    /// The delivery.
    pub delivery_id: String,
    /// What it did not reach, if that was known.
    pub target: Option<String>,
    /// Why, without secrets.
    pub error: String,
}
