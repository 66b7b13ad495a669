//! Puts an answer together from the events of a chat-completions stream, or from the one object of a server that does
//! not stream. Pure, and generous: what it does not know it passes over.

use serde_json::Value;

use super::super::calls::Calls;
use super::super::http::{LONGEST_ANSWER, Reading};
use super::super::refusal::{self, Asked};
use super::super::{ModelError, ModelReply, Usage};

/// An answer in the making.
#[derive(Debug, Default)]
pub(in crate::agent::model) struct Reply {
    reply: ModelReply,
    calls: Calls,
    has_ended: bool,
}

impl Reading for Reply {
    const UNSAID: &str = "a finish_reason and without [DONE]";

    fn take_event(&mut self, name: &str, data: &str, asked: Asked<'_>) -> Result<&str, ModelError> {
        let data = data.trim();
        if data.is_empty() || self.has_ended {
            return Ok("");
        }
        if data == "[DONE]" {
            self.has_ended = true;
            return Ok("");
        }
        let object = serde_json::from_str::<Value>(data)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| refusal::broken(format!("an event of the model's stream is no JSON object: {data}")))?;
        if name == "error" && object.get("error").is_none() {
            return Err(refusal::of_error_object(&object, asked));
        }
        self.take_object(object, asked)
    }

    fn take_whole(&mut self, object: Value, asked: Asked<'_>) -> Result<&str, ModelError> {
        if object.get("choices").is_none_or(|choices| !choices.is_array()) && object.get("error").is_none() {
            return Err(refusal::broken(format!("the model's answer has no choices: {object}")));
        }
        self.take_object(object, asked)
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn is_finished(&self) -> bool {
        self.has_ended || self.reply.finish_reason.is_some()
    }

    fn into_reply(self, round: usize) -> Result<ModelReply, ModelError> {
        Ok(ModelReply { tool_calls: self.calls.finish(round), ..self.reply })
    }
}

impl Reply {
    /// Takes one object: a chunk of a stream, or a whole completion.
    fn take_object(&mut self, mut object: Value, asked: Asked<'_>) -> Result<&str, ModelError> {
        if let Some(error) = object.get("error").filter(|error| !error.is_null()) {
            return Err(refusal::of_error_object(error, asked));
        }
        if object.get("object").and_then(Value::as_str) == Some("error") {
            return Err(refusal::of_error_object(&object, asked));
        }
        if let Some(usage @ Value::Object(_)) = object.get_mut("usage").map(Value::take) {
            self.reply.usage = Some(tokens(&usage));
            self.reply.raw_usage = Some(usage);
        }
        if let Some(model) = object.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) {
            self.reply.model = Some(model.to_owned());
        }
        let before = self.reply.text.len();
        if let Some(choice) = object.get("choices").and_then(Value::as_array).and_then(|choices| first(choices)) {
            let said = ["delta", "message"].iter().find_map(|key| choice.get(key));
            // A model that declines says so in a field of its own.
            for key in ["content", "refusal"] {
                self.push(said.and_then(|said| said.get(key)).unwrap_or(&Value::Null));
            }
            if let Some(calls) = said.and_then(|said| said.get("tool_calls")).and_then(Value::as_array) {
                self.calls.take(calls);
            }
            if let Some(why) = choice.get("finish_reason").and_then(Value::as_str).filter(|why| !why.is_empty()) {
                if why == "error" {
                    return Err(refusal::broken(format!("the model ended with an error: {choice}")));
                }
                self.reply.finish_reason = Some(why.to_owned());
            }
        }
        if self.reply.text.len() > LONGEST_ANSWER {
            return Err(refusal::too_long(format!("the model's answer is longer than {LONGEST_ANSWER} bytes")));
        }
        Ok(&self.reply.text[before..])
    }

    /// Content is a string, `null`, or a list of parts of which those of type `text` count.
    fn push(&mut self, content: &Value) {
        match content {
            Value::String(text) => self.reply.text.push_str(text),
            Value::Array(parts) => {
                let texts = parts.iter().filter(|part| part.get("type").and_then(Value::as_str) == Some("text"));
                for text in texts.filter_map(|part| part.get("text")?.as_str()) {
                    self.reply.text.push_str(text);
                }
            }
            _ => {}
        }
    }
}

/// The counts of `usage`. Caches are reported under three names.
fn tokens(usage: &Value) -> Usage {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    let (input, output) = (count("/prompt_tokens").unwrap_or(0), count("/completion_tokens").unwrap_or(0));
    Usage {
        input,
        output,
        total: count("/total_tokens").unwrap_or(input + output),
        cached: ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"]
            .into_iter()
            .find_map(count),
    }
}

