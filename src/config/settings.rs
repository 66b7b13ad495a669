//! The values of the file and the environment, gathered under canonical paths, and the readers that type them.
//!
//! Everything that is wrong with a key becomes a [`Problem`] here; what the values mean together is `build.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use secrecy::SecretString;

use super::env_file::Assignment;
use super::expand::expand;
use super::keys::{self, Holds, Key, Known};
use super::proxies;
use super::suggest::nearest;
use super::yaml::{Document, Entry, Node, Place, Scalar, Typed, Value};
use super::{Problem, Severity};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// `config.yaml`.
    File,
    /// A variable of the process environment.
    Process(&'static str),
    /// A variable in `.env`, and its line.
    EnvFile(&'static str, usize),
}

/// A value before it is typed.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) origin: Origin,
    /// The path as written.
    pub(super) written: String,
    pub(super) node: Node,
    key_place: Place,
    /// Which of several spellings wins: the lowest.
    rank: u8,
    /// An error was already told: there is no value.
    broken: bool,
}

/// What a reader says about a value it cannot take.
#[derive(Debug)]
pub(super) struct Wrong {
    place: Option<Place>,
    message: String,
    suggestion: Option<String>,
}

impl Wrong {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into(), suggestion: None }
    }

    pub(super) fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }

    fn at(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }
}

type Typing<T> = Result<T, Wrong>;

/// All values and problems.
pub(super) struct Settings {
    /// Per canonical path, the value that wins first.
    found: Values,
    /// The same of each account, under the paths of its platform.
    accounts: BTreeMap<String, Account>,
    pub(super) problems: Vec<Problem>,
    file: String,
    env_file: String,
    /// The process environment over `.env`.
    variables: BTreeMap<String, String>,
    /// Variables that stand in `config.yaml` under their own names, as the reference allows.
    in_file: BTreeMap<&'static str, Found>,
}

/// A place in the walk over the file.
#[derive(Clone, Default)]
struct At {
    canonical: String,
    written: String,
    rank: u8,
    /// Inside an account: whose.
    account: Option<String>,
}

type Values = BTreeMap<&'static str, Vec<Found>>;

/// One of `platforms.telegram.accounts`.
struct Account {
    written: String,
    place: Place,
    found: Values,
}

impl Settings {
    pub(super) fn new(file: String, env_file: String, variables: BTreeMap<String, String>) -> Self {
        Self {
            found: BTreeMap::new(),
            accounts: BTreeMap::new(),
            problems: Vec::new(),
            file,
            env_file,
            variables,
            in_file: BTreeMap::new(),
        }
    }

    /// The value of a variable, of the process or of `.env`.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Takes in `config.yaml`.
    pub(super) fn add_document(&mut self, document: &Document) {
        for duplicate in &document.duplicates {
            let message = format!("this key stood on line {} already; the value here wins", duplicate.first.line);
            let suggestion = Some("keep one of the two".to_owned());
            self.tell_in_file(Severity::Warning, duplicate.place, &duplicate.path, message, suggestion);
        }
        let Some(root) = &document.root else { return };
        let Some(entries) = root.entries() else {
            let message = format!("the file must hold `key: value` lines, but it holds {}", root.kind());
            return self.tell_in_file(Severity::Error, root.place, "", message, None);
        };
        self.walk(entries, &At::default());
        let mut shadowed = Vec::new();
        let in_accounts = self.accounts.values_mut().flat_map(|account| account.found.values_mut());
        for all in self.found.values_mut().chain(in_accounts) {
            all.sort_by_key(|found| found.rank);
            let winner = all[0].written.clone();
            shadowed.extend(all.drain(1..).map(|loser| (winner.clone(), loser)));
        }
        for (winner, loser) in shadowed {
            let message = format!("this has no effect, because `{winner}` is set and wins");
            self.tell_in_file(
                Severity::Warning,
                loser.key_place,
                &loser.written,
                message,
                Some("keep one of the two".into()),
            );
        }
    }

