//! `webhook_subscriptions.json` while the gateway runs: every kind of change counts with the next request.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde_json::{Value, json};

use super::{quiet_world, route};
use crate::support::world::{SECRET, Town, World, run_test};

fn one(prompt: &str) -> String {
    json!({"live": {"secret": SECRET, "prompt": prompt, "deliver": "local:live", "deliver_only": true}}).to_string()
}

/// Posts to the route and tells what the chat reads, or the status.
async fn said(t: &Town) -> Result<String> {
    let before = t.local.lines("live").await?.len();
    let answer = t.webhooks.signed("live", &[("x-request-id", &before.to_string())], before.to_string()).await?;
    if answer.parts().1["status"] != "delivered" {
        return Ok(answer.status.to_string());
    }
    Ok(t.local.hears("live", before + 1).await?.pop().unwrap())
}

#[tokio::test]
async fn every_change_of_the_file_counts_at_once_and_a_broken_one_changes_nothing() {
    let fixed = route("fixed", "prompt: static, deliver: log, deliver_only: true");
    run_test(quiet_world(&[fixed]), async |t| -> Result<()> {
        t.expect_error("cannot read the subscriptions");
        let file = t.file("webhook_subscriptions.json");
        assert_eq!(said(t).await?, "404");
        fs::write(&file, one("one"))?;
        assert_eq!(said(t).await?, "one", "W40: it appears");
        fs::write(&file, one("two"))?;
        assert_eq!(said(t).await?, "two", "it changes, and its size does not");
        for broken in ["{", "", "[]", "null", &one("broken")[..30]] {
            fs::write(&file, broken)?;
            assert_eq!(said(t).await?, "two", "{broken:?} changes nothing");
        }
        fs::write(t.file("new.json"), one("renamed"))?;
        fs::rename(t.file("new.json"), &file)?;
        assert_eq!(said(t).await?, "renamed");
        fs::remove_file(&file)?;
        assert_eq!(said(t).await?, "404", "it vanishes");
        fs::write(&file, one("again"))?;
        let old = SystemTime::now() - Duration::from_secs(86_400);
        File::options().write(true).open(&file)?.set_modified(old)?;
        assert_eq!(said(t).await?, "again", "made again, and older than before");
        for name in ["a", "b"] {
            fs::write(t.file(name), one(&format!("link {name}")))?;
            symlink(t.file(name), t.file("link"))?;
            fs::rename(t.file("link"), &file)?;
            assert_eq!(said(t).await?, format!("link {name}"));
        }
        fs::remove_file(t.file("b"))?;
        assert_eq!(said(t).await?, "404", "a link to nothing is no file");
        assert_eq!(t.webhooks.signed("fixed", &[], "{}").await?.status, 200, "static routes are untouched");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_bad_subscription_is_off_and_hurts_nobody() {
    let fixed = route("fixed", "prompt: static, deliver: 'local:live', deliver_only: true");
    run_test(quiet_world(&[fixed]), async |t| -> Result<()> {
        for name in ["blank", "none", "text", "lost", "filtered"] {
            t.expect_error(&format!("route={name}"));
        }
        let mut all: Value = serde_json::from_str(&one("live"))?;
        all["blank"] = json!({"secret": "", "deliver_only": true});
        all["none"] = json!({"deliver_only": true});
        all["text"] = json!("a secret");
        all["lost"] = json!({"secret": SECRET, "deliver": "telegarm"});
        all["filtered"] = json!({"secret": SECRET, "filters": {"field": "k", "equals": 1}});
        all["off"] = json!({"secret": SECRET, "enabled": false});
        all["fixed"] = json!({"secret": "another secret", "prompt": "dynamic", "deliver": "log"});
        fs::write(t.file("webhook_subscriptions.json"), all.to_string())?;
        for name in ["blank", "none", "text", "lost", "filtered"] {
            let answer = t.webhooks.signed(name, &[], "{}").await?;
            assert_eq!(answer.parts(), (404, json!({"error": format!("Unknown route: {name}")})), "W41");
        }
        assert_eq!(t.webhooks.signed("off", &[], "{}").await?.status, 403);
        assert_eq!(t.webhooks.signed("fixed", &[], "{}").await?.status, 200, "W41: the static route wins");
        assert_eq!(t.local.hears("live", 1).await?, ["static"]);
        assert_eq!(said(t).await?, "live");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn nothing_unsigned_is_served_to_other_machines() {
    let open = json!({"open": {"secret": "INSECURE_NO_AUTH", "prompt": "x", "deliver_only": true}}).to_string();
    run_test(quiet_world(&[]).webhook("host: 0.0.0.0"), async |t| -> Result<()> {
        t.expect_error("route=open");
        fs::write(t.file("webhook_subscriptions.json"), &open)?;
        assert_eq!(t.webhooks.post("open", &[], "{}").await?.status, 404, "W42");
        Ok(())
    })
    .await;
    let fixed = "fixed: {secret: INSECURE_NO_AUTH, prompt: x, deliver_only: true}";
    run_test(World::default().without_telegram().route(fixed).with_warnings(), async |t| -> Result<()> {
        fs::write(t.file("webhook_subscriptions.json"), &open)?;
        for route in ["open", "fixed"] {
            assert_eq!(t.webhooks.post(route, &[], "{}").await?.status, 200, "on loopback both work");
        }
        assert!(t.log.text().contains("nothing is verified"), "and are warned of");
        Ok(())
    })
    .await;
}
