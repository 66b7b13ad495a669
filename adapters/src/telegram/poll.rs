//! Hearing by long polling (by webhook: `webhook.rs`): sign in, ask for updates, hand each over, and only then move the offset past it.
//!
//! There is one poll at a time, each under a deadline of its own, and every failure is retried for ever with growing
//! waits. The status tells what is the case: `connected` only after a poll was answered.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::value::RawValue;
use teloxide::payloads::{
    AnswerCallbackQuery, DeleteWebhook, GetMe, GetMyCommands, GetUpdates, GetWebhookInfo, SetMyCommands,
};
use teloxide::types::{BotCommand, CallbackQueryId, User};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, info, warn};

use super::TelegramAdapter;
use super::api::{Failure, Refusal};
use super::buttons;
use super::groups::Bot;
use super::update::{self, Verdict};
use crate::{AdapterState, ChatMoved, Inbound, InboundMessage, NotAccepted, Press};

/// Most updates in one answer (Bot API, `getUpdates`).
const BATCH: u8 = 100;
/// Deadline of the calls that do not wait.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// How long a stop may take to tell Telegram what was handled.
const CONFIRM_DEADLINE: Duration = Duration::from_secs(1);
const PRESS_AGAIN: &str = "This takes too long; look in a moment, and press again if nothing happened.";
const PRESS_FAILED: &str = "Something went wrong here; press again.";
/// Deadline of the answer to who pressed: nobody looks for it later.
const TOAST_DEADLINE: Duration = Duration::from_secs(5);
/// Answers on their way at once; then what is heard waits for one of them.
const MOST_TOASTS: usize = 32;
/// The longest wait before a poll that is believed to have been asked for; a poll too early does no harm.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Telegram gives new updates random ids when a bot had none for a week; an offset must not outlive that.
const OFFSET_LIFETIME: Duration = Duration::from_secs(6 * 24 * 3600);
/// How many different kinds or chats are remembered as already logged.
const MOST_REMEMBERED: usize = 1000;

/// Telegram forgets updates after a day. One that seems much older was heard by a clock that is wrong, and is not skipped.
const KEPT_BY_TELEGRAM: Duration = Duration::from_secs(36 * 3600);

/// One run of [`crate::Adapter::listen`].
pub(super) struct Listener<'a> {
    pub(super) adapter: &'a TelegramAdapter,
    inbound: Arc<dyn Inbound>,
    pub(super) stop: CancellationToken,
    bot: Bot,
    /// The album that was heard of last in each chat.
    albums: HashMap<String, String>,
    pub(super) backoff: Backoff,
    cursor: Cursor,
    too_old: usize,
    /// What is heard waited for the start; afterwards nothing is too old.
    backlog: bool,
    logged: HashSet<String>,
    /// Answers to presses on their way.
    toasts: JoinSet<()>,
}

/// What the gateway is told.
pub(super) enum Heard {
    Message(Box<InboundMessage>),
    Moved(ChatMoved),
    /// With the id of the query to be answered.
    Pressed(Box<Press>, String),
}

/// Only the address is of interest; teloxide's type would have to know every other field.
#[derive(Deserialize)]
pub(super) struct Webhook {
    #[serde(default)]
    pub(super) url: String,
}

impl Webhook {
    /// Whose it is, without what may be secret in its address.
    pub(super) fn host(&self) -> String {
        let host = reqwest::Url::parse(&self.url).ok().and_then(|url| url.host_str().map(str::to_owned));
        host.unwrap_or_else(|| "an unreadable address".to_owned())
    }
}

impl<'a> Listener<'a> {
    pub(super) fn new(adapter: &'a TelegramAdapter, inbound: Arc<dyn Inbound>, stop: CancellationToken) -> Self {
        let backoff = Backoff::new(adapter.options.first_retry, adapter.options.longest_retry);
        Self {
            adapter,
            inbound,
            stop,
            bot: Bot::default(),
            albums: HashMap::new(),
            backoff,
            cursor: Cursor::default(),
            too_old: 0,
            backlog: true,
            logged: HashSet::new(),
            toasts: JoinSet::new(),
        }
    }