    fn walk(&mut self, entries: &[Entry], at: &At) {
        let join = |path: &str, key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        for entry in entries {
            let key = entry.key.as_str();
            let mut here = At { canonical: join(&at.canonical, key), written: join(&at.written, key), ..at.clone() };
            if at.canonical.is_empty() {
                if key == "gateway" && at.rank == 0 {
                    self.section(entry, &At { canonical: String::new(), rank: 2, ..here });
                    continue;
                }
                if matches!(key, "telegram" | "webhook") || keys::OTHER_PLATFORMS.contains(&key) {
                    here.canonical = format!("platforms.{key}");
                    here.rank += 4;
                }
                if at.rank == 0 && self.is_variable(entry) {
                    continue;
                }
            }
            let known = if key.contains('.') { None } else { keys::lookup(&here.canonical) };
            match known {
                Some(Known::Key(key)) if key.holds == Holds::Accounts => self.add_accounts(entry, &here),
                Some(Known::Key(key)) => self.add(key, entry, here),
                Some(Known::ShortFor(_)) if entry.value.entries().is_some() => self.section(entry, &here),
                Some(Known::ShortFor(key)) => self.add(key, entry, here),
                Some(Known::Section) => self.section(entry, &here),
                Some(Known::Describes) => {}
                Some(Known::Later(consequence)) => self.later(entry, &here, consequence),
                None if keys::OPEN.contains(&at.canonical.as_str())
                    && nearest(key, keys::names_below(&at.canonical)).is_none() =>
                {
                    self.later(entry, &here, None);
                }
                None => self.unknown(entry, at, &here),
            }
        }
    }

    fn section(&mut self, entry: &Entry, here: &At) {
        match &entry.value.value {
            Value::Map(entries) => self.walk(entries, here),
            _ if entry.value.is_null() => {}
            _ => {
                let message = format!("this holds keys of its own, but {} stands here", entry.value.kind());
                let below = keys::names_below(&here.canonical);
                let suggestion = format!("write `{}:` and below it, indented, keys such as `{}`", entry.key, below[0]);
                self.tell_in_file(Severity::Error, entry.value.place, &here.written, message, Some(suggestion));
            }
        }
    }

