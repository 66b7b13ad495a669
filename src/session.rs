//! Sessions and turns as plain types: which conversation a message belongs to, and what is remembered of it.

use std::time::Duration;

use hookgate_adapters::{ChatType, Source};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// Names a conversation across resets, `agent:main:telegram:dm:42` (`spec/hermes-gateway.md` §2.5).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey(pub String);

/// Who shares a conversation in groups and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Everybody in a group has a conversation of their own. Reference key `group_sessions_per_user`, default true.
    pub group_sessions_per_user: bool,
    /// The same inside threads. Reference key `thread_sessions_per_user`, default false.
    pub thread_sessions_per_user: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { group_sessions_per_user: true, thread_sessions_per_user: false }
    }
}

impl Sharing {
    fn is_per_user(self, in_thread: bool) -> bool {
        self.group_sessions_per_user && (!in_thread || self.thread_sessions_per_user)
    }

    /// Whether several people talk in the session of a message from `source`.
    pub fn is_shared(self, source: &Source) -> bool {
        let has = |id: &Option<String>| id.as_deref().is_some_and(|id| !id.is_empty());
        let is_own = self.is_per_user(has(&source.thread_id)) && has(&source.user_id);
        !matches!(source.chat_type, ChatType::Dm | ChatType::Webhook) && !is_own
    }
}

impl SessionKey {
    /// The conversation a message from `source` belongs to. Binding: `vectors/session_key.json`.
    pub fn of(source: &Source, sharing: Sharing) -> Self {
        // Two bots are two conversations, also with the same person.
        let mut key = format!("agent:main:{}", source.platform.with_account(&source.account));
        let mut push = |segment: &str| {
            key.push(':');
            key.push_str(segment);
        };
        let thread = source.thread_id.as_deref().filter(|id| !id.is_empty());
        let user = source.user_id.as_deref().filter(|id| !id.is_empty());
        let chat = Some(source.chat_id.as_str()).filter(|id| !id.is_empty());
        push(source.chat_type.as_str());
        if source.chat_type == ChatType::Dm {
            if let Some(chat) = chat {
                push(chat);
                if let Some(thread) = thread {
                    push(thread);
                }
            } else if let Some(participant) = user.or(thread) {
                push(participant);
            }
            return Self(key);
        }
        if let Some(chat) = chat {
            push(chat);
        }
        if let Some(thread) = thread {
            push(thread);
        }
        if let Some(user) = user.filter(|_| sharing.is_per_user(thread.is_some())) {
            push(user);
        }
        Self(key)
    }

    /// The key the conversation has after its chat got another id; `None` when it is not one of that chat.
    pub fn moved(&self, from: &str, to: &str) -> Option<Self> {
        let mut segments: Vec<&str> = self.0.split(':').collect();
        let chat = segments.get_mut(4).filter(|chat| **chat == from)?;
        *chat = to;
        Some(Self(segments.join(":")))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// When a conversation ends by itself (`session_reset`, `spec/hermes-gateway.md` §2.5). By default never.
#[derive(Debug, Clone)]
pub struct ResetPolicy {
    /// What ends it.
    pub mode: ResetMode,
    /// How long it rests at most, for those that may not rest longer.
    pub idle: Duration,
    /// The hour at which a day begins, 0 to 23, for those that end with the day.
    pub hour: i8,
    /// Whose day it is.
    pub zone: TimeZone,
}

/// What ends a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResetMode {
    /// Nothing but a person.
    #[default]
    None,
    /// Rest.
    Idle,
    /// The end of the day.
    Daily,
    /// Either.
    Both,
}

impl Default for ResetPolicy {
    fn default() -> Self {
        Self { mode: ResetMode::None, idle: Duration::from_secs(86_400), hour: 4, zone: TimeZone::UTC }
    }
}

impl ResetPolicy {
    /// The times, Unix milliseconds, before which a conversation's last message must lie for it to be over now, each with
    /// the reason.
    pub fn over_before(&self, now: i64) -> impl Iterator<Item = (i64, &'static str)> {
        let (by_rest, by_day) = (
            matches!(self.mode, ResetMode::Idle | ResetMode::Both),
            matches!(self.mode, ResetMode::Daily | ResetMode::Both),
        );
        let idle = i64::try_from(self.idle.as_millis()).unwrap_or(i64::MAX);
        let idle = by_rest.then(|| (now.saturating_sub(idle), "idle"));
        let daily = if by_day { self.day_began(self.hour, now) } else { None };
        idle.into_iter().chain(daily.map(|time| (time, "daily")))
    }

    /// Why a conversation whose last message was at `updated_at` is over, if it is.
    pub fn is_over(&self, updated_at: i64, now: i64) -> Option<&'static str> {
        self.over_before(now).find_map(|(before, reason)| (updated_at < before).then_some(reason))
    }

    /// The last time it was `hour`. On the days when clocks change it was that hour once, too.
    fn day_began(&self, hour: i8, now: i64) -> Option<i64> {
        let now = Timestamp::from_millisecond(now).ok()?.to_zoned(self.zone.clone());
        let on = |date: jiff::civil::Date| date.at(hour, 0, 0, 0).to_zoned(self.zone.clone()).ok();
        let today = on(now.date())?;
        let began = if today <= now { today } else { on(now.date().yesterday().ok()?)? };
        Some(began.timestamp().as_millisecond())
    }
}

