//! The outside world of the tests: fakes served over loopback that enforce what the real services enforce, and the whole
//! gateway among them.

pub(crate) mod fake_model;
pub(crate) mod fake_telegram;
pub(crate) mod local;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod sender;
pub(crate) mod telegram_html;
pub(crate) mod wire;
pub(crate) mod world;
