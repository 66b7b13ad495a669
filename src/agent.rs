//! One question to its final answer: [`Agent::run_turn`]. Knows models and the hooks around them, and nothing of chats,
//! stores or delivery.

use std::sync::Arc;

use hookgate_hooks::Registry;
use tokio_util::sync::CancellationToken;

use crate::session::Remembered;

/// What a turn is given.
#[derive(Debug, Clone)]
pub struct TurnRequest {
    /// The session it belongs to.
    pub session_id: String,
    /// The conversation's key.
    pub session_key: String,
    /// Identifies the turn in hook payloads.
    pub turn_id: String,
    /// Where the question came from: `telegram`, …
    pub platform: String,
    /// Who asks.
    pub sender_id: Option<String>,
    /// What was said before, oldest first.
    pub history: Vec<Remembered>,
    /// The question, as the model shall read it.
    pub text: String,
    /// The same without the fence around a webhook's data, for `echo`.
    pub plain_text: String,
    /// Whether nothing was said before in this session.
    pub is_first_turn: bool,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The final answer.
    Answer(String),
    /// No answer. `for_user` is one full sentence in the user's terms, without secrets; `cause` is for the log.
    Failed {
        /// What the user is told.
        for_user: String,
        /// What the log is told.
        cause: String,
    },
    /// `stop` was cancelled.
    Interrupted,
}

/// Runs turns.
pub struct Agent {
    #[expect(dead_code, reason = "filled in with the agent")]
    hooks: Arc<Registry>,
}

impl Agent {
    /// Runs one turn. `partial` is called with the whole answer so far, whenever it grew. Ends soon after `stop`.
    #[expect(clippy::unused_async, reason = "filled in with the agent")]
    pub async fn run_turn(
        &self,
        _request: TurnRequest,
        _partial: &(dyn Fn(&str) + Send + Sync),
        _stop: &CancellationToken,
    ) -> TurnOutcome {
        TurnOutcome::Interrupted
    }
}
