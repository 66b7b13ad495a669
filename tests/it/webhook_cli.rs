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
    let place = Place::new(&World::default().echo().route(refused).route(off)).await?;
    let gateway = place.start().await?;
    let tested = webhook(&place, &["test", "direct", "--json"]).await?;
    assert_eq!((tested.code, &tested.json()?["status"]), (1, &json!(502)));
    assert!(!tested.out.contains("chat not found"), "the reason is in the record and the log only");
    gateway.logs("chat not found").await?;
    let off = webhook(&place, &["test", "off", "--json"]).await?;
    assert_eq!((off.code, &off.json()?["status"], &off.json()?["taken"]), (1, &json!(403), &json!(false)));
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_test_is_signed_as_every_scheme_wants_it() -> Result<()> {
    let schemes = [
        "auto",
        "github",
        "gitlab",
        "stripe",
        "svix",
        "standard",
        "slack",
        "shopify",
        "linear",
        "gitea",
        "bitbucket",
        "sentry",
        "paddle",
        "pagerduty",
        "twilio",
        "telegram",
        "bearer",
        "basic",
    ];
    let mut world = World::default().echo();
    let public = "public_url: 'https://example.org/hooks'";
    for scheme in schemes {
        let route =
            format!("{scheme}: {{secret: {SECRET}, scheme: {scheme}, {public}, events: [a.b], deliver_only: true}}");
        world = world.route(&route);
    }
    let options = "header: x-sig, algorithm: sha512, encoding: base64, prefix: 'v1=', timestamp_header: x-time, signed: '{timestamp}.{body}'";
    let world = world.route(&format!("hmac: {{secret: {SECRET}, scheme: hmac, {options}, deliver_only: true}}"));
    let place = Place::new(&world).await?;
    let gateway = place.start().await?;
    for scheme in schemes.into_iter().chain(["hmac"]) {
        // Each is a new delivery, also where the body alone tells which one it is.
        for _ in 0..2 {
            let tested = webhook(&place, &["test", scheme, "--json"]).await?;
            assert_eq!(tested.code, 0, "{scheme}: {} {}", tested.out, tested.err);
            assert_eq!(tested.json()?["answer"]["status"], "delivered", "{scheme}");
        }
    }
    let payload = r#"{"webhookTimestamp": 1, "action": "b"}"#;
    let recorded = webhook(&place, &["test", "linear", "--payload", payload]).await?;
    assert_eq!(recorded.code, 0, "the time of a recorded body is made new: {}", recorded.out);
    let form = webhook(&place, &["test", "twilio", "--payload", "Body=hello&type=a.b"]).await?;
    assert_eq!(form.code, 0, "{} {}", form.out, form.err);
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_test_shows_what_the_route_makes_of_it() -> Result<()> {
    let stripe = format!(
        "stripe: {{secret: {SECRET}, scheme: stripe, events: [invoice.paid, invoice.payment_failed], deliver: 'telegram:7', \
         deliver_only: true, prompt: '{{type}}: {{data.object.customer_email}} {{data.object.amount_due}} {{data.object.currency}}'}}"
    );
    let long =
        format!("long: {{secret: {SECRET}, deliver_only: true, prompt: '{} {{nothing.here}}'}}", "x".repeat(100));
    let unfilled =
        format!("unfilled: {{secret: {SECRET}, deliver: telegram, deliver_extra: {{chat_id: '{{chat.id}}'}}}}");
    let place = Place::new(&World::default().echo().route(&stripe).route(&long).route(&unfilled)).await?;
    let gateway = place.start().await?;

    let tested = webhook(&place, &["test", "stripe"]).await?;
    let message = "invoice.paid: octocat@example.org 1000 eur";
    assert_eq!(tested.code, 0, "{}", tested.out);
    assert!(tested.out.contains("200 OK") && tested.out.contains("target   telegram:7"), "{}", tested.out);
    assert!(tested.out.contains(&format!("prompt   {message}\n")), "{}", tested.out);
    assert_eq!(place.telegram.alice().hears().await?.text, message, "what was shown is what arrives");

    let again = r#"{"id": "evt_1", "type": "invoice.paid"}"#;
    assert_eq!(webhook(&place, &["test", "stripe", "--payload", again]).await?.code, 0);
    place.telegram.alice().hears().await?;
    let known = webhook(&place, &["test", "stripe", "--payload", again]).await?;
    assert_eq!(known.code, 1, "a duplicate is not taken");
    assert!(known.out.contains("had this delivery already"), "{}", known.out);

    let short = webhook(&place, &["test", "long"]).await?;
    assert!(short.out.contains(&format!("prompt   {}…\n", "x".repeat(80))), "{}", short.out);
    assert!(short.out.contains("missing  nothing.here (stay as written)"), "{}", short.out);
    let whole = webhook(&place, &["test", "long", "--json"]).await?.json()?;
    assert_eq!(whole["prompt"], format!("{} {{nothing.here}}", "x".repeat(100)));
    assert_eq!(
        (&whole["target"], &whole["missing"], &whole["taken"]),
        (&json!("log"), &json!(["nothing.here"]), &json!(true))
    );

    let unfilled = webhook(&place, &["test", "unfilled"]).await?;
    assert_eq!(unfilled.code, 1);
    assert!(unfilled.out.contains("target   cannot be filled in: the telegram chat: {chat.id}"), "{}", unfilled.out);
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

#[tokio::test]
async fn skills_are_kept_with_a_warning_and_a_script_is_refused() -> Result<()> {
    let place = Place::new(&World::default().echo()).await?;
    let made = webhook(&place, &["subscribe", "hook", "--skills", "a, b", "--description", "What it is for", "--json"])
        .await?;
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(saved(&place)?["hook"]["skills"], json!(["a", "b"]));
    assert!(made.json()?["warnings"].to_string().contains("`skills` is not supported yet"), "{}", made.out);

    for args in [&["list"][..], &["show", "hook"], &["list", "--json"], &["show", "hook", "--json"]] {
        let shown = webhook(&place, args).await?;
        assert!(shown.out.contains("What it is for"), "{args:?}: {}", shown.out);
    }

    let before = fs::read(file(&place))?;
    for name in ["hook", "other"] {
        let refused = webhook(&place, &["subscribe", name, "--script", "filter.py", "--json"]).await?;
        let error = refused.json()?["error"].to_string();
        assert_eq!(refused.code, 1, "{}", refused.out);
        assert!(error.contains("was not saved") && error.contains("`script` is not supported yet"), "{error}");
    }
    assert_eq!(fs::read(file(&place))?, before);
    Ok(())
}

#[tokio::test]
async fn a_broken_file_is_named() -> Result<()> {
    let place = Place::new(&World::default().echo()).await?;
    fs::write(file(&place), "{ broken")?;
    let path = file(&place).display().to_string();
    for args in [&["webhook", "list"][..], &["webhook", "list", "--json"], &["doctor"]] {
        let told = place.run(args).await?;
        assert_eq!(told.code, 1, "{args:?}: {}", told.out);
        assert!(told.out.contains(&path) && told.out.contains("Repair or remove it"), "{args:?}: {}", told.out);
    }
    Ok(())
}

#[tokio::test]
async fn a_subscription_is_paused_and_resumed_with_all_it_has() -> Result<()> {
    let place = Place::new(&World::default().echo()).await?;
    let gateway = place.start().await?;
    webhook(&place, &["subscribe", "hook", "--prompt", "p", "--secret", "a secret of my own", "--deliver-only"])
        .await?;
    let mut by_hand = saved(&place)?;
    by_hand["hook"]["raw_limit"] = json!(1234);
    fs::write(file(&place), by_hand.to_string())?;

    let paused = webhook(&place, &["pause", "Hook", "--json"]).await?;
    assert_eq!((paused.code, paused.json()?), (0, json!({"name": "hook", "enabled": false, "warnings": []})));
    assert_eq!(webhook(&place, &["test", "hook", "--json"]).await?.json()?["status"], 403, "at once");
    assert!(webhook(&place, &["list"]).await?.out.contains("disabled"));
    assert_eq!(fs::metadata(file(&place))?.permissions().mode() & 0o777, 0o600);
    let resumed = webhook(&place, &["resume", "hook"]).await?;
    assert_eq!((resumed.code, resumed.out.trim()), (0, "hook is on."));
    assert_eq!(saved(&place)?, by_hand, "nothing else has changed");
    assert_eq!(webhook(&place, &["test", "hook"]).await?.code, 0);

    for command in ["pause", "resume", "rotate", "remove"] {
        for (name, reason) in [("none", "no subscription"), ("github", "a route of config.yaml")] {
            let refused = webhook(&place, &[command, name]).await?;
            assert_eq!(refused.code, 1, "{command} {name}: {}", refused.out);
            assert!(refused.err.contains(reason), "{command} {name}: {}", refused.err);
        }
    }
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_secret_is_rotated_with_or_without_the_old_one() -> Result<()> {
    let place = Place::new(&World::default().echo()).await?;
    let gateway = place.start().await?;
    webhook(&place, &["subscribe", "hook", "--secret", "the very first secret", "--deliver-only"]).await?;

    let second = webhook(&place, &["rotate", "hook", "--keep-old", "--json"]).await?;
    assert_eq!(second.code, 0, "{}", second.err);
    let second = second.json()?["secret"].as_str().context("a secret")?.to_owned();
    assert_eq!((second.len(), &saved(&place)?["hook"]["secret"]), (43, &json!([second, "the very first secret"])));
    let shown = webhook(&place, &["show", "hook"]).await?;
    assert!(!shown.out.contains(&second), "it was shown once");
    assert_eq!(webhook(&place, &["test", "hook"]).await?.code, 0, "signed with the new one");

    let third = webhook(&place, &["rotate", "hook", "--secret", "made by the provider", "--keep-old"]).await?;
    assert!(third.out.contains("made by the provider") && third.out.contains("accepted beside it: 2"), "{}", third.out);
    let all = json!(["made by the provider", second, "the very first secret"]);
    assert_eq!(saved(&place)?["hook"]["secret"], all);

    let last = webhook(&place, &["rotate", "hook", "--json"]).await?.json()?;
    assert_eq!((&last["accepted"], &last["secret"]), (&json!(1), &saved(&place)?["hook"]["secret"]));
    assert_eq!(webhook(&place, &["test", "hook"]).await?.code, 0);
    let before = fs::read(file(&place))?;
    assert_eq!(webhook(&place, &["rotate", "hook", "--secret", " "]).await?.code, 1);
    assert_eq!(fs::read(file(&place))?, before);
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn deliveries_are_listed_beside_a_running_gateway() -> Result<()> {
    let refused = format!("refused: {{secret: {SECRET}, prompt: x, deliver: 'telegram:999', deliver_only: true}}");
    let picky = format!("picky: {{secret: {SECRET}, events: [push], deliver_only: true}}");
    let place = Place::new(&World::default().echo().route(&refused).route(&picky)).await?;
    let empty = webhook(&place, &["deliveries"]).await?;
    assert_eq!((empty.code, empty.out.trim()), (0, "No deliveries yet."), "{}", empty.err);
    let gateway = place.start().await?;
    for args in [&["test", "picky"][..], &["test", "picky", "--event", "issues"], &["test", "refused"]] {
        webhook(&place, args).await?;
    }
    let listed = webhook(&place, &["deliveries", "--json"]).await?;
    assert_eq!(listed.code, 0, "{}", listed.err);
    let told: Vec<Value> = listed
        .json()?
        .as_array()
        .context("rows")?
        .iter()
        .map(|row| json!([row["route"], row["event"], row["target"], row["state"], row["error"].is_string()]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["refused", "test", "telegram:999", "failed", true]),
            json!(["picky", "issues", "", "ignored", false]),
            json!(["picky", "push", "log", "delivered", false]),
        ]
    );
    let text = webhook(&place, &["deliveries", "Picky", "--limit", "1"]).await?.out;
    assert!(
        text.contains("issues") && text.contains("test-") && !text.contains("push") && !text.contains("999"),
        "{text}"
    );
    let github = webhook(&place, &["deliveries", "github"]).await?;
    assert_eq!((github.code, github.out.trim()), (0, "No deliveries yet."));
    let unknown = webhook(&place, &["deliveries", "none"]).await?;
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("no route"), "{}", unknown.err);
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}
