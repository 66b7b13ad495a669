//! One round of tool calls: the hooks' say, the guard's, a person's; then the tools run, and the model is told.
//!
//! All hooks of a round are asked before any of its tools runs. Calls run side by side, but for those that edit files: what
//! comes after them is meant to see what they did.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use hookgate_hooks::payload::{PostToolCall, PreToolCall, StepTool, ToolStatus, TransformToolResult};
use hookgate_hooks::{Directive, Event, Registry};
use serde_json::{Map, Value, json};

use super::guard::{self, Guard, Ruling};
use super::model::{RequestedCall, ToolResult};
use super::smart::Adviser;
use super::tools::{Approval, ApprovalRequest, Standing, Tool, ToolCall, ToolError, ToolTurn, Tools};
use super::turn::Turn;
use crate::redact::redact;

/// Stands for a result that a hook made blank: providers refuse a message without text.
const EMPTY: &str = "(empty)";

/// What a round needs.
pub(super) struct Rounds<'a> {
    pub(super) hooks: &'a Registry,
    pub(super) guard: &'a Guard,
    pub(super) tools: &'a Tools,
    pub(super) tool_turn: &'a ToolTurn,
    pub(super) adviser: Adviser<'a>,
}

/// What came of a round.
pub(super) struct Round {
    /// For the model, in the order of the calls.
    pub(super) results: Vec<ToolResult>,
    /// For `agent:step`.
    pub(super) step: Vec<StepTool>,
    /// Files that were edited.
    pub(super) edited: BTreeSet<String>,
    /// Why the turn goes no further, for the person.
    pub(super) halt: Option<String>,
}

/// A call on its way.
struct Prepared<'c> {
    requested: &'c RequestedCall,
    args: Map<String, Value>,
    fate: Fate,
}

/// What is to happen with a call.
enum Fate {
    /// It runs, perhaps once a person agrees because a hook wants it.
    Run { tool: Arc<dyn Tool>, approve: Option<ApprovalRequest> },
    /// It does not run.
    Refused(Refusal),
    /// It cannot be read: the model is told, and nobody else.
    Unreadable(String),
}

/// Why a call does not run.
struct Refusal {
    /// For the model.
    reason: String,
    error_type: &'static str,
    halt: Option<String>,
}

impl Refusal {
    fn new(error_type: &'static str, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), error_type, halt: None }
    }
}

/// How a call ended.
struct Ended {
    result: String,
    status: ToolStatus,
    error_type: Option<&'static str>,
    error_message: Option<String>,
    edited: Option<String>,
    halt: Option<String>,
}

impl Ended {
    fn refused(refusal: Refusal) -> Self {
        let message = format!("BLOCKED: {}", refusal.reason);
        Self {
            result: json!({ "error": message }).to_string(),
            status: ToolStatus::Blocked,
            error_type: Some(refusal.error_type),
            error_message: Some(message),
            edited: None,
            halt: refusal.halt,
        }
    }

