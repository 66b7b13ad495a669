//! Conversations in a Telegram chat.

use anyhow::Result;
use insta::assert_snapshot;

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

fn roles(body: &serde_json::Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap();
    messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
}
