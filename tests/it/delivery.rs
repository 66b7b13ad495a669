//! From an answer to what a person reads: long answers, limits of the platform, networks that fail in every way.

use std::time::Duration;

use anyhow::Result;
use insta::assert_snapshot;

use serde_json::json;

use crate::support::fake_telegram::{BotMessage, Fault};
use crate::support::world::{Town, World, run_test};

/// Two parts on Telegram.
fn two_parts() -> String {
    format!("{}\n{}", "a".repeat(4000), "b".repeat(1000))
}

/// How each of the next parts that Alice hears begins.
async fn hears_parts(t: &Town, parts: usize) -> Result<Vec<String>> {
    let mut heard = Vec::new();
    for _ in 0..parts {
        heard.push(t.telegram.alice().hears().await?.text.chars().take(3).collect());
    }
    Ok(heard)
}

async fn hears_parts_whole(t: &Town, parts: usize) -> Result<Vec<String>> {
    let mut heard = Vec::new();
    for _ in 0..parts {
        heard.push(t.telegram.alice().hears().await?.text);
    }
    Ok(heard)
}

async fn a_long_answer(t: &Town) -> Result<(i64, Vec<BotMessage>)> {
    let text: String = (0..1800).map(|n| format!("word{n} ")).collect();
    t.model.says(&text);
    let alice = t.telegram.alice();
    let said = alice.says("tell me all");
    let mut parts = vec![alice.hears().await?];
    t.idle().await?;
    for _ in t.telegram.unread() {
        parts.push(alice.hears().await?);
    }
    let words: Vec<&str> = parts.iter().flat_map(|part| part.text.split_whitespace()).collect();
    assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
    assert!(parts.len() > 2, "{}", parts.len());
    Ok((said.message_id, parts))
}

