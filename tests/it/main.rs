//! Conversations with the whole gateway, as its users have them.
#![expect(clippy::unwrap_used, reason = "a test whose world cannot be set up has failed")]

mod support;
mod telegram_adapter;
mod telegram_format;
