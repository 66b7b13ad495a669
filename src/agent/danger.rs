//! What a shell command line could do: nothing that needs asking, something a person must agree to, or something that never
//! runs. The line is read by a shell's parser and every command it can run is looked at, wherever it hides. Pure: nothing is
//! run, read or looked up here, and who may agree is not decided here.
//!
//! It cannot know everything: what is computed when the line runs is asked about, and a program may do harm under a harmless
//! name. The rules and their words are those of `spec/hermes-gateway.md` §3.

mod paths;
mod prefixes;
mod rules;
mod told;
mod walk;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use regex::{Regex, RegexBuilder};

use walk::Walk;

/// A longer line is not read.
const LONGEST: usize = 64 << 10;
/// A line nested deeper than this is not read: the parser recurses, and a stack that is spent cannot be caught. It also tries
/// each `(` and each `case` in more than one way, which doubles the time with each level: those count twice.
const DEEPEST: usize = 16;

/// Where the line would run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place<'a> {
    /// The home of the user it would run as.
    pub home: Option<&'a Path>,
    /// The working directory.
    pub cwd: Option<&'a Path>,
}

/// What is to be known before the line runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judgement {
    /// It never runs; what it would do.
    pub hard_line: Option<String>,
    /// What a person must agree to, in words that name the rule; empty: it runs without asking.
    pub findings: Vec<String>,
}

impl Judgement {
    fn find(&mut self, what: &str) {
        if !self.findings.iter().any(|known| known == what) {
            self.findings.push(what.to_owned());
        }
    }

    fn never(&mut self, what: String) {
        self.hard_line.get_or_insert(what);
    }
}

/// Judges a command line of a shell.
pub fn judge(command: &str, place: Place<'_>) -> Judgement {
    let (mut judgement, _) = walk(command, place);
    // What never runs is told so, also where nobody would be asked.
    if let Some(what) = judgement.hard_line.clone() {
        judgement.find(&what);
    }
    judgement
}

/// The glob of `approvals.deny` that the line, or a command in it, matches: `*` and `?`, case-insensitive.
pub fn matches_deny<'g>(command: &str, globs: &'g [String]) -> Option<&'g str> {
    if globs.is_empty() {
        return None;
    }
    let (_, mut lines) = walk(command, Place::default());
    lines.push(command.to_owned());
    lines.push(command.split_whitespace().collect::<Vec<_>>().join(" "));
    let matches = |glob: &&String| glob_of(glob).is_some_and(|glob| lines.iter().any(|line| glob.is_match(line)));
    globs.iter().find(matches).map(String::as_str)
}

/// The whole line as a person may read it: characters that are not seen, or change what is, are written out.
pub fn shown(command: &str) -> String {
    let mut shown = String::with_capacity(command.len());
    for c in command.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if is_hidden(c) => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// Controls, and what Unicode says is not drawn or turns the direction of what is.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        || matches!(c, '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// The judgement, and every command that was found, with its words.
fn walk(command: &str, place: Place<'_>) -> (Judgement, Vec<String>) {
    let mut walk = Walk::new(place);
    // The parser is not ours and reads what anybody wrote: a defect of it must cost a question, not the turn.
    let walked = catch_unwind(AssertUnwindSafe(|| walk.script(command, None)));
    if walked.is_err() {
        walk.judgement.find("cannot be judged: it could not be read");
    }
    (walk.judgement, walk.commands)
}

fn glob_of(glob: &str) -> Option<Regex> {
    let mut pattern = String::from("^(?:");
    for c in glob.chars() {
        match c {
            '*' => pattern.push_str(".*"),
            '?' => pattern.push('.'),
            c => pattern.push_str(&regex::escape(&c.to_string())),
        }
    }
    pattern.push_str(")$");
    RegexBuilder::new(&pattern).case_insensitive(true).dot_matches_new_line(true).size_limit(1 << 20).build().ok()
}

/// How deep it could nest. Without regard to quotes, which may be opened again inside of `$(`: an upper bound. What is
/// only wide is not deep.
fn depth_of(text: &str) -> usize {
    let mut open: Vec<usize> = Vec::new();
    let (mut now, mut deepest, mut backquotes, mut slashes) = (0_usize, 0, 0, 0_usize);
    let mut before = ' ';
    for c in text.chars() {
        match c {
            '(' | '{' | '[' => {
                let weight = if c == '(' && !matches!(before, '$' | '<' | '>') { 2 } else { 1 };
                open.push(weight);
                now += weight;
            }
            ')' | '}' | ']' => now -= open.pop().unwrap_or_default(),
            // Backquotes nest only escaped, with twice as many backslashes for each level.
            '`' => backquotes = backquotes.max(slashes),
            _ => {}
        }
        slashes = if c == '\\' { slashes + 1 } else { 0 };
        before = c;
        deepest = deepest.max(now);
    }
    deepest + backquotes + blocks(text)
}

/// How deep `if`, `while`, `case` and the like nest. Only words in the place of a command count, or any long text would be
/// deep.
fn blocks(text: &str) -> usize {
    let (mut nested, mut deepest) = (0_usize, 0);
    for part in text.split([';', '|', '&', '(', ')', '{', '}', '\n', '`']) {
        let mut chained = 0_usize;
        for word in part.split_whitespace() {
            match word {
                "if" | "while" | "until" | "for" | "select" => nested += 1,
                "case" => nested += 2,
                "fi" | "done" => nested = nested.saturating_sub(1),
                "esac" => nested = nested.saturating_sub(2),
                "then" | "else" | "elif" | "do" => {}
                // Closed by nothing but the end of the command.
                "!" | "time" | "coproc" | "function" | "[[" => chained += 1,
                _ => break,
            }
            deepest = deepest.max(nested + chained);
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
