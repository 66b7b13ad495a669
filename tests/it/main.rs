//! Conversations with the parts of the gateway and with the gateway as a whole, as its users have them.
#![expect(clippy::unwrap_used, reason = "a test whose world cannot be set up has failed")]

mod agent;
mod approvals;
mod chat;
mod cli;
mod commands;
mod console;
mod crash;
mod delivery;
mod hooks;
mod postgres;
mod stop;
mod store;
mod support;
mod telegram_accounts;
mod telegram_adapter;
mod telegram_buttons;
mod telegram_format;
mod telegram_groups;
mod telegram_proxy;
mod telegram_webhook;
mod tools;
mod webhook_cli;
mod webhooks;
