//! Telegram: a bot account that hears by long polling or by webhook, and speaks in HTML.
//!
//! `api` makes one call, `poll` and `webhook` keep hearing, `update` reads what is heard, `groups` tells who is meant in a group,
//! `format` writes what is said, `buttons` what can be pressed. Nothing is stored here: Telegram keeps what was not accepted, and retries of sends are the caller's.

mod api;
mod buttons;
mod format;
mod groups;
mod poll;
mod update;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use teloxide::payloads::{EditMessageText, GetMe, SendChatAction, SendMessage};
use teloxide::types::{
    AllowedUpdate, ChatAction, ChatId, MessageId, ParseMode, Recipient, ReplyMarkup, ReplyParameters, ThreadId, User,
};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, debug, info, info_span, warn};

pub use api::TelegramSetupError;
use api::{Api, Failure, Refusal};
pub use groups::{AllowBots, GroupRules};
pub use webhook::WebhookOptions;

use crate::{
    Adapter, AdapterState, ChatTarget, Cut, Inbound, OutboundMessage, Part, Platform, Proxies, ReplyToMode, SendError,
    Status, StatusCell,
};

const TOKEN_REFUSED: &str = "Telegram refuses the bot token; check TELEGRAM_BOT_TOKEN (or the account's token)";
const TYPING_DEADLINE: Duration = Duration::from_millis(1500);
/// Clients cut at a blank near the limit: what has so many UTF-16 units may be a piece (`spec/decisions.md` §6).
const SHORTEST_PIECE: usize = 4_000;
const REACH_DEADLINE: Duration = Duration::from_secs(10);

/// How the bot is reached and how it behaves.
#[derive(Debug, Clone)]
pub struct TelegramOptions {
    /// Our name for the bot where there are several; empty for the one without a name, which is the default.
    pub account: String,
    /// The bot's token, `123456:ABC-DEF`.
    pub token: SecretString,
    /// Where the Bot API is, with or without a trailing `/bot`. Default `https://api.telegram.org`.
    pub base_url: String,
    /// Where updates are posted. Default nowhere: they are fetched by polling.
    pub webhook: Option<WebhookOptions>,
    /// The proxies for every call. Default what `HTTPS_PROXY` and its like in the process environment say.
    pub proxies: Proxies,
    /// Messages that waited longer than this are skipped and counted. Default 24 h.
    pub max_update_age: Duration,
    /// How long one poll waits at Telegram, in whole seconds from 1 to 50. Default 30 s.
    pub poll_timeout: Duration,
    /// Which parts of a reply are anchored. Default the first.
    pub reply_to_mode: ReplyToMode,
    /// Whether "typing…" is shown. Default true.
    pub typing: bool,
    /// The commands people are shown while they type, with what they do. Default none, which leaves the menu alone.
    pub commands: Vec<(String, String)>,
    /// What is heard in groups. Default everything, and every message is meant for the bot.
    pub groups: GroupRules,
    /// Whether an edited message is heard as a new one. Default false.
    pub edits: bool,
    /// The deadline of one send, the second tries with less included. Default 30 s.
    pub send_timeout: Duration,
    /// How long the gateway may take over a press before the person is asked to press again and what is heard next goes
    /// on. Default 5 s.
    pub press_timeout: Duration,
    /// The wait after a first failure of polling; it doubles with each further one. Default 1 s.
    pub first_retry: Duration,
    /// The longest such wait, and the wait after a refused token. Default 30 s.
    pub longest_retry: Duration,
}

impl TelegramOptions {
    /// The defaults with this token.
    pub fn new(token: SecretString) -> Self {
        Self {
            account: String::new(),
            token,
            base_url: "https://api.telegram.org".to_owned(),
            webhook: None,
            proxies: Proxies::default(),
            max_update_age: Duration::from_secs(24 * 3600),
            poll_timeout: Duration::from_secs(30),
            reply_to_mode: ReplyToMode::First,
            typing: true,
            commands: Vec::new(),
            groups: GroupRules::default(),
            edits: false,
            send_timeout: Duration::from_secs(30),
            press_timeout: Duration::from_secs(5),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(30),
        }
    }
}

/// One Telegram bot.
pub struct TelegramAdapter {
    api: Api,
    options: TelegramOptions,
    status: StatusCell,
    /// Held while listening: two polls at once would refuse each other.
    listening: Mutex<()>,
}

