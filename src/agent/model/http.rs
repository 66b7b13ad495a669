//! What every dialect over HTTP has in common: one attempt at one request, with limits on silence and size, and causes
//! that may be logged. Retries are made elsewhere.

use std::time::Duration;

use anyhow::Context as _;
use eventsource_stream::{EventStream, EventStreamError};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::body::{Body, Kind};
use super::refusal::{self, Asked};
use super::retry_after::retry_after;
use super::{ModelError, ModelReply, OnDelta};
use crate::config;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// One attempt as a whole.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(30 * 60);
/// What a server that has said why the answer ended is given for its usage and the stream's end.
const FAREWELL: Duration = Duration::from_secs(5);
/// How much a log line quotes, in characters.
const LONGEST_QUOTE: usize = 500;
/// The longest answer taken, in bytes.
pub(super) const LONGEST_ANSWER: usize = 1 << 20;

/// A client of one model at one address.
#[derive(Debug)]
pub(super) struct Http {
    name: String,
    client: Client,
    endpoint: Url,
    key: Option<SecretString>,
    /// The environment variable that the configuration reads the key from.
    key_variable: &'static str,
    silence: Duration,
}

/// The key of a model without blanks around it.
pub(super) fn key_of(model: &config::Model) -> Option<&str> {
    model.api_key.as_ref().map(|key| key.expose_secret().trim()).filter(|key| !key.is_empty())
}

/// A header's value that holds the key.
pub(super) fn secret_header(value: &str) -> anyhow::Result<HeaderValue> {
    let mut value = HeaderValue::from_str(value)
        .ok()
        .context("model.api_key holds a character that no key has, such as a line break")?;
    value.set_sensitive(true);
    Ok(value)
}

