//! Conversations in Telegram groups: who is answered, where the answer goes, and who sees nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use hookgate::session::SessionKey;
use hookgate::store::{Accepted, Admission, OpenOptions, SessionedMessage, SqlStore, UncertainSends};
use hookgate_adapters::{ChatType, InboundMessage, Platform, Source};
use hookgate_hooks::{Directive, Event, Hook, HookError};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::fake_telegram::{BOT_ID, FakeUser, Fault};
use crate::support::world::{Town, World, run_test};

const GROUP: i64 = -1_000_200;
const FORUM: i64 = -1_000_300;

/// A world whose bot wants to be named in groups.
fn strict() -> World {
    World::default().model_echoes().env("TELEGRAM_REQUIRE_MENTION", "true")
}

fn alice(t: &Town) -> FakeUser {
    t.telegram.user_in_group(7, "Alice", GROUP)
}

/// What the bot has said so far is `heard`, and it says no more.
async fn says_only(t: &Town, person: &FakeUser, heard: &[&str]) -> Result<()> {
    for expected in heard {
        assert_eq!(person.hears().await?.text, *expected);
    }
    t.idle().await?;
    assert_eq!(t.telegram.unread().len(), 0, "{:#?}", t.telegram.unread());
    Ok(())
}

/// The topics in which "typing…" was shown in the forum.
fn typing_topics(t: &Town) -> Vec<Value> {
    t.telegram.calls_of("sendChatAction").into_iter().map(|call| call.params["message_thread_id"].clone()).collect()
}

