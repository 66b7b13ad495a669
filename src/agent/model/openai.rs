//! Any server that speaks OpenAI's chat completions (<https://platform.openai.com/docs/api-reference/chat>). Always asks
//! for a stream and takes what comes: events, one plain object, or something that turns out to be no model at all.

mod reply;

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

use super::http::{self, Http};
use super::{About, Message, Model, ModelError, ModelReply, ModelRequest, OnDelta};
use crate::config;
pub(super) use reply::Reply;

/// The environment variable that the configuration reads the key from.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// What the address ends in.
const LAST: &str = "/chat/completions";

/// A client of one model at one address.
#[derive(Debug)]
pub struct OpenAi {
    about: About,
    http: Http,
    max_tokens: Option<u32>,
    /// What the server calls the limit of an answer.
    limit_key: &'static str,
}

impl OpenAi {
    /// A client of `model.name` at `model.base_url`. Nothing is asked yet.
    ///
    /// # Errors
    /// When the name is missing, or the address or the key can never work.
    pub fn new(model: &config::Model) -> anyhow::Result<Self> {
        let endpoint = endpoint(&model.base_url)?;
        let mut headers = HeaderMap::new();
        if let Some(key) = http::key_of(model) {
            headers.insert(AUTHORIZATION, http::secret_header(&format!("Bearer {key}"))?);
        }
        Ok(Self {
            about: About {
                provider: "openai",
                name: model.name.trim().to_owned(),
                base_url: http::shown(&endpoint, LAST),
                api_mode: "chat_completions",
            },
            limit_key: limit_key(&endpoint),
            http: Http::new(model, endpoint, headers, KEY_VARIABLE)?,
            max_tokens: model.max_tokens,
        })
    }

    /// Whether the server is there and takes the key, by the list of its models, which costs nothing. One that has no such
    /// list is there, too.
    ///
    /// # Errors
    /// One sentence that says what to do.
    pub async fn reach(&self, at_most: Duration) -> Result<(), String> {
        self.http.reach(LAST, at_most).await
    }
}

#[async_trait]
impl Model for OpenAi {
    fn about(&self) -> &About {
        &self.about
    }

    fn body(&self, request: &ModelRequest) -> Value {
        let system = Some(&request.system).filter(|prompt| !prompt.trim().is_empty());
        let system = system.map(|prompt| json!({ "role": "system", "content": prompt }));
        let messages = system.into_iter().chain(request.messages.iter().flat_map(as_sent));
        let mut body = json!({
            "model": self.about.name,
            "messages": messages.collect::<Vec<_>>(),
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if !request.tools.is_empty() {
            let tool = |tool: &super::ToolSpec| {
                let function = json!({
                    "name": tool.name, "description": tool.description, "parameters": tool.parameters,
                });
                json!({ "type": "function", "function": function })
            };
            body["tools"] = request.tools.iter().map(tool).collect();
            if request.must_answer {
                body["tool_choice"] = json!("none");
            }
        }
        if let Some(limit) = request.max_tokens.or(self.max_tokens) {
            body[self.limit_key] = limit.into();
        }
        body
    }

    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        self.http.ask(&self.body(request), Reply::default(), request.messages.len(), on_delta).await
    }
}

/// A message in this dialect: one of ours is several where it holds the results of several tools.
fn as_sent(message: &Message) -> Vec<Value> {
    match message {
        Message::User(text) => vec![json!({ "role": "user", "content": text })],
        Message::Assistant { text, calls } if calls.is_empty() => {
            vec![json!({ "role": "assistant", "content": text })]
        }
        Message::Assistant { text, calls } => {
            let content = Some(text).filter(|text| !text.trim().is_empty());
            let call = |call: &super::RequestedCall| {
                let arguments = Value::Object(call.repeatable()).to_string();
                let function = json!({ "name": call.repeatable_name(), "arguments": arguments });
                json!({ "id": call.id, "type": "function", "function": function })
            };
            let calls: Vec<Value> = calls.iter().map(call).collect();
            vec![json!({ "role": "assistant", "content": content, "tool_calls": calls })]
        }
        Message::ToolResults(results) => results
            .iter()
            .map(|result| json!({ "role": "tool", "tool_call_id": result.tool_call_id, "content": result.content }))
            .collect(),
    }
}

/// OpenAI's own models of today refuse the key that all compatible servers know.
fn limit_key(endpoint: &Url) -> &'static str {
    let host = endpoint.host_str().unwrap_or_default();
    let is_openai = ["openai.com", "openai.azure.com"]
        .iter()
        .any(|own| host.strip_suffix(own).is_some_and(|sub| sub.is_empty() || sub.ends_with('.')));
    if is_openai { "max_completion_tokens" } else { "max_tokens" }
}

/// The address of chat completions under `base_url`, which may already end in it.
fn endpoint(base_url: &str) -> anyhow::Result<Url> {
    let mut url = http::parsed(base_url)?;
    let path = url.path().trim_end_matches('/');
    let path = if path.ends_with(LAST) { path.to_owned() } else { format!("{path}{LAST}") };
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::agent::model::{RequestedCall, ToolResult, ToolSpec};

    fn config(base_url: &str, key: Option<&str>) -> config::Model {
        config::Model {
            provider: config::Provider::OpenAi,
            name: "m-1".to_owned(),
            base_url: base_url.to_owned(),
            api_key: key.map(SecretString::from),
            ..config::Model::default()
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
        let shown_of = |base: &str| http::shown(&endpoint(base).unwrap(), LAST);
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
            messages: vec![Message::user("hi")],
            ..ModelRequest::default()
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
    fn tools_their_calls_and_their_results() {
        let limited = config::Model { max_tokens: Some(500), ..config("http://127.0.0.1:1", None) };
        let model = OpenAi::new(&limited).unwrap();
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
        let parameters = json!({"type": "object", "properties": {"p": {"type": "integer"}}});
        let tool =
            ToolSpec { name: "read".to_owned(), description: "Reads.".to_owned(), parameters: parameters.clone() };
        let calls = vec![call("a", r#"{"p": 1}"#), call("b", "{\"p\": ")];
        let request = ModelRequest {
            messages: vec![
                Message::user("hi"),
                Message::Assistant { text: String::new(), calls },
                Message::ToolResults(vec![result("a", "one"), result("b", "two")]),
            ],
            tools: [tool].into(),
            ..ModelRequest::default()
        };
        let sent = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}});
        let body = model.body(&request);
        assert_eq!(
            body["messages"],
            json!([
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null, "tool_calls": [sent("a", r#"{"p":1}"#), sent("b", "{}")]},
                {"role": "tool", "tool_call_id": "a", "content": "one"},
                {"role": "tool", "tool_call_id": "b", "content": "two"},
            ])
        );
        let function = json!({"name": "read", "description": "Reads.", "parameters": parameters});
        assert_eq!(body["tools"], json!([{"type": "function", "function": function}]));
        assert_eq!(body["max_tokens"], 500);
        assert_eq!(model.body(&ModelRequest { max_tokens: Some(9), ..request })["max_tokens"], 9);
    }

    #[test]
    fn openai_has_a_word_of_its_own_for_the_limit() {
        let key = |base: &str| limit_key(&endpoint(base).unwrap());
        assert_eq!(key("https://api.openai.com/v1"), "max_completion_tokens");
        assert_eq!(key("https://mine.openai.azure.com/openai/v1"), "max_completion_tokens");
        for other in ["http://127.0.0.1:11434/v1", "https://notopenai.com/v1", "https://openai.com.example.org/v1"] {
            assert_eq!(key(other), "max_tokens", "{other}");
        }
    }
}
