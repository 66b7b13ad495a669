//! Finds every command that a line can run.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;

use brush_parser::ast::{
    AndOr, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem, CompoundCommand, CompoundList,
    ExtendedTestExpr, IoFileRedirectKind, IoFileRedirectTarget, IoRedirect, Pipeline, ProcessSubstitutionKind,
    SeparatorOperator, SimpleCommand, Word,
};
use brush_parser::{Parser, SourceInfo};

use super::words::{Reader, UNKNOWN, options};
use super::{DEEPEST, Judgement, LONGEST, Place, depth_of, paths, rules};

/// Scripts within scripts.
const MOST_NESTED: usize = 24;
/// Variables whose value programs run, or load.
const RUNS: [&str; 16] = [
    "PROMPT_COMMAND",
    "BASH_ENV",
    "ENV",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_PAGER",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "DYLD_INSERT_LIBRARIES",
    "PYTHONSTARTUP",
];
/// Values of one variable that are looked at.
const MOST_VALUES: usize = 8;
/// Commands that are looked at in one line, and what their words may have in bytes.
const MOST_COMMANDS: usize = 5_000;
const MOST_BYTES: usize = 1 << 20;

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing of the line's making.
    None,
    /// This text.
    Text(String),
    /// What another command prints; `downloads`: from elsewhere.
    Made { downloads: bool },
}

/// One command with its words, as they will be as far as is known.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) words: Vec<String>,
    pub(super) input: Input,
    /// A word is the output of a command (`<(…)`); `true`: from elsewhere.
    pub(super) made_file: Option<bool>,
}

