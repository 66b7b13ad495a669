//! hookgate's hooks: the table of events, their typed payloads, and the registry that tells observers and asks deciders.
//!
//! This crate knows neither messages nor models: payloads are a public wire format and stay the same when internals change.
#![warn(missing_docs)]

use std::borrow::Cow;

/// Names one moment. See the table in `event.rs`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event(pub Cow<'static, str>);

/// What a hook is told.
pub trait Payload: serde::Serialize + Send + 'static {}

/// What a deciding hook answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Directive {
    /// Go on.
    #[default]
    Allow,
}

/// Who is told and asked.
#[derive(Debug, Default)]
pub struct Registry {}
