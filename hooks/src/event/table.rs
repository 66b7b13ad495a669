//! The table of events. The reference in `docs/events.md` is generated from it, and nothing else says which events exist.
//! Sources: `spec/hermes-hooks.md` §1.5, §2.4–2.8; `spec/decisions.md` §2 and §3.

use std::fmt;

use crate::Directive;

/// One event, or a family of them (`command:<name>`).
#[derive(Debug, Clone, Copy)]
pub struct EventRow {
    /// The name; `<name>` stands for the name of a command.
    pub name: &'static str,
    /// Whose hooks can subscribe to it.
    pub system: System,
    /// The moment.
    pub when: &'static str,
    /// The keys of the payload, in order. Plugin and shell hooks get `telemetry_schema_version` besides.
    pub keys: &'static [&'static str],
    /// What may be answered, and how several answers become one.
    pub answers: Answers,
    /// Whether it happens today.
    pub fires: Fires,
}

/// The two families of names. Rust hooks in process may use both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Gateway hooks (`hooks/<name>/HOOK.yaml`): names with a colon.
    Gateway,
    /// Plugins and shell hooks: names without.
    Plugin,
}

/// Whether an event happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fires {
    /// Yes.
    Now,
    /// Not before the named part exists.
    Later(&'static str),
    /// There is no such moment here; the name is accepted so that existing hooks load.
    Never,
}

/// What hooks may answer to an event, and how several answers become one. In all of them `Block` outranks whatever would
/// let the event pass, and a `fail_closed` hook that does not answer blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// Nobody asks.
    Ignored,
    /// `Skip`, `Rewrite`, `Block`; the first wins, and an explicit `Allow` counts as an answer.
    Message,
    /// `Deny`, `Handled`, `RewriteCommand`, `Block`; the first wins.
    Command,
    /// `Block`, `Approve`, `Modify`: changed arguments add up and are what later hooks see; of the rest the first wins.
    ToolCall,
    /// `Block`, whose reason the model is told; the first wins.
    Verify,
    /// `Context`; all of them, joined with an empty line.
    Context,
    /// `Replace`; the first wins.
    Replacement {
        /// Whether an empty text is an answer too.
        may_be_empty: bool,
    },
}

impl Answers {
    /// Whether anybody asks.
    pub fn decides(self) -> bool {
        self != Self::Ignored
    }

    /// Whether a hook may answer this to the event.
    pub fn accepts(self, directive: &Directive) -> bool {
        use Directive as D;
        match self {
            Self::Ignored => false,
            Self::Message => {
                matches!(directive, D::Allow | D::Skip { .. } | D::Rewrite { .. } | D::Block { .. })
            }
            Self::Command => match directive {
                D::Allow | D::Deny { .. } | D::Handled { .. } | D::Block { .. } => true,
                D::RewriteCommand { name, .. } => !name.is_empty(),
                _ => false,
            },
            Self::ToolCall => matches!(directive, D::Allow | D::Block { .. } | D::Approve { .. } | D::Modify { .. }),
            Self::Verify => matches!(directive, D::Allow | D::Block { .. }),
            Self::Context => matches!(directive, D::Allow | D::Context(_)),
            Self::Replacement { .. } => matches!(directive, D::Allow | D::Replace(_)),
        }
    }

    /// Whether an accepted answer settles the question, so that later ones no longer count.
    pub(crate) fn settles(self, directive: &Directive) -> bool {
        match directive {
            Directive::Allow => self == Self::Message,
            Directive::Replace(text) => !text.is_empty() || self == Self::Replacement { may_be_empty: true },
            Directive::Context(_) => false,
            _ => true,
        }
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignored => "ignored",
            Self::Message => "allow, skip, rewrite, block: the first wins, block outranks allow and rewrite",
            Self::Command => "deny, handled, rewrite, block: the first wins, block outranks rewrite",
            Self::ToolCall => "block, approve, modify: block outranks approve, changed arguments add up",
            Self::Verify => "block with a message for the model: the first wins",
            Self::Context => "context: all, joined with an empty line",
            Self::Replacement { may_be_empty: true } => "replacement text, also empty: the first wins",
            Self::Replacement { may_be_empty: false } => "replacement text, not empty: the first wins",
        })
    }
}

const fn gateway(
    name: &'static str,
    fires: Fires,
    answers: Answers,
    when: &'static str,
    keys: &'static [&'static str],
) -> EventRow {
    EventRow { name, system: System::Gateway, when, keys, answers, fires }
}

const fn plugin(
    name: &'static str,
    fires: Fires,
    answers: Answers,
    when: &'static str,
    keys: &'static [&'static str],
) -> EventRow {
    EventRow { name, system: System::Plugin, when, keys, answers, fires }
}

const fn never(name: &'static str, when: &'static str) -> EventRow {
    plugin(name, Fires::Never, Answers::Ignored, when, &[])
}

