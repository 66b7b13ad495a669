//! The Telegram adapter against the fake Bot API: what it hears, what it says, and what it does when things break.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use async_trait::async_trait;
use hookgate_adapters::{
    Adapter, AdapterState, ChatTarget, Inbound, InboundMessage, NotAccepted, OutboundMessage, Part, Platform,
    ReplyToMode, SendError, TelegramAdapter, TelegramOptions,
};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::fake_telegram::{BOT_ID, FakeTelegram, Fault, TOKEN};

/// The gateway's side: takes messages one by one, as far as it is allowed to.
struct Gateway {
    accepted: mpsc::UnboundedSender<InboundMessage>,
    refusals: Mutex<usize>,
    /// One permit for each message that may be accepted.
    allowed: Semaphore,
}

#[async_trait]
impl Inbound for Gateway {
    async fn accept(&self, message: InboundMessage) -> Result<(), NotAccepted> {
        {
            let mut refusals = self.refusals.lock().unwrap();
            if *refusals > 0 {
                *refusals -= 1;
                return Err(NotAccepted("the disk is full".to_owned()));
            }
        }
        self.allowed.acquire().await.unwrap().forget();
        self.accepted.send(message).map_err(|_| NotAccepted("the test is over".to_owned()))
    }
}

/// An adapter that listens to the fake.
struct Line {
    telegram: FakeTelegram,
    adapter: Arc<TelegramAdapter>,
    gateway: Arc<Gateway>,
    accepted: mpsc::UnboundedReceiver<InboundMessage>,
    stop: CancellationToken,
    listening: Option<JoinHandle<()>>,
}

fn options(telegram: &FakeTelegram) -> TelegramOptions {
    TelegramOptions {
        base_url: telegram.base_url(),
        poll_timeout: Duration::from_secs(1),
        first_retry: Duration::from_millis(10),
        longest_retry: Duration::from_millis(40),
        send_timeout: Duration::from_millis(400),
        ..TelegramOptions::new(TOKEN.into())
    }
}

impl Line {
    /// Set up, not yet listening.
    fn new(telegram: &FakeTelegram, options: TelegramOptions) -> Self {
        let (accepted_tx, accepted) = mpsc::unbounded_channel();
        let gateway = Gateway { accepted: accepted_tx, refusals: Mutex::new(0), allowed: Semaphore::new(1000) };
        Self {
            telegram: telegram.clone(),
            adapter: Arc::new(TelegramAdapter::new(options).unwrap()),
            gateway: Arc::new(gateway),
            accepted,
            stop: CancellationToken::new(),
            listening: None,
        }
    }

    async fn open(telegram: &FakeTelegram) -> Result<Self> {
        let mut line = Self::new(telegram, options(telegram));
        line.listen();
        line.becomes(AdapterState::Connected).await?;
        Ok(line)
    }

    fn listen(&mut self) {
        self.stop = CancellationToken::new();
        let (adapter, gateway, stop) = (Arc::clone(&self.adapter), Arc::clone(&self.gateway), self.stop.clone());
        self.listening = Some(tokio::spawn(async move { adapter.listen(gateway, stop).await }));
    }

    async fn stop(&mut self) -> Result<()> {
        self.stop.cancel();
        if let Some(listening) = self.listening.take() {
            tokio::time::timeout(Duration::from_secs(2), listening).await??;
        }
        Ok(())
    }

    /// Waits for the state and returns the error that goes with it.
    async fn becomes(&self, state: AdapterState) -> Result<String> {
        let mut status = self.adapter.watch_status();
        let reached =
            tokio::time::timeout(Duration::from_secs(4), status.wait_for(|status| status.state == state)).await;
        let status = reached.map_err(|_| anyhow::anyhow!("never {state:?}: {:?}", self.adapter.status()))??;
        Ok(status.error.clone().unwrap_or_default())
    }

    async fn hears(&mut self) -> Result<InboundMessage> {
        let message = tokio::time::timeout(Duration::from_secs(4), self.accepted.recv()).await;
        let message = message.map_err(|_| anyhow::anyhow!("heard nothing; calls: {:#?}", self.telegram.calls()))?;
        message.ok_or_else(|| anyhow::anyhow!("the gateway is gone"))
    }

    async fn says(&self, message: OutboundMessage) -> Result<String, SendError> {
        self.adapter.send(&message).await
    }

    async fn everything_is_confirmed(&self) -> Result<()> {
        self.telegram.wait_until("all updates are confirmed", |fake| fake.unconfirmed().is_empty()).await
    }
}

