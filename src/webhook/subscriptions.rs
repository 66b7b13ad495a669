//! The routes being served: those of `config.yaml`, and those of `webhook_subscriptions.json`, which may change at any time.
//!
//! Reading ([`Subscriptions`]) follows the file without a watcher and keeps the last good state when the file breaks.
//! Writing ([`subscribe`], [`update`], [`remove`]) is for the command line: atomic, and careful with what others wrote.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::RngCore as _;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use crate::files::{self, directory_of, write_atomically};
use crate::webhook::json::{Json, Kind, unescape};
use crate::webhook::route::{Route, RouteDefaults, RouteProblem, parse_route};
use crate::webhook::signature::INSECURE_NO_AUTH;

/// The file's name in the home directory.
pub const FILE_NAME: &str = "webhook_subscriptions.json";

/// A file that is larger is not read.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// While the last change is younger than this, another change may carry the same times (filesystems count in steps of
/// up to two seconds), so the content is compared too.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Everything that is served at one moment.
#[derive(Debug, Clone, Default)]
pub struct RouteSet {
    /// By name.
    pub routes: HashMap<String, Arc<Route>>,
    /// The names in `routes` that come from the subscription file.
    pub dynamic: HashSet<String>,
    /// Subscriptions that are not served, and why.
    pub off: Vec<(String, Vec<RouteProblem>)>,
    /// Subscriptions that are served, or hidden by a static route, and what is odd about them.
    pub warnings: Vec<(String, Vec<RouteProblem>)>,
    /// The file cannot be read; `routes` has the subscriptions of the last time it could.
    pub file_error: Option<String>,
}

impl RouteSet {
    /// The served names, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.routes.keys().cloned().collect();
        names.sort();
        names
    }

    /// What to tell of a file at `path` that cannot be read: a sentence that names it.
    pub fn unreadable(&self, path: &Path) -> Option<String> {
        let reason = self.file_error.as_ref()?;
        Some(format!("{} cannot be read: {reason}. Repair or remove it.", path.display()))
    }

    /// Why subscriptions are off, a line each: `name: what is wrong`.
    pub fn off_lines(&self) -> Vec<String> {
        let line = |(name, problems): &(String, Vec<RouteProblem>)| {
            let wrong: Vec<String> = problems.iter().filter(|one| !one.warning).map(ToString::to_string).collect();
            format!("{name}: {}", wrong.join("; "))
        };
        self.off.iter().map(line).collect()
    }
}

/// The routes, kept up to date with the subscription file.
#[derive(Debug)]
pub struct Subscriptions {
    shared: Arc<Shared>,
    /// One reader at a time; the others wait for its result.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    static_routes: BTreeMap<String, Arc<Route>>,
    defaults: RouteDefaults,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seen: Seen,
    /// What was read last, good or not.
    content: Option<Vec<u8>>,
    set: Arc<RouteSet>,
}

/// What the file system said when the content was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Nothing,
    Absent,
    File { stamp: Stamp, is_settled: bool },
}

/// Two files with the same stamp are the same file, unless it changed twice within [`SETTLED_AFTER`].
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(self.changed.0.try_into().unwrap_or(u64::MAX));
        since_epoch.checked_sub(changed).is_some_and(|age| age > SETTLED_AFTER)
    }
}

impl Subscriptions {
    /// Serves `static_routes`, and the subscriptions in the file at `path`, which need not exist. Reads it once.
    pub fn open(path: PathBuf, static_routes: BTreeMap<String, Route>, defaults: RouteDefaults) -> Self {
        let static_routes = static_routes.into_iter().map(|(name, route)| (name, Arc::new(route))).collect();
        let state = State { seen: Seen::Nothing, content: None, set: Arc::default() };
        let shared = Arc::new(Shared { path, static_routes, defaults, state: Mutex::new(state) });
        shared.reload().log(&shared);
        Self { shared, reading: tokio::sync::Mutex::new(()) }
    }