const AGENT_START: &[&str] = &["platform", "user_id", "chat_id", "thread_id", "chat_type", "session_id", "message"];
const AGENT_END: &[&str] = &[
    "platform",
    "user_id",
    "chat_id",
    "thread_id",
    "chat_type",
    "session_id",
    "message",
    "response",
    "status",
    "error",
];
const COMMAND: &[&str] = &["platform", "user_id", "command", "raw_command", "args", "raw_args"];
const APPROVAL: &[&str] =
    &["command", "description", "pattern_key", "pattern_keys", "session_key", "surface", "turn_id", "tool_call_id"];
const KANBAN: &str = "kanban boards are not part of hookgate";
const MEDIA: &str = "speech is not part of hookgate";
const STREAM: &str = "streams of a single message are not shown to hooks";
const UPSTREAM: &str = "no such moment in hookgate";

use Answers::{Command, Context, Ignored, Message, Replacement, ToolCall, Verify};
use Fires::{Later, Never, Now};

/// Every event there is.
#[rustfmt::skip]
pub static EVENTS: &[EventRow] = &[
    gateway("gateway:startup", Now, Ignored, "once, when each enabled adapter's first attempt to connect has ended; never delays readiness", &["platforms", "hooks", "version"]),
    gateway("gateway:shutdown", Now, Ignored, "once, before adapters disconnect", &["platforms", "reason"]),
    gateway("session:start", Now, Ignored, "at the first message of a new session: the first ever, after `/new`, or after idle or daily expiry", &["platform", "user_id", "session_id", "session_key", "reason"]),
    gateway("session:end", Now, Ignored, "at `/new`, after the new session exists; when the operator resets a session; when a webhook delivery that had a session of its own is through; at idle or daily expiry; `session_id` is the old one", &["platform", "user_id", "session_key", "session_id", "reason"]),
    gateway("session:reset", Now, Ignored, "at `/new` and when the operator resets a session, right after `session:end`", &["platform", "user_id", "session_key", "reason"]),
    gateway("session:compress", Later("compression"), Ignored, "after a conversation was compressed", &["platform", "session_id", "old_session_id", "in_place", "compression_count", "reason"]),
    gateway("agent:start", Now, Ignored, "just before a turn runs", AGENT_START),
    gateway("agent:step", Now, Ignored, "before each request of a turn to the model; `tool_names` and `tools` are those of the step before", &["platform", "user_id", "session_id", "iteration", "tool_names", "tools"]),
    gateway("agent:end", Now, Ignored, "at the end of every turn that started, also a failed or interrupted one", AGENT_END),
    gateway("agent:turn_start", Now, Ignored, "with `agent:start`, only for hooks that name it exactly", AGENT_START),
    gateway("agent:turn_end", Now, Ignored, "with `agent:end`, only for hooks that name it exactly", AGENT_END),
    gateway("command:before:<name>", Now, Command, "before a command runs, before `command:<name>`", COMMAND),
    gateway("command:<name>", Now, Command, "before a command runs, also while a turn is active; a typed alias (`command:reset`) matches too", COMMAND),
    gateway("message:received", Now, Ignored, "when a message is stored, once, before anything is decided about it", &["platform", "chat_id", "chat_type", "user_id", "user_name", "thread_id", "message_id", "text", "session_key"]),
    gateway("message:sent", Now, Ignored, "when the platform has taken a part of a reply", &["platform", "chat_id", "thread_id", "message_id", "reply_to", "text", "part", "parts", "session_key"]),
    gateway("webhook:received", Now, Ignored, "when a verified delivery is stored", &["route", "event", "delivery_id"]),
    gateway("webhook:delivered", Now, Ignored, "when a delivery's result has reached a target", &["route", "delivery_id", "target"]),
    gateway("webhook:failed", Now, Ignored, "when a delivery is given up; `target` is null if it failed before one was known", &["route", "delivery_id", "target", "error"]),
    gateway("reaction:added", Never, Ignored, "reactions are not read", &[]),
    gateway("reaction:removed", Never, Ignored, "reactions are not read", &[]),

    plugin("pre_gateway_dispatch", Now, Message, "once per message, a webhook's too, when its turn comes, idle or busy; before access, pairing and commands", &["event"]),
    plugin("on_session_start", Now, Ignored, "once per session id, before its first turn", &["session_id", "model", "platform"]),
    plugin("pre_llm_call", Now, Context, "once per turn, before the first request to the model", &["session_id", "task_id", "turn_id", "user_message", "conversation_history", "is_first_turn", "model", "platform", "sender_id"]),
    plugin("pre_api_request", Now, Ignored, "before each attempt to call the model", &["task_id", "turn_id", "api_request_id", "session_id", "user_message", "conversation_history", "platform", "model", "provider", "base_url", "api_mode", "api_call_count", "request_messages", "message_count", "tool_count", "approx_input_tokens", "request_char_count", "max_tokens", "started_at", "middleware_trace", "request"]),
    plugin("post_api_request", Now, Ignored, "after each attempt that gave an answer", &["task_id", "turn_id", "api_request_id", "session_id", "platform", "model", "provider", "base_url", "api_mode", "api_call_count", "api_duration", "started_at", "ended_at", "finish_reason", "message_count", "response_model", "response", "usage", "assistant_message", "assistant_content_chars", "assistant_tool_call_count"]),
    plugin("api_request_error", Now, Ignored, "after each attempt that failed", &["task_id", "turn_id", "api_request_id", "session_id", "platform", "model", "provider", "base_url", "api_mode", "api_call_count", "api_duration", "started_at", "ended_at", "status_code", "retry_count", "max_retries", "retryable", "reason", "error", "request"]),
    plugin("transform_llm_output", Now, Replacement { may_be_empty: false }, "once per turn with an answer, before it is delivered", &["response_text", "session_id", "model", "platform"]),
    plugin("post_llm_call", Now, Ignored, "once per turn with an answer, after `transform_llm_output`", &["session_id", "task_id", "turn_id", "user_message", "assistant_response", "conversation_history", "model", "platform"]),
    plugin("on_session_end", Now, Ignored, "at the end of every turn", &["session_id", "task_id", "turn_id", "completed", "interrupted", "model", "platform", "failed"]),
    plugin("on_session_finalize", Now, Ignored, "at `/new` (`reason` is `new_session`), when the operator resets a session (`session_boundary`) and for each turn the gateway's stop interrupts (`shutdown`), at idle or daily expiry (`session_expired`); the last two keys come with `new_session` only", &["session_id", "platform", "reason", "old_session_id", "new_session_id"]),
    plugin("on_session_reset", Now, Ignored, "at `/new`, after the new session exists", &["session_id", "platform", "reason", "old_session_id", "new_session_id"]),

    plugin("pre_tool_call", Now, ToolCall, "before each tool call that can be read and that the turn may make; all of a batch before any of it runs", &["tool_name", "args", "task_id", "session_id", "tool_call_id", "turn_id", "api_request_id", "middleware_trace"]),
    plugin("post_tool_call", Now, Ignored, "after each tool call, also a blocked, failed or interrupted one", &["tool_name", "args", "result", "task_id", "session_id", "tool_call_id", "turn_id", "api_request_id", "duration_ms", "status", "error_type", "error_message", "middleware_trace"]),
    plugin("transform_tool_result", Now, Replacement { may_be_empty: true }, "right after `post_tool_call`, for every tool", &["tool_name", "args", "arguments", "result", "task_id", "session_id", "tool_call_id", "turn_id", "api_request_id", "duration_ms", "status", "error_type", "error_message"]),
    plugin("transform_terminal_output", Now, Replacement { may_be_empty: true }, "after a command ran in the foreground", &["command", "output", "returncode", "exit_code", "task_id", "cwd", "env_type"]),
    plugin("pre_verify", Now, Verify, "when a turn that edited files is about to end; at most three times a turn", &["session_id", "platform", "model", "coding", "attempt", "final_response", "changed_paths"]),
    plugin("pre_approval_request", Now, Ignored, "before a person, or with `surface` `smart` a model, is asked for an approval", APPROVAL),
    plugin("post_approval_response", Now, Ignored, "once for each `pre_approval_request`, with the choice; `decided_by` comes where a model decided", &["command", "description", "pattern_key", "pattern_keys", "session_key", "surface", "turn_id", "tool_call_id", "choice", "decided_by"]),
    plugin("subagent_start", Later("delegation"), Ignored, "before a delegated task runs", &["parent_session_id", "parent_turn_id", "parent_subagent_id", "child_session_id", "child_subagent_id", "child_role", "child_goal"]),
    plugin("subagent_stop", Later("delegation"), Ignored, "once per delegated task, when it is over", &["parent_session_id", "parent_turn_id", "child_session_id", "child_role", "child_summary", "child_status", "duration_ms"]),

    never("kanban_task_claimed", KANBAN),
    never("kanban_task_completed", KANBAN),
    never("kanban_task_blocked", KANBAN),
    never("on_kanban_worker_spawned", KANBAN),
    never("on_kanban_worker_exited", KANBAN),
    never("on_kanban_worker_stale_claim", KANBAN),
    never("on_kanban_task_updated", KANBAN),
    never("on_kanban_dispatch_tick", KANBAN),
    never("pre_tts_synthesis", MEDIA),
    never("pre_transcription", MEDIA),
    never("on_stream_start", STREAM),
    never("on_stream_delta", STREAM),
    never("on_stream_end", STREAM),
    never("on_interim_message", STREAM),
    never("pre_command", UPSTREAM),
    never("agent_loop_stopped", UPSTREAM),
    never("gateway_platform_event", UPSTREAM),
    never("transform_api_error_classification", UPSTREAM),
    never("pre_auxiliary_call", UPSTREAM),
    never("post_auxiliary_call", UPSTREAM),
    never("on_skill_lifecycle", UPSTREAM),
    never("on_room_member_activity", UPSTREAM),
];
