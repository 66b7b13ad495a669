//! The chat page and `hookgate chat`: a hub that passes replies to whoever is watching a chat.
//!
//! Messages come in through the console's routes, not from here, and what was said is kept in the store, not here: a
//! watcher that was away or fell behind reads it again from there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use crate::{Adapter, AdapterState, Button, ChatTarget, Inbound, OutboundMessage, Part, Platform, SendError, Status};

/// How many events a watcher may be behind before it is told to reload.
const EVENTS_KEPT: usize = 256;

/// What a watcher of a local chat sees. As JSON: `{"type": "partial", …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum LocalEvent {
    /// The answer so far, while the model speaks. The whole of it, in Markdown.
    Partial {
        /// The message it answers.
        reply_to: String,
        /// The text so far.
        text: String,
    },
    /// A reply. The same id is the same message, however often it comes.
    Message {
        /// The message's id.
        id: String,
        /// The message it answers.
        reply_to: Option<String>,
        /// The text, in Markdown.
        text: String,
        /// What can be pressed below it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        buttons: Vec<Vec<Button>>,
    },
    /// A reply has another text now, and these buttons instead of its own.
    Edited {
        /// The message's id.
        id: String,
        /// The text, in Markdown.
        text: String,
        /// What can be pressed below it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        buttons: Vec<Vec<Button>>,
    },
    /// A message is through.
    Settled {
        /// The message.
        message_id: String,
        /// How many replies follow; 0: nothing is said.
        replies: usize,
    },
    /// A turn is running.
    Typing,
    /// The watcher fell behind and missed events: it must read the chat anew.
    Reload,
}

/// The local platform. It never fails and never blocks.
#[derive(Debug, Default)]
pub struct LocalAdapter {
    chats: Arc<Chats>,
}

/// Only chats somebody watches are in here.
type Chats = Mutex<HashMap<String, broadcast::Sender<LocalEvent>>>;

/// One watcher's events.
#[derive(Debug)]
pub struct LocalEvents {
    /// `None` only while being dropped.
    events: Option<broadcast::Receiver<LocalEvent>>,
    chat_id: String,
    chats: Weak<Chats>,
}

impl LocalAdapter {
    /// A hub without watchers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches a chat from now on.
    pub fn subscribe(&self, chat_id: &str) -> LocalEvents {
        let mut chats = lock(&self.chats);
        let sender = chats.entry(chat_id.to_owned()).or_insert_with(|| broadcast::Sender::new(EVENTS_KEPT));
        LocalEvents {
            events: Some(sender.subscribe()),
            chat_id: chat_id.to_owned(),
            chats: Arc::downgrade(&self.chats),
        }
    }

    fn tell(&self, chat_id: &str, event: LocalEvent) {
        if let Some(sender) = lock(&self.chats).get(chat_id) {
            // Nobody watching is no failure.
            let _ = sender.send(event);
        }
    }
}

