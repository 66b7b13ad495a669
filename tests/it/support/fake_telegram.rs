//! The Bot API, as far as a gateway meets it: a model of users, chats and one bot, served over plain HTTP on loopback.
//!
//! It is as strict as the service (UTF-16 limits, the HTML parser, offsets, one poll at a time) and can be told to fail
//! in all the ways networks and services do. People are driven through [`FakeUser`]: they say, they hear.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::telegram_html::{self, Entity};

/// The token the fake accepts.
pub(crate) const TOKEN: &str = "123456:FAKE-hT9sQkVw2Lx0ZbN4";
/// The bot's id, which is the token's beginning.
pub(crate) const BOT_ID: i64 = 123_456;
/// The number of the topic every forum has.
const GENERAL: i64 = 1;
/// How long [`FakeUser::hears`] waits.
const PATIENCE: Duration = Duration::from_secs(10);
const UPGRADED: &str = "Bad Request: group chat was upgraded to a supergroup chat";
/// How long the service takes to see that a client hung up: only after that is a second poll an overlap.
const HANG_UP: Duration = Duration::from_millis(150);

/// What can go wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: this call is served, the next one may fail.
    Nothing,
    /// It is done this much later.
    Slow(Duration),
    /// 429 with `retry_after` in seconds. Nothing is done.
    RetryAfter(u64),
    /// An error answer of the Bot API with this code and description. Nothing is done.
    Refuse(u16, String),
    /// An HTML page with this status, as proxies answer. Nothing is done.
    Page(u16),
    /// The connection breaks before anything is done.
    DropBefore,
    /// It is done, then the connection breaks.
    DropAfter,
    /// Nothing is done and nothing is answered: the connection stays open and silent.
    HangBefore,
    /// It is done and nothing is answered.
    HangAfter,
    /// It is done and the answer is 200 with a body that is not JSON.
    Garbage,
    /// An answer at once with an empty list. Nothing is done.
    Empty,
}

/// One call as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// In lower case.
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
    pub(crate) at: Instant,
}

/// A message of the bot, as a person sees it and as it was sent.
#[derive(Debug, Clone)]
pub(crate) struct BotMessage {
    pub(crate) chat_id: i64,
    pub(crate) message_id: i64,
    /// What a person reads.
    pub(crate) text: String,
    /// `text` as it was sent.
    pub(crate) raw: String,
    pub(crate) parse_mode: Option<String>,
    pub(crate) entities: Vec<Entity>,
    /// Rows of labels with their data.
    pub(crate) buttons: Vec<Vec<(String, String)>>,
    pub(crate) reply_to: Option<i64>,
    pub(crate) thread_id: Option<i64>,
    pub(crate) at: Instant,
}

impl BotMessage {
    /// The labels of its buttons, row by row.
    pub(crate) fn labels(&self) -> Vec<Vec<&str>> {
        self.buttons.iter().map(|row| row.iter().map(|(label, _)| label.as_str()).collect()).collect()
    }
}

impl fmt::Display for BotMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a person said, by its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) update_id: i64,
    pub(crate) message_id: i64,
}

/// A press of a button, by its ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pressed {
    /// `None`: the bot does not ask for presses, so it is never told.
    pub(crate) update_id: Option<i64>,
    pub(crate) query: String,
}

/// The service. Clones are the same one; it goes away with the last.
#[derive(Clone)]
pub(crate) struct FakeTelegram {
    world: Arc<World>,
    server: Arc<Server>,
}

struct Server {
    address: SocketAddr,
    task: Mutex<AbortHandle>,
    posting: AbortHandle,
}

impl Server {
    fn task(&self) -> MutexGuard<'_, AbortHandle> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task().abort();
        self.posting.abort();
    }
}

struct World {
    /// The bot's token.
    token: String,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    next_update: i64,
    next_message: i64,
    updates: BTreeMap<i64, Value>,
    /// Every update there ever was.
    pushed: BTreeMap<i64, Value>,
    allowed: Vec<String>,
    webhook: String,
    /// What `setWebhook` said is named with every update. Updates are posted only where one was set.
    webhook_secret: Option<String>,
    /// The answers to posted updates.
    posted: Vec<(i64, u16)>,
    chats: HashMap<i64, Chat>,
    polls: u64,
    /// The poll that waits now.
    polling: Option<u64>,
    overlaps: usize,
    faults: HashMap<String, VecDeque<Fault>>,
    lasting_faults: HashMap<String, Fault>,
    calls: Vec<Call>,
    sent: Vec<BotMessage>,
    /// The presses by the ids of their queries, with the text each was answered with; the inner `None` is no text.
    presses: HashMap<String, Option<Option<String>>>,
    commands: Value,
}

#[derive(Default)]
struct Chat {
    kind: &'static str,
    name: String,
    blocked: bool,
    deactivated: bool,
    messages: BTreeSet<i64>,
    threads: BTreeSet<i64>,
    is_forum: bool,
    /// The supergroup this group has become.
    upgraded_to: Option<i64>,
    heard: usize,
}

/// What becomes of a request.
enum Outcome {
    Answer(u16, Value),
    Page(u16, &'static str),
    Drop,
    Hang,
}

impl FakeTelegram {
    /// Serves on a free port of the loopback interface.
    pub(crate) async fn start() -> Self {
        Self::start_with(TOKEN).await
    }

    /// The same for a bot with this token.
    pub(crate) async fn start_with(token: &str) -> Self {
        let state = State { next_update: 500_001, next_message: 1, ..State::default() };
        let world =
            Arc::new(World { token: token.to_owned(), state: Mutex::new(state), changed: watch::Sender::new(0) });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(Arc::clone(&world), listener)).abort_handle();
        let posting = tokio::spawn(post_updates(Arc::clone(&world))).abort_handle();
        let fake = Self { world, server: Arc::new(Server { address, task: Mutex::new(task), posting }) };
        fake.user(7, "Alice");
        fake.user(66, "Mallory");
        fake
    }

    /// What `base_url` is set to.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Alice, who may use the gateway.
    pub(crate) fn alice(&self) -> FakeUser {
        self.user(7, "Alice")
    }

    /// Mallory, who may not.
    pub(crate) fn mallory(&self) -> FakeUser {
        self.user(66, "Mallory")
    }

    /// A person who has pressed "Start", so that the bot may write to them.
    pub(crate) fn user(&self, id: i64, name: &str) -> FakeUser {
        self.chat(id, "private", name);
        FakeUser { telegram: self.clone(), id, chat_id: id, topic: None }
    }

    /// A person in a group.
    pub(crate) fn user_in_group(&self, id: i64, name: &str, group: i64) -> FakeUser {
        self.chat(id, "private", name);
        self.chat(group, "supergroup", "The group");
        FakeUser { telegram: self.clone(), id, chat_id: group, topic: None }
    }

    /// A person in a topic of a forum; 1 is its General topic.
    pub(crate) fn user_in_topic(&self, id: i64, name: &str, (forum, topic): (i64, i64)) -> FakeUser {
        let user = self.user_in_group(id, name, forum);
        self.state().chats.entry(forum).or_default().is_forum = true;
        if topic != GENERAL {
            self.open_topic(forum, topic);
        }
        FakeUser { topic: Some(topic), ..user }
    }

