//! Buttons at Telegram: how they are sent, how a press comes back and is answered, how a message is changed afterwards.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use hookgate_adapters::{
    Adapter, AdapterState, Button, ChatTarget, ChatType, GroupRules, Inbound, InboundMessage, NotAccepted,
    OutboundMessage, Part, Platform, Press, SendError, TelegramAdapter, TelegramOptions, with_buttons,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::fake_telegram::{BOT_ID, BotMessage, FakeTelegram, FakeUser, Fault, TOKEN};
use crate::support::world::{World, run_test};

const GROUP: i64 = -1_000_200;
const FORUM: i64 = -1_000_300;

/// How the gateway takes a press.
enum Takes {
    Answers(Option<&'static str>),
    CannotStore,
    Forever,
    Panics,
}

/// The gateway's side: takes what is heard, presses as it was told, by default with `OK`.
struct Desk {
    heard_tx: mpsc::UnboundedSender<Heard>,
    takes: Mutex<VecDeque<Takes>>,
}

#[derive(Debug, PartialEq)]
enum Heard {
    Said(String),
    Pressed(Press),
}

#[async_trait]
impl Inbound for Desk {
    async fn accept(&self, message: InboundMessage) -> Result<(), NotAccepted> {
        self.heard_tx.send(Heard::Said(message.text)).map_err(|_| NotAccepted("the test is over".to_owned()))
    }

    async fn pressed(&self, press: Press) -> Result<Option<String>, NotAccepted> {
        let takes = self.takes.lock().unwrap().pop_front().unwrap_or(Takes::Answers(Some("OK")));
        let _ = self.heard_tx.send(Heard::Pressed(press));
        match takes {
            Takes::Answers(toast) => Ok(toast.map(str::to_owned)),
            Takes::CannotStore => Err(NotAccepted("the disk is full".to_owned())),
            Takes::Forever => std::future::pending().await,
            Takes::Panics => panic!("the gateway has a defect"),
        }
    }
}

/// A bot that listens to the fake.
struct Bot {
    telegram: FakeTelegram,
    adapter: Arc<TelegramAdapter>,
    desk: Arc<Desk>,
    heard: mpsc::UnboundedReceiver<Heard>,
    stop: CancellationToken,
    listening: JoinHandle<()>,
}

fn options(telegram: &FakeTelegram) -> TelegramOptions {
    TelegramOptions {
        base_url: telegram.base_url(),
        poll_timeout: Duration::from_secs(1),
        first_retry: Duration::from_millis(10),
        longest_retry: Duration::from_millis(40),
        send_timeout: Duration::from_secs(1),
        press_timeout: Duration::from_secs(10),
        ..TelegramOptions::new(TOKEN.into())
    }
}

impl Bot {
    async fn start(telegram: &FakeTelegram) -> Result<Self> {
        Self::start_with(telegram, options(telegram)).await
    }

    async fn start_with(telegram: &FakeTelegram, options: TelegramOptions) -> Result<Self> {
        let (heard_tx, heard) = mpsc::unbounded_channel();
        let desk = Arc::new(Desk { heard_tx, takes: Mutex::default() });
        let adapter = Arc::new(TelegramAdapter::new(options)?);
        let stop = CancellationToken::new();
        let listening = {
            let (adapter, desk, stop) = (Arc::clone(&adapter), Arc::clone(&desk), stop.clone());
            tokio::spawn(async move { adapter.listen(desk, stop).await })
        };
        let bot = Self { telegram: telegram.clone(), adapter, desk, heard, stop, listening };
        bot.becomes(AdapterState::Connected).await?;
        Ok(bot)
    }

    async fn becomes(&self, state: AdapterState) -> Result<()> {
        let mut status = self.adapter.watch_status();
        tokio::time::timeout(Duration::from_secs(10), status.wait_for(|status| status.state == state)).await??;
        Ok(())
    }

    fn takes(&self, presses: impl IntoIterator<Item = Takes>) {
        self.desk.takes.lock().unwrap().extend(presses);
    }

    async fn hears(&mut self) -> Result<Heard> {
        let heard = tokio::time::timeout(Duration::from_secs(10), self.heard.recv()).await;
        heard.context("heard nothing")?.context("the desk is gone")
    }

    async fn is_pressed(&mut self) -> Result<Press> {
        match self.hears().await? {
            Heard::Pressed(press) => Ok(press),
            other => anyhow::bail!("{other:?}"),
        }
    }

