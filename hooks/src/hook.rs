//! The seam between the registry and whatever runs a hook: Rust code in process, a process, a Python host.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Directive, Event};

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
}