/// The choice with index 0, or without an index.
fn first(choices: &[Value]) -> Option<&Value> {
    choices.iter().find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::Reason;
    use super::*;

    const ASKED: Asked<'_> = Asked { model: "m", with_key: false, key_variable: "OPENAI_API_KEY" };

    fn read(events: &[&str]) -> (Vec<String>, Reply) {
        let mut reply = Reply::default();
        let mut pieces = Vec::new();
        for event in events {
            let piece = reply.take_event("message", event, ASKED).unwrap();
            if !piece.is_empty() {
                pieces.push(piece.to_owned());
            }
        }
        (pieces, reply)
    }

    #[test]
    fn an_ordinary_stream() {
        let (pieces, reply) = read(&[
            r#"{"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"Hel"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"lo"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"total_tokens":7}}"#,
            "[DONE]",
            r#"{"choices":[{"delta":{"content":"after the end"}}]}"#,
        ]);
        assert_eq!(pieces, ["Hel", "lo"]);
        assert!(reply.has_ended() && reply.is_finished());
        let reply = reply.into_reply(1).unwrap();
        assert_eq!(reply.text, "Hello");
        assert_eq!(reply.finish_reason.as_deref(), Some("stop"));
        assert_eq!(reply.model.as_deref(), Some("m-1"));
        assert_eq!(reply.raw_usage, Some(json!({"total_tokens": 7})));
        assert_eq!(reply.usage, Some(Usage { total: 7, ..Usage::default() }));
    }

    #[test]
    fn a_stream_with_tool_calls() {
        let (pieces, reply) = read(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":null}}]}"#,
            r#"{"choices":[{"delta":{"content":"Let me see."}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"read","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\":"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"function":{"name":"list"}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}}"#,
        ]);
        assert_eq!(pieces, ["Let me see."]);
        let reply = reply.into_reply(5).unwrap();
        let calls: Vec<_> = reply.tool_calls.iter().map(|call| [&call.id, &call.name, &call.arguments]).collect();
        assert_eq!(calls, [["a", "read", r#"{"p":1}"#], ["call_5_1", "list", ""]]);
        assert_eq!(reply.finish_reason.as_deref(), Some("tool_calls"));
        assert_eq!(reply.usage, Some(Usage { input: 9, output: 4, total: 13, cached: Some(3) }));
    }

    #[test]
    fn a_whole_answer_with_tool_calls() {
        let mut reply = Reply::default();
        let call = json!({"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let whole = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        assert_eq!(reply.take_whole(whole, ASKED).unwrap(), "");
        let reply = reply.into_reply(1).unwrap();
        assert_eq!((reply.text.as_str(), reply.tool_calls.len()), ("", 1));
        assert_eq!(reply.finish_reason.as_deref(), Some("stop"));
    }

    #[test]
    fn deviations_of_compatible_servers() {
        let (pieces, reply) = read(&[
            "",
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"thinking","text":"hm"},{"type":"text","text":"a"}]}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"the other choice"}},{"index":0,"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"message":{"content":"c"},"finish_reason":""}]}"#,
            r#"{"choices":[{"delta":{"content":null,"refusal":"d"}}]}"#,
            r#"{"choices":null,"error":null,"model":""}"#,
            r#"{"choices":[{"delta":null}]}"#,
            r#"{"id":"x","unknown":[1,2]}"#,
        ]);
        assert_eq!(pieces, ["a", "b", "c", "d"]);
        assert!(!reply.is_finished());
    }

    #[test]
    fn errors_inside_the_stream() {
        let fails = |name: &str, data: &str| Reply::default().take_event(name, data, ASKED).unwrap_err().reason;
        assert_eq!(fails("message", r#"{"error":{"code":429,"message":"slow down"}}"#), Reason::RateLimit);
        assert_eq!(fails("message", r#"{"error":"overloaded"}"#), Reason::ServerError);
        assert_eq!(fails("message", r#"{"object":"error","code":401,"message":"no"}"#), Reason::Auth);
        assert_eq!(fails("error", r#"{"message":"boom"}"#), Reason::ServerError);
        assert_eq!(fails("message", r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#), Reason::Broken);
        assert_eq!(fails("message", r#"{"choices":[{"del"#), Reason::Broken);
        assert_eq!(fails("message", "[1]"), Reason::Broken);
    }

    #[test]
    fn an_answer_has_a_longest_length() {
        let mut reply = Reply::default();
        let piece = json!({"choices": [{"delta": {"content": "x".repeat(LONGEST_ANSWER / 2)}}]});
        reply.take_object(piece.clone(), ASKED).unwrap();
        reply.take_object(piece.clone(), ASKED).unwrap();
        assert_eq!(reply.take_object(piece, ASKED).unwrap_err().reason, Reason::TooLong);
    }
}
