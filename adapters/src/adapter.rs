//! The contract between the gateway and one platform: [`Adapter`] is called down, [`Inbound`] is called up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{ChatTarget, InboundMessage, OutboundMessage, Platform, Press};

/// One platform account that can hear and speak.
#[async_trait]
pub trait Adapter: Send + Sync {
    /// The platform it speaks.
    fn platform(&self) -> Platform;

    /// Which of our accounts on the platform it is; empty for the one without a name.
    fn account(&self) -> &str {
        ""
    }

    /// Hears until `stop` is cancelled, and recovers from every failure by itself, for ever. A message counts as received
    /// only once `inbound.accept` returned `Ok`; until then the platform must keep it. Returns soon after `stop`.
    async fn listen(&self, inbound: Arc<dyn Inbound>, stop: CancellationToken);

    /// Cuts a reply (Markdown) into parts that each fit one message of the platform, the mark `↻ ` included.
    /// Joined, the plain texts give the reply's text. Blank text gives no part.
    ///
    /// What stands between [`VALUE_START`](crate::VALUE_START) and [`VALUE_END`](crate::VALUE_END) is a value from outside:
    /// it is shown as it is, however many lines it has, and read as no markup, while the Markdown around it counts as if a
    /// letter stood there. No part contains a delimiter: whoever does not read Markdown begins with
    /// [`without_delimiters`](crate::without_delimiters), and who calls with a text that is not of our own making strips it
    /// before. Only [`delimited`](crate::delimited) makes one.
    fn split(&self, markdown: &str) -> Vec<Part>;

    /// Sends one part, once. Retries and waiting are the caller's; a refused format is sent again without markup here.
    /// Returns the platform's message id. Must not hang: it ends with [`SendError::Unknown`] at its own deadline.
    async fn send(&self, message: &OutboundMessage) -> Result<String, SendError>;

    /// Gives a message sent earlier another text, and the part's buttons instead of those it had: none, as a rule. `message_id`
    /// is what [`Adapter::send`] returned. Done twice it is the same, so an outcome that is unknown may be tried again. Must
    /// not hang. [`SendError::Unsupported`] where what was said stays: the caller goes on.
    async fn edit(&self, _target: &ChatTarget, _message_id: &str, _part: &Part) -> Result<(), SendError> {
        Err(SendError::Unsupported)
    }

    /// Shows "typing…" once. Best effort: failures are ignored.
    async fn typing(&self, target: &ChatTarget);

    /// Says how a turn goes on while the model speaks. `text` is the whole answer so far. Only for platforms that show
    /// partial answers; the final answer always comes through [`Adapter::send`].
    fn partial(&self, _target: &ChatTarget, _reply_to: &str, _text: &str) {}

    /// A message is through: `replies` parts follow by [`Adapter::send`], none if there is nothing to say. For platforms
    /// whose people wait for a definite end.
    fn settled(&self, _target: &ChatTarget, _message_id: &str, _replies: usize) {}

    /// Whether [`Adapter::partial`] does anything.
    fn shows_partial(&self) -> bool {
        false
    }

    /// Whether a text a person sent is a piece of a longer one that their client cut, so that more may follow.
    fn cut_of(&self, _text: &str) -> Cut {
        Cut::Whole
    }

    /// Whether the platform answers at all now. Asked before a send is repeated that may not be repeated twice.
    async fn is_reachable(&self) -> bool {
        true
    }

    /// How long after a first attempt the platform itself refuses the same nonce, so that a repeat cannot say it twice.
    fn repeat_is_safe_for(&self) -> Duration {
        Duration::ZERO
    }

    /// Which parts of a reply the caller is to anchor to the message they answer (`reply_to_mode` of the platform).
    fn reply_to_mode(&self) -> ReplyToMode {
        ReplyToMode::First
    }

    /// The connection's state as it is now.
    fn status(&self) -> Status;

    /// Waits until the first attempt to connect has ended, well or not. Adapters that are ready at once return at once.
    async fn first_attempt(&self) {}
}

/// How a client cut a text that was too long for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It did not.
    Whole,
    /// At a blank, which the cut swallowed.
    AtBlank,
    /// Where nothing more fitted, perhaps inside a word.
    Anywhere,
}

/// Which parts of a reply are anchored to the message they answer (`spec/hermes-gateway.md` §2.1, `reply_to_mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplyToMode {
    /// The first part.
    #[default]
    First,
    /// Every part.
    All,
    /// None.
    Off,
}

/// How an adapter hands a message to the gateway.
#[async_trait]
pub trait Inbound: Send + Sync {
    /// Stores the message. `Ok` means it is durable (or was already known) and the platform may forget it.
    async fn accept(&self, message: InboundMessage) -> Result<(), NotAccepted>;

    /// Somebody pressed a button of a message of ours. `Ok` means that all that follows from it is durable and the platform
    /// may forget it; the text is shown to them for a moment, shortly, without markup, at most [`LONGEST_TOAST`] units.
    ///
    /// May be told more than once, and concurrently, with the same [`Press::press_id`]. Whether the person may do this is
    /// the callee's to decide. What is heard later waits meanwhile, so it must answer soon; after a few seconds the
    /// adapter tells the person to press again and goes on, while this runs to its end.
    async fn pressed(&self, _press: Press) -> Result<Option<String>, NotAccepted> {
        Ok(Some("This button is no longer valid.".to_owned()))
    }