pub(super) struct Walk<'a> {
    pub(super) judgement: Judgement,
    /// Every command that was found, its words with blanks between.
    pub(super) commands: Vec<String>,
    pub(super) place: Place<'a>,
    pub(super) vars: HashMap<String, String>,
    /// Files the line wrote, with what is known of their text.
    pub(super) written: HashMap<String, Option<String>>,
    /// Names the line gave to files that were there, and the files.
    pub(super) links: HashMap<String, String>,
    /// `PATH` is set: a bare name may be a file that the line made.
    pub(super) sets_path: bool,
    depth: usize,
    /// A command that was found fetches something from elsewhere.
    pub(super) fetches: bool,
    /// What the words of all commands have.
    bytes: usize,
    /// Further values of variables that are given several.
    others: HashMap<String, Vec<String>>,
    /// `alias`, which not every shell expands.
    pub(super) aliases: HashMap<String, String>,
    /// The functions of the line.
    functions: HashSet<String>,
    /// Where `cd` went, as it was written.
    pub(super) directory: Option<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(place: Place<'a>) -> Self {
        Self {
            judgement: Judgement::default(),
            commands: Vec::new(),
            place,
            vars: HashMap::new(),
            written: HashMap::new(),
            links: HashMap::new(),
            sets_path: false,
            depth: 0,
            fetches: false,
            bytes: 0,
            others: HashMap::new(),
            aliases: HashMap::new(),
            functions: HashSet::new(),
            directory: None,
        }
    }

    /// Looks at a script, which reads `input`. What it prints, if that can be known.
    pub(super) fn script(&mut self, text: &str, input: Option<&Input>) -> Option<String> {
        if text.len() > LONGEST {
            self.judgement.find("cannot be judged: the command is too long");
            return None;
        }
        if self.depth >= MOST_NESTED || depth_of(text) > DEEPEST {
            self.judgement.find("cannot be judged: the command is nested too deep");
            self.look_at_text(text);
            return None;
        }
        if text.trim().is_empty() {
            return Some(String::new());
        }
        if has_odd_here_document(text) {
            self.judgement.find("cannot be judged: a here-document with an unusual end");
            self.look_at_text(text);
            return None;
        }
        self.functions.extend(functions_of(text));
        self.depth += 1;
        // The parser takes `((` for arithmetic, where a shell may see two subshells.
        if let Some(apart) = subshells_apart(text)
            && let Ok(program) = quietly(|| {
                let source = SourceInfo { source: String::new() };
                Parser::new(Cursor::new(apart.as_bytes()), &options(), &source).parse_program()
            })
        {
            for list in &program.complete_commands {
                self.list(list, input);
            }
        }
        let source = SourceInfo { source: String::new() };
        let parsed = quietly(|| Parser::new(Cursor::new(text.as_bytes()), &options(), &source).parse_program());
        let printed = match parsed {
            Ok(program) => {
                let mut printed = Some(String::new());
                for list in &program.complete_commands {
                    let one = self.list(list, input);
                    printed = printed.zip(one).map(|(before, one)| before + &one);
                }
                printed
            }
            Err(_) => {
                self.judgement.find("cannot be judged: the command cannot be parsed");
                self.look_at_text(text);
                None
            }
        };
        self.depth -= 1;
        printed
    }

    /// What is no script is still looked at for what never runs: each piece of it as a line of its own.
    fn look_at_text(&mut self, text: &str) {
        let bare: String = text.chars().filter(|c| !c.is_whitespace()).take(4_000).collect();
        if let Some((name, rest)) = bare.split_once("(){")
            && let Some(name) = name.rsplit([';', '&', '|']).next().filter(|name| !name.is_empty())
            && rest.starts_with(&format!("{name}|{name}&"))
        {
            self.judgement.never("fork bomb".to_owned());
        }
        for piece in text.split([';', '&', '|', '\n', '(', ')', '{', '}', '`']).take(200) {
            let words: Vec<String> = piece.split_whitespace().map(|word| word.replace(['\'', '"', '\\'], "")).collect();
            if !words.is_empty() && self.depth < MOST_NESTED {
                self.call(Call { words, input: Input::None, made_file: None });
            }
        }
    }

    fn list(&mut self, list: &CompoundList, input: Option<&Input>) -> Option<String> {
        let mut printed = Some(String::new());
        for item in &list.0 {
            let mut one = self.pipeline(&item.0.first, input);
            for next in &item.0.additional {
                let (AndOr::And(pipeline) | AndOr::Or(pipeline)) = next;
                let more = self.pipeline(pipeline, input);
                one = one.zip(more).map(|(before, one)| before + &one);
            }
            if matches!(item.1, SeparatorOperator::Async) {
                one = None;
            }
            printed = printed.zip(one).map(|(before, one)| before + &one);
        }
        printed
    }

    fn pipeline(&mut self, pipeline: &Pipeline, input: Option<&Input>) -> Option<String> {
        let mut given = input.cloned().unwrap_or(Input::None);
        let mut printed = None;
        for (number, command) in pipeline.seq.iter().enumerate() {
            printed = self.command(command, &given);
            if number + 1 < pipeline.seq.len() {
                given = match &printed {
                    Some(text) => Input::Text(text.clone()),
                    None => Input::Made { downloads: self.fetches },
                };
            }
        }
        printed
    }

    fn command(&mut self, command: &Command, input: &Input) -> Option<String> {
        match command {
            Command::Simple(simple) => self.simple(simple, input),
            Command::Compound(compound, redirects) => {
                let mut input = input.clone();
                for redirect in redirects.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect, &mut input, None);
                }
                self.compound(compound, &input)
            }
            Command::Function(function) => {
                let name = function.fname.clone();
                self.functions.insert(name_of(&name));
                if calls_itself_apart(&self.functions, &function.body.0) {
                    self.judgement.never("fork bomb".to_owned());
                }
                let mut input = Input::None;
                for redirect in function.body.1.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect, &mut input, None);
                }
                self.compound(&function.body.0, &Input::None);
                Some(String::new())
            }
            Command::ExtendedTest(test) => {
                self.test(&test.expr);
                Some(String::new())
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand, input: &Input) -> Option<String> {
        match compound {
            CompoundCommand::BraceGroup(group) => return self.list(&group.list, Some(input)),
            CompoundCommand::Subshell(subshell) => return self.list(&subshell.list, Some(input)),
            CompoundCommand::Arithmetic(arithmetic) => {
                self.words_of(&arithmetic.expr.value);
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                for part in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten() {
                    self.words_of(&part.value);
                }
                self.list(&clause.body.list, Some(input));
            }
            CompoundCommand::ForClause(clause) => {
                let values: Vec<String> =
                    clause.values.iter().flatten().flat_map(|word| self.words_of(&word.value)).collect();
                // Once for each value that is known, for what the loop does with it.
                for value in values.into_iter().take(64) {
                    self.vars.insert(clause.variable_name.clone(), value);
                    self.list(&clause.body.list, Some(input));
                }
                self.vars.insert(clause.variable_name.clone(), UNKNOWN.to_string());
                self.list(&clause.body.list, Some(input));
            }
            CompoundCommand::CaseClause(clause) => {
                self.words_of(&clause.value.value);
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.words_of(&pattern.value);
                    }
                    if let Some(list) = &case.cmd {
                        self.list(list, Some(input));
                    }
                }
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition, Some(input));
                self.list(&clause.then, Some(input));
                for branch in clause.elses.iter().flatten() {
                    if let Some(condition) = &branch.condition {
                        self.list(condition, Some(input));
                    }
                    self.list(&branch.body, Some(input));
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0, Some(input));
                self.list(&clause.1.list, Some(input));
            }
        }
        None
    }

    fn test(&mut self, test: &ExtendedTestExpr) {
        match test {
            ExtendedTestExpr::And(a, b) | ExtendedTestExpr::Or(a, b) => {
                self.test(a);
                self.test(b);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.test(inner),
            ExtendedTestExpr::UnaryTest(_, word) => {
                let text = self.whole(&word.value);
                self.literal(&text);
            }
            ExtendedTestExpr::BinaryTest(_, a, b) => {
                for word in [a, b] {
                    let text = self.whole(&word.value);
                    self.literal(&text);
                }
            }
        }
    }

    fn simple(&mut self, simple: &SimpleCommand, input: &Input) -> Option<String> {
        // A variable that may have one of several values: the command is looked at with each.
        let text = simple.to_string();
        let named = |name: &String| text.contains(&format!("${name}")) || text.contains(&format!("${{{name}"));
        let others: Vec<(String, Vec<String>)> =
            self.others.iter().filter(|(name, _)| named(name)).map(|(name, all)| (name.clone(), all.clone())).collect();
        for (name, all) in others {
            let now = self.vars.get(&name).cloned();
            for value in all.into_iter().take(MOST_VALUES) {
                self.vars.insert(name.clone(), value);
                self.simple_once(simple, input);
            }
            if let Some(now) = now {
                self.vars.insert(name, now);
            }
        }
        self.simple_once(simple, input)
    }

    fn simple_once(&mut self, simple: &SimpleCommand, input: &Input) -> Option<String> {
        let mut call = Call { words: Vec::new(), input: input.clone(), made_file: None };
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
        let has_name = simple.word_or_name.is_some();
        let mut targets = Vec::new();
        for item in prefix {
            self.item(item, &mut call, &mut targets, !has_name);
        }
        if let Some(word) = &simple.word_or_name {
            let words = self.words_of(&word.value);
            call.words.extend(words);
        }
        for item in suffix {
            self.item(item, &mut call, &mut targets, false);
        }
        let printed = if call.words.is_empty() { Some(String::new()) } else { self.call(call) };
        for target in targets {
            self.written.insert(target, printed.clone());
        }
        printed
    }

    fn item(&mut self, item: &CommandPrefixOrSuffixItem, call: &mut Call, targets: &mut Vec<String>, is_kept: bool) {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                if let Some(target) = self.redirect(redirect, &mut call.input, Some(&mut call.made_file)) {
                    targets.push(target);
                }
            }
            CommandPrefixOrSuffixItem::Word(word) => {
                let words = self.words_of(&word.value);
                call.words.extend(words);
            }
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                let value = match &assignment.value {
                    AssignmentValue::Scalar(value) => self.whole(&value.value),
                    AssignmentValue::Array(values) => {
                        for (index, value) in values {
                            index.iter().for_each(|index| drop(self.words_of(&index.value)));
                            self.words_of(&value.value);
                        }
                        UNKNOWN.to_string()
                    }
                };
                // A substitution in a value or a subscript may run when the variable is used (`@P`, `PS4`, arithmetic).
                self.literal(&value);
                if matches!(&assignment.name, AssignmentName::VariableName(name) if name == "PATH") {
                    self.sets_path = true;
                }
                if let AssignmentName::ArrayElementName(_, index) = &assignment.name {
                    let index = self.whole(index);
                    self.literal(&index);
                }
                if let AssignmentName::VariableName(name) = &assignment.name
                    && RUNS.contains(&name.as_str())
                {
                    self.judgement.find("sets a variable that makes programs run something");
                    self.script(&value, None);
                }
                let declares = ["export", "declare", "typeset", "local", "readonly"];
                if let (Some(first), AssignmentName::VariableName(name)) = (call.words.first(), &assignment.name)
                    && declares.contains(&first.as_str())
                {
                    self.vars.insert(name.clone(), value.clone());
                }
                if !call.words.is_empty() {
                    // `env X=1 …`, `alias x=…`: a word like others.
                    call.words.push(self.whole(&word.value));
                } else if let (AssignmentName::VariableName(name), true) = (&assignment.name, is_kept) {
                    let before = self.vars.get(name).cloned();
                    let value = match (&before, assignment.append) {
                        (Some(before), true) => format!("{before}{value}"),
                        _ => value,
                    };
                    if let Some(before) = before.filter(|before| *before != value && !assignment.append) {
                        let others = self.others.entry(name.clone()).or_default();
                        if others.len() < MOST_VALUES && !others.contains(&before) {
                            others.push(before);
                        }
                    }
                    self.vars.insert(name.clone(), value);
                }
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(kind, subshell) => {
                let before = self.commands.len();
                // `>(sh)` reads what the command writes.
                let fed = matches!(kind, ProcessSubstitutionKind::Write).then_some(Input::Made { downloads: false });
                self.list(&subshell.list, fed.as_ref());
                let downloads = self.commands[before..].iter().any(|line| rules::downloads(line));
                call.made_file = Some(call.made_file.unwrap_or(false) || downloads);
                call.words.push(UNKNOWN.to_string());
            }
        }
    }

    /// Looks at a redirect; the file it writes, if it writes one.
    fn redirect(
        &mut self,
        redirect: &IoRedirect,
        input: &mut Input,
        made: Option<&mut Option<bool>>,
    ) -> Option<String> {
        match redirect {
            IoRedirect::File(_, kind, target) => match target {
                IoFileRedirectTarget::Filename(word) | IoFileRedirectTarget::Duplicate(word) => {
                    let path = self.whole(&word.value);
                    if matches!(kind, IoFileRedirectKind::DuplicateInput) {
                        *input = Input::Made { downloads: self.fetches };
                        return None;
                    }
                    if matches!(kind, IoFileRedirectKind::Read) {
                        *input = match self.written.get(&path) {
                            Some(Some(text)) => Input::Text(text.clone()),
                            Some(None) => Input::Made { downloads: false },
                            None => Input::None,
                        };
                        return None;
                    }
                    self.writes(&path);
                    Some(path)
                }
                IoFileRedirectTarget::Fd(_) => {
                    if matches!(kind, IoFileRedirectKind::DuplicateInput) {
                        *input = Input::Made { downloads: self.fetches };
                    }
                    None
                }
                IoFileRedirectTarget::ProcessSubstitution(made_kind, subshell) => {
                    let before = self.commands.len();
                    let fed = matches!(made_kind, ProcessSubstitutionKind::Write);
                    let fed = fed.then_some(Input::Made { downloads: false });
                    self.list(&subshell.list, fed.as_ref());
                    let downloads = self.commands[before..].iter().any(|line| rules::downloads(line));
                    *input = Input::Made { downloads };
                    if let Some(made) = made {
                        *made = Some(downloads);
                    }
                    None
                }
            },
            IoRedirect::HereDocument(_, document) => {
                let text = match document.requires_expansion {
                    true => self.whole(&document.doc.value),
                    false => document.doc.value.clone(),
                };
                *input = if text.contains(UNKNOWN) { Input::Made { downloads: false } } else { Input::Text(text) };
                None
            }
            IoRedirect::HereString(_, word) => {
                let text = self.whole(&word.value);
                *input =
                    if text.contains(UNKNOWN) { Input::Made { downloads: self.fetches } } else { Input::Text(text) };
                None
            }
            IoRedirect::OutputAndError(word, _) => {
                let path = self.whole(&word.value);
                self.writes(&path);
                Some(path)
            }
        }
    }

    /// The line writes this file.
    pub(super) fn writes(&mut self, path: &str) {
        if path.ends_with("/sysrq-trigger") {
            self.judgement.never("write to the kernel's emergency keys".to_owned());
        } else if paths::is_disk(path) {
            self.judgement.never(format!("write to the raw disk {path}"));
        } else if !path.starts_with("/dev/")
            && let Some(why) = self.sensitive(path, false)
        {
            self.judgement.find(why);
        }
    }

    /// Why writing the path is asked about, also from where `cd` went.
    pub(super) fn sensitive(&self, path: &str, in_place: bool) -> Option<&'static str> {
        let moved = self.directory.as_ref().filter(|_| !path.starts_with(['/', '~'])).map(|to| format!("{to}/{path}"));
        let from_there = moved.and_then(|path| paths::sensitive(&path, self.place, in_place));
        from_there.or_else(|| paths::sensitive(path, self.place, in_place))
    }

    /// The words of one word of the line; what it runs to be made is looked at.
    fn words_of(&mut self, raw: &str) -> Vec<String> {
        self.read(raw, |reader, raw| reader.words(raw))
    }

    fn whole(&mut self, raw: &str) -> String {
        self.read(raw, |reader, raw| reader.whole(raw))
    }

    fn read<T>(&mut self, raw: &str, read: impl FnOnce(&mut Reader<'_>, &str) -> T) -> T {
        let vars = self.vars.clone();
        let mut substitute =
            |script: &str| self.script(script, None).map(|text| text.trim_end_matches('\n').to_owned());
        let mut reader = Reader { vars: &vars, substitute: &mut substitute };
        read(&mut reader, raw)
    }

    /// Looks at the substitutions in a text that are no more than text yet.
    pub(super) fn literal(&mut self, text: &str) {
        if self.depth < MOST_NESTED && (text.contains("$(") || text.contains('`')) {
            self.depth += 1;
            self.whole(text);
            self.depth -= 1;
        }
    }

    /// Whether the line wrote this file, and what is known of its text. Where it is counts for nothing: `cd` may come between.
    pub(super) fn was_written(&self, path: &str) -> Option<Option<String>> {
        let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let name = last(path);
        let by_name = || self.written.iter().find(|(written, _)| last(written) == name).map(|(_, text)| text.clone());
        self.written.get(path).cloned().or_else(by_name)
    }

    /// Whether so much was looked at that no more is.
    pub(super) fn is_spent(&self) -> bool {
        self.commands.len() >= MOST_COMMANDS || self.bytes > MOST_BYTES
    }

    /// Looks at one command; what it prints, if that can be known.
    pub(super) fn call(&mut self, call: Call) -> Option<String> {
        let bytes: usize = call.words.iter().map(String::len).sum();
        self.bytes = self.bytes.saturating_add(bytes);
        if self.is_spent() {
            self.judgement.find("cannot be judged: there are too many commands");
            return None;
        }
        let line = call.words.join(" ");
        self.fetches |= rules::downloads(&line);
        self.commands.push(line);
        if self.depth >= MOST_NESTED {
            self.judgement.find("cannot be judged: the command is nested too deep");
            return None;
        }
        self.depth += 1;
        let printed = self.run(call);
        self.depth -= 1;
        printed
    }
}

