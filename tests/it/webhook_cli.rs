//! `hookgate webhook …`, the real binary, beside a running gateway.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::support::process::Place;
use crate::support::world::{SECRET, World};

/// What a command did.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("{}\n{}", self.out, self.err))
    }
}

/// Runs `hookgate webhook …`. Blocks in a thread of its own: the fakes are served by this one.
async fn webhook(place: &Place, args: &[&str]) -> Result<Ran> {
    let mut command = place.command(&[&["webhook"], args].concat());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ran { code: output.status.code().context("a code")?, out: text(output.stdout), err: text(output.stderr) })
}

fn file(place: &Place) -> std::path::PathBuf {
    place.home.path().join("webhook_subscriptions.json")
}

fn saved(place: &Place) -> Result<Value> {
    Ok(serde_json::from_slice(&fs::read(file(place))?)?)
}

#[tokio::test]
async fn a_subscription_is_served_at_once_tested_changed_and_removed() -> Result<()> {
    let place = Place::new(&World::default().echo()).await?;
    let gateway = place.start().await?;

    let made = webhook(
        &place,
        &[
            "subscribe",
            " My Hook ",
            "--events",
            "test, push",
            "--prompt",
            "{message}",
            "--deliver",
            "telegram:7",
            "--deliver-only",
            "--json",
        ],
    )
    .await?;
    assert_eq!(made.code, 0, "W45: {}", made.err);
    let made = made.json()?;
    let secret = made["secret"].as_str().context("a secret")?;
    assert_eq!((&made["name"], &made["created"], secret.len()), (&json!("my-hook"), &json!(true), 43));
    assert_eq!(made["url"], format!("{}/webhooks/my-hook", gateway.webhooks.base_url()));
    assert_eq!(fs::metadata(file(&place))?.permissions().mode() & 0o777, 0o600);
    assert_eq!(saved(&place)?["my-hook"]["events"], json!(["test", "push"]));

    // It is served without a restart.
    assert_eq!(gateway.webhooks.post("my-hook", &[], "{}").await?.status, 401);
    let tested = webhook(&place, &["test", "my-hook", "--payload", r#"{"message":"from the test"}"#, "--json"]).await?;
    assert_eq!(tested.code, 0, "{} {}", tested.out, tested.err);
    let tested = tested.json()?;
    assert_eq!((&tested["status"], &tested["answer"]["status"]), (&json!(200), &json!("delivered")));
    assert_eq!(place.telegram.alice().hears().await?.text, "from the test");

    // Changing it keeps the secret; giving one changes it.
    let changed = webhook(
        &place,
        &["subscribe", "my-hook", "--prompt", "changed", "--deliver", "telegram:7", "--deliver-only", "--json"],
    )
    .await?;
    assert_eq!(changed.code, 0, "{}", changed.err);
    let changed = changed.json()?;
    assert_eq!(
        (&changed["created"], &changed["secret_changed"], &changed["secret"]),
        (&json!(false), &json!(false), &json!(secret))
    );
    assert_eq!(webhook(&place, &["test", "My Hook"]).await?.code, 0, "found by the name it was given");
    assert_eq!(place.telegram.alice().hears().await?.text, "changed");
    let given = webhook(&place, &["add", "my-hook", "--secret", "a secret of my own", "--json"]).await?.json()?;
    assert_eq!((&given["secret_changed"], &given["secret"]), (&json!(true), &json!("a secret of my own")));

    // Secrets are shown when asked for, and only then.
    for args in [&["list"][..], &["ls", "--json"], &["show", "my-hook"], &["show", "My Hook", "--json"]] {
        let shown = webhook(&place, args).await?;
        assert_eq!(shown.code, 0, "{args:?}: {}", shown.err);
        assert!(shown.out.contains("my-hook") && !shown.out.contains("a secret of my own"), "{args:?}: {}", shown.out);
    }
    let shown = webhook(&place, &["show", "my-hook", "--secret", "--json"]).await?.json()?;
    assert_eq!(shown["secret"], "a secret of my own");
    let listed = webhook(&place, &["--json", "list"]).await?.json()?;
    let row =
        |name: &str| listed["routes"].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == name)).cloned();
    assert_eq!(row("my-hook").context("listed")?["source"], "subscription");
    assert_eq!(row("github").context("listed")?["source"], "config");

    for name in ["rm", "remove"] {
        let removed = webhook(&place, &[name, "My Hook", "--json"]).await?;
        assert_eq!(
            removed.code,
            i32::from(name == "remove"),
            "a second time there is nothing to remove: {}",
            removed.out
        );
    }
    assert_eq!(gateway.webhooks.post("my-hook", &[], "{}").await?.status, 404);
    assert_eq!(saved(&place)?, json!({}));
    let log = gateway.log();
    assert_eq!(gateway.stop().await?, 0);
    assert!(!log.contains(secret) && !log.contains("a secret of my own"));
    Ok(())
}

