use serde_json::{Value, json};

use super::*;
use crate::{EVENTS, Fires};

fn text(text: &str) -> String {
    text.to_owned()
}

fn agent_start() -> AgentStart {
    AgentStart {
        platform: text("telegram"),
        user_id: Some(text("7")),
        chat_id: text("42"),
        thread_id: String::new(),
        chat_type: text("dm"),
        session_id: text("20261130_190813_0a1b2c3d"),
        message: Excerpt::of("hello"),
    }
}

fn swap() -> NewSession {
    NewSession { old_session_id: Some(text("old")), new_session_id: text("new") }
}

/// One payload with everything there is to tell, its events and the keys, written by hand.
fn samples() -> Vec<(&'static [&'static str], Value, &'static str)> {
    fn sample<P: Payload>(payload: &P, keys: &'static str) -> (&'static [&'static str], Value, &'static str) {
        (P::EVENTS, serde_json::to_value(payload).unwrap(), keys)
    }
    let request = Sanitised::request(&json!({ "model": "m" }));
    let source = DispatchSource { platform: text("telegram"), ..DispatchSource::default() };
    vec![
        sample(
            &GatewayStartup { platforms: vec![text("telegram")], hooks: vec![], version: text("1") },
            "platforms hooks version",
        ),
        sample(&GatewayShutdown { platforms: vec![], reason: text("signal") }, "platforms reason"),
        sample(
            &SessionStart {
                platform: text("telegram"),
                user_id: None,
                session_id: text("s"),
                session_key: text("k"),
                reason: text("first"),
            },
            "platform user_id session_id session_key reason",
        ),
        sample(
            &SessionEnd {
                platform: text("telegram"),
                user_id: None,
                session_key: text("k"),
                session_id: text("s"),
                reason: text("idle"),
            },
            "platform user_id session_key session_id reason",
        ),
        sample(
            &SessionReset { platform: text("telegram"), user_id: None, session_key: text("k"), reason: text("reset") },
            "platform user_id session_key reason",
        ),
        sample(&agent_start(), "platform user_id chat_id thread_id chat_type session_id message"),
        sample(
            &AgentStep {
                platform: text("telegram"),
                user_id: None,
                session_id: text("s"),
                iteration: 1,
                tool_names: vec![],
                tools: vec![StepTool { name: text("terminal"), result: None, arguments: text("{}") }],
            },
            "platform user_id session_id iteration tool_names tools",
        ),
        sample(
            &AgentEnd { start: agent_start(), response: Excerpt::of("hi"), status: TurnStatus::Completed, error: None },
            "platform user_id chat_id thread_id chat_type session_id message response status error",
        ),
        sample(
            &Command::new("telegram", None, "new", "reset", "now"),
            "platform user_id command raw_command args raw_args",
        ),
        sample(
            &MessageReceived {
                platform: text("telegram"),
                chat_id: text("42"),
                chat_type: text("dm"),
                user_id: None,
                user_name: None,
                thread_id: None,
                message_id: text("1"),
                text: text("hello"),
                session_key: text("k"),
            },
            "platform chat_id chat_type user_id user_name thread_id message_id text session_key",
        ),
        sample(
            &MessageSent {
                platform: text("telegram"),
                chat_id: text("42"),
                thread_id: None,
                message_id: None,
                reply_to: None,
                text: text("hi"),
                part: 1,
                parts: 1,
                session_key: None,
            },
            "platform chat_id thread_id message_id reply_to text part parts session_key",
        ),
        sample(
            &WebhookReceived { route: text("r"), event: text("push"), delivery_id: text("d") },
            "route event delivery_id",
        ),
        sample(
            &WebhookDelivered { route: text("r"), delivery_id: text("d"), target: text("telegram:42") },
            "route delivery_id target",
        ),
        sample(
            &WebhookFailed { route: text("r"), delivery_id: text("d"), target: None, error: text("e") },
            "route delivery_id target error",
        ),
        sample(&PreGatewayDispatch { event: DispatchEvent { source, ..DispatchEvent::default() } }, "event"),
        sample(
            &OnSessionStart { session_id: text("s"), model: text("m"), platform: text("telegram") },
            "session_id model platform",
        ),
        sample(
            &OnSessionEnd {
                session_id: text("s"),
                task_id: text("t"),
                turn_id: text("u"),
                completed: true,
                interrupted: false,
                model: text("m"),
                platform: text("telegram"),
                failed: false,
            },
            "session_id task_id turn_id completed interrupted model platform failed",
        ),
        sample(
            &OnSessionFinalize::new_session("telegram", swap()),
            "session_id platform reason old_session_id new_session_id",
        ),
        sample(
            &OnSessionReset::new_session("telegram", swap()),
            "session_id platform reason old_session_id new_session_id",
        ),
        sample(
            &PreLlmCall {
                session_id: text("s"),
                task_id: text("t"),
                turn_id: text("u"),
                user_message: json!("hello"),
                conversation_history: vec![],
                is_first_turn: true,
                model: text("m"),
                platform: text("telegram"),
                sender_id: text("7"),
            },
            "session_id task_id turn_id user_message conversation_history is_first_turn model platform sender_id",
        ),
        sample(
            &PostLlmCall {
                session_id: text("s"),
                task_id: text("t"),
                turn_id: text("u"),
                user_message: json!("hello"),
                assistant_response: text("hi"),
                conversation_history: vec![],
                model: text("m"),
                platform: text("telegram"),
            },
            "session_id task_id turn_id user_message assistant_response conversation_history model platform",
        ),
        sample(
            &TransformLlmOutput {
                response_text: text("hi"),
                session_id: text("s"),
                model: text("m"),
                platform: text("telegram"),
            },
            "response_text session_id model platform",
        ),
        sample(
            &PreApiRequest {
                task_id: text("t"),
                turn_id: text("u"),
                api_request_id: text("r"),
                session_id: text("s"),
                user_message: json!("hello"),
                conversation_history: vec![],
                platform: text("telegram"),
                model: text("m"),
                provider: text("openai"),
                base_url: text("http://127.0.0.1"),
                api_mode: text("chat_completions"),
                api_call_count: 1,
                request_messages: vec![],
                message_count: 0,
                tool_count: 0,
                approx_input_tokens: 2,
                request_char_count: 5,
                max_tokens: None,
                started_at: 1.5,
                middleware_trace: vec![],
                request: request.clone(),
            },
            "task_id turn_id api_request_id session_id user_message conversation_history platform model provider \
             base_url api_mode api_call_count request_messages message_count tool_count approx_input_tokens \
             request_char_count max_tokens started_at middleware_trace request",
        ),
        sample(
            &PostApiRequest {
                task_id: text("t"),
                turn_id: text("u"),
                api_request_id: text("r"),
                session_id: text("s"),
                platform: text("telegram"),
                model: text("m"),
                provider: text("openai"),
                base_url: text("http://127.0.0.1"),
                api_mode: text("chat_completions"),
                api_call_count: 1,
                api_duration: 0.5,
                started_at: 1.5,
                ended_at: 2.0,
                finish_reason: text("stop"),
                message_count: 1,
                response_model: None,
                response: Sanitised::response(None, "stop", &json!({}), &Value::Null),
                usage: Value::Null,
                assistant_message: json!({}),
                assistant_content_chars: 2,
                assistant_tool_call_count: 0,
            },
            "task_id turn_id api_request_id session_id platform model provider base_url api_mode api_call_count \
             api_duration started_at ended_at finish_reason message_count response_model response usage \
             assistant_message assistant_content_chars assistant_tool_call_count",
        ),
        sample(
            &ApiRequestError {
                task_id: text("t"),
                turn_id: text("u"),
                api_request_id: text("r"),
                session_id: text("s"),
                platform: text("telegram"),
                model: text("m"),
                provider: text("openai"),
                base_url: text("http://127.0.0.1"),
                api_mode: text("chat_completions"),
                api_call_count: 1,
                api_duration: 0.5,
                started_at: 1.5,
                ended_at: 2.0,
                status_code: Some(429),
                retry_count: 0,
                max_retries: 3,
                retryable: true,
                reason: text("rate_limit"),
                error: ApiError { kind: text("rate_limit_error"), message: text("slow down") },
                request,
            },
            "task_id turn_id api_request_id session_id platform model provider base_url api_mode api_call_count \
             api_duration started_at ended_at status_code retry_count max_retries retryable reason error request",
        ),
        sample(
            &PreToolCall::default(),
            "tool_name args task_id session_id tool_call_id turn_id api_request_id middleware_trace",
        ),
        sample(
            &PostToolCall::default(),
            "tool_name args result task_id session_id tool_call_id turn_id api_request_id duration_ms status error_type \
             error_message middleware_trace",
        ),
        sample(
            &TransformToolResult::default(),
            "tool_name args arguments result task_id session_id tool_call_id turn_id api_request_id duration_ms status \
             error_type error_message",
        ),
        sample(&TransformTerminalOutput::default(), "command output returncode exit_code task_id cwd env_type"),
        sample(&PreVerify::default(), "session_id platform model coding attempt final_response changed_paths"),
        sample(
            &PreApprovalRequest::default(),
            "command description pattern_key pattern_keys session_key surface turn_id tool_call_id",
        ),
        sample(
            &PostApprovalResponse { decided_by: Some("aux_llm"), ..PostApprovalResponse::default() },
            "command description pattern_key pattern_keys session_key surface turn_id tool_call_id choice decided_by",
        ),
    ]
}

