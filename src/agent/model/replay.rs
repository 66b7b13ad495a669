//! Answers from what [`Recording`](super::Recording) kept, in order, offline. For tests of hooks and routes, and to show a
//! conversation again.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use async_trait::async_trait;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};

use super::recording::masked;
use super::{About, Message, Model, ModelError, ModelReply, ModelRequest, OnDelta, Reason, Retry};
use crate::config;

/// How much of a message an error quotes, in characters.
const QUOTED: usize = 120;

/// A recording, and how far it was played.
#[derive(Debug)]
pub struct Replay {
    about: About,
    path: PathBuf,
    exchanges: Vec<Exchange>,
    next: Mutex<usize>,
    /// Recordings hold no key, so questions are compared without it.
    keys: Vec<SecretString>,
}

/// One line.
#[derive(Debug, Deserialize)]
struct Exchange {
    /// From 1.
    #[serde(skip)]
    line: usize,
    last: Value,
    #[serde(default)]
    model: Option<String>,
    /// None of a request that failed, which is passed over.
    #[serde(default)]
    reply: Option<ModelReply>,
}

impl Replay {
    /// The recording at `model.replay`, from its beginning.
    ///
    /// # Errors
    /// The file cannot be read; the sentence names the line.
    pub fn new(model: &config::Model) -> anyhow::Result<Self> {
        let path = model.replay.clone().context("model.replay is missing: name the file to answer from")?;
        let shown = path.display();
        let text = crate::files::read_text(&path).with_context(|| format!("model.replay: cannot read {shown}"))?;
        let mut exchanges = Vec::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let exchange: Exchange = serde_json::from_str(text)
                .with_context(|| format!("model.replay: line {line} of {shown} is no recorded exchange"))?;
            exchanges.extend(exchange.reply.is_some().then_some(Exchange { line, ..exchange }));
        }
        let recorded = exchanges.first().and_then(|exchange| exchange.model.clone());
        let name = Some(model.name.trim()).filter(|name| !name.is_empty()).map(str::to_owned);
        Ok(Self {
            about: About {
                provider: "replay",
                name: name.or(recorded).unwrap_or_else(|| "replay".to_owned()),
                base_url: String::new(),
                api_mode: "chat_completions",
            },
            path,
            exchanges,
            next: Mutex::new(0),
            keys: model.api_key.clone().into_iter().collect(),
        })
    }

    /// The next answer, if it is one to what was asked.
    fn answer(&self, asked: &Value) -> Result<ModelReply, String> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.display();
        let Some(exchange) = self.exchanges.get(*next) else {
            let after = self.exchanges.last().map_or(0, |exchange| exchange.line);
            return Err(format!("the recording {path} has nothing after line {after}; asked was {}", quoted(asked)));
        };
        if exchange.last != *asked {
            return Err(format!(
                "line {} of the recording {path} answers {}; asked was {}",
                exchange.line,
                quoted(&exchange.last),
                quoted(asked)
            ));
        }
        *next += 1;
        Ok(exchange.reply.clone().unwrap_or_default())
    }
}

/// A message as an error shows it.
fn quoted(message: &Value) -> String {
    let text = message.to_string();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[async_trait]
impl Model for Replay {
    fn about(&self) -> &About {
        &self.about
    }

    fn body(&self, request: &ModelRequest) -> Value {
        json!({ "model": self.about.name, "messages": request.messages.iter().map(Message::to_value).collect::<Vec<_>>() })
    }

    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        let asked = request.messages.last().map_or(Value::Null, Message::to_value);
        let reply = self.answer(&masked(&asked, &self.keys)).map_err(|cause| ModelError {
            reason: Reason::NotFound,
            status: None,
            retry: Retry::Never,
            for_user: "The recording this gateway answers from has no answer to that; the log names its line."
                .to_owned(),
            cause,
        })?;
        if !reply.text.is_empty() {
            on_delta(&reply.text);
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn replay(lines: &str) -> anyhow::Result<Replay> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.jsonl");
        fs::write(&path, lines).unwrap();
        Replay::new(&config::Model { replay: Some(path), ..config::Model::default() })
    }

    async fn ask(replay: &Replay, text: &str) -> Result<String, String> {
        let request = ModelRequest { messages: vec![Message::user(text)], ..ModelRequest::default() };
        let reply = replay.complete(&request, &mut |_| {}).await;
        reply.map(|reply| reply.text).map_err(|error| error.cause)
    }

    const LINES: &str = r#"{"last": {"role": "user", "content": "hi"}, "reply": {"text": "Hello."}, "model": "m-1"}

{"last": {"role": "user", "content": "more"}, "error": {"reason": "timeout"}}
{"last": {"role": "user", "content": "more"}, "reply": {"text": "More."}}
"#;

    #[tokio::test]
    async fn answers_come_in_order_and_only_to_their_questions() {
        let replay = replay(LINES).unwrap();
        assert_eq!((replay.about().provider, replay.about().name.as_str()), ("replay", "m-1"));
        assert_eq!(ask(&replay, "hi").await.unwrap(), "Hello.");
        let cause = ask(&replay, "hi").await.unwrap_err();
        assert!(cause.starts_with("line 4 of the recording ") && cause.contains(r#""content":"more""#), "{cause}");
        assert_eq!(ask(&replay, "more").await.unwrap(), "More.");
        let cause = ask(&replay, "more").await.unwrap_err();
        assert!(cause.contains("has nothing after line 4; asked was "), "{cause}");
    }

    #[test]
    fn what_is_no_recording_is_told_with_its_line() {
        let error = replay(&LINES.replace("\"error\"", "oops")).unwrap_err();
        assert!(error.to_string().starts_with("model.replay: line 3 of "), "{error}");
        let missing = Replay::new(&config::Model::default()).unwrap_err();
        assert!(missing.to_string().starts_with("model.replay is missing"));
    }
}
