//! What is said to a model and by it, apart from any wire format.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The longest name of a tool that every provider takes.
const LONGEST_NAME: usize = 64;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The person (or the webhook) says something; never blank.
    User(String),
    /// The model said something, asked for tools, or both.
    Assistant {
        /// May be blank only where there are calls.
        text: String,
        /// Answered by the [`Message::ToolResults`] that follows, every one of them.
        calls: Vec<RequestedCall>,
    },
    /// What the tools of one round brought, in the order of the calls.
    ToolResults(Vec<ToolResult>),
}

impl Message {
    /// The person says `text`.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(text.into())
    }

    /// The model said `text` and asked for nothing.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new() }
    }

    /// As recordings hold it, whatever the dialect: `{"role", "content"}`, with `tool_calls` where there are any.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::User(text) => json!({ "role": "user", "content": text }),
            Self::Assistant { text, calls } if calls.is_empty() => json!({ "role": "assistant", "content": text }),
            Self::Assistant { text, calls } => json!({ "role": "assistant", "content": text, "tool_calls": calls }),
            Self::ToolResults(results) => json!({ "role": "tool", "content": results }),
        }
    }
}

/// A call the model asks for, as it wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// Not empty, and no other call of the conversation has it.
    pub id: String,
    /// The tool; may be one that there is not.
    pub name: String,
    /// Meant to be a JSON object. Whether it is one is for [`parsed`](Self::parsed) to say.
    pub arguments: String,
    /// Why the call cannot be made, whatever its arguments; one sentence for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl RequestedCall {
    /// The arguments; none at all stand for an empty object.
    ///
    /// # Errors
    /// One sentence for the model: they are no JSON, or no object, or the call cannot be made at all.
    pub fn parsed(&self) -> Result<Map<String, Value>, String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if self.arguments.trim().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(Value::Null) => Ok(Map::new()),
            Ok(_) => Err("the arguments must be a JSON object".to_owned()),
            Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
        }
    }

    /// The arguments as providers take them back: an object in any case. Several parse what the model once wrote, and
    /// refuse the whole conversation over one broken call.
    pub(super) fn repeatable(&self) -> Map<String, Value> {
        self.parsed().unwrap_or_default()
    }

    /// The name as providers take it back: they refuse other characters, even in a call that was an error.
    pub(super) fn repeatable_name(&self) -> String {
        let name = plain(&self.name);
        if name.is_empty() { "unnamed".to_owned() } else { name.chars().take(LONGEST_NAME).collect() }
    }
}

/// Only letters, digits, `_` and `-` stay what they are.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// What one call brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// [`RequestedCall::id`].
    pub tool_call_id: String,
    /// The tool that ran, or did not.
    pub name: String,
    /// What the model reads.
    pub content: String,
}

/// A tool, as the model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Letters, digits, `_` and `-`, at most 64 of them.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments: always an object.
    pub parameters: Value,
}

/// Tokens of one request, by the provider's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Everything that was read, also what came from a cache.
    pub input: u64,
    /// Everything that was written, also what the model only thought.
    pub output: u64,
    /// Both.
    pub total: u64,
    /// How much of `input` came from a cache, where the provider tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_or_a_sentence() {
        let call = |arguments: &str| RequestedCall {
            id: "call_1".to_owned(),
            name: "read_file".to_owned(),
            arguments: arguments.to_owned(),
            fault: None,
        };
        assert_eq!(call(r#"{"path": "a"}"#).parsed().unwrap()["path"], "a");
        for nothing in ["", " \n", "{}", "null"] {
            assert_eq!(call(nothing).parsed(), Ok(Map::new()), "{nothing:?}");
        }
        assert_eq!(call("[1]").parsed().unwrap_err(), "the arguments must be a JSON object");
        assert!(call(r#"{"path": "#).parsed().unwrap_err().starts_with("the arguments are not valid JSON: "));
        assert_eq!(call(r#"{"path": "#).repeatable(), Map::new());
    }

    #[test]
    fn names_are_made_repeatable() {
        let named = |name: &str| {
            RequestedCall { id: String::new(), name: name.to_owned(), arguments: String::new(), fault: None }
                .repeatable_name()
        };
        assert_eq!(named("mcp_files_read-1"), "mcp_files_read-1");
        assert_eq!(named("functions.read file"), "functions_read_file");
        assert_eq!(named(""), "unnamed");
        assert_eq!(named(&"x".repeat(100)).len(), LONGEST_NAME);
    }
}
