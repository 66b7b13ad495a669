//! Payloads around tool calls and approvals (`spec/hermes-hooks.md` §2.5, §2.6, §2.8). Ids that are not known are `""`.

use serde::Serialize;
use serde_json::{Map, Value};

/// `pre_tool_call`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PreToolCall {
    /// The tool.
    pub tool_name: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// The task of the turn.
    pub task_id: String,
    /// The session.
    pub session_id: String,
    /// The call, as the model names it.
    pub tool_call_id: String,
    /// The turn.
    pub turn_id: String,
    /// The request whose answer called the tool.
    pub api_request_id: String,
    /// Empty: there is no middleware here.
    pub middleware_trace: Vec<Value>,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// There is a result, also that of a command that failed.
    #[default]
    Ok,
    /// The tool could not do it.
    Error,
    /// It was not allowed to run.
    Blocked,
    /// The turn was interrupted.
    Cancelled,
    /// It was ended at its deadline.
    Timeout,
}

/// `post_tool_call`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PostToolCall {
    /// The tool.
    pub tool_name: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// What the model is told: JSON text.
    pub result: String,
    /// The task of the turn.
    pub task_id: String,
    /// The session.
    pub session_id: String,
    /// The call.
    pub tool_call_id: String,
    /// The turn.
    pub turn_id: String,
    /// The request whose answer called the tool.
    pub api_request_id: String,
    /// How long it took.
    pub duration_ms: u64,
    /// How it ended.
    pub status: ToolStatus,
    /// The kind of failure: `tool_error`, `plugin_block`, `guardrail_block`, `tool_scope_block`, `tool_timeout`,
    /// `keyboard_interrupt`; null if there was none.
    pub error_type: Option<&'static str>,
    /// The failure.
    pub error_message: Option<String>,
    /// Empty: there is no middleware here.
    pub middleware_trace: Vec<Value>,
}

/// `transform_tool_result`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TransformToolResult {
    /// The tool.
    pub tool_name: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// The same, under the name of the first documents.
    pub arguments: Map<String, Value>,
    /// What the model is to be told.
    pub result: String,
    /// The task of the turn.
    pub task_id: String,
    /// The session.
    pub session_id: String,
    /// The call.
    pub tool_call_id: String,
    /// The turn.
    pub turn_id: String,
    /// The request whose answer called the tool.
    pub api_request_id: String,
    /// How long it took.
    pub duration_ms: u64,
    /// How it ended.
    pub status: ToolStatus,
    /// The kind of failure, as in [`PostToolCall`].
    pub error_type: Option<&'static str>,
    /// The failure.
    pub error_message: Option<String>,
}

/// `transform_terminal_output`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TransformTerminalOutput {
    /// The command line.
    pub command: String,
    /// What it printed, cut where it was too long.
    pub output: String,
    /// Its exit code.
    pub returncode: i32,
    /// The same, under the name of the first documents.
    pub exit_code: i32,
    /// The task of the turn.
    pub task_id: String,
    /// Where it ran.
    pub cwd: String,
    /// Always `local`.
    pub env_type: &'static str,
}

/// `pre_verify`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PreVerify {
    /// The session.
    pub session_id: String,
    /// The platform.
    pub platform: String,
    /// The model.
    pub model: String,
    /// Whether the turn edited files: always, for else nobody is asked.
    pub coding: bool,
    /// How often a hook has sent the turn on, from 0.
    pub attempt: u32,
    /// What the model would answer.
    pub final_response: String,
    /// The files the turn edited, sorted.
    pub changed_paths: Vec<String>,
}

/// `pre_approval_request`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PreApprovalRequest {
    /// What is to be approved, without secrets: the command line, or the tool in angle brackets.
    pub command: String,
    /// Why it needs a person.
    pub description: String,
    /// The first of `pattern_keys`.
    pub pattern_key: String,
    /// What a remembered approval covers, in the words of the rules that matched.
    pub pattern_keys: Vec<String>,
    /// The conversation.
    pub session_key: String,
    /// Who is asked: `gateway` (people in the chat) or `smart` (a model).
    pub surface: &'static str,
    /// The turn.
    pub turn_id: String,
    /// The call.
    pub tool_call_id: String,
}

/// `post_approval_response`: once for each [`PreApprovalRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PostApprovalResponse {
    /// What was asked.
    #[serde(flatten)]
    pub request: PreApprovalRequest,
    /// `once`, `session`, `always`, `deny`, `timeout`, `cancelled`, `notify_failed`, `smart_approve`, `smart_deny` or
    /// `smart_escalate`.
    pub choice: &'static str,
    /// `aux_llm` where a model decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<&'static str>,
}
