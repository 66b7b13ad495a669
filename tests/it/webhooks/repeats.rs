//! A delivery is run once: over repeats, at the same moment, over a restart. One that failed may come again.

use anyhow::Result;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{quiet_world, records, route, states};
use crate::support::fake_telegram::Fault;
use crate::support::world::{World, run_test};

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