    /// A group becomes a supergroup of another id. Telegram says so in both.
    pub(crate) fn upgrade(&self, group: i64, supergroup: i64) {
        self.chat(group, "group", "The group");
        self.chat(supergroup, "supergroup", "The group");
        self.state().chats.entry(group).or_default().upgraded_to = Some(supergroup);
        let said = |chat: i64, kind: &str, field: &str, other: i64| {
            let from = json!({"id": 7, "is_bot": false, "first_name": "Alice"});
            let chat = json!({"id": chat, "type": kind, "title": "The group"});
            let message = json!({"message_id": 1, "date": now(), "from": from, "chat": chat, field: other});
            self.push_update("message", &message);
        };
        said(group, "group", "migrate_to_chat_id", supergroup);
        said(supergroup, "supergroup", "migrate_from_chat_id", group);
    }

    fn chat(&self, id: i64, kind: &'static str, name: &str) {
        let new = || Chat { kind, name: name.to_owned(), ..Chat::default() };
        self.state().chats.entry(id).or_insert_with(new);
    }

    /// Makes a topic of a chat known.
    pub(crate) fn open_topic(&self, chat_id: i64, thread_id: i64) {
        self.state().chats.entry(chat_id).or_default().threads.insert(thread_id);
    }

    /// Queues an update of any kind, whatever the bot asked for; returns its id.
    pub(crate) fn push_update(&self, kind: &str, content: &Value) -> i64 {
        let id = {
            let mut state = self.state();
            let id = state.next_update;
            state.next_update += 1;
            let update = json!({"update_id": id, kind: content});
            state.pushed.insert(id, update.clone());
            state.updates.insert(id, update);
            id
        };
        self.world.changed();
        id
    }

    /// The same, if the bot asked for updates of that kind.
    fn push_if_allowed(&self, kind: &str, content: &Value) -> Option<i64> {
        let allowed = self.state().allows(kind);
        allowed.then(|| self.push_update(kind, content))
    }

    /// A message of the bot as it is now.
    pub(crate) fn shows(&self, message: &BotMessage) -> Option<BotMessage> {
        self.state().sent_message(message.chat_id, message.message_id).cloned()
    }

    /// Waits until a message of the bot reads otherwise than given; how it reads then.
    pub(crate) async fn edited(&self, message: &BotMessage) -> anyhow::Result<BotMessage> {
        let is_same = |now: &BotMessage| (&now.raw, &now.buttons) == (&message.raw, &message.buttons);
        let what = format!("message {} is edited", message.message_id);
        self.wait_until(&what, |fake| fake.shows(message).is_none_or(|now| !is_same(&now))).await?;
        self.shows(message).ok_or_else(|| anyhow!("message {} is gone", message.message_id))
    }

    /// Somebody deletes a message of the bot.
    pub(crate) fn delete(&self, message: &BotMessage) {
        self.state().chats.entry(message.chat_id).or_default().messages.remove(&message.message_id);
    }

