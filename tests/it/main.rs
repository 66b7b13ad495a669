//! Conversations with the whole gateway, as its users have them.

mod support;
mod telegram_adapter;
mod telegram_format;
