//! The messages that cross between platforms and the gateway. They are stored as JSON in the inbox and outbox, so every
//! field added later needs a serde default.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a message comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Telegram bots.
    Telegram,
    /// Signed webhooks; only ever a source.
    Webhook,
    /// The chat page and `hookgate chat`.
    Local,
}

impl Platform {
    /// The name used in configuration, session keys, hook payloads and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Webhook => "webhook",
            Self::Local => "local",
        }
    }

    /// The name of one of our accounts on the platform, `telegram@support`; of the account without a name, the
    /// platform's.
    pub fn with_account(self, account: &str) -> String {
        match account {
            "" => self.as_str().to_owned(),
            account => format!("{self}@{account}"),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Telegram, Self::Webhook, Self::Local]
            .into_iter()
            .find(|platform| platform.as_str() == name)
            .ok_or_else(|| format!("unknown platform {name:?}"))
    }
}

/// The kind of chat, by the reference's names (`spec/hermes-gateway.md` §2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatType {
    /// One person and the bot.
    Dm,
    /// A group chat.
    Group,
    /// A broadcast channel.
    Channel,
    /// A thread that is a chat of its own (Discord).
    Thread,
    /// A forum with topics.
    Forum,
    /// One webhook delivery.
    Webhook,
}

impl ChatType {
    /// The name used in session keys and hook payloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Group => "group",
            Self::Channel => "channel",
            Self::Thread => "thread",
            Self::Forum => "forum",
            Self::Webhook => "webhook",
        }
    }
}

/// Who said it, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The platform.
    pub platform: Platform,
    /// Which of our accounts on the platform heard it; empty for the one without a name.
    #[serde(default)]
    pub account: String,
    /// The chat, as the platform writes its id.
    pub chat_id: String,
    /// What people call the chat.
    #[serde(default)]
    pub chat_name: Option<String>,
    /// The kind of chat.
    pub chat_type: ChatType,
    /// The sender, as the platform writes the id.
    #[serde(default)]
    pub user_id: Option<String>,
    /// The sender's display name.
    #[serde(default)]
    pub user_name: Option<String>,
    /// The topic or thread inside the chat.
    #[serde(default)]
    pub thread_id: Option<String>,
    /// Whether the sender is a bot.
    #[serde(default)]
    pub is_bot: bool,
}

impl Source {
    /// Where an answer to this message goes.
    pub fn reply_target(&self) -> ChatTarget {
        ChatTarget {
            platform: self.platform,
            account: self.account.clone(),
            chat_id: self.chat_id.clone(),
            thread_id: self.thread_id.clone(),
        }
    }
}

/// A chat that can be sent to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChatTarget {
    /// The platform.
    pub platform: Platform,
    /// Which of our accounts sends; empty for the one without a name.
    #[serde(default)]
    pub account: String,
    /// The chat's id.
    pub chat_id: String,
    /// The topic or thread inside the chat.
    #[serde(default)]
    pub thread_id: Option<String>,
}

impl fmt::Display for ChatTarget {
    /// `platform[@account]:chat[:thread]`, the form people write in a route's `deliver`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform.with_account(&self.account), self.chat_id)?;
        match &self.thread_id {
            Some(thread) => write!(f, ":{thread}"),
            None => Ok(()),
        }
    }
}

/// Something in a message that is not text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaNote {
    /// The platform's word for it: `photo`, `voice`, `document`, …
    pub kind: String,
    /// The file's name where the platform tells one; of media without a file what tells them apart (a poll's question,
    /// a place's coordinates).
    #[serde(default)]
    pub name: Option<String>,
}

/// The message that this one answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quoted {
    /// Its id on the platform.
    pub message_id: String,
    /// Its text, as far as the platform sends it.
    #[serde(default)]
    pub text: Option<String>,
    /// Whether we wrote it.
    #[serde(default)]
    pub is_own: bool,
}

/// One thing said to the gateway, in the platform-neutral form that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// Who and where.
    pub source: Source,
    /// The platform's message id; replies are anchored to it.
    pub message_id: String,
    /// What makes two arrivals the same message, unique over everything ever received:
    /// `telegram:<bot id>:<update id>`, `local:<chat>:<client id>`, …
    pub dedup_key: String,
    /// The text (or caption); empty when there is only media.
    pub text: String,
    /// What else the message carries.
    #[serde(default)]
    pub media: Vec<MediaNote>,
    /// The message it answers.
    #[serde(default)]
    pub quoted: Option<Quoted>,
    /// When it was said, Unix milliseconds by the platform's clock.
    pub sent_at: i64,
    /// Whether it is said to us. What others say to each other in a group is heard by policies only: no command of it
    /// runs and nothing answers it.
    #[serde(default = "yes")]
    pub addressed: bool,
    /// Whether it is a new wording of something said before: no command of it runs.
    #[serde(default)]
    pub edited: bool,
}

fn yes() -> bool {
    true
}

/// Somebody pressed a button of a message of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Press {
    /// Where the message is, and who pressed: not who wrote the message.
    pub source: Source,
    /// The message, as the platform writes its id.
    pub message_id: String,
    /// The button's data, as the person's program tells it: it may never have been on a button of this message.
    pub data: String,
    /// What makes two arrivals the same press: `telegram:<bot id>:<query id>`, `local:<chat>:<client id>`.
    pub press_id: String,
}

/// One part of a reply, ready to be sent. A part fits into one platform message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundMessage {
    /// Where it goes.
    pub target: ChatTarget,
    /// The text, formatted for the platform, and the same without markup.
    pub part: crate::Part,
    /// The message it answers, if it is anchored.
    pub reply_to: Option<String>,
    /// The same for every attempt at this part: platforms that know nonces refuse the second.
    pub nonce: String,
    /// An earlier attempt may have arrived: the adapter puts `↻ ` in front of the text.
    pub marked: bool,
}
