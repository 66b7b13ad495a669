//! What the model may do besides speaking: the [`Tool`] seam, and what a call is given and gives back. One file per tool
//! below. Whether a call is allowed is decided by the loop that makes it, never here.

pub mod process;
pub mod terminal;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// Something the model may do. Names, arguments and results are those of `spec/decisions.md` §8: hooks match on them.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The name the model and hooks use: `read_file`.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> &str;

    /// The JSON schema of its arguments: always an object.
    fn parameters(&self) -> Value;

    /// Whether a second run after a crash could do something twice: only tools that merely look say no.
    fn has_effects(&self) -> bool;

    /// Runs one call to its end. Dropping the future ends whatever it started.
    ///
    /// # Errors
    /// [`ToolError`]: told to the model, which goes on.
    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError>;
}

/// One call of a tool.
pub struct ToolCall<'a> {
    /// The arguments, as the model gave them and hooks changed them.
    pub args: &'a Map<String, Value>,
    /// What stays the same over the turn.
    pub turn: &'a ToolTurn,
}

/// The turn a tool runs in.
#[derive(Clone)]
pub struct ToolTurn {
    /// The session, whose background processes and lists are its own.
    pub session_id: String,
    /// Identifies the turn in hook payloads.
    pub turn_id: String,
    /// The session's working directory; relative paths begin there.
    pub cwd: PathBuf,
    /// Cancelled when the turn is interrupted.
    pub stop: CancellationToken,
    /// What the turn may ask of the gateway around it.
    pub host: Arc<dyn Host>,
}

/// The gateway around a turn, as its tools see it.
#[async_trait]
pub trait Host: Send + Sync {
    /// Sends a text besides the answer: to `platform:chat[:thread]`, or to where the turn answers. The place it went to.
    ///
    /// # Errors
    /// One sentence for the model.
    async fn send_message(&self, target: Option<&str>, text: &str) -> Result<String, String>;

    /// Asks the person who talks to us, and waits for the answer.
    ///
    /// # Errors
    /// One sentence for the model: nobody is there, or nobody answered in time.
    async fn clarify(&self, question: &str, options: &[String]) -> Result<String, String>;

    /// What a terminal printed, after the hooks of `transform_terminal_output` have seen it.
    async fn transform_terminal_output(&self, command: &str, output: String, exit_code: i32) -> String;
}

/// Why a call brought no result. The model reads it as `{"error": …}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It could not be done; one sentence that says what to do instead.
    #[error("{0}")]
    Failed(String),
    /// It was not done in time and was ended.
    #[error("{0}")]
    TimedOut(String),
}

impl ToolError {
    /// The result as the model reads it.
    pub fn as_result(&self) -> Value {
        json!({ "error": self.to_string() })
    }
}

impl ToolCall<'_> {
    /// A text argument that must be there.
    ///
    /// # Errors
    /// When it is missing or no text.
    pub fn text(&self, name: &str) -> Result<&str, ToolError> {
        self.optional_text(name)?.ok_or_else(|| ToolError::Failed(format!("the argument `{name}` is missing")))
    }

    /// A text argument that may be missing or null.
    ///
    /// # Errors
    /// When it is something else.
    pub fn optional_text(&self, name: &str) -> Result<Option<&str>, ToolError> {
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ToolError::Failed(format!("the argument `{name}` must be a text, not {other}"))),
        }
    }

    /// A whole number of at least 0, also when the model wrote it as a text.
    ///
    /// # Errors
    /// When it is something else.
    pub fn optional_number(&self, name: &str) -> Result<Option<u64>, ToolError> {
        let value = match self.args.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let number = match value {
            Value::Number(number) => {
                number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64))
            }
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let wrong =
            || ToolError::Failed(format!("the argument `{name}` must be a whole number of 0 or more, not {value}"));
        number.map(Some).ok_or_else(wrong)
    }

    /// Yes or no, also when the model wrote it as a text; `default` when it is missing.
    ///
    /// # Errors
    /// When it is something else.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, ToolError> {
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(other) => Err(ToolError::Failed(format!("the argument `{name}` must be true or false, not {other}"))),
        }
    }
}

/// How long `timeout` asks for, at most `longest`.
///
/// # Errors
/// When it is no number, or 0.
pub fn timeout(call: &ToolCall<'_>, default: Duration, longest: Duration) -> Result<Duration, ToolError> {
    match call.optional_number("timeout")? {
        None => Ok(default),
        Some(0) => Err(ToolError::Failed("the argument `timeout` must be at least 1 second".to_owned())),
        Some(seconds) => Ok(Duration::from_secs(seconds).min(longest)),
    }
}
