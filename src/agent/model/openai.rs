//! Any server that speaks OpenAI's chat completions (<https://platform.openai.com/docs/api-reference/chat>). Always asks
//! for a stream and takes what comes: events, one plain object, or something that turns out to be no model at all.

mod body;
mod reply;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use eventsource_stream::{EventStream, EventStreamError};
use futures_util::StreamExt;
use jiff::Timestamp;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::refusal::{self, Asked};
use super::retry_after::retry_after;
use super::{About, Model, ModelError, ModelReply, ModelRequest, OnDelta};
use crate::config;
use body::{Body, Kind};
use reply::Reply;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// One attempt as a whole.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(30 * 60);
/// What a server that has said `finish_reason` is given for its usage and `[DONE]`.
const FAREWELL: Duration = Duration::from_secs(5);
/// The environment variable that the configuration reads the key from.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// How much a log line quotes, in characters.
const LONGEST_QUOTE: usize = 500;

/// A client of one model at one address.
#[derive(Debug)]
pub struct OpenAi {
    about: About,
    client: Client,
    endpoint: Url,
    key: Option<SecretString>,
    silence: Duration,
}

impl OpenAi {
    /// A client of `model.name` at `model.base_url`. Nothing is asked yet.
    ///
    /// # Errors
    /// When the name is missing, or the address or the key can never work.
    pub fn new(model: &config::Model) -> anyhow::Result<Self> {
        ensure!(!model.name.trim().is_empty(), "model.default is missing: name the model to ask");
        let endpoint = endpoint(&model.base_url)?;
        let key = model.api_key.as_ref().map(|key| key.expose_secret().trim()).filter(|key| !key.is_empty());
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .ok()
                .context("model.api_key holds a character that no key has, such as a line break")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
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
            about: About {
                provider: "openai",
                name: model.name.trim().to_owned(),
                base_url: shown(&endpoint),
                api_mode: "chat_completions",
            },
            client: client.build().context("cannot set up the HTTP client for the model")?,
            endpoint,
            key: key.map(SecretString::from),
            silence: model.timeout,
        })
    }

    /// Whether the server is there and takes the key, by the list of its models, which costs nothing. One that has no such
    /// list is there, too.
    pub async fn reach(&self, at_most: Duration) -> Result<(), String> {
        let mut models = self.endpoint.clone();
        models.set_path(&models.path().replace("/chat/completions", "/models"));
        match self.client.get(models).timeout(at_most).send().await {
            Err(error) => {
                Err(self
                    .quoted(&format!("the server cannot be reached: {:#}", anyhow::Error::from(error.without_url()))))
            }
            Ok(answer) if matches!(answer.status().as_u16(), 401 | 403) => {
                Err(format!("the server refuses the key; check model.api_key ({KEY_VARIABLE})"))
            }
            Ok(_) => Ok(()),
        }
    }

    fn asked(&self) -> Asked<'_> {
        Asked { model: &self.about.name, with_key: self.key.is_some(), key_variable: KEY_VARIABLE }
    }

    async fn exchange(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        let sent = self.client.post(self.endpoint.clone()).json(&self.body(request)).send();
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
            Kind::Events => self.read_events(body, on_delta).await,
            Kind::Object => self.read_object(body, on_delta).await,
            Kind::WebPage => Err(refusal::web_page(&body.excerpt().await)),
        }
    }

    /// A stream counts as complete once the model said why it ended, or the server said `[DONE]`.
    async fn read_events(&self, body: Body, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        let beginning = body.beginning();
        let mut events = EventStream::new(Box::pin(body.into_stream()));
        let mut reply = Reply::default();
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
                "the model's stream ended without a finish_reason and without [DONE]; it began with: {beginning}"
            )));
        }
        Ok(reply.into_reply())
    }

    /// A whole completion from a server that does not stream.
    async fn read_object(&self, body: Body, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        let bytes = body.whole().await?;
        let mut object: Value = serde_json::from_slice(&bytes).map_err(|error| {
            refusal::broken(format!("the model's answer is not JSON ({error}): {}", String::from_utf8_lossy(&bytes)))
        })?;
        if let Some(only) = object.get_mut(0) {
            object = only.take(); // some put their errors into a list
        }
        if object.get("choices").is_none_or(|choices| !choices.is_array()) && object.get("error").is_none() {
            return Err(refusal::broken(format!("the model's answer has no choices: {object}")));
        }
        let mut reply = Reply::default();
        let text = reply.take_object(object, self.asked())?;
        if !text.is_empty() {
            on_delta(text);
        }
        Ok(reply.into_reply())
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

#[async_trait]
impl Model for OpenAi {
    fn about(&self) -> &About {
        &self.about
    }

    fn body(&self, request: &ModelRequest) -> Value {
        let system = Some(("system", request.system.as_str())).filter(|(_, prompt)| !prompt.trim().is_empty());
        let said = request.messages.iter().map(|message| (message.role.as_str(), message.content.as_str()));
        let messages =
            system.into_iter().chain(said).map(|(role, content)| json!({ "role": role, "content": content }));
        json!({
            "model": self.about.name,
            "messages": messages.collect::<Vec<_>>(),
            "stream": true,
            "stream_options": { "include_usage": true },
        })
    }

    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        let exchange = Box::pin(self.exchange(request, on_delta));
        let result = match tokio::time::timeout(LONGEST_ATTEMPT, exchange).await {
            Ok(result) => result,
            Err(_) => Err(refusal::endless(LONGEST_ATTEMPT)),
        };
        result.map_err(|error| ModelError { cause: self.quoted(&error.cause), ..error })
    }
}

