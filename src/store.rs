//! Everything durable, behind the [`Store`] trait: sessions, messages, inbox, outbox, webhook deliveries, cards that wait
//! to be answered, what was allowed for good, and what was used up.
//!
//! Each method that changes something is one transaction and is on disk when it returns. The rows' life:
//! inbox `waiting → running → done`; outbox `waiting → sending → sent | uncertain | dead | held`;
//! delivery `accepted → delivered | failed`, or `ignored`; a card is there while it is open. Nothing here decides what is said to whom.

use async_trait::async_trait;
use hookgate_adapters::{Button, ChatMoved, ChatTarget, InboundMessage, Part};
use serde::{Deserialize, Serialize};

use crate::session::{Remembered, Role, Session, SessionKey, TurnStatus};

mod ids;
pub mod lock;
mod postgres;
mod sql_store;
mod sqlite;
mod url;

pub use sql_store::{OpenOptions, Opened, SqlStore};
pub use sqlite::repair;
pub use url::{StoreUrl, UnfitUrl};

/// Orders everything that was ever accepted: Unix milliseconds in the upper bits and a counter below, never falling,
/// also when the clock does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InboxId(pub i64);

/// The same for parts of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OutboxId(pub i64);

/// Why the store could not do it, by what the caller does next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, read-only or busy, or the server away: the same call may work later.
    #[error("the store cannot write now: {0}")]
    Unavailable(String),
    /// The database file is damaged: it must be opened anew, which repairs what can be repaired.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// Another process has owned the database since it was opened, so what is known of its rows is out of date: it must
    /// be opened anew.
    #[error("{0}")]
    Lost(String),
    /// A person must act: wrong version, no permission, a bad address. One full sentence.
    #[error("{0}")]
    Unusable(String),
    /// A defect of ours.
    #[error("the store failed: {0}")]
    Internal(String),
}

/// What the gateway takes in: a message with what the store and the lanes need to know of it. Stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The message.
    pub message: InboundMessage,
    /// Where the answers go; empty means: to where the message came from.
    #[serde(default)]
    pub deliver: Vec<Target>,
    /// Set when the message is a webhook delivery: its text is data, never a command.
    #[serde(default)]
    pub delivery: Option<DeliveryRef>,
    /// The names of the tools its turn may use, where its route says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

/// Where a webhook's answer goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The log: the stored record is the delivery.
    Log,
    /// A chat.
    Chat(ChatTarget),
}

/// `log`, `telegram:42`.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log => f.write_str("log"),
            Self::Chat(chat) => chat.fmt(f),
        }
    }
}

/// Names a webhook delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeliveryRef {
    /// The route that received it.
    pub route: String,
    /// The provider's id for it, or the hash of the signed bytes.
    pub delivery_id: String,
}

/// What became of an offered message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Stored now.
    New(InboxId),
    /// Known already; nothing was written.
    Duplicate,
}

/// A webhook delivery to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// Which one.
    pub delivery: DeliveryRef,
    /// SHA-256 of the body, hex.
    pub body_hash: String,
    /// Its event type.
    pub event: String,
    /// The names of its targets, for listings: `log`, `telegram:42`.
    pub target: String,
    /// Refuse a body that this route has seen under another id (`replay_guard: body`).
    pub replay_guard: bool,
    /// What to do with it.
    pub work: DeliveryWork,
}

/// What a delivery leads to, stored in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryWork {
    /// Nothing: the event was not wanted.
    Ignore,
    /// A turn.
    Turn(Box<SessionedMessage>),
    /// Replies, without a turn (`deliver_only`). None: the record is the delivery, and it is `delivered` at once.
    Send(Vec<NewReply>),
}

/// An accepted message with the conversation it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionedMessage {
    /// Its conversation.
    pub session_key: SessionKey,
    /// The message.
    pub accepted: Accepted,
}

/// What became of an offered delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryAdmission {
    /// Stored now (also: again, after it had failed).
    New {
        /// The stored message, when it leads to a turn.
        inbox: Option<InboxId>,
        /// The stored parts, when it leads to a send.
        outbox: Vec<OutboxId>,
    },
    /// The same id with the same body is known.
    Duplicate,
    /// The same id came with another body.
    Conflict,
    /// Under `replay_guard`: the same body came with another id.
    Replay,
}