    /// Each entry is a bot with the keys of the platform.
    fn add_accounts(&mut self, entry: &Entry, here: &At) {
        if here.account.is_some() {
            let message = "an account has no accounts of its own; it has no effect".to_owned();
            return self.tell_in_file(Severity::Warning, entry.key_place, &here.written, message, None);
        }
        let Some(entries) = entry.value.entries() else {
            if !entry.value.is_null() {
                let message = format!("this holds accounts by their names, but {} stands here", entry.value.kind());
                let suggestion = "write `accounts:` and below it, indented, `name:` with its `token:`".to_owned();
                self.tell_in_file(Severity::Error, entry.value.place, &here.written, message, Some(suggestion));
            }
            return;
        };
        for one in entries {
            let name = one.key.as_str();
            let written = format!("{}.{name}", here.written);
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
            if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
                let message = "an account's name has 1 to 32 lower-case letters, digits, `-` and `_`".to_owned();
                self.tell_in_file(Severity::Error, one.key_place, &written, message, None);
                continue;
            }
            let account = Account { written: written.clone(), place: one.key_place, found: BTreeMap::new() };
            self.accounts.insert(name.to_owned(), account);
            let account = Some(name.to_owned());
            self.section(one, &At { canonical: "platforms.telegram".to_owned(), written, account, rank: 0 });
        }
    }

    fn add(&mut self, key: &'static Key, entry: &Entry, here: At) {
        let (node, broken) = self.expanded(&entry.value, key.holds, &here.written);
        let is_alias = key.path != here.canonical;
        let found = match here.account.as_ref().and_then(|name| self.accounts.get_mut(name)) {
            Some(account) => &mut account.found,
            None => &mut self.found,
        };
        found.entry(key.path).or_default().push(Found {
            origin: Origin::File,
            written: here.written,
            node,
            key_place: entry.key_place,
            rank: here.rank + u8::from(is_alias),
            broken,
        });
    }

    /// A top-level key that is the name of a variable.
    fn is_variable(&mut self, entry: &Entry) -> bool {
        if let Some(variable) = keys::VARIABLES.iter().find(|variable| variable.name == entry.key) {
            let holds = keys::find(variable.path).map_or(Holds::Setting, |key| key.holds);
            let (node, broken) = self.expanded(&entry.value, holds, &entry.key);
            let found = Found {
                origin: Origin::File,
                written: entry.key.clone(),
                node,
                key_place: entry.key_place,
                rank: 0,
                broken,
            };
            self.in_file.insert(variable.name, found);
            return true;
        }
        if let Some((_, consequence)) = keys::LATER_VARIABLES.iter().find(|(name, _)| *name == entry.key) {
            self.later(entry, &At { written: entry.key.clone(), ..At::default() }, *consequence);
            return true;
        }
        keys::OTHER_VARIABLES.contains(&entry.key.as_str())
    }

    /// Tells about a known key without effect, unless leaving it out would change nothing.
    fn later(&mut self, entry: &Entry, here: &At, consequence: Option<&str>) {
        let is_off = |node: &Node| matches!(&node.value, Value::Scalar(one) if one.typed() == Typed::Bool(false));
        let says_nothing = match &entry.value.value {
            Value::Scalar(scalar) => {
                let is_default = |(path, text): &(&str, &str)| *path == here.canonical && *text == scalar.text.trim();
                entry.value.is_null() || keys::AS_IT_IS.iter().any(is_default)
            }
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => {
                entries.is_empty() || entry.value.entry("enabled").is_some_and(|enabled| is_off(&enabled.value))
            }
        };
        if !says_nothing {
            self.tell_in_file(Severity::Warning, entry.key_place, &here.written, unsupported(consequence), None);
        }
    }

    fn unknown(&mut self, entry: &Entry, at: &At, here: &At) {
        let key = entry.key.as_str();
        let mut elsewhere = keys::elsewhere(key);
        let shared =
            |path: &str| path.split('.').zip(at.canonical.split('.')).take_while(|(one, other)| one == other).count();
        let closest = elsewhere.iter().map(|path| shared(path)).max();
        elsewhere.retain(|path| Some(shared(path)) == closest);
        let suggestion = if key.contains('.') && keys::lookup(&here.canonical).is_some() {
            Some("write each part on a line of its own, indented below the one before".to_owned())
        } else if !elsewhere.is_empty() && elsewhere.len() <= 3 {
            let paths: Vec<String> = elsewhere.iter().map(|path| format!("`{path}`")).collect();
            Some(format!("it belongs at {}", paths.join(" or ")))
        } else if let Some(near) = nearest(key, keys::names_below(&at.canonical)) {
            Some(format!("did you mean `{near}`?"))
        } else {
            let names = keys::KEYS.iter().filter_map(|key| key.path.rsplit('.').next());
            nearest(key, names)
                .and_then(|near| keys::elsewhere(near).first().copied())
                .map(|path| format!("did you mean `{path}`?"))
        };
        let message = format!("unknown key `{key}`; it has no effect");
        self.tell_in_file(Severity::Warning, entry.key_place, &here.written, message, suggestion);
    }

    /// A copy with its references replaced, and whether that failed where it must not.
    fn expanded(&mut self, node: &Node, holds: Holds, written: &str) -> (Node, bool) {
        let mut node = node.clone();
        let broken = self.expand_in(&mut node, holds, written);
        (node, broken)
    }

    fn expand_in(&mut self, node: &mut Node, holds: Holds, written: &str) -> bool {
        let place = node.place;
        match &mut node.value {
            Value::Scalar(scalar) => {
                let expanded = expand(&scalar.text, &self.variables);
                scalar.text = expanded.text;
                scalar.expanded |= expanded.replaced;
                let strict = matches!(holds, Holds::Secret | Holds::Address);
                let broken = strict && !expanded.unresolved.is_empty();
                for message in expanded.unresolved {
                    let severity = if strict { Severity::Error } else { Severity::Warning };
                    let suggestion =
                        "set the variable, give a default with `${NAME:-default}`, or write `$${` for a plain `${`";
                    self.tell_in_file(severity, place, written, message, Some(suggestion.to_owned()));
                }
                broken
            }
            Value::List(items) => {
                let mut broken = false;
                for (index, item) in items.iter_mut().enumerate() {
                    broken |= self.expand_in(item, holds, &format!("{written}[{index}]"));
                }
                broken
            }
            Value::Map(entries) => {
                let mut broken = false;
                for entry in entries {
                    let holds = match holds {
                        Holds::Routes => in_route(&entry.key),
                        Holds::Models => in_model(&entry.key),
                        holds => holds,
                    };
                    broken |= self.expand_in(&mut entry.value, holds, &format!("{written}.{}", entry.key));
                }
                broken
            }
        }
    }

    /// Takes in the environment: what it sets wins over the file.
    pub(super) fn add_variables(&mut self, process: &BTreeMap<String, String>, assignments: &[Assignment]) {
        let mut set = Vec::new();
        for variable in keys::VARIABLES {
            let origin = self.origin_of(variable.name, process, assignments);
            let found = match (origin, self.variables.get(variable.name)) {
                (Some(origin), Some(value)) if !value.trim().is_empty() => Some(Found {
                    key_place: Place { line: line_of(&origin), column: 0 },
                    origin,
                    written: variable.path.to_owned(),
                    node: Node::from_text(value.trim()),
                    rank: 0,
                    broken: false,
                }),
                _ => self.in_file.remove(variable.name).filter(|found| !found.node.is_null()),
            };
            set.extend(found.map(|found| (variable, found)));
        }
        let webhook_is_on = set
            .iter()
            .any(|(variable, found)| variable.name == "WEBHOOK_ENABLED" && matches!(boolean(&found.node), Ok(true)));
        let is_anthropic = self.speaks_anthropic();
        let names_no_model = !self.found.keys().any(|path| path.starts_with("model."));
        for (variable, found) in set {
            // Each key is for its own provider: that of one must not be sent to the other.
            let is_meant = match variable.name {
                "OPENAI_API_KEY" | "OPENAI_BASE_URL" => !is_anthropic,
                "ANTHROPIC_API_KEY" => is_anthropic || names_no_model,
                _ => true,
            };
            if !is_meant {
                continue;
            }
            if matches!(variable.name, "WEBHOOK_PORT" | "WEBHOOK_SECRET") && !webhook_is_on {
                let message = format!("{} has no effect unless WEBHOOK_ENABLED is true", variable.name);
                self.tell(Severity::Warning, &found, message, Some("set WEBHOOK_ENABLED=true too".into()));
                continue;
            }
            if variable.name == "TELEGRAM_HOME_CHANNEL" {
                // The thread of the file's chat is not one of this chat.
                self.found.remove("platforms.telegram.home_channel.thread_id");
            }
            self.found.entry(variable.path).or_default().insert(0, found);
        }
        self.report_names(process, assignments);
    }

    /// Whether the file names a model that is spoken to in Anthropic's dialect.
    pub(super) fn speaks_anthropic(&self) -> bool {
        let word = |path: &str| {
            let word = self.in_file(path).and_then(|found| text(&found.node).ok());
            word.map(|word| word.trim().to_ascii_lowercase()).filter(|word| !matches!(word.as_str(), "" | "auto"))
        };
        match word("model.api_mode") {
            Some(mode) => mode == "anthropic_messages",
            None => word("model.provider").as_deref() == Some("anthropic"),
        }
    }

    /// The first of several names of one variable that is set, those of the process before those of `.env`.
    pub(super) fn first_variable(
        &self,
        names: [&'static str; 2],
        process: &BTreeMap<String, String>,
        assignments: &[Assignment],
    ) -> Option<(Found, String)> {
        let origins = names.map(|name| (name, self.origin_of(name, process, assignments)));
        let is_process = |(_, origin): &&(&str, Option<Origin>)| matches!(origin, Some(Origin::Process(_)));
        let in_order = origins.iter().filter(is_process).chain(origins.iter().filter(|one| !is_process(one)));
        in_order.into_iter().find_map(|(name, origin)| {
            let (origin, value) = (origin.clone()?, self.variables.get(*name)?.trim());
            let node = Node::from_text(value);
            let key_place = Place { line: line_of(&origin), column: 0 };
            let found = Found { origin, written: String::new(), node, key_place, rank: 0, broken: false };
            (!value.is_empty()).then(|| (found, value.to_owned()))
        })
    }

    fn origin_of(
        &self,
        name: &'static str,
        process: &BTreeMap<String, String>,
        assignments: &[Assignment],
    ) -> Option<Origin> {
        if process.get(name).is_some_and(|value| !value.is_empty()) {
            return Some(Origin::Process(name));
        }
        let assignment = assignments.iter().rev().find(|assignment| assignment.name == name)?;
        Some(Origin::EnvFile(name, assignment.line))
    }

    /// Tells about variables that are known and have no effect, and names in `.env` that nearly are variables.
    fn report_names(&mut self, process: &BTreeMap<String, String>, assignments: &[Assignment]) {
        for (name, consequence) in keys::LATER_VARIABLES {
            let Some(origin) = self.origin_of(name, process, assignments) else { continue };
            let value = self.variables.get(*name).map(|value| value.trim().to_ascii_lowercase()).unwrap_or_default();
            if !matches!(value.as_str(), "" | "0" | "false" | "no" | "off" | "none") {
                let found = Found {
                    key_place: Place { line: line_of(&origin), column: 0 },
                    origin,
                    written: String::new(),
                    node: Node::from_text(""),
                    rank: 0,
                    broken: false,
                };
                self.tell(Severity::Warning, &found, unsupported(*consequence), None);
            }
        }
        let known: Vec<&str> = keys::VARIABLES
            .iter()
            .map(|variable| variable.name)
            .chain(keys::LATER_VARIABLES.iter().map(|(name, _)| *name))
            .chain(keys::OTHER_VARIABLES.iter().copied())
            .collect();
        for assignment in assignments {
            let name = assignment.name.as_str();
            let ours = ["TELEGRAM_", "WEBHOOK_", "GATEWAY_", "OPENAI_", "ANTHROPIC_", "HOOKGATE_", "HERMES_"];
            let near = known.iter().copied().find(|known| strsim::damerau_levenshtein(name, known) <= 2);
            let misspelt = !known.contains(&name) && ours.iter().any(|prefix| nearly_starts_with(name, prefix));
            if let Some(near) = near.filter(|_| misspelt) {
                self.problems.push(Problem {
                    severity: Severity::Warning,
                    origin: self.env_file.clone(),
                    line: assignment.line,
                    column: 0,
                    path: name.to_owned(),
                    message: "hookgate knows no variable of this name".to_owned(),
                    suggestion: Some(format!("did you mean `{near}`?")),
                });
            }
        }
    }

    /// The accounts' names.
    pub(super) fn accounts(&self) -> Vec<String> {
        self.accounts.keys().cloned().collect()
    }

    /// Reads as one account does: its own values, and for the others those of the platform, but for what belongs to one
    /// bot alone. What was told about the platform's values is not told again.
    pub(super) fn in_account<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let own = self.accounts.get(name)?.found.clone();
        let whole = self.found.clone();
        self.found.retain(|path, _| !keys::OF_ONE_ACCOUNT.contains(path));
        self.found.extend(own);
        let told = self.problems.len();
        let result = read(self);
        let new = self.problems.split_off(told);
        self.problems.extend(new.into_iter().filter(|problem| !self.problems.contains(problem)).collect::<Vec<_>>());
        self.found = whole;
        Some(result)
    }

    /// Adds a problem about an account as a whole.
    pub(super) fn tell_about_account(&mut self, name: &str, message: impl Into<String>, suggestion: &str) {
        let Some(account) = self.accounts.get(name) else { return };
        let (place, written) = (account.place, account.written.clone());
        self.tell_in_file(Severity::Error, place, &written, message.into(), Some(suggestion.to_owned()));
    }

    /// Tells that a value of `.env` holds a reference that cannot be resolved.
    pub(super) fn unresolved_assignment(&mut self, assignment: &Assignment, message: &str) {
        let strict = keys::VARIABLES
            .iter()
            .find(|variable| variable.name == assignment.name)
            .and_then(|variable| keys::find(variable.path))
            .map_or_else(|| proxies::is_address(&assignment.name), |key| key.holds != Holds::Setting);
        self.problems.push(Problem {
            severity: if strict { Severity::Error } else { Severity::Warning },
            origin: self.env_file.clone(),
            line: assignment.line,
            column: 0,
            path: assignment.name.clone(),
            message: format!("{message}, so {} is not set", assignment.name),
            suggestion: Some("set the variable above this line, or put the value in single quotes".to_owned()),
        });
    }

    /// Adds a problem about a value.
    pub(super) fn tell(
        &mut self,
        severity: Severity,
        found: &Found,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) {
        let (origin, path, place) = match &found.origin {
            Origin::File => (self.file.clone(), found.written.clone(), found.key_place),
            Origin::Process(name) => ((*name).to_owned(), found.written.clone(), Place::default()),
            Origin::EnvFile(name, line) => {
                (self.env_file.clone(), (*name).to_owned(), Place { line: *line, column: 0 })
            }
        };
        let Place { line, column } = place;
        self.problems.push(Problem { severity, origin, line, column, path, message: message.into(), suggestion });
    }

    /// Adds a problem about the value that wins at `path`, or about the key when nothing is set.
    pub(super) fn tell_about(&mut self, severity: Severity, path: &str, message: impl Into<String>, suggestion: &str) {
        let suggestion = Some(suggestion.to_owned());
        match self.winner(path).cloned() {
            Some(found) => self.tell(severity, &found, message, suggestion),
            None => self.tell_in_file(severity, Place::default(), path, message.into(), suggestion),
        }
    }

    /// Adds a problem at a place of `config.yaml`.
    pub(super) fn tell_in_file(
        &mut self,
        severity: Severity,
        place: Place,
        path: &str,
        message: String,
        suggestion: Option<String>,
    ) {
        self.problems.push(Problem {
            severity,
            origin: self.file.clone(),
            line: place.line,
            column: place.column,
            path: path.to_owned(),
            message,
            suggestion,
        });
    }

    /// Adds what a reader says about a value of `config.yaml`.
    pub(super) fn tell_wrong(&mut self, place: Place, path: &str, wrong: Wrong) {
        let place = wrong.place.unwrap_or(place);
        self.tell_in_file(Severity::Error, place, path, wrong.message, wrong.suggestion);
    }

    /// The value that wins at a canonical path.
    pub(super) fn winner(&self, path: &str) -> Option<&Found> {
        self.found.get(path)?.iter().find(|found| !found.node.is_null())
    }

    /// The value that stands in `config.yaml`, whether or not the environment wins over it.
    pub(super) fn in_file(&self, path: &str) -> Option<&Found> {
        self.found.get(path)?.iter().find(|found| found.origin == Origin::File && !found.node.is_null())
    }

    /// Types the value at `path`. One that cannot be typed is an error in the file and, unless it is a secret or an
    /// address, a warning in the environment, where the next source is asked.
    pub(super) fn read<T>(&mut self, path: &'static str, typing: impl Fn(&Node) -> Typing<T>) -> Option<T> {
        let strict = keys::find(path).is_none_or(|key| key.holds != Holds::Setting);
        let all = self.found.get(path).cloned().unwrap_or_default();
        for found in all.into_iter().filter(|found| !found.node.is_null()) {
            if found.broken {
                return None;
            }
            match typing(&found.node) {
                Ok(value) => return Some(value),
                Err(mut wrong) => {
                    let in_file = found.origin == Origin::File;
                    let severity = if in_file || strict { Severity::Error } else { Severity::Warning };
                    if severity == Severity::Warning {
                        wrong.message.push_str("; it is ignored");
                    }
                    let place = wrong.place.unwrap_or(found.node.place);
                    let at_value = Found { key_place: place, ..found };
                    self.tell(severity, &at_value, wrong.message, wrong.suggestion);
                    if severity == Severity::Error {
                        return None;
                    }
                }
            }
        }
        None
    }

    pub(super) fn text(&mut self, path: &'static str) -> Option<String> {
        self.read(path, text)
    }

    /// A secret, without blanks around it.
    pub(super) fn secret(&mut self, path: &'static str) -> Option<SecretString> {
        self.read(path, |node| text(node).map(|text| SecretString::from(text.trim())))
    }

    pub(super) fn boolean(&mut self, path: &'static str, default: bool) -> bool {
        self.read(path, boolean).unwrap_or(default)
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number<T>(&mut self, path: &'static str, default: T, least: T, most: T) -> T
    where
        T: TryFrom<i128> + Copy + PartialOrd + std::fmt::Display,
    {
        self.read(path, |node| {
            let value = T::try_from(whole(node)?).ok().filter(|value| (least..=most).contains(value));
            value.ok_or_else(|| Wrong::new(format!("{} is not from {least} to {most}", shown(node))))
        })
        .unwrap_or(default)
    }

    /// Seconds, whole or not, from `least` to `most`.
    pub(super) fn seconds(&mut self, path: &'static str, default: u64, least: f64, most: f64) -> Duration {
        self.read(path, |node| seconds(node, least, most)).unwrap_or(Duration::from_secs(default))
    }

    /// A list of texts. One text stands for a list of one, and commas part it, as in the environment.
    pub(super) fn list(&mut self, path: &'static str) -> Vec<String> {
        self.read(path, |node| Ok(list(node)?.into_iter().map(|(_, text)| text).collect())).unwrap_or_default()
    }

    /// A list of texts that may hold commas: one text stands for a list of one, and is not parted.
    pub(super) fn texts(&mut self, path: &'static str) -> Vec<String> {
        self.read(path, |node| match &node.value {
            Value::Scalar(scalar) => {
                Ok(Some(scalar.text.trim().to_owned()).filter(|text| !text.is_empty()).into_iter().collect())
            }
            _ => Ok(list(node)?.into_iter().map(|(_, text)| text).collect()),
        })
        .unwrap_or_default()
    }

    /// A list whose items are parsed; the first bad one is the problem.
    pub(super) fn list_of<T>(&mut self, path: &'static str, item: impl Fn(&str) -> Typing<T>) -> Vec<T> {
        self.read(path, |node| {
            list(node)?.into_iter().map(|(place, text)| item(&text).map_err(|wrong| wrong.at(place))).collect()
        })
        .unwrap_or_default()
    }

    /// Regular expressions, found in any case. A text is one of them, several on lines of their own, or a JSON list.
    pub(super) fn patterns(&mut self, path: &'static str) -> Vec<Regex> {
        self.read(path, |node| {
            let texts = match &node.value {
                Value::Scalar(scalar) => serde_json::from_str(&scalar.text)
                    .unwrap_or_else(|_| scalar.text.lines().map(str::to_owned).collect::<Vec<_>>())
                    .into_iter()
                    .map(|text| (node.place, text))
                    .collect(),
                _ => list(node)?,
            };
            let pattern = |(place, text): (Place, String)| {
                RegexBuilder::new(text.trim()).case_insensitive(true).build().map_err(|_| {
                    Wrong::new("this is not a regular expression")
                        .suggest("escape `[`, `(`, `*`, `+`, `?` and `\\` with `\\` where they are meant as such")
                        .at(place)
                })
            };
            texts.into_iter().filter(|(_, text)| !text.trim().is_empty()).map(pattern).collect()
        })
        .unwrap_or_default()
    }

    /// One of several words, written in any case.
    pub(super) fn choice<T: Copy>(&mut self, path: &'static str, default: T, words: &[(&str, T)]) -> T {
        self.read(path, |node| {
            let given = text(node)?;
            let word = given.trim().to_ascii_lowercase();
            words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value).ok_or_else(|| {
                let known: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
                let wrong = Wrong::new(format!("{} is not one of {}", shown(node), known.join(", ")));
                match nearest(&word, known) {
                    Some(near) => wrong.suggest(format!("did you mean `{near}`?")),
                    None => wrong,
                }
            })
        })
        .unwrap_or(default)
    }
}