    /// Hears until the stop.
    pub(super) async fn run(mut self) {
        if self.sign_in().await.is_none() {
            return;
        }
        let menu = offer_menu(self.adapter, self.stop.clone());
        if let Some(webhook) = &self.adapter.options.webhook {
            tokio::join!(self.serve(webhook), menu);
            self.report_too_old();
            return finish(std::mem::take(&mut self.toasts)).await;
        }
        if self.remove_webhook().await.is_none() {
            return;
        }
        tokio::join!(self.poll_until_stopped(), menu);
        self.report_too_old();
        let toasts = finish(std::mem::take(&mut self.toasts));
        tokio::join!(self.confirm(), toasts);
    }

    /// Learns who the bot is. `None` when stopped.
    async fn sign_in(&mut self) -> Option<()> {
        loop {
            match self.call::<_, User>(&GetMe::new(), CALL_DEADLINE).await? {
                Ok(me) => {
                    info!(platform = "telegram", bot = me.username, bot_id = me.id.0, "signed in to Telegram");
                    let account = self.adapter.options.account.clone();
                    self.bot = Bot { account, id: me.id.to_string(), username: me.username };
                    self.backoff.reset();
                    return Some(());
                }
                Err(failure) => self.wait_after(&failure).await?,
            }
        }
    }

