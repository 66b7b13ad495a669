//! Asks the model of a turn, again where that may help, and the next one where it does not.

use std::sync::Arc;

use hookgate_hooks::{Event, Registry};

use super::attempts::Attempts;
use super::model::{About, Model, ModelError, ModelReply, ModelRequest};
use super::turn::{Call, Turn};

/// The models as one turn asks them: in their order, and never again one that has failed the turn.
pub(super) struct Asking<'a> {
    models: &'a [Arc<dyn Model>],
    hooks: &'a Registry,
    attempts: Attempts,
    /// Which is asked.
    at: usize,
    /// How many requests the turn has made, attempts apart.
    api_calls: u32,
}

impl<'a> Asking<'a> {
    /// Begins with the first of `models`, of which there is at least one.
    pub(super) fn new(models: &'a [Arc<dyn Model>], hooks: &'a Registry, attempts: Attempts) -> Self {
        Self { models, hooks, attempts, at: 0, api_calls: 0 }
    }

    /// The model that answered last, or will be asked first.
    pub(super) fn about(&self) -> &'a About {
        self.models[self.at].about()
    }

    /// Names the request that was answered last, as hooks know it.
    pub(super) fn request_id(&self, turn: Turn<'_>) -> String {
        Call::start(turn, self.api_calls).id()
    }

    /// Asks until there is a reply, or no further attempt and no further model would help or is allowed.
    ///
    /// # Errors
    /// What the last of the models said.
    pub(super) async fn ask(
        &mut self,
        turn: Turn<'_>,
        request: &ModelRequest,
        partial: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ModelReply, ModelError> {
        self.api_calls += 1;
        loop {
            let model = &self.models[self.at];
            let turn = Turn { about: model.about(), ..turn };
            let error = match self.ask_one(model.as_ref(), turn, request, partial).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let Some(next) = self.models.get(self.at + 1) else { return Err(error) };
            tracing::warn!(
                session_id = turn.request.session_id,
                turn_id = turn.request.turn_id,
                reason = error.reason.as_str(),
                status = error.status,
                cause = error.cause,
                model = turn.about.name,
                fallback = next.about().name,
                provider = next.about().provider,
                "The model did not answer; the next of fallback_providers is asked."
            );
            self.at += 1;
        }
    }

    /// Asks one model until there is a reply, or another attempt would not help or is not allowed.
    async fn ask_one(
        &self,
        model: &dyn Model,
        turn: Turn<'_>,
        request: &ModelRequest,
        partial: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ModelReply, ModelError> {
        let mut attempt = 1;
        loop {
            let body = || model.body(request);
            let call = Call::start(turn, self.api_calls);
            self.hooks.emit(&Event::PRE_API_REQUEST, || call.pre_api_request(&body()));
            let mut so_far = String::new();
            let mut on_delta = |piece: &str| {
                so_far.push_str(piece);
                partial(&so_far);
            };
            let error = match model.complete(request, &mut on_delta).await {
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
