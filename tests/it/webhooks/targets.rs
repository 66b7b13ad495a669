//! Where a delivery goes: chats, logs and lists of them, with a model or without, now or later or never.

use anyhow::Result;
use serde_json::{Value, json};

use super::{quiet_world, records, route, states};
use crate::support::fake_telegram::Fault;
use crate::support::world::{World, run_test};

fn direct(name: &str, fields: &str) -> String {
    route(name, &format!("prompt: 'D {{m}}', deliver_only: true, {fields}"))
}

#[tokio::test]
async fn a_text_goes_straight_to_the_chat_and_topic_the_payload_names() {
    let extra = "deliver: telegram, deliver_extra: {chat_id: '{chat}', thread_id: '{th}'}";
    let world = World::default().route(&direct("direct", extra)).route(&direct("inline", "deliver: 'telegram:{chat}'"));
    run_test(world, async |t| -> Result<()> {
        let reader = t.telegram.user(777, "Reader");
        t.telegram.open_topic(777, 42);
        let answer = t.webhooks.github("direct", "push", "d1", &json!({"m": "hey", "chat": "777", "th": 42})).await?;
        let delivered = |route: &str, id: &str| {
            (200, json!({"status": "delivered", "route": route, "target": "telegram", "delivery_id": id}))
        };
        assert_eq!(answer.parts(), delivered("direct", "d1"), "W36");
        let heard = reader.hears().await?;
        assert_eq!((heard.text.as_str(), heard.thread_id), ("D hey", Some(42)));
        let answer = t.webhooks.github("inline", "push", "d1", &json!({"m": "ho", "chat": 777})).await?;
        assert_eq!(answer.parts(), delivered("inline", "d1"));
        let heard = reader.hears().await?;
        assert_eq!((heard.text.as_str(), heard.thread_id), ("D ho", None));
        assert!(t.model.requests().is_empty());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_chat_that_cannot_be_filled_in_is_an_error_and_never_another_chat() {
    let world = World::default()
        .env("TELEGRAM_HOME_CHANNEL", "7")
        .route(&direct("direct", "deliver: telegram, deliver_extra: {chat_id: '{chat}'}"))
        .route(&route("agent", "prompt: x, deliver: 'telegram:{chat}'"));
    run_test(world, async |t| -> Result<()> {
        t.expect_error("A webhook's target could not be filled in.");
        let bad = [
            json!({}),
            json!({"chat": null}),
            json!({"chat": ""}),
            json!({"chat": {"id": 7}}),
            json!({"chat": "{chat}"}),
            json!({"chat": "7 8"}),
            json!({"chat": true}),
        ];
        for (n, event) in bad.iter().enumerate() {
            for route in ["direct", "agent"] {
                let answer = t.webhooks.github(route, "push", &n.to_string(), event).await?;
                assert_eq!(answer.status, 422, "{event}: {}", answer.text);
            }
        }
        assert!(t.telegram.calls_of("sendMessage").is_empty() && t.model.requests().is_empty());
        // It was not stored, so it may come again when the sender is repaired.
        assert_eq!(t.webhooks.github("direct", "push", "0", &json!({"chat": 7, "m": "now"})).await?.status, 200);
        assert_eq!(t.telegram.alice().hears().await?.text, "D now");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_explicit_chat_is_never_replaced_by_the_home_channel() {
    let world = World::default()
        .env("TELEGRAM_HOME_CHANNEL", "7")
        .route(&direct("direct", "deliver: 'telegram:999'"))
        .route(&route("agent", "prompt: x, deliver: 'telegram:999'"))
        .route(&direct("home", "deliver: telegram"));
    run_test(world, async |t| -> Result<()> {
        t.expect_error("chat_id=999");
        t.model.says("For nobody.");
        let event = json!({"m": "hey", "chat_id": 7, "deliver": "telegram:7", "deliver_extra": {"chat_id": 7}});
        let refused = t.webhooks.github("direct", "push", "d1", &event).await?;
        assert_eq!(refused.parts(), (502, json!({"status": "error", "error": "Delivery failed", "delivery_id": "d1"})));
        assert_eq!(t.webhooks.github("agent", "push", "d1", &event).await?.status, 202);
        t.model.is_asked(1).await;
        t.idle().await?;
        for route in ["direct", "agent"] {
            let record = records(t, route).await?.remove(0);
            assert_eq!((record.state.as_str(), record.target.as_str()), ("failed", "telegram:999"));
            assert!(record.error.unwrap().contains("chat not found"), "the reason is in the record");
        }
        assert!(
            t.log.errors().iter().all(|line| line.contains("chat not found") && line.contains("platform=telegram"))
        );
        assert_eq!(t.webhooks.github("home", "push", "d1", &event).await?.status, 200);
        assert_eq!(t.telegram.alice().hears().await?.text, "D hey", "a bare `telegram` is the home channel");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_delivered_yet_is_queued_and_arrives_later() {
    let world = World::default().webhook("deliver_wait: 0.2").route(&direct("direct", "deliver: 'telegram:7'"));
    run_test(world, async |t| -> Result<()> {
        t.telegram.fail("sendMessage", [Fault::RetryAfter(1)]);
        let answer = t.webhooks.github("direct", "push", "d1", &json!({"m": "later"})).await?;
        let queued = json!({"status": "queued", "route": "direct", "target": "telegram", "delivery_id": "d1"});
        assert_eq!(answer.parts(), (202, queued));
        assert_eq!(states(t, "direct").await?, ["accepted"]);
        assert_eq!(
            t.webhooks.github("direct", "push", "d1", &json!({"m": "later"})).await?.parts().1["status"],
            "duplicate"
        );
        assert_eq!(t.telegram.alice().hears().await?.text, "D later");
        t.idle().await?;
        assert_eq!(states(t, "direct").await?, ["delivered"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_queued_survives_a_restart() {
    let world = || {
        World::default()
            .webhook("deliver_wait: 0.1")
            .setting("drain_timeout: 0")
            .route(&direct("direct", "deliver: 'telegram:7'"))
    };
    run_test(world(), async |t| -> Result<()> {
        t.telegram.keep_failing("sendMessage", Fault::DropBefore);
        assert_eq!(t.webhooks.github("direct", "push", "d1", &json!({"m": "later"})).await?.status, 202);
        t.stop().await?;
        t.telegram.heal("sendMessage");
        t.live_again(world()).await?;
        let heard = t.telegram.alice().hears().await?;
        assert_eq!(heard.text.trim_start_matches("↻ "), "D later");
        t.idle().await?;
        assert_eq!(states(t, "direct").await?, ["delivered"]);
        assert_eq!(
            t.webhooks.github("direct", "push", "d1", &json!({"m": "later"})).await?.parts().1["status"],
            "duplicate"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_log_is_a_target_with_a_model_and_without() {
    let world = World::default()
        .route(&direct("direct", "deliver: log"))
        .route(&route("bare", "prompt: '{m}', deliver_only: true"))
        .route(&route("agent", "prompt: '{m}', deliver: log"));
    run_test(world, async |t| -> Result<()> {
        let delivered =
            |route: &str| (200, json!({"status": "delivered", "route": route, "target": "log", "delivery_id": "d1"}));
        assert_eq!(
            t.webhooks.github("direct", "push", "d1", &json!({"m": "to the log"})).await?.parts(),
            delivered("direct"),
            "W42"
        );
        assert_eq!(
            t.webhooks.github("bare", "push", "d1", &json!({"m": ""})).await?.parts(),
            delivered("bare"),
            "blank is nothing"
        );
        t.model.says("The answer for the log.");
        assert_eq!(t.webhooks.github("agent", "push", "d1", &json!({"m": "?"})).await?.status, 202);
        t.model.is_asked(1).await;
        t.idle().await?;
        assert!(t.log.text().contains("D to the log") && t.log.text().contains("The answer for the log."));
        for route in ["direct", "bare", "agent"] {
            assert_eq!(states(t, route).await?, ["delivered"]);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn one_answer_reaches_every_target_of_a_list() {
    let world = World::default()
        .route(&route(
            "agent",
            "prompt: '{m}', deliver: ['telegram:7', log, local, 'local:ops', 'telegram:8', 'telegram:7']",
        ))
        .route(&direct("direct", "deliver: [telegram, log, 'local:ops'], deliver_extra: {chat_id: 8}"));
    run_test(world, async |t| -> Result<()> {
        let bob = t.telegram.user(8, "Bob");
        t.model.says("To all of you.");
        assert_eq!(t.webhooks.github("agent", "push", "d1", &json!({"m": "?"})).await?.status, 202);
        for listener in [t.telegram.alice(), bob.clone()] {
            let heard = listener.hears().await?;
            assert_eq!((heard.text.as_str(), heard.reply_to), ("To all of you.", None));
        }
        for chat in ["console", "ops"] {
            assert_eq!(t.local.hears(chat, 1).await?, ["To all of you."], "a page that is opened later shows it");
        }
        let answer = t.webhooks.github("direct", "push", "d1", &json!({"m": "all"})).await?;
        let expected =
            json!({"status": "delivered", "route": "direct", "target": "telegram,log,local", "delivery_id": "d1"});
        assert_eq!(answer.parts(), (200, expected));
        assert_eq!(bob.hears().await?.text, "D all");
        assert_eq!(t.local.hears("ops", 2).await?[1], "D all");
        t.idle().await?;
        assert_eq!(t.model.requests().len(), 1);
        assert_eq!(states(t, "agent").await?, ["delivered"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_retry_says_it_only_to_the_targets_that_were_not_reached() {
    let world = World::default().route(&direct("list", "deliver: ['telegram:7', 'telegram:999', 'local:ops']"));
    run_test(world, async |t| -> Result<()> {
        t.expect_error("could not be delivered");
        let post = async || t.webhooks.github("list", "push", "d1", &json!({"m": "news"})).await;
        assert_eq!(post().await?.status, 502, "nobody is 999");
        assert_eq!(t.telegram.alice().hears().await?.text, "D news");
        t.idle().await?;
        let ninth = t.telegram.user(999, "Now there");
        assert_eq!(post().await?.status, 200);
        assert_eq!(ninth.hears().await?.text, "D news");
        t.idle().await?;
        assert_eq!(t.local.hears("ops", 1).await?, ["D news"], "once, as Alice was told once");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_default_route_of_a_local_world_answers_in_the_page() {
    run_test(quiet_world(&[route("page", "prompt: '{m}', deliver: local")]).echo(), async |t| -> Result<()> {
        assert_eq!(t.webhooks.github("page", "push", "d1", &json!({"m": "hello"})).await?.status, 202);
        assert_eq!(t.local.hears("console", 1).await?, ["hello"], "the echo repeats the text without the fence");
        t.local.says("console", "m1", "/status").await?;
        assert_eq!(t.local.hears("console", 2).await?.len(), 2);
        let lines: Vec<Value> = t.local.lines("console").await?.into_iter().map(|(role, _)| json!(role)).collect();
        assert_eq!(lines.first(), Some(&json!("assistant")));
        Ok(())
    })
    .await;
}