    /// The presses that spin, of those the bot was told of.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        let state = self.state();
        let told = |query: &String| state.pushed.values().any(|update| update["callback_query"]["id"] == **query);
        let open = state.presses.iter().filter(|(_, answer)| answer.is_none()).map(|(query, _)| query.clone());
        open.filter(told).collect()
    }

    /// What a press was answered with; `None` while it is not answered.
    pub(crate) fn toast(&self, press: &Pressed) -> Option<Option<String>> {
        self.state().presses.get(&press.query).cloned().flatten()
    }

    /// Waits until a press is answered; the text, if there is one.
    pub(crate) async fn answers(&self, press: &Pressed) -> anyhow::Result<Option<String>> {
        if press.update_id.is_none() {
            bail!("the bot does not ask for presses: the button spins");
        }
        self.wait_until("the press is answered", |fake| fake.toast(press).is_some()).await?;
        Ok(self.toast(press).flatten())
    }

    /// Sends an update again, as the service does after an offset was lost.
    pub(crate) fn push_again(&self, update_id: i64) {
        {
            let mut state = self.state();
            let update = state.pushed[&update_id].clone();
            state.updates.insert(update_id, update);
        }
        self.world.changed();
    }

    /// Nobody listens at the service's address any more.
    pub(crate) fn goes_away(&self) {
        self.server.task().abort();
    }

    /// The service is back at its address.
    pub(crate) async fn comes_back(&self) {
        let listener = TcpListener::bind(self.server.address).await.unwrap();
        *self.server.task() = tokio::spawn(serve(Arc::clone(&self.world), listener)).abort_handle();
    }

    /// The next calls of the method fail like this, one each.
    pub(crate) fn fail(&self, method: &str, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.entry(method.to_lowercase()).or_default().extend(faults);
    }

    /// All calls of the method fail like this, until [`Self::heal`].
    pub(crate) fn keep_failing(&self, method: &str, fault: Fault) {
        self.state().lasting_faults.insert(method.to_lowercase(), fault);
    }

    /// Ends all faults of the method.
    pub(crate) fn heal(&self, method: &str) {
        let mut state = self.state();
        state.faults.remove(&method.to_lowercase());
        state.lasting_faults.remove(&method.to_lowercase());
    }

    /// Another program registers a webhook.
    pub(crate) fn register_webhook(&self, url: &str) {
        url.clone_into(&mut self.state().webhook);
        self.state().webhook_secret = None;
        self.world.changed();
    }

    /// The registered webhook, empty if there is none.
    pub(crate) fn webhook(&self) -> String {
        self.state().webhook.clone()
    }

    /// The updates that were posted to the webhook, with the status each post was answered with.
    pub(crate) fn posted(&self) -> Vec<(i64, u16)> {
        self.state().posted.clone()
    }

    /// All calls so far, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// The calls of one method, in order.
    pub(crate) fn calls_of(&self, method: &str) -> Vec<Call> {
        let method = method.to_lowercase();
        self.state().calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// Whether a long poll waits for updates now.
    pub(crate) fn is_polled(&self) -> bool {
        self.state().polling.is_some()
    }

    /// How often a poll came while another was still waiting.
    pub(crate) fn overlaps(&self) -> usize {
        self.state().overlaps
    }

    /// The ids of updates no offset has confirmed.
    pub(crate) fn unconfirmed(&self) -> Vec<i64> {
        self.state().updates.keys().copied().collect()
    }

    /// How often "typing…" was shown in a chat.
    pub(crate) fn typing_count(&self, chat_id: i64) -> usize {
        let typing = |call: &&Call| int(&call.params, "chat_id") == Some(chat_id);
        self.calls_of("sendChatAction").iter().filter(typing).count()
    }

    /// All messages of the bot, heard or not, in order.
    pub(crate) fn sent(&self) -> Vec<BotMessage> {
        self.state().sent.clone()
    }

    /// The messages nobody has heard yet.
    pub(crate) fn unread(&self) -> Vec<BotMessage> {
        let state = self.state();
        let mut seen: HashMap<i64, usize> = HashMap::new();
        let unheard = |message: &&BotMessage| {
            let count = seen.entry(message.chat_id).or_default();
            *count += 1;
            state.chats.get(&message.chat_id).is_none_or(|chat| *count > chat.heard)
        };
        state.sent.iter().filter(unheard).cloned().collect()
    }

    /// Waits until the world is as asked; `what` is said if it does not come to that.
    pub(crate) async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let mut changes = self.world.changed.subscribe();
        let waited = tokio::time::timeout(PATIENCE, async {
            while !holds(self) {
                let _ = changes.changed().await;
            }
        });
        waited.await.map_err(|_| anyhow!("waited in vain until {what}; calls: {:#?}", self.calls()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.world.state()
    }
}

/// A person and the chat they write in.
#[derive(Clone)]
pub(crate) struct FakeUser {
    telegram: FakeTelegram,
    pub(crate) id: i64,
    pub(crate) chat_id: i64,
    topic: Option<i64>,
}

impl FakeUser {
    /// Writes a text.
    pub(crate) fn says(&self, text: &str) -> Said {
        self.sends(json!({"text": text}))
    }

    /// Writes an answer to a message in the chat, one of the bot's or their own.
    pub(crate) fn replies(&self, to: &BotMessage, text: &str) -> Said {
        let from = json!({"id": BOT_ID, "is_bot": true, "first_name": "Hook", "username": "hookgate_bot"});
        let quoted = json!({"message_id": to.message_id, "from": from, "date": now(), "text": to.text});
        self.sends(json!({"text": text, "reply_to_message": quoted}))
    }

    /// Sends a message with these fields; they replace those of a plain message.
    pub(crate) fn sends(&self, fields: Value) -> Said {
        let message_id = {
            let mut state = self.telegram.state();
            let id = state.next_message;
            state.next_message += 1;
            state.chats.entry(self.chat_id).or_default().messages.insert(id);
            id
        };
        let (chat, from) = self.chat_and_user();
        let plain = json!({"message_id": message_id, "from": from, "chat": chat, "date": now()});
        let mut message = plain.as_object().cloned().unwrap_or_default();
        // Messages in General carry no number.
        if let Some(topic) = self.topic.filter(|topic| *topic != GENERAL) {
            message
                .extend([("message_thread_id".to_owned(), json!(topic)), ("is_topic_message".to_owned(), json!(true))]);
        }
        if let Value::Object(fields) = fields {
            message.extend(fields);
        }
        for (text, key) in [("text", "entities"), ("caption", "caption_entities")] {
            let found = message.get(text).and_then(Value::as_str).map(seen_in).unwrap_or_default();
            if !found.is_empty() {
                message.entry(key).or_insert(Value::Array(found));
            }
        }
        Said { update_id: self.telegram.push_update("message", &Value::Object(message)), message_id }
    }

    fn chat_and_user(&self) -> (Value, Value) {
        let state = self.telegram.state();
        let name = &state.chats[&self.id].name;
        let from = json!({"id": self.id, "is_bot": false, "first_name": name, "language_code": "en"});
        (state.chat_object(self.chat_id), from)
    }

    /// Presses the button of this label, which is on the message now; the text that is shown for it, if there is one.
    pub(crate) async fn presses(&self, message: &BotMessage, label: &str) -> anyhow::Result<Option<String>> {
        let press = self.begins_to_press(message, label)?;
        self.telegram.answers(&press).await
    }

    /// The same without waiting for the answer.
    pub(crate) fn begins_to_press(&self, message: &BotMessage, label: &str) -> anyhow::Result<Pressed> {
        if message.chat_id != self.chat_id {
            bail!("the message is in chat {}, and {} is in chat {}", message.chat_id, self.id, self.chat_id);
        }
        let now = self.telegram.shows(message).ok_or_else(|| anyhow!("the message is gone"))?;
        let data = now.buttons.iter().flatten().find(|(known, _)| known == label).map(|(_, data)| data.clone());
        let data = data.ok_or_else(|| anyhow!("there is no button {label:?} on {now:#?}"))?;
        Ok(self.forges(message, &data))
    }

    /// Presses with a program of their own, which names any data and a message of the bot in their chat.
    pub(crate) fn forges(&self, message: &BotMessage, data: &str) -> Pressed {
        self.sends_press(&json!({"message": self.telegram.state().message_object(message), "data": data}))
    }

    /// Presses something with these fields.
    pub(crate) fn sends_press(&self, fields: &Value) -> Pressed {
        let query = {
            let mut state = self.telegram.state();
            let query = format!("{}{:06}", self.id, state.presses.len());
            state.presses.insert(query.clone(), None);
            query
        };
        let mut press = json!({"id": query, "from": self.chat_and_user().1, "chat_instance": "-1"});
        if let (Some(press), Some(fields)) = (press.as_object_mut(), fields.as_object()) {
            press.extend(fields.clone());
        }
        Pressed { update_id: self.telegram.push_if_allowed("callback_query", &press), query }
    }

    /// The next message of the bot in the chat. Waits for it, and fails with all that happened instead.
    pub(crate) async fn hears(&self) -> anyhow::Result<BotMessage> {
        let mut changes = self.telegram.world.changed.subscribe();
        let next = async {
            loop {
                if let Some(message) = self.take_next() {
                    return message;
                }
                let _ = changes.changed().await;
            }
        };
        match tokio::time::timeout(PATIENCE, next).await {
            Ok(message) => Ok(message),
            Err(_) => bail!(
                "nothing new in chat {} within {PATIENCE:?}; sent so far: {:#?}; all calls: {:#?}",
                self.chat_id,
                self.telegram.sent(),
                self.telegram.calls()
            ),
        }
    }

    fn take_next(&self) -> Option<BotMessage> {
        let mut state = self.telegram.state();
        let heard = state.chats.get(&self.chat_id)?.heard;
        let next = state.sent.iter().filter(|message| message.chat_id == self.chat_id).nth(heard).cloned()?;
        state.chats.get_mut(&self.chat_id)?.heard += 1;
        Some(next)
    }

    /// Blocks the bot.
    pub(crate) fn blocks_the_bot(&self) {
        self.telegram.state().chats.entry(self.chat_id).or_default().blocked = true;
    }

    /// Deletes the account.
    pub(crate) fn deletes_the_account(&self) {
        self.telegram.state().chats.entry(self.chat_id).or_default().deactivated = true;
    }
}

/// The mentions and commands Telegram finds in a text.
fn seen_in(text: &str) -> Vec<Value> {
    let (mut entities, mut offset) = (Vec::new(), 0);
    for word in text.split_inclusive(char::is_whitespace) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '/');
        let name: String = word.chars().take_while(|c| is_part(*c)).collect();
        let kind = match name.chars().next() {
            Some('@') if name.len() > 1 => Some("mention"),
            Some('/') if name.len() > 1 => Some("bot_command"),
            _ => None,
        };
        if let Some(kind) = kind {
            entities.push(json!({"type": kind, "offset": offset, "length": name.encode_utf16().count()}));
        }
        offset += word.encode_utf16().count();
    }
    entities
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