fn in_route(key: &str) -> Holds {
    match key {
        "secret" => Holds::Secret,
        "chat_id" | "thread_id" | "message_thread_id" | "url" | "public_url" | "deliver" => Holds::Address,
        _ => Holds::Routes,
    }
}

fn in_model(key: &str) -> Holds {
    match key {
        "api_key" => Holds::Secret,
        "base_url" => Holds::Address,
        _ => Holds::Models,
    }
}

fn line_of(origin: &Origin) -> usize {
    match origin {
        Origin::EnvFile(_, line) => *line,
        _ => 0,
    }
}

fn unsupported(consequence: Option<&str>) -> String {
    match consequence {
        Some(consequence) => format!("not supported yet: {consequence}"),
        None => "not supported yet; it has no effect".to_owned(),
    }
}

fn nearly_starts_with(name: &str, prefix: &str) -> bool {
    let head: String = name.chars().take(prefix.len()).collect();
    strsim::damerau_levenshtein(&head, prefix) <= 2
}

/// A value for a message: never one that came from the environment.
pub(super) fn shown(node: &Node) -> String {
    match &node.value {
        Value::Scalar(Scalar { text, expanded: false, .. }) if text.chars().count() <= 60 => format!("`{text}`"),
        Value::Scalar(_) => "this value".to_owned(),
        _ => node.kind().to_owned(),
    }
}