    /// Asks in the person's chat.
    async fn asks(&self, person: &FakeUser, topic: Option<i64>) -> Result<BotMessage> {
        self.adapter.send(&card(person.chat_id, topic)).await?;
        person.hears().await
    }

    /// Everything is heard and confirmed, and the bot stops in time.
    async fn stops(self) -> Result<()> {
        self.telegram.wait_until("all updates are confirmed", |fake| fake.unconfirmed().is_empty()).await?;
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.listening).await??;
        Ok(())
    }
}

fn to(chat_id: i64, topic: Option<i64>) -> ChatTarget {
    let thread_id = topic.map(|topic| topic.to_string());
    ChatTarget { platform: Platform::Telegram, account: String::new(), chat_id: chat_id.to_string(), thread_id }
}

fn yes_or_no() -> Vec<Vec<Button>> {
    vec![
        vec![Button::new("Yes", "ask:1:yes"), Button::new("No", "ask:1:no")],
        vec![Button::new("Always", "ask:1:always")],
    ]
}

fn question() -> Part {
    Part {
        formatted: "<b>Sure?</b> Press or answer /yes".to_owned(),
        plain: "Sure? Press or answer /yes".to_owned(),
        buttons: yes_or_no(),
    }
}

fn card(chat_id: i64, topic: Option<i64>) -> OutboundMessage {
    OutboundMessage {
        target: to(chat_id, topic),
        part: question(),
        reply_to: None,
        nonce: "n1".to_owned(),
        marked: false,
    }
}

fn settled() -> Part {
    Part { formatted: "<i>Yes, says Alice</i>".to_owned(), ..Part::verbatim("Yes, says Alice".to_owned()) }
}

#[tokio::test]
async fn a_question_is_pressed_answered_and_closed() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut bot = Bot::start(&telegram).await?;
    let alice = telegram.alice();
    let asked = bot.asks(&alice, None).await?;
    assert_eq!(asked.labels(), [vec!["Yes", "No"], vec!["Always"]]);

    bot.takes([Takes::Answers(Some("Approved."))]);
    assert_eq!(alice.presses(&asked, "Yes").await?.as_deref(), Some("Approved."));
    let press = bot.is_pressed().await?;
    assert_eq!((press.data.as_str(), press.message_id), ("ask:1:yes", asked.message_id.to_string()));
    let source = press.source;
    assert_eq!((source.chat_id.as_str(), source.chat_type, source.thread_id), ("7", ChatType::Dm, None));
    assert_eq!((source.user_id.as_deref(), source.user_name.as_deref()), (Some("7"), Some("Alice")));
    assert!(press.press_id.starts_with(&format!("telegram:{BOT_ID}:")), "{}", press.press_id);

    bot.adapter.edit(&to(7, None), &asked.message_id.to_string(), &settled()).await?;
    let now = telegram.edited(&asked).await?;
    assert_eq!((now.text.as_str(), now.buttons.len(), now.entities[0].kind), ("Yes, says Alice", 0, "italic"));
    assert!(alice.begins_to_press(&asked, "Yes").is_err(), "there is nothing to press any more");
    bot.adapter.edit(&to(7, None), &asked.message_id.to_string(), &settled()).await?;
    assert_eq!(telegram.calls_of("editMessageText").len(), 2, "twice is the same as once");

    // No words are an answer, too; and an old client still shows what is no longer there.
    bot.takes([Takes::Answers(None)]);
    let stale = alice.forges(&asked, "ask:1:no");
    assert_eq!(telegram.answers(&stale).await?, None);
    assert_eq!(bot.is_pressed().await?.data, "ask:1:no");
    bot.stops().await
}

