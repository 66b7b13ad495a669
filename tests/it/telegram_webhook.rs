//! Telegram's updates by webhook: posted by Telegram and nobody else, kept until they are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use hookgate_adapters::{
    Adapter, AdapterState, Button, ChatTarget, Inbound, InboundMessage, NotAccepted, OutboundMessage, Platform, Press,
    TelegramAdapter, TelegramOptions, WebhookOptions, with_buttons,
};
use reqwest::StatusCode;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::support::fake_telegram::{FakeTelegram, TOKEN};
use crate::support::world::{World, run_test};

const WEBHOOK_SECRET: &str = "the-webhook_secret-of-tests";

/// A port nobody listens on.
async fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port()
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/telegram/hook")
}

fn world(port: u16) -> World {
    World::default()
        .model_echoes()
        .env("TELEGRAM_WEBHOOK_URL", &url(port))
        .env("TELEGRAM_WEBHOOK_PORT", &port.to_string())
        .env("TELEGRAM_WEBHOOK_SECRET", WEBHOOK_SECRET)
}

#[tokio::test]
async fn what_telegram_posts_is_answered_and_what_others_post_is_not() {
    let port = free_port().await;
    run_test(world(port), async |t| {
        let set = t.telegram.calls_of("setWebhook").pop().unwrap().params;
        assert_eq!(set["url"], url(port));
        assert_eq!(set["secret_token"], WEBHOOK_SECRET);
        assert_eq!(set["allowed_updates"], json!(["message", "channel_post", "callback_query"]));
        assert_eq!((&set["drop_pending_updates"], &set["max_connections"]), (&json!(false), &json!(1)));
        let alice = t.telegram.alice();
        let said: Vec<i64> = (0..5).map(|n| alice.says(&format!("question {n}")).update_id).collect();
        for n in 0..5 {
            assert_eq!(alice.hears().await?.text, format!("echo: question {n}"));
        }
        assert_eq!(t.telegram.posted(), said.iter().map(|id| (*id, 200)).collect::<Vec<_>>());
        assert!(t.telegram.calls_of("getUpdates").is_empty());

        let client = reqwest::Client::builder().no_proxy().build()?;
        let forged = json!({"update_id": 1, "message": {
            "message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "first_name": "Alice"},
            "text": "/new",
        }});
        for secret in [None, Some(""), Some("the-webhook_secret-of-test"), Some("the-webhook_secret-of-testsx")] {
            let mut post = client.post(url(port)).json(&forged);
            if let Some(secret) = secret {
                post = post.header("X-Telegram-Bot-Api-Secret-Token", secret);
            }
            assert_eq!(post.send().await?.status(), StatusCode::UNAUTHORIZED, "{secret:?}");
        }
        let known =
            |request: reqwest::RequestBuilder| request.header("X-Telegram-Bot-Api-Secret-Token", WEBHOOK_SECRET).send();
        assert_eq!(known(client.get(url(port))).await?.status(), StatusCode::METHOD_NOT_ALLOWED);
        for nonsense in ["", "{", "[]", r#"{"update_id": "x"}"#, r#"{"update_id": 3}"#] {
            assert_eq!(known(client.post(url(port)).body(nonsense)).await?.status(), StatusCode::OK, "{nonsense}");
        }
        // Strangers that hold connections open do not keep Telegram out.
        let mut idle = Vec::new();
        for _ in 0..100 {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            stream.write_all(b"POST /tg HTTP/1.1\r\nHost: x\r\n").await?;
            idle.push(stream);
        }
        let answer = known(client.post(url(port)).body("{}").timeout(Duration::from_secs(3))).await?;
        assert_eq!(answer.status(), StatusCode::OK);
        drop(idle);
        let huge = "x".repeat(5 * 1024 * 1024);
        assert_eq!(known(client.post(url(port)).body(huge)).await?.status(), StatusCode::PAYLOAD_TOO_LARGE);
        t.idle().await?;
        assert_eq!(t.model.requests().len(), 5);
        assert!(!t.log.text().contains(WEBHOOK_SECRET));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_posted_while_the_gateway_is_down_waits_and_polling_takes_it_over() {
    let port = free_port().await;
    run_test(world(port), async |t| {
        let alice = t.telegram.alice();
        alice.says("by webhook");
        assert_eq!(alice.hears().await?.text, "echo: by webhook");
        t.stop().await?;
        assert_eq!(t.telegram.webhook(), url(port), "a stop leaves it registered");
        alice.says("meanwhile");
        t.live_again(World::default().echo()).await?;
        assert_eq!(alice.hears().await?.text, "meanwhile");
        assert_eq!(t.telegram.webhook(), "");
        alice.says("by polling");
        assert_eq!(alice.hears().await?.text, "by polling");
        Ok(())
    })
    .await;
}

/// Cannot store anything at first.
struct Slow {
    refusals: AtomicUsize,
    accepted_tx: mpsc::UnboundedSender<String>,
}

#[async_trait]
impl Inbound for Slow {
    async fn accept(&self, message: InboundMessage) -> Result<(), NotAccepted> {
        let refuses = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuses).is_ok() {
            return Err(NotAccepted("the disk is full".to_owned()));
        }
        self.accepted_tx.send(message.text).map_err(|_| NotAccepted("the test is over".to_owned()))
    }

    async fn pressed(&self, press: Press) -> Result<Option<String>, NotAccepted> {
        let refuses = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuses).is_ok() {
            return Err(NotAccepted("the disk is full".to_owned()));
        }
        let sent = self.accepted_tx.send(press.data).map_err(|_| NotAccepted("the test is over".to_owned()));
        sent.map(|()| Some("Noted.".to_owned()))
    }
}

#[tokio::test]
async fn an_update_that_cannot_be_stored_is_not_taken_and_a_foreign_webhook_is_replaced() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    telegram.register_webhook("https://n8n.example.org/hook");
    let said = [telegram.alice().says("one"), telegram.alice().says("two")].map(|said| said.update_id);
    let port = free_port().await;
    let webhook = WebhookOptions { url: url(port), host: "127.0.0.1".into(), port, secret: WEBHOOK_SECRET.into() };
    let options =
        TelegramOptions { base_url: telegram.base_url(), webhook: Some(webhook), ..TelegramOptions::new(TOKEN.into()) };
    let adapter = Arc::new(TelegramAdapter::new(options)?);
    let (accepted_tx, mut accepted) = mpsc::unbounded_channel();
    let inbound = Arc::new(Slow { refusals: AtomicUsize::new(2), accepted_tx });
    let stop = CancellationToken::new();
    let listening = {
        let (adapter, inbound, stop) = (Arc::clone(&adapter), Arc::clone(&inbound), stop.clone());
        tokio::spawn(async move { adapter.listen(inbound, stop).await })
    };
    assert_eq!((accepted.recv().await.as_deref(), accepted.recv().await.as_deref()), (Some("one"), Some("two")));
    telegram.wait_until("both are taken", |telegram| telegram.unconfirmed().is_empty()).await?;
    let answers = telegram.posted();
    assert_eq!(answers, [(said[0], 503), (said[0], 503), (said[0], 200), (said[1], 200)]);
    assert_eq!(adapter.status().state, AdapterState::Connected);
    assert_eq!(telegram.webhook(), url(port));

    // A press is kept until it is handled just as well, and answered once it is.
    inbound.refusals.store(1, Ordering::Relaxed);
    let card = Button::new("Yes", "y:1");
    let part = with_buttons(adapter.split("Sure?"), vec![vec![card]]).remove(0);
    let target =
        ChatTarget { platform: Platform::Telegram, account: String::new(), chat_id: "7".into(), thread_id: None };
    adapter.send(&OutboundMessage { target, part, reply_to: None, nonce: "n".into(), marked: false }).await?;
    let card = telegram.alice().hears().await?;
    let press = telegram.alice().begins_to_press(&card, "Yes")?;
    assert_eq!(telegram.answers(&press).await?.as_deref(), Some("Noted."));
    assert_eq!(accepted.recv().await.as_deref(), Some("y:1"));
    telegram.wait_until("the press is taken", |telegram| telegram.unconfirmed().is_empty()).await?;
    let update = press.update_id.unwrap_or_default();
    assert_eq!(telegram.posted()[4..], [(update, 503), (update, 200)]);
    stop.cancel();
    tokio::time::timeout(std::time::Duration::from_secs(2), listening).await??;
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_and_tried_again() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let taken = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = taken.local_addr()?.port();
    let webhook = WebhookOptions { url: url(port), host: "127.0.0.1".into(), port, secret: WEBHOOK_SECRET.into() };
    let options = TelegramOptions {
        base_url: telegram.base_url(),
        webhook: Some(webhook),
        first_retry: std::time::Duration::from_millis(10),
        longest_retry: std::time::Duration::from_millis(20),
        ..TelegramOptions::new(TOKEN.into())
    };
    let adapter = Arc::new(TelegramAdapter::new(options)?);
    let (accepted_tx, _accepted) = mpsc::unbounded_channel();
    let (inbound, stop) = (Slow { refusals: AtomicUsize::new(0), accepted_tx }, CancellationToken::new());
    let mut status = adapter.watch_status();
    let listening = {
        let (adapter, stop) = (Arc::clone(&adapter), stop.clone());
        tokio::spawn(async move { adapter.listen(Arc::new(inbound), stop).await })
    };
    let error = status.wait_for(|status| status.state == AdapterState::Failed).await?.error.clone();
    assert!(error.unwrap_or_default().contains(&format!("cannot listen on 127.0.0.1:{port}")));
    assert_eq!(telegram.webhook(), "", "nothing is registered that nobody would hear");
    drop(taken);
    status.wait_for(|status| status.state == AdapterState::Connected).await?;
    stop.cancel();
    tokio::time::timeout(std::time::Duration::from_secs(2), listening).await??;
    Ok(())
}