/// The id is all that is needed of the sent message; its absence means that the outcome is unknown.
#[derive(Deserialize)]
struct Sent {
    message_id: i64,
}

impl TelegramAdapter {
    /// Checks the options. Nothing is sent before [`Adapter::listen`] or [`Adapter::send`].
    pub fn new(options: TelegramOptions) -> Result<Self, TelegramSetupError> {
        let api = Api::new(&options.base_url, options.token.clone(), &options.proxies)?;
        Ok(Self { api, options, status: StatusCell::default(), listening: Mutex::new(()) })
    }

    /// Follows the status.
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.watch()
    }

    /// Telegram counts in whole seconds, waits 50 at most, and answers at once to 0.
    fn poll_timeout(&self) -> Duration {
        Duration::from_secs(self.options.poll_timeout.as_secs().clamp(1, 50))
    }

    /// How much longer than Telegram was asked to wait its answer may take; after that the connection counts as dead.
    fn poll_grace(&self) -> Duration {
        (self.poll_timeout() / 2).min(Duration::from_secs(10))
    }

    /// The kinds of updates that are heard.
    fn allowed_updates(&self) -> Vec<AllowedUpdate> {
        let edits = [AllowedUpdate::EditedMessage, AllowedUpdate::EditedChannelPost];
        let edits = edits.into_iter().filter(|_| self.options.edits);
        let always = [AllowedUpdate::Message, AllowedUpdate::ChannelPost, AllowedUpdate::CallbackQuery];
        always.into_iter().chain(edits).collect()
    }

    /// Which bot's doings are logged, where there are several.
    fn span(&self) -> Span {
        match self.options.account.as_str() {
            "" => Span::none(),
            account => info_span!("telegram", account),
        }
    }

    /// Sends a part, and leaves out of it one after the other what Telegram refuses.
    async fn send_until_less_is_left(&self, message: &OutboundMessage) -> Result<String, SendError> {
        let halves = if message.marked { format::halves_to_mark(&message.part) } else { None };
        let Some([first, rest]) = halves else { return self.send_part(message).await };
        let first = OutboundMessage { part: first, ..message.clone() };
        let rest = OutboundMessage { part: rest, reply_to: None, marked: false, ..message.clone() };
        self.send_part(&first).await?;
        // What was certainly not sent is sent anew, marked, first half included.
        self.send_part(&rest).await
    }

    async fn send_part(&self, message: &OutboundMessage) -> Result<String, SendError> {
        let deadline = Instant::now() + self.options.send_timeout;
        let mark = if message.marked { format::MARK } else { "" };
        let plain = format!("{mark}{}", message.part.plain);
        let mut request = request(message, mark, self.options.reply_to_mode != ReplyToMode::Off)?;
        loop {
            let failure = match self.send_once(&request, deadline).await {
                Ok(id) => return Ok(id),
                Err(failure) => failure,
            };
            // Each round leaves one thing out, so this ends.
            let Failure::Refused(refusal) = &failure else { return Err(self.send_error(failure)) };
            let Some((less, refused)) = without_the_refused(refusal, &request, &plain) else {
                return Err(self.send_error(failure));
            };
            let chat_id = &message.target.chat_id;
            info!(platform = "telegram", chat_id, "sending again without {refused}: {}", refusal.description);
            request = less;
        }
    }

    async fn send_once(&self, request: &SendMessage, deadline: Instant) -> Result<String, Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.api.call::<_, Sent>(request, left).await.map(|sent| sent.message_id.to_string())
    }

    async fn edit_part(&self, target: &ChatTarget, message_id: &str, part: &Part) -> Result<(), SendError> {
        let deadline = Instant::now() + self.options.send_timeout;
        let not_an_id = |_| SendError::Refused(format!("{message_id:?} is not the id of a Telegram message"));
        let id = MessageId(message_id.parse().map_err(not_an_id)?);
        let mut request = EditMessageText::new(recipient(&target.chat_id)?, id, &part.formatted);
        request.parse_mode = Some(ParseMode::Html);
        request.reply_markup = buttons::keyboard(&part.buttons);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let failure = match self.api.call::<_, IgnoredAny>(&request, left).await {
                Ok(_) => return Ok(()),
                Err(failure) => failure,
            };
            // Each round leaves one thing out, so this ends.
            match &failure {
                Failure::Refused(refusal) if refusal.says("message is not modified") => return Ok(()),
                Failure::Refused(refusal) if request.parse_mode.is_some() && refusal.says("can't parse entities") => {
                    (request.parse_mode, request.text) = (None, part.plain.clone());
                }
                Failure::Refused(refusal) if request.reply_markup.is_some() && buttons::are_refused(refusal) => {
                    request.reply_markup = None;
                }
                _ => return Err(self.send_error(failure)),
            }
        }
    }

    fn send_error(&self, failure: Failure) -> SendError {
        let refusal = match failure {
            Failure::NotSent(text) => return SendError::NotSent(text),
            Failure::Unknown(text) => return SendError::Unknown(text),
            Failure::Failing(text) => return SendError::Failing(text),
            Failure::Refused(refusal) => refusal,
        };
        let is_known_bad = || self.status.get().error.as_deref() == Some(TOKEN_REFUSED);
        if refusal.code == 404 && !is_known_bad() {
            // A server in front of the Bot API; polling finds out whether it is the token.
            return SendError::NotSent(format!("Telegram says: {}", refusal.description));
        }
        if refusal.is_about_the_token() {
            if self.status.set(AdapterState::Failed, Some(TOKEN_REFUSED.to_owned())) {
                warn!(platform = "telegram", "{TOKEN_REFUSED}");
            }
            return SendError::NotSent(TOKEN_REFUSED.to_owned());
        }
        match refusal {
            Refusal { code: 429, retry_after, .. } => {
                SendError::RetryAfter(retry_after.unwrap_or(Duration::from_secs(1)))
            }
            Refusal { migrated_to: Some(chat), .. } => {
                SendError::Refused(format!("the group was upgraded; its chat id is now {chat}"))
            }
            Refusal { description, .. } => SendError::Refused(format!("Telegram says: {description}")),
        }
    }
}

