//! One question to its final answer: [`Agent::run_turn`]. Knows models and the hooks around them, and nothing of chats,
//! stores or delivery.

mod asking;
mod attempts;
mod budget;
pub mod danger;
mod guard;
pub mod model;
mod prompt;
mod rounds;
mod smart;
mod spill;
pub mod tools;
pub mod toolset;
mod turn;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hookgate_hooks::{Directive, Event, Registry};
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::session::{Remembered, TurnStatus};

use asking::Asking;
pub use attempts::Attempts;
pub use budget::{Budget, Prices, Spending, Spent};
pub use guard::Guard;
use model::{Message, Model, ModelReply, ModelRequest};
use rounds::Rounds;
use smart::Adviser;
pub use spill::Spill;
use tools::{Host, Nobody, ToolTurn, Tools};
use turn::{Turn, TurnEnd};

/// What the model is told when it has used all its steps.
const SUMMARISE: &str = "You have used all the steps this turn has. Call no more tools: say what you found and did, and \
                         what is left to do.";

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

/// What a turn may use besides the model.
#[derive(Clone)]
pub struct Means {
    /// The tools it may call; none for text from strangers.
    pub tools: Tools,
    /// The session's working directory.
    pub cwd: PathBuf,
    /// The gateway around it.
    pub host: Arc<dyn Host>,
    /// What it may use up, and has.
    pub spending: Arc<Spending>,
}

impl Means {
    /// Without tools, for a turn that only talks.
    pub fn none() -> Self {
        Self {
            tools: Tools::default(),
            cwd: PathBuf::new(),
            host: Arc::new(Nobody),
            spending: Arc::new(Spending::default()),
        }
    }
}

/// The bounds of a turn.
#[derive(Debug, Clone)]
pub struct Steps {
    /// Requests to the model; then one more asks for a summary (`agent.max_turns`).
    pub most: u32,
    /// How often `pre_verify` may send a turn on (`agent.max_verify_nudges`).
    pub verifications: u32,
}

impl Default for Steps {
    fn default() -> Self {
        Self { most: 90, verifications: 3 }
    }
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
    /// The one that is asked first, and those that are asked where it fails.
    models: Vec<Arc<dyn Model>>,
    hooks: Arc<Registry>,
    system_prompt: String,
    attempts: Attempts,
    /// What the models can read at once, in tokens; the history is shortened to it.
    context_length: Option<u32>,
    guard: Guard,
    steps: Steps,
    spill: Arc<RwLock<Spill>>,
}

/// Whether the model's server is there and takes the key; one sentence if not.
pub(crate) async fn reach_model(model: &config::Model, at_most: Duration) -> Result<(), String> {
    model::reach(model, at_most).await
}

impl Agent {
    /// An agent that asks `model`, with the default system prompt and the default [`Attempts`].
    pub fn new(model: Arc<dyn Model>, hooks: Arc<Registry>) -> Self {
        Self {
            models: vec![model],
            hooks,
            system_prompt: prompt::DEFAULT.to_owned(),
            attempts: Attempts::default(),
            context_length: None,
            guard: Guard::default(),
            steps: Steps::default(),
            spill: Arc::default(),
        }
    }

    /// The agent that `model` in the configuration describes.
    ///
    /// # Errors
    /// When the settings can never work; the sentence names the key of the configuration.
    pub fn from_config(model: &config::Model, hooks: Arc<Registry>) -> anyhow::Result<Self> {
        let mut all = model::all_from_config(model)?.into_iter();
        let first = all.next().expect("the model itself is always among them");
        let mut agent = Self::new(first, hooks);
        agent.models.extend(all);
        agent.context_length = model.context_length;
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

    /// Replaces the rules on what tools may do.
    #[must_use]
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Replaces the bounds of a turn.
    #[must_use]
    pub fn with_steps(mut self, steps: Steps) -> Self {
        self.steps = steps;
        self
    }

    /// Replaces what is done with long context of hooks; it may change while turns run.
    #[must_use]
    pub fn with_spill(mut self, spill: Arc<RwLock<Spill>>) -> Self {
        self.spill = spill;
        self
    }

    /// Runs one turn. `partial` is called with the whole answer so far, whenever it grew; when an attempt breaks midway
    /// the next one begins again, so a call may be given less than the one before. Ends at once after `stop`, and
    /// tells `on_session_end` however it ends, also when this future is dropped.
    pub async fn run_turn(
        &self,
        request: TurnRequest,
        means: &Means,
        partial: &(dyn Fn(&str) + Send + Sync),
        stop: &CancellationToken,
    ) -> TurnOutcome {
        let mut asking = Asking::new(&self.models, &self.hooks, self.attempts);
        let turn = Turn { request: &request, about: asking.about() };
        if request.is_first_turn {
            self.hooks.emit(&Event::ON_SESSION_START, || turn.session_start());
        }
        let mut end = TurnEnd::new(&self.hooks, turn);
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => TurnOutcome::Interrupted,
            outcome = Box::pin(self.answer(turn, means, &mut asking, partial, stop)) => outcome,
        };
        end.turn.about = asking.about();
        end.status = match outcome {
            TurnOutcome::Answer(_) => TurnStatus::Completed,
            TurnOutcome::Failed { .. } => TurnStatus::Failed,
            TurnOutcome::Interrupted => TurnStatus::Interrupted,
        };
        outcome
    }