fn to(chat_id: &str) -> ChatTarget {
    ChatTarget {
        platform: Platform::Telegram,
        account: BOT_ID.to_string(),
        chat_id: chat_id.to_string(),
        thread_id: None,
    }
}

/// A reply of one part to Alice.
fn reply(formatted: &str, plain: &str) -> OutboundMessage {
    let part = Part { formatted: formatted.to_owned(), plain: plain.to_owned(), buttons: Vec::new() };
    OutboundMessage { target: to("7"), part, reply_to: None, nonce: "n1".to_owned(), marked: false }
}

fn hello() -> OutboundMessage {
    reply("<b>hello</b>", "hello")
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Everything logged on this thread from now on, at every level and by every crate.
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        (log, subscriber.with_writer(move || writer.clone()).finish().set_default())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[tokio::test]
async fn a_message_is_heard_answered_and_confirmed() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut line = Line::open(&telegram).await?;
    let said = telegram.alice().says("hi");
    let heard = line.hears().await?;
    assert_eq!(
        (heard.text.as_str(), heard.message_id.as_str(), heard.source.chat_id.as_str(), heard.source.account.as_str()),
        ("hi", said.message_id.to_string().as_str(), "7", "")
    );
    assert_eq!(heard.dedup_key, format!("telegram:{BOT_ID}:{}", said.update_id));

    line.adapter.typing(&heard.source.reply_target()).await;
    let part = line.adapter.split("**hello** & `you`").remove(0);
    let answer = OutboundMessage { part, reply_to: Some(heard.message_id), ..hello() };
    let id = line.says(answer).await?;

    let seen = telegram.alice().hears().await?;
    assert_eq!(
        (seen.text.as_str(), seen.reply_to, seen.message_id.to_string()),
        ("hello & you", Some(said.message_id), id)
    );
    assert_eq!(seen.entities.iter().map(|entity| entity.kind).collect::<Vec<_>>(), ["bold", "code"]);
    assert_eq!(telegram.typing_count(7), 1);

    telegram.alice().replies(&seen, "thanks");
    let quoted = line.hears().await?.quoted.unwrap();
    assert_eq!((quoted.text.as_deref(), quoted.is_own), (Some("hello & you"), true));
    line.everything_is_confirmed().await?;
    line.stop().await
}

#[tokio::test]
async fn the_offset_waits_for_the_message_to_be_stored() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut line = Line::new(&telegram, options(&telegram));
    line.gateway.allowed.forget_permits(1000);
    let ids: Vec<_> = ["one", "two", "three"].map(|text| telegram.alice().says(text).update_id).to_vec();
    line.listen();
    line.becomes(AdapterState::Connected).await?;
    line.gateway.allowed.add_permits(1);
    assert_eq!(line.hears().await?.text, "one");
    tokio::task::yield_now().await;
    assert_eq!(telegram.unconfirmed(), ids, "nothing is confirmed while the batch is not stored");
    assert_eq!(telegram.calls_of("getUpdates").len(), 1, "and nothing more is asked for");

    // Stopped in the middle: what was stored is confirmed, the rest is offered again.
    line.stop.cancel();
    line.gateway.allowed.add_permits(1);
    assert_eq!(line.hears().await?.text, "two");
    line.stop().await?;
    assert_eq!(telegram.unconfirmed(), ids[2..]);

    line.gateway.allowed.add_permits(1);
    line.listen();
    assert_eq!(line.hears().await?.text, "three");
    line.everything_is_confirmed().await?;
    line.stop().await
}

#[tokio::test]
async fn a_message_that_cannot_be_stored_is_offered_again_before_the_next() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut line = Line::open(&telegram).await?;
    *line.gateway.refusals.lock().unwrap() = 4;
    telegram.alice().says("one");
    telegram.mallory().says("two");
    let error = line.becomes(AdapterState::Connecting).await?;
    assert!(error.contains("the disk is full"), "{error}");
    assert_eq!((line.hears().await?.text, line.hears().await?.text), ("one".to_owned(), "two".to_owned()));
    line.becomes(AdapterState::Connected).await?;
    line.everything_is_confirmed().await?;
    line.stop().await
}

