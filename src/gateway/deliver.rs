//! From a stored reply to a message the platform confirmed. One worker per chat: at most one send is under way for it,
//! whatever session or route the reply comes from, and a chat that must wait holds up no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hookgate_adapters::{
    Adapter, ChatTarget, OutboundMessage, Part, Platform, ReplyToMode, SendError, is_blank, without_delimiters,
};
use hookgate_hooks::Event;
use hookgate_hooks::payload::{WebhookDelivered, WebhookFailed};
use tokio::sync::oneshot;

use super::Gateway;
use crate::store::{DeliveryRef, NextSend, OutboxRow, SendRecord, UncertainSends};

/// A part that could not be sent for so long is given up, if it was tried at least [`TRIES_BEFORE_EXPIRY`] times: a clock
/// that jumps must not expire what was never tried.
const EXPIRES_AFTER: Duration = Duration::from_secs(24 * 3600);
const TRIES_BEFORE_EXPIRY: i64 = 3;
/// The first pause before a platform that does not answer is looked for again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A platform that says that it fails is left alone so long before the one repeat of a part is spent on it.
const WHILE_FAILING: Duration = Duration::from_secs(45);
/// The longest pause between two attempts that the platform did not ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The chats that are being sent to, and those who wait for a delivery to be settled.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    chats: Mutex<HashMap<ChatKey, bool>>,
    followers: Followers,
    followed: AtomicU64,
}

type Outcome = Result<(), String>;
type Followers = Arc<Mutex<HashMap<DeliveryRef, Vec<(u64, oneshot::Sender<Outcome>)>>>>;

/// A chat with one queue; threads share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ChatKey {
    platform: Platform,
    account: String,
    chat_id: String,
}

impl From<&ChatTarget> for ChatKey {
    fn from(target: &ChatTarget) -> Self {
        Self { platform: target.platform, account: target.account.clone(), chat_id: target.chat_id.clone() }
    }
}

/// Resolves when a delivery is settled: `Ok` delivered, `Err` failed and why. Dropping it stops following.
#[derive(Debug)]
pub struct Settled {
    delivery: DeliveryRef,
    number: u64,
    outcome: oneshot::Receiver<Outcome>,
    followers: Followers,
}

impl Settled {
    /// Waits at most so long; `None` when it is not settled by then.
    pub async fn within(mut self, wait: Duration) -> Option<Outcome> {
        tokio::time::timeout(wait, &mut self.outcome).await.ok()?.ok()
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = followers.get_mut(&self.delivery) {
            all.retain(|(number, _)| *number != self.number);
            if all.is_empty() {
                followers.remove(&self.delivery);
            }
        }
    }
}

impl Outbox {
    pub(super) fn follow(&self, delivery: &DeliveryRef) -> Settled {
        let (tx, outcome) = oneshot::channel();
        let number = self.followed.fetch_add(1, Ordering::Relaxed);
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.entry(delivery.clone()).or_default().push((number, tx));
        drop(followers);
        Settled { delivery: delivery.clone(), number, outcome, followers: Arc::clone(&self.followers) }
    }

    /// Whether the caller has to start a worker; a running one is told to look again.
    fn wake(&self, chat: &ChatKey) -> bool {
        let mut chats = self.chats.lock().unwrap_or_else(PoisonError::into_inner);
        match chats.get_mut(chat) {
            Some(again) => {
                *again = true;
                false
            }
            None => {
                chats.insert(chat.clone(), false);
                true
            }
        }
    }

    /// The worker ends before it is through; the next wake starts another.
    fn forget(&self, chat: &ChatKey) {
        self.chats.lock().unwrap_or_else(PoisonError::into_inner).remove(chat);
    }

    /// The worker found nothing: whether it ends, or looks again because it was woken meanwhile.
    fn rest(&self, chat: &ChatKey) -> bool {
        let mut chats = self.chats.lock().unwrap_or_else(PoisonError::into_inner);
        match chats.get_mut(chat) {
            Some(again) if *again => {
                *again = false;
                false
            }
            _ => {
                chats.remove(chat);
                true
            }
        }
    }
}

/// Every platform takes parts of so many characters.
const SMALL_PART: usize = 1_900;

/// A worker at a chat. However it ends, the next reply finds the chat free for another.
struct Shift {
    gateway: Gateway,
    chat: ChatKey,
    /// It found nothing more to do and has left the chat.
    over: bool,
}

impl Drop for Shift {
    fn drop(&mut self) {
        if !self.over {
            self.gateway.0.outbox.forget(&self.chat);
        }
    }
}