    /// From the question to the answer, with the hooks between.
    async fn answer<'a>(
        &self,
        turn: Turn<'a>,
        means: &Means,
        asking: &mut Asking<'a>,
        partial: &(dyn Fn(&str) + Send + Sync),
        stop: &CancellationToken,
    ) -> TurnOutcome {
        let mut question = turn.request.text.clone();
        match self.hooks.ask_context(|| turn.pre_llm_call()).await {
            Ok(pieces) => {
                let spill = self.spill.read().unwrap_or_else(PoisonError::into_inner).clone();
                for piece in pieces {
                    question.push_str("\n\n");
                    question.push_str(&spill.fitted(piece, &turn.request.session_id).await);
                }
            }
            Err(reason) => return stopped_by_a_hook("pre_llm_call", &reason),
        }
        if question.trim().is_empty() {
            return TurnOutcome::Failed {
                for_user: "There is no text in your message that the model could read; write it in words.".to_owned(),
                cause: "the question is blank".to_owned(),
            };
        }
        let mut messages = prompt::conversation(&turn.request.history, &question);
        if let Some(tokens) = self.context_length {
            prompt::shorten(&mut messages, &self.system_prompt, tokens);
        }
        let mut request = ModelRequest {
            system: self.system_prompt.clone(),
            messages,
            plain_text: turn.request.plain_text.clone(),
            tools: means.tools.specs(),
            ..ModelRequest::default()
        };
        let reply = match self.step_by_step(turn, means, asking, &mut request, partial, stop).await {
            Ok(reply) => reply,
            Err(failed) => return failed,
        };
        let turn = Turn { about: asking.about(), ..turn };
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

    /// The model and tools until the model has nothing more to call, or no more steps. `Err`: the turn ends without an answer.
    async fn step_by_step<'a>(
        &self,
        turn: Turn<'a>,
        means: &Means,
        asking: &mut Asking<'a>,
        request: &mut ModelRequest,
        partial: &(dyn Fn(&str) + Send + Sync),
        stop: &CancellationToken,
    ) -> Result<ModelReply, TurnOutcome> {
        let tool_turn = ToolTurn {
            session_id: turn.request.session_id.clone(),
            turn_id: turn.request.turn_id.clone(),
            cwd: means.cwd.clone(),
            stop: stop.clone(),
            host: Arc::clone(&means.host),
        };
        let rounds = Rounds {
            hooks: &self.hooks,
            guard: &self.guard,
            tools: &means.tools,
            tool_turn: &tool_turn,
            adviser: Adviser { model: &self.models[0], hooks: &self.hooks, turn },
        };
        let (mut iteration, mut verified, mut last_step) = (1, 0, Vec::new());
        let mut edited = BTreeSet::new();
        if let Some(for_user) = means.spending.exceeded_by(0) {
            return Err(TurnOutcome::Failed { cause: for_user.clone(), for_user });
        }
        loop {
            self.hooks.emit(&Event::AGENT_STEP, || turn.step(iteration, std::mem::take(&mut last_step)));
            let reply = match asking.ask(turn, request, partial).await {
                Ok(reply) => reply,
                Err(error) => return Err(TurnOutcome::Failed { for_user: error.for_user, cause: error.cause }),
            };
            means.spending.add_reply(&reply);
            let turn = Turn { about: asking.about(), ..turn };
            if reply.tool_calls.is_empty() || request.must_answer {
                let nudge = self.verify(turn, verified, &edited, &reply).await.filter(|_| !request.must_answer);
                let Some(reason) = nudge else { return Ok(reply) };
                request.messages.push(Message::assistant(reply.text));
                request.messages.push(Message::user(reason));
                (verified, iteration) = (verified + 1, iteration + 1);
                continue;
            }
            if let Some(for_user) = means.spending.exceeded_by(reply.tool_calls.len()) {
                return Err(TurnOutcome::Failed { cause: for_user.clone(), for_user });
            }
            means.spending.add_calls(reply.tool_calls.len());
            let round = rounds.run(turn, &asking.request_id(turn), &reply.tool_calls).await;
            if let Some(for_user) = round.halt {
                return Err(TurnOutcome::Failed {
                    cause: "the turn was halted: an approval timed out".to_owned(),
                    for_user,
                });
            }
            edited.extend(round.edited);
            last_step = round.step;
            request.messages.push(Message::Assistant { text: reply.text, calls: reply.tool_calls });
            request.messages.push(Message::ToolResults(round.results));
            iteration += 1;
            if iteration > self.steps.most {
                tracing::warn!(
                    session_id = turn.request.session_id,
                    steps = self.steps.most,
                    "A turn has used all its steps."
                );
                request.must_answer = true;
                request.messages.push(Message::user(SUMMARISE));
            }
        }
    }

    /// Why a hook sends a turn that edited files on, if one does.
    async fn verify(
        &self,
        turn: Turn<'_>,
        attempt: u32,
        edited: &BTreeSet<String>,
        reply: &ModelReply,
    ) -> Option<String> {
        if edited.is_empty() || attempt >= self.steps.verifications || hookgate_adapters::is_blank(&reply.text) {
            return None;
        }
        match self.hooks.ask(&Event::PRE_VERIFY, || turn.pre_verify(attempt, edited, &reply.text)).await {
            Directive::Block { reason } if !reason.trim().is_empty() => Some(reason),
            _ => None,
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
