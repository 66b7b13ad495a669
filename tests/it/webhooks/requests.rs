//! What a sender is answered, and which check comes before which. The numbers W… are those of the reference's cases.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::FutureExt as _;
use futures_util::future::select_all;
use serde_json::{Value, json};

use super::{Wire, assert_json, head, quiet_world, route, states};
use crate::support::sender::{Answer, github_signature};
use crate::support::world::{SECRET, World, run_test};

/// A world with one route that says nothing anywhere.
fn plain() -> World {
    quiet_world(&[route("plain", "prompt: x, deliver: log, deliver_only: true")])
}

fn unsigned() -> (u16, Value) {
    (401, json!({"error": "Invalid signature"}))
}

fn too_large() -> (u16, Value) {
    (413, json!({"error": "Payload too large"}))
}

fn retry_after(answer: &Answer) -> u64 {
    answer.header("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn the_paths_answer_as_the_reference_does() {
    let disabled = route("off", "enabled: false");
    let quoted = route("quoted", "enabled: 'false', deliver_only: true");
    let world = plain().route(&disabled).route(&quoted).with_warnings();
    run_test(world, async |t| -> Result<()> {
        let health = t.webhooks.get("/health").await?;
        assert_json(&health);
        assert_eq!(health.parts(), (200, json!({"status": "ok", "platform": "webhook"})), "W1");

        let unknown = t.webhooks.signed("zzz", &[], "{}").await?;
        assert_json(&unknown);
        assert_eq!(unknown.parts(), (404, json!({"error": "Unknown route: zzz"})), "W2");
        assert_eq!(t.webhooks.signed("Plain", &[], "{}").await?.status, 404, "names are case-sensitive");
        assert_eq!(t.webhooks.signed("plain/", &[], "{}").await?.status, 404, "no slash at the end");

        let got = t.webhooks.get("/webhooks/plain").await?;
        assert_eq!((got.status, got.header("allow")), (405, Some("POST")), "W3");

        let disabled = t.webhooks.signed("off", &[], "{}").await?;
        assert_json(&disabled);
        assert_eq!(disabled.parts(), (403, json!({"error": "Route disabled: off"})), "W35");
        assert_eq!(t.webhooks.signed("quoted", &[], "{}").await?.status, 200, "W35: only the boolean disables");

        let url = t.webhooks.base_url().replace("http://", "");
        let mut wire = Wire::connect(t).await?;
        let prefixed = head("plain", "Content-Length: 2\r\nX-Request-ID: p1", b"{}");
        wire.sends(prefixed.replace("/webhooks/plain", "/p/foo/webhooks/plain").replace("Host: x", &url)).await?;
        wire.sends("{}").await?;
        assert!(wire.hears().await?.contains(r#""delivery_id":"p1""#), "W43: the prefix changes nothing");
        assert_eq!(
            t.webhooks.signed("plain", &[("x-request-id", "p1")], "{}").await?.parts(),
            (200, json!({"status": "duplicate", "delivery_id": "p1"})),
            "W43: and it is the same route"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_event_is_accepted_by_its_header_or_its_body_and_a_repeat_is_a_duplicate() {
    let world = World::default()
        .route(&route("open", "prompt: x, deliver: log"))
        .route(&route("ev", "events: [push], deliver_only: true"));
    run_test(world, async |t| -> Result<()> {
        for _ in 0..4 {
            t.model.says("[SILENT]");
        }
        let headers = [("x-request-id", "r1"), ("x-github-event", "push")];
        let first = t.webhooks.signed("open", &headers, "{}").await?;
        assert_json(&first);
        let accepted = |event: &str, id: &str| {
            (202, json!({"status": "accepted", "route": "open", "event": event, "delivery_id": id}))
        };
        assert_eq!(first.parts(), accepted("push", "r1"), "W4");
        let again = t.webhooks.signed("open", &headers, "{}").await?;
        assert_json(&again);
        assert_eq!(again.parts(), (200, json!({"status": "duplicate", "delivery_id": "r1"})), "W5");
        assert_eq!(t.webhooks.signed("ev", &headers, "{}").await?.status, 200, "W6: ids belong to their route");

        let typed = t.webhooks.signed("open", &[("x-request-id", "r2")], r#"{"type":"t.x"}"#).await?;
        assert_eq!(typed.parts(), accepted("t.x", "r2"), "W9");
        let form = t.webhooks.signed("open", &[("x-request-id", "r3")], "a=1&type=ft").await?;
        assert_eq!(form.parts(), accepted("ft", "r3"), "W11");
        let nameless = t.webhooks.signed("open", &[], r#"{"n":1}"#).await?;
        let hash = sha256(br#"{"n":1}"#);
        assert_eq!(nameless.parts(), accepted("unknown", &format!("sha256:{hash}")), "W10: never the clock");

        let ignored = t.webhooks.signed("ev", &[], "{}").await?;
        assert_json(&ignored);
        assert_eq!(ignored.parts(), (200, json!({"status": "ignored", "event": "unknown"})), "W29");
        let gitlab = t.webhooks.signed("ev", &[("X-Gitlab-Event", "push")], r#"{"n":2}"#).await?;
        assert_eq!(gitlab.parts().1["status"], "delivered", "W30");
        Ok(())
    })
    .await;
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

#[tokio::test]
async fn any_json_value_is_taken_and_anything_else_refused() {
    run_test(plain(), async |t| -> Result<()> {
        for body in ["[1,2]", "\"abc\"", "5", "null", "\u{feff}{}", " {\"a\" : 1}\n", "{\"a\":1,\"a\":2}"] {
            assert_eq!(t.webhooks.signed("plain", &[], body).await?.status, 200, "W13: {body}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let bodies =
            [b"not json".as_slice(), b"", b" ", b"{\"a\":", b"\xff\xfe\0", b"{\"a\":\"\xff\"}", deep.as_bytes()];
        for body in bodies {
            for kind in ["application/json", "application/x-www-form-urlencoded", "text/plain"] {
                let answer = t.webhooks.signed("plain", &[("content-type", kind)], body).await?;
                assert_json(&answer);
                assert_eq!(answer.parts(), (400, json!({"error": "Cannot parse body"})), "W12, W14: {body:.20?}");
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn only_what_is_signed_gets_in() {
    run_test(plain(), async |t| -> Result<()> {
        let body = br#"{ "a" : 1,"a":2, "e":"\u00e9" }"#;
        let good = github_signature(SECRET, body);
        let (name, hex) = good.split_once('=').unwrap();
        let other = github_signature("another-secret", body);
        for (header, value, case) in [
            ("x-other", "", "W15"),
            ("x-hub-signature-256", hex, "W17"),
            ("x-hub-signature-256", other.as_str(), "another secret"),
            ("x-hub-signature-256", "", "blank"),
            ("x-webhook-signature", good.as_str(), "W20"),
            ("stripe-signature", "t=1,v1=00", "W26"),
            ("webhook-signature", "v1,AAAA", "W26"),
            ("svix-id", "m1", "W24"),
            ("x-gitlab-token", "wrong", "the token is the secret"),
        ] {
            let answer = t.webhooks.post("plain", &[(header, value)], *body).await?;
            assert_json(&answer);
            assert_eq!(answer.parts(), unsigned(), "{case}");
        }
        let log = t.log.text();
        assert!(
            !log.contains(hex) && !log.contains(&other),
            "no signature is logged, neither the one sent nor the right one"
        );
        let mut wire = Wire::connect(t).await?;
        let strange = head("plain", "Content-Length: 2", b"{}").replace("sha256=", "sha256=\u{e9}");
        wire.sends(strange).await?;
        wire.sends("{}").await?;
        assert!(wire.hears().await?.starts_with("HTTP/1.1 401 "), "W18");
        for changed in [&body[1..], &body[..body.len() - 1], b"{}"] {
            assert_eq!(t.webhooks.post("plain", &[("x-hub-signature-256", &good)], changed).await?.status, 401);
        }

        assert_eq!(t.webhooks.post("plain", &[("x-hub-signature-256", &good)], *body).await?.status, 200, "W16");
        let upper = format!("{name}={}", hex.to_uppercase());
        let shouted =
            t.webhooks.post("plain", &[("x-hub-signature-256", &upper), ("x-request-id", "2")], *body).await?;
        assert_eq!(shouted.status, 200, "hex is hex in either case");
        assert_eq!(
            t.webhooks.post("plain", &[("x-webhook-signature", hex), ("x-request-id", "3")], *body).await?.status,
            200,
            "W20"
        );
        assert_eq!(
            t.webhooks.post("plain", &[("x-gitlab-token", SECRET), ("x-request-id", "4")], *body).await?.status,
            200,
            "W19"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_body_may_be_as_long_as_the_limit_and_no_longer() {
    let world = plain().webhook("max_body_bytes: 2000");
    run_test(world, async |t| -> Result<()> {
        let body = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        assert_eq!(t.webhooks.signed("plain", &[], body(2000)).await?.status, 200);
        let longer = t.webhooks.signed("plain", &[], body(2001)).await?;
        assert_json(&longer);
        assert_eq!(longer.parts(), too_large(), "W27");
        assert_eq!(t.webhooks.post("plain", &[], body(2001)).await?.parts(), too_large(), "before the signature");
        assert_eq!(t.webhooks.post("plain", &[], body(2000)).await?.parts(), unsigned(), "W28");
        assert_eq!(t.webhooks.post("none", &[], body(2001)).await?.status, 404, "and after the route");

        let chunked = async |body: &str| -> Result<String> {
            let mut wire = Wire::connect(t).await?;
            wire.sends(head("plain", "Transfer-Encoding: chunked\r\nX-Request-ID: c", body.as_bytes())).await?;
            for chunk in body.as_bytes().chunks(700) {
                wire.sends(format!("{:x}\r\n", chunk.len())).await?;
                wire.sends(chunk).await?;
                wire.sends("\r\n").await?;
            }
            wire.sends("0\r\n\r\n").await?;
            wire.hears().await
        };
        assert!(chunked(&body(2000)).await?.starts_with("HTTP/1.1 200 "));
        let longer = chunked(&body(3000)).await?;
        assert!(
            longer.starts_with("HTTP/1.1 413 ") && longer.ends_with(r#"{"error":"Payload too large"}"#),
            "{longer}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_configured_limit_is_the_one_that_counts() {
    let limit = 3 << 20;
    run_test(plain().webhook(&format!("max_body_bytes: {limit}")), async |t| -> Result<()> {
        let body = format!("\"{}\"", "x".repeat(limit - 2));
        assert_eq!(t.webhooks.signed("plain", &[], body.as_str()).await?.status, 200);
        assert_eq!(t.webhooks.signed("plain", &[], body + " ").await?.parts(), too_large());

        let mut asks = Wire::connect(t).await?;
        asks.sends(head("plain", &format!("Content-Length: {}\r\nExpect: 100-continue", limit + 1), b"")).await?;
        let heard = asks.hears().await?;
        assert!(heard.starts_with("HTTP/1.1 413 "), "who asks first is told before it sends: {heard}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_length_that_lies_gets_nothing_in() {
    run_test(plain(), async |t| -> Result<()> {
        let mut shorter = Wire::connect(t).await?;
        shorter.sends(head("plain", "Content-Length: 2", b"{\"a\": 1}")).await?;
        shorter.sends("{\"a\": 1}").await?;
        assert!(shorter.hears().await?.starts_with("HTTP/1.1 401 "), "the signature covers what was announced");

        let mut longer = Wire::connect(t).await?;
        longer.sends(head("plain", "Content-Length: 9", b"{}")).await?;
        longer.sends("{}").await?;
        tokio::io::AsyncWriteExt::shutdown(&mut longer.0).await?;
        let heard = longer.hears().await?;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 400 "), "{heard}");

        for length in ["Content-Length: -1", "Content-Length: x", "Content-Length: 2\r\nContent-Length: 3"] {
            let mut wire = Wire::connect(t).await?;
            wire.sends(head("plain", length, b"{}")).await?;
            wire.sends("{}").await?;
            assert!(wire.hears().await?.starts_with("HTTP/1.1 400 "), "{length}");
        }
        assert!(states(t, "plain").await?.is_empty());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_sender_who_is_refused_hears_why_however_much_it_sends() {
    run_test(plain().webhook("max_body_bytes: 100000"), async |t| -> Result<()> {
        let body = "x".repeat(6 << 20);
        for (route, status) in [("plain", 413), ("none", 404)] {
            let answer = t.webhooks.post(route, &[], body.as_str()).await?;
            assert_eq!(answer.status, status);
        }
        // Without a length: the answer comes while the sender is still sending.
        let mut wire = Wire::connect(t).await?;
        wire.sends(head("plain", "Transfer-Encoding: chunked", b"")).await?;
        wire.sends(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).await?;
        assert!(wire.hears().await?.starts_with("HTTP/1.1 413 "));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_slow_body_is_waited_for_and_one_that_stops_is_given_up() {
    run_test(plain(), async |t| -> Result<()> {
        let mut slow = Wire::connect(t).await?;
        let mut stuck = Wire::connect(t).await?;
        slow.sends(head("plain", "Content-Length: 7", b"[1,2,3]")).await?;
        for byte in [b"[", b"1", b",", b"2", b",", b"3"] {
            slow.sends(byte).await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        slow.sends("]").await?;
        assert!(slow.hears().await?.starts_with("HTTP/1.1 200 "));

        stuck.sends(head("plain", "Content-Length: 7", b"[1,2,3]")).await?;
        stuck.sends("[1,").await?;
        t.webhooks.get("/health").await?; // By now the head has been read.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(31)).await;
        tokio::time::resume();
        let heard = stuck.hears().await?;
        assert!(heard.starts_with("HTTP/1.1 400 ") && heard.ends_with(r#"{"error":"Bad request"}"#), "{heard}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_rate_limit_counts_verified_new_deliveries_of_one_route() {
    let world = World::default()
        .route(&route("busy", "prompt: x, deliver: log, deliver_only: true, events: [push, unknown]"))
        .route(&route("other", "prompt: x, deliver: log, deliver_only: true"))
        .route(&route("five", "prompt: x, deliver: log, deliver_only: true, rate_limit: 5"));
    run_test(world, async |t| -> Result<()> {
        let post = async |route: &str, id: &str| t.webhooks.signed(route, &[("x-request-id", id)], "{}").await;
        for n in 0..15 {
            assert_eq!(t.webhooks.post("busy", &[("x-request-id", "x")], "{}").await?.status, 401);
            let ignored = t
                .webhooks
                .signed("busy", &[("x-request-id", &format!("i{n}")), ("x-github-event", "ping")], "{}")
                .await?;
            assert_eq!(ignored.parts().1["status"], "ignored");
            assert_eq!(post("busy", &n.to_string()).await?.status, 200);
            assert_eq!(post("busy", &n.to_string()).await?.parts().1["status"], "duplicate");
        }
        let refused = post("busy", "31st").await?;
        assert_json(&refused);
        assert_eq!(refused.parts(), (429, json!({"error": "Rate limit exceeded"})), "W39: 15 delivered, 15 ignored");
        assert!((50..=60).contains(&retry_after(&refused)), "{:?}", refused.headers);
        assert_eq!(post("busy", "3").await?.parts(), (200, json!({"status": "duplicate", "delivery_id": "3"})));
        let conflict = t.webhooks.signed("busy", &[("x-request-id", "3")], "[]").await?;
        assert_eq!(conflict.status, 409, "what is known is answered as such");
        assert_eq!(t.webhooks.post("busy", &[], "{}").await?.status, 401, "the signature comes first");
        assert_eq!(post("other", "31st").await?.status, 200, "another route has its own");
        for n in 0..6 {
            assert_eq!(post("five", &n.to_string()).await?.status, if n < 5 { 200 } else { 429 });
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_bad_signatures_is_slowed_down_and_blocks_nobody() {
    let world = plain()
        .setting("limits: {failed_signatures_per_minute: 3}")
        .webhook("trusted_proxies: ['127.0.0.1', '10.0.0.1']");
    run_test(world, async |t| -> Result<()> {
        let bad = async |headers: &[(&str, &str)]| t.webhooks.post("plain", headers, "{}").await;
        let from = |address: &'static str| [("x-forwarded-for", address)];
        for _ in 0..3 {
            assert_eq!(bad(&from("203.0.113.9")).await?.parts(), unsigned());
        }
        let slowed = bad(&from("203.0.113.9")).await?;
        assert_json(&slowed);
        assert_eq!(slowed.parts(), (429, json!({"error": "Rate limit exceeded"})));
        assert!((50..=60).contains(&retry_after(&slowed)));
        assert_eq!(t.webhooks.signed("plain", &from("203.0.113.9"), "{}").await?.status, 200, "what verifies gets in");
        assert_eq!(bad(&from("203.0.113.8")).await?.status, 401, "another client has its own");
        assert_eq!(bad(&from("203.0.113.9, 10.0.0.1")).await?.status, 429, "through two proxies it is the same client");
        assert_eq!(
            bad(&from("203.0.113.9, 203.0.113.7")).await?.status,
            401,
            "what a client claims of others does not count"
        );
        assert!(t.log.text().contains("client=203.0.113.9"));
        Ok(())
    })
    .await;
    let world = plain().setting("limits: {failed_signatures_per_minute: 3}");
    run_test(world, async |t| -> Result<()> {
        for n in 0..4 {
            let claimed = format!("203.0.113.{n}");
            let answer = t.webhooks.post("plain", &[("x-forwarded-for", &claimed)], "{}").await?;
            assert_eq!(answer.status, if n < 3 { 401 } else { 429 }, "without a trusted proxy the header is nothing");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_answer_does_not_wait_for_the_model() {
    run_test(
        World::default().route(&route("slow", "prompt: x, deliver: log")).setting("drain_timeout: 0"),
        async |t| -> Result<()> {
            t.model.hangs();
            let began = Instant::now();
            assert_eq!(t.webhooks.signed("slow", &[], "{}").await?.status, 202);
            assert!(began.elapsed() < Duration::from_secs(1));
            t.model.is_asked(1).await;
            t.stop().await?;
            Ok(())
        },
    )
    .await;
}

#[tokio::test]
async fn a_sender_that_hangs_up_at_once_has_sent_its_delivery_all_the_same() {
    run_test(World::default(), async |t| -> Result<()> {
        let body = r#"{"action":"opened","issue":{"number":5,"title":"T"}}"#;
        t.model.says("Heard.").says("Heard too.");
        let length = format!("Content-Length: {}\r\nX-GitHub-Delivery: gone", body.len());
        let mut wire = Wire::connect(t).await?;
        wire.sends(head("github", &length, body.as_bytes()) + body).await?;
        drop(wire);
        assert_eq!(t.telegram.alice().hears().await?.text, "Heard.");

        // And one that only closes its own side still gets its answer.
        let mut wire = Wire::connect(t).await?;
        wire.sends(head("github", &length.replace("gone", "half"), body.as_bytes()) + body).await?;
        tokio::io::AsyncWriteExt::shutdown(&mut wire.0).await?;
        let heard = wire.hears().await?;
        assert!(heard.starts_with("HTTP/1.1 202 "), "{heard}");
        assert_eq!(t.telegram.alice().hears().await?.text, "Heard too.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn while_the_gateway_stops_senders_are_asked_to_come_again() {
    run_test(
        World::default().route(&route("plain", "prompt: x, deliver: log, deliver_only: true")),
        async |t| -> Result<()> {
            t.model.holds("Last words.");
            t.telegram.alice().says("Wait for it");
            t.model.is_asked(1).await;
            t.gateway.drain();
            let answer = t.webhooks.signed("plain", &[("x-request-id", "late")], "{}").await?;
            assert_json(&answer);
            assert_eq!(answer.parts(), (503, json!({"error": "The gateway is stopping"})));
            assert!(retry_after(&answer) > 0);
            t.model.release();
            assert_eq!(t.telegram.alice().hears().await?.text, "Last words.");
            assert!(states(t, "plain").await?.is_empty(), "nothing was stored");
            t.live_again(World::default().route(&route("plain", "prompt: x, deliver: log, deliver_only: true")))
                .await?;
            assert_eq!(t.webhooks.signed("plain", &[("x-request-id", "late")], "{}").await?.status, 200);
            Ok(())
        },
    )
    .await;
}

#[tokio::test]
async fn bodies_that_nobody_verified_take_bounded_memory() {
    run_test(plain(), async |t| -> Result<()> {
        let length = 1_000_000;
        let almost = vec![b' '; length - 1];
        let mut wires = Vec::new();
        for _ in 0..75 {
            let mut wire = Wire::connect(t).await?;
            wire.sends(head("plain", &format!("Content-Length: {length}"), b"")).await?;
            wire.sends(&almost).await?;
            wires.push(wire);
        }
        // More than fits is refused at once; the others wait for their last byte.
        let heard =
            tokio::time::timeout(Duration::from_secs(10), select_all(wires.into_iter().map(|w| w.hears().boxed())));
        let (refused, _, waiting) = heard.await?;
        let refused = refused?;
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 5"), "{refused}");
        assert!(refused.ends_with(r#"{"error":"The gateway is busy"}"#), "{refused}");
        assert_eq!(t.webhooks.signed("plain", &[], "{}").await?.status, 200, "a small one still fits");
        drop(waiting);
        let large = format!("\"{}\"", "x".repeat(900_000));
        let deadline = Instant::now() + Duration::from_secs(5);
        while t.webhooks.signed("plain", &[("x-request-id", "r")], large.as_str()).await?.status == 503 {
            ensure!(Instant::now() < deadline, "it is not given back");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    run_test(plain(), async |t| -> Result<()> {
        let mut wire = Wire::connect(t).await?;
        wire.sends(head("plain", &format!("X-Long: {}", "x".repeat(200_000)), b"{}")).await?;
        let heard = wire.hears().await?;
        assert!(heard.starts_with("HTTP/1.1 431 "), "{heard}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_delivery_that_cannot_be_stored_is_not_accepted_and_may_come_again() {
    use sqlx::Connection as _;
    let world = World::default().route(&route("plain", "prompt: x, deliver: log, rate_limit: 2"));
    run_test(world, async |t| -> Result<()> {
        t.expect_error("The store failed.");
        let url = format!("sqlite:{}", t.file("hookgate.db").display());
        let mut other = sqlx::SqliteConnection::connect(&url).await?;
        let refuse = "create trigger refuse before insert on deliveries begin select raise(abort, 'no'); end";
        sqlx::query(refuse).execute(&mut other).await?;
        for _ in 0..3 {
            let answer = t.webhooks.signed("plain", &[("x-request-id", "r")], "{}").await?;
            assert_json(&answer);
            assert_eq!(answer.parts(), (503, json!({"error": "The gateway cannot store now"})));
            assert!(retry_after(&answer) > 0);
        }
        sqlx::query("drop trigger refuse").execute(&mut other).await?;
        t.model.says("[SILENT]");
        assert_eq!(t.webhooks.signed("plain", &[("x-request-id", "r")], "{}").await?.status, 202, "nor was it counted");
        t.model.is_asked(1).await;
        Ok(())
    })
    .await;
}
