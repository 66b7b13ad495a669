//! The tool `terminal`: a command line, run by a shell in the session's working directory, to its end or in the background.
//! Whether it may run is decided before.

mod plain;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookgate_hooks::process::{Finished, Keep, Processes, Spec, StartError, find_program};
use serde_json::{Value, json};

use super::process::BackgroundProcesses;
use super::{Tool, ToolCall, ToolError, timeout};

pub(super) use plain::{plain, so_far};

/// What `timeout` tells scripts, and we the hooks.
const TIMED_OUT: i32 = 124;
/// What is told of the output of a command that was not done in time, from its end. The rest belongs in a file.
const TOLD_OF_TIMED_OUT: usize = 8000;

/// How the tool behaves.
#[derive(Debug, Clone)]
pub struct TerminalSettings {
    /// How long a command may take that does not say.
    pub default_timeout: Duration,
    /// The most it may say.
    pub longest_timeout: Duration,
    /// How long a command may go on after SIGTERM.
    pub grace: Duration,
    /// How many bytes of output are kept: 40 % from its beginning, 60 % from its end.
    pub output_bytes: usize,
    /// Variables of `secrets.pass_to_tools`, besides the few that every process gets.
    pub env: Vec<(String, String)>,
}

impl Default for TerminalSettings {
    fn default() -> Self {
        Self {
            default_timeout: Duration::from_secs(60),
            longest_timeout: Duration::from_secs(600),
            grace: Duration::from_secs(2),
            output_bytes: 50_000,
            env: Vec::new(),
        }
    }
}

/// The tool.
pub struct Terminal {
    settings: TerminalSettings,
    processes: Processes,
    background: Arc<BackgroundProcesses>,
    shell: PathBuf,
    description: String,
}

impl Terminal {
    /// Runs commands as `processes`, and hands those in the background to `background`.
    pub fn new(settings: TerminalSettings, processes: Processes, background: Arc<BackgroundProcesses>) -> Self {
        let shell = find_program("bash").unwrap_or_else(|| PathBuf::from("/bin/sh"));
        let description = format!(
            "Runs a command line with {} and gives its output (standard output and standard error in one) and exit code. \
             Each call is a shell of its own: `cd` and variables do not carry over; `cwd` says where it runs, relative to \
             the session's working directory. There is no terminal and no input. A command that is not done after `timeout` \
             seconds ({} unless given, at most {}) is ended with all it started, and so is what a command leaves running \
             behind; for servers and long work use `background`, which gives an id for the tool `process`.",
            shell.display(),
            settings.default_timeout.as_secs(),
            settings.longest_timeout.as_secs(),
        );
        Self { settings, processes, background, shell, description }
    }

    fn spec(&self, command: &str, cwd: PathBuf) -> Spec {
        let spec = Spec::new(self.shell.clone()).args(["-c", command]).cwd(cwd);
        let spec = spec.env("TERM", "dumb").env("PAGER", "cat");
        let spec = self.settings.env.iter().fold(spec, |spec, (name, value)| spec.env(name, value));
        spec.merged().stdout(Keep::HeadAndTail(self.settings.output_bytes)).grace(self.settings.grace)
    }
}

#[async_trait]
impl Tool for Terminal {
    fn name(&self) -> &str {
        "terminal"
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "The command line." },
                "timeout": { "type": "integer", "minimum": 1, "description": "Seconds; not for the background." },
                "cwd": { "type": "string", "description": "The directory it runs in." },
                "background": { "type": "boolean", "description": "Whether to go on without waiting for it." }
            },
            "required": ["command"]
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let command = call.text("command")?;
        if command.trim().is_empty() {
            return Err(ToolError::Failed("the argument `command` is empty".to_owned()));
        }
        let cwd = cwd(call)?;
        let spec = self.spec(command, cwd.clone());
        if call.flag("background", false)? {
            let id = self.background.start(&call.turn.session_id, command, spec).await?;
            return Ok(json!({ "id": id, "status": "running" }));
        }
        let limit = timeout(call, self.settings.default_timeout, self.settings.longest_timeout)?;
        let finished = tokio::select! {
            finished = self.processes.run(spec.deadline(limit)) => finished.map_err(|error| not_started(&error))?,
            () = call.turn.stop.cancelled() => return Err(ToolError::Failed("the turn was interrupted".to_owned())),
        };
        let (exit_code, output) = self.output(call, command, &cwd, &finished).await;
        if finished.timed_out {
            return Err(ToolError::TimedOut(self.not_in_time(limit, &output)));
        }
        Ok(json!({ "output": output, "exit_code": exit_code }))
    }
}

impl Terminal {
    /// The exit code, and what the model reads of the output: after the hooks, which see it as it is.
    async fn output(&self, call: &ToolCall<'_>, command: &str, cwd: &Path, finished: &Finished) -> (i32, String) {
        let exit_code = if finished.timed_out { TIMED_OUT } else { finished.exit.code() };
        let output = plain::joined(&finished.stdout);
        let output = call.turn.host.transform_terminal_output(command, cwd, output, exit_code).await;
        (exit_code, plain(&output))
    }

    fn not_in_time(&self, limit: Duration, output: &str) -> String {
        let seconds = limit.as_secs();
        let more = match self.settings.longest_timeout.as_secs() {
            longest if longest > seconds => format!("allow it more time (`timeout`, at most {longest})"),
            _ => "split it".to_owned(),
        };
        let mut told =
            format!("the command was not done after {seconds} s and was ended; {more}, or run it in the background");
        if !output.is_empty() {
            let start = output.ceil_char_boundary(output.len().saturating_sub(TOLD_OF_TIMED_OUT));
            let kind = if start > 0 { "the end of its output" } else { "its output" };
            told.push_str(&format!("; {kind} so far:\n{}", &output[start..]));
        }
        told
    }
}

/// Where the command runs.
fn cwd(call: &ToolCall<'_>) -> Result<PathBuf, ToolError> {
    let Some(cwd) = call.optional_text("cwd")?.filter(|cwd| !cwd.is_empty()) else { return Ok(call.turn.cwd.clone()) };
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    let in_home = match cwd.strip_prefix('~') {
        Some("") => home(),
        Some(rest) => rest.strip_prefix('/').and_then(|rest| Some(home()?.join(rest))),
        None => None,
    };
    Ok(in_home.unwrap_or_else(|| call.turn.cwd.join(cwd)))
}

pub(super) fn not_started(error: &StartError) -> ToolError {
    ToolError::Failed(error.to_string())
}

#[cfg(test)]
pub(super) mod tests;
