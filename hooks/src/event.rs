//! Events and who subscribes to them: names, the matching rule, and suggestions for misspelt names. The table of all
//! events is in `event/table.rs`.

mod table;

use std::borrow::Cow;
use std::fmt;

pub use table::{Answers, EVENTS, EventRow, Fires, System};

/// Names one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    name: Cow<'static, str>,
    /// The event's name under the alias that was typed.
    alias: Option<String>,
}

macro_rules! event_names {
    ($($constant:ident = $name:literal;)*) => {
        /// The events without a variable part that are fired today. What they mean is in [`EVENTS`].
        #[expect(missing_docs, reason = "each is documented by its row of the table")]
        impl Event {
            $(pub const $constant: Self = Self::fixed($name);)*
        }

        #[cfg(test)]
        const CONSTANTS: &[&str] = &[$($name),*];
    };
}

event_names! {
    GATEWAY_STARTUP = "gateway:startup";
    GATEWAY_SHUTDOWN = "gateway:shutdown";
    SESSION_START = "session:start";
    SESSION_END = "session:end";
    SESSION_RESET = "session:reset";
    AGENT_START = "agent:start";
    AGENT_STEP = "agent:step";
    AGENT_END = "agent:end";
    MESSAGE_RECEIVED = "message:received";
    MESSAGE_SENT = "message:sent";
    WEBHOOK_RECEIVED = "webhook:received";
    WEBHOOK_DELIVERED = "webhook:delivered";
    WEBHOOK_FAILED = "webhook:failed";
    PRE_GATEWAY_DISPATCH = "pre_gateway_dispatch";
    ON_SESSION_START = "on_session_start";
    ON_SESSION_END = "on_session_end";
    ON_SESSION_FINALIZE = "on_session_finalize";
    ON_SESSION_RESET = "on_session_reset";
    PRE_LLM_CALL = "pre_llm_call";
    POST_LLM_CALL = "post_llm_call";
    PRE_API_REQUEST = "pre_api_request";
    POST_API_REQUEST = "post_api_request";
    API_REQUEST_ERROR = "api_request_error";
    TRANSFORM_LLM_OUTPUT = "transform_llm_output";
    PRE_TOOL_CALL = "pre_tool_call";
    POST_TOOL_CALL = "post_tool_call";
    TRANSFORM_TOOL_RESULT = "transform_tool_result";
    TRANSFORM_TERMINAL_OUTPUT = "transform_terminal_output";
    PRE_VERIFY = "pre_verify";
    PRE_APPROVAL_REQUEST = "pre_approval_request";
    POST_APPROVAL_RESPONSE = "post_approval_response";
}

impl Event {
    const fn fixed(name: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), alias: None }
    }

    /// `command:<name>`; `name` is canonical, without the slash.
    pub fn command(name: &str) -> Self {
        Self { name: Cow::Owned(format!("command:{name}")), alias: None }
    }

    /// `command:before:<name>`; `name` is canonical, without the slash.
    pub fn command_before(name: &str) -> Self {
        Self { name: Cow::Owned(format!("command:before:{name}")), alias: None }
    }

    /// The same command event, typed as `alias`: a hook that subscribes to the alias by name sees it too, under that name.
    pub fn typed_as(mut self, alias: &str) -> Self {
        let before = "command:before:";
        let stem = if self.name.starts_with(before) { before } else { "command:" };
        let name = format!("{stem}{alias}");
        if self.name.starts_with("command:") && self.name != name {
            self.alias = Some(name);
        }
        self
    }

    /// The event of this name, if the table knows it. A wildcard is not an event.
    pub fn named(name: &str) -> Option<Self> {
        (!name.ends_with('*') && row(name).is_some()).then(|| Self { name: Cow::Owned(name.to_owned()), alias: None })
    }

    /// The name hooks see.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Its row in the table.
    pub fn row(&self) -> Option<&'static EventRow> {
        row(&self.name)
    }

    /// The event of the same moment that only hooks naming it exactly are told about.
    fn second_name(&self) -> Option<Self> {
        match &*self.name {
            "agent:start" => Some(Self::fixed("agent:turn_start")),
            "agent:end" => Some(Self::fixed("agent:turn_end")),
            _ => None,
        }
    }

    /// What a hook with these subscriptions is told of this moment.
    pub(crate) fn seen_by(&self, subscriptions: &[String]) -> Seen {
        let first = subscriptions.iter().filter_map(|subscription| self.closeness(subscription)).min();
        let first = first.map(|closeness| {
            let name = match (closeness, &self.alias) {
                (Closeness::Alias, Some(alias)) => Cow::Owned(alias.clone()),
                _ => self.name.clone(),
            };
            (closeness, Self { name, alias: None })
        });
        let second = self.second_name().filter(|second| subscriptions.iter().any(|wish| wish == second.as_str()));
        Seen { first, second }
    }

    fn closeness(&self, subscription: &str) -> Option<Closeness> {
        if subscription == self.name {
            return Some(Closeness::Name);
        }
        if self.alias.as_deref() == Some(subscription) {
            return Some(Closeness::Alias);
        }
        wildcard_matches(subscription, &self.name).then_some(Closeness::Wildcard)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// How a subscription fits an event; hooks with the closest fit come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closeness {
    /// By its name.
    Name,
    /// By the alias that was typed.
    Alias,
    /// By a wildcard.
    Wildcard,
}