#[tokio::test]
async fn who_presses_where_is_told_in_groups_and_topics() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut bot = Bot::start(&telegram).await?;
    let places = [
        (telegram.user_in_group(66, "Mallory", GROUP), None, ChatType::Group, None),
        (telegram.user_in_topic(66, "Mallory", (FORUM, 8)), Some(8), ChatType::Forum, Some("8")),
        (telegram.user_in_topic(66, "Mallory", (FORUM, 1)), Some(1), ChatType::Forum, Some("1")),
    ];
    for (mallory, topic, chat_type, thread) in places {
        let asked = bot.asks(&mallory, topic).await?;
        assert_eq!(mallory.presses(&asked, "Always").await?.as_deref(), Some("OK"));
        let press = bot.is_pressed().await?;
        let source = press.source;
        assert_eq!((source.user_id.as_deref(), source.user_name.as_deref()), (Some("66"), Some("Mallory")));
        assert_eq!((source.chat_id, source.chat_type), (mallory.chat_id.to_string(), chat_type));
        assert_eq!(source.thread_id.as_deref(), thread);
        // What another chat was asked, named in this one, is told with this chat.
        let forged = mallory.forges(&asked, "ask:2:yes");
        telegram.answers(&forged).await?;
        let press = bot.is_pressed().await?;
        assert_eq!((press.data.as_str(), press.source.chat_id), ("ask:2:yes", mallory.chat_id.to_string()));
    }
    bot.stops().await
}

#[tokio::test]
async fn a_press_that_cannot_be_stored_is_kept_and_answered_once_it_is() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut bot = Bot::start(&telegram).await?;
    let alice = telegram.alice();
    let asked = bot.asks(&alice, None).await?;
    bot.takes([Takes::CannotStore, Takes::CannotStore, Takes::CannotStore, Takes::Answers(Some("Approved."))]);
    let press = alice.begins_to_press(&asked, "Yes")?;
    alice.says("and?");
    let mut presses = Vec::new();
    for _ in 0..4 {
        presses.push(bot.is_pressed().await?);
    }
    assert!(presses.windows(2).all(|pair| pair[0] == pair[1]), "{presses:#?}");
    assert_eq!(bot.hears().await?, Heard::Said("and?".to_owned()), "what follows waits for it");
    assert_eq!(telegram.answers(&press).await?.as_deref(), Some("Approved."));
    assert_eq!(telegram.calls_of("answerCallbackQuery").len(), 1);
    bot.becomes(AdapterState::Connected).await?;
    bot.stops().await
}

#[tokio::test]
async fn the_offset_waits_for_the_press_to_be_handled() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut bot = Bot::start(&telegram).await?;
    let asked = bot.asks(&telegram.alice(), None).await?;
    bot.takes([Takes::Forever]);
    let press = telegram.alice().begins_to_press(&asked, "Yes")?;
    let first = bot.is_pressed().await?;
    let begun = Instant::now();
    bot.stop.cancel();
    bot.listening.await?;
    assert!(begun.elapsed() < Duration::from_secs(5), "a stop does not wait for it");
    assert_eq!(telegram.unconfirmed(), press.update_id.map_or(vec![], |id| vec![id]));

    let mut bot = Bot::start(&telegram).await?;
    assert_eq!(bot.is_pressed().await?, first, "it is the same press");
    assert_eq!(telegram.answers(&press).await?.as_deref(), Some("OK"));
    // And once more, after an offset was lost: answered in vain, which holds up nothing.
    telegram.push_again(press.update_id.unwrap_or_default());
    assert_eq!(bot.is_pressed().await?, first);
    telegram.alice().says("next");
    assert_eq!(bot.hears().await?, Heard::Said("next".to_owned()));
    telegram.wait_until("it is answered again", |fake| fake.calls_of("answerCallbackQuery").len() == 2).await?;
    bot.stops().await
}

#[tokio::test]
async fn a_press_that_takes_too_long_or_fails_is_answered_and_holds_nobody_up() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let hasty = TelegramOptions { press_timeout: Duration::from_millis(200), ..options(&telegram) };
    let mut bot = Bot::start_with(&telegram, hasty).await?;
    let asked = bot.asks(&telegram.alice(), None).await?;
    for (takes, toast) in [(Takes::Forever, "takes too long"), (Takes::Panics, "went wrong")] {
        bot.takes([takes]);
        let press = telegram.alice().begins_to_press(&asked, "Yes")?;
        telegram.alice().says("next");
        bot.is_pressed().await?;
        assert_eq!(bot.hears().await?, Heard::Said("next".to_owned()));
        let shown = telegram.answers(&press).await?.unwrap_or_default();
        assert!(shown.contains(toast), "{shown}");
    }
    bot.stops().await
}