#[tokio::test]
async fn a_stop_leaves_nothing_to_be_heard_twice() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut line = Line::open(&telegram).await?;
    for count in 0..20 {
        telegram.alice().says(&format!("/restart {count}"));
        assert_eq!(line.hears().await?.text, format!("/restart {count}"));
        line.stop().await?;
        assert!(telegram.unconfirmed().is_empty());
        line.listen();
    }
    line.stop().await?;
    assert_eq!(telegram.overlaps(), 0);
    Ok(())
}

#[tokio::test]
async fn polls_never_overlap_whatever_breaks() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut line = Line::open(&telegram).await?;
    let internal = Fault::Refuse(500, "Internal Server Error".to_owned());
    let ways = [Fault::DropBefore, Fault::Page(502), internal, Fault::DropAfter, Fault::Garbage, Fault::RetryAfter(0)];
    for (count, fault) in ways.iter().cycle().take(12).enumerate() {
        telegram.fail("getUpdates", [fault.clone()]);
        // Wakes the poll that waits, so that the next one meets the fault.
        telegram.alice().says(&count.to_string());
        assert_eq!(line.hears().await?.text, count.to_string());
        line.everything_is_confirmed().await?;
    }
    line.becomes(AdapterState::Connected).await?;
    line.stop().await?;
    assert_eq!(telegram.overlaps(), 0);
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_wait_is_not_asked_without_a_pause() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let first_retry = Duration::from_millis(100);
    let mut line = Line::new(&telegram, TelegramOptions { first_retry, ..options(&telegram) });
    line.listen();
    telegram.wait_until("a poll waits", FakeTelegram::is_polled).await?;
    telegram.keep_failing("getUpdates", Fault::Empty);
    telegram.alice().says("wake up");
    line.hears().await?;
    let polls = || telegram.calls_of("getUpdates");
    let before = polls().len();
    telegram.wait_until("it was asked again", |fake| fake.calls_of("getUpdates").len() >= before + 4).await?;
    for pair in polls()[before..].windows(2) {
        assert!(pair[1].at - pair[0].at >= first_retry, "{:?}", pair[1].at - pair[0].at);
    }
    telegram.heal("getUpdates");
    telegram.alice().says("still there?");
    assert_eq!(line.hears().await?.text, "still there?");
    line.becomes(AdapterState::Connected).await?;
    line.stop().await
}

#[tokio::test]
async fn a_dead_connection_is_noticed_and_replaced() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    // Long enough for the state in between to be seen.
    let first_retry = Duration::from_millis(200);
    let mut line = Line::new(&telegram, TelegramOptions { first_retry, ..options(&telegram) });
    line.listen();
    telegram.wait_until("a poll waits", FakeTelegram::is_polled).await?;
    telegram.fail("getUpdates", [Fault::HangBefore]);
    telegram.alice().says("wake up");
    line.hears().await?;
    telegram.alice().says("are you there?");
    let begun = Instant::now();
    line.says(hello()).await?;
    let error = line.becomes(AdapterState::Connecting).await?;
    assert!(error.contains("did not answer in time"), "{error}");
    assert_eq!(line.hears().await?.text, "are you there?");
    assert!(
        begun.elapsed() < Duration::from_millis(2500),
        "poll's timeout, grace and retry took {:?}",
        begun.elapsed()
    );
    line.becomes(AdapterState::Connected).await?;
    line.stop().await?;
    assert_eq!(telegram.overlaps(), 0);
    Ok(())
}

#[tokio::test]
async fn a_second_poller_is_named_and_outlived() -> Result<()> {
    let (log, _logging) = Log::start();
    let telegram = FakeTelegram::start().await;
    let mut line = Line::open(&telegram).await?;
    let conflict = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
    telegram.keep_failing("getUpdates", Fault::Refuse(409, conflict.to_owned()));
    telegram.alice().says("still there?");
    let error = line.becomes(AdapterState::Failed).await?;
    assert!(error.contains("another program") && error.contains("same token"), "{error}");
    let before = telegram.calls_of("getUpdates").len();
    telegram.wait_until("it was tried often", |fake| fake.calls_of("getUpdates").len() > before + 10).await?;
    assert_eq!(line.adapter.status().state, AdapterState::Failed);
    telegram.heal("getUpdates");
    assert_eq!(line.hears().await?.text, "still there?");
    line.becomes(AdapterState::Connected).await?;
    assert_eq!(log.text().matches("another program receives").count(), 1, "said once, not with each try");
    line.stop().await
}