    /// The routes as the file is now.
    ///
    /// Asked for every request. While nothing changed this is one `stat`, which the kernel answers from memory in a
    /// microsecond or two, less than handing it to another thread would take; only a change is read there.
    pub async fn current(&self) -> Arc<RouteSet> {
        if let Some(set) = self.shared.unchanged() {
            return set;
        }
        let _one = self.reading.lock().await;
        if let Some(set) = self.shared.unchanged() {
            return set;
        }
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || shared.reload()).await {
            Ok(reading) => reading.log(&self.shared),
            Err(_) => self.last(),
        }
    }

    /// The routes as they were read last, without looking at the file.
    pub fn last(&self) -> Arc<RouteSet> {
        Arc::clone(&self.shared.lock().set)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unchanged(&self) -> Option<Arc<RouteSet>> {
        let found = fs::metadata(&self.path);
        let state = self.lock();
        let is_same = match (&state.seen, found) {
            (Seen::File { stamp, is_settled: true }, Ok(metadata)) => *stamp == Stamp::of(&metadata),
            (Seen::Absent, Err(error)) => error.kind() == ErrorKind::NotFound,
            _ => false,
        };
        is_same.then(|| Arc::clone(&state.set))
    }

    /// Reads the file, blocking.
    fn reload(&self) -> Reading {
        let read = read_file(&self.path, SystemTime::now());
        let mut state = self.lock();
        let before = Arc::clone(&state.set);
        let parsed = match read {
            Ok((seen, content)) => {
                let is_same = state.seen != Seen::Nothing && state.content == content;
                state.seen = seen;
                if is_same {
                    return Reading { now: Arc::clone(&before), before };
                }
                let parsed = content.as_deref().map_or_else(|| Ok(Map::new()), parse_file);
                state.content = content;
                parsed
            }
            Err(error) => {
                state.seen = Seen::Nothing;
                Err(error)
            }
        };
        let set = match parsed {
            Ok(subscriptions) => self.build(&subscriptions),
            Err(error) => {
                let mut kept =
                    if before.routes.is_empty() { self.build(&Map::new()) } else { RouteSet::clone(&before) };
                kept.file_error = Some(error);
                kept
            }
        };
        state.set = Arc::new(set);
        Reading { now: Arc::clone(&state.set), before }
    }

    fn build(&self, subscriptions: &Map<String, Value>) -> RouteSet {
        let mut set = RouteSet::default();
        for (name, value) in subscriptions {
            if self.static_routes.contains_key(name) {
                let message = "config.yaml has a route of this name, which is served instead".to_owned();
                let hidden = RouteProblem { path: String::new(), message, suggestion: None, warning: true };
                set.warnings.push((name.clone(), vec![hidden]));
                continue;
            }
            match parse_route(name, value, &self.defaults) {
                Ok((route, warnings)) => {
                    crate::redact::add(&route.secrets);
                    set.routes.insert(name.clone(), Arc::new(route));
                    set.dynamic.insert(name.clone());
                    if !warnings.is_empty() {
                        set.warnings.push((name.clone(), warnings));
                    }
                }
                Err(problems) => set.off.push((name.clone(), problems)),
            }
        }
        set.routes.extend(self.static_routes.iter().map(|(name, route)| (name.clone(), Arc::clone(route))));
        set
    }
}

/// What was served before and after a reading.
struct Reading {
    before: Arc<RouteSet>,
    now: Arc<RouteSet>,
}

impl Reading {
    /// Tells what is new since the last reading, each thing once.
    fn log(self, shared: &Shared) -> Arc<RouteSet> {
        let Self { before, now } = self;
        let path = shared.path.display();
        match (&before.file_error, &now.file_error) {
            (old, Some(error)) if old.as_ref() != Some(error) => {
                tracing::error!(file = %path, "cannot read the subscriptions, those read before stay: {error}");
            }
            (Some(_), None) => tracing::info!(file = %path, "the subscriptions can be read again"),
            _ => {}
        }
        for entry in now.off.iter().filter(|entry| !before.off.contains(entry)) {
            let problems: Vec<String> =
                entry.1.iter().filter(|problem| !problem.warning).map(ToString::to_string).collect();
            tracing::error!(route = %entry.0, "the subscription is off: {}", problems.join("; "));
        }
        for entry in now.warnings.iter().filter(|entry| !before.warnings.contains(entry)) {
            for problem in &entry.1 {
                tracing::warn!(route = %entry.0, "{problem}");
            }
        }
        now
    }
}

/// The content, with the stamp it had before it was read: a change meanwhile shows up at the next look.
fn read_file(path: &Path, now: SystemTime) -> Result<(Seen, Option<Vec<u8>>), String> {
    // A named pipe would block the reader: look before opening.
    let is_file = match fs::metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Seen::Absent, None)),
        Err(error) => return Err(error.to_string()),
    };
    if !is_file {
        return Err("it is not a file".to_owned());
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Seen::Absent, None)),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if metadata.len() > MAX_FILE_BYTES {
        return Err(format!("it is larger than {MAX_FILE_BYTES} bytes"));
    }
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    let stamp = Stamp::of(&metadata);
    let is_settled = stamp.is_settled(now);
    Ok((Seen::File { stamp, is_settled }, Some(content)))
}