#[tokio::test]
async fn an_answer_that_does_not_get_through_holds_nobody_up() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut bot = Bot::start(&telegram).await?;
    let alice = telegram.alice();
    let asked = bot.asks(&alice, None).await?;
    let too_old = "Bad Request: query is too old and response timeout expired or query ID is invalid";
    let faults = [
        Fault::HangBefore,
        Fault::HangAfter,
        Fault::DropBefore,
        Fault::Page(502),
        Fault::RetryAfter(30),
        Fault::Refuse(400, too_old.to_owned()),
        Fault::Garbage,
    ];
    for (count, fault) in faults.into_iter().enumerate() {
        telegram.fail("answerCallbackQuery", [fault.clone()]);
        alice.begins_to_press(&asked, "No")?;
        alice.says(&format!("next {count}"));
        let begun = Instant::now();
        assert_eq!(bot.is_pressed().await?.data, "ask:1:no");
        assert_eq!(bot.hears().await?, Heard::Said(format!("next {count}")));
        assert!(begun.elapsed() < Duration::from_secs(4), "{fault:?} took {:?}", begun.elapsed());
        let answers = count + 1;
        telegram.wait_until("it was tried", |fake| fake.calls_of("answerCallbackQuery").len() == answers).await?;
    }
    assert_eq!(bot.adapter.status().state, AdapterState::Connected);
    bot.stops().await
}

#[tokio::test]
async fn many_presses_at_once_are_handled_in_order_and_all_answered() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let mut bot = Bot::start(&telegram).await?;
    let asked = bot.asks(&telegram.alice(), None).await?;
    let presses: Vec<_> = (0..250).map(|n| telegram.alice().forges(&asked, &format!("ask:{n}:yes"))).collect();
    for n in 0..250 {
        assert_eq!(bot.is_pressed().await?.data, format!("ask:{n}:yes"));
    }
    for press in &presses {
        assert_eq!(telegram.answers(press).await?.as_deref(), Some("OK"));
    }
    assert_eq!(telegram.calls_of("answerCallbackQuery").len(), 250);
    bot.stops().await
}

#[tokio::test]
async fn what_leads_nowhere_is_answered_without_the_gateway() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let groups = GroupRules { allowed_chats: vec![FORUM.to_string()], ..GroupRules::default() };
    let mut bot = Bot::start_with(&telegram, TelegramOptions { groups, ..options(&telegram) }).await?;
    let alice = telegram.alice();
    let chat = json!({"id": 7, "type": "private"});
    let too_old = Some("This message is too old.");
    let asked = bot.asks(&telegram.user_in_group(7, "Alice", GROUP), None).await?;
    let unheard = telegram.user_in_group(7, "Alice", GROUP).begins_to_press(&asked, "Yes")?;
    let beep = json!({"id": 9, "is_bot": true, "first_name": "Bot"});
    for (press, toast) in [
        (alice.sends_press(&json!({"data": "x"})), too_old),
        (alice.sends_press(&json!({"data": "x", "message": {"message_id": 1, "date": 0, "chat": chat}})), too_old),
        (alice.sends_press(&json!({"data": "x", "inline_message_id": "i1"})), None),
        (
            alice.sends_press(
                &json!({"game_short_name": "chess", "message": {"message_id": 1, "date": 1, "chat": chat}}),
            ),
            None,
        ),
        (
            alice.sends_press(
                &json!({"data": "x", "from": beep, "message": {"message_id": 1, "date": 1, "chat": chat}}),
            ),
            None,
        ),
        (unheard, None),
    ] {
        assert_eq!(telegram.answers(&press).await?.as_deref(), toast, "{press:?}");
    }
    alice.says("done");
    assert_eq!(bot.hears().await?, Heard::Said("done".to_owned()));
    bot.stops().await
}

#[tokio::test]
async fn buttons_stand_below_the_last_part_and_the_last_half() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let bot = Bot::start(&telegram).await?;
    let alice = telegram.alice();
    // Escaped, each of these is five characters; Telegram counts them as one.
    for (text, parts) in [("`<&>`".repeat(666), 1), ("<&> ".repeat(2500), 3), ("&".repeat(4096), 1)] {
        let cut = with_buttons(bot.adapter.split(&text), yes_or_no());
        assert_eq!(cut.len(), parts);
        for (number, part) in (1..).zip(cut) {
            bot.adapter.send(&OutboundMessage { part, ..card(7, None) }).await?;
            assert_eq!(alice.hears().await?.buttons.len(), if number == parts { 2 } else { 0 });
        }
    }
    let longest = with_buttons(bot.adapter.split(&"x".repeat(4096)), yes_or_no()).remove(0);
    bot.adapter.send(&OutboundMessage { part: longest, marked: true, ..card(7, None) }).await?;
    assert_eq!([alice.hears().await?.buttons.len(), alice.hears().await?.buttons.len()], [0, 2]);
    bot.stops().await
}

