//! Who is meant in a group: which messages are heard at all, and which of those are said to the bot
//! (`spec/hermes-gateway.md` §2.12). Reads nothing but one message and the configured rules.

use std::ops::Range;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The topic every forum has. Telegram leaves its number out of messages and refuses it when they are sent.
pub(super) const GENERAL_TOPIC: &str = "1";

/// What the bot hears in groups, and when it feels addressed. Chats are ids as text, `*` is every one; topics are `5`
/// (in any chat) or `-1001:5`.
#[derive(Debug, Clone)]
pub struct GroupRules {
    /// Only these groups are heard. Empty: all.
    pub allowed_chats: Vec<String>,
    /// In forums only these topics are heard. Empty: all.
    pub allowed_topics: Vec<String>,
    /// These topics are never heard.
    pub ignored_threads: Vec<String>,
    /// Without being named or replied to, the bot is not meant. Default false.
    pub require_mention: bool,
    /// Groups in which every message is meant for the bot, whatever `require_mention` says.
    pub free_response_chats: Vec<String>,
    /// The same for topics.
    pub free_response_topics: Vec<String>,
    /// A message that names other bots and not this one is not meant for it. Default true.
    pub exclusive_bot_mentions: bool,
    /// Texts that count as naming the bot.
    pub mention_patterns: Vec<Regex>,
    /// Which messages of other bots are heard. Default none. Who is heard has access.
    pub allow_bots: AllowBots,
}

/// Which messages of other bots are heard (`spec/hermes-gateway.md` §2.6, rule 4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AllowBots {
    /// None.
    #[default]
    None,
    /// Those that name this bot or answer it.
    Mentions,
    /// All.
    All,
}

impl Default for GroupRules {
    fn default() -> Self {
        Self {
            allowed_chats: Vec::new(),
            allowed_topics: Vec::new(),
            ignored_threads: Vec::new(),
            require_mention: false,
            free_response_chats: Vec::new(),
            free_response_topics: Vec::new(),
            exclusive_bot_mentions: true,
            mention_patterns: Vec::new(),
            allow_bots: AllowBots::None,
        }
    }
}

/// Who the bot is.
#[derive(Debug, Clone, Default)]
pub(super) struct Bot {
    /// Our name for it.
    pub(super) account: String,
    pub(super) id: String,
    pub(super) username: Option<String>,
}

/// Whom a text names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// This bot.
    pub(super) us: bool,
    /// Another bot.
    pub(super) others: bool,
    /// A command that is for another bot: never ours, whatever else is said.
    pub(super) command_of_another: bool,
    /// Where this bot's name stands, in bytes.
    ours: Vec<Range<usize>>,
}

#[derive(Deserialize)]
struct Entity {
    #[serde(rename = "type")]
    kind: String,
    offset: usize,
    length: usize,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Deserialize)]
struct User {
    id: i64,
    #[serde(default)]
    is_bot: bool,
}

impl GroupRules {
    /// Why a group's message is not heard at all, if it is not.
    pub(super) fn deaf_to(&self, chat: &str, topic: Option<&str>) -> Option<&'static str> {
        if !self.allowed_chats.is_empty() && !lists_chat(&self.allowed_chats, chat) {
            return Some("it is not among allowed_chats");
        }
        let topic = topic?;
        if lists_topic(&self.ignored_threads, chat, topic) {
            return Some("the topic is among ignored_threads");
        }
        let is_allowed = self.allowed_topics.is_empty() || lists_topic(&self.allowed_topics, chat, topic);
        (!is_allowed).then_some("the topic is not among allowed_topics")
    }

    /// Whether a group's message is said to the bot.
    pub(super) fn are_for_us(
        &self,
        (chat, topic): (&str, Option<&str>),
        text: &str,
        named: &Named,
        answers_us: bool,
    ) -> bool {
        if named.command_of_another || self.exclusive_bot_mentions && named.others && !named.us {
            return false;
        }
        !self.require_mention
            || named.us
            || answers_us
            || lists_chat(&self.free_response_chats, chat)
            || topic.is_some_and(|topic| lists_topic(&self.free_response_topics, chat, topic))
            || self.mention_patterns.iter().any(|pattern| pattern.is_match(text))
    }
}

