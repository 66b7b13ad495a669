//! The outside world of the tests: fakes served over loopback that enforce what the real services enforce.

pub(crate) mod fake_model;
pub(crate) mod fake_telegram;
pub(crate) mod telegram_html;