#[tokio::test]
async fn a_start_without_the_service_ends_well_once_it_is_there() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    for method in ["getMe", "getWebhookInfo", "getUpdates"] {
        telegram.fail(method, [Fault::DropBefore, Fault::Page(502), Fault::Garbage, Fault::Page(404)]);
    }
    telegram.alice().says("early");
    let mut line = Line::open(&telegram).await?;
    assert_eq!(line.hears().await?.text, "early");
    line.stop().await
}

#[tokio::test]
async fn a_refused_token_is_told_and_tried_again() -> Result<()> {
    for token in ["123456:wrong", "wrong"] {
        let telegram = FakeTelegram::start().await;
        let mut line = Line::new(&telegram, TelegramOptions { token: token.into(), ..options(&telegram) });
        line.listen();
        let error = line.becomes(AdapterState::Failed).await?;
        assert_eq!(error, "Telegram refuses the bot token; check TELEGRAM_BOT_TOKEN (or the account's token)");
        telegram.wait_until("it is tried again", |fake| fake.calls_of("getMe").len() > 2).await?;
        assert_eq!(line.says(hello()).await, Err(SendError::NotSent(error)));
        line.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_foreign_webhook_is_removed_without_losing_what_waits() -> Result<()> {
    let (log, _logging) = Log::start();
    let telegram = FakeTelegram::start().await;
    telegram.register_webhook("https://n8n.example.org/hook/secret-path");
    telegram.alice().says("before");
    let mut line = Line::open(&telegram).await?;
    assert_eq!(line.hears().await?.text, "before");
    assert_eq!(telegram.webhook(), "");

    telegram.register_webhook("https://other.example.org/hook");
    telegram.alice().says("meanwhile");
    assert_eq!(line.hears().await?.text, "meanwhile");
    telegram.alice().says("after");
    assert_eq!(line.hears().await?.text, "after");
    line.everything_is_confirmed().await?;
    line.stop().await?;
    let log = log.text();
    assert!(log.contains("webhook at n8n.example.org") && log.contains("webhook at other.example.org"));
    assert!(!log.contains("secret-path"));
    Ok(())
}

#[tokio::test]
async fn updates_that_are_no_private_messages_are_passed_over() -> Result<()> {
    let (log, _logging) = Log::start();
    let telegram = FakeTelegram::start().await;
    for _ in 0..3 {
        telegram.push_update(
            "edited_message",
            &json!({"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "/new"}),
        );
        telegram.push_update("shipping_query", &json!({"id": "1"}));
        telegram.push_update("teleported_message", &json!([1, 2]));
        telegram.push_update("message", &json!({"no": "fields"}));
        telegram.alice().sends(json!({"text": "hi all", "chat": {"id": -100, "type": "plaza", "title": "News"}}));
        telegram.alice().sends(json!({"pinned_message": {}}));
        telegram.alice().sends(json!({"text": "beep", "from": {"id": 9, "is_bot": true, "first_name": "Bot"}}));
    }
    telegram.alice().sends(json!({"photo": [{"file_id": "x"}], "caption": "look"}));
    let mut line = Line::open(&telegram).await?;
    let heard = line.hears().await?;
    assert_eq!((heard.text.as_str(), heard.media[0].kind.as_str()), ("look", "photo"));
    line.everything_is_confirmed().await?;
    line.stop().await?;
    let log = log.text();
    for once in [
        "again: edited_message",
        "again: shipping_query",
        "again: teleported_message",
        "again: unreadable message",
        "again: messages in chat -100",
        "again: message with pinned_message",
    ] {
        assert_eq!(log.matches(once).count(), 1, "{once} in {log}");
    }
    Ok(())
}

#[tokio::test]
async fn what_waited_too_long_is_skipped_and_counted() -> Result<()> {
    let (log, _logging) = Log::start();
    let telegram = FakeTelegram::start().await;
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    for count in 0..130 {
        telegram.alice().sends(json!({"text": "old", "date": now - 7200 - count}));
    }
    telegram.alice().sends(json!({"text": "young enough", "date": now - 3000}));
    let limit = Duration::from_secs(3600);
    let mut line = Line::new(&telegram, TelegramOptions { max_update_age: limit, ..options(&telegram) });
    line.listen();
    assert_eq!(line.hears().await?.text, "young enough");
    line.everything_is_confirmed().await?;
    line.stop().await?;
    let log = log.text();
    assert_eq!(log.matches("skipped").count(), 1);
    assert!(log.contains("skipped 130 waiting messages older than 3600 s"), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_clock_that_is_wrong_skips_nothing() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let days = 24 * 3600;
    telegram.alice().sends(json!({"text": "three days", "date": now - 3 * days}));
    let mut line = Line::new(&telegram, options(&telegram));
    line.listen();
    assert_eq!(line.hears().await?.text, "three days", "Telegram keeps nothing for so long");
    line.everything_is_confirmed().await?;
    telegram.wait_until("a long poll waits", FakeTelegram::is_polled).await?;
    telegram.alice().sends(json!({"text": "live", "date": now - days - 3600}));
    assert_eq!(line.hears().await?.text, "live", "only what waited for the start can be too old");
    line.everything_is_confirmed().await?;
    line.stop().await
}

#[tokio::test]
async fn the_outcome_of_a_send_is_told_exactly() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let line = Line::new(&telegram, options(&telegram));
    telegram.fail("sendMessage", [Fault::RetryAfter(37)]);
    assert_eq!(line.says(hello()).await, Err(SendError::RetryAfter(Duration::from_secs(37))));
    assert_eq!(telegram.sent().len(), 0);

    let internal = Fault::Refuse(500, "Internal Server Error".to_owned());
    for (fault, arrives) in [
        (Fault::DropBefore, false),
        (Fault::DropAfter, true),
        (Fault::HangBefore, false),
        (Fault::HangAfter, true),
        (Fault::Page(502), false),
        (internal, false),
        (Fault::Garbage, true),
    ] {
        let before = telegram.sent().len();
        telegram.fail("sendMessage", [fault.clone()]);
        let begun = Instant::now();
        let outcome = line.says(hello()).await;
        assert!(matches!(outcome, Err(SendError::Unknown(_) | SendError::Failing(_))), "{fault:?}: {outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{fault:?} took {:?}", begun.elapsed());
        assert_eq!(telegram.sent().len() - before, usize::from(arrives), "{fault:?}");
    }
    telegram.fail("sendMessage", [Fault::Page(404)]);
    assert!(matches!(line.says(hello()).await, Err(SendError::NotSent(_))));

    let nobody = TelegramOptions { base_url: "http://127.0.0.1:1".to_owned(), ..options(&telegram) };
    assert!(matches!(Line::new(&telegram, nobody).says(hello()).await, Err(SendError::NotSent(_))));
    Ok(())
}

#[tokio::test]
async fn what_is_refused_for_good_is_told_in_a_sentence() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let line = Line::new(&telegram, options(&telegram));
    telegram.mallory().blocks_the_bot();
    telegram.user(8, "Bob").deletes_the_account();
    for (chat, sentence) in [
        ("66", "Telegram says: Forbidden: bot was blocked by the user"),
        ("8", "Telegram says: Forbidden: user is deactivated"),
        ("5", "Telegram says: Bad Request: chat not found"),
        ("@nowhere", "Telegram says: Bad Request: chat not found"),
        ("Alice", "\"Alice\" is not a Telegram chat id"),
    ] {
        let refused = line.says(OutboundMessage { target: to(chat), ..hello() }).await;
        assert_eq!(refused, Err(SendError::Refused(sentence.to_owned())));
    }
    Ok(())
}

#[tokio::test]
async fn what_telegram_refuses_in_a_message_is_left_out() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let line = Line::new(&telegram, options(&telegram));
    let alice = telegram.alice();

    line.says(reply("<b>broken", "broken <b>")).await?;
    let seen = alice.hears().await?;
    assert_eq!((seen.text.as_str(), seen.parse_mode), ("broken <b>", None));

    let nowhere = ChatTarget { thread_id: Some("99".to_owned()), ..to("7") };
    line.says(OutboundMessage { target: nowhere, reply_to: Some("12345".to_owned()), ..reply("<b>", "all wrong") })
        .await?;
    let seen = alice.hears().await?;
    assert_eq!((seen.text.as_str(), seen.thread_id, seen.reply_to), ("all wrong", None, None));

    telegram.fail("sendMessage", [Fault::Refuse(400, "Bad Request: message to be replied not found".to_owned())]);
    line.says(OutboundMessage { reply_to: Some("1".to_owned()), ..hello() }).await?;
    assert_eq!(alice.hears().await?.text, "hello");

    telegram.open_topic(7, 3);
    line.says(OutboundMessage { target: ChatTarget { thread_id: Some("3".to_owned()), ..to("7") }, ..hello() }).await?;
    assert_eq!(alice.hears().await?.thread_id, Some(3));
    Ok(())
}

#[tokio::test]
async fn a_repeat_is_marked_and_an_anchor_can_be_turned_off() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let question = telegram.alice().says("?").message_id.to_string();
    let marked = || OutboundMessage { marked: true, reply_to: Some(question.clone()), ..hello() };
    Line::new(&telegram, options(&telegram)).says(marked()).await?;
    let seen = telegram.alice().hears().await?;
    assert_eq!((seen.text.as_str(), seen.reply_to.map(|id| id.to_string())), ("↻ hello", Some(question.clone())));

    let off = TelegramOptions { reply_to_mode: ReplyToMode::Off, ..options(&telegram) };
    Line::new(&telegram, off).says(marked()).await?;
    assert_eq!(telegram.alice().hears().await?.reply_to, None);
    Ok(())
}

#[tokio::test]
async fn long_replies_arrive_in_parts_that_join() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let line = Line::new(&telegram, options(&telegram));
    for text in ["😀".repeat(5000), "日本語".repeat(3000), format!("👨‍👩‍👧‍👦{}", "x".repeat(9000))]
    {
        let mut seen = String::new();
        for part in line.adapter.split(&text) {
            line.says(OutboundMessage { part, marked: true, ..hello() }).await?;
            seen += telegram.alice().hears().await?.text.strip_prefix("↻ ").unwrap();
        }
        assert_eq!(seen, text);
    }
    let code = format!("```py\n{}```\n", "x = 1\n".repeat(1500));
    for part in line.adapter.split(&code) {
        line.says(OutboundMessage { part, ..hello() }).await?;
        let entities = telegram.alice().hears().await?.entities;
        assert_eq!((entities.len(), entities[0].kind, entities[0].argument.as_deref()), (1, "pre", Some("py")));
    }
    Ok(())
}