/// Cuts a text for a platform; into small plain parts where the platform is not running. Blank text gives no part.
pub(super) fn split(adapter: Option<&Arc<dyn Adapter>>, text: &str) -> Vec<Part> {
    match adapter {
        Some(adapter) => adapter.split(text),
        None => {
            let text = without_delimiters(text);
            if is_blank(&text) {
                return Vec::new();
            }
            let chars: Vec<char> = text.chars().collect();
            let parts = chars.chunks(SMALL_PART).map(|chunk| chunk.iter().collect::<String>());
            parts.map(Part::verbatim).collect()
        }
    }
}

impl Gateway {
    /// Sends what waits for a chat, in a task of its own.
    pub(super) fn send_waiting(&self, target: &ChatTarget) {
        let Some(adapter) = self.adapter(target) else {
            // It stays in the outbox until a start with the platform enabled.
            tracing::warn!(platform = %target.platform, chat_id = %target.chat_id, "A reply waits for a platform that is not running.");
            return;
        };
        let chat = ChatKey::from(target);
        if !self.0.outbox.wake(&chat) {
            return;
        }
        let (gateway, adapter, target) = (self.clone(), Arc::clone(adapter), target.clone());
        let busy = self.busy();
        self.0.tasks.spawn(async move {
            let mut shift = Shift { gateway: gateway.clone(), chat, over: false };
            let mut busy = Some(busy);
            // The one repeat of a part is not spent while nobody is there to take it.
            let (mut is_reachable, mut pause) = (false, FIRST_PAUSE);
            while !gateway.0.abort.is_cancelled() {
                let store = &gateway.0.store;
                let next = match is_reachable {
                    true => gateway.until_stored(|| store.next_send(&target)).await,
                    false => gateway.until_stored(|| store.next_new_send(&target)).await,
                };
                let Some(next) = next else { break };
                let mut wait = None;
                match next {
                    NextSend::Part(row) => {
                        is_reachable = false;
                        gateway.send(adapter.as_ref(), *row).await;
                    }
                    NextSend::Repeat => {
                        is_reachable = adapter.is_reachable().await;
                        wait = (!is_reachable).then_some(pause);
                        pause = if is_reachable { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    }
                    NextSend::NotBefore(time) => {
                        let millis = u64::try_from(time - gateway.0.clock.now()).unwrap_or(0);
                        wait = Some(Duration::from_millis(millis));
                    }
                    NextSend::Nothing => {
                        shift.over = gateway.0.outbox.rest(&shift.chat);
                        if shift.over {
                            break;
                        }
                    }
                }
                if let Some(wait) = wait {
                    drop(busy.take());
                    tokio::select! {
                        () = tokio::time::sleep(wait) => busy = Some(gateway.busy()),
                        () = gateway.0.abort.cancelled() => {}
                    }
                }
            }
            drop(busy);
        });
    }

    /// One attempt at one part, recorded.
    async fn send(&self, adapter: &dyn Adapter, row: OutboxRow) {
        let anchored = match adapter.reply_to_mode() {
            ReplyToMode::First => row.number == 1,
            ReplyToMode::All => true,
            ReplyToMode::Off => false,
        };
        let message = OutboundMessage {
            target: row.target.clone(),
            part: row.part.clone(),
            reply_to: row.reply_to.clone().filter(|_| anchored),
            nonce: row.id.0.to_string(),
            marked: row.marked,
        };
        let outcome = adapter.send(&message).await;
        let record = self.verdict(adapter, &row, outcome);
        self.log_record(&row, &record);
        let id = row.id;
        let Some(settled) = self.until_stored(|| self.0.store.record_send(id, record.clone())).await else { return };
        let closed = self.0.approvals.recorded(&row, &record);
        if let (Some(text), SendRecord::Sent(message_id)) = (closed, &record) {
            self.edit_late(&row.target, message_id, text);
        }
        if let SendRecord::Sent(message_id) = &record {
            self.tell_sent(&row, message_id);
        }
        if let Some((delivery, outcome)) = settled {
            self.settle(&delivery, &row.target.to_string(), &outcome);
        }
    }

    /// What an attempt's outcome means.
    fn verdict(&self, adapter: &dyn Adapter, row: &OutboxRow, outcome: Result<String, SendError>) -> SendRecord {
        let now = self.0.clock.now();
        let millis = |pause: Duration| i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        let expired = now - row.created_at > millis(EXPIRES_AFTER) && row.attempts >= TRIES_BEFORE_EXPIRY;
        let backoff = |attempts: i64| {
            let doublings = u32::try_from(attempts - 1).unwrap_or(0).min(6);
            (Duration::from_secs(1) * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
        };
        match outcome {
            Ok(message_id) => SendRecord::Sent(message_id),
            Err(error @ (SendError::RetryAfter(_) | SendError::NotSent(_))) if expired => {
                SendRecord::Dead(format!("given up after 24 hours and {} attempts: {error}", row.attempts))
            }
            Err(SendError::RetryAfter(wait)) => SendRecord::Again {
                not_before: now.saturating_add(millis(wait)),
                error: SendError::RetryAfter(wait).to_string(),
            },
            Err(SendError::NotSent(error)) => {
                SendRecord::Again { not_before: now + millis(backoff(row.attempts)), error }
            }
            Err(SendError::Refused(error)) => SendRecord::Dead(error),
            Err(error @ SendError::Unsupported) => SendRecord::Dead(error.to_string()),
            Err(SendError::Unknown(error)) => self.after_unknown(adapter, row, error, backoff(row.attempts)),
            Err(SendError::Failing(error)) => self.after_unknown(adapter, row, error, WHILE_FAILING),
        }
    }

    /// What follows an attempt that may or may not have arrived; `pause` comes before the next.
    fn after_unknown(&self, adapter: &dyn Adapter, row: &OutboxRow, error: String, pause: Duration) -> SendRecord {
        let now = self.0.clock.now();
        let millis = |pause: Duration| i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        let not_before = now.saturating_add(millis(pause));
        if now - row.first_attempt_at.unwrap_or(now) < millis(adapter.repeat_is_safe_for()) {
            SendRecord::Again { not_before, error }
        } else if row.marked {
            SendRecord::Uncertain(error)
        } else if self.0.rules.uncertain_sends == UncertainSends::Hold {
            SendRecord::Held(error)
        } else {
            SendRecord::AgainMarked { not_before, error }
        }
    }

    fn log_record(&self, row: &OutboxRow, record: &SendRecord) {
        let (platform, chat_id) = (row.target.platform, &row.target.chat_id);
        match record {
            SendRecord::Sent(_) => {}
            SendRecord::Again { error, .. } if row.attempts == 1 => {
                tracing::warn!(%platform, %chat_id, %error, "A reply was not sent yet; it is tried again.");
            }
            SendRecord::Again { error, .. } => {
                tracing::debug!(%platform, %chat_id, %error, attempts = row.attempts, "A reply was not sent yet.");
            }
            SendRecord::AgainMarked { error, .. } => {
                tracing::warn!(%platform, %chat_id, %error, "A reply may or may not have arrived; it is sent once more, marked ↻.");
            }
            SendRecord::Uncertain(error) => {
                tracing::error!(%platform, %chat_id, %error, "A reply and its marked repeat may or may not have arrived.");
            }
            SendRecord::Held(error) => {
                tracing::error!(%platform, %chat_id, %error, "A reply may or may not have arrived; it is held (uncertain_sends: hold).");
            }
            SendRecord::Dead(error) => tracing::error!(%platform, %chat_id, %error, "A reply could not be delivered."),
        }
    }

    /// A delivery came to its end: those who follow it and the hooks are told.
    pub(super) fn settle(&self, delivery: &DeliveryRef, target: &str, outcome: &Outcome) {
        let (route, delivery_id) = (delivery.route.clone(), delivery.delivery_id.clone());
        match outcome {
            Ok(()) => self.0.hooks.emit(&Event::WEBHOOK_DELIVERED, || WebhookDelivered {
                route,
                delivery_id,
                target: target.to_owned(),
            }),
            Err(error) => self.0.hooks.emit(&Event::WEBHOOK_FAILED, || WebhookFailed {
                route,
                delivery_id,
                target: Some(target.to_owned()),
                error: error.clone(),
            }),
        }
        let followers = self.0.outbox.followers.lock().unwrap_or_else(PoisonError::into_inner).remove(delivery);
        for (_, follower) in followers.unwrap_or_default() {
            let _ = follower.send(outcome.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_for_a_platform_that_is_not_running_has_no_delimiters() {
        let text = format!("**{}**", hookgate_adapters::delimited("*a*"));
        assert_eq!(split(None, &text), [Part::verbatim("***a***".into())]);
        assert!(split(None, &hookgate_adapters::delimited(" ")).is_empty());
    }
}