async fn serve(world: Arc<World>, listener: TcpListener) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let world = Arc::clone(&world);
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                let world = Arc::clone(&world);
                async move { world.answer(request).await }
            });
            // An error is how a connection breaks on purpose.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Posts what waits to the webhook, one update after the other, each until it is taken.
async fn post_updates(world: Arc<World>) {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
    let mut changes = world.changed.subscribe();
    loop {
        changes.borrow_and_update();
        let next = {
            let state = world.state();
            let update = state.updates.first_key_value().map(|(id, update)| (*id, update.clone()));
            update.zip(state.webhook_secret.clone().map(|secret| (state.webhook.clone(), secret)))
        };
        let Some(((id, update), (url, secret))) = next else {
            let _ = changes.changed().await;
            continue;
        };
        let post = client.post(url).header("X-Telegram-Bot-Api-Secret-Token", secret).json(&update);
        let status = post.send().await.map_or(0, |response| response.status().as_u16());
        let taken = (200..300).contains(&status);
        {
            let mut state = world.state();
            state.posted.push((id, status));
            if taken {
                state.updates.remove(&id);
            }
        }
        world.changed();
        if !taken {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, BrokenConnection> {
        let (status, kind, body) = match self.outcome(request).await {
            Outcome::Answer(status, body) => (status, "application/json", body.to_string()),
            Outcome::Page(status, body) => (status, "text/html", body.to_owned()),
            Outcome::Drop => return Err(BrokenConnection),
            Outcome::Hang => match std::future::pending::<Infallible>().await {},
        };
        let response = Response::builder().status(status).header("content-type", kind);
        Ok(response.body(Full::new(Bytes::from(body))).unwrap())
    }

    async fn outcome(&self, request: Request<Incoming>) -> Outcome {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let content_type =
            request.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let Ok(body) = request.into_body().collect().await else { return Outcome::Drop };
        let Some((token, method)) = path.strip_prefix("/bot").and_then(|rest| rest.split_once('/')) else {
            return refusal(404, "Not Found");
        };
        let method = method.to_lowercase();
        let params = match params(&query, &content_type, &body.to_bytes()) {
            Ok(params) => params,
            Err(complaint) => return refusal(400, &complaint),
        };
        let fault = {
            let mut state = self.state();
            state.calls.push(Call { method: method.clone(), params: params.clone(), at: Instant::now() });
            let scripted = state.faults.get_mut(&method).and_then(VecDeque::pop_front);
            scripted.or_else(|| state.lasting_faults.get(&method).cloned())
        };
        self.changed();
        match &fault {
            Some(Fault::RetryAfter(seconds)) => {
                let description = format!("Too Many Requests: retry after {seconds}");
                let answer = json!({"ok": false, "error_code": 429, "description": description, "parameters": {"retry_after": seconds}});
                return Outcome::Answer(429, answer);
            }
            Some(Fault::Refuse(code, description)) => return refusal(*code, description),
            Some(Fault::Page(status)) => return Outcome::Page(*status, "<html><body>nginx</body></html>"),
            Some(Fault::DropBefore) => return Outcome::Drop,
            Some(Fault::HangBefore) => return Outcome::Hang,
            Some(Fault::Empty) => return Outcome::Answer(200, json!({"ok": true, "result": []})),
            Some(Fault::Slow(time)) => tokio::time::sleep(*time).await,
            _ => {}
        }
        if token != self.token {
            // The service tells a wrong token from one that cannot be one.
            return match token.split_once(':') {
                Some((id, secret)) if id.parse::<u64>().is_ok() && !secret.is_empty() => refusal(401, "Unauthorized"),
                _ => refusal(404, "Not Found"),
            };
        }
        let outcome = self.call(&method, &params).await;
        self.changed();
        match fault {
            Some(Fault::DropAfter) => Outcome::Drop,
            Some(Fault::HangAfter) => Outcome::Hang,
            Some(Fault::Garbage) => Outcome::Page(200, "<!doctype html>"),
            _ => outcome,
        }
    }

    async fn call(&self, method: &str, params: &Map<String, Value>) -> Outcome {
        let result = match method {
            "getme" => {
                let id: i64 = self.token.split(':').next().and_then(|id| id.parse().ok()).unwrap_or(BOT_ID);
                let mut me = me();
                me["id"] = id.into();
                Ok(me)
            }
            "getupdates" => self.get_updates(params).await,
            "sendmessage" => self.state().send_message(params),
            "editmessagetext" => self.state().edit_message_text(params),
            "answercallbackquery" => self.state().answer_callback_query(params),
            "sendchataction" => {
                let mut params = params.clone();
                // Unlike messages, actions in General go by its number.
                if int(&params, "message_thread_id") == Some(GENERAL) {
                    params.remove("message_thread_id");
                }
                self.state().recipient(&params).map(|_| json!(true))
            }
            "deletewebhook" => {
                let mut state = self.state();
                state.webhook.clear();
                state.webhook_secret = None;
                if params.get("drop_pending_updates").is_some_and(|value| value == true || value == "true") {
                    state.updates.clear();
                }
                Ok(json!(true))
            }
            "setwebhook" => self.state().set_webhook(params),
            "getwebhookinfo" => {
                let state = self.state();
                let waiting = state.updates.len();
                Ok(json!({"url": state.webhook, "has_custom_certificate": false, "pending_update_count": waiting}))
            }
            "getmycommands" => {
                let commands = self.state().commands.clone();
                Ok(if commands.is_null() { json!([]) } else { commands })
            }
            "setmycommands" => {
                self.state().commands = structure(params, "commands").unwrap_or_default();
                Ok(json!(true))
            }
            "close" | "logout" => Ok(json!(true)),
            _ => Err((404, "Not Found".to_owned())),
        };
        match result {
            Ok(result) => Outcome::Answer(200, json!({"ok": true, "result": result})),
            Err((code, description)) => {
                let state = self.state();
                let chat = int(params, "chat_id").and_then(|id| state.chats.get(&id));
                match chat.and_then(|chat| chat.upgraded_to).filter(|_| description == UPGRADED) {
                    Some(to) => Outcome::Answer(
                        code,
                        json!({"ok": false, "error_code": code, "description": description, "parameters": {"migrate_to_chat_id": to}}),
                    ),
                    None => refusal(code, &description),
                }
            }
        }
    }

    async fn get_updates(&self, params: &Map<String, Value>) -> Result<Value, Refused> {
        let offset = int(params, "offset").unwrap_or(0);
        let limit = usize::try_from(int(params, "limit").unwrap_or(100).clamp(1, 100)).unwrap_or(100);
        let timeout = Duration::from_secs(u64::try_from(int(params, "timeout").unwrap_or(0).clamp(0, 50)).unwrap_or(0));
        let mut changes = self.changed.subscribe();
        let hung_up = tokio::time::Instant::now() + HANG_UP;
        while self.state().polling.is_some() {
            if tokio::time::timeout_at(hung_up, changes.changed()).await.is_err() {
                self.state().overlaps += 1;
                break;
            }
        }
        let poll = {
            let mut state = self.state();
            if !state.webhook.is_empty() {
                let description = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first";
                return Err((409, description.to_owned()));
            }
            state.allow(params);
            state.forget_confirmed(offset);
            state.polls += 1;
            state.polling = Some(state.polls);
            state.polls
        };
        let _polling = Polling { world: self, poll };
        self.changed();
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            {
                let state = self.state();
                if state.polling != Some(poll) {
                    let description = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
                    return Err((409, description.to_owned()));
                }
                let batch: Vec<_> = state.updates.values().take(limit).cloned().collect();
                if !batch.is_empty() || tokio::time::Instant::now() >= deadline {
                    return Ok(Value::Array(batch));
                }
            }
            let _ = tokio::time::timeout_at(deadline, changes.changed()).await;
        }
    }
}

/// A poll that waits; dropped when it is answered or the client hangs up.
struct Polling<'w> {
    world: &'w World,
    poll: u64,
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let mut state = self.world.state();
        if state.polling == Some(self.poll) {
            state.polling = None;
        }
        drop(state);
        self.world.changed();
    }
}

