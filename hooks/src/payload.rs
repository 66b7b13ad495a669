//! What hooks are told: one type per event, whose JSON keys are a public wire format (`spec/hermes-hooks.md` §1.5, §2.5,
//! §2.7; `spec/decisions.md` §2, §3). `null` is "unknown or none", except for the keys the reference sends as `""`.
//!
//! Payloads of plugin and shell hooks get `telemetry_schema_version` from the registry.

mod gateway;
mod plugin;
mod sanitised;
mod tool;

use serde::Serialize;

pub use gateway::{
    AgentEnd, AgentStart, AgentStep, Command, GatewayShutdown, GatewayStartup, MessageReceived, MessageSent,
    SessionEnd, SessionReset, SessionStart, StepTool, TurnStatus, WebhookDelivered, WebhookFailed, WebhookReceived,
};
pub use plugin::{
    ApiError, ApiRequestError, DispatchEvent, DispatchMedia, DispatchSource, NewSession, OnSessionEnd,
    OnSessionFinalize, OnSessionReset, OnSessionStart, PostApiRequest, PostLlmCall, PreApiRequest, PreGatewayDispatch,
    PreLlmCall, TransformLlmOutput,
};
pub use sanitised::Sanitised;
pub use tool::{
    PostApprovalResponse, PostToolCall, PreApprovalRequest, PreToolCall, PreVerify, ToolStatus,
    TransformTerminalOutput, TransformToolResult,
};

/// The value of `telemetry_schema_version`, which existing plugins look at.
pub(crate) const TELEMETRY_SCHEMA_VERSION: &str = "hermes.observer.v1";

/// What hooks are told of an event. Serialises to a JSON object.
pub trait Payload: Serialize + Send + Sync + 'static {
    /// The rows of [`crate::EVENTS`] it belongs to, by name.
    const EVENTS: &'static [&'static str];
}

macro_rules! payload_of {
    ($($payload:ty: $($event:literal),+;)*) => {
        $(impl Payload for $payload {
            const EVENTS: &'static [&'static str] = &[$($event),+];
        })*
    };
}

payload_of! {
    GatewayStartup: "gateway:startup";
    GatewayShutdown: "gateway:shutdown";
    SessionStart: "session:start";
    SessionEnd: "session:end";
    SessionReset: "session:reset";
    AgentStart: "agent:start", "agent:turn_start";
    AgentStep: "agent:step";
    AgentEnd: "agent:end", "agent:turn_end";
    Command: "command:before:<name>", "command:<name>";
    MessageReceived: "message:received";
    MessageSent: "message:sent";
    WebhookReceived: "webhook:received";
    WebhookDelivered: "webhook:delivered";
    WebhookFailed: "webhook:failed";
    PreGatewayDispatch: "pre_gateway_dispatch";
    OnSessionStart: "on_session_start";
    OnSessionEnd: "on_session_end";
    OnSessionFinalize: "on_session_finalize";
    OnSessionReset: "on_session_reset";
    PreLlmCall: "pre_llm_call";
    PostLlmCall: "post_llm_call";
    PreApiRequest: "pre_api_request";
    PostApiRequest: "post_api_request";
    ApiRequestError: "api_request_error";
    TransformLlmOutput: "transform_llm_output";
    PreToolCall: "pre_tool_call";
    PostToolCall: "post_tool_call";
    TransformToolResult: "transform_tool_result";
    TransformTerminalOutput: "transform_terminal_output";
    PreVerify: "pre_verify";
    PreApprovalRequest: "pre_approval_request";
    PostApprovalResponse: "post_approval_response";
}

/// The first 500 code points of a text, without an ellipsis.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Excerpt(String);

impl Excerpt {
    /// Cuts `text`.
    pub fn of(text: &str) -> Self {
        Self(text.chars().take(500).collect())
    }
}

impl From<&str> for Excerpt {
    fn from(text: &str) -> Self {
        Self::of(text)
    }
}

#[cfg(test)]
mod tests;