impl LocalEvents {
    /// The next event. Waits for ever while nothing happens; `None` when the adapter is gone. Safe to cancel.
    pub async fn next(&mut self) -> Option<LocalEvent> {
        match self.events.as_mut()?.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(_)) => Some(LocalEvent::Reload),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for LocalEvents {
    fn drop(&mut self) {
        let Some(chats) = self.chats.upgrade() else { return };
        let mut chats = lock(&chats);
        self.events = None;
        if chats.get(&self.chat_id).is_some_and(|sender| sender.receiver_count() == 0) {
            chats.remove(&self.chat_id);
        }
    }
}

/// Nothing that can panic runs under the lock, so the map behind a poisoned one is whole.
fn lock(chats: &Chats) -> std::sync::MutexGuard<'_, HashMap<String, broadcast::Sender<LocalEvent>>> {
    chats.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Adapter for LocalAdapter {
    fn platform(&self) -> Platform {
        Platform::Local
    }

    /// Messages come in through the console's routes.
    async fn listen(&self, _inbound: Arc<dyn Inbound>, stop: CancellationToken) {
        stop.cancelled().await;
    }

    /// One part, Markdown as it stands.
    fn split(&self, markdown: &str) -> Vec<Part> {
        let text = crate::without_delimiters(markdown);
        if crate::markdown::is_blank(&text) {
            return Vec::new();
        }
        vec![Part::verbatim(text.into_owned())]
    }

    /// The message's id is its nonce.
    async fn send(&self, message: &OutboundMessage) -> Result<String, SendError> {
        let mark = if message.marked { "↻ " } else { "" };
        let event = LocalEvent::Message {
            id: message.nonce.clone(),
            reply_to: message.reply_to.clone(),
            text: format!("{mark}{}", message.part.formatted),
            buttons: message.part.buttons.clone(),
        };
        self.tell(&message.target.chat_id, event);
        Ok(message.nonce.clone())
    }

    /// Who watches sees it at once. The store keeps what was sent first.
    async fn edit(&self, target: &ChatTarget, message_id: &str, part: &Part) -> Result<(), SendError> {
        let (text, buttons) = (part.formatted.clone(), part.buttons.clone());
        self.tell(&target.chat_id, LocalEvent::Edited { id: message_id.to_owned(), text, buttons });
        Ok(())
    }

    async fn typing(&self, target: &ChatTarget) {
        self.tell(&target.chat_id, LocalEvent::Typing);
    }

    fn partial(&self, target: &ChatTarget, reply_to: &str, text: &str) {
        let event = LocalEvent::Partial { reply_to: reply_to.to_owned(), text: text.to_owned() };
        self.tell(&target.chat_id, event);
    }

    fn settled(&self, target: &ChatTarget, message_id: &str, replies: usize) {
        self.tell(&target.chat_id, LocalEvent::Settled { message_id: message_id.to_owned(), replies });
    }

    fn shows_partial(&self) -> bool {
        true
    }

    fn repeat_is_safe_for(&self) -> Duration {
        Duration::MAX
    }

    fn status(&self) -> Status {
        Status { state: AdapterState::Connected, error: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(chat: &str) -> ChatTarget {
        ChatTarget { platform: Platform::Local, account: String::new(), chat_id: chat.into(), thread_id: None }
    }

    fn message(adapter: &LocalAdapter, chat: &str, text: &str) -> OutboundMessage {
        let part = adapter.split(text).remove(0);
        OutboundMessage { target: target(chat), part, reply_to: Some("q1".into()), nonce: "n1".into(), marked: false }
    }

    #[tokio::test]
    async fn watchers_of_a_chat_see_what_is_said_in_it_and_nothing_else() {
        let adapter = LocalAdapter::new();
        let (mut a1, mut a2, mut b) = (adapter.subscribe("a"), adapter.subscribe("a"), adapter.subscribe("b"));
        adapter.typing(&target("a")).await;
        adapter.partial(&target("a"), "q1", "Hel");
        assert_eq!(adapter.send(&message(&adapter, "a", "**Hello**")).await, Ok("n1".into()));
        adapter.settled(&target("a"), "q1", 1);
        adapter.send(&message(&adapter, "b", "for b")).await.unwrap();
        for watcher in [&mut a1, &mut a2] {
            assert_eq!(watcher.next().await, Some(LocalEvent::Typing));
            assert_eq!(watcher.next().await, Some(LocalEvent::Partial { reply_to: "q1".into(), text: "Hel".into() }));
            let said = LocalEvent::Message {
                id: "n1".into(),
                reply_to: Some("q1".into()),
                text: "**Hello**".into(),
                buttons: Vec::new(),
            };
            assert_eq!(watcher.next().await, Some(said));
            let settled = LocalEvent::Settled { message_id: "q1".into(), replies: 1 };
            assert_eq!(watcher.next().await, Some(settled));
        }
        assert!(matches!(b.next().await, Some(LocalEvent::Message { text, .. }) if text == "for b"));
    }

    #[tokio::test]
    async fn a_message_shows_its_buttons_until_it_is_edited() {
        let adapter = LocalAdapter::new();
        let mut events = adapter.subscribe("a");
        let buttons = vec![vec![Button::new("Yes", "y:1")]];
        let mut card = message(&adapter, "a", "Sure?");
        card.part.buttons = buttons.clone();
        let id = adapter.send(&card).await.unwrap();
        assert!(matches!(events.next().await, Some(LocalEvent::Message { buttons: shown, .. }) if shown == buttons));
        adapter.edit(&target("a"), &id, &Part::verbatim("Yes, says Alice".to_owned())).await.unwrap();
        let edited = LocalEvent::Edited { id, text: "Yes, says Alice".into(), buttons: Vec::new() };
        assert_eq!(events.next().await, Some(edited));
    }

    #[tokio::test]
    async fn a_slow_watcher_is_told_to_reload_and_holds_nobody_up() {
        let adapter = LocalAdapter::new();
        let mut slow = adapter.subscribe("a");
        for count in 0..EVENTS_KEPT * 3 {
            adapter.partial(&target("a"), "q1", &count.to_string());
        }
        assert_eq!(slow.next().await, Some(LocalEvent::Reload));
        assert!(matches!(slow.next().await, Some(LocalEvent::Partial { .. })));
    }

    #[tokio::test]
    async fn a_chat_nobody_watches_is_forgotten_and_can_still_be_sent_to() {
        let adapter = LocalAdapter::new();
        drop((adapter.subscribe("a"), adapter.subscribe("a")));
        assert!(lock(&adapter.chats).is_empty());
        assert_eq!(adapter.send(&message(&adapter, "a", "x")).await, Ok("n1".into()));
        let mut events = adapter.subscribe("a");
        drop(adapter);
        assert_eq!(events.next().await, None);
    }

    #[test]
    fn text_is_one_part_as_it_stands() {
        let adapter = LocalAdapter::new();
        assert!(adapter.split(" \n ").is_empty());
        let long = "* x\n".repeat(5000);
        assert_eq!(adapter.split(&long), [Part::verbatim(long)]);
        let valued = format!("**{}**", crate::delimited("C:\\*x"));
        assert_eq!(adapter.split(&valued)[0].plain, "**C:\\*x**");
        assert!(adapter.split(&crate::delimited(" ")).is_empty());
    }
}