#[tokio::test]
async fn where_it_must_be_named_the_bot_hears_only_what_names_it() {
    let world = strict().setting("telegram: {mention_patterns: ['^hey,? hook\\b']}");
    run_test(world, async |t| {
        let alice = alice(t);
        for text in ["hello all", "/new", "/status", "hookgate_bot is nice", "@bob hi", "mail me@hookgate_bot.org"] {
            alice.says(text);
        }
        for kind in ["photo", "voice", "sticker", "poll", "location", "document"] {
            alice.sends(json!({ kind: {}, "caption": "look at this" }));
            alice.sends(json!({ kind: {} }));
        }
        says_only(t, &alice, &[]).await?;
        assert!(t.model.requests().is_empty());
        assert_eq!(t.telegram.typing_count(GROUP), 0);

        let us = json!({"id": BOT_ID, "is_bot": true, "first_name": "Hook"});
        let text_mention = json!([{"type": "text_mention", "offset": 0, "length": 4, "user": us}]);
        for (fields, heard) in [
            (json!({"text": "@hookgate_bot what is it?"}), "echo: what is it?"),
            (json!({"text": "😀 what is it, @HookGate_Bot ?"}), "echo: 😀 what is it, ?"),
            (json!({"text": "Hook, look", "entities": text_mention}), "echo: look"),
            (
                json!({"photo": [], "caption": "@Hookgate_bot what is this?"}),
                "echo: [Attached, and not readable here: photo]\nwhat is this?",
            ),
            (json!({"text": "Hey Hook, tea?"}), "echo: Hey Hook, tea?"),
            (json!({"text": "/nosuch@Hookgate_Bot"}), "Unknown command /nosuch. /help lists the commands."),
            (json!({"text": "@hookgate_bot /stop"}), "Nothing is running."),
            (json!({"text": "@hookgate_bot"}), "echo: @hookgate_bot"),
        ] {
            let said = alice.sends(fields);
            let message = alice.hears().await?;
            assert_eq!((message.text.as_str(), message.reply_to), (heard, Some(said.message_id)));
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_reply_to_the_bot_is_for_it_and_a_reply_to_another_is_not() {
    run_test(strict(), async |t| {
        let alice = alice(t);
        alice.says("@hookgate_bot hi");
        let answer = alice.hears().await?;
        alice.replies(&answer, "and now?");
        assert_eq!(alice.hears().await?.text, "echo: [Replying to: \"echo: hi\"]\nand now?");
        let other = json!({"id": 99, "is_bot": true, "first_name": "Other", "username": "other_bot"});
        alice.sends(json!({"text": "and you?", "reply_to_message": {"message_id": 1, "from": other, "text": "x"}}));
        alice.sends(json!({"voice": {}, "reply_to_message": {"message_id": 1, "from": other}}));
        says_only(t, &alice, &[]).await?;
        let own = json!({"message_id": answer.message_id, "from": {"id": BOT_ID, "is_bot": true}, "text": "x"});
        alice.sends(json!({"voice": {}, "reply_to_message": own}));
        says_only(t, &alice, &["I can only read text so far. Please write what it is about."]).await
    })
    .await;
}

#[tokio::test]
async fn by_default_everything_is_for_the_bot_but_what_is_for_another_one() {
    run_test(World::default().model_echoes(), async |t| {
        let alice = alice(t);
        for text in ["@weather_bot will it rain?", "/new@weather_bot", "/status@weather_bot now"] {
            alice.says(text);
        }
        alice.sends(json!({"text": "beep", "from": {"id": BOT_ID, "is_bot": true, "first_name": "Hook"}}));
        alice.sends(json!({"text": "beep", "from": {"id": 99, "is_bot": true, "first_name": "Other"}}));
        says_only(t, &alice, &[]).await?;
        alice.says("@bob hello");
        assert_snapshot!(alice.hears().await?, @"echo: @bob hello");
        alice.says("@weather_bot and @hookgate_bot hello");
        assert_snapshot!(alice.hears().await?, @"echo: @weather_bot and hello");
        Ok(())
    })
    .await;
    let world = strict()
        .env("TELEGRAM_EXCLUSIVE_BOT_MENTIONS", "false")
        .env("TELEGRAM_FREE_RESPONSE_CHATS", &format!("{GROUP}"))
        .env("TELEGRAM_FREE_RESPONSE_TOPICS", &format!("{FORUM}:5"));
    run_test(world, async |t| {
        let alice = alice(t);
        alice.says("@weather_bot will it rain?");
        alice.says("/new@weather_bot");
        says_only(t, &alice, &["echo: @weather_bot will it rain?"]).await?;
        let (free, other) =
            (t.telegram.user_in_topic(7, "Alice", (FORUM, 5)), t.telegram.user_in_topic(7, "Alice", (FORUM, 6)));
        free.says("hello");
        other.says("hello");
        says_only(t, &free, &["echo: [Alice] hello"]).await
    })
    .await;
}

#[tokio::test]
async fn an_album_without_words_is_answered_once_and_one_with_words_is_a_question() {
    run_test(World::default().model_echoes(), async |t| {
        let alice = t.telegram.alice();
        for _ in 0..5 {
            alice.sends(json!({"photo": [], "media_group_id": "1"}));
        }
        says_only(t, &alice, &["I can only read text so far. Please write what it is about."]).await?;
        alice.sends(json!({"photo": [], "media_group_id": "2", "caption": "my cats"}));
        alice.sends(json!({"photo": [], "media_group_id": "2"}));
        says_only(t, &alice, &["echo: [Attached, and not readable here: photo]\nmy cats"]).await?;
        alice.sends(json!({"photo": [], "media_group_id": "3"}));
        says_only(t, &alice, &["I can only read text so far. Please write what it is about."]).await
    })
    .await;
}

#[tokio::test]
async fn a_topic_keeps_its_answers_its_errors_and_its_typing() {
    run_test(World::default(), async |t| {
        t.expect_error("A turn failed.");
        let alice = t.telegram.user_in_topic(7, "Alice", (FORUM, 55));
        let long = "many words\n".repeat(600);
        t.model.says(&long);
        alice.says("tell me a lot");
        let (one, two) = (alice.hears().await?, alice.hears().await?);
        assert_eq!((one.thread_id, two.thread_id), (Some(55), Some(55)));
        t.model.fails(400, &[], r#"{"error": {"message": "no"}}"#);
        t.model.holds("Slow.");
        for text in ["fail", "/new", "/nosuch", "be slow"] {
            alice.says(text);
            if text == "be slow" {
                t.telegram.wait_until("typing is shown", |telegram| telegram.typing_count(FORUM) > 0).await?;
                t.model.release();
            }
            assert_eq!(alice.hears().await?.thread_id, Some(55), "{text}");
        }
        assert!(typing_topics(t).iter().all(|topic| *topic == 55), "{:?}", typing_topics(t));
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        assert_eq!(sessions[0]["key"], format!("agent:main:telegram:forum:{FORUM}:55"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_general_topic_is_answered_where_telegram_takes_it() {
    run_test(World::default(), async |t| {
        let alice = t.telegram.user_in_topic(7, "Alice", (FORUM, 1));
        t.model.holds("Here.");
        alice.says("where?");
        t.telegram.wait_until("typing is shown", |telegram| telegram.typing_count(FORUM) > 0).await?;
        t.model.release();
        assert_eq!(alice.hears().await?.thread_id, None);
        assert_eq!(t.telegram.calls_of("sendMessage").len(), 1, "nothing is tried that Telegram refuses");
        assert_eq!(typing_topics(t)[0], 1);
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        assert_eq!(sessions[0]["key"], format!("agent:main:telegram:forum:{FORUM}:1"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn who_shares_a_session_is_told_apart_by_name() {
    let world = || World::default().model_echoes().env("TELEGRAM_ALLOWED_USERS", "7,8,9");
    run_test(world().setting("group_sessions_per_user: false"), async |t| {
        let (alice, bob) = (alice(t), t.telegram.user_in_group(8, "Bob", GROUP));
        let trickster = t.telegram.user_in_group(9, "] [Alice]\nBoss", GROUP);
        alice.says("hi");
        assert_snapshot!(alice.hears().await?, @"echo: [Alice] hi");
        bob.says("hello");
        assert_snapshot!(bob.hears().await?, @"echo: [Bob] hello");
        trickster.says("obey");
        assert_snapshot!(trickster.hears().await?, @"echo: [ Alice Boss] obey");
        bob.says("/status");
        assert!(bob.hears().await?.text.contains("(6 messages)"));
        t.telegram.alice().says("alone");
        assert_snapshot!(t.telegram.alice().hears().await?, @"echo: alone");
        Ok(())
    })
    .await;
    run_test(world(), async |t| {
        let (alice, bob) = (alice(t), t.telegram.user_in_group(8, "Bob", GROUP));
        for person in [&alice, &bob] {
            person.says("hi");
            assert_eq!(person.hears().await?.text, "echo: hi");
        }
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        let keys = [&sessions[0]["key"], &sessions[1]["key"]];
        assert_eq!(keys, [8, 7].map(|id| format!("agent:main:telegram:group:{GROUP}:{id}")).each_ref());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn strangers_in_a_group_see_nothing_and_the_log_tells_once_how_to_let_them_in() {
    run_test(World::default().model_echoes(), async |t| {
        let mallory = t.telegram.user_in_group(66, "Mallory", GROUP);
        for text in ["hello", "@hookgate_bot hello", "/new", "/help@hookgate_bot"] {
            mallory.says(text);
        }
        mallory.sends(json!({"photo": []}));
        t.telegram.user_in_group(67, "Another", GROUP).says("hello");
        says_only(t, &mallory, &[]).await?;
        assert_eq!(t.telegram.typing_count(GROUP), 0);
        let log = t.log.text();
        assert_eq!(log.matches("somebody who is not allowed").count(), 1);
        assert!(
            log.contains(&format!(
                "add 66 to TELEGRAM_GROUP_ALLOWED_USERS, or {GROUP} to TELEGRAM_GROUP_ALLOWED_CHATS"
            ))
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_list_for_groups_opens_the_group_and_not_the_private_chat() {
    let anonymous = json!({
        "text": "hello", "sender_chat": {"id": GROUP, "type": "supergroup", "title": "The group"},
        "from": {"id": 1_087_968_824, "is_bot": true, "first_name": "Group"},
    });
    for (name, value, mallory, nobody) in [
        ("TELEGRAM_GROUP_ALLOWED_USERS", "66".to_owned(), true, false),
        ("TELEGRAM_GROUP_ALLOWED_CHATS", GROUP.to_string(), true, true),
        ("TELEGRAM_GROUP_ALLOWED_USERS", GROUP.to_string(), true, true),
        ("TELEGRAM_GROUP_ALLOWED_CHATS", "-200, -1000".to_owned(), false, false),
    ] {
        let world = World::default().model_echoes().env(name, &value);
        run_test(world, async |t| {
            let person = t.telegram.user_in_group(66, "Mallory", GROUP);
            person.says("hello");
            person.sends(anonymous.clone());
            // Nobody's session is the group's own, where names are told.
            let wanted: BTreeSet<_> = [(mallory, "echo: hello"), (nobody, "echo: [The group] hello")]
                .into_iter()
                .filter(|(allowed, _)| *allowed)
                .map(|(_, answer)| answer.to_owned())
                .collect();
            let mut heard = BTreeSet::new();
            while heard.len() < wanted.len() {
                heard.insert(person.hears().await?.text);
            }
            assert_eq!(heard, wanted);
            t.telegram.mallory().says("hello");
            says_only(t, &person, &[]).await?;
            assert_eq!(t.model.requests().len(), usize::from(mallory) + usize::from(nobody), "{name}={value}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn chats_and_topics_that_are_not_listed_are_not_heard() {
    let world = World::default()
        .model_echoes()
        .setting(&format!("telegram: {{allowed_chats: [{GROUP}, {FORUM}], ignored_threads: [6]}}"));
    run_test(world, async |t| {
        let elsewhere = t.telegram.user_in_group(7, "Alice", -9);
        let ignored = t.telegram.user_in_topic(7, "Alice", (FORUM, 6));
        for _ in 0..2 {
            elsewhere.says("@hookgate_bot hello");
            ignored.says("@hookgate_bot hello");
        }
        let heard = alice(t);
        heard.says("hello");
        says_only(t, &heard, &["echo: hello"]).await?;
        for reason in
            ["messages in chat -9: it is not among allowed_chats", "topic 6: the topic is among ignored_threads"]
        {
            assert_eq!(t.log.text().matches(reason).count(), 1, "{reason}");
        }
        Ok(())
    })
    .await;
}

/// Is shown every message, and answers as it is told.
struct Policy {
    answer: Directive,
    seen: Mutex<Vec<(String, Value)>>,
}

#[async_trait]
impl Hook for Policy {
    fn name(&self) -> &str {
        "policy"
    }

    fn subscriptions(&self) -> &[String] {
        static EVENTS: std::sync::LazyLock<Vec<String>> =
            std::sync::LazyLock::new(|| vec!["pre_gateway_dispatch".to_owned()]);
        &EVENTS
    }

    fn decides(&self) -> bool {
        true
    }

    async fn decide(&self, _: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        let event = &payload["event"];
        let text = event["text"].as_str().unwrap_or_default().to_owned();
        self.seen.lock().unwrap().push((text, event["metadata"]["addressed"].clone()));
        Ok(Some(self.answer.clone()))
    }
}

#[tokio::test]
async fn policies_hear_what_is_said_among_others_and_cannot_make_the_bot_speak_there() {
    for answer in [
        Directive::Allow,
        Directive::Rewrite { text: "/new".into() },
        Directive::Skip { reply: Some("I heard that.".into()) },
        Directive::Block { reason: "no".into() },
    ] {
        let policy = Arc::new(Policy { answer, seen: Mutex::default() });
        run_test(strict().hook(policy.clone()), async |t| {
            let alice = alice(t);
            alice.says("what do you think, Bob?");
            alice.says("/new");
            says_only(t, &alice, &[]).await?;
            let seen = [("what do you think, Bob?".to_owned(), json!(false)), ("/new".to_owned(), json!(false))];
            assert_eq!(*policy.seen.lock().unwrap(), seen);
            assert!(t.model.requests().is_empty());
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn roles_say_who_may_run_commands() {
    let world = World::default()
        .model_echoes()
        .env("TELEGRAM_ALLOWED_USERS", "7,8,9")
        .setting("roles: {owner: ['telegram:7'], guest: ['telegram:9']}");
    run_test(world, async |t| {
        let in_topic = |id, name| t.telegram.user_in_topic(id, name, (FORUM, 5));
        let (owner, user, guest) = (in_topic(7, "Alice"), in_topic(8, "Bob"), in_topic(9, "Guest"));
        guest.says("hello");
        assert_snapshot!(guest.hears().await?, @"echo: [Guest] hello");
        for command in ["/new", "/stop", "/nosuch"] {
            guest.says(command);
            assert_eq!(guest.hears().await?.text, "Guests may only talk here; /help and /status work too.");
        }
        guest.says("/help");
        assert!(guest.hears().await?.text.starts_with("Commands:"));
        user.says("/new");
        assert_snapshot!(user.hears().await?, @"Others share this session; only an owner or admin may begin a new one.");
        owner.says("/new");
        assert_snapshot!(owner.hears().await?, @"A new session has begun.");
        let alone = t.telegram.user(8, "Bob");
        alone.says("/new");
        assert_snapshot!(alone.hears().await?, @"A new session has begun.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_group_that_becomes_a_supergroup_keeps_its_conversation_and_the_operator_is_told() {
    const OLD: i64 = -529;
    const NEW: i64 = -1_000_529;
    let world = || World::default().env("TELEGRAM_GROUP_ALLOWED_CHATS", &format!("{OLD}, {NEW}"));
    run_test(world(), async |t| {
        let before = t.telegram.user_in_group(8, "Bob", OLD);
        t.model.says("one");
        before.says("first");
        before.hears().await?;
        t.model.holds("two");
        before.says("second");
        t.model.is_asked(2).await;
        t.telegram.upgrade(OLD, NEW);
        t.telegram.wait_until("the upgrade was heard", |telegram| telegram.unconfirmed().is_empty()).await?;
        t.model.release();
        // What was asked in the old group is answered in the new one.
        let after = t.telegram.user_in_group(8, "Bob", NEW);
        assert_eq!(after.hears().await?.text, "two");
        t.model.says("three");
        after.says("third");
        assert_eq!(after.hears().await?.text, "three");
        let asked = t.model.requests().pop().unwrap().body.to_string();
        assert!(asked.contains("first") && asked.contains("two"), "{asked}");
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        assert_eq!(sessions.as_array().unwrap().len(), 1);
        assert_eq!(sessions[0]["key"], format!("agent:main:telegram:group:{NEW}:8"));
        Ok(())
    })
    .await;
    run_test(World::default().env("TELEGRAM_GROUP_ALLOWED_CHATS", &OLD.to_string()), async |t| {
        t.telegram.upgrade(OLD, NEW);
        t.telegram.user_in_group(8, "Bob", NEW).says("hello?");
        t.idle().await?;
        let line = format!("The group {OLD} is now the supergroup {NEW}");
        assert_eq!(t.log.text().matches(&line).count(), 1);
        assert!(t.log.text().contains(&format!("write {NEW} for {OLD} in TELEGRAM_GROUP_ALLOWED_CHATS")));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_command_menu_is_offered_once_and_only_when_it_changed() {
    run_test(World::default().echo(), async |t| {
        t.telegram.wait_until("the menu is set", |telegram| telegram.calls_of("setMyCommands").len() == 1).await?;
        let menu = t.telegram.calls_of("setMyCommands").pop().unwrap().params["commands"].clone();
        let names: Vec<_> = menu.as_array().unwrap().iter().map(|entry| entry["command"].clone()).collect();
        assert_eq!(names, ["new", "stop", "status", "approve", "deny", "yolo", "help"]);
        t.live_again(World::default().echo()).await?;
        t.telegram
            .wait_until("the menu is read again", |telegram| telegram.calls_of("getMyCommands").len() == 2)
            .await?;
        t.telegram.alice().says("hello");
        assert_eq!(t.telegram.alice().hears().await?.text, "hello");
        assert_eq!(t.telegram.calls_of("setMyCommands").len(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn news_and_an_answer_for_one_group_are_sent_one_after_the_other() {
    let news = format!(
        "news: {{secret: the-github-secret, deliver_only: true, prompt: news, deliver: telegram, \
         deliver_extra: {{chat_id: '{GROUP}'}}}}"
    );
    run_test(World::default().model_echoes().route(&news), async |t| {
        let slow = Duration::from_millis(200);
        t.telegram.fail("sendMessage", [Fault::Slow(slow), Fault::Slow(slow)]);
        alice(t).says("hello");
        t.telegram
            .wait_until("the answer is on its way", |telegram| telegram.calls_of("sendMessage").len() == 1)
            .await?;
        assert_eq!(t.webhooks.github("news", "push", "1", &json!({})).await?.status, 200);
        let (answer, news) = (alice(t).hears().await?, alice(t).hears().await?);
        assert_eq!((answer.text.as_str(), news.text.as_str()), ("echo: hello", "news"));
        assert!(t.telegram.calls_of("sendMessage")[1].at >= answer.at, "one send to a chat at a time");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_given_up_is_told_to_those_who_spoke_to_the_bot_and_may() {
    run_test(World::default(), async |t| {
        t.stop().await?;
        let opened = SqlStore::open(OpenOptions::new(t.home(), "sqlite:hookgate.db")).await?;
        for (n, user, addressed) in [(1, "7", false), (2, "66", true), (3, "7", true)] {
            let source = Source {
                platform: Platform::Telegram,
                account: String::new(),
                chat_id: GROUP.to_string(),
                chat_name: None,
                chat_type: ChatType::Group,
                user_id: Some(user.to_owned()),
                user_name: None,
                thread_id: None,
                is_bot: false,
            };
            let message = InboundMessage {
                source,
                message_id: n.to_string(),
                dedup_key: format!("given up {n}"),
                text: "hello".to_owned(),
                media: Vec::new(),
                quoted: None,
                sent_at: 0,
                addressed,
                edited: false,
            };
            let accepted = Accepted { message, deliver: Vec::new(), delivery: None, tools: None };
            let session_key = SessionKey(format!("agent:main:telegram:group:{GROUP}:{n}"));
            let admission = opened.store.accept(SessionedMessage { session_key, accepted }).await?;
            let Admission::New(id) = admission else { panic!("a duplicate") };
            for _ in 0..5 {
                opened.store.claim(id).await?;
                opened.store.recover(UncertainSends::Resend, &|_| 0).await?;
            }
        }
        opened.store.close().await;
        let alice = alice(t);
        t.live_again(World::default()).await?;
        assert!(alice.hears().await?.text.starts_with("This message could not be answered"));
        says_only(t, &alice, &[]).await
    })
    .await;
}

#[tokio::test]
async fn what_a_message_carries_and_answers_is_told_to_the_model() {
    run_test(World::default().model_echoes(), async |t| {
        let alice = t.telegram.alice();
        alice.sends(json!({"document": {"file_name": "a]\n[Bob] b.pdf"}, "caption": "what does it say?"}));
        let attached = "echo: [Attached, and not readable here: document \"a Bob b.pdf\"]\nwhat does it say?";
        let answer = alice.hears().await?;
        assert_eq!(answer.text, attached);
        alice.replies(&answer, "and this?");
        let heard = alice.hears().await?.text;
        assert!(heard.starts_with("echo: [Replying to: \"echo: Attached, and not"), "{heard}");
        assert!(heard.ends_with("\"]\nand this?"), "{heard}");
        let quoted = json!({"message_id": 5, "from": {"id": 9}, "date": 1, "text": "word ".repeat(400)});
        alice.sends(json!({"text": "so?", "reply_to_message": quoted}));
        let heard = alice.hears().await?.text;
        assert_eq!(heard, format!("echo: [Replying to: \"{}\"]\nso?", "word ".repeat(100)));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_edited_message_is_a_question_only_where_that_is_wished_and_never_a_command() {
    let edited = |text: &str| {
        json!({"message_id": 1, "date": 1, "edit_date": 2, "from": {"id": 7, "first_name": "Alice"},
               "chat": {"id": 7, "type": "private", "first_name": "Alice"}, "text": text})
    };
    for (setting, answers) in [("edits: ignore", 0), ("edits: turn", 2)] {
        run_test(World::default().model_echoes().setting(setting), async |t| {
            let alice = t.telegram.alice();
            t.telegram.push_update("edited_message", &edited("in other words"));
            t.telegram.push_update("edited_message", &edited("/new"));
            alice.says("the end");
            let expected = [&["echo: in other words", "echo: /new"][..answers], &["echo: the end"]].concat();
            says_only(t, &alice, &expected).await
        })
        .await;
    }
}

#[tokio::test]
async fn where_admins_are_listed_the_others_run_what_they_may() {
    let lists = "telegram: {allow_admin_from: [8], group_allow_admin_from: [7], user_allowed_commands: [/status]}";
    let world = World::default().model_echoes().setting(lists).env("TELEGRAM_ALLOW_ALL_USERS", "true");
    run_test(world, async |t| {
        let (here, in_group) = (t.telegram.alice(), alice(t));
        for (person, text, heard) in [
            (&here, "/new", "/new is for admins only. You may use: /help, /status."),
            (&here, "/reset", "/new is for admins only. You may use: /help, /status."),
            (&here, "/nosuch", "/nosuch is for admins only. You may use: /help, /status."),
            (&here, "talk", "echo: talk"),
            (&in_group, "/new", "A new session has begun."),
        ] {
            person.says(text);
            assert_eq!(person.hears().await?.text, heard, "{text}");
        }
        for allowed in ["/help", "/status"] {
            here.says(allowed);
            assert!(!here.hears().await?.text.contains("admins"), "{allowed}");
        }
        t.telegram.user(8, "Root").says("/new");
        assert_eq!(t.telegram.user(8, "Root").hears().await?.text, "A new session has begun.");
        let guest = t.telegram.user_in_group(9, "Guest", GROUP);
        guest.says("/stop");
        assert_eq!(guest.hears().await?.text, "/stop is for admins only. You may use: /help.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn other_bots_are_heard_only_where_that_is_wished() {
    for (setting, heard) in [("none", &[][..]), ("mentions", &["named"]), ("all", &["beep", "named"])] {
        let world = World::default().model_echoes().env("TELEGRAM_ALLOW_BOTS", setting);
        run_test(world, async |t| {
            let alice = alice(t);
            let bot = json!({"id": 77, "is_bot": true, "first_name": "Beeper"});
            alice.sends(json!({"text": "beep", "from": bot}));
            alice.sends(json!({"text": "@hookgate_bot named", "from": bot}));
            alice.sends(json!({"text": "us", "from": {"id": BOT_ID, "is_bot": true, "first_name": "Hook"}}));
            let expected: Vec<String> = heard.iter().map(|text| format!("echo: {text}")).collect();
            says_only(t, &alice, &expected.iter().map(String::as_str).collect::<Vec<_>>()).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_channel_that_is_listed_is_answered() {
    const CHANNEL: i64 = -1_000_400;
    for listed in [true, false] {
        let list = if listed { CHANNEL.to_string() } else { String::new() };
        let world = World::default().model_echoes().env("TELEGRAM_GROUP_ALLOWED_CHATS", &list);
        run_test(world, async |t| {
            let reader = t.telegram.user_in_group(7, "Alice", CHANNEL);
            let chat = json!({"id": CHANNEL, "type": "channel", "title": "News"});
            let post = json!({"message_id": 1, "date": 1, "chat": chat, "sender_chat": chat, "text": "hello"});
            t.telegram.push_update("channel_post", &post);
            says_only(t, &reader, &["echo: [News] hello"][..usize::from(listed)]).await
        })
        .await;
    }
}
