//! `kill -9` at chosen points of a message's way, and the next start on the same home: each message is answered once, in
//! its chat and anchored to it, and what may have arrived already is repeated once and marked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::fake_model::FakeModel;
use crate::support::fake_telegram::{BotMessage, FakeTelegram, Fault, Said};
use crate::support::process::{Place, Process, survive};
use crate::support::sender::Sender;
use crate::support::world::World;

/// What a repeated message begins with.
const MARK: &str = "↻ ";
/// A route whose text is the message.
const NOTE: &str = "note: {secret: the-github-secret, deliver_only: true, prompt: '{text}', \
                    deliver: telegram, deliver_extra: {chat_id: '7'}}";

/// Waits until Telegram was asked so often to send.
async fn is_asked_to_send(place: &Place, times: usize) -> Result<()> {
    place.telegram.wait_until("a send came", |telegram| telegram.calls_of("sendMessage").len() >= times).await
}

#[track_caller]
fn assert_answers(heard: &BotMessage, text: &str, said: Said) {
    assert_eq!((heard.text.as_str(), heard.reply_to), (text, Some(said.message_id)));
}

#[tokio::test]
async fn killed_before_the_update_arrived() {
    survive(World::default(), async |t| {
        let said = t.telegram.alice().says("Hi");
        t.telegram.fail("getUpdates", [Fault::HangAfter]);
        let first = t.start().await?;
        t.telegram.wait_until("the update went out", |telegram| !telegram.calls_of("getUpdates").is_empty()).await?;
        first.kill()?;

        t.model.says("Hello Alice.");
        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_before_the_message_was_stored() {
    survive(World::default(), async |t| {
        let first = t.start_listening().await?;
        let mut other = t.database().await?;
        sqlx::query("begin immediate").execute(&mut other).await?;
        let said = t.telegram.alice().says("Hi");
        t.telegram.wait_until("the update went out", |telegram| !telegram.is_polled()).await?;
        assert_eq!(t.telegram.unconfirmed(), [said.update_id], "nothing is confirmed before it is stored");
        first.kill()?;
        drop(other);
        assert_eq!(t.number("select count(*) from inbox").await?, 0);

        t.model.says("Hello Alice.");
        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_at_any_moment_around_the_store() {
    survive(World::default().echo(), async |t| {
        let mut asked = Vec::new();
        for delay in [0, 1, 2, 4, 6, 8, 12, 16, 24] {
            let process = t.start_listening().await?;
            let text = format!("after {delay} ms");
            asked.push((t.telegram.alice().says(&text), text));
            tokio::time::sleep(Duration::from_millis(delay)).await;
            process.kill()?;
        }
        let last = t.start_listening().await?;
        t.rests().await?;
        last.kill()?;
        let heard = read_all(t, 7).await?;
        for (said, text) in &asked {
            let answers: Vec<_> = heard.iter().filter(|heard| heard.reply_to == Some(said.message_id)).collect();
            assert_once(&answers, text, asked.len());
        }
        assert_in_order(&heard);
        Ok(())
    })
    .await;
}

/// Everything a chat was sent; it counts as heard.
async fn read_all(place: &Place, chat_id: i64) -> Result<Vec<BotMessage>> {
    let sent: Vec<BotMessage> = place.telegram.sent().into_iter().filter(|sent| sent.chat_id == chat_id).collect();
    for _ in &sent {
        place.telegram.user(chat_id, "").hears().await?;
    }
    Ok(sent)
}

/// At most once unmarked, and with the mark at most once per kill.
#[track_caller]
fn assert_once(answers: &[&BotMessage], text: &str, kills: usize) {
    let marked = answers.iter().filter(|answer| answer.text.starts_with(MARK)).count();
    let unmarked = answers.len() - marked;
    assert!(!answers.is_empty(), "{text:?} was not answered");
    assert!(unmarked <= 1, "{text:?} was answered again without a mark: {answers:?}");
    assert!(marked <= kills, "{text:?} was repeated more often than there were kills: {answers:?}");
    assert!(answers.iter().all(|answer| answer.text.trim_start_matches(MARK) == text), "{answers:?}");
}

#[track_caller]
fn assert_in_order(heard: &[BotMessage]) {
    let anchors: Vec<_> = heard.iter().filter_map(|heard| heard.reply_to).collect();
    assert!(anchors.is_sorted(), "answers out of order: {heard:?}");
}

#[tokio::test]
async fn killed_while_messages_wait_for_their_turn() {
    let world = World::default().env("TELEGRAM_ALLOWED_USERS", "7,8").setting("limits: {turns: 1}");
    survive(world, async |t| {
        t.model.holds("never said");
        let (alice, bob) = (t.telegram.alice(), t.telegram.user(8, "Bob"));
        let first = t.start_listening().await?;
        let from_bob = bob.says("long question");
        t.model.is_asked(1).await;
        let from_alice = [alice.says("one"), alice.says("two"), alice.says("three")];
        t.telegram.wait_until("all are stored", |telegram| telegram.unconfirmed().is_empty()).await?;
        first.kill()?;

        let second = start_with_answers(t, 4).await?;
        assert_answers(&bob.hears().await?, "re: long question", from_bob);
        for (said, text) in from_alice.into_iter().zip(["re: one", "re: two", "re: three"]) {
            assert_answers(&alice.hears().await?, text, said);
        }
        t.rests().await?;
        second.kill()
    })
    .await;
}

/// Starts with a model that answers this many questions with `re: ` and the question.
async fn start_with_answers(place: &Place, questions: usize) -> Result<Process> {
    (0..questions).for_each(|_| {
        place.model.repeats("re: ");
    });
    place.start_listening().await
}

#[tokio::test]
async fn killed_during_the_model_call() {
    survive(World::default(), async |t| {
        t.model.holds("never said");
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Hi");
        t.model.is_asked(1).await;
        first.kill()?;

        t.model.says("Hello Alice.");
        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        t.rests().await?;
        assert_eq!(t.model.was_told(), ["Hi", "Hi"]);
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_in_the_middle_of_the_models_words() {
    survive(World::default(), async |t| {
        t.model.says_slowly("word by word and never to the end", Duration::from_secs(1));
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Hi");
        t.model.is_asked(1).await;
        first.kill()?;

        t.model.says("Hello Alice.");
        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_while_an_answer_waits_to_be_sent() {
    survive(World::default(), async |t| {
        t.model.says("Hello Alice.");
        t.telegram.fail("sendMessage", [Fault::RetryAfter(60)]);
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Hi");
        is_asked_to_send(t, 1).await?;
        t.stored("select count(*) from outbox where state = 'waiting' and attempts = 1").await?;
        first.kill()?;
        // What Telegram asked for outlives the kill; here it is over.
        t.change("update outbox set not_before = 0").await?;

        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        t.rests().await?;
        assert_eq!(t.model.was_told(), ["Hi"], "the model is not asked again");
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn a_wait_that_telegram_asked_for_outlives_a_kill() {
    survive(World::default(), async |t| {
        t.model.says("Hello Alice.");
        t.telegram.fail("sendMessage", [Fault::RetryAfter(2)]);
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Hi");
        is_asked_to_send(t, 1).await?;
        t.stored("select count(*) from outbox where state = 'waiting' and attempts = 1").await?;
        first.kill()?;

        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        let calls = t.telegram.calls_of("sendMessage");
        assert!(calls[1].at - calls[0].at >= Duration::from_secs(2), "sent before Telegram allowed it");
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_between_two_parts_of_an_answer() {
    survive(World::default(), async |t| {
        let (one, two) = ("a".repeat(4000), "b".repeat(4000));
        t.model.says(&format!("{one}\n\n{two}"));
        t.telegram.fail("sendMessage", [Fault::Nothing, Fault::RetryAfter(1)]);
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Tell me much");
        is_asked_to_send(t, 2).await?;
        t.stored("select count(*) from outbox where state = 'waiting' and attempts = 1").await?;
        first.kill()?;

        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, &one, said);
        assert_eq!(t.telegram.alice().hears().await?.text, two);
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_after_telegram_took_it_and_before_it_said_so() {
    survive(World::default(), async |t| {
        t.model.says("Hello Alice.").says("Fine.");
        t.telegram.fail("sendMessage", [Fault::HangAfter]);
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Hi");
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        first.kill()?;

        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "↻ Hello Alice.", said);
        t.rests().await?;
        second.kill()?;
        // Once: the next start says nothing, and the next question gets its own answer.
        let third = t.start_listening().await?;
        let said = t.telegram.alice().says("How are you?");
        assert_answers(&t.telegram.alice().hears().await?, "Fine.", said);
        t.rests().await?;
        third.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_before_telegram_took_what_was_being_sent() {
    survive(World::default(), async |t| {
        let (one, two) = ("a".repeat(4000), "b".repeat(4000));
        t.model.says(&format!("{one}\n\n{two}"));
        t.telegram.fail("sendMessage", [Fault::HangBefore]);
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Hi");
        is_asked_to_send(t, 1).await?;
        first.kill()?;

        let second = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, &format!("↻ {one}"), said);
        assert_eq!(t.telegram.alice().hears().await?.text, two, "what was never tried is not marked");
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn a_held_send_is_listed_and_not_repeated() {
    survive(World::default().setting("uncertain_sends: hold"), async |t| {
        t.model.says("Hello Alice.").says("Fine.");
        t.telegram.fail("sendMessage", [Fault::HangAfter]);
        let first = t.start_listening().await?;
        let said = t.telegram.alice().says("Hi");
        assert_answers(&t.telegram.alice().hears().await?, "Hello Alice.", said);
        first.kill()?;

        let second = t.start_listening().await?;
        let said = t.telegram.alice().says("How are you?");
        assert_answers(&t.telegram.alice().hears().await?, "Fine.", said);
        t.rests().await?;
        let status = t.run(&["gateway", "status", "--json"]).await?;
        assert_eq!(status.json()?["outbox"], json!({ "waiting": 0, "uncertain": 1, "dead": 0 }));
        let status = t.run(&["gateway", "status"]).await?;
        assert!(status.out.contains("replies: 0 waiting, 1 uncertain, 0 dead"), "{status:?}");
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_while_a_webhook_is_delivered() {
    survive(World::default().route(NOTE), async |t| {
        t.telegram.fail("sendMessage", [Fault::HangBefore]);
        let body = json!({ "text": "disk 91% full" });
        let first = t.start_listening().await?;
        let sender = first.webhooks.clone();
        let pending = tokio::spawn({
            let body = body.clone();
            async move { sender.github("note", "alert", "d-1", &body).await }
        });
        is_asked_to_send(t, 1).await?;
        first.kill()?;
        assert!(pending.await?.is_err(), "the sender got no answer");

        let second = t.start_listening().await?;
        let again = second.webhooks.github("note", "alert", "d-1", &body).await?;
        assert_eq!(again.parts(), (200, json!({ "status": "duplicate", "delivery_id": "d-1" })));
        assert_eq!(t.telegram.alice().hears().await?.text, "↻ disk 91% full");
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_before_a_webhook_was_stored() {
    survive(World::default().route(NOTE), async |t| {
        let body = json!({ "text": "disk 91% full" });
        let first = t.start_listening().await?;
        let mut other = t.database().await?;
        sqlx::query("begin immediate").execute(&mut other).await?;
        let sender = first.webhooks.clone();
        let pending = tokio::spawn({
            let body = body.clone();
            async move { sender.github("note", "alert", "d-1", &body).await }
        });
        // Answered after it on the same listener, so the request is being handled.
        first.webhooks.get("/health").await?;
        first.kill()?;
        assert!(pending.await?.is_err(), "the sender got no answer");
        drop(other);

        let second = t.start_listening().await?;
        let again = second.webhooks.github("note", "alert", "d-1", &body).await?;
        assert_eq!((again.status, again.json::<serde_json::Value>()?["status"].clone()), (200, json!("delivered")));
        assert_eq!(t.telegram.alice().hears().await?.text, "disk 91% full");
        t.rests().await?;
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_while_a_model_answers_a_webhook() {
    survive(World::default(), async |t| {
        t.model.holds("never said");
        let body = json!({ "action": "opened", "issue": { "number": 7, "title": "It broke" } });
        let first = t.start_listening().await?;
        assert_eq!(first.webhooks.github("github", "issues", "d-1", &body).await?.status, 202);
        t.model.is_asked(1).await;
        first.kill()?;

        t.model.says("An issue was opened.");
        let second = t.start_listening().await?;
        let again = second.webhooks.github("github", "issues", "d-1", &body).await?;
        assert_eq!(again.parts(), (200, json!({ "status": "duplicate", "delivery_id": "d-1" })));
        assert_eq!(t.telegram.alice().hears().await?.text, "An issue was opened.");
        t.rests().await?;
        assert_eq!(t.number("select count(*) from deliveries where state = 'delivered'").await?, 1);
        second.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_around_a_new_session_it_begins_once() {
    survive(World::default().echo(), async |t| {
        let alice = t.telegram.alice();
        for (round, delay) in (1..).zip([0, 2, 5, 8, 12, 20]) {
            let process = t.start_listening().await?;
            let said = alice.says("remember this");
            t.rests().await?;
            assert_once(&read_new(t).await?.iter().collect::<Vec<_>>(), "remember this", 0);
            let new = alice.says("/new");
            tokio::time::sleep(Duration::from_millis(delay)).await;
            process.kill()?;

            let process = t.start_listening().await?;
            t.rests().await?;
            process.kill()?;
            let heard = read_new(t).await?;
            assert_once(&heard.iter().collect::<Vec<_>>(), "A new session has begun.", 1);
            assert!(heard.iter().all(|heard| heard.reply_to == Some(new.message_id)), "{said:?} {heard:?}");
            let ended = t.number("select count(*) from sessions where end_reason = 'reset'").await?;
            assert_eq!(ended, round, "each /new ends one session");
        }
        Ok(())
    })
    .await;
}

/// What Alice has not read yet.
async fn read_new(place: &Place) -> Result<Vec<BotMessage>> {
    let unread = place.telegram.unread();
    for _ in &unread {
        place.telegram.alice().hears().await?;
    }
    Ok(unread)
}

#[tokio::test]
async fn what_was_said_after_a_new_session_belongs_to_it() {
    survive(World::default(), async |t| {
        let alice = t.telegram.alice();
        for waits_in_the_store in [false, true, false, true] {
            t.model.repeats("re: ");
            let texts = ["/new", "and now?"];
            let said = if waits_in_the_store {
                wait_in_the_store(t, &texts).await?
            } else {
                texts.iter().map(|text| alice.says(text)).collect() // Both wait at Telegram.
            };
            let process = t.start_listening().await?;
            let heard = [alice.hears().await?, alice.hears().await?];
            assert_answers(&heard[0], "A new session has begun.", said[0]);
            assert_answers(&heard[1], "re: and now?", said[1]);
            t.rests().await?;
            process.kill()?;
            let asked = t.model.requests().pop().map(|asked| asked.body["messages"].clone()).unwrap_or_default();
            assert_eq!(asked.as_array().map(Vec::len), Some(2), "the old conversation is not told: {asked}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_message_that_kills_the_gateway_is_given_up_after_five_attempts_and_those_that_wait_are_not() {
    let world = World::default().env("TELEGRAM_ALLOWED_USERS", "7,8").setting("limits: {turns: 1}");
    survive(world, async |t| {
        let (alice, bob) = (t.telegram.alice(), t.telegram.user(8, "Bob"));
        let mut process = t.start_listening().await?;
        t.model.hangs();
        let deadly = bob.says("deadly");
        t.model.is_asked(1).await;
        let innocent = alice.says("innocent");
        t.telegram.wait_until("both are stored", |telegram| telegram.unconfirmed().is_empty()).await?;
        // Which of the two gets the one place at a start is open; the other does nothing but wait.
        while t.model.was_told().iter().filter(|told| *told == "deadly").count() < 5 {
            t.run(&["gateway", "status"]).await?; // By then the other has come to its wait.
            process.kill()?;
            let asked = t.model.requests().len();
            t.model.hangs();
            process = t.start_listening().await?;
            t.model.is_asked(asked + 1).await;
        }
        t.run(&["gateway", "status"]).await?;
        process.kill()?;
        let asked = t.model.requests().len();

        t.model.says("Of course.");
        let last = t.start_listening().await?;
        let heard = bob.hears().await?;
        assert_eq!(heard.reply_to, Some(deadly.message_id));
        insta::assert_snapshot!(heard, @"This message could not be answered: the gateway was interrupted 5 times while it worked on it. Please ask again, perhaps in other words.");
        assert_answers(&alice.hears().await?, "Of course.", innocent);
        t.rests().await?;
        assert_eq!(t.model.requests().len(), asked + 1, "it is not tried again");
        last.kill()
    })
    .await;
}

#[tokio::test]
async fn killed_again_and_again_at_its_start() {
    survive(World::default().echo(), async |t| {
        let said = wait_in_the_store(t, &["Hi"]).await?;
        let delays = [0, 5, 10, 20, 30, 40, 50, 60];
        for delay in delays {
            let process = t.spawn()?;
            tokio::time::sleep(Duration::from_millis(delay)).await;
            process.kill()?;
        }
        let last = t.start_listening().await?;
        t.rests().await?;
        last.kill()?;
        let heard = read_new(t).await?;
        assert_once(&heard.iter().collect::<Vec<_>>(), "Hi", delays.len());
        assert_eq!(heard[0].reply_to, Some(said[0].message_id));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_stored_message_that_cannot_be_read_stops_neither_the_start_nor_the_others() {
    survive(World::default().echo(), async |t| {
        let said = wait_in_the_store(t, &["unreadable", "readable"]).await?;
        t.change("update inbox set payload = '{}' where id = (select min(id) from inbox)").await?;
        let process = t.start_listening().await?;
        assert_answers(&t.telegram.alice().hears().await?, "readable", said[1]);
        assert!(t.log().contains("A stored message cannot be read and is left alone."));
        t.change("delete from inbox where payload = '{}'").await?;
        t.rests().await?;
        process.kill()
    })
    .await;
}

/// Alice says this to a gateway that stores it and gets no further before it is killed.
async fn wait_in_the_store(place: &Place, texts: &[&str]) -> Result<Vec<Said>> {
    place.start().await?.kill()?; // Makes the database.
    place.change("create trigger hold before update on inbox begin select raise(abort, 'held'); end").await?;
    let said = texts.iter().map(|text| place.telegram.alice().says(text)).collect();
    let process = place.start_listening().await?;
    place.telegram.wait_until("all are stored", |telegram| telegram.unconfirmed().is_empty()).await?;
    process.kill()?;
    place.change("drop trigger hold").await?;
    Ok(said)
}

/// The promise as a whole: signed webhooks and chat messages while the gateway is killed again and again. With
/// `HOOKGATE_ACCEPTANCE=full` in full size; `HOOKGATE_SEED` chooses the moments again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_under_load() {
    let seed = std::env::var("HOOKGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("HOOKGATE_SEED={seed}");
    let route = |name: &str, deliver_only: bool| {
        format!(
            "{name}: {{secret: the-github-secret, deliver_only: {deliver_only}, prompt: 'number {{id}}.', \
             deliver: telegram, deliver_extra: {{chat_id: '{{chat}}'}}}}"
        )
    };
    let world = World::default()
        .env("TELEGRAM_ALLOW_ALL_USERS", "true")
        .webhook("rate_limit: 1000000")
        .route(&route("note", true))
        .route(&route("ask", false));
    let place = Place::with(&world, FakeTelegram::start().await, FakeModel::echo().await).unwrap();
    let full = std::env::var("HOOKGATE_ACCEPTANCE").is_ok_and(|size| size == "full");
    let (webhooks, messages, kills) = if full { (1000, 100, 10) } else { (300, 40, 5) };
    let load = Load { webhooks, messages, kills, seed };
    if let Err(error) = load.run(&place).await {
        let log = std::env::temp_dir().join(format!("hookgate-crash-{seed}.log"));
        let _ = std::fs::write(&log, place.log());
        panic!("seed {seed}: {error:?}\nThe log is in {}", log.display());
    }
}

struct Load {
    webhooks: usize,
    messages: usize,
    kills: usize,
    seed: u64,
}

/// Chats that webhooks are delivered to, and chats whose people talk.
const TOLD: std::ops::Range<i64> = 100..140;
const TALKING: std::ops::Range<i64> = 200..220;

impl Load {
    async fn run(&self, place: &Place) -> Result<()> {
        let mut random = StdRng::seed_from_u64(self.seed);
        TOLD.for_each(|id| drop(place.telegram.user(id, "Told")));
        let talking: Vec<_> = TALKING.map(|id| place.telegram.user(id, "Talking")).collect();
        let pick = |random: &mut StdRng| (random.random_range(TOLD), random.random_bool(0.5));
        let deliveries: Vec<(i64, bool)> = (0..self.webhooks).map(|_| pick(&mut random)).collect();
        let mut process = place.start().await?;
        let (now_tx, now) = watch::channel(process.webhooks.clone());

        let next = Arc::new(AtomicUsize::new(0));
        let deliveries = Arc::new(deliveries);
        let mut senders = JoinSet::new();
        for _ in 0..8 {
            let (next, deliveries, now) = (Arc::clone(&next), Arc::clone(&deliveries), now.clone());
            senders.spawn(async move {
                let mut retries = 0;
                while let Some((id, (chat, only))) = take(&next, &deliveries) {
                    retries += deliver(&now, id, chat, only).await;
                }
                retries
            });
        }
        let mut said: HashMap<i64, i64> = HashMap::new();
        for kill in 0..self.kills {
            for n in 0..self.messages / self.kills {
                let user = &talking[random.random_range(0..talking.len())];
                said.insert(user.says(&format!("question {kill}.{n}")).message_id, user.chat_id);
                tokio::time::sleep(Duration::from_millis(random.random_range(0..20))).await;
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
            process.kill()?;
            process = place.start().await?;
            now_tx.send_replace(process.webhooks.clone());
        }
        let mut retries = 0;
        while let Some(sender) = senders.join_next().await {
            retries += sender?;
        }
        place.rests().await?;
        let counts = self.check(place, &deliveries, &said)?;
        eprintln!(
            "{} sends, {} of them marked, after {} kills; webhooks were sent again {retries} times",
            counts.0, counts.1, self.kills
        );
        ensure!(
            place.number("select count(*) from deliveries where state <> 'delivered'").await? == 0,
            "open deliveries"
        );
        ensure!(process.stop().await? == 0, "the stop failed");
        Ok(())
    }

    /// Everything was told, unmarked at most once, marked at most once per kill and chat. How many sends, how many marked.
    fn check(&self, place: &Place, deliveries: &[(i64, bool)], said: &HashMap<i64, i64>) -> Result<(usize, usize)> {
        let mut unmarked: HashMap<(i64, String), usize> = HashMap::new();
        let mut marked_in: HashMap<i64, usize> = HashMap::new();
        let mut told: HashSet<(i64, String)> = HashSet::new();
        let sent = place.telegram.sent();
        for message in &sent {
            let what = match message.reply_to {
                Some(question) => format!("answer to {question}"),
                None => {
                    let id = message.text.split("number ").nth(1).and_then(|rest| rest.split('.').next());
                    format!("delivery {}", id.unwrap_or(&message.text))
                }
            };
            let key = (message.chat_id, what);
            if message.text.starts_with(MARK) {
                *marked_in.entry(message.chat_id).or_default() += 1;
            } else {
                *unmarked.entry(key.clone()).or_default() += 1;
            }
            told.insert(key);
        }
        let repeated: Vec<_> = unmarked.iter().filter(|(_, times)| **times > 1).collect();
        ensure!(repeated.is_empty(), "repeated without a mark: {repeated:?}");
        let marked: Vec<_> = marked_in.iter().filter(|(_, times)| **times > self.kills).collect();
        ensure!(marked.is_empty(), "marked more often than there were kills: {marked:?}");
        let webhooks = deliveries.iter().enumerate().map(|(id, (chat, _))| (*chat, format!("delivery {id}")));
        let answers = said.iter().map(|(question, chat)| (*chat, format!("answer to {question}")));
        let expected: HashSet<(i64, String)> = webhooks.chain(answers).collect();
        ensure!(told == expected, "missing: {:?}; too much: {:?}", &expected - &told, &told - &expected);
        Ok((sent.len(), marked_in.values().sum()))
    }
}

fn take(next: &AtomicUsize, deliveries: &[(i64, bool)]) -> Option<(usize, (i64, bool))> {
    let id = next.fetch_add(1, Ordering::Relaxed);
    deliveries.get(id).map(|delivery| (id, *delivery))
}

/// Sends until it is acknowledged, as providers do; how often it was sent again.
async fn deliver(now: &watch::Receiver<Sender>, id: usize, chat: i64, only: bool) -> usize {
    let body = json!({ "id": id, "chat": chat });
    let route = if only { "note" } else { "ask" };
    let mut retries = 0;
    loop {
        let sender = now.borrow().clone();
        match sender.github(route, "alert", &format!("d-{id}"), &body).await {
            Ok(answer) if (200..300).contains(&answer.status) => return retries,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        retries += 1;
    }
}