    /// While a webhook is registered, polls are refused. `None` when stopped.
    async fn remove_webhook(&mut self) -> Option<()> {
        loop {
            let failure = match self.call::<_, Webhook>(&GetWebhookInfo::new(), CALL_DEADLINE).await? {
                Ok(webhook) if webhook.url.is_empty() => return Some(()),
                Ok(webhook) => {
                    let host = webhook.host();
                    let text = format!(
                        "the bot had a webhook at {host}, of another program with the same token or of an earlier \
                         configuration; hookgate polls and removes it"
                    );
                    warn!(platform = "telegram", host, "{text}; waiting updates are kept");
                    self.adapter.status.set(AdapterState::Connecting, Some(text));
                    let delete = DeleteWebhook { drop_pending_updates: Some(false) };
                    match self.call::<_, bool>(&delete, CALL_DEADLINE).await? {
                        Ok(_) => return Some(()),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            self.wait_after(&failure).await?;
        }
    }

    async fn poll_until_stopped(&mut self) {
        // The first poll, and the first one after a failure, does not wait: its answer proves the connection at once.
        let mut waits = false;
        while !self.stop.is_cancelled() {
            let begun = Instant::now();
            let Some(outcome) = self.poll(waits).await else { return };
            let failure = match outcome {
                Ok(updates) => {
                    self.cursor.confirmed();
                    self.connected();
                    if waits || !updates.is_empty() {
                        self.backoff.reset();
                    }
                    let first_retry = self.adapter.options.first_retry;
                    if waits && updates.is_empty() && begun.elapsed() < first_retry {
                        // A server that does not wait for updates must not be asked without a pause.
                        if self.pause(first_retry).await.is_none() {
                            return;
                        }
                    }
                    waits = true;
                    let before = self.cursor.next;
                    if self.take(&updates).await.is_none() {
                        return;
                    }
                    if updates.is_empty() || self.cursor.next != before {
                        continue;
                    }
                    Failure::Unknown("Telegram's updates have no readable ids".to_owned())
                }
                Err(failure) => failure,
            };
            if waits
                && matches!(failure, Failure::Unknown(_) | Failure::Failing(_))
                && begun.elapsed() >= self.adapter.poll_timeout() / 2
            {
                self.backoff.reset(); // something on the way cuts quiet connections: no reason to come back late
            }
            waits = false;
            if self.wait_after(&failure).await.is_none() {
                return;
            }
            // The webhook may have been set while we ran.
            if is_webhook_conflict(&failure) && self.remove_webhook().await.is_none() {
                return;
            }
        }
    }

    /// Asks for updates once. `None` when stopped, which ends the waiting request.
    async fn poll(&mut self, waits: bool) -> Option<Result<Vec<Box<RawValue>>, Failure>> {
        let timeout = if waits { self.adapter.poll_timeout() } else { Duration::ZERO };
        let payload = GetUpdates {
            offset: self.cursor.offset(Instant::now()),
            limit: Some(BATCH),
            timeout: Some(u32::try_from(timeout.as_secs()).unwrap_or(0)),
            // Always given: what another program asked for earlier would go on to apply.
            allowed_updates: Some(self.adapter.allowed_updates()),
        };
        self.call(&payload, timeout + self.adapter.poll_grace()).await
    }

    /// Hands a batch over, in order. `None` when stopped before its end.
    async fn take(&mut self, updates: &[Box<RawValue>]) -> Option<()> {
        for raw in updates {
            if self.stop.is_cancelled() {
                return None;
            }
            let Some(id) = update::update_id(raw.get()) else {
                self.log_once("update without a readable id");
                continue;
            };
            if let Some(heard) = self.sort(raw.get(), id).await {
                self.offer(&heard).await?;
            }
            self.cursor.advance(id);
        }
        if updates.len() < usize::from(BATCH) {
            self.report_too_old();
            self.backlog = false;
        }
        Some(())
    }

    /// What of an update the gateway is to be told; the rest is counted or logged.
    pub(super) async fn sort(&mut self, raw: &str, id: i32) -> Option<Heard> {
        match update::read(raw, id, &self.bot, &self.adapter.options.groups, self.adapter.options.edits) {
            Verdict::Message(message, _) if self.is_too_old(&message) => self.too_old += 1,
            Verdict::Message(message, album) if self.is_rest_of_album(&message, album.as_deref()) => {
                debug!(platform = "telegram", update_id = id, "the album is answered already");
            }
            Verdict::Message(message, _) => return Some(Heard::Message(message)),
            Verdict::Moved(moved) => return Some(Heard::Moved(moved)),
            Verdict::Pressed(press, query) => return Some(Heard::Pressed(press, query)),
            Verdict::NotPressed { query, toast, why } => {
                self.log_once(&why);
                self.toast(&query, toast).await;
            }
            Verdict::FromBot => debug!(platform = "telegram", update_id = id, "a bot's message is ignored"),
            Verdict::NotHandled(what) | Verdict::NotHeard(what) => self.log_once(&what),
        }
        None
    }

    /// Offers what was heard until it is stored. `None` when stopped before that.
    async fn offer(&mut self, heard: &Heard) -> Option<()> {
        let mut backoff = Backoff::new(self.adapter.options.first_retry, self.adapter.options.longest_retry);
        while !self.offer_once(heard).await {
            self.pause(backoff.next()).await?;
        }
        self.connected();
        Some(())
    }

    /// Whether it is stored. When it is not, the status and the log say so.
    pub(super) async fn offer_once(&mut self, heard: &Heard) -> bool {
        let (outcome, chat_id) = match heard {
            Heard::Message(message) => {
                (self.inbound.accept(InboundMessage::clone(message)).await, &message.source.chat_id)
            }
            Heard::Moved(moved) => (self.inbound.moved(moved).await, &moved.from),
            Heard::Pressed(press, query) => match self.press(press, query).await {
                Some(outcome) => (outcome, &press.source.chat_id),
                None => return false,
            },
        };
        let Err(error) = outcome else { return true };
        let text = format!("{error}; Telegram keeps it meanwhile");
        if self.adapter.status.set(AdapterState::Connecting, Some(text)) {
            warn!(platform = "telegram", chat_id, "{error}");
        }
        false
    }

    /// Hands a press over and answers who pressed. `None` when stopped before that.
    async fn press(&mut self, press: &Press, query: &str) -> Option<Result<(), NotAccepted>> {
        // In a task of its own: what is begun is not dropped halfway when it takes too long.
        let (inbound, pressed) = (Arc::clone(&self.inbound), press.clone());
        let acting = tokio::spawn(async move { inbound.pressed(pressed).await }.in_current_span());
        let chat_id = &press.source.chat_id;
        let at_most = self.adapter.options.press_timeout;
        let toast = match self.stop.run_until_cancelled(tokio::time::timeout(at_most, acting)).await? {
            Ok(Ok(Ok(toast))) => toast,
            Ok(Ok(Err(not_accepted))) => return Some(Err(not_accepted)),
            Ok(Err(panic)) => {
                error!(platform = "telegram", chat_id, %panic, "A press could not be handled.");
                Some(PRESS_FAILED.to_owned())
            }
            Err(_) => {
                warn!(platform = "telegram", chat_id, "a press was not handled in {} ms", at_most.as_millis());
                Some(PRESS_AGAIN.to_owned())
            }
        };
        self.toast(query, toast.as_deref()).await;
        Some(Ok(()))
    }

    /// Answers a press, also without words: the person's program waits for it. Best effort, and nobody waits for it here.
    async fn toast(&mut self, query: &str, text: Option<&str>) {
        while self.toasts.try_join_next().is_some() {}
        if self.toasts.len() >= MOST_TOASTS {
            self.toasts.join_next().await;
        }
        let mut answer = AnswerCallbackQuery::new(CallbackQueryId(query.to_owned()));
        answer.text = text.and_then(buttons::toast);
        let api = self.adapter.api.clone();
        let answering = async move {
            if let Err(failure) = api.call::<_, bool>(&answer, TOAST_DEADLINE).await {
                debug!(platform = "telegram", ?failure, "a press was not answered");
            }
        };
        self.toasts.spawn(answering.in_current_span());
    }

    /// Tells Telegram what was handled, so that the next start is not offered it again. Best effort: what is offered
    /// again is known by its id.
    async fn confirm(&mut self) {
        if self.cursor.is_confirmed {
            return;
        }
        let payload = GetUpdates {
            offset: self.cursor.offset(Instant::now()),
            limit: Some(1),
            timeout: Some(0),
            allowed_updates: Some(self.adapter.allowed_updates()),
        };
        // What this answers stays with Telegram: only the next offset would confirm it.
        if let Err(failure) = self.adapter.api.call::<_, Vec<Box<RawValue>>>(&payload, CONFIRM_DEADLINE).await {
            debug!(platform = "telegram", ?failure, "the last offset was not confirmed");
        }
    }

    /// Each picture of an album is a message of its own; without words, only the first is worth an answer.
    fn is_rest_of_album(&mut self, message: &InboundMessage, album: Option<&str>) -> bool {
        let Some(album) = album else { return false };
        if self.albums.len() >= MOST_REMEMBERED {
            self.albums.clear();
        }
        let before = self.albums.insert(message.source.chat_id.clone(), album.to_owned());
        message.text.is_empty() && before.as_deref() == Some(album)
    }

    fn is_too_old(&self, message: &InboundMessage) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let said = Duration::from_millis(u64::try_from(message.sent_at).unwrap_or(0));
        let age = now.saturating_sub(said);
        self.backlog && age > self.adapter.options.max_update_age && age < KEPT_BY_TELEGRAM
    }

    fn report_too_old(&mut self) {
        let count = std::mem::take(&mut self.too_old);
        if count > 0 {
            let limit = self.adapter.options.max_update_age.as_secs();
            warn!(
                platform = "telegram",
                count, "skipped {count} waiting messages older than {limit} s (max_update_age)"
            );
        }
    }

    pub(super) fn log_once(&mut self, what: &str) {
        if self.logged.len() < MOST_REMEMBERED && self.logged.insert(what.to_owned()) {
            info!(platform = "telegram", "not handled, and not logged again: {what}");
        }
    }

    pub(super) fn connected(&self) {
        if self.adapter.status.set(AdapterState::Connected, None) {
            info!(platform = "telegram", bot_id = self.bot.id, "connected to Telegram");
        }
    }

    /// Notes a failure in the status, logs it if it is a new one, and waits as it asks for. `None` when stopped.
    pub(super) async fn wait_after(&mut self, failure: &Failure) -> Option<()> {
        let (state, error, wait) = match failure {
            Failure::NotSent(text) | Failure::Unknown(text) | Failure::Failing(text) => {
                (AdapterState::Connecting, format!("Telegram cannot be reached: {text}"), self.backoff.next())
            }
            Failure::Refused(refusal) if refusal.is_about_the_token() => {
                (AdapterState::Failed, super::TOKEN_REFUSED.to_owned(), self.backoff.longest)
            }
            Failure::Refused(Refusal { code: 409, description, .. }) => (
                AdapterState::Failed,
                format!("another program receives this bot's messages with the same token; stop it ({description})"),
                self.backoff.next(),
            ),
            Failure::Refused(Refusal { retry_after: Some(wait), .. }) => {
                let wait = (*wait).min(LONGEST_WAIT);
                (AdapterState::Connecting, format!("Telegram asks to wait {} s", wait.as_secs()), wait)
            }
            Failure::Refused(refusal) => {
                (AdapterState::Failed, format!("Telegram refuses: {}", refusal.description), self.backoff.next())
            }
        };
        if self.adapter.status.set(state, Some(error.clone())) {
            warn!(platform = "telegram", "{error}");
        }
        self.pause(wait).await
    }

    pub(super) async fn pause(&self, wait: Duration) -> Option<()> {
        self.stop.run_until_cancelled(tokio::time::sleep(wait)).await
    }

    pub(super) async fn call<P, T>(&self, payload: &P, deadline: Duration) -> Option<Result<T, Failure>>
    where
        P: teloxide::requests::Payload + serde::Serialize + Sync,
        T: serde::de::DeserializeOwned,
    {
        self.stop.run_until_cancelled(self.adapter.api.call(payload, deadline)).await
    }
}

/// What is on its way at a stop may still arrive.
async fn finish(mut toasts: JoinSet<()>) {
    let all = async { while toasts.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(CONFIRM_DEADLINE, all).await;
}

/// Shows people the commands while they type, best effort. Telegram keeps the menu, so it is written only when it changed.
async fn offer_menu(adapter: &TelegramAdapter, stop: CancellationToken) {
    let commands = &adapter.options.commands;
    if commands.is_empty() {
        return;
    }
    let offered = stop.run_until_cancelled(async {
        let shown: Vec<BotCommand> = adapter.api.call(&GetMyCommands::new(), CALL_DEADLINE).await?;
        if shown.iter().map(|one| (&one.command, &one.description)).eq(commands.iter().map(|(name, help)| (name, help)))
        {
            return Ok(());
        }
        let menu = commands.iter().map(|(name, help)| BotCommand::new(name, help));
        adapter.api.call::<_, bool>(&SetMyCommands::new(menu), CALL_DEADLINE).await.map(drop)
    });
    if let Some(Err(failure)) = offered.await {
        let failure: Failure = failure;
        debug!(platform = "telegram", ?failure, "the command menu was not set");
    }
}

fn is_webhook_conflict(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(refusal) if refusal.code == 409 && refusal.says("webhook"))
}

/// How far the updates are handled.
#[derive(Debug)]
struct Cursor {
    next: Option<i32>,
    moved: Instant,
    is_confirmed: bool,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { next: None, moved: Instant::now(), is_confirmed: true }
    }
}

impl Cursor {
    /// The offset to ask with; it confirms everything below it.
    fn offset(&mut self, now: Instant) -> Option<i32> {
        if self.is_confirmed && now.saturating_duration_since(self.moved) > OFFSET_LIFETIME {
            self.next = None;
        }
        self.next
    }

