//! Raw updates into messages, or into the reason for passing them over.
//!
//! Read leniently and field by field, not with teloxide's types: those are strict and untagged, so one entity or media
//! kind newer than the crate would turn a person's message into an empty one. Every update ends in a verdict; none can
//! hold up the ones behind it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::groups::{AllowBots, Bot, GENERAL_TOPIC, GroupRules, Named};
use crate::{ChatMoved, ChatType, InboundMessage, MediaNote, Platform, Press, Quoted, Source};

/// What who presses a button of a message is told that Telegram does not show any more.
const TOO_OLD: &str = "This message is too old.";

/// What is to be done with an update. The offset moves past it in every case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A person said something, with the number of the album it is a piece of.
    Message(Box<InboundMessage>, Option<String>),
    /// A group goes on as a supergroup of another id.
    Moved(ChatMoved),
    /// A person pressed a button; the query's id is what is answered.
    Pressed(Box<Press>, String),
    /// A press that is answered here, and why it goes no further.
    NotPressed {
        /// The query's id.
        query: String,
        /// What the person is told, if anything.
        toast: Option<&'static str>,
        /// For the log.
        why: String,
    },
    /// A kind that is not handled (named), or a message that carries nothing to read.
    NotHandled(String),
    /// A message in a chat or topic that is not heard, and why.
    NotHeard(String),
    /// Written by a bot.
    FromBot,
}

/// The id of an update, the only part every update must have.
pub(super) fn update_id(raw: &str) -> Option<i32> {
    #[derive(Deserialize)]
    struct Head {
        update_id: i32,
    }
    serde_json::from_str::<Head>(raw).ok().map(|head| head.update_id)
}

/// Reads one update of `bot`. `edits`: whether a new wording is heard as a message.
pub(super) fn read(raw: &str, id: i32, bot: &Bot, rules: &GroupRules, edits: bool) -> Verdict {
    let Ok(mut fields) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(raw) else {
        return Verdict::NotHandled("unreadable update".to_owned());
    };
    if let Some(query) = fields.remove("callback_query") {
        return match serde_json::from_str::<CallbackQuery>(query.get()) {
            Ok(query) => pressed(query, bot, rules),
            Err(error) => Verdict::NotHandled(format!("unreadable press ({error})")),
        };
    }
    let kinds = [("message", false), ("channel_post", false), ("edited_message", true), ("edited_channel_post", true)];
    let heard = kinds.into_iter().filter(|(_, edited)| edits || !edited);
    let found = heard.into_iter().find_map(|(kind, edited)| Some((fields.remove(kind)?, edited)));
    let Some((message, edited)) = found else {
        let kind = fields.into_keys().find(|key| key != "update_id");
        return Verdict::NotHandled(kind.unwrap_or_else(|| "update without content".to_owned()));
    };
    match serde_json::from_str::<Message>(message.get()) {
        Ok(message) => verdict(&message, (id, edited), bot, rules),
        Err(error) => Verdict::NotHandled(format!("unreadable message ({error})")),
    }
}