fn keys_of(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn payloads_have_the_keys_of_the_wire_format_and_of_the_table() {
    for (events, json, expected) in samples() {
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(keys_of(&json), expected, "{events:?}");
        for event in events {
            let row = EVENTS.iter().find(|row| row.name == *event).unwrap();
            assert_eq!(row.keys, expected, "{event}");
        }
    }
}

#[test]
fn every_event_that_fires_has_a_payload() {
    let told: Vec<&str> = samples().iter().flat_map(|(events, ..)| events.iter().copied()).collect();
    for row in EVENTS.iter().filter(|row| row.fires == Fires::Now) {
        assert_eq!(told.iter().filter(|name| **name == row.name).count(), 1, "{}", row.name);
    }
}

#[test]
fn what_is_unknown_is_null_or_empty_as_the_reference_has_it() {
    let unknown = AgentStart {
        platform: String::new(),
        user_id: None,
        chat_id: String::new(),
        thread_id: String::new(),
        chat_type: String::new(),
        session_id: text("s"),
        message: Excerpt::default(),
    };
    let failed = AgentEnd {
        start: unknown,
        response: Excerpt::of(""),
        status: TurnStatus::Failed,
        error: Some(text("no model")),
    };
    assert_eq!(
        serde_json::to_value(&failed).unwrap(),
        json!({ "platform": "", "user_id": null, "chat_id": "", "thread_id": "", "chat_type": "", "session_id": "s",
            "message": "", "response": "", "status": "failed", "error": "no model" })
    );
}

#[test]
fn excerpts_are_500_code_points() {
    assert_eq!(Excerpt::of(&"🦀".repeat(600)).0, "🦀".repeat(500));
    assert_eq!(Excerpt::of(&"e\u{301}".repeat(300)).0.chars().count(), 500);
    assert_eq!(Excerpt::from("short").0, "short");
}

#[test]
fn commands_tell_their_arguments_twice() {
    assert_eq!(
        serde_json::to_value(Command::new("telegram", Some("7"), "new", "reset", "my title")).unwrap(),
        json!({ "platform": "telegram", "user_id": "7", "command": "new", "raw_command": "reset", "args": "my title",
            "raw_args": "my title" })
    );
}

#[test]
fn finalize_tells_of_two_sessions_only_after_new() {
    let json = |payload: OnSessionFinalize| serde_json::to_value(payload).unwrap();
    assert_eq!(
        json(OnSessionFinalize::shutdown("s")),
        json!({ "session_id": "s", "platform": "gateway", "reason": "shutdown" })
    );
    assert_eq!(
        json(OnSessionFinalize::expired("s", "telegram")),
        json!({ "session_id": "s", "platform": "telegram", "reason": "session_expired" })
    );
    assert_eq!(
        json(OnSessionFinalize::boundary("s", "telegram")),
        json!({ "session_id": "s", "platform": "telegram", "reason": "session_boundary" })
    );
    let first = NewSession { old_session_id: None, new_session_id: text("new") };
    assert_eq!(
        json(OnSessionFinalize::new_session("telegram", first)),
        json!({ "session_id": null, "platform": "telegram", "reason": "new_session", "old_session_id": null,
            "new_session_id": "new" })
    );
    assert_eq!(
        serde_json::to_value(OnSessionReset::new_session("telegram", swap())).unwrap(),
        json!({ "session_id": "new", "platform": "telegram", "reason": "new_session", "old_session_id": "old",
            "new_session_id": "new" })
    );
}

#[test]
fn a_dispatched_message_has_the_data_of_the_references_objects() {
    let json = serde_json::to_value(PreGatewayDispatch { event: DispatchEvent::default() }).unwrap();
    assert_eq!(
        keys_of(&json["event"]).join(" "),
        "text message_type source message_id platform_update_id media_urls media_types media reply_to_message_id \
         reply_to_text reply_to_author_id reply_to_author_name reply_to_is_own_message auto_skill channel_prompt \
         channel_context internal metadata timestamp"
    );
    assert_eq!(
        keys_of(&json["event"]["source"]).join(" "),
        "platform chat_id chat_name chat_type user_id user_name thread_id chat_topic user_id_alt chat_id_alt is_bot \
         scope_id guild_id parent_chat_id message_id role_authorized profile auto_thread_created \
         auto_thread_initial_name delivered_via_upstream_relay"
    );
}

#[test]
fn nested_objects_have_their_keys() {
    let error = ApiError { kind: text("timeout"), message: text("late") };
    assert_eq!(serde_json::to_value(error).unwrap(), json!({ "type": "timeout", "message": "late" }));
    let tool = StepTool { name: text("terminal"), result: Some(text("{}")), arguments: text("{}") };
    assert_eq!(keys_of(&serde_json::to_value(tool).unwrap()), ["name", "result", "arguments"]);
    let response = Sanitised::response(Some("m"), "stop", &json!({ "role": "assistant", "content": "hi" }), &json!({}));
    assert_eq!(
        serde_json::to_value(response).unwrap(),
        json!({ "model": "m", "finish_reason": "stop", "assistant_message": { "role": "assistant", "content": "hi" },
            "usage": {} })
    );
}

#[test]
fn who_decided_is_told_only_of_a_model() {
    let json =
        serde_json::to_value(PostApprovalResponse { choice: "once", ..PostApprovalResponse::default() }).unwrap();
    assert_eq!(json["choice"], "once");
    assert!(json.get("decided_by").is_none());
}
