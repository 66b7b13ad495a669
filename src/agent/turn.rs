//! What hooks are told in the course of a turn (`spec/hermes-hooks.md` §2.5). Each payload is built only when somebody
//! listens. The turn is its own task here: `task_id` is the session's id, as in the reference.

use std::collections::BTreeSet;
use std::time::SystemTime;

use hookgate_hooks::payload::{
    AgentStep, ApiError, ApiRequestError, OnSessionEnd, OnSessionStart, PostApiRequest, PostLlmCall, PreApiRequest,
    PreLlmCall, PreVerify, Sanitised, StepTool, TransformLlmOutput,
};
use hookgate_hooks::{Event, Registry};
use serde_json::{Value, json};

use super::TurnRequest;
use super::model::{About, ModelError, ModelReply, RequestedCall, Retry};
use crate::session::{Role, TurnStatus};

/// A turn and who answers it.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) request: &'a TurnRequest,
    pub(super) about: &'a About,
}

impl Turn<'_> {
    pub(super) fn session_start(&self) -> OnSessionStart {
        OnSessionStart {
            session_id: self.request.session_id.clone(),
            model: self.about.name.clone(),
            platform: self.request.platform.clone(),
        }
    }

    pub(super) fn pre_llm_call(&self) -> PreLlmCall {
        PreLlmCall {
            session_id: self.request.session_id.clone(),
            task_id: self.request.session_id.clone(),
            turn_id: self.request.turn_id.clone(),
            user_message: json!(self.request.text),
            conversation_history: self.history(),
            is_first_turn: self.request.is_first_turn,
            model: self.about.name.clone(),
            platform: self.request.platform.clone(),
            sender_id: self.request.sender_id.clone().unwrap_or_default(),
        }
    }

    /// `agent:step` before a request of the turn, from 1, with what the step before it called.
    pub(super) fn step(&self, iteration: u32, tools: Vec<StepTool>) -> AgentStep {
        AgentStep {
            platform: self.request.platform.clone(),
            user_id: self.request.sender_id.clone(),
            session_id: self.request.session_id.clone(),
            iteration,
            tool_names: tools.iter().map(|tool| tool.name.clone()).collect(),
            tools,
        }
    }

    pub(super) fn pre_verify(&self, attempt: u32, edited: &BTreeSet<String>, response: &str) -> PreVerify {
        PreVerify {
            session_id: self.request.session_id.clone(),
            platform: self.request.platform.clone(),
            model: self.about.name.clone(),
            coding: true,
            attempt,
            final_response: response.to_owned(),
            changed_paths: edited.iter().cloned().collect(),
        }
    }

    pub(super) fn transform_llm_output(&self, response: &str) -> TransformLlmOutput {
        TransformLlmOutput {
            response_text: response.to_owned(),
            session_id: self.request.session_id.clone(),
            model: self.about.name.clone(),
            platform: self.request.platform.clone(),
        }
    }

    pub(super) fn post_llm_call(&self, answer: &str) -> PostLlmCall {
        let mut conversation = self.history();
        conversation.push(said(Role::User, &self.request.text));
        conversation.push(said(Role::Assistant, answer));
        PostLlmCall {
            session_id: self.request.session_id.clone(),
            task_id: self.request.session_id.clone(),
            turn_id: self.request.turn_id.clone(),
            user_message: json!(self.request.text),
            assistant_response: answer.to_owned(),
            conversation_history: conversation,
            model: self.about.name.clone(),
            platform: self.request.platform.clone(),
        }
    }

    fn session_end(&self, status: TurnStatus) -> OnSessionEnd {
        OnSessionEnd {
            session_id: self.request.session_id.clone(),
            task_id: self.request.session_id.clone(),
            turn_id: self.request.turn_id.clone(),
            completed: status == TurnStatus::Completed,
            interrupted: status == TurnStatus::Interrupted,
            model: self.about.name.clone(),
            platform: self.request.platform.clone(),
            failed: status == TurnStatus::Failed,
        }
    }

    fn history(&self) -> Vec<Value> {
        self.request.history.iter().map(|message| said(message.role, &message.text)).collect()
    }
}

fn said(role: Role, content: &str) -> Value {
    json!({ "role": role.as_str(), "content": content })
}

/// Tells `on_session_end` when it goes out of scope, so that every turn that began is told to have ended.
pub(super) struct TurnEnd<'a> {
    hooks: &'a Registry,
    /// With the model that answered, once one has.
    pub(super) turn: Turn<'a>,
    /// Interrupted, unless the turn came to another end.
    pub(super) status: TurnStatus,
}

impl<'a> TurnEnd<'a> {
    pub(super) fn new(hooks: &'a Registry, turn: Turn<'a>) -> Self {
        Self { hooks, turn, status: TurnStatus::Interrupted }
    }
}

impl Drop for TurnEnd<'_> {
    fn drop(&mut self) {
        self.hooks.emit(&Event::ON_SESSION_END, || self.turn.session_end(self.status));
    }
}

/// One attempt at one request.
pub(super) struct Call<'a> {
    turn: Turn<'a>,
    /// Which request of the turn, from 1.
    api_call: u32,
    /// Unix seconds.
    started_at: f64,
}