    /// A chat goes on under another id (a Telegram group that became a supergroup). May be told more than once.
    async fn moved(&self, _moved: &ChatMoved) -> Result<(), NotAccepted> {
        Ok(())
    }
}

/// A chat's old and new id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMoved {
    /// The platform.
    pub platform: Platform,
    /// The id it had.
    pub from: String,
    /// The id it has.
    pub to: String,
}

/// The message was not stored: the adapter keeps it with the platform and offers it again later.
#[derive(Debug, thiserror::Error)]
#[error("the message could not be stored: {0}")]
pub struct NotAccepted(pub String);

/// A piece of a reply that fits one platform message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// In the platform's own format (Telegram: HTML). Equal to `plain` where the platform has none.
    pub formatted: String,
    /// The same text without markup, sent when the platform refuses the format.
    pub plain: String,
    /// Rows of buttons below the text. A platform without buttons leaves them out, so the text says how to answer in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<Vec<Button>>,
}

impl Part {
    /// A text without markup or buttons.
    pub fn verbatim(text: String) -> Self {
        Self { formatted: text.clone(), plain: text, buttons: Vec::new() }
    }
}

/// Something to press below a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    /// What is written on it, without markup. Not empty.
    pub label: String,
    /// What comes back as [`Press::data`]: 1 to [`LONGEST_BUTTON_DATA`] bytes.
    pub data: String,
}

impl Button {
    /// A button with this label.
    pub fn new(label: impl Into<String>, data: impl Into<String>) -> Self {
        Self { label: label.into(), data: data.into() }
    }
}

/// Most bytes of a button's data (Telegram's `callback_data`).
pub const LONGEST_BUTTON_DATA: usize = 64;

/// Most UTF-16 units of what is shown to who pressed a button (Telegram's `answerCallbackQuery`); more is cut.
pub const LONGEST_TOAST: usize = 200;

/// Puts buttons below a reply: its last part carries them. A reply without parts stays without.
pub fn with_buttons(mut parts: Vec<Part>, buttons: Vec<Vec<Button>>) -> Vec<Part> {
    if let Some(last) = parts.last_mut() {
        last.buttons = buttons;
    }
    parts
}

/// Why a send did not succeed, by what may be done next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The platform asks to wait. Nothing was sent.
    #[error("the platform asks to wait {} s", .0.as_secs())]
    RetryAfter(Duration),
    /// It certainly did not arrive (no connection); it may be sent again freely.
    #[error("not sent: {0}")]
    NotSent(String),
    /// It may have arrived: the connection broke or timed out after the request went out.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// It may have arrived, and the platform says that it fails: there is no use in trying again at once.
    #[error("the outcome is unknown: {0}")]
    Failing(String),
    /// Refused for good (blocked, chat not found). Sending again is useless.
    #[error("refused: {0}")]
    Refused(String),
    /// The platform has no such thing.
    #[error("the platform has no such thing")]
    Unsupported,
}

/// What an adapter's connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdapterState {
    /// Hears and can speak.
    Connected,
    /// Trying, for the first time or again.
    Connecting,
    /// Does not work; it goes on trying, or a person must act.
    Failed,
}

/// The state with the reason for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The state.
    pub state: AdapterState,
    /// Why it is not connected, one sentence without secrets.
    pub error: Option<String>,
}

/// Where an adapter writes its status and others read or await it.
#[derive(Debug, Clone)]
pub struct StatusCell(watch::Sender<Status>);

impl Default for StatusCell {
    fn default() -> Self {
        Self(watch::Sender::new(Status { state: AdapterState::Connecting, error: None }))
    }
}

impl StatusCell {
    /// The status now.
    pub fn get(&self) -> Status {
        self.0.borrow().clone()
    }

    /// Sets the status; returns whether it changed, so that a change is logged once.
    pub fn set(&self, state: AdapterState, error: Option<String>) -> bool {
        let new = Status { state, error };
        self.0.send_if_modified(|old| {
            let changed = *old != new;
            *old = new;
            changed
        })
    }

    /// Follows the status.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_buttons_is_stored_as_before_there_were_any() {
        let before = r#"{"formatted":"<b>a</b>","plain":"a"}"#;
        let part: Part = serde_json::from_str(before).unwrap();
        assert_eq!(part.buttons, Vec::<Vec<Button>>::new());
        assert_eq!(serde_json::to_string(&part).unwrap(), before);
        let [part] = with_buttons(vec![part], vec![vec![Button::new("Yes", "y:1")]]).try_into().unwrap();
        let stored = serde_json::to_string(&part).unwrap();
        assert_eq!(serde_json::from_str::<Part>(&stored).unwrap(), part);
    }

    #[test]
    fn the_last_part_of_a_reply_carries_its_buttons() {
        let buttons = vec![vec![Button::new("Yes", "y"), Button::new("No", "n")]];
        let parts = with_buttons(["a", "b"].map(|text| Part::verbatim(text.to_owned())).to_vec(), buttons.clone());
        assert_eq!((parts[0].buttons.len(), &parts[1].buttons), (0, &buttons));
        assert_eq!(with_buttons(Vec::new(), buttons), []);
    }
}