/// The address of chat completions under `base_url`, which may already end in it. A query (Azure's `api-version`) stays.
fn endpoint(base_url: &str) -> anyhow::Result<Url> {
    let mut url = Url::parse(base_url.trim()).ok().context("model.base_url is not an address")?;
    if !matches!(url.scheme(), "http" | "https") {
        bail!("model.base_url must begin with http:// or https://");
    }
    let path = url.path().trim_end_matches('/');
    let path = if path.ends_with("/chat/completions") { path.to_owned() } else { format!("{path}/chat/completions") };
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

/// The base address as hooks and logs may see it.
fn shown(endpoint: &Url) -> String {
    let path = endpoint.path().trim_end_matches("/chat/completions");
    format!("{}{path}", endpoint.origin().ascii_serialization())
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
    use crate::agent::model::Message;
    use crate::session::Role;

    fn config(base_url: &str, key: Option<&str>) -> config::Model {
        config::Model {
            provider: config::Provider::OpenAi,
            name: "m-1".to_owned(),
            base_url: base_url.to_owned(),
            api_key: key.map(SecretString::from),
            system_prompt: None,
            timeout: Duration::from_secs(1),
            proxies: hookgate_adapters::Proxies::default(),
        }
    }

    #[test]
    fn endpoints() {
        for (base, joined) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
            (" https://api.openai.com/v1/ ", "https://api.openai.com/v1/chat/completions"),
            ("https://x.test/v1/chat/completions", "https://x.test/v1/chat/completions"),
            ("https://x.test/v1/chat/completions/", "https://x.test/v1/chat/completions"),
            ("http://[::1]:8080", "http://[::1]:8080/chat/completions"),
            ("https://a.test/d/m?api-version=1#top", "https://a.test/d/m/chat/completions?api-version=1"),
        ] {
            assert_eq!(endpoint(base).unwrap().as_str(), joined);
        }
        for wrong in ["", "api.openai.com/v1", "localhost:8080", "ftp://x.test", "file:///etc", "https://"] {
            assert!(endpoint(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_shown_of_an_address_holds_no_secret() {
        let shown_of = |base: &str| shown(&endpoint(base).unwrap());
        assert_eq!(shown_of("https://me:pw@x.test:8443/v1?key=abc"), "https://x.test:8443/v1");
        assert_eq!(shown_of("http://127.0.0.1:11434"), "http://127.0.0.1:11434");
    }

    #[test]
    fn unusable_settings_are_told_without_the_key() {
        let refused = |model: &config::Model| OpenAi::new(model).unwrap_err().to_string();
        assert!(refused(&config("nowhere", None)).contains("model.base_url"));
        let told = refused(&config("http://127.0.0.1:1", Some("sk-\nsecret")));
        assert!(told.contains("model.api_key") && !told.contains("secret"), "{told}");
        let nameless = config::Model { name: " ".to_owned(), ..config("http://127.0.0.1:1", None) };
        assert!(refused(&nameless).contains("model.default"));
        let debug = format!("{:?}", OpenAi::new(&config("http://127.0.0.1:1", Some("sk-hidden"))).unwrap());
        assert!(!debug.contains("sk-hidden"), "{debug}");
    }

    #[test]
    fn the_request_body() {
        let model = OpenAi::new(&config("http://127.0.0.1:1", Some("sk-hidden"))).unwrap();
        let mut request = ModelRequest {
            system: "Be kind.".to_owned(),
            messages: vec![Message { role: Role::User, content: "hi".to_owned() }],
            plain_text: String::new(),
        };
        let expected = json!({
            "model": "m-1",
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        assert_eq!(model.body(&request), expected);
        request.system = String::new();
        assert_eq!(model.body(&request)["messages"], json!([{"role": "user", "content": "hi"}]));
    }

    #[test]
    fn quotes_are_short_and_hold_no_key() {
        let model = OpenAi::new(&config("http://127.0.0.1:1", Some("sk-hidden"))).unwrap();
        assert_eq!(model.quoted("bad\n key\u{1b}[31m: sk-hidden "), "bad key [31m: [key]");
        let at_the_cut = format!("{}sk-hidden{}", "x".repeat(LONGEST_QUOTE - 4), "y".repeat(100));
        let quoted = model.quoted(&at_the_cut);
        assert_eq!(quoted.chars().count(), LONGEST_QUOTE + 1);
        assert!(!quoted.contains("sk-"), "{quoted}");
    }

    #[test]
    fn loopback_needs_no_proxy() {
        let is = |url: &str| is_loopback(&Url::parse(url).unwrap());
        assert!(is("http://127.0.0.1:1") && is("http://[::1]/") && is("http://localhost:11434"));
        assert!(!is("http://localhost.example.com") && !is("https://10.0.0.1"));
    }
}
