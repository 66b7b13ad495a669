//! Any server that speaks Anthropic's Messages (<https://docs.anthropic.com/en/api/messages>). What differs from chat
//! completions, besides names: the system prompt stands apart, what a tool brought is said by the user, neighbours of one
//! side are one message, and every request has a limit.

mod reply;

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::http::{self, Http};
use super::message::plain;
use super::{About, Message, Model, ModelError, ModelReply, ModelRequest, OnDelta};
use crate::config;
pub(super) use reply::Reply;

/// The environment variable that the configuration reads the key from.
const KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";
/// The version of the dialect.
const VERSION: &str = "2023-06-01";
/// The longest answer unless the configuration or the request says otherwise: what every model of today takes.
const MAX_TOKENS: u32 = 8192;

/// A client of one model at one address.
#[derive(Debug)]
pub struct Anthropic {
    about: About,
    http: Http,
    max_tokens: u32,
}

impl Anthropic {
    /// A client of `model.name` at `model.base_url`. Nothing is asked yet.
    ///
    /// # Errors
    /// When the name is missing, or the address or the key can never work.
    pub fn new(model: &config::Model) -> anyhow::Result<Self> {
        let endpoint = endpoint(&model.base_url)?;
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        if let Some(key) = http::key_of(model) {
            headers.insert("x-api-key", http::secret_header(key)?);
        }
        Ok(Self {
            about: About {
                provider: "anthropic",
                name: model.name.trim().to_owned(),
                base_url: http::shown(&endpoint, "/v1/messages"),
                api_mode: "anthropic_messages",
            },
            http: Http::new(model, endpoint, headers, KEY_VARIABLE)?,
            max_tokens: model.max_tokens.unwrap_or(MAX_TOKENS),
        })
    }

    /// Whether the server is there and takes the key, by the list of its models, which costs nothing. One that has no such
    /// list is there, too.
    ///
    /// # Errors
    /// One sentence that says what to do.
    pub async fn reach(&self, at_most: Duration) -> Result<(), String> {
        self.http.reach("/messages", at_most).await
    }
}

#[async_trait]
impl Model for Anthropic {
    fn about(&self) -> &About {
        &self.about
    }

    fn body(&self, request: &ModelRequest) -> Value {
        let mut body = json!({
            "model": self.about.name,
            "max_tokens": request.max_tokens.unwrap_or(self.max_tokens),
            "messages": messages(&request.messages),
            "stream": true,
        });
        if !request.system.trim().is_empty() {
            body["system"] = request.system.as_str().into();
        }
        if !request.tools.is_empty() {
            let tool = |tool: &super::ToolSpec| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters });
            body["tools"] = request.tools.iter().map(tool).collect();
            if request.must_answer {
                body["tool_choice"] = json!({ "type": "none" });
            }
        }
        body
    }

    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        self.http.ask(&self.body(request), Reply::default(), request.messages.len(), on_delta).await
    }
}

/// The conversation with its sides in turn: the blocks of neighbours of one side stand in one message.
fn messages(messages: &[Message]) -> Vec<Value> {
    let mut sides: Vec<(&str, Vec<Value>)> = Vec::with_capacity(messages.len());
    for message in messages {
        let (role, blocks) = blocks(message);
        match sides.last_mut() {
            Some((last, before)) if *last == role => before.extend(blocks),
            _ => sides.push((role, blocks)),
        }
    }
    sides.into_iter().map(|(role, blocks)| json!({ "role": role, "content": content(blocks) })).collect()
}

/// Blocks, or the text alone where there is nothing else.
fn content(mut blocks: Vec<Value>) -> Value {
    match blocks.as_mut_slice() {
        [only] if only["type"] == "text" => only["text"].take(),
        _ => blocks.into(),
    }
}

fn blocks(message: &Message) -> (&'static str, Vec<Value>) {
    let text = |text: &str| json!({ "type": "text", "text": text });
    match message {
        Message::User(said) => ("user", vec![text(said)]),
        Message::Assistant { text: said, calls } => {
            let said = Some(said).filter(|said| !said.trim().is_empty()).map(|said| text(said));
            let calls = calls.iter().map(|call| {
                let (id, name) = (plain(&call.id), call.repeatable_name());
                json!({ "type": "tool_use", "id": id, "name": name, "input": call.repeatable() })
            });
            ("assistant", said.into_iter().chain(calls).collect())
        }
        Message::ToolResults(results) => {
            let result = |result: &super::ToolResult| {
                let mut block = json!({ "type": "tool_result", "tool_use_id": plain(&result.tool_call_id) });
                if !result.content.trim().is_empty() {
                    block["content"] = result.content.as_str().into();
                }
                block
            };
            ("user", results.iter().map(result).collect())
        }
    }
}