#[derive(Debug)]
struct BrokenConnection;

impl fmt::Display for BrokenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection breaks")
    }
}

impl std::error::Error for BrokenConnection {}

/// An error's code and description.
type Refused = (u16, String);

fn refusal(code: u16, description: &str) -> Outcome {
    Outcome::Answer(code, json!({"ok": false, "error_code": code, "description": description}))
}

fn bad_request(what: &str) -> Refused {
    (400, format!("Bad Request: {what}"))
}

fn me() -> Value {
    json!({
        "id": BOT_ID, "is_bot": true, "first_name": "Hook", "username": "hookgate_bot", "can_join_groups": true,
        "can_read_all_group_messages": false, "supports_inline_queries": false, "can_connect_to_business": false,
        "has_main_web_app": false,
    })
}

impl State {
    /// A positive offset confirms what is below it; a negative one keeps that many of the newest.
    fn forget_confirmed(&mut self, offset: i64) {
        if offset > 0 {
            self.updates.retain(|id, _| *id >= offset);
        } else if offset < 0 {
            let keep = usize::try_from(-offset).unwrap_or(usize::MAX);
            while self.updates.len() > keep {
                self.updates.pop_first();
            }
        }
    }

    /// The chat a call is about, if the bot may write there.
    fn recipient(&mut self, params: &Map<String, Value>) -> Result<i64, Refused> {
        if params.get("chat_id").is_none_or(|id| id == "") {
            return Err(bad_request("chat_id is empty"));
        }
        let id = int(params, "chat_id").filter(|id| self.chats.contains_key(id));
        let id = id.ok_or_else(|| bad_request("chat not found"))?;
        let chat = &self.chats[&id];
        if chat.upgraded_to.is_some() {
            return Err((400, UPGRADED.to_owned()));
        }
        if chat.deactivated {
            return Err((403, "Forbidden: user is deactivated".to_owned()));
        }
        if chat.blocked {
            return Err((403, "Forbidden: bot was blocked by the user".to_owned()));
        }
        match int(params, "message_thread_id") {
            Some(thread) if !chat.threads.contains(&thread) => Err(bad_request("message thread not found")),
            _ => Ok(id),
        }
    }

    fn set_webhook(&mut self, params: &Map<String, Value>) -> Result<Value, Refused> {
        let url = text(params, "url").unwrap_or_default();
        let secret = text(params, "secret_token").unwrap_or_default();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if reqwest::Url::parse(&url).is_err() {
            return Err(bad_request("bad webhook: invalid URL"));
        }
        if secret.len() > 256 || !secret.chars().all(is_allowed) {
            return Err(bad_request("secret token contains unallowed characters"));
        }
        if params.get("drop_pending_updates").is_some_and(|value| value == true || value == "true") {
            self.updates.clear();
        }
        (self.webhook, self.webhook_secret) = (url, Some(secret));
        self.allow(params);
        Ok(json!(true))
    }

    /// Which kinds of updates the bot asks for. What is not said leaves it as it was.
    fn allow(&mut self, params: &Map<String, Value>) {
        if let Some(Value::Array(allowed)) = structure(params, "allowed_updates") {
            self.allowed = allowed.iter().filter_map(|kind| kind.as_str().map(str::to_owned)).collect();
        }
    }

    /// Whether an update of this kind is kept for the bot. An empty list asks for all the usual ones.
    fn allows(&self, kind: &str) -> bool {
        self.allowed.is_empty() || self.allowed.iter().any(|allowed| allowed == kind)
    }

    fn sent_message(&self, chat_id: i64, message_id: i64) -> Option<&BotMessage> {
        let here = self.chats.get(&chat_id).filter(|chat| chat.messages.contains(&message_id));
        here?;
        self.sent.iter().find(|message| (message.chat_id, message.message_id) == (chat_id, message_id))
    }

    fn chat_object(&self, id: i64) -> Value {
        let chat = &self.chats[&id];
        let (kind, name) = (chat.kind, &chat.name);
        match kind {
            "private" => json!({"id": id, "type": kind, "first_name": name}),
            _ if chat.is_forum => json!({"id": id, "type": kind, "title": name, "is_forum": true}),
            _ => json!({"id": id, "type": kind, "title": name}),
        }
    }

    /// A message of the bot as updates show it.
    fn message_object(&self, message: &BotMessage) -> Value {
        let chat = self.chat_object(message.chat_id);
        let mut object =
            json!({"message_id": message.message_id, "from": me(), "chat": chat, "date": now(), "text": message.text});
        if let Some(topic) = message.thread_id {
            object["message_thread_id"] = topic.into();
            object["is_topic_message"] = true.into();
        }
        if !message.buttons.is_empty() {
            let button = |(label, data): &(String, String)| json!({"text": label, "callback_data": data});
            let rows = message.buttons.iter().map(|row| row.iter().map(button).collect::<Vec<_>>());
            object["reply_markup"] = json!({"inline_keyboard": rows.collect::<Vec<_>>()});
        }
        object
    }

    fn edit_message_text(&mut self, params: &Map<String, Value>) -> Result<Value, Refused> {
        let chat_id = self.recipient(params)?;
        let message_id = int(params, "message_id").ok_or_else(|| bad_request("message identifier is not specified"))?;
        if !self.chats[&chat_id].messages.contains(&message_id) {
            return Err(bad_request("message to edit not found"));
        }
        let formatted = formatted(params, "MESSAGE_TOO_LONG")?;
        let buttons = buttons(params)?;
        let mut sent = self.sent.iter_mut();
        let message = sent.find(|message| (message.chat_id, message.message_id) == (chat_id, message_id));
        let message = message.ok_or_else(|| bad_request("message can't be edited"))?;
        if (&message.text, &message.entities, &message.buttons) == (&formatted.seen, &formatted.entities, &buttons) {
            return Err(bad_request(
                "message is not modified: specified new message content and reply markup are exactly the same as a \
                 current content and reply markup of the message",
            ));
        }
        let Formatted { raw, parse_mode, seen, entities } = formatted;
        *message = BotMessage { text: seen, raw, parse_mode, entities, buttons, ..message.clone() };
        let message = message.clone();
        Ok(self.message_object(&message))
    }

