//! What a tool call needs before it runs, by what it would do: nothing, a person's word, or it never runs. The rules for
//! command lines are in `danger.rs`; who is asked, and what was allowed before, is the gateway's to know.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::danger::{self, Place};

/// The operator's rules.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// `approvals.deny`: commands that never run.
    pub deny: Vec<String>,
    /// The home of the user we run as.
    pub user_home: Option<PathBuf>,
}

/// What is to happen with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It may run.
    Run,
    /// Somebody must agree; the keys of the rules that matched.
    Ask(Vec<String>),
    /// It never runs; why.
    Never(String),
}

impl Guard {
    /// Rules on a call whose arguments are final.
    pub(super) fn rule(&self, tool: &str, args: &Map<String, Value>, cwd: &Path) -> Ruling {
        let Some(command) = command_of(tool, args) else { return Ruling::Run };
        let place = Place { home: self.user_home.as_deref(), cwd: Some(cwd) };
        let judgement = danger::judge(command, place);
        if let Some(what) = judgement.hard_line {
            return Ruling::Never(format!("{what}; this never runs, whoever asks for it"));
        }
        if let Some(glob) = danger::matches_deny(command, &self.deny) {
            return Ruling::Never(format!("the operator forbids commands like `{glob}` (approvals.deny)"));
        }
        if judgement.findings.is_empty() { Ruling::Run } else { Ruling::Ask(judgement.findings) }
    }
}

/// The shell text a call would run. What is written to a process in the background may be read by a shell there.
pub(super) fn command_of<'a>(tool: &str, args: &'a Map<String, Value>) -> Option<&'a str> {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    match tool {
        "terminal" => text("command"),
        "process" if text("action") == Some("write") => text("text"),
        _ => None,
    }
}

/// A call as a person reads it before they agree: the command line, or the tool with its arguments.
pub(super) fn shown(tool: &str, args: &Map<String, Value>) -> String {
    match command_of(tool, args) {
        Some(command) => command.to_owned(),
        None => {
            let args = serde_json::to_string_pretty(args).unwrap_or_default();
            format!("{tool} {args}")
        }
    }
}