/// A stored message that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// Its place in the order.
    pub id: InboxId,
    /// Its conversation.
    pub session_key: SessionKey,
    /// How often a turn of it was started, this one included.
    pub attempts: i64,
    /// The message.
    pub accepted: Accepted,
    /// Unix milliseconds when it was stored.
    pub accepted_at: i64,
    /// What its turns did that must not be done twice, in order: see [`Store::note_effect`].
    pub effects: Vec<String>,
    /// The further pieces of one long text, whose words it took over: they end with it.
    pub joined: Vec<InboxId>,
}

/// A reply to one chat: one or more parts that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReply {
    /// The chat.
    pub target: ChatTarget,
    /// The platform's id of the message it answers.
    pub reply_to: Option<String>,
    /// In order; never empty.
    pub parts: Vec<Part>,
    /// The delivery whose state follows this reply's.
    pub delivery: Option<DeliveryRef>,
    /// The conversation it belongs to, if it belongs to one.
    pub session_key: Option<SessionKey>,
}

/// A message to be remembered in the current session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub text: String,
    /// How its turn ended.
    pub status: TurnStatus,
}

/// The end of an inbox row: everything that must become true together.
#[derive(Debug, Clone, Default)]
pub struct Finish {
    /// The session the turn ran in, with what it remembers.
    pub remember: Option<(String, Vec<NewMessage>)>,
    /// Replies to store.
    pub replies: Vec<NewReply>,
    /// End the current session of the row's key, with this reason.
    pub end_session: Option<&'static str>,
    /// Close the other messages of the same key that still wait and were accepted before this one (`/new`).
    pub close_waiting_before: bool,
    /// Other messages that end with this one.
    pub also: Vec<InboxId>,
    /// The delivery is done without a send (target `log`, or a silent answer): `Ok` delivered, `Err` failed and why.
    pub delivery: Option<(DeliveryRef, Result<(), String>)>,
}

/// What [`Store::finish`] wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finished {
    /// The stored parts, in order.
    pub outbox: Vec<OutboxId>,
    /// The messages closed by `close_waiting_before`, in order.
    pub closed: Vec<Closed>,
    /// The session ended by `end_session`.
    pub ended_session: Option<String>,
}

/// A message that will not be answered any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Which.
    pub id: InboxId,
    /// What was said; `None` when what was stored cannot be read.
    pub message: Option<Box<InboundMessage>>,
}

/// A stored part, claimed for sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its place in the order.
    pub id: OutboxId,
    /// The first part of the same reply.
    pub reply: OutboxId,
    /// The chat.
    pub target: ChatTarget,
    /// The message the reply answers; whether this part is anchored to it is the platform's rule.
    pub reply_to: Option<String>,
    /// The text.
    pub part: Part,
    /// How often it was tried, this one included.
    pub attempts: i64,
    /// An earlier attempt may have arrived.
    pub marked: bool,
    /// The delivery whose state follows.
    pub delivery: Option<DeliveryRef>,
    /// Unix milliseconds when it was stored.
    pub created_at: i64,
    /// Unix milliseconds of the first attempt, if there was one before.
    pub first_attempt_at: Option<i64>,
    /// Which part of the reply, from 1.
    pub number: u32,
    /// How many parts the reply has.
    pub of: u32,
    /// The conversation it belongs to.
    pub session_key: Option<SessionKey>,
}

/// A part that was sent, for platforms that show their own history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SentPart {
    /// Its place in the order.
    pub id: OutboxId,
    /// The plain text.
    pub text: String,
    /// What was below it to be pressed.
    pub buttons: Vec<Vec<Button>>,
    /// The message it answers.
    pub reply_to: Option<String>,
    /// Unix milliseconds when it was stored.
    pub at: i64,
}

/// Something a person said, for platforms that show their own history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said {
    /// Its place in the order, the same as that of [`SentPart`].
    pub id: i64,
    /// What was said.
    pub text: String,
    /// Unix milliseconds when its turn ended.
    pub at: i64,
}