/// The parser logs what it reads, which is nobody's business.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), work)
}

fn name_of(word: &Word) -> String {
    word.value.clone()
}

/// Whether a body starts functions of the line more than once at a time: in one pipeline, or in the background.
fn calls_itself_apart(names: &HashSet<String>, body: &CompoundCommand) -> bool {
    fn in_list(names: &HashSet<String>, list: &CompoundList) -> bool {
        list.0.iter().any(|item| {
            let rest = item.0.additional.iter().map(|(AndOr::And(pipeline) | AndOr::Or(pipeline))| pipeline);
            std::iter::once(&item.0.first).chain(rest).any(|pipeline| {
                let own = pipeline.seq.iter().filter(|command| calls(names, command)).count();
                own > 1
                    || own == 1 && matches!(item.1, SeparatorOperator::Async)
                    || pipeline.seq.iter().any(|command| within(names, command))
            })
        })
    }
    fn calls(names: &HashSet<String>, command: &Command) -> bool {
        matches!(command, Command::Simple(simple)
            if simple.word_or_name.as_ref().is_some_and(|word| names.contains(&word.value)))
    }
    fn within(names: &HashSet<String>, command: &Command) -> bool {
        matches!(command, Command::Compound(compound, _) if calls_itself_apart(names, compound))
    }
    match body {
        CompoundCommand::BraceGroup(group) => in_list(names, &group.list),
        CompoundCommand::Subshell(subshell) => in_list(names, &subshell.list),
        CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => in_list(names, &clause.1.list),
        CompoundCommand::ForClause(clause) => in_list(names, &clause.body.list),
        CompoundCommand::IfClause(clause) => in_list(names, &clause.then),
        _ => false,
    }
}