/// What is needed of Telegram's `Message` (core.telegram.org/bots/api#message).
#[derive(Deserialize)]
struct Message {
    message_id: i64,
    #[serde(default)]
    date: i64,
    chat: Chat,
    #[serde(default, deserialize_with = "lenient")]
    from: Option<Person>,
    #[serde(default, deserialize_with = "lenient")]
    is_topic_message: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    message_thread_id: Option<i64>,
    /// Set when a group or channel speaks as itself: an admin who stays anonymous, a linked channel.
    #[serde(default, deserialize_with = "lenient")]
    sender_chat: Option<Chat>,
    #[serde(default, deserialize_with = "lenient")]
    is_automatic_forward: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    media_group_id: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct Chat {
    id: i64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    title: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    first_name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    last_name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    is_forum: Option<bool>,
}

/// What is needed of Telegram's `CallbackQuery` (core.telegram.org/bots/api#callbackquery).
#[derive(Deserialize)]
struct CallbackQuery {
    id: String,
    from: Person,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<Message>,
    #[serde(default, deserialize_with = "lenient")]
    inline_message_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    data: Option<String>,
}

#[derive(Deserialize)]
struct Person {
    id: i64,
    #[serde(default)]
    is_bot: bool,
    #[serde(default, deserialize_with = "lenient")]
    first_name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    last_name: Option<String>,
}

/// A field of an unexpected shape counts as absent.
fn lenient<'de, D: Deserializer<'de>, T: for<'a> Deserialize<'a>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

fn verdict(message: &Message, (id, edited): (i32, bool), bot: &Bot, rules: &GroupRules) -> Verdict {
    if let Some(moved) = moved(message) {
        return Verdict::Moved(moved);
    }
    // Telegram names a bot of its own as the author of what a chat says as itself.
    let person = message.from.as_ref().filter(|_| message.sender_chat.is_none());
    let is_bot = person.is_some_and(|from| from.is_bot);
    let is_us = person.is_some_and(|from| from.id.to_string() == bot.id);
    if is_us || is_bot && rules.allow_bots == AllowBots::None {
        return Verdict::FromBot;
    }
    let chat = &message.chat;
    let chat_id = chat.id.to_string();
    let (chat_type, thread_id) = match place(message, rules) {
        Ok(place) => place,
        Err(why) => return Verdict::NotHeard(format!("messages in {why}")),
    };
    let text = text_of(&message.rest).unwrap_or_default();
    let media = media_of(&message.rest);
    if text.is_empty() && media.is_empty() {
        let carries: Vec<_> = message.rest.keys().map(String::as_str).collect();
        return Verdict::NotHandled(format!("message with {}", carries.join(", ")));
    }
    let quoted = quoted(&message.rest, &bot.id);
    let named = Named::in_message(&message.rest, &text, bot);
    let answers_us = quoted.as_ref().is_some_and(|quoted| quoted.is_own);
    if is_bot && rules.allow_bots == AllowBots::Mentions && !named.us && !answers_us {
        return Verdict::FromBot;
    }
    let addressed = chat_type == ChatType::Dm || {
        message.is_automatic_forward != Some(true)
            && rules.are_for_us((&chat_id, thread_id.as_deref()), &text, &named, answers_us)
    };
    let inbound = InboundMessage {
        source: Source {
            platform: Platform::Telegram,
            account: bot.account.clone(),
            chat_name: name_of_chat(chat),
            chat_type,
            user_id: person.map(|from| from.id.to_string()),
            user_name: match &message.sender_chat {
                Some(chat) => name_of_chat(chat),
                None => person.and_then(|from| full_name(from.first_name.as_deref(), from.last_name.as_deref())),
            },
            thread_id,
            is_bot,
            chat_id,
        },
        message_id: message.message_id.to_string(),
        dedup_key: format!("telegram:{}:{id}", bot.id),
        text: if chat_type == ChatType::Dm { text } else { named.without_us(&text) },
        media,
        quoted,
        sent_at: message.date.saturating_mul(1000),
        addressed,
        edited,
    };
    Verdict::Message(Box::new(inbound), message.media_group_id.clone())
}

/// The kind of a message's chat, and the topic; why it is not heard there, if it is not.
fn place(message: &Message, rules: &GroupRules) -> Result<(ChatType, Option<String>), String> {
    let chat_id = message.chat.id.to_string();
    let chat_type = match (message.chat.kind.as_str(), message.chat.is_forum) {
        ("private", _) => ChatType::Dm,
        ("supergroup", Some(true)) => ChatType::Forum,
        ("group" | "supergroup", _) => ChatType::Group,
        ("channel", _) => ChatType::Channel,
        (kind, _) => return Err(format!("chat {chat_id}: it is a {kind}")),
    };
    let thread_id = topic(message, chat_type);
    if chat_type != ChatType::Dm
        && let Some(reason) = rules.deaf_to(&chat_id, thread_id.as_deref())
    {
        let topic = thread_id.map(|topic| format!(" topic {topic}")).unwrap_or_default();
        return Err(format!("chat {chat_id}{topic}: {reason}"));
    }
    Ok((chat_type, thread_id))
}

/// Every press that can be named is answered: the person's program waits for it.
fn pressed(query: CallbackQuery, bot: &Bot, rules: &GroupRules) -> Verdict {
    let CallbackQuery { id, from, message, inline_message_id, data } = query;
    let not_pressed = |toast, why: String| Verdict::NotPressed { query: id.clone(), toast, why };
    if from.is_bot {
        return not_pressed(None, "a bot's press".to_owned());
    }
    if inline_message_id.is_some() {
        return not_pressed(None, "a press on an inline message".to_owned());
    }
    // A message that Telegram does not show any more has no date (core.telegram.org/bots/api#inaccessiblemessage).
    let Some(message) = message.filter(|message| message.date != 0) else {
        return not_pressed(Some(TOO_OLD), "a press on a message that is too old".to_owned());
    };
    let Some(data) = data else {
        return not_pressed(None, "a press without data".to_owned());
    };
    let (chat_type, thread_id) = match place(&message, rules) {
        Ok(place) => place,
        Err(why) => return not_pressed(None, format!("presses in {why}")),
    };
    let press = Press {
        source: Source {
            platform: Platform::Telegram,
            account: bot.account.clone(),
            chat_id: message.chat.id.to_string(),
            chat_name: name_of_chat(&message.chat),
            chat_type,
            user_id: Some(from.id.to_string()),
            user_name: full_name(from.first_name.as_deref(), from.last_name.as_deref()),
            thread_id,
            is_bot: false,
        },
        message_id: message.message_id.to_string(),
        data,
        press_id: format!("telegram:{}:{id}", bot.id),
    };
    Verdict::Pressed(Box::new(press), id)
}

/// Telegram tells it in the old chat and in the new one.
fn moved(message: &Message) -> Option<ChatMoved> {
    let other = |key: &str| message.rest.get(key).and_then(Value::as_i64);
    let here = message.chat.id;
    let (from, to) = match (other("migrate_to_chat_id"), other("migrate_from_chat_id")) {
        (Some(to), _) => (here, to),
        (None, Some(from)) => (from, here),
        (None, None) => return None,
    };
    Some(ChatMoved { platform: Platform::Telegram, from: from.to_string(), to: to.to_string() })
}

/// The topic of a forum or private chat. Elsewhere a thread is only a chain of replies.
fn topic(message: &Message, chat_type: ChatType) -> Option<String> {
    let topic = message.message_thread_id.filter(|_| message.is_topic_message == Some(true));
    match topic {
        Some(topic) if chat_type != ChatType::Group => Some(topic.to_string()),
        None if chat_type == ChatType::Forum => Some(GENERAL_TOPIC.to_owned()),
        _ => None,
    }
}

fn name_of_chat(chat: &Chat) -> Option<String> {
    chat.title.clone().or_else(|| full_name(chat.first_name.as_deref(), chat.last_name.as_deref()))
}

fn full_name(first: Option<&str>, last: Option<&str>) -> Option<String> {
    let name = [first, last].into_iter().flatten().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

fn text_of(fields: &Map<String, Value>) -> Option<String> {
    ["text", "caption"].iter().find_map(|key| fields.get(*key)?.as_str()).map(str::to_owned)
}

/// The media kinds of the Bot API. An `animation` is repeated as `document` and a `venue` as `location` for old clients.
const MEDIA: [&str; 18] = [
    "animation",
    "audio",
    "checklist",
    "contact",
    "dice",
    "document",
    "game",
    "invoice",
    "location",
    "paid_media",
    "photo",
    "poll",
    "sticker",
    "story",
    "venue",
    "video",
    "video_note",
    "voice",
];

fn media_of(fields: &Map<String, Value>) -> Vec<MediaNote> {
    MEDIA
        .iter()
        .filter(|kind| match **kind {
            "document" => !fields.contains_key("animation"),
            "location" => !fields.contains_key("venue"),
            _ => true,
        })
        .filter_map(|kind| Some(MediaNote { kind: (*kind).to_owned(), name: name_of(fields.get(*kind)?) }))
        .collect()
}

/// The file's name, or what tells such media apart.
fn name_of(media: &Value) -> Option<String> {
    let text = |key: &str| media.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| media.get(key).and_then(Value::as_f64);
    text("file_name")
        .or_else(|| text("question"))
        .or_else(|| text("title"))
        .or_else(|| full_name(text("first_name").as_deref(), text("phone_number").as_deref()))
        .or_else(|| text("emoji"))
        .or_else(|| Some(format!("{}, {}", number("latitude")?, number("longitude")?)))
        .filter(|name| !name.is_empty())
}

fn quoted(fields: &Map<String, Value>, bot: &str) -> Option<Quoted> {
    let replied = fields.get("reply_to_message")?.as_object()?;
    if replied.contains_key("forum_topic_created") {
        return None; // inside a topic every message "answers" the note that the topic was made
    }
    let quote = fields.get("quote").and_then(|quote| quote.get("text")).and_then(Value::as_str);
    let author = replied.get("from").and_then(|from| from.get("id")).and_then(Value::as_i64);
    Some(Quoted {
        message_id: replied.get("message_id")?.as_i64()?.to_string(),
        text: quote.map(str::to_owned).or_else(|| text_of(replied)),
        is_own: author.is_some_and(|id| id.to_string() == bot),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(raw: &str, id: i32) -> Verdict {
        let bot = Bot { account: String::new(), id: "55".into(), username: Some("hookgate_bot".into()) };
        super::read(raw, id, &bot, &GroupRules::default(), false)
    }

    fn read_message(fields: &Value) -> Verdict {
        let mut message = json!({
            "message_id": 4, "date": 1_700_000_000, "chat": {"id": 7, "type": "private", "first_name": "Alice", "last_name": "A."},
            "from": {"id": 7, "is_bot": false, "first_name": "Alice"},
        });
        message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        read(&json!({"update_id": 9, "message": message}).to_string(), 9)
    }

    fn heard(fields: &Value) -> InboundMessage {
        match read_message(fields) {
            Verdict::Message(message, _) => *message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_text_is_read() {
        assert_eq!(
            heard(&json!({"text": "hi"})),
            InboundMessage {
                source: Source {
                    platform: Platform::Telegram,
                    account: String::new(),
                    chat_id: "7".into(),
                    chat_name: Some("Alice A.".into()),
                    chat_type: ChatType::Dm,
                    user_id: Some("7".into()),
                    user_name: Some("Alice".into()),
                    thread_id: None,
                    is_bot: false,
                },
                message_id: "4".into(),
                dedup_key: "telegram:55:9".into(),
                text: "hi".into(),
                media: vec![],
                quoted: None,
                sent_at: 1_700_000_000_000,
                addressed: true,
                edited: false,
            }
        );
    }

    #[test]
    fn media_become_notes_with_what_names_them() {
        for (fields, kind, name) in [
            (json!({"photo": [{"file_id": "x"}]}), "photo", None),
            (json!({"voice": {"file_id": "x"}}), "voice", None),
            (json!({"document": {"file_name": "a.pdf"}}), "document", Some("a.pdf")),
            (
                json!({"animation": {"file_name": "a.gif"}, "document": {"file_name": "a.gif"}}),
                "animation",
                Some("a.gif"),
            ),
            (json!({"location": {"latitude": 52.5, "longitude": 13.4}}), "location", Some("52.5, 13.4")),
            (json!({"venue": {"title": "Bar"}, "location": {"latitude": 1, "longitude": 2}}), "venue", Some("Bar")),
            (json!({"poll": {"question": "Tea?"}}), "poll", Some("Tea?")),
            (json!({"contact": {"first_name": "Bob", "phone_number": "123"}}), "contact", Some("Bob 123")),
            (json!({"sticker": {"emoji": "🙂"}}), "sticker", Some("🙂")),
            (json!({"video": "of an unexpected shape"}), "video", None),
        ] {
            let message = heard(&fields);
            assert_eq!(message.media, [MediaNote { kind: kind.into(), name: name.map(Into::into) }], "{fields}");
        }
        assert_eq!(heard(&json!({"photo": [], "caption": "look"})).text, "look");
    }

    #[test]
    fn a_quoted_message_is_told_with_its_author() {
        let reply = json!({"text": "yes", "reply_to_message": {"message_id": 3, "from": {"id": 55, "is_bot": true}, "text": "sure?"}});
        assert_eq!(
            heard(&reply).quoted,
            Some(Quoted { message_id: "3".into(), text: Some("sure?".into()), is_own: true })
        );
        let part = json!({"text": "yes", "quote": {"text": "su"}, "reply_to_message": {"message_id": 3, "from": {"id": 8}, "text": "sure?"}});
        assert_eq!(
            heard(&part).quoted,
            Some(Quoted { message_id: "3".into(), text: Some("su".into()), is_own: false })
        );
        let topic = json!({"text": "a", "is_topic_message": true, "message_thread_id": 5, "reply_to_message": {"message_id": 5, "forum_topic_created": {}}});
        let message = heard(&topic);
        assert_eq!((message.quoted, message.source.thread_id.as_deref()), (None, Some("5")));
        assert_eq!(heard(&json!({"text": "a", "message_thread_id": 5})).source.thread_id, None);
    }

    #[test]
    fn everything_else_is_passed_over_by_name() {
        let not_handled = |raw: &str| match read(raw, 1) {
            Verdict::NotHandled(kind) => kind,
            other => panic!("{raw}: {other:?}"),
        };
        assert_eq!(not_handled(r#"{"update_id":1,"shipping_query":{}}"#), "shipping_query");
        assert!(not_handled(r#"{"update_id":1,"callback_query":{}}"#).starts_with("unreadable press"));
        assert_eq!(not_handled(r#"{"edited_message":{"text":"x"},"update_id":1}"#), "edited_message");
        assert_eq!(not_handled(r#"{"update_id":1}"#), "update without content");
        assert!(not_handled(r#"{"update_id":1,"message":{"text":5}}"#).starts_with("unreadable message"));
        assert!(
            matches!(read_message(&json!({"pinned_message": {}})), Verdict::NotHandled(kind) if kind == "message with pinned_message")
        );
        assert_eq!(
            read_message(&json!({"text": "x", "chat": {"id": -5, "type": "plaza"}})),
            Verdict::NotHeard("messages in chat -5: it is a plaza".into())
        );
        assert_eq!(read_message(&json!({"text": "x", "from": {"id": 8, "is_bot": true}})), Verdict::FromBot);
        assert_eq!(update_id(r#"{"update_id":"x"}"#), None);
    }

    #[test]
    fn chats_and_topics_are_told_apart() {
        let source = |chat: Value, fields: Value| {
            let mut all = json!({"text": "x", "chat": chat});
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let source = heard(&all).source;
            (source.chat_type, source.thread_id)
        };
        let (group, supergroup) = (json!({"id": -5, "type": "group"}), json!({"id": -5, "type": "supergroup"}));
        let forum = json!({"id": -5, "type": "supergroup", "is_forum": true});
        let (chain, topic) =
            (json!({"message_thread_id": 8}), json!({"message_thread_id": 8, "is_topic_message": true}));
        assert_eq!(source(group, json!({})), (ChatType::Group, None));
        assert_eq!(source(supergroup, chain.clone()), (ChatType::Group, None));
        assert_eq!(source(forum.clone(), topic), (ChatType::Forum, Some("8".into())));
        assert_eq!(source(forum.clone(), json!({})), (ChatType::Forum, Some("1".into())));
        assert_eq!(source(forum, chain), (ChatType::Forum, Some("1".into())));
    }

    #[test]
    fn a_chat_that_speaks_as_itself_is_no_person() {
        let chat = json!({"id": -5, "type": "supergroup", "title": "The group"});
        let anonymous = json!({"id": 1_087_968_824, "is_bot": true, "first_name": "Group"});
        let message = heard(&json!({"text": "x", "chat": chat, "sender_chat": chat, "from": anonymous}));
        assert_eq!((message.source.user_id, message.source.user_name), (None, Some("The group".into())));
        assert!(message.addressed);
        let channel = json!({"id": -6, "type": "channel", "title": "News"});
        let forwarded = heard(
            &json!({"text": "x", "chat": chat, "sender_chat": channel, "is_automatic_forward": true, "from": {"id": 777_000}}),
        );
        assert!(!forwarded.addressed);
    }

    /// A press of Bob's on a message in this chat.
    fn read_press(fields: &Value, chat: &Value, of_message: &Value) -> Verdict {
        let bot = json!({"id": 55, "is_bot": true, "first_name": "Hook"});
        let mut message = json!({"message_id": 4, "date": 1_700_000_000, "from": bot, "chat": chat, "text": "Sure?"});
        message.as_object_mut().unwrap().extend(of_message.as_object().unwrap().clone());
        let from = json!({"id": 8, "is_bot": false, "first_name": "Bob", "last_name": "B."});
        let mut query =
            json!({"id": "q1", "from": from, "message": message, "chat_instance": "c", "data": "ea:once:1"});
        query.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        read(&json!({"update_id": 9, "callback_query": query}).to_string(), 9)
    }

    #[test]
    fn a_press_is_read_with_who_pressed_and_where() {
        let private = json!({"id": 8, "type": "private", "first_name": "Bob"});
        let Verdict::Pressed(press, query) = read_press(&json!({}), &private, &json!({})) else { panic!() };
        assert_eq!(query, "q1");
        assert_eq!(
            *press,
            Press {
                source: Source {
                    platform: Platform::Telegram,
                    account: String::new(),
                    chat_id: "8".into(),
                    chat_name: Some("Bob".into()),
                    chat_type: ChatType::Dm,
                    user_id: Some("8".into()),
                    user_name: Some("Bob B.".into()),
                    thread_id: None,
                    is_bot: false,
                },
                message_id: "4".into(),
                data: "ea:once:1".into(),
                press_id: "telegram:55:q1".into(),
            }
        );
        let place = |chat: &Value, of_message: Value| match read_press(&json!({}), chat, &of_message) {
            Verdict::Pressed(press, _) => (press.source.chat_type, press.source.user_id, press.source.thread_id),
            other => panic!("{other:?}"),
        };
        let (group, forum) = (
            json!({"id": -5, "type": "supergroup", "title": "G"}),
            json!({"id": -5, "type": "supergroup", "is_forum": true}),
        );
        let topic = json!({"message_thread_id": 8, "is_topic_message": true});
        let bob = || Some("8".to_owned());
        assert_eq!(place(&group, json!({"message_thread_id": 8})), (ChatType::Group, bob(), None));
        assert_eq!(
            place(&group, json!({"sender_chat": group})),
            (ChatType::Group, bob(), None),
            "the author is another"
        );
        assert_eq!(place(&forum, topic), (ChatType::Forum, bob(), Some("8".into())));
        assert_eq!(place(&forum, json!({})), (ChatType::Forum, bob(), Some(GENERAL_TOPIC.into())));
        let channel = json!({"id": -6, "type": "channel", "title": "News"});
        assert_eq!(place(&channel, json!({"from": null, "sender_chat": channel})), (ChatType::Channel, bob(), None));
    }

    #[test]
    fn a_press_that_leads_nowhere_is_answered_all_the_same() {
        let private = json!({"id": 8, "type": "private"});
        let answered = |fields: Value, chat: &Value, of_message: Value| match read_press(&fields, chat, &of_message) {
            Verdict::NotPressed { query, toast, why } => {
                assert_eq!(query, "q1");
                (toast, why)
            }
            other => panic!("{other:?}"),
        };
        for (fields, of_message, toast) in [
            (json!({"message": null}), json!({}), Some(TOO_OLD)),
            (json!({"message": "of an unexpected shape"}), json!({}), Some(TOO_OLD)),
            (json!({}), json!({"date": 0}), Some(TOO_OLD)),
            (json!({"message": null, "inline_message_id": "i"}), json!({}), None),
            (json!({"data": null, "game_short_name": "chess"}), json!({}), None),
            (json!({"from": {"id": 9, "is_bot": true, "first_name": "B"}}), json!({}), None),
        ] {
            assert_eq!(answered(fields.clone(), &private, of_message).0, toast, "{fields}");
        }
        let plaza = json!({"id": -5, "type": "plaza"});
        assert_eq!(answered(json!({}), &plaza, json!({})), (None, "presses in chat -5: it is a plaza".to_owned()));
        let rules = GroupRules { allowed_chats: vec!["-1".into()], ..GroupRules::default() };
        let bot = Bot { account: String::new(), id: "55".into(), username: None };
        let query = json!({"id": "q1", "from": {"id": 8}, "data": "x", "message": {"message_id": 4, "date": 1, "chat": {"id": -5, "type": "group"}}});
        let raw = json!({"update_id": 9, "callback_query": query}).to_string();
        assert!(matches!(super::read(&raw, 9, &bot, &rules, false), Verdict::NotPressed { toast: None, .. }));
    }

    #[test]
    fn a_new_kind_of_entity_does_not_hide_the_text() {
        let message = heard(
            &json!({"text": "hi", "entities": [{"type": "hologram", "offset": 0, "length": 2}], "from": {"id": 7, "is_bot": false, "first_name": 5}}),
        );
        assert_eq!((message.text.as_str(), message.source.user_name), ("hi", None));
    }
}
