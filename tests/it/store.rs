//! Stories about what is durable. Each runs on every database hookgate supports, in a home of its own and with a clock
//! that the story moves.

mod cards;
mod damage;
mod deliveries;
mod disk;
mod inbox;
mod outbox;
mod postgres;
mod processes;
mod retention;
mod rules;
mod sessions;
mod spending;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hookgate::clock::Clock;
use hookgate::session::{Role, SessionKey, TurnStatus};
use hookgate::store::{
    Accepted, Admission, DeliveryRef, Finish, InboxId, NewMessage, NewReply, NextSend, OpenOptions, Opened, OutboxRow,
    SessionedMessage, SqlStore,
};
use hookgate_adapters::{ChatTarget, ChatType, InboundMessage, Part, Platform, Source};
use tempfile::TempDir;

use crate::support;

const START: i64 = 1_796_065_693_000;
const SECOND: i64 = 1000;
const HOUR: i64 = 60 * 60 * SECOND;
const DAY: i64 = 24 * HOUR;

/// A home with a database and a clock.
struct Home {
    dir: TempDir,
    url: String,
    time: Arc<AtomicI64>,
}

/// One home per database.
fn stores() -> Vec<Home> {
    let postgres = support::postgres::shared().map(|server| Home::new(&server.schema()));
    [Home::new("sqlite:hookgate.db")].into_iter().chain(postgres).collect()
}

impl Home {
    fn new(url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, url: url.to_owned(), time: Arc::new(AtomicI64::new(START)) }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn is_file(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    fn database(&self) -> PathBuf {
        assert!(self.is_file());
        self.path().join("hookgate.db")
    }

    fn options(&self) -> OpenOptions {
        let time = Arc::clone(&self.time);
        OpenOptions::new(self.path(), &self.url).clock(Clock::new(move || time.load(Ordering::SeqCst)))
    }

    /// Opens the store and expects that there is nothing to tell about it.
    async fn open(&self) -> SqlStore {
        let Opened { store, notes } = SqlStore::open(self.options()).await.unwrap();
        assert_eq!(notes, Vec::<String>::new());
        store
    }

    fn pass(&self, ms: i64) {
        self.time.fetch_add(ms, Ordering::SeqCst);
    }

    fn now(&self) -> i64 {
        self.time.load(Ordering::SeqCst)
    }
}

fn source(chat: &str) -> Source {
    Source {
        platform: Platform::Telegram,
        account: "bot".to_owned(),
        chat_id: chat.to_owned(),
        chat_name: None,
        chat_type: ChatType::Dm,
        user_id: Some("7".to_owned()),
        user_name: Some("Alice".to_owned()),
        thread_id: None,
        is_bot: false,
    }
}

fn key(chat: &str) -> SessionKey {
    SessionKey(format!("agent:main:telegram:dm:{chat}"))
}

fn target(chat: &str) -> ChatTarget {
    source(chat).reply_target()
}

fn accepted(chat: &str, n: usize) -> Accepted {
    let message = InboundMessage {
        source: source(chat),
        message_id: n.to_string(),
        dedup_key: format!("telegram:{chat}:{n}"),
        text: format!("message {n} with ünïcödé \u{1f980}"),
        media: Vec::new(),
        quoted: None,
        sent_at: START,
        addressed: true,
        edited: false,
    };
    Accepted { message, deliver: Vec::new(), delivery: None, tools: None }
}

fn message(chat: &str, n: usize) -> SessionedMessage {
    SessionedMessage { session_key: key(chat), accepted: accepted(chat, n) }
}

#[expect(clippy::needless_pass_by_value, reason = "it is always handed a fresh answer")]
fn new_id(admission: Admission) -> InboxId {
    match admission {
        Admission::New(id) => id,
        Admission::Duplicate => panic!("a duplicate"),
    }
}

fn part(text: &str) -> Part {
    Part { formatted: format!("<b>{text}</b>"), plain: text.to_owned(), buttons: Vec::new() }
}

fn reply(chat: &str, texts: &[&str]) -> NewReply {
    NewReply {
        target: target(chat),
        reply_to: Some("99".to_owned()),
        parts: texts.iter().map(|text| part(text)).collect(),
        delivery: None,
        session_key: Some(key(chat)),
    }
}

fn delivery(id: &str) -> DeliveryRef {
    DeliveryRef { route: "github".to_owned(), delivery_id: id.to_owned() }
}

fn said(role: Role, text: &str) -> NewMessage {
    NewMessage { role, text: text.to_owned(), status: TurnStatus::Completed }
}

/// Accepts a message, runs its turn and stores these replies.
async fn answer(store: &SqlStore, chat: &str, n: usize, replies: Vec<NewReply>) -> Vec<hookgate::store::OutboxId> {
    let id = new_id(store.accept(message(chat, n)).await.unwrap());
    store.claim(id).await.unwrap().unwrap();
    let finish = Finish { replies, ..Finish::default() };
    store.finish(id, finish).await.unwrap().unwrap().outbox
}

async fn claim_part(store: &SqlStore, chat: &str) -> OutboxRow {
    match store.next_send(&target(chat)).await.unwrap() {
        NextSend::Part(row) => *row,
        other => panic!("{other:?} instead of a part for {chat}"),
    }
}

async fn nothing_to_send(store: &SqlStore, chat: &str) {
    assert_eq!(store.next_send(&target(chat)).await.unwrap(), NextSend::Nothing);
}