/// An answer in the making, in the events of a dialect or in its one object.
pub(super) trait Reading {
    /// Takes the data of one event, gives the new piece of the answer (often none).
    ///
    /// # Errors
    /// The event reports an error, is no JSON object, or the answer grew too long.
    fn take_event(&mut self, name: &str, data: &str, asked: Asked<'_>) -> Result<&str, ModelError>;

    /// Takes the whole answer of a server that does not stream.
    ///
    /// # Errors
    /// As [`take_event`](Self::take_event), or it is no answer at all.
    fn take_whole(&mut self, object: Value, asked: Asked<'_>) -> Result<&str, ModelError>;

    /// Whether the server said that nothing follows.
    fn has_ended(&self) -> bool;

    /// Whether the model said that it is done; usage may follow.
    fn is_finished(&self) -> bool;

    /// What a stream that broke off had not said, for the log.
    const UNSAID: &str;

    /// The answer. `round` differs from request to request of a turn.
    ///
    /// # Errors
    /// A call of a tool is not usable.
    fn into_reply(self, round: usize) -> Result<ModelReply, ModelError>;
}

impl Http {
    /// A client of `model.name` at `endpoint`. Nothing is asked yet.
    pub(super) fn new(
        model: &config::Model,
        endpoint: Url,
        mut headers: HeaderMap,
        key_variable: &'static str,
    ) -> anyhow::Result<Self> {
        let name = model.name.trim();
        anyhow::ensure!(!name.is_empty(), "model.default is missing: name the model to ask");
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        let mut client = model
            .proxies
            .apply(Client::builder())?
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("hookgate/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers);
        if is_loopback(&endpoint) {
            client = client.no_proxy();
        }
        Ok(Self {
            name: name.to_owned(),
            client: client.build().context("cannot set up the HTTP client for the model")?,
            endpoint,
            key: key_of(model).map(SecretString::from),
            key_variable,
            silence: model.timeout,
        })
    }

    /// Whether the server is there and takes the key, by the list of its models, which costs nothing. One that has no such
    /// list is there, too. `last` is what the list stands in place of in the path.
    pub(super) async fn reach(&self, last: &str, at_most: Duration) -> Result<(), String> {
        let mut models = self.endpoint.clone();
        let base = models.path().strip_suffix(last).unwrap_or(models.path()).to_owned();
        models.set_path(&format!("{base}/models"));
        match self.client.get(models).timeout(at_most).send().await {
            Err(error) => {
                Err(self
                    .quoted(&format!("the server cannot be reached: {:#}", anyhow::Error::from(error.without_url()))))
            }
            Ok(answer) if matches!(answer.status().as_u16(), 401 | 403) => {
                Err(format!("the server refuses the key; check model.api_key ({})", self.key_variable))
            }
            Ok(_) => Ok(()),
        }
    }

    fn asked(&self) -> Asked<'_> {
        Asked { model: &self.name, with_key: self.key.is_some(), key_variable: self.key_variable }
    }

    /// One attempt, from the request to the answer.
    ///
    /// # Errors
    /// [`ModelError`], whose cause may be logged.
    pub(super) async fn ask<R: Reading + Send>(
        &self,
        body: &Value,
        reply: R,
        round: usize,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ModelReply, ModelError> {
        let exchange = Box::pin(self.exchange(body, reply, round, on_delta));
        let result = match tokio::time::timeout(LONGEST_ATTEMPT, exchange).await {
            Ok(result) => result,
            Err(_) => Err(refusal::endless(LONGEST_ATTEMPT)),
        };
        result.map_err(|error| ModelError { cause: self.quoted(&error.cause), ..error })
    }

    async fn exchange<R: Reading + Send>(
        &self,
        body: &Value,
        mut reply: R,
        round: usize,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ModelReply, ModelError> {
        let sent = self.client.post(self.endpoint.clone()).json(body).send();
        let response = match tokio::time::timeout(self.silence, sent).await {
            Err(_) => return Err(refusal::silent(self.silence)),
            Ok(Err(error)) => return Err(refusal::unreachable(told(error))),
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        if status.is_redirection() {
            return Err(refusal::redirected(status.as_u16()));
        }
        if !status.is_success() {
            let wait = retry_after(response.headers(), Timestamp::now());
            let said = Body::new(response, self.silence).excerpt().await;
            return Err(refusal::of_status(status.as_u16(), &said, wait, self.asked()));
        }
        let mut body = Body::new(response, self.silence);
        match body.kind().await? {
            Kind::Events => self.read_events(body, &mut reply, on_delta).await?,
            Kind::Object => self.read_object(body, &mut reply, on_delta).await?,
            Kind::WebPage => return Err(refusal::web_page(&body.excerpt().await)),
        }
        reply.into_reply(round)
    }

    /// A stream counts as complete once the model said why it ended, or the server said that nothing follows.
    async fn read_events<R: Reading>(
        &self,
        body: Body,
        reply: &mut R,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<(), ModelError> {
        let beginning = body.beginning();
        let mut events = EventStream::new(Box::pin(body.into_stream()));
        while !reply.has_ended() {
            let patience = if reply.is_finished() { FAREWELL } else { LONGEST_ATTEMPT };
            let event = match tokio::time::timeout(patience, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(None) | Err(_) => break,
                Ok(Some(Err(_))) if reply.is_finished() => break,
                Ok(Some(Err(EventStreamError::Transport(error)))) => return Err(error),
                Ok(Some(Err(error))) => {
                    return Err(refusal::broken(format!("the model's stream cannot be read: {error}")));
                }
            };
            let piece = reply.take_event(&event.event, &event.data, self.asked())?;
            if !piece.is_empty() {
                on_delta(piece);
            }
        }
        if !reply.is_finished() {
            return Err(refusal::broken(format!(
                "the model's stream ended without {}; it began with: {beginning}",
                R::UNSAID
            )));
        }
        Ok(())
    }

    async fn read_object<R: Reading>(
        &self,
        body: Body,
        reply: &mut R,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<(), ModelError> {
        let bytes = body.whole().await?;
        let mut object: Value = serde_json::from_slice(&bytes).map_err(|error| {
            refusal::broken(format!("the model's answer is not JSON ({error}): {}", String::from_utf8_lossy(&bytes)))
        })?;
        if let Some(only) = object.get_mut(0) {
            object = only.take(); // some put their errors into a list
        }
        let text = reply.take_whole(object, self.asked())?;
        if !text.is_empty() {
            on_delta(text);
        }
        Ok(())
    }

    /// The cause as it may be logged: without the key, on one line, and short. In this order, so that no part of the
    /// key remains at the cut.
    fn quoted(&self, cause: &str) -> String {
        let cause = match &self.key {
            Some(key) => cause.replace(key.expose_secret(), "[key]"),
            None => cause.to_owned(),
        };
        let mut words = cause.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
        let mut quoted = words.next().unwrap_or_default().to_owned();
        for word in words {
            quoted.push(' ');
            quoted.push_str(word);
        }
        if let Some((end, _)) = quoted.char_indices().nth(LONGEST_QUOTE) {
            quoted.truncate(end);
            quoted.push('…');
        }
        quoted
    }
}

/// An address of the configuration that can be asked. Its query (Azure's `api-version`) stays.
pub(super) fn parsed(base_url: &str) -> anyhow::Result<Url> {
    let mut url = Url::parse(base_url.trim()).ok().context("model.base_url is not an address")?;
    if !matches!(url.scheme(), "http" | "https") {
        anyhow::bail!("model.base_url must begin with http:// or https://");
    }
    url.set_fragment(None);
    Ok(url)
}

/// The base address as hooks and logs may see it: without credentials and query, and without `last` at its end.
pub(super) fn shown(endpoint: &Url, last: &str) -> String {
    let path = endpoint.path();
    format!("{}{}", endpoint.origin().ascii_serialization(), path.strip_suffix(last).unwrap_or(path))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A transport error with its causes and without the address, whose query may hold a key.
fn told(error: reqwest::Error) -> String {
    format!("cannot ask the model: {:#}", anyhow::Error::from(error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_short_and_hold_no_key() {
        let model = config::Model {
            name: "m-1".to_owned(),
            api_key: Some(SecretString::from("sk-hidden")),
            ..config::Model::default()
        };
        let endpoint = parsed("http://127.0.0.1:1").unwrap();
        let http = Http::new(&model, endpoint, HeaderMap::new(), "OPENAI_API_KEY").unwrap();
        assert_eq!(http.quoted("bad\n key\u{1b}[31m: sk-hidden "), "bad key [31m: [key]");
        let at_the_cut = format!("{}sk-hidden{}", "x".repeat(LONGEST_QUOTE - 4), "y".repeat(100));
        let quoted = http.quoted(&at_the_cut);
        assert_eq!(quoted.chars().count(), LONGEST_QUOTE + 1);
        assert!(!quoted.contains("sk-"), "{quoted}");
    }

    const CHAT: &str = concat!(
        ": hello\r\n\r\n",
        "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"Grüße 👋🏽\"}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":",
        "{\"name\":\"read\",\"arguments\":\"{\\\"p\\\":\"}}]}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\" \\\"ü\\\"}\"}},",
        "{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"list\",\"arguments\":\"{}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}\n\ndata: [DONE]\n\n",
    );
    const MESSAGES: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":1}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Grüße 👋🏽\"}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"read\",\"input\":{}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"p\\\": \"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"ü\\\"}\"}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"list\",\"input\":{}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":2}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    /// What becomes of a stream that arrives in these pieces: the answer, and what was shown of it.
    fn read<R: Reading + Default>(pieces: Vec<Vec<u8>>) -> (ModelReply, String) {
        let asked = Asked { model: "m", with_key: false, key_variable: "" };
        let pieces = futures_util::stream::iter(pieces.into_iter().map(Ok::<_, std::convert::Infallible>));
        let mut events = EventStream::new(pieces);
        let (mut reply, mut shown) = (R::default(), String::new());
        while let Some(Some(event)) = futures_util::FutureExt::now_or_never(events.next()) {
            let event = event.unwrap();
            shown.push_str(reply.take_event(&event.event, &event.data, asked).unwrap());
        }
        assert!(reply.has_ended());
        (reply.into_reply(1).unwrap(), shown)
    }

    fn cut(text: &str, cuts: &[proptest::sample::Index]) -> Vec<Vec<u8>> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([text.len()]);
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        starts.zip(ends).map(|(start, end)| text.as_bytes()[start..end].to_vec()).collect()
    }

    #[test]
    fn both_dialects_say_the_same() {
        type Chat = super::super::openai::Reply;
        type Messages = super::super::anthropic::Reply;
        let (chat, shown) = read::<Chat>(vec![CHAT.into()]);
        let (messages, shown_too) = read::<Messages>(vec![MESSAGES.into()]);
        assert_eq!((chat.text.as_str(), shown.as_str(), shown_too.as_str()), ("Grüße 👋🏽", "Grüße 👋🏽", "Grüße 👋🏽"));
        assert_eq!(chat.tool_calls.len(), 2);
        assert_eq!(ModelReply { raw_usage: None, ..chat.clone() }, ModelReply { raw_usage: None, ..messages.clone() });
        let bytes = |text: &str| text.bytes().map(|byte| vec![byte]).collect();
        assert_eq!(read::<Chat>(bytes(CHAT)).0, chat);
        assert_eq!(read::<Messages>(bytes(MESSAGES)).0, messages);
    }

    proptest::proptest! {
        #[test]
        fn how_a_stream_is_cut_never_changes_the_answer(
            cuts in proptest::collection::vec(proptest::prelude::any::<proptest::sample::Index>(), 0..20),
        ) {
            type Chat = super::super::openai::Reply;
            type Messages = super::super::anthropic::Reply;
            proptest::prop_assert_eq!(read::<Chat>(cut(CHAT, &cuts)), read::<Chat>(vec![CHAT.into()]));
            proptest::prop_assert_eq!(read::<Messages>(cut(MESSAGES, &cuts)), read::<Messages>(vec![MESSAGES.into()]));
        }
    }

    #[test]
    fn loopback_needs_no_proxy() {
        let is = |url: &str| is_loopback(&Url::parse(url).unwrap());
        assert!(is("http://127.0.0.1:1") && is("http://[::1]/") && is("http://localhost:11434"));
        assert!(!is("http://localhost.example.com") && !is("https://10.0.0.1"));
    }
}