    fn of(outcome: Result<Value, ToolError>) -> Self {
        let (status, error_type, value) = match outcome {
            Err(error @ ToolError::TimedOut(_)) => (ToolStatus::Timeout, Some("tool_timeout"), error.as_result()),
            Err(error @ ToolError::Failed(_)) => (ToolStatus::Error, Some("tool_error"), error.as_result()),
            Ok(value) if is_truthy(value.get("error")) => (ToolStatus::Error, Some("tool_error"), value),
            Ok(value) => (ToolStatus::Ok, None, value),
        };
        let error_message = error_type.and(value.get("error")).map(|error| match error {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        Self { result: redact(&value.to_string()), status, error_type, error_message, edited: None, halt: None }
    }
}

fn is_truthy(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

impl Rounds<'_> {
    /// Makes the calls of one reply. `api_request_id` names the request it answers.
    pub(super) async fn run(&self, turn: Turn<'_>, api_request_id: &str, calls: &[RequestedCall]) -> Round {
        let mut prepared = Vec::with_capacity(calls.len());
        for requested in calls {
            prepared.push(self.prepare(turn, api_request_id, requested).await);
        }
        let mut round = Round { results: Vec::new(), step: Vec::new(), edited: BTreeSet::new(), halt: None };
        let mut rest = prepared.as_slice();
        while !rest.is_empty() {
            let edits = |call: &Prepared<'_>| matches!(&call.fate, Fate::Run { tool, .. } if tool.edits_files());
            let count = rest.iter().take_while(|call| !edits(call)).count().max(1);
            let (together, after) = rest.split_at(count);
            let ended = match &round.halt {
                None => join_all(together.iter().map(|call| self.make(turn, api_request_id, call))).await,
                Some(_) => {
                    let refusal = || Refusal::new("guardrail_block", "the turn ended before this call");
                    together.iter().map(|_| Ended::refused(refusal())).collect()
                }
            };
            for (call, ended) in together.iter().zip(ended) {
                round.step.push(StepTool {
                    name: call.requested.name.clone(),
                    result: Some(ended.result.clone()),
                    arguments: call.requested.arguments.clone(),
                });
                round.results.push(ToolResult {
                    tool_call_id: call.requested.id.clone(),
                    name: call.requested.name.clone(),
                    content: if ended.result.trim().is_empty() { EMPTY.to_owned() } else { ended.result },
                });
                round.edited.extend(ended.edited);
                round.halt = round.halt.or(ended.halt);
            }
            rest = after;
        }
        round
    }

    /// Reads a call and asks the hooks.
    async fn prepare<'c>(&self, turn: Turn<'_>, api_request_id: &str, requested: &'c RequestedCall) -> Prepared<'c> {
        let args = match requested.parsed() {
            Ok(args) => args,
            Err(why) => return Prepared { requested, args: Map::new(), fate: Fate::Unreadable(why) },
        };
        let Some(tool) = self.tools.get(&requested.name) else {
            let reason = format!("there is no tool `{}` here", requested.name);
            return Prepared { requested, args, fate: Fate::Refused(Refusal::new("tool_scope_block", reason)) };
        };
        let verdict = self
            .hooks
            .ask_tool_call(|| PreToolCall {
                tool_name: requested.name.clone(),
                args: args.clone(),
                task_id: turn.request.session_id.clone(),
                session_id: turn.request.session_id.clone(),
                tool_call_id: requested.id.clone(),
                turn_id: turn.request.turn_id.clone(),
                api_request_id: api_request_id.to_owned(),
                middleware_trace: Vec::new(),
            })
            .await;
        let args = verdict.args.unwrap_or(args);
        let fate = match verdict.directive {
            Directive::Block { reason } => Fate::Refused(Refusal::new("plugin_block", reason)),
            Directive::Approve { message, rule_key } => {
                let rule_key = rule_key.as_deref().map(str::trim).filter(|key| !key.is_empty());
                let message = message.filter(|message| !message.trim().is_empty());
                let approve = ApprovalRequest {
                    command: guard::shown(&requested.name, &args),
                    description: message
                        .unwrap_or_else(|| format!("a hook wants a person to agree to `{}`", requested.name)),
                    keys: vec![format!("plugin_rule:{}", rule_key.unwrap_or(&requested.name))],
                    by_hook: true,
                    tool_call_id: requested.id.clone(),
                };
                Fate::Run { tool: Arc::clone(tool), approve: Some(approve) }
            }
            _ => Fate::Run { tool: Arc::clone(tool), approve: None },
        };
        Prepared { requested, args, fate }
    }

    /// Makes one call, and tells the hooks how it ended.
    async fn make(&self, turn: Turn<'_>, api_request_id: &str, call: &Prepared<'_>) -> Ended {
        let mut told = Told { hooks: self.hooks, turn, api_request_id, call, began: Instant::now(), is_told: false };
        let (mut ended, ran) = match &call.fate {
            Fate::Unreadable(why) => {
                told.is_told = true;
                return Ended::of(Err(ToolError::Failed(why.clone())));
            }
            Fate::Refused(refusal) => (Ended::refused(Refusal::new(refusal.error_type, refusal.reason.clone())), false),
            Fate::Run { tool, approve } => match self.permitted(call, approve.clone()).await {
                Err(refusal) => (Ended::refused(refusal), false),
                Ok(()) => (self.call(tool.as_ref(), call).await, true),
            },
        };
        told.tell(&ended);
        if ran {
            let transformed = self.hooks.ask(&Event::TRANSFORM_TOOL_RESULT, || told.transform(&ended)).await;
            match transformed {
                Directive::Replace(text) => ended.result = text,
                Directive::Block { reason } => {
                    ended = Ended { edited: ended.edited, ..Ended::refused(Refusal::new("plugin_block", reason)) };
                }
                _ => {}
            }
        }
        ended
    }

    async fn call(&self, tool: &dyn Tool, call: &Prepared<'_>) -> Ended {
        if tool.has_effects()
            && let Err(why) = self.tool_turn.host.note_effect(tool.name()).await
        {
            return Ended::of(Err(ToolError::Failed(why)));
        }
        let outcome = tool.call(&ToolCall { args: &call.args, turn: self.tool_turn }).await;
        let edited = match &outcome {
            Ok(value) if tool.edits_files() => value.get("path").and_then(Value::as_str).map(str::to_owned),
            _ => None,
        };
        Ended { edited, ..Ended::of(outcome) }
    }

    /// Whether the call may run: by the rules, and by whoever must agree.
    async fn permitted(&self, call: &Prepared<'_>, by_hook: Option<ApprovalRequest>) -> Result<(), Refusal> {
        let by_rule = match self.guard.rule(&call.requested.name, &call.args, &self.tool_turn.cwd) {
            Ruling::Run => None,
            Ruling::Never(why) => return Err(Refusal::new("guardrail_block", why)),
            Ruling::Ask(keys) => Some(ApprovalRequest {
                command: guard::shown(&call.requested.name, &call.args),
                description: keys.join("; "),
                keys,
                by_hook: false,
                tool_call_id: call.requested.id.clone(),
            }),
        };
        for request in [by_hook, by_rule].into_iter().flatten() {
            self.agreed(request).await?;
        }
        Ok(())
    }

    async fn agreed(&self, request: ApprovalRequest) -> Result<(), Refusal> {
        let host = &self.tool_turn.host;
        match host.standing(&request) {
            Standing::Given => return Ok(()),
            Standing::AskPerson => {}
            Standing::AskModel => match self.adviser.ask(&request).await {
                Some(true) => return Ok(()),
                Some(false) => {
                    let reason = format!("the model that judges commands refused it ({})", request.description);
                    return Err(Refusal::new("guardrail_block", reason));
                }
                None => {}
            },
        }
        let (reason, halt) = match host.approve(request).await {
            Approval::Given => return Ok(()),
            Approval::Denied(None) => ("denied by the user".to_owned(), None),
            Approval::Denied(Some(why)) => (format!("denied by the user: {why}"), None),
            Approval::TimedOut { halt } => {
                let told =
                    "Nobody answered the request for approval in time, so I stopped here; nothing of it was run.";
                ("approval timed out; it was not run".to_owned(), halt.then(|| told.to_owned()))
            }
            Approval::Unasked(why) => (why, None),
        };
        Err(Refusal { halt, ..Refusal::new("guardrail_block", reason) })
    }
}

/// Tells `post_tool_call`, also when the call is cut off.
struct Told<'a> {
    hooks: &'a Registry,
    turn: Turn<'a>,
    api_request_id: &'a str,
    call: &'a Prepared<'a>,
    began: Instant,
    is_told: bool,
}

impl Told<'_> {
    fn tell(&mut self, ended: &Ended) {
        self.is_told = true;
        self.hooks.emit(&Event::POST_TOOL_CALL, || PostToolCall {
            tool_name: self.call.requested.name.clone(),
            args: self.call.args.clone(),
            result: ended.result.clone(),
            task_id: self.turn.request.session_id.clone(),
            session_id: self.turn.request.session_id.clone(),
            tool_call_id: self.call.requested.id.clone(),
            turn_id: self.turn.request.turn_id.clone(),
            api_request_id: self.api_request_id.to_owned(),
            duration_ms: self.millis(),
            status: ended.status,
            error_type: ended.error_type,
            error_message: ended.error_message.clone(),
            middleware_trace: Vec::new(),
        });
    }

    fn transform(&self, ended: &Ended) -> TransformToolResult {
        TransformToolResult {
            tool_name: self.call.requested.name.clone(),
            args: self.call.args.clone(),
            arguments: self.call.args.clone(),
            result: ended.result.clone(),
            task_id: self.turn.request.session_id.clone(),
            session_id: self.turn.request.session_id.clone(),
            tool_call_id: self.call.requested.id.clone(),
            turn_id: self.turn.request.turn_id.clone(),
            api_request_id: self.api_request_id.to_owned(),
            duration_ms: self.millis(),
            status: ended.status,
            error_type: ended.error_type,
            error_message: ended.error_message.clone(),
        }
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            let message = "the turn was interrupted".to_owned();
            self.tell(&Ended {
                result: json!({ "error": message }).to_string(),
                status: ToolStatus::Cancelled,
                error_type: Some("keyboard_interrupt"),
                error_message: Some(message),
                edited: None,
                halt: None,
            });
        }
    }
}
