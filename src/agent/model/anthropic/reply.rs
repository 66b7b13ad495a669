//! Puts an answer together from the events of a Messages stream, or from the one object of a server that does not stream.
//! Pure, and generous: events and blocks it does not know, such as the model's thoughts, it passes over.

use serde_json::{Map, Value};

use super::super::calls::Calls;
use super::super::http::{LONGEST_ANSWER, Reading};
use super::super::refusal::{self, Asked};
use super::super::{ModelError, ModelReply, Usage};

/// An answer in the making.
#[derive(Debug, Default)]
pub(in crate::agent::model) struct Reply {
    reply: ModelReply,
    calls: Calls,
    /// What was reported of the tokens: the beginning tells what was read, the end what was written.
    usage: Map<String, Value>,
    has_ended: bool,
}

impl Reading for Reply {
    const UNSAID: &str = "a stop_reason and without message_stop";

    fn take_event(&mut self, _name: &str, data: &str, asked: Asked<'_>) -> Result<&str, ModelError> {
        let data = data.trim();
        if data.is_empty() || data == "[DONE]" || self.has_ended {
            return Ok("");
        }
        let event = serde_json::from_str::<Value>(data)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| refusal::broken(format!("an event of the model's stream is no JSON object: {data}")))?;
        let before = self.reply.text.len();
        self.take(&event, asked)?;
        self.check()?;
        Ok(&self.reply.text[before..])
    }

    fn take_whole(&mut self, object: Value, asked: Asked<'_>) -> Result<&str, ModelError> {
        if let Some(error) = error_of(&object) {
            return Err(refusal::of_error_object(error, asked));
        }
        let Some(blocks) = object.get("content").and_then(Value::as_array) else {
            return Err(refusal::broken(format!("the model's answer has no content: {object}")));
        };
        for (index, block) in (0..).zip(blocks) {
            self.start_block(Some(index), block)?;
        }
        self.note_message(&object);
        self.note_end(&object);
        self.check()?;
        Ok(&self.reply.text)
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn is_finished(&self) -> bool {
        self.has_ended || self.reply.finish_reason.is_some()
    }

    fn into_reply(mut self, round: usize) -> Result<ModelReply, ModelError> {
        if !self.usage.is_empty() {
            self.reply.usage = Some(tokens(&self.usage));
            self.reply.raw_usage = Some(self.usage.into());
        }
        Ok(ModelReply { tool_calls: self.calls.finish(round), ..self.reply })
    }
}

impl Reply {
    fn take(&mut self, event: &Value, asked: Asked<'_>) -> Result<(), ModelError> {
        if let Some(error) = error_of(event) {
            return Err(refusal::of_error_object(error, asked));
        }
        let index = event.get("index").and_then(Value::as_u64);
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => {
                if let Some(message) = event.get("message") {
                    self.note_message(message);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.get("content_block") {
                    self.start_block(index, block)?;
                }
            }
            "content_block_delta" => {
                let delta = event.get("delta").unwrap_or(&Value::Null);
                let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
                match text("type") {
                    "text_delta" => self.reply.text.push_str(text("text")),
                    "input_json_delta" => self.calls.add_arguments(index, text("partial_json")),
                    _ => {}
                }
            }
            "message_delta" => {
                self.note_usage(event);
                self.note_end(event.get("delta").unwrap_or(&Value::Null));
            }
            "message_stop" => self.has_ended = true,
            _ => {}
        }
        Ok(())
    }

