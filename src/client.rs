//! How other commands talk to a running gateway: over its private listener, found through `console.json`.

use std::path::Path;
use std::time::Duration;

use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use hookgate_adapters::Button;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::console::{ConsoleFile, Line, Say};
use crate::error::UserError;

/// Everything but an event stream is answered by then.
const ANSWER: Duration = Duration::from_secs(30);

/// A running gateway's private listener.
#[derive(Clone)]
pub(crate) struct GatewayClient {
    http: reqwest::Client,
    streams: reqwest::Client,
    url: String,
    token: SecretString,
}

/// Why something was not said.
#[derive(Debug)]
pub(crate) enum NotSaid {
    /// The gateway is not there or is stopping: it may be said again, under the same id.
    Away(UserError),
    /// The gateway will not take it.
    Refused(UserError),
}

/// What a watched chat tells.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum ChatEvent {
    /// From here on nothing is missed.
    Ready,
    /// A reply.
    Message {
        /// Its id.
        id: String,
        /// The message it answers.
        reply_to: Option<String>,
        /// Its text.
        text: String,
        /// What can be pressed below it; its text says how to answer in words.
        #[serde(default)]
        buttons: Vec<Vec<Button>>,
    },
    /// A message is through, with so many replies on their way.
    Settled {
        /// The message.
        message_id: String,
        /// How many replies follow.
        replies: usize,
    },
    /// Events were missed.
    Reload,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// The events of a chat; ends when the gateway goes away.
pub(crate) type ChatEvents = futures_util::stream::BoxStream<'static, ChatEvent>;

impl GatewayClient {
    /// The gateway that runs on this home.
    pub(crate) fn of(home: &Path) -> Result<Self, UserError> {
        let file = ConsoleFile::read(home);
        let found = file.and_then(|file| Some(Self::new(file.url.clone()?, file.token())));
        found.ok_or_else(|| {
            UserError::failed(
                "The running gateway has no console (console.enabled is false), so it cannot be asked; stop it first, or turn the console on.",
            )
        })
    }

    /// A gateway at this address.
    pub(crate) fn new(url: String, token: SecretString) -> Self {
        let streams = reqwest::Client::builder().no_proxy().connect_timeout(ANSWER).build();
        Self {
            http: crate::http::loopback_client(ANSWER),
            streams: streams.expect("a client without TLS files or proxies can always be built"),
            url,
            token,
        }
    }

    /// Says something; the same id twice is said once. How many replies it got, if it was said before and is through.
    pub(crate) async fn say(&self, say: &Say) -> Result<Option<usize>, NotSaid> {
        let request = self.http.post(format!("{}/api/messages", self.url)).json(say);
        let response = request.bearer_auth(self.token.expose_secret()).send().await;
        let response = response.map_err(|error| NotSaid::Away(away(&error)))?;
        let status = response.status();
        if status.is_success() {
            #[derive(Deserialize)]
            struct Said {
                replies: Option<usize>,
            }
            let said: Said = response.json().await.map_err(|error| NotSaid::Away(away(&error)))?;
            return Ok(said.replies);
        }
        let error = refused(status, response.json().await.ok().as_ref());
        Err(if status.is_server_error() { NotSaid::Away(error) } else { NotSaid::Refused(error) })
    }

    /// The chat as it is.
    pub(crate) async fn history(&self, chat: &str) -> Result<Vec<Line>, UserError> {
        #[derive(Deserialize)]
        struct History {
            messages: Vec<Line>,
        }
        let request = self.http.get(format!("{}/api/history", self.url)).query(&[("chat", chat)]);
        let history: History = serde_json::from_value(self.answer(request).await?)
            .map_err(|error| UserError::failed(format!("The gateway's answer cannot be read: {error}.")))?;
        Ok(history.messages)
    }

    /// Ends a conversation; its session's id, if there was one.
    pub(crate) async fn reset_session(&self, session: &str) -> Result<Option<String>, UserError> {
        let request = self.http.post(format!("{}/api/sessions/reset", self.url)).json(&json!({ "session": session }));
        let answer = self.answer(request).await?;
        Ok(answer.get("session_id").and_then(|id| id.as_str()).map(str::to_owned))
    }

    /// Takes back what was approved from now on; what it was, if it was there.
    pub(crate) async fn revoke_approval(&self, id: i64) -> Result<Option<String>, UserError> {
        let request = self.http.post(format!("{}/api/approvals/revoke", self.url)).json(&json!({ "id": id }));
        let answer = self.answer(request).await?;
        Ok(answer.get("key").and_then(|key| key.as_str()).map(str::to_owned))
    }

    /// Follows a chat; each call of the returned stream's `next` is one event. It ends when the gateway goes away.
    pub(crate) async fn follow(&self, chat: &str) -> Result<ChatEvents, UserError> {
        let request = self.streams.get(format!("{}/api/events", self.url)).query(&[("chat", chat)]);
        let response = request.bearer_auth(self.token.expose_secret()).send().await.map_err(|error| away(&error))?;
        if !response.status().is_success() {
            return Err(refused(response.status(), None));
        }
        let events = response.bytes_stream().eventsource().take_while(|event| std::future::ready(event.is_ok()));
        let read = |event: Result<eventsource_stream::Event, _>| {
            std::future::ready(event.ok().and_then(|event| serde_json::from_str(&event.data).ok()))
        };
        Ok(events.filter_map(read).boxed())
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<serde_json::Value, UserError> {
        let response = request.bearer_auth(self.token.expose_secret()).send().await.map_err(|error| away(&error))?;
        let status = response.status();
        let body: Option<serde_json::Value> = response.json().await.ok();
        if !status.is_success() {
            return Err(refused(status, body.as_ref()));
        }
        body.ok_or_else(|| UserError::failed("The gateway's answer cannot be read."))
    }
}

fn away(error: &reqwest::Error) -> UserError {
    let why = if error.is_timeout() { "it does not answer" } else { "the connection failed" };
    UserError::failed(format!("The gateway cannot be reached: {why}."))
}

fn refused(status: reqwest::StatusCode, body: Option<&serde_json::Value>) -> UserError {
    let why = body.and_then(|body| body.get("error")).and_then(|error| error.as_str()).unwrap_or_default();
    UserError::failed(format!("The gateway refused ({status}): {why}"))
}
