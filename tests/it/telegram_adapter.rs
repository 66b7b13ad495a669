//! The Telegram adapter against the fake Bot API.
