//! The tool `process`, and what it works on: the commands that `terminal` started in the background. Each belongs to its
//! session; all are killed when the gateway stops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hookgate_hooks::process::{Background, Processes, Spec, StartError};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::terminal::{not_started, so_far};
use super::{Tool, ToolCall, ToolError};
use crate::redact::redact;

/// How long we wait for a process to take what is written to it.
const PATIENCE: Duration = Duration::from_secs(5);
/// What `list` shows of a command.
const SHOWN_OF_COMMAND: usize = 200;

/// The bounds of commands in the background.
#[derive(Debug, Clone)]
pub struct BackgroundSettings {
    /// How many may run in one session.
    pub per_session: usize,
    /// How many may run in all. As many that have ended are kept at most.
    pub in_all: usize,
    /// How long one may run.
    pub longest: Duration,
    /// How long one that has ended can be asked about.
    pub keep_ended: Duration,
    /// How many bytes of output wait to be read; the oldest are lost.
    pub output_bytes: usize,
}

impl Default for BackgroundSettings {
    fn default() -> Self {
        Self {
            per_session: 16,
            in_all: 64,
            longest: Duration::from_secs(24 * 3600),
            keep_ended: Duration::from_secs(3600),
            output_bytes: 50_000,
        }
    }
}

/// The commands that run in the background, and those that did lately.
pub struct BackgroundProcesses {
    settings: BackgroundSettings,
    processes: Processes,
    list: Mutex<Vec<Arc<Entry>>>,
    /// One start at a time, or the bounds would not hold. With the number of the last one.
    starts: tokio::sync::Mutex<u64>,
    is_closed: AtomicBool,
}

struct Entry {
    id: String,
    session_id: String,
    command: String,
    process: Background,
    started: Instant,
}

impl BackgroundProcesses {
    /// None yet.
    pub fn new(settings: BackgroundSettings) -> Self {
        let processes = Processes::new(settings.in_all);
        let (list, starts) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { settings, processes, list, starts, is_closed: AtomicBool::new(false) }
    }

    /// Starts one for a session. Its id.
    ///
    /// # Errors
    /// When it does not start, or too many run.
    pub async fn start(&self, session_id: &str, command: &str, spec: Spec) -> Result<String, ToolError> {
        let mut number = self.starts.lock().await;
        self.forget_ended();
        let running = self.of(session_id).iter().filter(|entry| entry.process.ended().is_none()).count();
        if running >= self.settings.per_session {
            return Err(ToolError::Failed(format!(
                "{running} processes of this session run in the background, more may not; end one with `process`"
            )));
        }
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(ToolError::Failed("the gateway is stopping".to_owned()));
        }
        let spec = spec.deadline(self.settings.longest);
        let process = self.processes.start(spec, self.settings.output_bytes).await.map_err(|error| match error {
            StartError::NoPlace(limit) => ToolError::Failed(format!(
                "{limit} processes run in the background in all sessions, more may not; try again later"
            )),
            error => not_started(error),
        })?;
        *number += 1;
        let entry = Entry {
            id: format!("p{number}"),
            session_id: session_id.to_owned(),
            command: command.to_owned(),
            process,
            started: Instant::now(),
        };
        let id = entry.id.clone();
        self.list().push(Arc::new(entry));
        Ok(id)
    }

    /// Kills and forgets those of a session.
    pub async fn end_session(&self, session_id: &str) {
        let ended = self.of(session_id);
        self.list().retain(|entry| entry.session_id != session_id);
        kill_all(&ended).await;
    }

    /// Kills all, for ever: the gateway stops.
    pub async fn stop(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Who is starting one is in the list then.
        let _starts = self.starts.lock().await;
        let all = std::mem::take(&mut *self.list());
        kill_all(&all).await;
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.processes.running()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, session_id: &str) -> Vec<Arc<Entry>> {
        self.list().iter().filter(|entry| entry.session_id == session_id).map(Arc::clone).collect()
    }

    fn find(&self, session_id: &str, id: &str) -> Result<Arc<Entry>, ToolError> {
        self.of(session_id).into_iter().find(|entry| entry.id == id).ok_or_else(|| {
            ToolError::Failed(format!("there is no process `{id}` in this session; `list` shows those there are"))
        })
    }

    /// Forgets those that ended long ago, and the oldest of the others that ended when they are many.
    fn forget_ended(&self) {
        let mut list = self.list();
        let ended_at = |entry: &Entry| Some(entry.started + entry.process.ended()?.duration);
        list.retain(|entry| ended_at(entry).is_none_or(|at| at.elapsed() < self.settings.keep_ended));
        let mut sessions: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        let mut in_all = 0;
        let mut keep: Vec<bool> = Vec::with_capacity(list.len());
        // From the newest.
        for entry in list.iter().rev() {
            if entry.process.ended().is_none() {
                keep.push(true);
                continue;
            }
            let of_session = sessions.entry(entry.session_id.clone()).or_default();
            *of_session += 1;
            in_all += 1;
            keep.push(*of_session <= self.settings.per_session && in_all <= self.settings.in_all);
        }
        let mut keep = keep.into_iter().rev();
        list.retain(|_| keep.next().unwrap_or(true));
    }
}

