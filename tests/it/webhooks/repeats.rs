//! A delivery is run once: over repeats, at the same moment, over a restart. One that failed may come again.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{mac, quiet_world, records, route, states};
use crate::support::fake_telegram::Fault;
use crate::support::world::{SECRET, World, run_test};

fn opened() -> Value {
    json!({"action": "opened", "issue": {"number": 1, "title": "One"}})
}

#[tokio::test]
async fn an_id_is_known_after_a_restart() {
    run_test(World::default(), async |t| -> Result<()> {
        t.model.says("Once.");
        assert_eq!(t.webhooks.github("github", "issues", "d1", &opened()).await?.status, 202);
        assert_eq!(t.telegram.alice().hears().await?.text, "Once.");
        let duplicate = (200, json!({"status": "duplicate", "delivery_id": "d1"}));
        assert_eq!(t.webhooks.github("github", "issues", "d1", &opened()).await?.parts(), duplicate);
        assert!(t.log.text().contains("d1"), "a suppressed duplicate can be seen in the log");
        t.live_again(World::default()).await?;
        assert_eq!(t.webhooks.github("github", "issues", "d1", &opened()).await?.parts(), duplicate, "W44");
        let mut other = opened();
        other["issue"]["number"] = json!(2);
        let conflict = t.webhooks.github("github", "issues", "d1", &other).await?;
        let expected = json!({"error": "Delivery id reused with another body", "delivery_id": "d1"});
        assert_eq!(conflict.parts(), (409, expected));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_repeat_is_not_delivered_to_the_log_again() {
    let world = quiet_world(&[route("plain", "prompt: '{m}', deliver: log, deliver_only: true")]);
    run_test(world, async |t| {
        for status in ["delivered", "duplicate"] {
            let answer = t.webhooks.github("plain", "push", "d1", &json!({"m": "seen once"})).await?;
            assert_eq!(answer.json::<Value>()?["status"], status);
        }
        assert_eq!(t.log.text().matches("seen once").count(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn twenty_at_the_same_moment_are_one() {
    run_test(World::default(), async |t| -> Result<()> {
        t.model.says("Once.");
        let event = opened();
        let posts = (0..20).map(|_| t.webhooks.github("github", "issues", "d1", &event));
        let mut statuses = Vec::new();
        for answer in join_all(posts).await {
            statuses.push(answer?.status);
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [vec![200; 19], vec![202]].concat());
        assert_eq!(t.telegram.alice().hears().await?.text, "Once.");
        t.idle().await?;
        assert_eq!(t.model.requests().len(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn without_an_id_the_body_is_the_id() {
    let world = quiet_world(&[route("plain", "prompt: x, deliver: log, deliver_only: true")]);
    run_test(world, async |t| -> Result<()> {
        let bodies: Vec<String> = (0..10).map(|n| format!("[{n}]")).collect();
        let posts = bodies.iter().map(|body| t.webhooks.signed("plain", &[], body.as_str()));
        for answer in join_all(posts).await {
            assert_eq!(answer?.parts().1["status"], "delivered", "different bodies at one moment are different");
        }
        for body in bodies {
            assert_eq!(t.webhooks.signed("plain", &[], body).await?.parts().1["status"], "duplicate");
        }
        let formatted = t.webhooks.signed("plain", &[], "[1 ]").await?;
        assert_eq!(formatted.parts().1["status"], "delivered", "the bytes count, not what they mean");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_id_that_a_provider_signs_is_the_id() {
    let world = quiet_world(&[route("plain", "prompt: x, deliver: log, deliver_only: true")]);
    run_test(world, async |t| -> Result<()> {
        let now = i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs())?;
        let event = r#"{"id":"evt_1","type":"invoice.paid"}"#;
        for (prefix, id) in [("svix", "msg_1"), ("webhook", "msg_2")] {
            for (seconds, status) in [(now, "delivered"), (now - 60, "duplicate")] {
                let time = seconds.to_string();
                let signature = STANDARD.encode(mac(SECRET, &format!("{id}.{time}.{event}")));
                let signatures = format!("v1,AAAA v1,{signature}");
                let names = ["id", "timestamp", "signature"].map(|part| format!("{prefix}-{part}"));
                let headers =
                    [(names[0].as_str(), id), (names[1].as_str(), &time), (names[2].as_str(), signatures.as_str())];
                let unsigned = [&headers[..], &[("x-request-id", time.as_str())]].concat();
                let answer = t.webhooks.post("plain", &unsigned, event).await?;
                assert_eq!(
                    (&answer.parts().1["status"], &answer.parts().1["delivery_id"]),
                    (&json!(status), &json!(id))
                );
            }
        }
        for (seconds, status) in [(now, "delivered"), (now - 60, "duplicate")] {
            let signature = format!("t={seconds},v1={}", hex::encode(mac(SECRET, &format!("{seconds}.{event}"))));
            let answer = t.webhooks.post("plain", &[("stripe-signature", &signature)], event).await?;
            let parts = answer.parts();
            assert_eq!((&parts.1["status"], &parts.1["delivery_id"]), (&json!(status), &json!("evt_1")), "signed anew");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_delivery_that_is_given_up_has_failed_and_may_be_sent_again() {
    use sqlx::Connection as _;
    let world = || {
        let log = route("log", "prompt: x, deliver: log");
        World::default().setting("drain_timeout: 0").route(&log)
    };
    run_test(world(), async |t| -> Result<()> {
        t.model.hangs().hangs();
        for route in ["github", "log"] {
            assert_eq!(t.webhooks.github(route, "issues", "d1", &opened()).await?.status, 202);
        }
        t.model.is_asked(2).await;
        t.stop().await?;
        let url = format!("sqlite:{}", t.file("hookgate.db").display());
        let mut store = sqlx::SqliteConnection::connect(&url).await?;
        assert_eq!(sqlx::query("update inbox set attempts = 5").execute(&mut store).await?.rows_affected(), 2);
        store.close().await?;

        t.live_again(world()).await?;
        assert!(t.telegram.alice().hears().await?.text.contains("could not be answered"));
        t.idle().await?;
        for route in ["github", "log"] {
            assert_eq!(states(t, route).await?, ["failed"], "{route}");
        }
        t.model.says("Now.");
        assert_eq!(t.webhooks.github("github", "issues", "d1", &opened()).await?.status, 202);
        assert_eq!(t.telegram.alice().hears().await?.text, "Now.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_ignored_delivery_is_remembered_too() {
    let world = quiet_world(&[route("ev", "events: [push], prompt: x, deliver_only: true")]);
    run_test(world, async |t| -> Result<()> {
        let event = json!({"n": 1});
        assert_eq!(t.webhooks.github("ev", "ping", "d1", &event).await?.parts().1["status"], "ignored");
        assert_eq!(t.webhooks.github("ev", "ping", "d1", &event).await?.parts().1["status"], "duplicate");
        assert_eq!(t.webhooks.github("ev", "push", "d1", &event).await?.parts().1["status"], "duplicate");
        assert_eq!(t.webhooks.github("ev", "push", "d1", &json!({"n": 2})).await?.status, 409);
        assert_eq!(states(t, "ev").await?, ["ignored"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_replay_guard_knows_a_body_under_any_id() {
    let fields = "prompt: x, deliver_only: true, events: [push]";
    let world = quiet_world(&[route("guarded", &format!("{fields}, replay_guard: body")), route("open", fields)]);
    run_test(world, async |t| -> Result<()> {
        let event = json!({"n": 1});
        for (route, second) in [("guarded", 409), ("open", 200)] {
            assert_eq!(t.webhooks.github(route, "push", "d1", &event).await?.parts().1["status"], "delivered");
            let replayed = t.webhooks.github(route, "push", "d2", &event).await?;
            assert_eq!(replayed.status, second, "{route}: {}", replayed.text);
            if second == 409 {
                let why = "Body seen before under another delivery id";
                assert_eq!(replayed.parts().1, json!({"error": why, "delivery_id": "d2"}));
            }
            assert_eq!(t.webhooks.github(route, "push", "d1", &event).await?.parts().1["status"], "duplicate");
            assert_eq!(t.webhooks.github(route, "push", "d3", &json!({"n": 2})).await?.status, 200);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_delivery_that_failed_may_be_sent_again() {
    let world = World::default().route(&route("direct", "prompt: '{m}', deliver: 'telegram:7', deliver_only: true"));
    run_test(world, async |t| -> Result<()> {
        t.expect_error("A reply could not be delivered.");
        let event = json!({"m": "hey"});
        t.telegram.fail("sendMessage", [Fault::Refuse(403, "Forbidden: bot was blocked by the user".into())]);
        let failed = t.webhooks.github("direct", "push", "d1", &event).await?;
        let expected = json!({"status": "error", "error": "Delivery failed", "delivery_id": "d1"});
        assert_eq!(failed.parts(), (502, expected), "W37");
        assert_eq!(t.webhooks.github("direct", "push", "d1", &json!({"m": "other"})).await?.status, 409);
        let again = t.webhooks.github("direct", "push", "d1", &event).await?;
        assert_eq!(again.parts().1["status"], "delivered", "W38");
        assert_eq!(t.telegram.alice().hears().await?.text, "hey");
        let third = t.webhooks.github("direct", "push", "d1", &event).await?;
        assert_eq!(third.parts().1["status"], "duplicate");
        assert_eq!(states(t, "direct").await?, ["delivered"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_failed_may_be_sent_again() {
    run_test(World::default(), async |t| -> Result<()> {
        t.expect_error("A turn failed.");
        t.model.fails(400, &[], "{}");
        assert_eq!(t.webhooks.github("github", "issues", "d1", &opened()).await?.status, 202);
        let told = t.telegram.alice().hears().await?;
        assert_ne!(told.text, "", "the chat is told that there is no answer");
        t.idle().await?;
        let record = records(t, "github").await?.remove(0);
        assert_eq!((record.state.as_str(), record.error.is_some()), ("failed", true));
        t.model.says("Now.");
        assert_eq!(t.webhooks.github("github", "issues", "d1", &opened()).await?.status, 202);
        assert_eq!(t.telegram.alice().hears().await?.text, "Now.");
        t.idle().await?;
        assert_eq!(states(t, "github").await?, ["delivered"]);
        assert_eq!(t.webhooks.github("github", "issues", "d1", &opened()).await?.parts().1["status"], "duplicate");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_repeat_is_known_also_where_its_template_no_longer_fits() {
    let fields = |prompt: &str| route("strict", &format!("prompt: '{prompt}', missing: error, deliver_only: true"));
    run_test(quiet_world(&[fields("{a}")]), async |t| -> Result<()> {
        let event = json!({"a": 1});
        assert_eq!(t.webhooks.github("strict", "push", "d1", &event).await?.status, 200);
        assert_eq!(t.webhooks.github("strict", "push", "d1", &json!({"b": 1})).await?.status, 409);
        t.live_again(quiet_world(&[fields("{b}")])).await?;
        assert_eq!(t.webhooks.github("strict", "push", "d1", &event).await?.parts().1["status"], "duplicate");
        Ok(())
    })
    .await;
}
