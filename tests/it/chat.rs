//! Conversations in a Telegram chat.

use anyhow::Result;
use insta::assert_snapshot;
use serde_json::json;

use crate::support::world::{World, run_test};

#[tokio::test]
async fn a_message_gets_its_answer_anchored_to_it_and_nothing_else() {
    run_test(World::default(), async |t| {
        t.model.says("Hello Alice.");
        let said = t.telegram.alice().says("Hi");
        let heard = t.telegram.alice().hears().await?;
        assert_snapshot!(heard, @"Hello Alice.");
        assert_eq!(heard.reply_to, Some(said.message_id));
        assert_eq!(t.model.was_told_last(), "Hi");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn strangers_see_nothing_at_all() {
    run_test(World::default(), async |t| {
        for text in ["hello", "/start", "/help", "/nosuch"] {
            t.telegram.mallory().says(text);
        }
        t.telegram.mallory().sends(serde_json::json!({ "photo": [] }));
        t.idle().await?;
        assert!(t.model.requests().is_empty());
        assert_eq!(t.telegram.typing_count(66), 0);
        assert!(t.log.text().contains("TELEGRAM_ALLOWED_USERS"), "the log says how to let them in");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn ten_messages_to_a_busy_chat_get_ten_answers_in_order() {
    run_test(World::default(), async |t| {
        t.model.holds("answer 0");
        for n in 1..10 {
            t.model.says(&format!("answer {n}"));
        }
        let mut said = Vec::new();
        for n in 0..10 {
            said.push(t.telegram.alice().says(&format!("question {n}")));
        }
        t.model.is_asked(1).await;
        t.model.release();
        for (n, said) in said.iter().enumerate() {
            let heard = t.telegram.alice().hears().await?;
            assert_eq!(heard.text, format!("answer {n}"));
            assert_eq!(heard.reply_to, Some(said.message_id));
        }
        let told: Vec<String> = t.model.was_told();
        assert_eq!(told, (0..10).map(|n| format!("question {n}")).collect::<Vec<_>>());
        assert_eq!(t.model.active_max(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_model_remembers_the_conversation_until_it_is_reset() {
    run_test(World::default(), async |t| -> Result<()> {
        t.model.says("one").says("two").says("three");
        let alice = t.telegram.alice();
        alice.says("first");
        alice.hears().await?;
        alice.says("second");
        alice.hears().await?;
        assert_eq!(roles(&t.model.requests().last().unwrap().body), ["system", "user", "assistant", "user"]);
        alice.says("/new");
        assert_snapshot!(alice.hears().await?, @"A new session has begun.");
        alice.says("third");
        alice.hears().await?;
        assert_eq!(roles(&t.model.requests().last().unwrap().body), ["system", "user"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn fifty_chats_do_not_wait_for_a_slow_one_and_share_the_turns_there_are() {
    let world = World::default().model_echoes().env("TELEGRAM_ALLOW_ALL_USERS", "true").setting("limits: {turns: 4}");
    run_test(world, async |t| {
        for _ in 0..4 {
            t.model.holds("slow");
        }
        let people: Vec<_> = (0..50).map(|n| t.telegram.user(1000 + n, "Somebody")).collect();
        let said: Vec<_> = people.iter().enumerate().map(|(n, person)| person.says(&format!("question {n}"))).collect();
        t.model.is_asked(4).await;
        (0..3).for_each(|_| t.model.release());
        t.telegram.wait_until("all but the slowest are answered", |telegram| telegram.sent().len() == 49).await?;
        t.model.release();
        let mut slow = 0;
        for (n, person) in people.iter().enumerate() {
            let heard = person.hears().await?;
            assert_eq!(heard.reply_to, Some(said[n].message_id));
            if heard.text == "slow" {
                slow += 1;
            } else {
                assert_eq!(heard.text, format!("echo: question {n}"));
            }
        }
        assert_eq!((slow, t.model.active_max()), (4, 4));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn beyond_the_limit_a_waiting_message_is_refused_with_an_answer_and_the_rest_keep_their_order() {
    run_test(World::default().setting("limits: {waiting_per_chat: 2}"), async |t| {
        t.model.holds("answer 0").says("answer 1").says("answer 2");
        let alice = t.telegram.alice();
        let said: Vec<_> = (0..5).map(|n| alice.says(&format!("question {n}"))).collect();
        for refused in &said[3..] {
            let heard = alice.hears().await?;
            let refusal =
                "2 messages wait for an answer here already; this one was not taken. Please send it again later.";
            assert_eq!(heard.text, refusal);
            assert_eq!(heard.reply_to, Some(refused.message_id));
        }
        t.model.is_asked(1).await;
        t.model.release();
        for (n, said) in said[..3].iter().enumerate() {
            let heard = alice.hears().await?;
            assert_eq!((heard.text, heard.reply_to), (format!("answer {n}"), Some(said.message_id)));
        }
        assert_eq!(t.model.was_told(), ["question 0", "question 1", "question 2"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_model_that_fails_is_told_in_one_sentence_and_the_next_message_works() {
    run_test(World::default(), async |t| {
        t.expect_error("A turn failed.");
        let alice = t.telegram.alice();
        t.model.fails(400, &[], r#"{"error": {"message": "no such model"}}"#);
        let said = alice.says("first");
        let heard = alice.hears().await?;
        assert_eq!(heard.reply_to, Some(said.message_id));
        assert!(!heard.text.contains("no such model") && heard.text.lines().count() == 1, "{heard}");
        // A server that is down is tried four times in all.
        for _ in 0..4 {
            t.model.fails(503, &[("retry-after", "0")], "down for maintenance");
        }
        alice.says("second");
        let heard = alice.hears().await?;
        assert!(heard.text.lines().count() == 1 && heard.text.contains("model"), "{heard}");
        t.model.says("Here I am.");
        alice.says("third");
        assert_snapshot!(alice.hears().await?, @"Here I am.");
        // The fake refuses a history that does not alternate; what was asked in vain is not lost.
        let asked = t.model.requests().pop().unwrap().body.to_string();
        assert!(asked.contains("first") && asked.contains("second"), "{asked}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_silent_answer_is_remembered_and_not_sent() {
    run_test(World::default(), async |t| {
        t.model.says("[SILENT]").says("Yes?");
        let alice = t.telegram.alice();
        alice.says("psst");
        t.idle().await?;
        assert!(t.telegram.sent().is_empty());
        alice.says("still there?");
        assert_snapshot!(alice.hears().await?, @"Yes?");
        assert_eq!(roles(&t.model.requests().pop().unwrap().body), ["system", "user", "assistant", "user"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn only_new_messages_with_something_to_read_are_answered() {
    run_test(World::default(), async |t| {
        let alice = t.telegram.alice();
        t.model.says("A cat.");
        alice.sends(json!({ "photo": [{ "file_id": "x" }], "caption": "what is this?" }));
        assert_snapshot!(alice.hears().await?, @"A cat.");
        assert_eq!(t.model.was_told_last(), "[Attached, and not readable here: photo]\nwhat is this?");
        let said = alice.sends(json!({ "voice": { "file_id": "x" } }));
        let heard = alice.hears().await?;
        assert_snapshot!(heard, @"I can only read text so far. Please write what it is about.");
        assert_eq!(heard.reply_to, Some(said.message_id));
        for text in ["what is that?", "/new", "/stop"] {
            let edited = json!({
                "message_id": said.message_id, "date": 1, "edit_date": 2, "text": text,
                "chat": { "id": 7, "type": "private" }, "from": { "id": 7, "is_bot": false, "first_name": "Alice" },
            });
            t.telegram.push_update("edited_message", &edited);
        }
        t.idle().await?;
        assert_eq!(t.model.requests().len(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_message_that_comes_twice_is_answered_once() {
    run_test(World::default(), async |t| {
        t.model.says("Hello.");
        let said = t.telegram.alice().says("Hi");
        assert_snapshot!(t.telegram.alice().hears().await?, @"Hello.");
        t.telegram.push_again(said.update_id);
        t.idle().await?;
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        assert_eq!((&sessions[0]["key"], &sessions[0]["messages"]), (&json!("agent:main:telegram:dm:7"), &json!(2)));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn pieces_of_one_long_text_are_one_question_and_other_messages_are_not() {
    run_test(World::default(), async |t| {
        let alice = t.telegram.alice();
        for (pieces, whole) in [
            (
                vec!["a".repeat(4096), "b".repeat(4096), "the end".to_owned()],
                "a".repeat(4096) + &"b".repeat(4096) + "the end",
            ),
            (vec!["c ".repeat(2040), "and so on".to_owned()], "c ".repeat(2040) + "\nand so on"),
        ] {
            t.model.says("Read.").says("Next.");
            let said: Vec<_> = pieces.iter().map(|piece| alice.says(piece)).collect();
            alice.says("another question");
            let heard = alice.hears().await?;
            assert_eq!((heard.text.as_str(), heard.reply_to), ("Read.", Some(said[0].message_id)));
            assert_eq!(alice.hears().await?.text, "Next.");
            let asked = t.model.requests();
            let last = asked[asked.len() - 2].body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
            assert_eq!(last, whole);
        }
        // A command, a picture and somebody else's words are none.
        t.model.says("Alone.").says("A picture.");
        alice.says(&"d".repeat(4096));
        alice.sends(json!({"photo": [], "caption": "look"}));
        alice.says("/status");
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(alice.hears().await?.text);
        }
        heard.retain(|text| !text.starts_with("session:"));
        assert_eq!(heard, ["Alone.", "A picture."]);
        t.idle().await?;
        let status = t.cli(&["gateway", "status", "--json"]).await?.ok()?.json()?;
        assert_eq!(status["queues"].to_string(), r#"{"waiting":0,"running":0}"#);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_said_after_a_command_is_no_piece_of_what_came_before_it() {
    for command in ["/stop", "/new", "/status"] {
        run_test(World::default(), async |t| {
            let alice = t.telegram.alice();
            let others = if command == "/status" { 1 } else { 0 };
            for _ in 0..others {
                t.model.says("The long one.");
            }
            t.model.says("Hello.");
            alice.says(&"p".repeat(4001));
            alice.says(command);
            alice.says("hello");
            let mut heard = Vec::new();
            for _ in 0..2 + others {
                heard.push(alice.hears().await?.text);
            }
            assert!(heard.contains(&"Hello.".to_owned()), "{command}: {heard:?}");
            let told = t.model.was_told_last();
            assert!(told.ends_with("hello") && (told == "hello" || command == "/stop"), "{command}: {heard:?}: {told}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_question_in_pieces_that_names_the_bot_once_is_one_in_a_group() {
    let world = World::default().model_echoes().env("TELEGRAM_REQUIRE_MENTION", "true");
    run_test(world, async |t| {
        let alice = t.telegram.user_in_group(7, "Alice", -1_000_200);
        alice.says(&format!("@hookgate_bot {}", "a".repeat(4082)));
        alice.says("and the rest");
        let said: String = (alice.hears().await?.text + &alice.hears().await?.text).replace('\n', "");
        assert_eq!(said, format!("echo: {}and the rest", "a".repeat(4082)));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn every_chat_has_a_conversation_of_its_own() {
    run_test(World::default().model_echoes().env("TELEGRAM_ALLOWED_USERS", "7, 8"), async |t| {
        let (alice, bob) = (t.telegram.alice(), t.telegram.user(8, "Bob"));
        for person in [&alice, &bob] {
            person.says("my secret is tea");
            person.hears().await?;
        }
        t.local.says("cli", "1", "hello").await?;
        t.local.hears("cli", 1).await?;
        bob.says("what did we say?");
        bob.hears().await?;
        assert_eq!(roles(&t.model.requests().pop().unwrap().body), ["system", "user", "assistant", "user"]);
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        let keys: Vec<_> =
            sessions.as_array().unwrap().iter().map(|session| session["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["agent:main:telegram:dm:8", "agent:main:local:dm:cli", "agent:main:telegram:dm:7"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_lists_work_from_the_file_too() {
    let world = World::default().model_echoes().env("TELEGRAM_ALLOWED_USERS", "").setting("allowed_users: [7]");
    run_test(world, async |t| {
        t.telegram.mallory().says("hello");
        t.telegram.alice().says("hello");
        assert_snapshot!(t.telegram.alice().hears().await?, @"echo: hello");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn each_way_of_letting_people_in_works_and_without_one_nobody_gets_in() {
    for (name, value, alice, mallory) in [
        ("TELEGRAM_ALLOWED_USERS", "", false, false),
        ("GATEWAY_ALLOWED_USERS", "7", true, false),
        ("TELEGRAM_ALLOWED_USERS", "*", true, true),
        ("GATEWAY_ALLOW_ALL_USERS", "true", true, true),
        ("TELEGRAM_ALLOW_ALL_USERS", "yes", true, true),
        // It opens what no list guards.
        ("TELEGRAM_ALLOWED_USERS", "7", true, false),
    ] {
        let everybody = if value == "7" && name.starts_with("TELEGRAM") { "true" } else { "" };
        let world = World::default()
            .model_echoes()
            .env("TELEGRAM_ALLOWED_USERS", "")
            .env("GATEWAY_ALLOW_ALL_USERS", everybody)
            .env(name, value);
        run_test(world, async |t| {
            for (person, allowed) in [(t.telegram.alice(), alice), (t.telegram.mallory(), mallory)] {
                person.says("hello");
                person.says("/help");
                if allowed {
                    person.hears().await?;
                    person.hears().await?;
                }
            }
            t.idle().await?;
            assert_eq!(t.model.requests().len(), usize::from(alice) + usize::from(mallory), "{name}={value}");
            Ok(())
        })
        .await;
    }
}

fn roles(body: &serde_json::Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap();
    messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
}