    fn answer_callback_query(&mut self, params: &Map<String, Value>) -> Result<Value, Refused> {
        let text = text(params, "text").filter(|text| !text.is_empty());
        if text.as_ref().is_some_and(|text| text.encode_utf16().count() > 200) {
            return Err(bad_request("MESSAGE_TOO_LONG"));
        }
        let query = self::text(params, "callback_query_id").unwrap_or_default();
        match self.presses.get_mut(&query) {
            Some(answer @ None) => *answer = Some(text),
            _ => {
                return Err(bad_request("query is too old and response timeout expired or query ID is invalid"));
            }
        }
        Ok(json!(true))
    }

    fn send_message(&mut self, params: &Map<String, Value>) -> Result<Value, Refused> {
        let chat_id = self.recipient(params)?;
        let Formatted { raw, parse_mode, seen, entities } = formatted(params, "message is too long")?;
        let buttons = buttons(params)?;
        let reply_to = self.reply_to(chat_id, params)?;
        let message_id = self.next_message;
        self.next_message += 1;
        let chat = self.chats.entry(chat_id).or_default();
        chat.messages.insert(message_id);
        let answer = json!({
            "message_id": message_id, "from": me(), "chat": {"id": chat_id, "type": chat.kind, "first_name": chat.name},
            "date": now(), "text": seen,
        });
        let thread_id = int(params, "message_thread_id");
        let at = Instant::now();
        self.sent.push(BotMessage {
            chat_id,
            message_id,
            text: seen,
            raw,
            parse_mode,
            entities,
            buttons,
            reply_to,
            thread_id,
            at,
        });
        Ok(answer)
    }

    fn reply_to(&self, chat_id: i64, params: &Map<String, Value>) -> Result<Option<i64>, Refused> {
        let Some(Value::Object(reply)) = structure(params, "reply_parameters") else { return Ok(None) };
        let id = int(&reply, "message_id").ok_or_else(|| bad_request("can't parse reply parameters: message_id"))?;
        if self.chats[&chat_id].messages.contains(&id) {
            return Ok(Some(id));
        }
        if reply.get("allow_sending_without_reply").is_some_and(|allowed| allowed == true) {
            return Ok(None);
        }
        Err(bad_request("message to be replied not found"))
    }
}

/// A text as it was given and as it is read.
struct Formatted {
    raw: String,
    parse_mode: Option<String>,
    seen: String,
    entities: Vec<Entity>,
}

/// Reads `text` and what formats it. Its length is that of what is read.
fn formatted(params: &Map<String, Value>, too_long: &str) -> Result<Formatted, Refused> {
    let raw = text(params, "text").unwrap_or_default();
    if raw.is_empty() {
        return Err(bad_request("message text is empty"));
    }
    let parse_mode = text(params, "parse_mode").filter(|mode| !mode.is_empty());
    let (seen, entities) = match parse_mode.as_deref().map(str::to_lowercase).as_deref() {
        Some("html") => {
            let parsed = telegram_html::parse(&raw);
            let parsed = parsed.map_err(|complaint| bad_request(&format!("can't parse entities: {complaint}")))?;
            (parsed.text, parsed.entities)
        }
        Some(_) => return Err(bad_request("unsupported parse_mode")),
        None => (raw.clone(), entities(params, &raw)?),
    };
    let (seen, entities) = trimmed(&seen, entities);
    if seen.is_empty() {
        return Err(bad_request("text must be non-empty"));
    }
    if seen.encode_utf16().count() > 4096 {
        return Err(bad_request(too_long));
    }
    Ok(Formatted { raw, parse_mode, seen, entities })
}

/// The rows of an inline keyboard, of which only buttons with data are known here.
fn buttons(params: &Map<String, Value>) -> Result<Vec<Vec<(String, String)>>, Refused> {
    let Some(markup) = structure(params, "reply_markup") else { return Ok(Vec::new()) };
    let Some(Value::Array(rows)) = markup.get("inline_keyboard") else {
        return Err(bad_request("object expected as reply markup"));
    };
    let button = |button: &Value| {
        let field = |name: &str| button.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (label, data) = (field("text"), field("callback_data"));
        if label.trim().is_empty() {
            return Err(bad_request("can't parse inline keyboard button: Text must be non-empty"));
        }
        if !(1..=64).contains(&data.len()) {
            return Err(bad_request("BUTTON_DATA_INVALID"));
        }
        Ok((label, data))
    };
    let mut read = Vec::new();
    for row in rows {
        let row = row.as_array().map(Vec::as_slice).unwrap_or_default();
        if row.is_empty() || row.len() > 8 {
            return Err(bad_request("can't parse inline keyboard: a row has 1 to 8 buttons"));
        }
        read.push(row.iter().map(button).collect::<Result<Vec<_>, _>>()?);
    }
    if read.iter().flatten().count() > 100 {
        return Err(bad_request("REPLY_MARKUP_TOO_LONG"));
    }
    Ok(read)
}

/// The entities given as such. They must lie within the text, in UTF-16 units.
fn entities(params: &Map<String, Value>, raw: &str) -> Result<Vec<Entity>, Refused> {
    const KINDS: [&str; 20] = [
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "date_time",
    ];
    let Some(Value::Array(given)) = structure(params, "entities") else { return Ok(Vec::new()) };
    let units: Vec<u16> = raw.encode_utf16().collect();
    let inside_pair = |at: usize| units.get(at).is_some_and(|unit| (0xdc00..0xe000).contains(unit));
    let read = |entity: &Value| {
        let Value::Object(entity) = entity else {
            return Err(bad_request("can't parse MessageEntity: expected an Object"));
        };
        let kind = text(entity, "type").unwrap_or_default();
        let kind = KINDS.iter().find(|known| **known == kind);
        let kind = kind.ok_or_else(|| bad_request("can't parse entities: unsupported entity type"))?;
        let number = |name: &str| int(entity, name).and_then(|number| usize::try_from(number).ok());
        let (offset, length) =
            number("offset").zip(number("length")).ok_or_else(|| bad_request("can't parse MessageEntity"))?;
        if offset + length > units.len() {
            return Err(bad_request(&format!(
                "can't parse entities: entity beginning at UTF-16 offset {offset} ends after the end of the text at UTF-16 offset {}",
                offset + length
            )));
        }
        if inside_pair(offset) || inside_pair(offset + length) {
            return Err(bad_request(&format!(
                "can't parse entities: entity beginning at UTF-16 offset {offset} cuts a character"
            )));
        }
        let argument = text(entity, "url").or_else(|| text(entity, "language"));
        Ok(Entity { kind, offset, length, argument })
    };
    given.iter().map(read).collect()
}