fn lists_chat(chats: &[String], chat: &str) -> bool {
    chats.iter().any(|listed| listed == "*" || listed == chat)
}

fn lists_topic(topics: &[String], chat: &str, topic: &str) -> bool {
    topics.iter().any(|listed| match listed.rsplit_once(':') {
        Some((of_chat, of_topic)) => of_chat == chat && of_topic == topic,
        None => listed == "*" || listed == topic,
    })
}

impl Named {
    /// Reads the entities of a message's text or caption.
    pub(super) fn in_message(fields: &Map<String, Value>, text: &str, bot: &Bot) -> Self {
        let key = if fields.contains_key("text") { "entities" } else { "caption_entities" };
        let entities = fields.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_us = |name: &str| bot.username.as_deref().is_some_and(|us| us.eq_ignore_ascii_case(name));
        let mut named = Self::default();
        for entity in entities {
            // An entity of an unknown shape names nobody.
            let Ok(entity) = Entity::deserialize(entity) else { continue };
            let Some(range) = in_bytes(text, entity.offset, entity.length) else { continue };
            let words = &text[range.clone()];
            match entity.kind.as_str() {
                "mention" => {
                    let name = words.trim_start_matches('@');
                    if is_us(name) {
                        named.us = true;
                        named.ours.push(range);
                    } else if name.to_ascii_lowercase().ends_with("bot") {
                        named.others = true; // Telegram gives every bot, and nobody else, such a name.
                    }
                }
                "text_mention" => match entity.user {
                    Some(user) if user.id.to_string() == bot.id => {
                        named.us = true;
                        named.ours.push(range);
                    }
                    Some(user) if user.is_bot => named.others = true,
                    _ => {}
                },
                "bot_command" => match words.split_once('@') {
                    Some((_, name)) if is_us(name) => named.us = true,
                    Some(_) => {
                        named.others = true;
                        named.command_of_another |= entity.offset == 0;
                    }
                    None => {}
                },
                _ => {}
            }
        }
        named
    }

    /// The text without this bot's name; as it is when nothing else is said.
    pub(super) fn without_us(&self, text: &str) -> String {
        let mut rest = String::with_capacity(text.len());
        let mut end = 0;
        for range in &self.ours {
            let Some(before) = text.get(end..range.start) else { continue };
            rest.push_str(before);
            end = range.end;
            if rest.is_empty() || rest.ends_with(char::is_whitespace) {
                // One blank beside the name goes with it, and `@bot, do` does not begin with a comma.
                let after = text[end..].trim_start_matches(|c| rest.is_empty() && matches!(c, ',' | ':'));
                end = text.len() - after.strip_prefix(' ').unwrap_or(after).len();
            }
        }
        rest.push_str(&text[end..]);
        let rest = rest.trim();
        if rest.is_empty() { text.to_owned() } else { rest.to_owned() }
    }
}