/// What one hook sees of one moment.
pub(crate) struct Seen {
    /// The event, under the name the hook knows it by.
    pub(crate) first: Option<(Closeness, Event)>,
    /// The `agent:turn_*` event of the same moment.
    pub(crate) second: Option<Event>,
}

/// Whether a subscription covers an event: by its name (or, for a command, the alias that was typed), or as `prefix:*`
/// where the prefix is one or more whole segments of the name. `command:*` leaves out `command:before:…`, and `agent:*`
/// the `agent:turn_*` names. No other pattern matches anything (`spec/decisions.md` §2).
pub fn matches(subscription: &str, event: &Event) -> bool {
    event.closeness(subscription).is_some()
}

fn wildcard_matches(subscription: &str, name: &str) -> bool {
    let Some(prefix) = subscription.strip_suffix(":*") else { return false };
    let Some(rest) = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':')) else { return false };
    match prefix {
        "command" => !rest.starts_with("before:"),
        "agent" => !rest.starts_with("turn_"),
        _ => !prefix.is_empty(),
    }
}

/// The row of an event's name; `command:reset` is in the row `command:<name>`.
fn row(name: &str) -> Option<&'static EventRow> {
    EVENTS.iter().find(|row| match row.name.strip_suffix("<name>") {
        Some(stem) => name.strip_prefix(stem).is_some_and(|rest| !rest.is_empty() && !rest.contains(':')),
        None => row.name == name,
    })
}

/// Whether a subscription of a hook of this system names an event, or with a wildcard at least one, of the table.
pub fn is_known(subscription: &str, system: System) -> bool {
    if subscription.ends_with(":*") {
        return rows_of(system).any(|row| wildcard_matches(subscription, row.name));
    }
    row(subscription).is_some_and(|row| row.system == system)
}

fn rows_of(system: System) -> impl Iterator<Item = &'static EventRow> {
    EVENTS.iter().filter(move |row| row.system == system)
}

/// The subscription that somebody probably meant, of those a hook of this system can have. `None` if nothing is similar.
pub fn suggest(name: &str, system: System) -> Option<String> {
    let mut candidates: Vec<String> = Vec::new();
    for row in rows_of(system) {
        let Some(stem) = row.name.strip_suffix("<name>") else {
            candidates.push(row.name.to_owned());
            continue;
        };
        // The command's own name is never the misspelt part: compare what is before it.
        let segments = stem.matches(':').count();
        if let Some((at, _)) = name.match_indices(':').nth(segments - 1)
            && !name[at + 1..].is_empty()
            && !name[at + 1..].contains(':')
            && similarity(&name[..=at], stem) >= SIMILAR
        {
            candidates.push(format!("{stem}{}", &name[at + 1..]));
        }
        candidates.push(format!("{stem}*"));
    }
    for row in rows_of(system) {
        if let Some((prefix, _)) = row.name.split_once(':') {
            candidates.push(format!("{prefix}:*"));
        }
    }
    let mut best: Option<(f64, String)> = None;
    for candidate in candidates {
        let score = similarity(name, &candidate);
        if score >= SIMILAR && best.as_ref().is_none_or(|(highest, _)| score > *highest) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// From here on two names count as similar. The reference's threshold.
const SIMILAR: f64 = 0.6;

/// Twice the length of the longest common subsequence over both lengths: 0 for nothing in common, 1 for equal.
fn similarity(a: &str, b: &str) -> f64 {
    // The table's names are short; a name much longer than any of them cannot be similar to one.
    let a: Vec<char> = a.chars().take(200).collect();
    let b: Vec<char> = b.chars().take(200).collect();
    let mut lengths = vec![0_u16; b.len() + 1];
    for x in &a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let above = lengths[j + 1];
            lengths[j + 1] = if x == y { diagonal + 1 } else { above.max(lengths[j]) };
            diagonal = above;
        }
    }
    let common = f64::from(lengths.last().copied().unwrap_or(0));
    let total = a.len() + b.len();
    if total == 0 { 1.0 } else { 2.0 * common / total as f64 }
}

#[cfg(test)]
mod tests;