/// White space goes from the end, and from the beginning up to the first entity.
fn trimmed(seen: &str, mut entities: Vec<Entity>) -> (String, Vec<Entity>) {
    let units = |text: &str| text.encode_utf16().count();
    let first = entities.iter().map(|entity| entity.offset).min().unwrap_or(usize::MAX);
    let mut cut = 0;
    let mut rest = seen;
    while let Some(c) = rest.chars().next().filter(|c| c.is_whitespace() && cut + c.len_utf16() <= first) {
        cut += c.len_utf16();
        rest = &rest[c.len_utf8()..];
    }
    let rest = rest.trim_end();
    let length = units(rest);
    for entity in &mut entities {
        entity.offset = (entity.offset - cut).min(length);
        entity.length = entity.length.min(length - entity.offset);
    }
    entities.retain(|entity| entity.length > 0);
    (rest.to_owned(), entities)
}

fn int(params: &Map<String, Value>, name: &str) -> Option<i64> {
    let value = params.get(name)?;
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn text(params: &Map<String, Value>, name: &str) -> Option<String> {
    match params.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// An object or array; in forms it comes as a string of JSON.
fn structure(params: &Map<String, Value>, name: &str) -> Option<Value> {
    match params.get(name)? {
        Value::String(json) => serde_json::from_str(json).ok(),
        Value::Null => None,
        other => Some(other.clone()),
    }
}

/// The parameters, from the query and a body of JSON, a form or `multipart/form-data`.
fn params(query: &str, content_type: &str, body: &[u8]) -> Result<Map<String, Value>, String> {
    let mut params = form(query);
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_lowercase();
    match kind.as_str() {
        "application/json" if !body.is_empty() => match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => params.extend(fields),
            _ => return Err("Bad Request: can't parse request: unsupported JSON".to_owned()),
        },
        "application/x-www-form-urlencoded" => params.extend(form(&String::from_utf8_lossy(body))),
        "multipart/form-data" => params.extend(multipart(content_type, &String::from_utf8_lossy(body))),
        _ => {}
    }
    Ok(params)
}

fn form(text: &str) -> Map<String, Value> {
    let url = reqwest::Url::parse(&format!("http://form/?{text}"));
    let pairs = |url: reqwest::Url| url.query_pairs().map(|(key, value)| (key.into_owned(), value.into())).collect();
    url.map(pairs).unwrap_or_default()
}

/// Text fields only; files are of no interest here.
fn multipart(content_type: &str, body: &str) -> Map<String, Value> {
    let Some((_, boundary)) = content_type.split_once("boundary=") else { return Map::new() };
    let boundary = format!("--{}", boundary.trim().trim_matches('"'));
    let field = |part: &str| {
        let (head, value) = part.strip_prefix("\r\n")?.split_once("\r\n\r\n")?;
        let name = head.split("name=\"").nth(1)?.split('"').next()?;
        Some((name.to_owned(), value.strip_suffix("\r\n").unwrap_or(value).into()))
    };
    body.split(&boundary).filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(fake: &FakeTelegram, method: &str, params: Value) -> Value {
        let url = format!("{}/bot{TOKEN}/{method}", fake.base_url());
        reqwest::Client::new().post(url).json(&params).send().await.unwrap().json().await.unwrap()
    }

    #[tokio::test]
    async fn offsets_confirm_as_they_do_at_telegram() {
        let fake = FakeTelegram::start().await;
        let ids: Vec<_> = (0..5).map(|count| fake.alice().says(&count.to_string()).update_id).collect();
        let seen = |answer: &Value| -> Vec<i64> {
            answer["result"].as_array().unwrap().iter().map(|update| update["update_id"].as_i64().unwrap()).collect()
        };
        assert_eq!(seen(&call(&fake, "getUpdates", json!({"limit": 2})).await), ids[..2]);
        assert_eq!(seen(&call(&fake, "GETUPDATES", json!({"offset": ids[1]})).await), ids[1..]);
        assert_eq!(seen(&call(&fake, "getUpdates", json!({"offset": -2})).await), ids[3..]);
        assert_eq!(fake.unconfirmed(), ids[3..]);
        let begun = Instant::now();
        assert!(seen(&call(&fake, "getUpdates", json!({"offset": ids[4] + 1, "timeout": 1})).await).is_empty());
        assert!(begun.elapsed() >= Duration::from_secs(1));
    }

    #[tokio::test]
    async fn a_second_poll_ends_the_first() {
        let fake = FakeTelegram::start().await;
        let other = fake.clone();
        let first = tokio::spawn(async move { call(&other, "getUpdates", json!({"timeout": 5})).await });
        fake.wait_until("the first poll waits", FakeTelegram::is_polled).await.unwrap();
        assert_eq!(call(&fake, "getUpdates", json!({})).await["ok"], true);
        assert_eq!((first.await.unwrap()["error_code"].clone(), fake.overlaps()), (json!(409), 1));
    }

    #[tokio::test]
    async fn sending_is_as_strict_as_at_telegram() {
        let fake = FakeTelegram::start().await;
        for (params, expected) in [
            (json!({"text": "x"}), "Bad Request: chat_id is empty"),
            (json!({"chat_id": 5, "text": "x"}), "Bad Request: chat not found"),
            (json!({"chat_id": 7}), "Bad Request: message text is empty"),
            (json!({"chat_id": 7, "text": " \n"}), "Bad Request: text must be non-empty"),
            (json!({"chat_id": 7, "text": "<b> </b>", "parse_mode": "HTML"}), "Bad Request: text must be non-empty"),
            (json!({"chat_id": 7, "text": "😀".repeat(2049)}), "Bad Request: message is too long"),
            (
                json!({"chat_id": 7, "text": "<b>", "parse_mode": "HTML"}),
                "Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"b\"",
            ),
            (
                json!({"chat_id": 7, "text": "x", "reply_parameters": {"message_id": 99}}),
                "Bad Request: message to be replied not found",
            ),
            (json!({"chat_id": 7, "text": "x", "message_thread_id": 3}), "Bad Request: message thread not found"),
            (
                json!({"chat_id": 7, "text": "x", "entities": [{"type": "bold", "offset": 0, "length": 2}]}),
                "Bad Request: can't parse entities: entity beginning at UTF-16 offset 0 ends after the end of the text at UTF-16 offset 2",
            ),
        ] {
            assert_eq!(call(&fake, "sendMessage", params.clone()).await["description"], expected, "{params}");
        }
        assert_eq!(call(&fake, "SendMessage", json!({"chat_id": "7", "text": "😀".repeat(2048)})).await["ok"], true);
        let long = format!("<b>{}</b>", "&amp;".repeat(4096));
        assert_eq!(
            call(&fake, "sendMessage", json!({"chat_id": 7, "text": long, "parse_mode": "HTML"})).await["ok"],
            true
        );
        fake.mallory().blocks_the_bot();
        assert_eq!(call(&fake, "sendMessage", json!({"chat_id": 66, "text": "x"})).await["error_code"], 403);
    }

    fn keyboard(rows: &[&[(&str, &str)]]) -> Value {
        let row = |row: &&[(&str, &str)]| -> Value {
            row.iter().map(|(label, data)| json!({"text": label, "callback_data": data})).collect()
        };
        json!({"inline_keyboard": rows.iter().map(row).collect::<Vec<_>>()})
    }

    #[tokio::test]
    async fn keyboards_are_as_strict_as_at_telegram() {
        let fake = FakeTelegram::start().await;
        let longest = "x".repeat(64);
        let too_long = "x".repeat(65);
        let nine = [("a", "b"); 9];
        let eight: &[(&str, &str)] = &[("a", "b"); 8];
        for (markup, refused) in [
            (json!({"keyboard": []}), Some("object expected as reply markup")),
            (keyboard(&[&[("", "y")]]), Some("can't parse inline keyboard button: Text must be non-empty")),
            (keyboard(&[&[("Yes", "")]]), Some("BUTTON_DATA_INVALID")),
            (keyboard(&[&[("Yes", &too_long)]]), Some("BUTTON_DATA_INVALID")),
            (keyboard(&[&nine]), Some("can't parse inline keyboard: a row has 1 to 8 buttons")),
            (keyboard(&[&[]]), Some("can't parse inline keyboard: a row has 1 to 8 buttons")),
            (keyboard(&[eight; 13]), Some("REPLY_MARKUP_TOO_LONG")),
            (keyboard(&[eight; 12]), None),
            (keyboard(&[&[("Yes", &longest)], &[("No", "n")]]), None),
        ] {
            let answer = call(&fake, "sendMessage", json!({"chat_id": 7, "text": "x", "reply_markup": markup})).await;
            let expected = refused.map_or(Value::Null, |refused| format!("Bad Request: {refused}").into());
            assert_eq!(answer["description"], expected, "{markup}");
        }
        assert_eq!(fake.sent().last().unwrap().labels(), [["Yes"], ["No"]]);
    }

    #[tokio::test]
    async fn editing_is_as_strict_as_at_telegram() {
        let fake = FakeTelegram::start().await;
        let asked = json!({"chat_id": 7, "text": "<b>Sure?</b>", "parse_mode": "HTML", "reply_markup": keyboard(&[&[("Yes", "y")]])});
        let id = call(&fake, "sendMessage", asked.clone()).await["result"]["message_id"].as_i64().unwrap();
        let own = fake.alice().says("mine").message_id;
        let edit = async |fields: Value| {
            let mut params = asked.clone();
            params["message_id"] = id.into();
            params.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            call(&fake, "editMessageText", params).await["description"].as_str().unwrap_or_default().to_owned()
        };
        let unmodified = edit(json!({})).await;
        assert!(unmodified.starts_with("Bad Request: message is not modified: "), "{unmodified}");
        for (fields, refused) in [
            (json!({"message_id": 99}), "message to edit not found"),
            (json!({"message_id": own}), "message can't be edited"),
            (json!({"chat_id": 66}), "message to edit not found"),
            (json!({"text": "a".repeat(4097)}), "MESSAGE_TOO_LONG"),
            (json!({"text": "<b>"}), "can't parse entities: Can't find end tag corresponding to start tag \"b\""),
            (json!({"reply_markup": keyboard(&[&[("Yes", "")]])}), "BUTTON_DATA_INVALID"),
        ] {
            assert_eq!(edit(fields.clone()).await, format!("Bad Request: {refused}"), "{fields}");
        }
        assert_eq!(edit(json!({"reply_markup": null})).await, "", "the keyboard is what changes");
        assert_eq!(edit(json!({"text": "Yes", "reply_markup": null})).await, "");
        let now = fake.alice().hears().await.unwrap();
        assert_eq!((now.text.as_str(), now.buttons.len(), fake.unread().len()), ("Yes", 0, 0));
        fake.delete(&now);
        assert_eq!(edit(json!({"text": "again"})).await, "Bad Request: message to edit not found");
    }

    #[tokio::test]
    async fn a_press_is_told_to_who_asks_for_presses_and_answered_once() {
        let fake = FakeTelegram::start().await;
        let alice = fake.alice();
        let asked = json!({"chat_id": 7, "text": "Sure?", "reply_markup": keyboard(&[&[("Yes", "y")]])});
        call(&fake, "sendMessage", asked).await;
        let message = alice.hears().await.unwrap();
        assert!(alice.begins_to_press(&message, "No").is_err());
        assert!(fake.mallory().begins_to_press(&message, "Yes").is_err(), "it is in another chat");

        let asks_for = async |kinds: &[&str]| call(&fake, "getUpdates", json!({"allowed_updates": kinds})).await;
        asks_for(&["message"]).await;
        let unheard = alice.begins_to_press(&message, "Yes").unwrap();
        assert_eq!(unheard.update_id, None);
        assert!(fake.answers(&unheard).await.is_err());
        asks_for(&["message", "callback_query"]).await;
        let press = alice.begins_to_press(&message, "Yes").unwrap();
        let updates = asks_for(&[]).await["result"].clone();
        assert_eq!(updates.as_array().map(Vec::len), Some(1), "the first never comes");
        let query = &updates[0]["callback_query"];
        assert_eq!((&query["data"], &query["from"]["id"]), (&json!("y"), &json!(7)));
        assert_eq!(
            (&query["message"]["message_id"], &query["message"]["from"]["is_bot"]),
            (&json!(message.message_id), &json!(true))
        );

        let answer = async |id: &str, text: &str| {
            let params = json!({"callback_query_id": id, "text": text});
            call(&fake, "answerCallbackQuery", params).await["description"].as_str().unwrap_or_default().to_owned()
        };
        const TOO_OLD: &str = "Bad Request: query is too old and response timeout expired or query ID is invalid";
        assert_eq!(answer(&press.query, &"x".repeat(201)).await, "Bad Request: MESSAGE_TOO_LONG");
        assert_eq!(fake.toast(&press), None);
        assert_eq!(answer(&press.query, "Approved.").await, "");
        assert_eq!(fake.answers(&press).await.unwrap().as_deref(), Some("Approved."));
        for id in [press.query.as_str(), "nonsense"] {
            assert_eq!(answer(id, "").await, TOO_OLD);
        }
    }

    #[tokio::test]
    async fn forms_are_read_as_json_is() {
        let fake = FakeTelegram::start().await;
        let url = format!("{}/bot{TOKEN}/sendMessage", fake.base_url());
        let multipart = "--B\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n7\r\n--B\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nfrom\r\na form\r\n--B--\r\n";
        let client = reqwest::Client::new();
        for (kind, body) in [
            ("multipart/form-data; boundary=B", multipart),
            ("application/x-www-form-urlencoded", "chat_id=7&text=from%0D%0Aa+form"),
        ] {
            let request = client.post(&url).header("content-type", kind).body(body);
            assert_eq!(request.send().await.unwrap().status(), 200);
            assert_eq!(fake.alice().hears().await.unwrap().text, "from\r\na form");
        }
        assert_eq!(client.get(format!("{url}?chat_id=7&text=q")).send().await.unwrap().status(), 200);
        assert_eq!(fake.unread().len(), 1);
    }

    #[tokio::test]
    async fn wrong_tokens_are_refused() {
        let fake = FakeTelegram::start().await;
        for (token, status) in [("1:wrong", 401), ("wrong", 404)] {
            let url = format!("{}/bot{token}/getMe", fake.base_url());
            assert_eq!(reqwest::get(url).await.unwrap().status(), status);
        }
    }
}