/// The names before `()`.
fn functions_of(text: &str) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || ";&|(){}".contains(c);
    let mut names = Vec::new();
    for (at, _) in text.match_indices('(').take(200) {
        if text[at + 1..].trim_start().starts_with(')') {
            let before = text[..at].trim_end();
            let start = before.rfind(ends).map_or(0, |start| start + 1);
            let name = before.get(start..).unwrap_or_default();
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// The parser reads for ever where the end of a here-document is no plain word.
fn has_odd_here_document(text: &str) -> bool {
    text.match_indices("<<").any(|(at, _)| {
        if text[..at].ends_with('<') || text[at + 2..].starts_with('<') {
            return false; // `<<<`
        }
        let rest = text[at + 2..].trim_start_matches('-').trim_start_matches([' ', '\t']);
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-+%@!:/'\"\\".contains(c);
        let end = rest.find(|c: char| !plain(c)).unwrap_or(rest.len());
        let tag = &rest[..end];
        let quotes = ['\'', '"'].iter().any(|quote| tag.matches(*quote).count() % 2 == 1);
        let goes_on = rest[end..].starts_with(|c: char| !c.is_whitespace() && !";|&)<>".contains(c));
        tag.is_empty() || quotes || goes_on || tag.ends_with('\\')
    })
}

/// The text with `(true;(` for `((`, where it has one that is no `$((`: the parser takes `( (` for the same.
fn subshells_apart(text: &str) -> Option<String> {
    let mut apart = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    let mut is_changed = false;
    for c in text.chars() {
        if c == '(' && before == '(' {
            let is_arithmetic = apart.len() >= 2 && apart[..apart.len() - 1].ends_with('$');
            if !is_arithmetic {
                apart.push_str("true;");
                is_changed = true;
            }
        }
        apart.push(c);
        before = c;
    }
    is_changed.then_some(apart)
}