#[tokio::test]
async fn typing_is_best_effort() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let line = Line::new(&telegram, options(&telegram));
    telegram.fail("sendChatAction", [Fault::HangBefore, Fault::RetryAfter(30)]);
    let begun = Instant::now();
    line.adapter.typing(&to("7")).await;
    assert!(begun.elapsed() < Duration::from_secs(2));
    line.adapter.typing(&to("7")).await;
    assert_eq!(telegram.typing_count(7), 2);
    Line::new(&telegram, TelegramOptions { typing: false, ..options(&telegram) }).adapter.typing(&to("7")).await;
    assert_eq!(telegram.typing_count(7), 2);
    Ok(())
}

#[tokio::test]
async fn the_token_is_in_no_log_error_or_status() -> Result<()> {
    let (log, _logging) = Log::start();
    let telegram = FakeTelegram::start().await;
    let leaky = || Fault::Refuse(400, format!("Bad Request: https://api.telegram.org/bot{TOKEN}/x"));
    let every = || [Fault::DropBefore, Fault::HangBefore, Fault::Page(502), Fault::Page(301), Fault::Garbage, leaky()];
    let mut line = Line::new(&telegram, options(&telegram));
    let mut said = format!("{:?}", options(&telegram));
    for fault in every() {
        telegram.fail("sendMessage", [fault]);
        let error = line.says(hello()).await.unwrap_err();
        said += &format!("{error} {error:?} ");
    }
    telegram.fail("getMe", [Fault::DropBefore, Fault::Page(502), leaky()]);
    telegram.fail("getUpdates", every());
    line.listen();
    telegram.alice().says("hi");
    line.hears().await?;
    line.becomes(AdapterState::Connected).await?;
    line.stop().await?;
    for base_url in ["http://127.0.0.1:1", "http://no-such-host.invalid", "https://127.0.0.1:1"] {
        let mut dead = Line::new(&telegram, TelegramOptions { base_url: base_url.to_owned(), ..options(&telegram) });
        dead.listen();
        let status = dead.adapter.watch_status().wait_for(|status| status.error.is_some()).await?.clone();
        said += &format!("{status:?} {:?}", dead.says(hello()).await);
        dead.stop().await?;
    }
    let in_address = TelegramOptions { base_url: format!("ftp://bot{TOKEN}"), ..options(&telegram) };
    said += &TelegramAdapter::new(in_address).err().unwrap().to_string();
    let said = said + &log.text();
    assert!(said.contains("connected to Telegram") && said.contains("TRACE"), "the logs were captured");
    let secret = TOKEN.split_once(':').unwrap().1;
    assert!(!said.contains(secret), "{}", &said[said.find(secret).unwrap_or(0).saturating_sub(500)..]);
    Ok(())
}