/// A message with buttons that a turn waits on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCard {
    /// The part that has the buttons: the last one of its reply.
    pub id: OutboxId,
    /// The chat.
    pub target: ChatTarget,
    /// The platform's id of that part; `None` while it is not confirmed that it was sent.
    pub message_id: Option<String>,
}

/// Something to be allowed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRule {
    /// Whom or where it holds for.
    pub scope: String,
    /// What is allowed. Scope and key together are a rule's name: short, a server stores no more than 2000 bytes of them.
    pub key: String,
    /// Who said so.
    pub granted_by: String,
}

/// Something that is allowed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its number, from 1; never that of another rule, also when this one is revoked.
    pub id: i64,
    /// Whom or where it holds for.
    pub scope: String,
    /// What is allowed.
    pub key: String,
    /// Who said so first.
    pub granted_by: String,
    /// Unix milliseconds when that was.
    pub at: i64,
}

/// What was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Money, in millionths.
    pub micros: u64,
}

/// The next thing to do for a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextSend {
    /// This part, now recorded as `sending`.
    Part(Box<OutboxRow>),
    /// Nothing before this time (Unix milliseconds).
    NotBefore(i64),
    /// A part that may have been said already is due. It is not claimed: whoever sends it once more makes sure first that
    /// somebody is there to take it.
    Repeat,
    /// Nothing waits for this chat.
    Nothing,
}

/// How an attempt at a part ended. A part of a card that was closed meanwhile is `dead` after all of these but `Sent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendRecord {
    /// The platform confirmed it, under this id.
    Sent(String),
    /// It did not arrive: wait until then (Unix milliseconds) and try again, unmarked unless it was marked before.
    Again {
        /// Unix milliseconds.
        not_before: i64,
        /// Why.
        error: String,
    },
    /// It may have arrived: try again, marked.
    AgainMarked {
        /// Unix milliseconds.
        not_before: i64,
        /// Why.
        error: String,
    },
    /// It may have arrived and is not repeated: `uncertain`. Later parts of the reply go on.
    Uncertain(String),
    /// It may have arrived and waits for a person (`uncertain_sends: hold`): `held`, with the later parts of the reply.
    Held(String),
    /// It will not be sent, nor the later parts of the reply: `dead`.
    Dead(String),
}

/// How many rows of each kind there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Messages that wait for their turn.
    pub inbox_waiting: i64,
    /// Turns under way.
    pub inbox_running: i64,
    /// Parts to be sent, under way included.
    pub outbox_waiting: i64,
    /// Parts that may have arrived: marked and not confirmed, `uncertain` or `held`.
    pub outbox_uncertain: i64,
    /// Parts given up, but for those that nobody needed any more: see [`Store::close_card`].
    pub outbox_dead: i64,
}

/// What a start found unfinished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Messages to be dispatched again, in order, with their keys and whether a turn of them had been started.
    pub inbox: Vec<(InboxId, SessionKey)>,
    /// Chats with parts to send.
    pub targets: Vec<ChatTarget>,
    /// How many sends had an unknown outcome.
    pub uncertain: u64,
}

/// A recorded delivery, for listings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeliveryRow {
    /// The route.
    pub route: String,
    /// The delivery's id.
    pub delivery_id: String,
    /// Its event type.
    pub event: String,
    /// Its targets.
    pub target: String,
    /// `accepted`, `ignored`, `delivered`, `failed`.
    pub state: String,
    /// Why it failed.
    pub error: Option<String>,
    /// Unix milliseconds.
    pub received_at: i64,
}

/// What happens to sends whose outcome is unknown (`uncertain_sends`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UncertainSends {
    /// Repeated once, marked.
    #[default]
    Resend,
    /// Kept and listed.
    Hold,
}