impl<'a> Call<'a> {
    pub(super) fn start(turn: Turn<'a>, api_call: u32) -> Self {
        Self { turn, api_call, started_at: unix_seconds() }
    }

    pub(super) fn pre_api_request(&self, body: &Value) -> PreApiRequest {
        let Turn { request, about } = self.turn;
        let messages = messages_of(body).to_vec();
        let characters = messages.iter().filter_map(|message| message.get("content")).map(characters).sum::<u64>();
        PreApiRequest {
            task_id: request.session_id.clone(),
            turn_id: request.turn_id.clone(),
            api_request_id: self.id(),
            session_id: request.session_id.clone(),
            user_message: json!(request.text),
            conversation_history: self.turn.history(),
            platform: request.platform.clone(),
            model: about.name.clone(),
            provider: about.provider.to_owned(),
            base_url: about.base_url.clone(),
            api_mode: about.api_mode.to_owned(),
            api_call_count: self.api_call,
            message_count: messages.len(),
            request_messages: messages,
            tool_count: body.get("tools").and_then(Value::as_array).map_or(0, Vec::len),
            approx_input_tokens: characters.div_ceil(4),
            request_char_count: characters,
            max_tokens: ["max_tokens", "max_completion_tokens"].iter().find_map(|key| body.get(key)?.as_u64()),
            started_at: self.started_at,
            middleware_trace: Vec::new(),
            request: Sanitised::request(body),
        }
    }

    pub(super) fn post_api_request(&self, reply: &ModelReply, body: &Value) -> PostApiRequest {
        let Turn { request, about } = self.turn;
        let ended_at = unix_seconds();
        let message = json!({ "role": "assistant", "content": reply.text, "tool_calls": tool_calls(reply) });
        let finish_reason = reply.finish_reason.as_deref().unwrap_or("stop");
        let usage = usage(reply);
        PostApiRequest {
            task_id: request.session_id.clone(),
            turn_id: request.turn_id.clone(),
            api_request_id: self.id(),
            session_id: request.session_id.clone(),
            platform: request.platform.clone(),
            model: about.name.clone(),
            provider: about.provider.to_owned(),
            base_url: about.base_url.clone(),
            api_mode: about.api_mode.to_owned(),
            api_call_count: self.api_call,
            api_duration: ended_at - self.started_at,
            started_at: self.started_at,
            ended_at,
            finish_reason: finish_reason.to_owned(),
            message_count: messages_of(body).len(),
            response_model: reply.model.clone(),
            response: Sanitised::response(reply.model.as_deref(), finish_reason, &message, &usage),
            usage,
            assistant_content_chars: reply.text.chars().count(),
            assistant_message: message,
            assistant_tool_call_count: reply.tool_calls.len(),
        }
    }

    pub(super) fn api_request_error(
        &self,
        error: &ModelError,
        retry_count: u32,
        max_retries: u32,
        body: &Value,
    ) -> ApiRequestError {
        let Turn { request, about } = self.turn;
        let ended_at = unix_seconds();
        ApiRequestError {
            task_id: request.session_id.clone(),
            turn_id: request.turn_id.clone(),
            api_request_id: self.id(),
            session_id: request.session_id.clone(),
            platform: request.platform.clone(),
            model: about.name.clone(),
            provider: about.provider.to_owned(),
            base_url: about.base_url.clone(),
            api_mode: about.api_mode.to_owned(),
            api_call_count: self.api_call,
            api_duration: ended_at - self.started_at,
            started_at: self.started_at,
            ended_at,
            status_code: error.status,
            retry_count,
            max_retries,
            retryable: error.retry != Retry::Never,
            reason: error.reason.as_str().to_owned(),
            error: ApiError { kind: error.reason.as_str().to_owned(), message: error.cause.clone() },
            request: Sanitised::request(body),
        }
    }

    /// The same for all attempts at a request.
    pub(super) fn id(&self) -> String {
        format!("{}:{}", self.turn.request.turn_id, self.api_call)
    }
}

/// The messages as they go over the wire.
fn messages_of(body: &Value) -> &[Value] {
    body.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Characters of a content: a text, or blocks of several kinds.
fn characters(content: &Value) -> u64 {
    match content {
        Value::String(text) => text.chars().count() as u64,
        Value::Array(blocks) => {
            let parts = blocks.iter().flat_map(|block| [block.get("text"), block.get("content")]).flatten();
            parts.map(characters).sum()
        }
        _ => 0,
    }
}

/// The calls in the one form that hooks know, whatever the dialect; null without any.
fn tool_calls(reply: &ModelReply) -> Value {
    let call = |call: &RequestedCall| {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        json!({ "id": call.id, "type": "function", "function": function })
    };
    if reply.tool_calls.is_empty() { Value::Null } else { reply.tool_calls.iter().map(call).collect() }
}

/// What the provider reports of the tokens, with the counts under the names that hooks know, whatever the dialect.
fn usage(reply: &ModelReply) -> Value {
    let mut reported = reply.raw_usage.clone().unwrap_or_default();
    if let (Some(counts), Some(reported)) = (reply.usage, reported.as_object_mut()) {
        for (name, count) in
            [("prompt_tokens", counts.input), ("completion_tokens", counts.output), ("total_tokens", counts.total)]
        {
            reported.entry(name).or_insert_with(|| count.into());
        }
    }
    reported
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
