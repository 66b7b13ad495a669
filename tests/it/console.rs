//! The local chat as a browser uses it: who gets in, what is refused, what is shown.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::support::local::LocalChat;
use crate::support::process::Place;
use crate::support::world::{CONSOLE_TOKEN, SECRET, Town, World, run_test};

fn world() -> World {
    World::default().without_telegram()
}

async fn parts(request: reqwest::RequestBuilder) -> Result<(u16, Value)> {
    let response = request.send().await?;
    let (status, text) = (response.status().as_u16(), response.text().await?);
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// The cookie that opening the page with the token gives.
async fn cookie(local: &LocalChat) -> Result<String> {
    let opened = local.stranger("GET", &format!("/?token={CONSOLE_TOKEN}")).send().await?;
    assert_eq!((opened.status().as_u16(), &opened.headers()["location"]), (303, &"/".parse()?));
    let cookie = opened.headers()["set-cookie"].to_str()?;
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    let pair = cookie.split(';').next().context("a cookie")?.to_owned();
    assert!(!pair.contains(CONSOLE_TOKEN), "the cookie does not tell the token");
    Ok(pair)
}

#[tokio::test]
async fn the_page_opens_with_the_token_once_and_then_with_the_cookie() {
    run_test(world(), async |t| {
        for path in ["/", "/?token=wrong", "/?token=", "/?token=a&token=b"] {
            let closed = t.local.stranger("GET", path).send().await?;
            assert!(closed.status().is_client_error(), "{path}: {}", closed.status());
            assert!(closed.text().await?.contains("This page is private"), "{path}");
        }
        let forged = t.local.stranger("GET", "/").header("cookie", format!("hookgate={CONSOLE_TOKEN}")).send().await?;
        assert_eq!(forged.status(), 401);
        let cookie = cookie(&t.local).await?;
        let page = t.local.stranger("GET", "/").header("cookie", format!("a=b; {cookie}; c=d")).send().await?;
        assert_eq!(page.status(), 200);
        let html = page.text().await?;
        assert!(html.contains("<form") && !html.contains(CONSOLE_TOKEN));
        for asset in ["/console.js", "/console.css"] {
            assert!(html.contains(asset));
            assert_eq!(t.local.stranger("GET", asset).send().await?.status(), 200);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_routes_want_the_token_or_the_cookie_and_no_other_page() {
    run_test(world().echo(), async |t| {
        let cookie = cookie(&t.local).await?;
        let body = json!({ "id": "1", "text": "hello" }).to_string();
        let post = || t.local.stranger("POST", "/api/messages").body(body.clone());
        let guarded = [
            ("GET", "/api/history"),
            ("GET", "/api/events"),
            ("POST", "/api/messages"),
            ("POST", "/api/press"),
            ("POST", "/api/sessions/reset"),
        ];
        for (method, path) in guarded {
            let missing = json!({ "error": "The console token is missing or wrong" });
            assert_eq!(parts(t.local.stranger(method, path)).await?, (401, missing.clone()), "{path}");
            assert_eq!(parts(t.local.stranger(method, path).bearer_auth("wrong")).await?, (401, missing), "{path}");
            let elsewhere = json!({ "error": "Requests from other pages are refused" });
            for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "file://"] {
                let request = t.local.stranger(method, path).header("origin", origin).header("cookie", &cookie);
                assert_eq!(parts(request).await?, (403, elsewhere.clone()), "{path} {origin}");
            }
        }
        assert_eq!(parts(post().header("cookie", &cookie).header("origin", t.local.url())).await?.0, 202);
        assert_eq!(parts(post().bearer_auth(CONSOLE_TOKEN)).await?, (202, json!({ "status": "duplicate", "id": "1" })));
        assert_eq!(t.local.hears("console", 1).await?, ["hello"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    run_test(world(), async |t| {
        for path in ["/", "/console.js", "/api/history", "/nosuch"] {
            let answer = t.local.stranger("GET", path).send().await?;
            let headers = answer.headers();
            assert!(
                headers["content-security-policy"].to_str()?.starts_with("default-src 'none'; script-src 'self'"),
                "{path}"
            );
            assert_eq!(
                (&headers["x-content-type-options"], &headers["x-frame-options"]),
                (&"nosniff".parse()?, &"DENY".parse()?)
            );
            assert_eq!(
                (&headers["referrer-policy"], &headers["cache-control"]),
                (&"no-referrer".parse()?, &"no-store".parse()?)
            );
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_in_json() {
    run_test(world(), async |t| {
        let long = "x".repeat(101);
        let huge = json!({ "id": "1", "text": "x".repeat(1 << 20) }).to_string();
        let said = [
            ("{", 400),
            ("[]", 400),
            ("", 400),
            (r#"{"id": "1"}"#, 400),
            (r#"{"id": 1, "text": "x"}"#, 400),
            (r#"{"id": "", "text": "x"}"#, 400),
            (&format!(r#"{{"id": "{long}", "text": "x"}}"#), 400),
            (r#"{"id": "1", "text": " \n"}"#, 400),
            (r#"{"id": "1", "text": "x", "chat": "a b"}"#, 400),
            (r#"{"id": "1", "text": "x", "chat": ""}"#, 400),
            (&format!(r#"{{"id": "1", "text": "x", "chat": "{long}"}}"#), 400),
            (&huge, 413),
        ];
        for (body, expected) in said {
            let (status, answer) = parts(t.local.request("POST", "/api/messages").body(body.to_owned())).await?;
            let shown: String = body.chars().take(80).collect();
            assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty()), "{shown}: {answer}");
            assert_eq!(status, expected, "{shown}");
        }
        let pressed = [
            ("{", 400),
            (r#"{"id": "1", "message_id": "2"}"#, 400),
            (r#"{"id": "", "message_id": "2", "data": "x"}"#, 400),
            (r#"{"id": "1", "message_id": "", "data": "x"}"#, 400),
            (&format!(r#"{{"id": "1", "message_id": "{long}", "data": "x"}}"#), 400),
            (r#"{"id": "1", "message_id": "2", "data": ""}"#, 400),
            (&format!(r#"{{"id": "1", "message_id": "2", "data": "{}"}}"#, "x".repeat(65)), 400),
            (r#"{"id": "1", "message_id": "2", "data": "x", "chat": "a b"}"#, 400),
            (&huge, 413),
        ];
        for (body, expected) in pressed {
            let (status, answer) = parts(t.local.request("POST", "/api/press").body(body.to_owned())).await?;
            assert_eq!((status, answer["error"].is_string()), (expected, true), "{answer}");
        }
        let asked = [
            "/api/history?chat=a/b",
            "/api/history?chat=a&chat=b",
            "/api/events?chat=",
            "/api/nosuch",
            "/api/messages",
        ];
        for path in asked {
            let (status, answer) = parts(t.local.request("GET", path)).await?;
            assert!((400..500).contains(&status) && answer["error"].is_string(), "{path}: {status} {answer}");
        }
        t.idle().await?;
        assert!(t.model.requests().is_empty());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_same_id_is_the_same_message() {
    run_test(world(), async |t| {
        t.model.holds("once");
        for status in ["accepted", "duplicate"] {
            assert_eq!(t.local.says("a", "1", "hello").await?, json!({ "status": status, "id": "1" }));
        }
        t.model.release();
        assert_eq!(t.local.hears("a", 1).await?, ["once"]);
        assert_eq!(
            t.local.says("a", "1", "hello").await?,
            json!({ "status": "duplicate", "id": "1", "replies": 1 }),
            "it is through"
        );
        t.model.says("in another chat");
        assert_eq!(t.local.says("b", "1", "hello").await?["status"], "accepted");
        assert_eq!(t.local.hears("b", 1).await?, ["in another chat"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_watcher_sees_the_answer_grow_and_then_the_message() {
    run_test(world(), async |t| {
        let mut events = t.local.watches("a").await?;
        let mut elsewhere = t.local.watches("b").await?;
        for events in [&mut events, &mut elsewhere] {
            assert_eq!(events.next().await?, Some(json!({ "type": "ready" })));
        }
        t.model.says_slowly("one two three", std::time::Duration::from_millis(80));
        t.local.says("a", "1", "count").await?;
        let seen = events.until("message").await?;
        let texts: Vec<_> =
            seen.iter().filter(|event| event["type"] == "partial").map(|event| event["text"].clone()).collect();
        assert_eq!(texts, ["one ", "one two ", "one two three"]);
        assert!(seen.iter().filter(|event| event["type"] == "partial").all(|event| event["reply_to"] == "1"));
        assert!(seen.contains(&json!({ "type": "typing" })), "{seen:?}");
        assert!(seen.contains(&json!({ "type": "settled", "message_id": "1", "replies": 1 })), "{seen:?}");
        let message = seen.last().unwrap();
        assert_eq!((&message["reply_to"], &message["text"]), (&json!("1"), &json!("one two three")));
        // Nothing is to be said: the watcher is told so.
        t.model.says("[SILENT]");
        t.local.says("a", "2", "psst").await?;
        let seen = events.until("settled").await?;
        assert_eq!(seen.last(), Some(&json!({ "type": "settled", "message_id": "2", "replies": 0 })));
        // The other chat heard nothing of it, and both streams end with the gateway.
        t.stop().await?;
        assert_eq!((elsewhere.next().await?, events.next().await?), (None, None));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_history_shows_what_was_said_after_a_restart_and_across_resets() {
    run_test(world().echo(), async |t| {
        for (id, text) in [("1", "before"), ("2", "/new"), ("3", "after")] {
            t.local.says("a", id, text).await?;
            t.idle().await?;
        }
        t.local.says("b", "1", "elsewhere").await?;
        t.idle().await?;
        t.stop().await?;
        Box::pin(run_test(world().echo().at_home_of(t), async |t: &mut Town| {
            let line = |role: &str, text: &str| (role.to_owned(), text.to_owned());
            let a = [
                line("user", "before"),
                line("assistant", "before"),
                line("assistant", "A new session has begun."),
                line("user", "after"),
                line("assistant", "after"),
            ];
            assert_eq!(t.local.lines("a").await?, a);
            assert_eq!(t.local.lines("b").await?, [line("user", "elsewhere"), line("assistant", "elsewhere")]);
            assert_eq!(t.local.lines("console").await?, []);
            Ok(())
        }))
        .await;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_delivered_while_nobody_watches_is_there_later() {
    let route = |name: &str, target: &str| {
        format!("{name}: {{secret: {SECRET}, deliver_only: true, prompt: 'build {{n}}', deliver: '{target}'}}")
    };
    run_test(world().route(&route("page", "local")).route(&route("ops", "local:ops")), async |t| {
        for (name, n) in [("page", 1), ("ops", 2)] {
            let answer = t.webhooks.github(name, "push", &format!("d-{n}"), &json!({ "n": n })).await?;
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
        assert_eq!(t.local.lines("console").await?, [("assistant".to_owned(), "build 1".to_owned())]);
        assert_eq!(t.local.lines("ops").await?, [("assistant".to_owned(), "build 2".to_owned())]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_press_of_nothing_that_waits_for_it_is_answered() {
    run_test(world(), async |t| {
        let cookie = cookie(&t.local).await?;
        let press = json!({ "id": "1", "message_id": "2", "data": "x".repeat(64) });
        let from_page = t.local.stranger("POST", "/api/press").header("cookie", cookie).header("origin", t.local.url());
        for request in [from_page, t.local.request("POST", "/api/press")] {
            let answer = parts(request.json(&press)).await?;
            assert_eq!(answer, (200, json!({ "toast": "This button is no longer valid." })));
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_stopping_gateway_takes_nothing_more() {
    run_test(world(), async |t| {
        t.gateway.drain();
        let request = t.local.request("POST", "/api/messages").json(&json!({ "id": "1", "text": "too late" }));
        let press = json!({ "id": "1", "message_id": "2", "data": "x" });
        for request in [request, t.local.request("POST", "/api/press").json(&press)] {
            assert_eq!(parts(request).await?, (503, json!({ "error": "The gateway is stopping" })));
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn without_a_console_nothing_listens_and_the_commands_say_what_to_do() -> Result<()> {
    let place = Place::new(&world().echo()).await?;
    let yaml = "console: {enabled: false}\nplatforms: {webhook: {extra: {port: 0}}}\n";
    std::fs::write(place.home.path().join("config.yaml"), yaml)?;
    let gateway = place.start().await?;
    assert!(gateway.log().contains("chat page  off (console.enabled)"), "{}", gateway.log());
    assert_eq!(gateway.local.url(), "");
    let status = place.run(&["gateway", "status", "--json"]).await?.ok()?.json()?;
    assert_eq!((&status["status"], &status["platforms"]["local"]["state"]), (&json!("ok"), &json!("disabled")));
    for command in [vec!["chat"], vec!["sessions", "reset", "x"]] {
        let ran = place.run(&command).await?;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains("console.enabled is false"), "{ran:?}");
    }
    assert_eq!(gateway.stop().await?, 0);
    // Nobody runs: `chat` needs no console.
    assert_eq!(place.run(&["chat"]).await?.code, 0);
    Ok(())
}
