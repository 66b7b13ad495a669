//! What hookgate speaks with the outside world: message types, the [`Adapter`] contract and one module per platform.
//!
//! This crate knows platforms and nothing of the gateway: it calls up through [`Inbound`] and is called down through
//! [`Adapter`]. It stores nothing, decides nothing about access, and never talks to a model.
#![warn(missing_docs)]

mod adapter;
mod local;
mod markdown;
mod message;
mod proxy;
mod telegram;
mod verbatim;

pub use adapter::{
    Adapter, AdapterState, Button, ChatMoved, Cut, Inbound, LONGEST_BUTTON_DATA, LONGEST_TOAST, NotAccepted, Part,
    ReplyToMode, SendError, Status, StatusCell, with_buttons,
};
pub use local::{LocalAdapter, LocalEvent, LocalEvents};
pub use markdown::is_blank;
pub use message::{ChatTarget, ChatType, InboundMessage, MediaNote, OutboundMessage, Platform, Press, Quoted, Source};
pub use proxy::{NotAProxy, Proxies, proxy_address};
pub use telegram::{
    AllowBots, GroupRules, TelegramAdapter, TelegramOptions, TelegramSetupError, WebhookOptions, check_token,
};
pub use verbatim::{VALUE_END, VALUE_START, delimited, without_delimiters};