/// What is left out of a request that Telegram refused because of it. `None` if nothing helps.
fn without_the_refused(refusal: &Refusal, request: &SendMessage, plain: &str) -> Option<(SendMessage, &'static str)> {
    let request = request.clone();
    let moved_to = refusal.migrated_to.map(|chat| Recipient::Id(ChatId(chat)));
    if let Some(chat_id) = moved_to.filter(|chat_id| *chat_id != request.chat_id) {
        // The messages of a supergroup are numbered anew.
        return Some((
            SendMessage { chat_id, reply_parameters: None, message_thread_id: None, ..request },
            "the id the group had",
        ));
    }
    if refusal.code != 400 {
        None
    } else if request.parse_mode.is_some() && refusal.says("can't parse entities") {
        Some((SendMessage { parse_mode: None, text: plain.to_owned(), ..request }, "the format"))
    } else if request.reply_parameters.is_some()
        && (refusal.says("replied not found") || refusal.says("reply message not found"))
    {
        Some((SendMessage { reply_parameters: None, ..request }, "the message to reply to"))
    } else if request.message_thread_id.is_some() && refusal.says("thread not found") {
        Some((SendMessage { message_thread_id: None, ..request }, "the topic"))
    } else if request.reply_markup.is_some() && buttons::are_refused(refusal) {
        Some((SendMessage { reply_markup: None, ..request }, "the buttons"))
    } else {
        None
    }
}

fn recipient(chat_id: &str) -> Result<Recipient, SendError> {
    if chat_id.len() > 1 && chat_id.starts_with('@') {
        return Ok(Recipient::ChannelUsername(chat_id.to_owned()));
    }
    let id = chat_id.parse().map_err(|_| SendError::Refused(format!("{chat_id:?} is not a Telegram chat id")))?;
    Ok(Recipient::Id(ChatId(id)))
}

/// The topic to write to: none for a forum's General topic, which Telegram refuses by its number.
fn thread(target: &ChatTarget) -> Result<Option<ThreadId>, SendError> {
    let is_general = |thread: &str| thread == groups::GENERAL_TOPIC && target.chat_id.starts_with(['-', '@']);
    match topic(target)? {
        Some(_) if target.thread_id.as_deref().is_some_and(is_general) => Ok(None),
        topic => Ok(topic),
    }
}