#[tokio::test]
async fn a_long_answer_arrives_whole_and_in_order_with_the_anchors_that_are_wished() {
    for (setting, first, others) in
        [(None, true, false), (Some("first"), true, false), (Some("all"), true, true), (Some("off"), false, false)]
    {
        let world = match setting {
            Some(mode) => World::default().env("TELEGRAM_REPLY_TO_MODE", mode),
            None => World::default(),
        };
        run_test(world, async |t| {
            let (question, parts) = a_long_answer(t).await?;
            let anchors: Vec<_> = parts.iter().map(|part| part.reply_to).collect();
            let wished = |anchored: bool| anchored.then_some(question);
            assert_eq!(anchors[0], wished(first), "{setting:?}");
            assert!(anchors[1..].iter().all(|anchor| *anchor == wished(others)), "{setting:?}: {anchors:?}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn five_thousand_emoji_arrive() {
    run_test(World::default(), async |t| {
        let text = "\u{1F600}".repeat(5000);
        t.model.says(&text);
        let alice = t.telegram.alice();
        alice.says("smile");
        let mut heard = String::new();
        while heard.len() < text.len() {
            heard += &alice.hears().await?.text;
        }
        assert_eq!(heard, text);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_the_platform_asks_to_wait_is_waited_and_nobody_else_is_held_up() {
    run_test(World::default().env("TELEGRAM_ALLOWED_USERS", "7,8"), async |t| {
        t.telegram.fail("sendMessage", [Fault::RetryAfter(1)]);
        t.model.says(&two_parts()).says("quick");
        let bob = t.telegram.user(8, "Bob");
        t.telegram.alice().says("a long one");
        t.telegram
            .wait_until("the first send was refused", |telegram| !telegram.calls_of("sendMessage").is_empty())
            .await?;
        bob.says("a short one");
        let quick = bob.hears().await?;
        let (first, second) = (t.telegram.alice().hears().await?, t.telegram.alice().hears().await?);
        assert!(first.text.starts_with("aaa") && second.text.starts_with("bbb"), "{first} {second}");
        let waited = first.at - t.telegram.calls_of("sendMessage")[0].at;
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
        assert!(quick.at < first.at);
        assert_eq!(t.telegram.calls_of("sendMessage").len(), 4, "no attempt came before its time");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_was_not_sent_is_sent_again_as_if_nothing_had_been() {
    run_test(World::default(), async |t| {
        // A proxy that refuses: the service did not see it.
        t.telegram.fail("sendMessage", [Fault::Page(403)]);
        t.model.says(&two_parts());
        t.telegram.alice().says("first");
        assert_eq!(hears_parts(t, 2).await?, ["aaa", "bbb"]);
        // Nobody there at all.
        t.model.holds("here again");
        t.telegram.alice().says("second");
        t.model.is_asked(2).await;
        t.telegram.wait_until("all is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
        t.telegram.goes_away();
        t.model.release();
        t.log.shows("A reply was not sent yet; it is tried again.", 2).await?;
        t.telegram.comes_back().await;
        assert_snapshot!(t.telegram.alice().hears().await?, @"here again");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_part_that_may_have_arrived_is_repeated_once_and_marked_before_the_next() {
    for fault in [Fault::DropAfter, Fault::Garbage] {
        run_test(World::default(), async |t| {
            t.telegram.fail("sendMessage", [fault.clone()]);
            t.model.says(&two_parts());
            t.telegram.alice().says("a long one");
            assert_eq!(hears_parts(t, 3).await?, ["aaa", "\u{21bb} a", "bbb"], "{fault:?}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_repeat_that_may_have_arrived_is_not_repeated_again() {
    run_test(World::default(), async |t| {
        t.expect_error("A reply and its marked repeat may or may not have arrived.");
        t.telegram.fail("sendMessage", [Fault::DropAfter, Fault::DropAfter]);
        t.model.says(&two_parts());
        t.telegram.alice().says("a long one");
        assert_eq!(hears_parts(t, 3).await?, ["aaa", "\u{21bb} a", "bbb"]);
        t.idle().await?;
        let status = t.cli(&["gateway", "status", "--json"]).await?.ok()?.json()?;
        assert_eq!(status["outbox"].to_string(), r#"{"waiting":0,"uncertain":1,"dead":0}"#);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_one_repeat_waits_until_the_platform_answers_again() {
    let note = "note: {secret: the-github-secret, prompt: '{text}', deliver: telegram, deliver_extra: {chat_id: '7'}, deliver_only: true}";
    run_test(World::default().model_echoes().route(note), async |t| {
        for method in ["sendMessage", "getMe"] {
            t.telegram.keep_failing(method, Fault::DropBefore);
        }
        t.telegram.alice().says("hello");
        t.telegram.wait_until("it is looked for", |fake| fake.calls_of("getMe").len() >= 3).await?;
        assert_eq!(t.telegram.calls_of("sendMessage").len(), 1, "the repeat is not spent");
        for method in ["sendMessage", "getMe"] {
            t.telegram.heal(method);
        }
        assert_eq!(t.telegram.alice().hears().await?.text, "\u{21bb} echo: hello");

        // Where the repeat is lost too, the provider may send it again.
        t.expect_error("A reply and its marked repeat may or may not have arrived.");
        t.telegram.fail("sendMessage", [Fault::DropBefore, Fault::DropBefore]);
        let answer = t.webhooks.github("note", "alert", "1", &json!({"text": "once more"})).await?;
        assert_eq!(answer.parts(), (502, json!({"status": "error", "error": "Delivery failed", "delivery_id": "1"})));
        let answer = t.webhooks.github("note", "alert", "1", &json!({"text": "once more"})).await?;
        assert_eq!((answer.status, answer.parts().1["status"].clone()), (200, json!("delivered")));
        assert_eq!(t.telegram.alice().hears().await?.text, "\u{21bb} once more");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_platform_that_says_that_it_fails_is_left_alone_before_the_repeat() {
    use sqlx::Connection as _;
    run_test(World::default().model_echoes(), async |t| {
        t.telegram.fail("sendMessage", [Fault::Page(502)]);
        t.telegram.alice().says("hello");
        t.telegram.wait_until("it is tried", |fake| fake.calls_of("sendMessage").len() == 1).await?;
        let url = format!("sqlite:{}", t.file("hookgate.db").display());
        let mut other = sqlx::SqliteConnection::connect(&url).await?;
        let wait = "select not_before - first_attempt_at from outbox where marked = 1 and state = 'waiting'";
        let wait = loop {
            if let Some(wait) = sqlx::query_scalar::<_, i64>(wait).fetch_optional(&mut other).await? {
                break wait;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        };
        assert!((45_000..60_000).contains(&wait), "{wait}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_part_of_exactly_the_limit_is_one_message_and_its_repeat_two() {
    run_test(World::default(), async |t| {
        let exact = "a".repeat(4096);
        t.model.says(&exact).says(&exact);
        t.telegram.alice().says("all of it");
        assert_eq!(t.telegram.alice().hears().await?.text, exact);
        t.telegram.fail("sendMessage", [Fault::DropAfter]);
        t.telegram.alice().says("again");
        let parts = hears_parts_whole(t, 3).await?;
        assert_eq!(parts[0], exact);
        assert_eq!(format!("{}{}", parts[1], parts[2]), format!("\u{21bb} {exact}"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn on_request_what_may_have_arrived_is_held_instead() {
    run_test(World::default().setting("uncertain_sends: hold"), async |t| {
        t.expect_error("it is held (uncertain_sends: hold)");
        t.telegram.fail("sendMessage", [Fault::DropAfter]);
        t.model.says(&two_parts()).says("short");
        t.telegram.alice().says("a long one");
        assert_eq!(hears_parts(t, 1).await?, ["aaa"]);
        t.telegram.alice().says("a short one");
        assert_snapshot!(t.telegram.alice().hears().await?, @"short");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn who_blocked_the_bot_is_given_up_counted_and_holds_up_nobody() {
    run_test(World::default().env("TELEGRAM_ALLOWED_USERS", "7,8"), async |t| {
        t.expect_error("A reply could not be delivered.");
        t.model.says(&two_parts()).says("fine");
        let alice = t.telegram.alice();
        alice.blocks_the_bot();
        alice.says("bye");
        t.idle().await?;
        let bob = t.telegram.user(8, "Bob");
        bob.says("hello");
        assert_snapshot!(bob.hears().await?, @"fine");
        t.idle().await?;
        let status = t.cli(&["gateway", "status", "--json"]).await?.ok()?.json()?;
        assert_eq!(status["outbox"].to_string(), r#"{"waiting":0,"uncertain":0,"dead":2}"#);
        assert_eq!(t.telegram.calls_of("sendMessage").len(), 2, "the second part is not tried");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn typing_is_shown_while_an_allowed_person_waits_and_not_for_quick_answers() {
    run_test(World::default(), async |t| {
        let alice = t.telegram.alice();
        t.model.says("quick").holds("slow");
        alice.says("/help");
        alice.hears().await?;
        alice.says("a quick one");
        alice.hears().await?;
        assert_eq!(t.telegram.typing_count(7), 0);
        alice.says("a slow one");
        t.telegram.mallory().says("let me in");
        t.telegram.wait_until("typing is shown", |telegram| telegram.typing_count(7) == 1).await?;
        t.model.release();
        assert_snapshot!(alice.hears().await?, @"slow");
        t.idle().await?;
        assert_eq!((t.telegram.typing_count(7), t.telegram.typing_count(66)), (1, 0));
        Ok(())
    })
    .await;
}