/// The durable state of one gateway. One process owns a database; reading beside it is safe.
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores a message, unless its `dedup_key` is known.
    async fn accept(&self, message: SessionedMessage) -> Result<Admission, StoreError>;

    /// Records a delivery and what it leads to, unless its id is known and did not fail.
    async fn accept_delivery(&self, delivery: NewDelivery) -> Result<DeliveryAdmission, StoreError>;

    /// Looks a delivery up without writing: `None` when it is unknown or had failed.
    async fn known_delivery(
        &self,
        delivery: &DeliveryRef,
        body_hash: &str,
    ) -> Result<Option<DeliveryAdmission>, StoreError>;

    /// `waiting → running`, counting the attempt. `None` when the row is not waiting (any more).
    async fn claim(&self, id: InboxId) -> Result<Option<InboxRow>, StoreError>;

    /// Reads a row that waits; `None` when it is begun or done.
    async fn waiting(&self, id: InboxId) -> Result<Option<InboxRow>, StoreError>;

    /// `running → waiting` without counting the attempt: the gateway stops and the turn starts anew next time.
    async fn unclaim(&self, id: InboxId) -> Result<(), StoreError>;

    /// The turn of a running message is about to do something that must not be done twice. When this returns, `what` is the
    /// last of the row's `effects`; the newest 100 are kept. They stay with the row until it is done.
    ///
    /// [`StoreError::Internal`] when the row does not run: then it is not noted, and must not be done.
    async fn note_effect(&self, id: InboxId, what: &str) -> Result<(), StoreError>;

    /// `waiting | running → done` together with all of `finish`. `None` when the row was done already: nothing is written.
    async fn finish(&self, id: InboxId, finish: Finish) -> Result<Option<Finished>, StoreError>;

    /// The current session of a key, made from `accepted` when there is none; true when it is new.
    async fn open_session(&self, key: &SessionKey, accepted: &Accepted) -> Result<(Session, bool), StoreError>;

    /// The current session of a key, if there is one.
    async fn current_session(&self, key: &SessionKey) -> Result<Option<Session>, StoreError>;

    /// The newest messages of a session, oldest first: at most `messages`, and at most `chars` characters together.
    async fn history(&self, session_id: &str, messages: u32, chars: usize) -> Result<Vec<Remembered>, StoreError>;

    /// The newest things a person said under a key, over all its sessions, oldest first.
    async fn said_in(&self, key: &SessionKey, limit: u32) -> Result<Vec<Said>, StoreError>;

    /// Sessions, last used first.
    async fn sessions(&self, limit: u32) -> Result<Vec<Session>, StoreError>;

    /// A session by its id, or the current (else last) one of a key.
    async fn find_session(&self, id_or_key: &str) -> Result<Option<Session>, StoreError>;

    /// Ends the current session of a key or id; the ended session, if there was one.
    async fn end_session(&self, id_or_key: &str, reason: &'static str) -> Result<Option<Session>, StoreError>;

    /// Ends the current sessions whose last message is older than `before` and for which none waits or is handled; some of
    /// them, if there are many: call it again until it returns none.
    async fn end_sessions_before(&self, before: i64, reason: &'static str) -> Result<Vec<Session>, StoreError>;

    /// A chat goes on under another id: its sessions follow, but for one whose new key is in use. Returns how many did.
    async fn move_chat(&self, moved: &ChatMoved) -> Result<u64, StoreError>;

    /// Stores the parts of a reply that does not end its message; their ids. Its `delivery` is passed over: only the answer
    /// settles a delivery.
    async fn send(&self, reply: NewReply) -> Result<Vec<OutboxId>, StoreError>;

    /// The same for a reply with buttons that a turn waits on: until it is closed it is one of [`Store::open_cards`], under
    /// the last of the ids, and retention keeps that part.
    async fn send_card(&self, reply: NewReply) -> Result<Vec<OutboxId>, StoreError>;

    /// A card is no longer waited on, or was not open. What of its reply waits or is held is `dead` now, and a part that
    /// is being sent will be unless it arrives: it is not tried again. None of these count in [`Counts::outbox_dead`].
    async fn close_card(&self, id: OutboxId) -> Result<(), StoreError>;

    /// The cards that are open, oldest first. Those found at start are of turns that are gone: they are to be closed
    /// after [`Store::recover`] and before anything is sent, since their parts wait like others.
    async fn open_cards(&self) -> Result<Vec<OpenCard>, StoreError>;

    /// The oldest unsent part for a chat (platform, account and chat id; threads share the queue), `waiting → sending`.
    async fn next_send(&self, target: &ChatTarget) -> Result<NextSend, StoreError>;

    /// The same, but for parts that may have been said already: [`NextSend::Repeat`].
    async fn next_new_send(&self, target: &ChatTarget) -> Result<NextSend, StoreError>;

    /// Records how an attempt ended, and what follows for the reply's other parts and its delivery. `Some` when the
    /// delivery is settled now: delivered or failed.
    async fn record_send(
        &self,
        id: OutboxId,
        record: SendRecord,
    ) -> Result<Option<(DeliveryRef, Result<(), String>)>, StoreError>;

    /// The newest parts that were sent to a chat, oldest first; `reply_to` is that of the whole reply.
    async fn sent_to(&self, target: &ChatTarget, limit: u32) -> Result<Vec<SentPart>, StoreError>;

    /// The platform's id of a part; `None` while it is not confirmed that it was sent, and when it is not known (any more).
    async fn sent_id(&self, id: OutboxId) -> Result<Option<String>, StoreError>;

    /// How many replies a message got that were or will be said, once it is through; `None` while it waits or runs, and
    /// when it is not known.
    async fn replies_of(
        &self,
        dedup_key: &str,
        target: &ChatTarget,
        message_id: &str,
    ) -> Result<Option<usize>, StoreError>;

    /// At start, before anything else: `running` rows wait again; `sending` rows become `waiting` and marked, or `held`.
    /// `repeat_is_safe_ms` tells for a platform how long after the first attempt a repeat needs no mark.
    async fn recover(
        &self,
        policy: UncertainSends,
        repeat_is_safe_ms: &(dyn for<'a> Fn(&'a ChatTarget) -> i64 + Send + Sync),
    ) -> Result<Unfinished, StoreError>;

    /// Allows something for good. The same scope and key again changes nothing.
    async fn allow(&self, rule: NewRule) -> Result<(), StoreError>;

    /// What is allowed for good, oldest first.
    async fn rules(&self) -> Result<Vec<Rule>, StoreError>;

    /// Allows it no longer; the rule it was, `None` when there is none of this number.
    async fn revoke(&self, id: i64) -> Result<Option<Rule>, StoreError>;

    /// Adds to what each of the scopes used up on a day (`YYYY-MM-DD`).
    async fn spend(&self, scopes: &[String], day: &str, spent: Spent) -> Result<(), StoreError>;

    /// What each of the scopes used up on a day, in the order asked.
    async fn spent(&self, scopes: &[String], day: &str) -> Result<Vec<Spent>, StoreError>;

    /// Counts for the status.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// Newest deliveries first, of one route or of all.
    async fn deliveries(&self, route: Option<&str>, limit: u32) -> Result<Vec<DeliveryRow>, StoreError>;

    /// Writes a row and reads it back: whether the store works now.
    async fn probe(&self) -> Result<(), StoreError>;

    /// Deletes what is finished and older than `days`, deliveries older than 7 days, what was used up on days older than
    /// 40, then the oldest finished rows while
    /// the database is larger than `max_bytes`. Returns how many rows went.
    async fn retain(&self, days: u32, max_bytes: u64) -> Result<u64, StoreError>;

    /// Waits for writes under way and closes the files.
    async fn close(&self);
}

/// What a statement came to grief on, before the driver says what it means.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// Something that cannot be, such as stored text that this build cannot read.
    #[error("{0}")]
    Defect(String),
    /// Not even tried, for a reason that is told as it stands.
    #[error(transparent)]
    Refused(#[from] StoreError),
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        // Only what was expected and where: the message itself may be private.
        Self::Defect(format!("a stored row cannot be read: {:?} error at column {}", error.classify(), error.column()))
    }
}

/// What an error of a database means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Another process or transaction was in the way: soon again.
    Busy,
    /// The connection is gone: again on a new one.
    Away,
    /// No space, no permission, an I/O error: maybe later.
    Unavailable,
    /// The file is damaged or is no database.
    Damaged,
    /// Anything else: our statement is wrong.
    Defect,
}
