//! hookgate's hooks: the table of events, their typed payloads, and the registry that tells observers and asks deciders.
//!
//! This crate knows neither messages nor models: payloads are a public wire format and stay the same when internals change.
#![warn(missing_docs)]

mod directive;
mod event;
mod hook;
pub mod payload;
pub mod process;
mod registry;

pub use directive::Directive;
pub use event::{Answers, EVENTS, Event, EventRow, Fires, System, is_known, matches, suggest};
pub use hook::{Hook, HookError, HookKind};
pub use payload::Payload;
pub use registry::{HookStats, Registry, Replaced, ToolCallVerdict};