fn parse_file(content: &[u8]) -> Result<Map<String, Value>, String> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    if content.trim_ascii().is_empty() {
        return Err("it is empty".to_owned());
    }
    match serde_json::from_slice(content) {
        Ok(Value::Object(subscriptions)) => Ok(subscriptions),
        Ok(_) => Err("it is not an object of subscriptions by name".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Why the file was not changed. Each is a sentence for the person at the command line.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    /// The name cannot be one of a subscription.
    #[error("{0:?} cannot be a name: use letters, digits, `-` and `_`, beginning with a letter or digit.")]
    Name(String),
    /// There is no such subscription.
    #[error("There is no subscription {0:?}.")]
    Unknown(String),
    /// The route would not work.
    #[error("The subscription was not saved: {}.", .0.iter().filter(|problem| !problem.warning).map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unusable(Vec<RouteProblem>),
    /// The file is there and is not what it should be; it is left alone.
    #[error("{path} is broken and was left as it is: {reason}. Repair or remove it.")]
    Broken {
        /// The file.
        path: String,
        /// With line and column.
        reason: String,
    },
    /// The file system refuses.
    #[error("Cannot {action} {path}: {source}.")]
    Io {
        /// `read`, `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// What `webhook subscribe` was given.
#[derive(Debug, Clone, Default)]
pub struct Subscription {
    /// As typed, see [`normal_name`].
    pub name: String,
    /// `--description`.
    pub description: String,
    /// `--events`; empty: all.
    pub events: Vec<String>,
    /// `--prompt`.
    pub prompt: String,
    /// `--skills`.
    pub skills: Vec<String>,
    /// `--deliver`; empty: `log`.
    pub deliver: String,
    /// `--deliver-chat-id`.
    pub deliver_chat_id: Option<String>,
    /// `--secret`; `None`: the one it has, else a new one.
    pub secret: Option<SecretString>,
    /// `--deliver-only`.
    pub deliver_only: bool,
    /// `--script`.
    pub script: Option<String>,
}

/// What was saved.
#[derive(Debug)]
pub struct Saved {
    /// The subscription's name.
    pub name: String,
    /// It was not there before.
    pub is_new: bool,
    /// Its (first) secret, to be shown to the person who will enter it at the provider.
    pub secret: Option<SecretString>,
    /// The secret differs from before.
    pub secret_changed: bool,
    /// As it will be served.
    pub route: Route,
    /// What is odd about it.
    pub warnings: Vec<RouteProblem>,
}

/// Keys that `subscribe` decides; others of an existing entry stay.
const SUBSCRIBE_KEYS: [&str; 10] = [
    "description",
    "events",
    "secret",
    "prompt",
    "skills",
    "deliver",
    "created_at",
    "deliver_only",
    "script",
    "deliver_extra",
];

/// The name a subscription gets: trimmed, in lower case, blanks as `-` (`spec/hermes-gateway.md` §1.14).
pub fn normal_name(name: &str) -> Result<String, SubscriptionError> {
    let normal = name.trim().to_lowercase().replace(' ', "-");
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_valid = normal.bytes().next().is_some_and(is_plain)
        && normal.bytes().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'_'));
    if is_valid { Ok(normal) } else { Err(SubscriptionError::Name(name.to_owned())) }
}

/// A new secret: 32 random bytes in base64url, 43 characters.
pub fn new_secret() -> SecretString {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    SecretString::from(URL_SAFE_NO_PAD.encode(bytes))
}

/// Adds a subscription, or replaces the one of the same name. A replaced one keeps its secret (unless one is given), its
/// `created_at`, and what `subscribe` has no flag for. Nothing is written unless the result would be served.
pub fn subscribe(path: &Path, wanted: &Subscription, defaults: &RouteDefaults) -> Result<Saved, SubscriptionError> {
    let name = normal_name(&wanted.name)?;
    edit(path, |document| {
        let existing = document.get(&name);
        let old = existing.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        let old_secret = old.get("secret").filter(|secret| !has_no_secret(secret)).cloned();
        let secret = match &wanted.secret {
            Some(secret) => secret.expose_secret().into(),
            None => old_secret.unwrap_or_else(|| new_secret().expose_secret().into()),
        };
        let deliver = if wanted.deliver.trim().is_empty() { "log" } else { wanted.deliver.trim() };
        let created = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut entry = Map::new();
        entry.insert("description".to_owned(), wanted.description.as_str().into());
        entry.insert("events".to_owned(), wanted.events.clone().into());
        entry.insert("secret".to_owned(), secret);
        entry.insert("prompt".to_owned(), wanted.prompt.as_str().into());
        entry.insert("skills".to_owned(), wanted.skills.clone().into());
        entry.insert("deliver".to_owned(), deliver.into());
        entry.insert("created_at".to_owned(), old.get("created_at").cloned().unwrap_or_else(|| created.into()));
        if wanted.deliver_only {
            entry.insert("deliver_only".to_owned(), true.into());
        }
        if let Some(script) = &wanted.script {
            entry.insert("script".to_owned(), script.as_str().into());
        }
        let mut extra = kept_thread(&old, deliver, wanted.deliver_chat_id.as_deref());
        extra.extend(wanted.deliver_chat_id.as_ref().map(|chat_id| ("chat_id".to_owned(), chat_id.as_str().into())));
        if !extra.is_empty() {
            entry.insert("deliver_extra".to_owned(), extra.into());
        }
        entry.extend(old.into_iter().filter(|(key, _)| !SUBSCRIBE_KEYS.contains(&key.as_str())));
        save(document, &name, existing, entry, defaults)
    })
}

/// The thread of `deliver_extra`, which `subscribe` has no flag for. It belongs to a chat, so it stays as long as the chat
/// does.
fn kept_thread(old: &Map<String, Value>, deliver: &str, chat_id: Option<&str>) -> Map<String, Value> {
    let Some(Value::Object(extra)) = old.get("deliver_extra") else { return Map::new() };
    let old_deliver = old.get("deliver").and_then(Value::as_str).unwrap_or("log").trim();
    let old_chat = extra.get("chat_id").map(|chat| chat.as_str().map_or_else(|| chat.to_string(), str::to_owned));
    if old_chat.as_deref() != chat_id || (deliver != old_deliver && deliver != "log") {
        return Map::new();
    }
    let thread = extra.iter().filter(|(key, _)| matches!(key.as_str(), "thread_id" | "message_thread_id"));
    thread.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Changes keys of an existing subscription; `null` removes one. Nothing is written unless the result would be served.
pub fn update(
    path: &Path,
    name: &str,
    changes: &Map<String, Value>,
    defaults: &RouteDefaults,
) -> Result<Saved, SubscriptionError> {
    edit(path, |document| {
        let name = document.find(name)?;
        let existing = document.get(&name);
        let mut entry = existing.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        for (key, value) in changes {
            if value.is_null() {
                entry.shift_remove(key);
            } else {
                entry.insert(key.clone(), value.clone());
            }
        }
        save(document, &name, existing, entry, defaults)
    })
}

/// Gives an existing subscription a new secret. With `keep_old` those it had, or the listener's where it had none of its
/// own, are accepted after it. Nothing is written unless the result would be served.
pub fn rotate(
    path: &Path,
    name: &str,
    new: &SecretString,
    keep_old: bool,
    defaults: &RouteDefaults,
) -> Result<Saved, SubscriptionError> {
    edit(path, |document| {
        let name = document.find(name)?;
        let existing = document.get(&name);
        let mut entry = existing.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        let old = match entry.get("secret") {
            None | Some(Value::Null) => defaults.secret.iter().map(|secret| secret.expose_secret().into()).collect(),
            Some(Value::Array(list)) => list.clone(),
            Some(one) => vec![one.clone()],
        };
        let mut secrets = vec![Value::from(new.expose_secret())];
        for secret in old.into_iter().filter(|secret| keep_old && is_key(secret)) {
            if !secrets.contains(&secret) {
                secrets.push(secret);
            }
        }
        let secret = if secrets.len() > 1 { secrets.into() } else { secrets.remove(0) };
        entry.insert("secret".to_owned(), secret);
        save(document, &name, existing, entry, defaults)
    })
}

/// Removes a subscription and returns its name as it was in the file.
pub fn remove(path: &Path, name: &str) -> Result<String, SubscriptionError> {
    edit(path, |document| {
        let name = document.find(name)?;
        document.entries.retain(|entry| unescape(&entry.key) != name);
        Ok(name)
    })
}

/// Whether something can be verified with the secret.
fn is_key(secret: &Value) -> bool {
    !has_no_secret(secret) && secret.as_str().is_none_or(|text| text.trim() != INSECURE_NO_AUTH)
}

fn has_no_secret(secret: &Value) -> bool {
    secret.is_null() || secret.as_str().is_some_and(|text| text.trim().is_empty())
}

fn save(
    document: &mut Document,
    name: &str,
    existing: Option<Value>,
    entry: Map<String, Value>,
    defaults: &RouteDefaults,
) -> Result<Saved, SubscriptionError> {
    let entry = Value::Object(entry);
    let (route, warnings) = parse_route(name, &entry, defaults).map_err(SubscriptionError::Unusable)?;
    let saved = Saved {
        name: name.to_owned(),
        is_new: existing.is_none(),
        secret: route.secrets.first().cloned(),
        secret_changed: existing.is_none_or(|existing| existing.get("secret") != entry.get("secret")),
        route,
        warnings,
    };
    document.set(name, &entry);
    Ok(saved)
}

/// The file as text by entry, so that what is not changed stays as it was written.
struct Document {
    entries: Vec<Entry>,
}

struct Entry {
    /// With quotes.
    key: String,
    value: String,
}

impl Document {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim().is_empty() {
            return Ok(Self { entries: Vec::new() });
        }
        let json = Json::parse(text).ok_or_else(|| match serde_json::from_str::<Value>(text) {
            Err(error) => error.to_string(),
            Ok(_) => "it is nested too deep".to_owned(),
        })?;
        if json.kind() != Kind::Object {
            return Err("it is not an object of subscriptions by name".to_owned());
        }
        let entries = json.members().map(|(key, value)| Entry { key: key.to_owned(), value: value.text().to_owned() });
        Ok(Self { entries: entries.collect() })
    }

    fn get(&self, name: &str) -> Option<Value> {
        let entry = self.entries.iter().rfind(|entry| unescape(&entry.key) == name)?;
        serde_json::from_str(&entry.value).ok()
    }

    /// The name in the file that was meant: as typed, else in its normal form.
    fn find(&self, typed: &str) -> Result<String, SubscriptionError> {
        let has = |name: &str| self.entries.iter().any(|entry| unescape(&entry.key) == name);
        [Some(typed.to_owned()), normal_name(typed).ok()]
            .into_iter()
            .flatten()
            .find(|name| has(name))
            .ok_or_else(|| SubscriptionError::Unknown(typed.to_owned()))
    }

    fn set(&mut self, name: &str, value: &Value) {
        let value = value.to_string();
        match self.entries.iter_mut().rfind(|entry| unescape(&entry.key) == name) {
            Some(entry) => entry.value = value,
            None => self.entries.push(Entry { key: Value::from(name).to_string(), value }),
        }
    }

    fn text(&self) -> String {
        let members: Vec<String> = self.entries.iter().map(|entry| format!("{}:{}", entry.key, entry.value)).collect();
        let text = format!("{{{}}}", members.join(","));
        Json::of_checked(&text).pretty()
    }
}

/// Reads, changes and writes the file while holding its directory's lock, which other writers wait for.
fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut Document) -> Result<T, SubscriptionError>,
) -> Result<T, SubscriptionError> {
    let io = |action| {
        let path = path.display().to_string();
        move |source| SubscriptionError::Io { action, path, source }
    };
    let directory = File::open(directory_of(path)).map_err(io("write"))?;
    // Some network file systems cannot lock a directory; each write is one step even so.
    let _ = directory.lock();
    let text = match files::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => return Err(io("read")(error)),
    };
    let mut document = text
        .and_then(|text| Document::parse(&text))
        .map_err(|reason| SubscriptionError::Broken { path: path.display().to_string(), reason })?;
    let result = change(&mut document)?;
    write_atomically(path, document.text().as_bytes()).map_err(io("write"))?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use serde_json::json;

    use super::*;
    use crate::webhook::route::Deliver;

    struct Home {
        dir: tempfile::TempDir,
    }

    impl Home {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().expect("a directory") }
        }

        fn file(&self) -> PathBuf {
            self.dir.path().join(FILE_NAME)
        }

        fn write(&self, text: &str) {
            fs::write(self.file(), text).expect("written");
        }

        fn replace(&self, text: &str) {
            let other = self.dir.path().join("other");
            fs::write(&other, text).expect("written");
            fs::rename(other, self.file()).expect("renamed");
        }

        fn open(&self) -> Subscriptions {
            let (fixed, _) = parse_route("fixed", &json!({"prompt": "static"}), &defaults()).expect("a route");
            Subscriptions::open(self.file(), [("fixed".to_owned(), fixed)].into(), defaults())
        }

        fn text(&self) -> String {
            fs::read_to_string(self.file()).expect("text")
        }

        fn value(&self) -> Value {
            serde_json::from_str(&self.text()).expect("JSON")
        }
    }

    fn defaults() -> RouteDefaults {
        RouteDefaults {
            secret: Some(SecretString::from("listener secret")),
            loopback: false,
            telegram: BTreeMap::from([(String::new(), None)]),
            public_url: None,
        }
    }

    fn entry(prompt: &str) -> String {
        json!({"secret": "a good secret", "prompt": prompt}).to_string()
    }

    fn one(prompt: &str) -> String {
        format!(r#"{{"hook": {}}}"#, entry(prompt))
    }

    async fn prompt(subscriptions: &Subscriptions) -> Option<String> {
        subscriptions.current().await.routes.get("hook").map(|route| route.prompt.clone())
    }

    #[tokio::test]
    async fn every_kind_of_replacement_is_seen_at_once() {
        let home = Home::new();
        let subscriptions = home.open();
        assert_eq!(prompt(&subscriptions).await, None);
        home.write(&one("a"));
        assert_eq!(prompt(&subscriptions).await.as_deref(), Some("a"), "the file appears");
        for text in ["b", "c", "d", "e", "f", "g", "h"] {
            home.write(&one(text));
            assert_eq!(prompt(&subscriptions).await.as_deref(), Some(text), "same size, within one step of the clock");
        }
        home.replace(&one("renamed"));
        assert_eq!(prompt(&subscriptions).await.as_deref(), Some("renamed"));

        let old = SystemTime::now() - Duration::from_secs(86_400);
        home.replace(&one("older"));
        File::options().write(true).open(home.file()).expect("open").set_modified(old).expect("times");
        assert_eq!(prompt(&subscriptions).await.as_deref(), Some("older"), "a change may carry an old time");

        fs::remove_file(home.file()).expect("removed");
        assert_eq!(prompt(&subscriptions).await, None, "the file is gone");
        home.write(&one("again"));
        File::options().write(true).open(home.file()).expect("open").set_modified(old).expect("times");
        assert_eq!(prompt(&subscriptions).await.as_deref(), Some("again"));

        let (one_dir, two_dir) = (home.dir.path().join("one"), home.dir.path().join("two"));
        fs::write(&one_dir, one("link one")).expect("written");
        fs::write(&two_dir, one("link two")).expect("written");
        for target in [&one_dir, &two_dir] {
            let link = home.dir.path().join("link");
            symlink(target, &link).expect("link");
            fs::rename(link, home.file()).expect("swapped");
            let expected = if target == &one_dir { "link one" } else { "link two" };
            assert_eq!(prompt(&subscriptions).await.as_deref(), Some(expected));
        }
        fs::write(&two_dir, one("behind the link")).expect("written");
        assert_eq!(prompt(&subscriptions).await.as_deref(), Some("behind the link"));
    }

    #[tokio::test]
    async fn a_broken_file_keeps_what_was_good() {
        let home = Home::new();
        home.write(&one("good"));
        let subscriptions = home.open();
        for broken in ["", " \n", "{", "[]", "null", "{\"hook\": ", "\u{0}", &one("x")[..20]] {
            home.write(broken);
            let set = subscriptions.current().await;
            assert!(set.file_error.is_some(), "{broken:?}");
            assert_eq!(set.routes["hook"].prompt, "good");
            assert!(set.routes.contains_key("fixed"));
        }
        fs::write(home.file(), b"{\"hook\": \"\xff\"}").expect("written");
        assert!(subscriptions.current().await.file_error.is_some());
        home.write(&one("repaired"));
        let set = subscriptions.current().await;
        assert_eq!((set.routes["hook"].prompt.as_str(), set.file_error.as_deref()), ("repaired", None));

        fs::remove_file(home.file()).expect("removed");
        fs::create_dir(home.file()).expect("a directory instead");
        let set = subscriptions.current().await;
        assert_eq!((set.routes["hook"].prompt.as_str(), set.file_error.is_some()), ("repaired", true));
    }

    #[tokio::test]
    async fn a_file_that_was_never_good_leaves_the_static_routes() {
        let home = Home::new();
        home.write("{");
        let set = home.open().current().await;
        assert_eq!(set.routes.keys().collect::<Vec<_>>(), ["fixed"]);
        assert!(set.file_error.is_some());
    }

    #[tokio::test]
    async fn a_bad_entry_turns_only_itself_off() {
        let home = Home::new();
        home.write(&format!(
            r#"{{"hook": {}, "text": "x", "none": null, "open": {{"secret": "INSECURE_NO_AUTH"}}, "blank": {{"secret": ""}},
               "lost": {{"deliver": "telegarm"}}, "odd": {{"promt": "x"}}, "fixed": {}, "": {{}}}}"#,
            entry("good"),
            entry("dynamic")
        ));
        let set = home.open().current().await;
        let mut names: Vec<_> = set.routes.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["fixed", "hook", "odd"]);
        assert_eq!(set.routes["fixed"].prompt, "static", "the static route wins");
        assert!(set.dynamic.contains("hook") && !set.dynamic.contains("fixed"));
        let off: Vec<_> = set.off.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(off, ["text", "none", "open", "blank", "lost", ""]);
        let warned: Vec<_> = set.warnings.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(warned, ["odd", "fixed"]);
    }

    #[tokio::test]
    async fn an_unchanged_file_is_not_read_again() {
        let home = Home::new();
        home.write(&one("a"));
        let subscriptions = home.open();
        let set = subscriptions.current().await;
        assert!(Arc::ptr_eq(&set, &subscriptions.current().await), "compared while it is young");
        // Once the change is old enough the stamp alone decides.
        {
            let mut state = subscriptions.shared.lock();
            let Seen::File { stamp, .. } = &state.seen else { panic!("{:?}", state.seen) };
            assert!(!stamp.is_settled(SystemTime::now()));
            assert!(stamp.is_settled(SystemTime::now() + SETTLED_AFTER + Duration::from_secs(1)));
            state.seen = Seen::File { stamp: stamp.clone(), is_settled: true };
        }
        assert!(subscriptions.shared.unchanged().is_some());
        home.write(&one("bb"));
        assert!(subscriptions.shared.unchanged().is_none());
        assert_eq!(prompt(&subscriptions).await.as_deref(), Some("bb"));
        fs::remove_file(home.file()).expect("removed");
        assert_eq!(prompt(&subscriptions).await, None);
        assert!(subscriptions.shared.unchanged().is_some(), "a missing file is known to be missing");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn readers_beside_a_writer_never_see_fewer_routes() {
        let home = Home::new();
        home.write(&one("0"));
        let subscriptions = Arc::new(home.open());
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let subscriptions = Arc::clone(&subscriptions);
                tokio::spawn(async move {
                    for _ in 0..200 {
                        assert!(prompt(&subscriptions).await.is_some());
                    }
                })
            })
            .collect();
        for number in 0..100 {
            if number % 2 == 0 {
                home.write(&one(&number.to_string()))
            } else {
                home.replace(&one(&number.to_string()))
            }
            tokio::task::yield_now().await;
        }
        for reader in readers {
            reader.await.expect("no reader saw it missing");
        }
        assert_eq!(prompt(&subscriptions).await.as_deref(), Some("99"));
    }

    fn wanted(name: &str) -> Subscription {
        Subscription { name: name.to_owned(), prompt: "Größe {size}".to_owned(), ..Subscription::default() }
    }

    #[test]
    fn a_subscription_is_written_as_the_reference_writes_it() {
        let home = Home::new();
        let saved = subscribe(&home.file(), &wanted(" My Hook "), &defaults()).expect("saved");
        assert_eq!((saved.name.as_str(), saved.is_new, saved.secret_changed), ("my-hook", true, true));
        let secret = saved.secret.expect("a secret");
        assert_eq!(secret.expose_secret().len(), 43);
        assert_eq!(fs::metadata(home.file()).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(home.text().contains("\n  \"my-hook\": {\n    \"description\": \"\""), "{}", home.text());
        assert!(home.text().contains("Größe"));
        let value = home.value();
        let keys: Vec<_> = value["my-hook"].as_object().expect("entry").keys().map(String::as_str).collect();
        assert_eq!(keys, ["description", "events", "secret", "prompt", "skills", "deliver", "created_at"]);
        assert_eq!(value["my-hook"]["deliver"], "log");
        assert_eq!(value["my-hook"]["secret"], secret.expose_secret());
        let created = value["my-hook"]["created_at"].as_str().expect("text");
        assert_eq!(created.len(), "2026-11-30T19:08:13Z".len());
        created.parse::<jiff::Timestamp>().expect("a time");
        let left: Vec<_> = fs::read_dir(home.dir.path()).expect("listing").collect();
        assert_eq!(left.len(), 1, "no temporary or lock file stays");

        let full = Subscription {
            events: vec!["push".to_owned()],
            deliver: "telegram".to_owned(),
            deliver_chat_id: Some("-42".to_owned()),
            deliver_only: true,
            ..wanted("full")
        };
        let saved = subscribe(&home.file(), &full, &defaults()).expect("saved");
        assert!(matches!(&saved.route.deliver, Deliver::Chat(chat) if chat.chat_id == "-42"));
        assert_eq!(home.value()["full"]["deliver_extra"], json!({"chat_id": "-42"}));
        assert_eq!(home.value()["full"]["deliver_only"], true);
    }

    #[test]
    fn replacing_keeps_the_secret_and_everything_of_others() {
        let home = Home::new();
        let other = r#"{"x": {"unknown": [1.50, 12345678901234567890123], "é": "\u00e9"}, "hook": {"secret": "the old secret", "created_at": "2020-01-01T00:00:00Z", "enabled": false, "deliver_only": true, "scheme": "github"}, "y": 5}"#;
        home.write(other);
        let saved = subscribe(&home.file(), &wanted("hook"), &defaults()).expect("saved");
        assert!(!saved.is_new && !saved.secret_changed && !saved.route.enabled);
        let text = home.text();
        assert!(text.contains("1.50") && text.contains("12345678901234567890123"), "{text}");
        let value = home.value();
        assert_eq!(value.as_object().expect("object").keys().collect::<Vec<_>>(), ["x", "hook", "y"]);
        assert_eq!(value["hook"]["secret"], "the old secret");
        assert_eq!(value["hook"]["created_at"], "2020-01-01T00:00:00Z");
        assert_eq!(value["hook"]["scheme"], "github");
        assert_eq!(value["hook"].get("deliver_only"), None, "flags that are not given are off");

        let given = Subscription { secret: Some(SecretString::from("the new secret")), ..wanted("hook") };
        assert!(subscribe(&home.file(), &given, &defaults()).expect("saved").secret_changed);
        assert_eq!(home.value()["hook"]["secret"], "the new secret");

        let changes = json!({"enabled": true, "scheme": null, "secret": ["one good secret", "two good secrets"]});
        let saved = update(&home.file(), "Hook", changes.as_object().expect("object"), &defaults()).expect("saved");
        assert!(saved.route.enabled && saved.secret_changed);
        assert_eq!(home.value()["hook"].get("scheme"), None);
        subscribe(&home.file(), &wanted("hook"), &defaults()).expect("saved");
        assert_eq!(home.value()["hook"]["secret"].as_array().expect("list").len(), 2, "rotation goes on");
    }

    #[test]
    fn a_thread_written_by_hand_stays_with_its_chat() {
        let home = Home::new();
        let thread = json!({"message_thread_id": "3", "thread_id": 4});
        let with_chat = json!({"thread_id": "3", "chat_id": "-42"});
        let chat = |id: &str| Some(id.to_owned());
        for (deliver, extra, wanted_deliver, wanted_chat, left) in [
            ("telegram:7", &thread, "telegram:7", None, Some(thread.clone())),
            ("telegram:7", &thread, "", None, Some(thread.clone())),
            ("telegram:7", &thread, "telegram:8", None, None),
            ("telegram", &with_chat, "telegram", chat("-42"), Some(with_chat.clone())),
            ("telegram", &with_chat, "telegram", chat("-43"), Some(json!({"chat_id": "-43"}))),
            ("telegram", &with_chat, "", None, None),
        ] {
            let old = json!({"hook": {"secret": "a good secret", "deliver": deliver, "deliver_extra": extra}});
            home.write(&old.to_string());
            let wanted =
                Subscription { deliver: wanted_deliver.to_owned(), deliver_chat_id: wanted_chat, ..wanted("hook") };
            subscribe(&home.file(), &wanted, &defaults()).expect("saved");
            assert_eq!(home.value()["hook"].get("deliver_extra"), left.as_ref(), "{old} {wanted:?}");
        }
    }

    #[test]
    fn a_rotation_keeps_what_was_accepted_when_asked_to() {
        let home = Home::new();
        let new = SecretString::from("the new secret");
        for (old, keep_old, left) in [
            (json!({"secret": "old one"}), true, json!(["the new secret", "old one"])),
            (json!({"secret": "old one"}), false, json!("the new secret")),
            (json!({"secret": ["old one", "", "older one"]}), true, json!(["the new secret", "old one", "older one"])),
            (json!({"secret": "the new secret"}), true, json!("the new secret")),
            (json!({"secret": "INSECURE_NO_AUTH"}), true, json!("the new secret")),
            (json!({}), true, json!(["the new secret", "listener secret"])),
        ] {
            home.write(&json!({"hook": old, "other": {"secret": "x", "n": 1}}).to_string());
            let saved = rotate(&home.file(), "Hook", &new, keep_old, &defaults()).expect("saved");
            assert_eq!(saved.route.secrets[0].expose_secret(), "the new secret");
            assert_eq!(home.value()["hook"]["secret"], left, "{old}");
            assert_eq!(home.value()["other"], json!({"secret": "x", "n": 1}));
        }
        let error = rotate(&home.file(), "none", &new, true, &defaults()).expect_err("unknown");
        assert!(matches!(error, SubscriptionError::Unknown(_)), "{error}");
    }

    #[test]
    fn what_cannot_be_served_is_not_written() {
        let home = Home::new();
        for name in ["bad/name", "", "-x", "_x", "é", "a.b"] {
            let error = subscribe(&home.file(), &wanted(name), &defaults()).expect_err(name);
            assert!(matches!(error, SubscriptionError::Name(_)), "{error}");
        }
        let lost = Subscription { deliver: "telegarm".to_owned(), ..wanted("lost") };
        let error = subscribe(&home.file(), &lost, &defaults()).expect_err("no such target").to_string();
        assert!(error.contains("telegram:CHAT"), "{error}");
        let open = Subscription { secret: Some(SecretString::from("INSECURE_NO_AUTH")), ..wanted("open") };
        subscribe(&home.file(), &open, &defaults()).expect_err("not on loopback");
        assert!(!home.file().exists(), "nothing was written");
        let error = update(&home.file(), "none", &Map::new(), &defaults()).expect_err("unknown");
        assert!(matches!(error, SubscriptionError::Unknown(_)), "{error}");
    }

    #[test]
    fn a_broken_file_is_never_overwritten() {
        let home = Home::new();
        for broken in ["{", "[]", "5", "{\"a\": {}"] {
            home.write(broken);
            let error = subscribe(&home.file(), &wanted("hook"), &defaults()).expect_err(broken);
            assert!(matches!(error, SubscriptionError::Broken { .. }), "{error}");
            assert!(remove(&home.file(), "a").is_err());
            assert_eq!(home.text(), broken);
        }
        home.write("\n");
        subscribe(&home.file(), &wanted("hook"), &defaults()).expect("an empty file has nothing to lose");
    }

    #[test]
    fn a_subscription_can_be_removed() {
        let home = Home::new();
        home.write(r#"{"Old Name": {}, "hook": {}, "hook": {"x": 1}}"#);
        assert_eq!(remove(&home.file(), " Hook").expect("removed"), "hook");
        assert_eq!(remove(&home.file(), "Old Name").expect("removed as it is written"), "Old Name");
        assert_eq!(home.text(), "{}");
        assert!(matches!(remove(&home.file(), "hook"), Err(SubscriptionError::Unknown(_))));
    }

    #[test]
    fn a_link_is_written_through() {
        let home = Home::new();
        fs::create_dir(home.dir.path().join("shared")).expect("directory");
        let target = home.dir.path().join("shared/real.json");
        for exists in [false, true] {
            if !exists {
                symlink("shared/real.json", home.file()).expect("link");
            }
            subscribe(&home.file(), &wanted(if exists { "two" } else { "one" }), &defaults()).expect("saved");
            assert!(fs::symlink_metadata(home.file()).expect("there").is_symlink());
        }
        let value: Value = serde_json::from_slice(&fs::read(target).expect("target")).expect("JSON");
        assert_eq!(value.as_object().expect("object").len(), 2);
    }

    #[test]
    fn writers_at_once_lose_nothing() {
        let home = Home::new();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = home.file();
                scope.spawn(move || {
                    for round in 0..5 {
                        subscribe(&file, &wanted(&format!("hook-{number}-{round}")), &defaults()).expect("saved");
                    }
                });
            }
        });
        assert_eq!(home.value().as_object().expect("object").len(), 40);
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(new_secret().expose_secret(), new_secret().expose_secret());
        let saved = subscribe(&Home::new().file(), &wanted("hook"), &defaults()).expect("saved");
        let secret = saved.secret.as_ref().expect("a secret").expose_secret().to_owned();
        assert!(!format!("{saved:?}").contains(&secret));
    }
}