fn scalar<'a>(node: &'a Node, wanted: &str) -> Typing<&'a Scalar> {
    match &node.value {
        Value::Scalar(scalar) => Ok(scalar),
        _ => Err(Wrong::new(format!("{wanted} is wanted, not {}", node.kind()))),
    }
}

/// The text exactly as written: `off`, `0123` and `2026-01-01` stay what they look like.
pub(super) fn text(node: &Node) -> Typing<String> {
    scalar(node, "text").map(|scalar| scalar.text.clone())
}

pub(super) fn boolean(node: &Node) -> Typing<bool> {
    let scalar = scalar(node, "true or false")?;
    match (scalar.typed(), scalar.text.trim().to_ascii_lowercase().as_str()) {
        (Typed::Bool(value), _) => Ok(value),
        (_, "true" | "yes" | "on" | "1") => Ok(true),
        (_, "false" | "no" | "off" | "0") => Ok(false),
        _ => Err(Wrong::new(format!("true or false is wanted, not {}", shown(node)))),
    }
}

/// A whole number; a quoted one counts, as does `8644.0`.
pub(super) fn whole(node: &Node) -> Typing<i128> {
    let scalar = scalar(node, "a whole number")?;
    let wrong = || Wrong::new(format!("a whole number is wanted, not {}", shown(node)));
    match scalar.typed() {
        Typed::Int(value) => Ok(value),
        Typed::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => {
            format!("{value:.0}").parse().map_err(|_| wrong())
        }
        Typed::Text => quoted_number(&scalar.text).and_then(|text| text.parse().ok()).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Seconds, whole or not, from `least` to `most`.
pub(super) fn seconds(node: &Node, least: f64, most: f64) -> Typing<Duration> {
    let value = decimal(node, "a number of seconds")?;
    if value.is_finite() && (least..=most).contains(&value) {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err(Wrong::new(format!("{} seconds is not from {least} to {most}", shown(node))))
    }
}

/// A number, whole or not; `wanted` names it in problems.
pub(super) fn decimal(node: &Node, wanted: &str) -> Typing<f64> {
    let scalar = scalar(node, wanted)?;
    let wrong = || Wrong::new(format!("{wanted} is wanted, not {}", shown(node)));
    match scalar.typed() {
        Typed::Float(value) => Ok(value),
        Typed::Text => quoted_number(&scalar.text).and_then(|text| text.parse().ok()).ok_or_else(wrong),
        _ => {
            let value = i32::try_from(whole(node).map_err(|_| wrong())?);
            Ok(value.map_or(f64::INFINITY, f64::from))
        }
    }
}

/// A number's text without the blanks and the `_` between digits that the reference's conversion passes over.
fn quoted_number(text: &str) -> Option<String> {
    let text = text.trim();
    let well_placed = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
    well_placed.then(|| text.replace('_', ""))
}

/// The items of a list, or of a text that is parted at its commas.
pub(super) fn list(node: &Node) -> Typing<Vec<(Place, String)>> {
    match &node.value {
        Value::Scalar(scalar) => Ok(scalar
            .text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(|item| (node.place, item.to_owned()))
            .collect()),
        Value::List(items) => items
            .iter()
            .filter(|item| !item.is_null())
            .map(|item| match text(item) {
                Ok(text) => Ok((item.place, text.trim().to_owned())),
                Err(wrong) => Err(wrong.at(item.place).suggest("write the items as `[one, two]`")),
            })
            .filter(|item| !matches!(item, Ok((_, text)) if text.is_empty()))
            .collect(),
        Value::Map(_) => Err(Wrong::new("a list is wanted, not a mapping").suggest("write it as `[one, two]`")),
    }
}