/// A place in UTF-16 units, as Telegram counts, in bytes; `None` when it is not a place in the text.
fn in_bytes(text: &str, offset: usize, length: usize) -> Option<Range<usize>> {
    let end = offset.checked_add(length)?;
    let (mut units, mut from, mut to) = (0, None, None);
    for (at, c) in text.char_indices().chain([(text.len(), '\0')]) {
        from = from.or((units == offset).then_some(at));
        to = to.or((units == end).then_some(at));
        units += c.len_utf16();
    }
    Some(from?..to?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bot() -> Bot {
        Bot { account: String::new(), id: "55".into(), username: Some("hookgate_bot".into()) }
    }

    fn named(text: &str, entities: &Value) -> Named {
        let fields = json!({"text": text, "entities": entities});
        Named::in_message(fields.as_object().unwrap(), text, &bot())
    }

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_name_is_found_in_utf16_and_taken_out() {
        for (text, offset, rest) in [
            ("@Hookgate_Bot what is it?", 0, "what is it?"),
            ("😀 @hookgate_bot hello", 3, "😀 hello"),
            ("hello @HOOKGATE_BOT", 6, "hello"),
            ("@hookgate_bot, hello", 0, "hello"),
            ("@hookgate_bot /new", 0, "/new"),
            ("@hookgate_bot", 0, "@hookgate_bot"),
            ("line\n@hookgate_bot\nend", 5, "line\n\nend"),
        ] {
            let named = named(text, &json!([{"type": "mention", "offset": offset, "length": 13}]));
            assert!(named.us && !named.others, "{text}");
            assert_eq!(named.without_us(text), rest);
        }
        let outside = named("@hookgate_bot", &json!([{"type": "mention", "offset": 5, "length": 100}, {"odd": 1}, 3]));
        assert_eq!(outside, Named::default());
    }

    #[test]
    fn other_bots_are_told_from_people() {
        let mention = |text: &str| named(text, &json!([{"type": "mention", "offset": 0, "length": text.len()}]));
        assert!(mention("@weather_bot").others && !mention("@weather_bot").us);
        assert_eq!(mention("@alice"), Named::default());
        let command = |text: &str| named(text, &json!([{"type": "bot_command", "offset": 0, "length": text.len()}]));
        assert!(command("/new@Hookgate_bot").us);
        assert!(command("/new@other_bot").command_of_another);
        assert_eq!(command("/new"), Named::default());
        let person = |id: i64, is_bot: bool| {
            let user = json!({"id": id, "is_bot": is_bot, "first_name": "X"});
            named("Bob hi", &json!([{"type": "text_mention", "offset": 0, "length": 3, "user": user}]))
        };
        assert!(person(55, true).us && person(56, true).others && person(7, false) == Named::default());
    }

    #[test]
    fn lists_and_patterns_decide_who_is_meant() {
        let for_us = |rules: &GroupRules, text: &str, named: &Named, answers_us| {
            rules.are_for_us(("-1", Some("5")), text, named, answers_us)
        };
        let nobody = Named::default();
        assert!(for_us(&GroupRules::default(), "hi", &nobody, false));
        let strict = GroupRules { require_mention: true, ..GroupRules::default() };
        assert!(!for_us(&strict, "hi", &nobody, false) && for_us(&strict, "hi", &nobody, true));
        for free in [
            GroupRules { free_response_chats: list(&["-1"]), ..strict.clone() },
            GroupRules { free_response_chats: list(&["*"]), ..strict.clone() },
            GroupRules { free_response_topics: list(&["5"]), ..strict.clone() },
            GroupRules { free_response_topics: list(&["-1:5"]), ..strict.clone() },
            GroupRules { mention_patterns: vec![Regex::new("^hi$").unwrap()], ..strict.clone() },
        ] {
            assert!(for_us(&free, "hi", &nobody, false), "{free:?}");
        }
        let elsewhere = GroupRules { free_response_topics: list(&["-2:5"]), ..strict };
        assert!(!for_us(&elsewhere, "hi", &nobody, false));
        let others = Named { others: true, ..Named::default() };
        assert!(!for_us(&GroupRules::default(), "hi", &others, true));
        let shared = GroupRules { exclusive_bot_mentions: false, ..GroupRules::default() };
        assert!(for_us(&shared, "hi", &others, false));
        let foreign = Named { us: true, others: true, command_of_another: true, ..Named::default() };
        assert!(!for_us(&shared, "hi", &foreign, true));
    }

    #[test]
    fn a_group_that_is_not_listed_is_not_heard() {
        let rules = GroupRules {
            allowed_chats: list(&["-1", "-2"]),
            allowed_topics: list(&["-1:5", "7", "1"]),
            ignored_threads: list(&["7"]),
            ..GroupRules::default()
        };
        assert_eq!(rules.deaf_to("-2", None), None);
        assert_eq!(rules.deaf_to("-1", Some("5")), None);
        assert_eq!(rules.deaf_to("-1", Some(GENERAL_TOPIC)), None);
        assert_eq!(rules.deaf_to("-3", None), Some("it is not among allowed_chats"));
        assert_eq!(rules.deaf_to("-1", Some("7")), Some("the topic is among ignored_threads"));
        assert_eq!(rules.deaf_to("-2", Some("5")), Some("the topic is not among allowed_topics"));
    }
}
