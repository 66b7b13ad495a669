//! What the model may do besides speaking: the [`Tool`] seam, and what a call is given and gives back. One file per tool
//! below. Whether a call is allowed is decided by the loop that makes it, never here.

mod encoding;
mod from_config;
pub mod people;
pub mod process;
pub mod read_file;
pub mod roots;
pub mod search_files;
pub mod terminal;
pub mod todo;
pub mod web_extract;
pub mod web_guard;
pub mod web_search;
pub mod write_file;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

pub use from_config::Toolbox;

use super::model::ToolSpec;

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

    /// Whether it changes files, which the calls after it may be meant to see: it never runs beside another.
    fn edits_files(&self) -> bool {
        false
    }

    /// Runs one call to its end. Dropping the future ends whatever it started.
    ///
    /// # Errors
    /// [`ToolError`]: told to the model, which goes on.
    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError>;
}

/// The tools a turn may call.
#[derive(Clone, Default)]
pub struct Tools {
    specs: Arc<[ToolSpec]>,
    by_name: Arc<HashMap<String, Arc<dyn Tool>>>,
}

impl Tools {
    /// Those of `all` that are named, in the order of `all`.
    pub fn of(all: &[Arc<dyn Tool>], names: &[String]) -> Self {
        let named = || all.iter().filter(|tool| names.iter().any(|name| name == tool.name()));
        let spec = |tool: &Arc<dyn Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            parameters: tool.parameters(),
        };
        Self {
            specs: named().map(spec).collect(),
            by_name: Arc::new(named().map(|tool| (tool.name().to_owned(), Arc::clone(tool))).collect()),
        }
    }

    /// As the model is told of them.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.by_name.get(name)
    }
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

/// What a person must agree to before a tool runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalRequest {
    /// The whole of it: the command line, or the tool and its arguments.
    pub command: String,
    /// Why it needs a person.
    pub description: String,
    /// What a remembered approval covers; never empty.
    pub keys: Vec<String>,
    /// A hook asks for it: `approvals.mode: off` does not answer in the person's place.
    pub by_hook: bool,
    /// The call, as the model names it.
    pub tool_call_id: String,
}

/// What is known of an approval before anybody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It was given before, or nobody is to be asked.
    Given,
    /// A person is to be asked.
    AskPerson,
    /// A model is to be asked first (`approvals.mode: smart`).
    AskModel,
}

/// How an approval was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// The tool may run.
    Given,
    /// A person said no, perhaps why.
    Denied(Option<String>),
    /// Nobody answered in time. `halt`: the turn ends with it (`approvals.on_timeout`).
    TimedOut {
        /// Whether the turn goes no further.
        halt: bool,
    },
    /// Nobody could be asked; one sentence that says what to do.
    Unasked(String),
}

/// The gateway around a turn, as its tools see it.
#[async_trait]
pub trait Host: Send + Sync {
    /// A tool is about to do something that must not be done twice: durable when it returns, so that a crash does not
    /// begin the turn anew.
    ///
    /// # Errors
    /// One sentence for the model: it could not be noted, so it must not be done.
    async fn note_effect(&self, what: &str) -> Result<(), String>;

    /// Whether somebody must be asked.
    fn standing(&self, request: &ApprovalRequest) -> Standing;

    /// Asks the people who may say, and waits for one of them. Dropping the future withdraws the question visibly.
    async fn approve(&self, request: ApprovalRequest) -> Approval;

    /// What a command printed that ran in `cwd`, after the hooks of `transform_terminal_output` have seen it.
    async fn transform_terminal_output(&self, command: &str, cwd: &Path, output: String, exit_code: i32) -> String;

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
/// No gateway around a turn: nobody answers, nothing is sent.
pub(crate) struct Nobody;

#[async_trait]
impl Host for Nobody {
    async fn note_effect(&self, _what: &str) -> Result<(), String> {
        Ok(())
    }

    fn standing(&self, _request: &ApprovalRequest) -> Standing {
        Standing::AskPerson
    }

    async fn approve(&self, _request: ApprovalRequest) -> Approval {
        Approval::Unasked("nobody is here".to_owned())
    }

    async fn transform_terminal_output(&self, _command: &str, _cwd: &Path, output: String, _code: i32) -> String {
        output
    }

    async fn send_message(&self, target: Option<&str>, _text: &str) -> Result<String, String> {
        target.map(str::to_owned).ok_or_else(|| "nobody is here".to_owned())
    }

    async fn clarify(&self, _question: &str, _options: &[String]) -> Result<String, String> {
        Err("nobody is here".to_owned())
    }
}

/// What the tests of tools share: a turn in a directory, in a gateway where nobody is.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A turn whose tools begin in `cwd`.
    pub(crate) fn turn(cwd: impl Into<PathBuf>) -> ToolTurn {
        ToolTurn {
            session_id: "s-1".to_owned(),
            turn_id: "1".to_owned(),
            cwd: cwd.into(),
            stop: CancellationToken::new(),
            host: Arc::new(Nobody),
        }
    }

    /// Calls a tool with these arguments.
    pub(crate) async fn call(tool: &dyn Tool, turn: &ToolTurn, args: Value) -> Result<Value, ToolError> {
        let Value::Object(args) = args else { panic!("arguments are an object") };
        tool.call(&ToolCall { args: &args, turn }).await
    }
}
