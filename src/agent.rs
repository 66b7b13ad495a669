//! One question to its final answer: [`Agent::run_turn`]. Knows models and the hooks around them, and nothing of chats,
//! stores or delivery.

mod attempts;
pub mod model;
mod prompt;
pub mod tools;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use hookgate_hooks::{Directive, Event, Registry};
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::session::{Remembered, TurnStatus};

pub use attempts::Attempts;
use model::{Model, ModelError, ModelReply, ModelRequest};
use turn::{Call, Turn, TurnEnd};

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

/// Runs turns, any number at a time.
pub struct Agent {
    model: Arc<dyn Model>,
    hooks: Arc<Registry>,
    system_prompt: String,
    attempts: Attempts,
}

/// Whether the model's server is there and takes the key; one sentence if not.
pub(crate) async fn reach_model(model: &config::Model, at_most: Duration) -> Result<(), String> {
    model::OpenAi::new(model).map_err(|error| format!("{error:#}"))?.reach(at_most).await
}

impl Agent {
    /// An agent that asks `model`, with the default system prompt and the default [`Attempts`].
    pub fn new(model: Arc<dyn Model>, hooks: Arc<Registry>) -> Self {
        Self { model, hooks, system_prompt: prompt::DEFAULT.to_owned(), attempts: Attempts::default() }
    }

    /// The agent that `model` in the configuration describes.
    ///
    /// # Errors
    /// When the settings can never work; the sentence names the key of the configuration.
    pub fn from_config(model: &config::Model, hooks: Arc<Registry>) -> anyhow::Result<Self> {
        let agent = Self::new(model::from_config(model)?, hooks);
        Ok(match &model.system_prompt {
            Some(prompt) => agent.with_system_prompt(prompt.clone()),
            None => agent,
        })
    }

    /// Replaces the system prompt; a blank one means that none is sent.
    #[must_use]
    pub fn with_system_prompt(mut self, prompt: String) -> Self {
        self.system_prompt = prompt;
        self
    }

    /// Replaces how often and when a model is asked again.
    #[must_use]
    pub fn with_attempts(mut self, attempts: Attempts) -> Self {
        self.attempts = attempts;
        self
    }

    /// Runs one turn. `partial` is called with the whole answer so far, whenever it grew; when an attempt breaks midway
    /// the next one begins again, so a call may be given less than the one before. Ends at once after `stop`, and
    /// tells `on_session_end` however it ends, also when this future is dropped.
    pub async fn run_turn(
        &self,
        request: TurnRequest,
        partial: &(dyn Fn(&str) + Send + Sync),
        stop: &CancellationToken,
    ) -> TurnOutcome {
        let turn = Turn { request: &request, about: self.model.about() };
        if request.is_first_turn {
            self.hooks.emit(&Event::ON_SESSION_START, || turn.session_start());
        }
        let mut end = TurnEnd::new(&self.hooks, turn);
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => TurnOutcome::Interrupted,
            outcome = Box::pin(self.answer(turn, partial)) => outcome,
        };
        end.status = match outcome {
            TurnOutcome::Answer(_) => TurnStatus::Completed,
            TurnOutcome::Failed { .. } => TurnStatus::Failed,
            TurnOutcome::Interrupted => TurnStatus::Interrupted,
        };
        outcome
    }

    /// From the question to the answer, with the hooks between.
    async fn answer(&self, turn: Turn<'_>, partial: &(dyn Fn(&str) + Send + Sync)) -> TurnOutcome {
        let mut question = turn.request.text.clone();
        match self.hooks.ask(&Event::PRE_LLM_CALL, || turn.pre_llm_call()).await {
            Directive::Context(context) => {
                question.push_str("\n\n");
                question.push_str(&context);
            }
            Directive::Block { reason } => return stopped_by_a_hook("pre_llm_call", &reason),
            _ => {}
        }
        if question.trim().is_empty() {
            return TurnOutcome::Failed {
                for_user: "There is no text in your message that the model could read; write it in words.".to_owned(),
                cause: "the question is blank".to_owned(),
            };
        }
        let request = ModelRequest {
            system: self.system_prompt.clone(),
            messages: prompt::conversation(&turn.request.history, &question),
            plain_text: turn.request.plain_text.clone(),
        };
        self.hooks.emit(&Event::AGENT_STEP, || turn.first_step());
        let reply = match self.ask_model(turn, &request, partial).await {
            Ok(reply) => reply,
            Err(error) => return TurnOutcome::Failed { for_user: error.for_user, cause: error.cause },
        };
        if hookgate_adapters::is_blank(&reply.text) {
            return said_nothing(&reply);
        }
        if reply.finish_reason.as_deref() == Some("length") {
            tracing::warn!(session_id = turn.request.session_id, "The model's answer ends at its length limit.");
        }
        let transformed = self.hooks.ask(&Event::TRANSFORM_LLM_OUTPUT, || turn.transform_llm_output(&reply.text)).await;
        let answer = match transformed {
            Directive::Replace(text) => text,
            Directive::Block { reason } => return stopped_by_a_hook("transform_llm_output", &reason),
            _ => reply.text,
        };
        self.hooks.emit(&Event::POST_LLM_CALL, || turn.post_llm_call(&answer));
        TurnOutcome::Answer(answer)
    }

    /// Asks until there is a reply, or another attempt would not help or is not allowed.
    async fn ask_model(
        &self,
        turn: Turn<'_>,
        request: &ModelRequest,
        partial: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ModelReply, ModelError> {
        let mut attempt = 1;
        loop {
            let body = || self.model.body(request);
            let call = Call::start(turn);
            self.hooks.emit(&Event::PRE_API_REQUEST, || call.pre_api_request(&body()));
            let mut so_far = String::new();
            let mut on_delta = |piece: &str| {
                so_far.push_str(piece);
                partial(&so_far);
            };
            let error = match self.model.complete(request, &mut on_delta).await {
                Ok(reply) => {
                    self.hooks.emit(&Event::POST_API_REQUEST, || call.post_api_request(&reply, &body()));
                    return Ok(reply);
                }
                Err(error) => error,
            };
            self.hooks.emit(&Event::API_REQUEST_ERROR, || {
                call.api_request_error(&error, attempt - 1, self.attempts.retries, &body())
            });
            let Some(wait) = self.attempts.wait(attempt, &error) else { return Err(error) };
            tracing::warn!(
                session_id = turn.request.session_id,
                turn_id = turn.request.turn_id,
                attempt,
                reason = error.reason.as_str(),
                status = error.status,
                cause = error.cause,
                wait_ms = wait.as_millis(),
                "The model did not answer; it is asked again."
            );
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }
}

fn stopped_by_a_hook(event: &str, reason: &str) -> TurnOutcome {
    TurnOutcome::Failed {
        for_user: format!("A hook of this gateway stopped the answer: {reason}"),
        cause: format!("a {event} hook blocked the turn: {reason}"),
    }
}

/// The model ended well but has no text.
fn said_nothing(reply: &ModelReply) -> TurnOutcome {
    let why = reply.finish_reason.as_deref().unwrap_or("unknown");
    let for_user = match why {
        "length" => "The model reached its length limit before it said anything; ask for less, or raise its limit.",
        "content_filter" => "The provider's content filter held the answer back; ask in other words.",
        _ => "The model gave an empty answer; try again, or ask in other words.",
    };
    TurnOutcome::Failed {
        for_user: for_user.to_owned(),
        cause: format!("the model's answer is empty (finish_reason: {why})"),
    }
}