#[tokio::test]
async fn buttons_that_telegram_refuses_do_not_cost_the_message() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let bot = Bot::start(&telegram).await?;
    let alice = telegram.alice();
    let mut last = None;
    for buttons in [
        vec![vec![Button::new("Yes", "x".repeat(65))]],
        vec![vec![Button::new("Yes", "")]],
        vec![vec![Button::new("", "y")]],
        vec![(0..9).map(|_| Button::new("Yes", "y")).collect()],
        (0..101).map(|_| vec![Button::new("Yes", "y")]).collect(),
        vec![vec![]],
    ] {
        bot.adapter.send(&OutboundMessage { part: Part { buttons, ..question() }, ..card(7, None) }).await?;
        let seen = alice.hears().await?;
        assert_eq!((seen.text.as_str(), seen.buttons.len()), ("Sure? Press or answer /yes", 0));
        assert_eq!(seen.entities[0].kind, "bold", "only the buttons are left out");
        last = Some(seen);
    }
    let last = last.context("a message")?;
    let id = last.message_id.to_string();
    let part = Part { buttons: vec![vec![Button::new("Yes", "")]], ..settled() };
    bot.adapter.edit(&to(7, None), &id, &part).await?;
    assert_eq!(telegram.edited(&last).await?.text, "Yes, says Alice");
    let broken = Part { formatted: "<b>broken".to_owned(), ..Part { buttons: yes_or_no(), ..settled() } };
    bot.adapter.edit(&to(7, None), &id, &broken).await?;
    let now = telegram.shows(&last).context("it is there")?;
    assert_eq!((now.text.as_str(), now.parse_mode.as_deref(), now.buttons.len()), ("Yes, says Alice", None, 2));
    bot.stops().await
}

#[tokio::test]
async fn the_outcome_of_an_edit_is_told_exactly() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let bot = Bot::start(&telegram).await?;
    let alice = telegram.alice();
    let asked = bot.asks(&alice, None).await?;
    let id = asked.message_id.to_string();
    let edit = async |id: &str| bot.adapter.edit(&to(7, None), id, &settled()).await;

    telegram.fail("editMessageText", [Fault::RetryAfter(37)]);
    assert_eq!(edit(&id).await, Err(SendError::RetryAfter(Duration::from_secs(37))));
    for fault in [Fault::DropBefore, Fault::HangBefore, Fault::Page(502), Fault::Garbage] {
        telegram.fail("editMessageText", [fault.clone()]);
        let begun = Instant::now();
        let outcome = edit(&id).await;
        assert!(matches!(outcome, Err(SendError::Unknown(_) | SendError::Failing(_))), "{fault:?}: {outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{fault:?} took {:?}", begun.elapsed());
    }
    telegram.fail("editMessageText", [Fault::Page(404)]);
    assert!(matches!(edit(&id).await, Err(SendError::NotSent(_))));
    edit(&id).await?;

    let own = alice.says("mine").message_id.to_string();
    let refused = |sentence: &str| Err(SendError::Refused(sentence.to_owned()));
    assert_eq!(edit("99999").await, refused("Telegram says: Bad Request: message to edit not found"));
    assert_eq!(edit(&own).await, refused("Telegram says: Bad Request: message can't be edited"));
    assert_eq!(edit("n1").await, refused("\"n1\" is not the id of a Telegram message"));
    telegram.delete(&asked);
    assert_eq!(edit(&id).await, refused("Telegram says: Bad Request: message to edit not found"));
    alice.blocks_the_bot();
    assert_eq!(edit(&id).await, refused("Telegram says: Forbidden: bot was blocked by the user"));
    bot.stops().await
}

#[tokio::test]
async fn a_press_nobody_waits_for_is_answered_by_the_gateway() {
    run_test(World::default().echo(), async |t| {
        let alice = t.telegram.alice();
        alice.says("hello");
        let said = alice.hears().await?;
        let press = alice.forges(&said, "ask:1:yes");
        assert_eq!(t.telegram.answers(&press).await?.as_deref(), Some("This button is no longer valid."));
        Ok(())
    })
    .await;
}