    fn advance(&mut self, id: i32) {
        let next = id.saturating_add(1);
        *self = Self {
            next: Some(self.next.map_or(next, |old| old.max(next))),
            moved: Instant::now(),
            is_confirmed: false,
        };
    }

    /// A call with the offset was answered.
    fn confirmed(&mut self) {
        self.is_confirmed = true;
    }
}

/// Waits that double from the first to the longest, each shortened at random by up to a half.
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest: longest.max(first), failures: 0 }
    }

    pub(super) fn next(&mut self) -> Duration {
        let full = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let random = RandomState::new().build_hasher().finish() % 1000;
        full.mul_f64(1.0 - random as f64 / 2000.0)
    }

    fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_are_jittered() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        for full in [1, 2, 4, 8, 16, 30, 30] {
            let wait = backoff.next().as_secs_f64();
            assert!((f64::from(full) / 2.0..=f64::from(full)).contains(&wait), "{wait} of {full}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_secs(1));
        backoff.failures = u32::MAX;
        assert!(backoff.next() <= Duration::from_secs(30));
    }

    #[test]
    fn an_offset_is_forgotten_before_ids_may_start_anew() {
        let now = Instant::now();
        let mut cursor = Cursor::default();
        assert_eq!(cursor.offset(now), None);
        cursor.advance(5);
        cursor.advance(3);
        assert_eq!((cursor.offset(now), cursor.is_confirmed), (Some(6), false));
        let later = now + OFFSET_LIFETIME * 2;
        assert_eq!(cursor.offset(later), Some(6), "not before it is confirmed");
        cursor.confirmed();
        assert_eq!((cursor.offset(now), cursor.offset(later)), (Some(6), None));
    }
}
