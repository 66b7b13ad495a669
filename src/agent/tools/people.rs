//! The tools that reach people: `send_message` and `clarify`. What they do is the gateway's.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Tool, ToolCall, ToolError};

/// The longest question, and the most options of one.
const LONGEST_QUESTION: usize = 3_000;
const MOST_OPTIONS: usize = 10;

/// The tool `send_message`.
#[derive(Debug, Default)]
pub struct SendMessage;

#[async_trait]
impl Tool for SendMessage {
    fn name(&self) -> &str {
        "send_message"
    }

    fn description(&self) -> &str {
        "Sends a text besides your answer: here, or to `target`, written as platform:chat or platform:chat:thread."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "text": { "type": "string", "description": "Markdown." },
                "target": { "type": "string", "description": "Such as telegram:42; here unless given." }
            },
            "required": ["text"]
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let text = call.text("text")?;
        if text.trim().is_empty() {
            return Err(ToolError::Failed("the argument `text` is empty".to_owned()));
        }
        let target = call.optional_text("target")?.filter(|target| !target.trim().is_empty());
        let place = call.turn.host.send_message(target, text).await.map_err(ToolError::Failed)?;
        Ok(json!({ "sent": place }))
    }
}

/// The tool `clarify`.
#[derive(Debug, Default)]
pub struct Clarify;

#[async_trait]
impl Tool for Clarify {
    fn name(&self) -> &str {
        "clarify"
    }

    fn description(&self) -> &str {
        "Asks the person who talks to you, and waits for the answer. `options` are answers they can choose from; they may also \
         write something else. Ask only what you cannot find out or decide."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "question": { "type": "string" },
                "options": { "type": "array", "items": { "type": "string" }, "maxItems": MOST_OPTIONS }
            },
            "required": ["question"]
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let question = call.text("question")?;
        if question.trim().is_empty() || question.len() > LONGEST_QUESTION {
            return Err(ToolError::Failed(format!("the question must have 1 to {LONGEST_QUESTION} bytes")));
        }
        let options: Vec<String> = match call.args.get("options") {
            None | Some(Value::Null) => Vec::new(),
            Some(options) => serde_json::from_value(options.clone())
                .map_err(|_| ToolError::Failed("`options` must be a list of texts".to_owned()))?,
        };
        let options: Vec<String> = options.into_iter().filter(|option| !option.trim().is_empty()).collect();
        if options.len() > MOST_OPTIONS {
            return Err(ToolError::Failed(format!("at most {MOST_OPTIONS} options can be shown")));
        }
        let answer = call.turn.host.clarify(question, &options).await.map_err(ToolError::Failed)?;
        Ok(json!({ "answer": answer }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, turn};
    use super::*;

    #[tokio::test]
    async fn what_is_missing_or_too_much_is_told() {
        let turn = turn("/");
        for args in [json!({}), json!({ "text": " " }), json!({ "text": 1 })] {
            assert!(call(&SendMessage, &turn, args.clone()).await.is_err(), "{args}");
        }
        assert_eq!(
            call(&SendMessage, &turn, json!({ "text": "x", "target": "telegram:1" })).await.unwrap(),
            json!({ "sent": "telegram:1" })
        );
        for args in [
            json!({}),
            json!({ "question": "" }),
            json!({ "question": "x".repeat(4_000) }),
            json!({ "question": "q", "options": "a" }),
            json!({ "question": "q", "options": vec!["a"; 11] }),
        ] {
            assert!(call(&Clarify, &turn, args.clone()).await.is_err(), "{args}");
        }
        let nobody = call(&Clarify, &turn, json!({ "question": "q", "options": ["a", " "] })).await.unwrap_err();
        assert_eq!(nobody.to_string(), "nobody is here");
    }
}
