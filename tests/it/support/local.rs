//! Somebody at the chat page: speaks the console's routes as the page does.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};

/// A browser with the token.
#[derive(Debug, Clone)]
pub(crate) struct LocalChat {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// The events of a chat.
pub(crate) struct Watched(BoxStream<'static, Result<Value>>);

impl Watched {
    /// The next event; `None` when the gateway ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>> {
        let next = tokio::time::timeout(Duration::from_secs(10), self.0.next()).await;
        next.context("nothing happened in the chat")?.transpose()
    }

    /// The events up to the first of this type, it included.
    pub(crate) async fn until(&mut self, kind: &str) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            let last = event["type"] == kind;
            events.push(event);
            if last {
                return Ok(events);
            }
        }
        bail!("the stream ended before {kind}: {events:#?}")
    }
}

impl LocalChat {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { http, url: url.to_owned(), token: token.to_owned() }
    }

    /// Where the console is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A request with the token, to be sent by the test.
    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().unwrap();
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    /// A request without the token.
    pub(crate) fn stranger(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method.parse().unwrap(), format!("{}{path}", self.url))
    }

    /// Says something in a chat; the id makes it the same message when it is said again.
    pub(crate) async fn says(&self, chat: &str, id: &str, text: &str) -> Result<Value> {
        let body = json!({ "chat": chat, "id": id, "text": text });
        let response = self.request("POST", "/api/messages").json(&body).send().await?;
        let status = response.status();
        let answer: Value = response.json().await?;
        anyhow::ensure!(status == 202, "{status}: {answer}");
        Ok(answer)
    }

    /// Follows a chat as the page does.
    pub(crate) async fn watches(&self, chat: &str) -> Result<Watched> {
        let response = self.request("GET", &format!("/api/events?chat={chat}")).send().await?.error_for_status()?;
        let events = response.bytes_stream().eventsource();
        Ok(Watched(events.map(|event| Ok(serde_json::from_str(&event?.data)?)).boxed()))
    }

    /// The lines of a chat, as a page that is opened now shows them: (role, text).
    pub(crate) async fn lines(&self, chat: &str) -> Result<Vec<(String, String)>> {
        let response = self.request("GET", &format!("/api/history?chat={chat}")).send().await?;
        let history: Value = response.json().await?;
        let messages = history["messages"].as_array().context("messages")?;
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        Ok(messages.iter().map(|line| (text(line, "role"), text(line, "text"))).collect())
    }

    /// Waits until the chat has so many replies; all of them.
    pub(crate) async fn hears(&self, chat: &str, replies: usize) -> Result<Vec<String>> {
        for _ in 0..500 {
            let lines = self.lines(chat).await?;
            let heard: Vec<String> =
                lines.into_iter().filter(|(role, _)| role == "assistant").map(|(_, text)| text).collect();
            if heard.len() >= replies {
                return Ok(heard);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the chat {chat} did not get {replies} replies: {:?}", self.lines(chat).await?)
    }
}