/// One remembered conversation, from its first message to a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    /// `20261130_190813_0a1b2c3d`: UTC start and eight hex digits.
    pub id: String,
    /// The conversation it is a stretch of.
    pub key: SessionKey,
    /// Platform of its first message.
    pub platform: String,
    /// Chat of its first message.
    pub chat_id: String,
    /// User of its first message.
    pub user_id: Option<String>,
    /// Name of the chat or user, for listings.
    pub name: Option<String>,
    /// Unix milliseconds.
    pub started_at: i64,
    /// Unix milliseconds of the last message.
    pub updated_at: i64,
    /// Unix milliseconds; `None` while it is the current one of its key.
    pub ended_at: Option<i64>,
    /// `reset`, `webhook_complete`, …
    pub end_reason: Option<String>,
    /// How many messages it remembers.
    pub messages: i64,
}

/// Who said a remembered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person (or the webhook).
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name in the store and in model requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One remembered message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remembered {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub text: String,
    /// How its turn ended.
    pub status: TurnStatus,
    /// Unix milliseconds.
    pub at: i64,
}

/// How a turn ended; also the `status` of `agent:end` (`spec/decisions.md` §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnStatus {
    /// There is an answer.
    Completed,
    /// The model or the gateway could not answer; the user was told.
    Failed,
    /// Stopped by a person or by the gateway's own stop.
    Interrupted,
}

impl TurnStatus {
    /// The name in the store and in hook payloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Vectors {
        cases: Vec<Case>,
    }

    #[derive(Debug, Deserialize)]
    struct Case {
        platform: String,
        chat_type: ChatType,
        chat_id: String,
        user_id: Option<String>,
        thread_id: Option<String>,
        group_sessions_per_user: bool,
        thread_sessions_per_user: bool,
        session_key: String,
    }

    #[test]
    fn a_key_follows_its_chat_and_no_other() {
        let moved = |key: &str| SessionKey(key.to_owned()).moved("-529", "-100529").map(|key| key.0);
        assert_eq!(moved("agent:main:telegram:group:-529:7").as_deref(), Some("agent:main:telegram:group:-100529:7"));
        assert_eq!(moved("agent:main:telegram:group:-529").as_deref(), Some("agent:main:telegram:group:-100529"));
        assert_eq!(
            moved("agent:main:telegram@ops:group:-529:7").as_deref(),
            Some("agent:main:telegram@ops:group:-100529:7")
        );
        assert_eq!(moved("agent:main:telegram:group:-5291:-529"), None);
        assert_eq!(moved("agent:main:telegram:dm"), None);
    }

    #[test]
    fn a_day_begins_once_also_when_clocks_change() {
        let policy = |hour| ResetPolicy {
            mode: ResetMode::Daily,
            hour,
            zone: TimeZone::get("Europe/Berlin").unwrap(),
            ..ResetPolicy::default()
        };
        let at = |time: &str| time.parse::<Timestamp>().unwrap().as_millisecond();
        // Four in the morning around both changes of 2026, and an hour that is not there, or there twice.
        for (hour, days) in [
            (4, ["2026-03-28T03:00:00Z", "2026-03-29T02:00:00Z", "2026-03-30T02:00:00Z"]),
            (4, ["2026-10-24T02:00:00Z", "2026-10-25T03:00:00Z", "2026-10-26T03:00:00Z"]),
            (2, ["2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
            (2, ["2026-10-24T00:00:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"]),
        ] {
            let (first, last) = (at(days[0]), at(days[2]));
            let mut began = Vec::new();
            for now in (first..=last).step_by(15 * 60 * 1000) {
                let day = policy(hour).over_before(now).next().unwrap().0;
                assert!(day <= now);
                began.push(day);
            }
            began.dedup();
            assert_eq!(began, days.map(at), "{hour}");
        }
    }

    #[test]
    fn a_conversation_is_over_when_it_rested_or_its_day_is_over() {
        let hour = 3_600_000;
        let never = ResetPolicy::default();
        assert_eq!(never.is_over(0, 1_000 * hour), None);
        let both = ResetPolicy { mode: ResetMode::Both, idle: Duration::from_secs(7_200), ..ResetPolicy::default() };
        for (updated_at, now, over) in
            [(10, 12, None), (10, 13, Some("idle")), (3, 4, Some("daily")), (4, 5, None), (3, 6, Some("idle"))]
        {
            assert_eq!(both.is_over(updated_at * hour, now * hour), over, "{updated_at} {now}");
        }
    }

    #[test]
    fn keys_are_those_of_the_vectors() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/session_key.json"));
        let vectors: Vectors = serde_json::from_str(text).unwrap();
        let mut checked = 0;
        for case in vectors.cases {
            let Ok(platform) = case.platform.parse() else {
                assert_eq!(case.platform, "discord", "the only platform of the vectors that is not there yet");
                continue;
            };
            let source = Source {
                platform,
                account: String::new(),
                chat_id: case.chat_id.clone(),
                chat_name: None,
                chat_type: case.chat_type,
                user_id: case.user_id.clone(),
                user_name: None,
                thread_id: case.thread_id.clone(),
                is_bot: false,
            };
            let sharing = Sharing {
                group_sessions_per_user: case.group_sessions_per_user,
                thread_sessions_per_user: case.thread_sessions_per_user,
            };
            assert_eq!(SessionKey::of(&source, sharing).as_str(), case.session_key, "{case:?}");
            let of_another_bot = SessionKey::of(&Source { account: "ops".to_owned(), ..source }, sharing);
            assert_eq!(
                of_another_bot.as_str(),
                case.session_key.replacen(&case.platform, &format!("{platform}@ops"), 1)
            );
            checked += 1;
        }
        assert_eq!(checked, 56);
    }
}