    /// A block begins, or stands there whole. The input of a call that is yet to come is an empty object.
    fn start_block(&mut self, index: Option<u64>, block: &Value) -> Result<(), ModelError> {
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text" => self.reply.text.push_str(text("text")),
            "tool_use" => {
                self.calls.start(index, text("id"), text("name"));
                let input = block.get("input").and_then(Value::as_object).filter(|input| !input.is_empty());
                if let Some(input) = input {
                    self.calls.add_arguments(index, &Value::Object(input.clone()).to_string());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note_message(&mut self, message: &Value) {
        if let Some(model) = message.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) {
            self.reply.model = Some(model.to_owned());
        }
        self.note_usage(message);
    }

    fn note_usage(&mut self, holder: &Value) {
        if let Some(usage) = holder.get("usage").and_then(Value::as_object) {
            let told = usage.iter().filter(|(_, value)| !value.is_null());
            self.usage.extend(told.map(|(key, value)| (key.clone(), value.clone())));
        }
    }

    fn note_end(&mut self, holder: &Value) {
        if let Some(why) = holder.get("stop_reason").and_then(Value::as_str).filter(|why| !why.is_empty()) {
            let why = match why {
                "end_turn" | "stop_sequence" => "stop",
                "max_tokens" | "model_context_window_exceeded" => "length",
                "tool_use" => "tool_calls",
                "refusal" => "content_filter",
                other => other,
            };
            self.reply.finish_reason = Some(why.to_owned());
        }
    }

    fn check(&self) -> Result<(), ModelError> {
        if self.reply.text.len() > LONGEST_ANSWER {
            return Err(refusal::too_long(format!("the model's answer is longer than {LONGEST_ANSWER} bytes")));
        }
        Ok(())
    }
}

fn error_of(object: &Value) -> Option<&Value> {
    let is_error = object.get("type").and_then(Value::as_str) == Some("error");
    object.get("error").filter(|error| !error.is_null()).or(is_error.then_some(object))
}

/// What comes from a cache, and what is put into one, is not in `input_tokens`.
fn tokens(usage: &Map<String, Value>) -> Usage {
    let count = |key: &str| usage.get(key).and_then(Value::as_u64);
    let cached = count("cache_read_input_tokens");
    let input = [count("input_tokens"), cached, count("cache_creation_input_tokens")].into_iter().flatten().sum();
    let output = count("output_tokens").unwrap_or(0);
    Usage { input, output, total: input + output, cached }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::Reason;
    use super::*;

    const ASKED: Asked<'_> = Asked { model: "m", with_key: false, key_variable: "ANTHROPIC_API_KEY" };

    fn read(events: &[&str]) -> (Vec<String>, Reply) {
        let mut reply = Reply::default();
        let mut pieces = Vec::new();
        for event in events {
            let piece = reply.take_event("", event, ASKED).unwrap();
            if !piece.is_empty() {
                pieces.push(piece.to_owned());
            }
        }
        (pieces, reply)
    }

    #[test]
    fn a_stream_with_thoughts_text_and_calls() {
        let (pieces, reply) = read(&[
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x-1","content":[],"stop_reason":null,"usage":{"input_tokens":10,"cache_read_input_tokens":30,"cache_creation_input_tokens":null,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"xx"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me "}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"see."}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"p\":"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" 1}"}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"list","input":{}}}"#,
            r#"{"type":"content_block_stop","index":3}"#,
            r#"{"type":"something_new","index":4}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":25}}"#,
            r#"{"type":"message_stop"}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"after the end"}}"#,
        ]);
        assert_eq!(pieces, ["Let me ", "see."]);
        assert!(reply.has_ended());
        let reply = reply.into_reply(1).unwrap();
        let calls: Vec<_> = reply.tool_calls.iter().map(|call| [&call.id, &call.name, &call.arguments]).collect();
        assert_eq!(calls, [["toolu_1", "read", r#"{"p": 1}"#], ["toolu_2", "list", ""]]);
        assert_eq!(reply.text, "Let me see.");
        assert_eq!((reply.finish_reason.as_deref(), reply.model.as_deref()), (Some("tool_calls"), Some("claude-x-1")));
        assert_eq!(reply.usage, Some(Usage { input: 40, output: 25, total: 65, cached: Some(30) }));
        let raw = json!({"input_tokens": 10, "cache_read_input_tokens": 30, "output_tokens": 25});
        assert_eq!(reply.raw_usage, Some(raw));
    }

    #[test]
    fn a_whole_answer() {
        let mut reply = Reply::default();
        let whole = json!({
            "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "tool_use",
            "content": [
                {"type": "text", "text": "Hm."},
                {"type": "tool_use", "id": "a", "name": "read", "input": {"p": 1}},
                {"type": "redacted_thinking", "data": "…"},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 4},
        });
        assert_eq!(reply.take_whole(whole, ASKED).unwrap(), "Hm.");
        let reply = reply.into_reply(1).unwrap();
        assert_eq!(reply.tool_calls[0].arguments, r#"{"p":1}"#);
        assert_eq!(reply.usage, Some(Usage { input: 3, output: 4, total: 7, cached: None }));
        let none = Reply::default().take_whole(json!({"hello": 1}), ASKED).unwrap_err();
        assert_eq!(none.reason, Reason::Broken);
    }

    #[test]
    fn why_it_ended() {
        let why = |stop: &str| {
            let event = json!({"type": "message_delta", "delta": {"stop_reason": stop}}).to_string();
            read(&[&event]).1.into_reply(1).unwrap().finish_reason.unwrap()
        };
        for (stop, wanted) in [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("max_tokens", "length"),
            ("tool_use", "tool_calls"),
            ("refusal", "content_filter"),
            ("pause_turn", "pause_turn"),
        ] {
            assert_eq!(why(stop), wanted);
        }
        assert!(!read(&[r#"{"type":"message_delta","delta":{"stop_reason":null}}"#]).1.is_finished());
    }

    #[test]
    fn errors_inside_the_stream() {
        let fails = |kind: &str| {
            let error = json!({"type": "error", "error": {"type": kind, "message": "…"}}).to_string();
            Reply::default().take_event("error", &error, ASKED).unwrap_err().reason
        };
        for (kind, reason) in [
            ("overloaded_error", Reason::ServerError),
            ("api_error", Reason::ServerError),
            ("rate_limit_error", Reason::RateLimit),
            ("authentication_error", Reason::Auth),
            ("permission_error", Reason::Auth),
            ("billing_error", Reason::Quota),
            ("not_found_error", Reason::NotFound),
            ("request_too_large", Reason::ContextLength),
            ("timeout_error", Reason::Timeout),
            ("invalid_request_error", Reason::BadRequest),
        ] {
            assert_eq!(fails(kind), reason, "{kind}");
        }
        let broken = |data: &str| Reply::default().take_event("", data, ASKED).unwrap_err().reason;
        assert_eq!(broken(r#"{"type":"content_bl"#), Reason::Broken);
        assert_eq!(broken("7"), Reason::Broken);
    }

    #[test]
    fn an_answer_has_a_longest_length() {
        let mut reply = Reply::default();
        let delta = json!({"type": "text_delta", "text": "x".repeat(LONGEST_ANSWER / 2)});
        let piece = json!({"type": "content_block_delta", "index": 0, "delta": delta}).to_string();
        reply.take_event("", &piece, ASKED).unwrap();
        reply.take_event("", &piece, ASKED).unwrap();
        assert_eq!(reply.take_event("", &piece, ASKED).unwrap_err().reason, Reason::TooLong);
    }
}
