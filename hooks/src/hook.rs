//! The seam between the registry and whatever runs a hook: Rust code in process, a process, a Python host.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use crate::{Directive, Event};

/// The systems of hooks, in the order in which they are asked (`spec/decisions.md` §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    /// A policy of `config.yaml`.
    Policy,
    /// Rust code.
    InProcess,
    /// `hooks/<name>/HOOK.yaml`.
    Gateway,
    /// The `hooks:` block of `config.yaml`.
    Shell,
}

/// Somebody who is told about events and, if it [`decides`](Hook::decides), asked about them.
///
/// Everything but `observe` and `decide` is read once, at registration. A call may be dropped at any await: at the
/// deadline, or when whoever asked has gone.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// The name in logs and listings. Need not be unique.
    fn name(&self) -> &str;

    /// Event names and `prefix:*` wildcards, see [`crate::matches`].
    fn subscriptions(&self) -> &[String];

    /// Which system it belongs to.
    fn kind(&self) -> HookKind {
        HookKind::InProcess
    }

    /// Where it was declared, for listings: a directory, a key of a file; empty for code.
    fn source(&self) -> String {
        String::new()
    }

    /// All that makes it this hook: two with the same identity are the same one, before and after a reload.
    fn identity(&self) -> String {
        format!("{} {}", self.source(), self.name())
    }

    /// Whether the hook is concerned by this event of those it subscribes to. Quick: it is asked on the path that tells.
    fn wants(&self, _event: &Event, _payload: &Value) -> bool {
        true
    }

    /// Whether the hook is asked on events that can be decided. Otherwise, and on all other events, it is told.
    fn decides(&self) -> bool {
        false
    }

    /// How long one call may take.
    fn deadline(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Whether not answering (an error, a panic, a timeout, an answer that means nothing for the event) blocks.
    fn fail_closed(&self) -> bool {
        false
    }

    /// The hook is told. Calls come one at a time in the order of the events, and nobody waits for them.
    ///
    /// A deciding hook gets this call too, when an earlier hook's answer has already stopped the event.
    async fn observe(&self, _event: &Event, _payload: Arc<Value>) -> Result<(), HookError> {
        Ok(())
    }

    /// The hook is asked; `None` means it has no opinion. Calls for different sessions may overlap.
    async fn decide(&self, _event: &Event, _payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        Ok(None)
    }
}

/// Why a hook did not do its part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// It could not be run, or said itself that it failed.
    #[error("{0}")]
    Failed(String),
    /// It answered something that cannot be read as an answer.
    #[error("invalid answer: {0}")]
    InvalidAnswer(String),
    /// It had not ended at a deadline of its own.
    #[error("no answer within {0:?}")]
    Late(Duration),
}