/// The address of messages under `base_url`, which may already end in it, or in the version.
fn endpoint(base_url: &str) -> anyhow::Result<Url> {
    let mut url = http::parsed(base_url)?;
    let path = url.path().trim_end_matches('/');
    let path = match path {
        whole if whole.ends_with("/messages") => whole.to_owned(),
        versioned if versioned.ends_with("/v1") => format!("{versioned}/messages"),
        origin => format!("{origin}/v1/messages"),
    };
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::agent::model::{RequestedCall, ToolResult, ToolSpec};

    fn model() -> Anthropic {
        let model = config::Model {
            provider: config::Provider::Anthropic,
            name: "claude-x".to_owned(),
            base_url: "http://127.0.0.1:1".to_owned(),
            api_key: Some(SecretString::from("sk-ant-hidden")),
            ..config::Model::default()
        };
        Anthropic::new(&model).unwrap()
    }

    #[test]
    fn endpoints() {
        for (base, joined) in [
            ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
            (" https://api.anthropic.com/v1/ ", "https://api.anthropic.com/v1/messages"),
            ("https://x.test/v1/messages/", "https://x.test/v1/messages"),
            ("https://x.test/anthropic", "https://x.test/anthropic/v1/messages"),
            ("http://[::1]:8080/?beta=true", "http://[::1]:8080/v1/messages?beta=true"),
        ] {
            assert_eq!(endpoint(base).unwrap().as_str(), joined);
        }
        assert!(endpoint("localhost:8080").is_err());
        assert_eq!(model().about().base_url, "http://127.0.0.1:1");
    }

    #[test]
    fn the_request_body() {
        let mut request =
            ModelRequest { system: "Be kind.".to_owned(), messages: vec![Message::user("hi")], ..Default::default() };
        let expected = json!({
            "model": "claude-x",
            "max_tokens": MAX_TOKENS,
            "messages": [{"role": "user", "content": "hi"}],
            "stream": true,
            "system": "Be kind.",
        });
        assert_eq!(model().body(&request), expected);
        assert!(!format!("{:?}", model()).contains("hidden"));
        request.system = " ".to_owned();
        request.max_tokens = Some(7);
        let body = model().body(&request);
        assert_eq!((body.get("system"), &body["max_tokens"]), (None, &json!(7)));
    }

    #[test]
    fn results_of_one_round_and_what_follows_are_one_message() {
        let call = |id: &str, arguments: &str| RequestedCall {
            id: id.to_owned(),
            name: "read".to_owned(),
            arguments: arguments.to_owned(),
            fault: None,
        };
        let result = |id: &str, content: &str| ToolResult {
            tool_call_id: id.to_owned(),
            name: "read".to_owned(),
            content: content.to_owned(),
        };
        let parameters = json!({"type": "object"});
        let tool =
            ToolSpec { name: "read".to_owned(), description: "Reads.".to_owned(), parameters: parameters.clone() };
        let calls = vec![call("functions.read:0", r#"{"p": 1}"#), call("b", "{\"p\": ")];
        let request = ModelRequest {
            messages: vec![
                Message::user("one"),
                Message::user("two"),
                Message::Assistant { text: "Let me see.".to_owned(), calls },
                Message::ToolResults(vec![result("functions.read:0", "1"), result("b", "")]),
                Message::user("and?"),
                Message::assistant("Done."),
                Message::user("thanks"),
            ],
            tools: [tool].into(),
            ..ModelRequest::default()
        };
        let text = |text: &str| json!({"type": "text", "text": text});
        let body = model().body(&request);
        assert_eq!(
            body["messages"],
            json!([
                {"role": "user", "content": [text("one"), text("two")]},
                {"role": "assistant", "content": [
                    text("Let me see."),
                    {"type": "tool_use", "id": "functions_read_0", "name": "read", "input": {"p": 1}},
                    {"type": "tool_use", "id": "b", "name": "read", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "functions_read_0", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b"},
                    text("and?"),
                ]},
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": "thanks"},
            ])
        );
        assert_eq!(body["tools"], json!([{"name": "read", "description": "Reads.", "input_schema": parameters}]));
    }
}