async fn kill_all(entries: &[Arc<Entry>]) {
    futures_util::future::join_all(entries.iter().map(|entry| entry.process.kill())).await;
}

impl Entry {
    fn status(&self) -> Map<String, Value> {
        let ended = self.process.ended();
        let status = match ended {
            None => "running",
            Some(ended) if ended.killed => "killed",
            Some(ended) if ended.timed_out => "timed out",
            Some(_) => "exited",
        };
        let mut told = Map::new();
        told.insert("id".to_owned(), json!(self.id));
        told.insert("status".to_owned(), json!(status));
        if let Some(ended) = ended {
            told.insert("exit_code".to_owned(), json!(ended.exit.code()));
        }
        told
    }
}

/// The tool.
pub struct Process {
    background: Arc<BackgroundProcesses>,
}

impl Process {
    /// Works on `background`.
    pub fn new(background: Arc<BackgroundProcesses>) -> Self {
        Self { background }
    }
}

#[async_trait]
impl Tool for Process {
    fn name(&self) -> &str {
        "process"
    }

    fn description(&self) -> &str {
        "Works on commands that `terminal` started in the background in this session. `list`: which there are. `poll`: whether \
         one still runs, its exit code, and how much output is unread. `read`: the output since the last `read`. `write`: \
         writes `text` to its standard input as it is (end a line with a newline); without `text` it closes the input. \
         `kill`: ends it with all it started."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "enum": ["list", "poll", "read", "write", "kill"] },
                "id": { "type": "string", "description": "Which process; for all but `list`." },
                "text": { "type": "string", "description": "For `write`." }
            },
            "required": ["action"]
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let action = call.text("action")?;
        if !["list", "poll", "read", "write", "kill"].contains(&action) {
            return Err(ToolError::Failed(format!(
                "the argument `action` must be list, poll, read, write or kill, not `{action}`"
            )));
        }
        if action == "list" {
            return Ok(self.list(&call.turn.session_id));
        }
        let entry = self.background.find(&call.turn.session_id, call.text("id")?)?;
        match action {
            "read" => Ok(read(&entry)),
            "write" => write(&entry, call.optional_text("text")?.unwrap_or_default()).await,
            "kill" => {
                entry.process.kill().await;
                Ok(Value::Object(entry.status()))
            }
            _ => {
                let mut told = entry.status();
                told.insert("unread_bytes".to_owned(), json!(entry.process.unread()));
                Ok(Value::Object(told))
            }
        }
    }
}

impl Process {
    fn list(&self, session_id: &str) -> Value {
        self.background.forget_ended();
        let described = |entry: &Arc<Entry>| {
            let mut told = entry.status();
            let command = redact(&entry.command);
            let end = command.floor_char_boundary(SHOWN_OF_COMMAND);
            told.insert("command".to_owned(), json!(command[..end]));
            told.insert("seconds".to_owned(), json!(entry.process.age().as_secs()));
            Value::Object(told)
        };
        json!({ "processes": self.background.of(session_id).iter().map(described).collect::<Vec<_>>() })
    }
}

fn read(entry: &Entry) -> Value {
    let output = entry.process.read(|unread| so_far(unread.bytes, unread.lost, unread.is_complete));
    let mut told = entry.status();
    told.insert("output".to_owned(), json!(output));
    Value::Object(told)
}

async fn write(entry: &Entry, text: &str) -> Result<Value, ToolError> {
    let mut told = entry.status();
    if text.is_empty() {
        entry.process.close_stdin().await;
        told.insert("written_bytes".to_owned(), json!(0));
        return Ok(Value::Object(told));
    }
    let closed = |_| ToolError::Failed(format!("the process `{}` does not read its standard input any more", entry.id));
    let written = entry.process.write(text.as_bytes(), PATIENCE).await.map_err(closed)?;
    if written < text.len() {
        return Err(ToolError::Failed(format!(
            "the process `{}` does not read its standard input: it took {written} of {} bytes",
            entry.id,
            text.len()
        )));
    }
    told.insert("written_bytes".to_owned(), json!(written));
    Ok(Value::Object(told))
}

#[cfg(test)]
mod tests;