fn topic(target: &ChatTarget) -> Result<Option<ThreadId>, SendError> {
    let Some(thread) = &target.thread_id else { return Ok(None) };
    let id = thread.parse().map_err(|_| SendError::Refused(format!("{thread:?} is not a Telegram topic id")))?;
    Ok(Some(ThreadId(MessageId(id))))
}

fn request(message: &OutboundMessage, mark: &str, anchored: bool) -> Result<SendMessage, SendError> {
    let text = format!("{mark}{}", message.part.formatted);
    let mut request = SendMessage::new(recipient(&message.target.chat_id)?, text);
    request.parse_mode = Some(ParseMode::Html);
    request.message_thread_id = thread(&message.target)?;
    request.reply_markup = buttons::keyboard(&message.part.buttons).map(ReplyMarkup::InlineKeyboard);
    // An id that is none of Telegram's cannot be answered; the text is still worth sending.
    let reply_to = message.reply_to.as_deref().filter(|_| anchored).and_then(|id| id.parse().ok());
    request.reply_parameters = reply_to.map(|id| ReplyParameters::new(MessageId(id)).allow_sending_without_reply());
    Ok(request)
}

#[async_trait]
impl Adapter for TelegramAdapter {
    fn platform(&self) -> Platform {
        Platform::Telegram
    }

    fn account(&self) -> &str {
        &self.options.account
    }

    async fn listen(&self, inbound: Arc<dyn Inbound>, stop: CancellationToken) {
        let Some(_only_one) = stop.run_until_cancelled(self.listening.lock()).await else { return };
        poll::Listener::new(self, inbound, stop).run().instrument(self.span()).await;
        self.status.set(AdapterState::Connecting, None);
    }

    fn split(&self, markdown: &str) -> Vec<Part> {
        format::parts(markdown)
    }

    async fn send(&self, message: &OutboundMessage) -> Result<String, SendError> {
        self.send_until_less_is_left(message).instrument(self.span()).await
    }

    async fn edit(&self, target: &ChatTarget, message_id: &str, part: &Part) -> Result<(), SendError> {
        self.edit_part(target, message_id, part).instrument(self.span()).await
    }

    async fn typing(&self, target: &ChatTarget) {
        let (true, Ok(chat), Ok(thread)) = (self.options.typing, recipient(&target.chat_id), topic(target)) else {
            return;
        };
        let mut action = SendChatAction::new(chat, ChatAction::Typing);
        action.message_thread_id = thread; // here General goes by its number, or nobody in it sees the typing
        if let Err(failure) = self.api.call::<_, Value>(&action, TYPING_DEADLINE).await {
            debug!(platform = "telegram", ?failure, "typing was not shown");
        }
    }

    fn cut_of(&self, text: &str) -> Cut {
        match text.encode_utf16().count() {
            ..SHORTEST_PIECE => Cut::Whole,
            SHORTEST_PIECE..format::LONGEST_MESSAGE => Cut::AtBlank,
            _ => Cut::Anywhere,
        }
    }

    async fn is_reachable(&self) -> bool {
        self.api.call::<_, User>(&GetMe::new(), REACH_DEADLINE).await.is_ok()
    }

    fn reply_to_mode(&self) -> ReplyToMode {
        self.options.reply_to_mode
    }

    fn status(&self) -> Status {
        self.status.get()
    }

    async fn first_attempt(&self) {
        let ended = |status: &Status| status.state != AdapterState::Connecting || status.error.is_some();
        let _ = self.status.watch().wait_for(ended).await;
    }
}

/// Asks Telegram whose token it is; the bot's user name, or one sentence that says what is wrong, without the token.
pub async fn check_token(
    base_url: &str,
    token: SecretString,
    proxies: &Proxies,
    at_most: Duration,
) -> Result<String, String> {
    let api = Api::new(base_url, token, proxies).map_err(|error| error.to_string())?;
    match api.call::<_, User>(&GetMe::new(), at_most).await {
        Ok(bot) => Ok(bot.username.unwrap_or_default()),
        Err(Failure::Refused(refusal)) if refusal.is_about_the_token() => Err(TOKEN_REFUSED.to_owned()),
        Err(Failure::Refused(refusal)) => Err(format!("Telegram says: {}", refusal.description)),
        Err(Failure::NotSent(text) | Failure::Unknown(text) | Failure::Failing(text)) => {
            Err(format!("Telegram cannot be reached: {text}"))
        }
    }
}