#[tokio::test]
async fn what_cannot_work_is_refused_and_nothing_is_written() -> Result<()> {
    let place = Place::new(&World::default().echo()).await?;
    let refusals: [(&[&str], &str); 12] = [
        (&["subscribe", "bad/name"], "cannot be a name"),
        (&["subscribe", ""], "cannot be a name"),
        (&["subscribe", "hook.x"], "cannot be a name"),
        (&["subscribe", "hook", "--deliver", "telegarm"], "did you mean `telegram`?"),
        (&["subscribe", "hook", "--deliver", "telegram/all"], "telegram:CHAT"),
        (&["subscribe", "hook", "--deliver", "telegram:"], "telegram:CHAT"),
        (&["subscribe", "hook", "--deliver", "telegram"], "home channel"),
        (&["subscribe", "hook", "--deliver", "telegram", "--deliver-chat-id", "not a chat"], "telegram:CHAT"),
        (&["subscribe", "hook", "--secret", " "], "blank"),
        (&["show", "none"], "no route"),
        (&["test", "none"], "no route"),
        (&["remove", "none"], "no subscription"),
    ];
    for (args, reason) in refusals {
        let refused = webhook(&place, &[args, &["--json"]].concat()).await?;
        assert_eq!(refused.code, 1, "{args:?}: {} {}", refused.out, refused.err);
        let error = refused.json()?["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(reason), "{args:?}: {error}");
    }
    assert!(!file(&place).exists(), "W46");
    for args in [&["subscribe"][..], &["nosuch"], &["test", "github", "--payload", "not json"]] {
        assert_eq!(webhook(&place, args).await?.code, 2, "{args:?}");
    }
    let unheard = webhook(&place, &["test", "github"]).await?;
    assert_eq!(unheard.code, 1);
    assert!(unheard.err.contains("does the gateway run?"), "{}", unheard.err);

    fs::write(file(&place), "{ broken")?;
    assert_eq!(webhook(&place, &["subscribe", "hook"]).await?.code, 1);
    assert_eq!(fs::read_to_string(file(&place))?, "{ broken", "a broken file is left alone");

    // A placeholder that will stay as it stands is told of when it is saved.
    fs::remove_file(file(&place))?;
    let warned = webhook(&place, &["subscribe", "hook", "--prompt", "{payload}", "--json"]).await?;
    assert_eq!(warned.code, 0);
    assert!(warned.json()?["warnings"].to_string().contains("{__raw__}"), "{}", warned.out);
    assert_eq!(webhook(&place, &["subscribe", "direct", "--deliver-only"]).await?.code, 0, "the log is a target");
    Ok(())
}

#[tokio::test]
async fn a_test_delivery_that_is_not_taken_fails() -> Result<()> {
    let refused = "direct: {secret: the-github-secret, prompt: x, deliver: 'telegram:999', deliver_only: true}";
    let off = "off: {secret: the-github-secret, enabled: false}";
    let stripe = "stripe: {secret: the-github-secret, scheme: stripe}";
    let place = Place::new(&World::default().echo().route(refused).route(off).route(stripe)).await?;
    let gateway = place.start().await?;
    let tested = webhook(&place, &["test", "direct", "--json"]).await?;
    assert_eq!((tested.code, &tested.json()?["status"]), (1, &json!(502)));
    assert!(!tested.out.contains("chat not found"), "the reason is in the record and the log only");
    assert!(gateway.log().contains("chat not found"));
    assert_eq!(webhook(&place, &["test", "off"]).await?.code, 1);
    let other = webhook(&place, &["test", "stripe"]).await?;
    assert_eq!(other.code, 1);
    assert!(other.err.contains("stripe"), "{}", other.err);
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_public_listener_with_an_open_route_does_not_start() -> Result<()> {
    let open = "open: {secret: INSECURE_NO_AUTH, prompt: x}";
    let place = Place::new(&World::default().echo().webhook("host: 0.0.0.0").route(open)).await?;
    let mut command = place.command(&["gateway", "run"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    assert_eq!(output.status.code(), Some(78), "W42");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("routes.open.secret") && told.contains("loopback"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_test_sends_what_the_route_wants_and_fills_the_usual_template() -> Result<()> {
    let route = format!(
        "issues: {{secret: {SECRET}, events: [issues.opened], prompt: '{{repository.full_name}} {{action}} #{{issue.number}}', \
         deliver: local, deliver_only: true}}"
    );
    let place = Place::new(&World::default().echo().route(&route)).await?;
    let gateway = place.start().await?;
    assert_eq!(webhook(&place, &["test", "issues"]).await?.code, 0);
    assert_eq!(gateway.local.hears("console", 1).await?, ["octo/hello-world opened #1"]);
    let ignored = webhook(&place, &["test", "issues", "--event", "push"]).await?;
    assert_eq!(ignored.code, 1);
    assert!(ignored.out.contains("does not want the event push; it wants issues.opened"), "{}", ignored.out);
    let file = place.home.path().join("event.json");
    std::fs::write(&file, r#"{"action": "opened", "issue": {"number": 9}}"#)?;
    let payload = format!("@{}", file.display());
    assert_eq!(webhook(&place, &["test", "issues", "--payload", &payload]).await?.code, 0);
    assert_eq!(gateway.local.hears("console", 2).await?[1], "{repository.full_name} opened #9");
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}
