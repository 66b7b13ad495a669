//! A model server on loopback that speaks chat completions and Anthropic's Messages over plain HTTP, as strictly as the
//! strictest real one, and answers by script, in the dialect it is asked in. What it was asked is kept in order. Works for
//! agents in this process and in others.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// The server. It ends when this is dropped.
pub(crate) struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) body: Value,
    pub(crate) authorization: Option<String>,
    /// `x-api-key`, of Anthropic's dialect.
    pub(crate) api_key: Option<String>,
}

/// How it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    OpenAi,
    Anthropic,
}

/// A tool call the model makes.
#[derive(Debug, Clone)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// What is done with one request.
#[derive(Debug, Clone)]
enum Line {
    Says { text: String, pause: Duration },
    Calls { text: String, calls: Vec<Call> },
    Holds { text: String },
    Repeats { before: String },
    Fails { status: u16, headers: Vec<(String, String)>, body: String },
    BreaksMidway { text: String },
    EndsMidway { text: String },
    Sends { content_type: String, pieces: Vec<Vec<u8>> },
    Hangs,
}

#[derive(Debug)]
struct Shared {
    echoes: bool,
    script: Mutex<VecDeque<Line>>,
    calls_made: AtomicUsize,
    asked: Mutex<Vec<Asked>>,
    problems: Mutex<Vec<String>>,
    released: Semaphore,
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    asked: usize,
    active: usize,
    active_max: usize,
}

impl FakeModel {
    /// Answers by script only; a request without a line left gets 400 and is a problem.
    pub(crate) async fn start() -> Self {
        Self::serve(false).await
    }

    /// Answers `echo: <last user text>` whenever no line is left.
    pub(crate) async fn echo() -> Self {
        Self::serve(true).await
    }

    async fn serve(echoes: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
        let address = listener.local_addr().expect("a bound port has an address");
        let shared = Arc::new(Shared {
            echoes,
            script: Mutex::default(),
            calls_made: AtomicUsize::new(0),
            asked: Mutex::default(),
            problems: Mutex::default(),
            released: Semaphore::new(0),
            counts: watch::Sender::default(),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("serving on loopback") });
        Self { address, shared, server }
    }

    /// For `model.base_url`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The next request is answered with `text`, a few pieces at once.
    pub(crate) fn says(&self, text: &str) -> &Self {
        self.says_slowly(text, Duration::ZERO)
    }

    /// The same with a pause before each piece.
    pub(crate) fn says_slowly(&self, text: &str, pause: Duration) -> &Self {
        self.line(Line::Says { text: text.to_owned(), pause })
    }

    /// The next request is answered with a call of a tool.
    pub(crate) fn calls_tool(&self, name: &str, arguments: Value) -> &Self {
        self.calls_tools(&[(name, arguments)])
    }

    /// The next request is answered with several calls at once.
    pub(crate) fn calls_tools(&self, calls: &[(&str, Value)]) -> &Self {
        self.says_and_calls("", calls)
    }

    /// The next request is answered with a text and calls of tools.
    pub(crate) fn says_and_calls(&self, text: &str, calls: &[(&str, Value)]) -> &Self {
        let calls: Vec<_> = calls.iter().map(|(name, arguments)| (*name, arguments.to_string())).collect();
        let calls: Vec<_> = calls.iter().map(|(name, arguments)| (*name, arguments.as_str())).collect();
        self.calls_raw(text, &calls)
    }

    /// The same with arguments as they stand, which may be no JSON.
    pub(crate) fn calls_raw(&self, text: &str, calls: &[(&str, &str)]) -> &Self {
        let call = |(name, arguments): &(&str, &str)| Call {
            id: format!("call_{}", self.shared.calls_made.fetch_add(1, Ordering::Relaxed) + 1),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        };
        self.line(Line::Calls { text: text.to_owned(), calls: calls.iter().map(call).collect() })
    }

    /// The next request is answered with `before` and what it asks.
    pub(crate) fn repeats(&self, before: &str) -> &Self {
        self.line(Line::Repeats { before: before.to_owned() })
    }

    /// The next request waits for a [`release`](Self::release) and is then answered with `text`.
    pub(crate) fn holds(&self, text: &str) -> &Self {
        self.line(Line::Holds { text: text.to_owned() })
    }

    /// Lets one held request go on, also one that is yet to come.
    pub(crate) fn release(&self) {
        self.shared.released.add_permits(1);
    }

    /// The next request gets this answer as it stands.
    pub(crate) fn fails(&self, status: u16, headers: &[(&str, &str)], body: &str) -> &Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.line(Line::Fails { status, headers, body: body.to_owned() })
    }

    /// The next request gets `text` as the beginning of an answer, then the connection breaks.
    pub(crate) fn breaks_midway(&self, text: &str) -> &Self {
        self.line(Line::BreaksMidway { text: text.to_owned() })
    }

    /// The next request gets `text` as the beginning of an answer, then the stream ends as if nothing was wrong.
    pub(crate) fn ends_midway(&self, text: &str) -> &Self {
        self.line(Line::EndsMidway { text: text.to_owned() })
    }

    /// The next request gets these bytes with status 200, piece by piece.
    pub(crate) fn sends(&self, content_type: &str, pieces: &[&[u8]]) -> &Self {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        self.line(Line::Sends { content_type: content_type.to_owned(), pieces })
    }

    /// The next request gets bytes that mean nothing.
    pub(crate) fn garbage(&self) -> &Self {
        self.sends("text/event-stream", &[b"\x00\xff\xfe garbage", b"data: {\"choi\n\n", b"\xc3"])
    }

    /// The next request is taken and never answered.
    pub(crate) fn hangs(&self) -> &Self {
        self.line(Line::Hangs)
    }

    fn line(&self, line: Line) -> &Self {
        self.shared.script.lock().unwrap().push_back(line);
        self
    }

    /// Every request so far, in order.
    pub(crate) fn requests(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// What every request so far ended with: a user's text, or a line for each tool, ``tool `name`: result``.
    pub(crate) fn was_told(&self) -> Vec<String> {
        self.requests().iter().map(|asked| last_told(&asked.body)).collect()
    }

    /// The same of the last request.
    pub(crate) fn was_told_last(&self) -> String {
        self.was_told().pop().expect("the model was asked")
    }

    /// How many requests were being answered at the same time, at most.
    pub(crate) fn active_max(&self) -> usize {
        self.shared.counts.borrow().active_max
    }

    /// Waits until `count` requests have come in all.
    pub(crate) async fn is_asked(&self, count: usize) {
        self.until(|counts| counts.asked >= count).await;
    }

    /// Waits until no request is being answered: all are done, or their clients are gone.
    pub(crate) async fn is_idle(&self) {
        self.until(|counts| counts.active == 0).await;
    }

    async fn until(&self, condition: impl FnMut(&Counts) -> bool) {
        let mut counts = self.shared.counts.subscribe();
        let waits = tokio::time::timeout(Duration::from_secs(30), counts.wait_for(condition)).await;
        let reached = waits.map(|counts| counts.map(drop).expect("the sender lives as long as the fake"));
        assert!(reached.is_ok(), "the model waited 30 s: {:?}", self.shared.counts.borrow());
    }

    /// Lines that no request has used.
    pub(crate) fn unused(&self) -> Vec<String> {
        self.shared.script.lock().unwrap().iter().map(|line| format!("{line:?}")).collect()
    }

    /// Requests that a strict server refuses, and requests without a line.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.shared.problems.lock().unwrap().clone()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Counts a request as active while it lives: in the handler, then in the body of the answer.
struct Active(Arc<Shared>);

impl Active {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.counts.send_modify(|counts| {
            counts.asked += 1;
            counts.active += 1;
            counts.active_max = counts.active_max.max(counts.active);
        });
        Self(Arc::clone(shared))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.active -= 1);
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let body = serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (authorization, api_key) = (text(header::AUTHORIZATION.as_str()), text("x-api-key"));
    shared.asked.lock().unwrap().push(Asked { body: body.clone(), authorization, api_key });
    let active = Active::new(&shared);
    let refuse = |status: StatusCode, problem: String| {
        let error = json!({ "type": "error", "error": { "message": problem, "type": "invalid_request_error" } });
        shared.problems.lock().unwrap().push(problem);
        (status, axum::Json(error)).into_response()
    };
    let (dialect, checked) = match uri.path() {
        "/v1/chat/completions" => (Dialect::OpenAi, check(&body)),
        "/v1/messages" if text("anthropic-version").as_deref() != Some("2023-06-01") => {
            (Dialect::Anthropic, Err("anthropic-version: header is required".to_owned()))
        }
        "/v1/messages" => (Dialect::Anthropic, check_messages(&body)),
        other => return refuse(StatusCode::NOT_FOUND, format!("no such path: {other}")),
    };
    if let Err(problem) = checked {
        return refuse(StatusCode::BAD_REQUEST, problem);
    }
    let line = shared.script.lock().unwrap().pop_front();
    let line = match line {
        Some(line) => line,
        None if shared.echoes => Line::Repeats { before: "echo: ".to_owned() },
        None => return refuse(StatusCode::BAD_REQUEST, format!("no line left for: {}", last_told(&body))),
    };
    play(line, &last_told(&body), dialect, active).await
}

async fn play(line: Line, question: &str, dialect: Dialect, active: Active) -> Response {
    let at_once = Duration::ZERO;
    let whole = |text: &str| dialect.whole(text, &[]);
    match line {
        Line::Says { text, pause } => streamed(EVENTS, whole(&text), pause, Ending::Clean, active),
        Line::Calls { text, calls } => streamed(EVENTS, dialect.whole(&text, &calls), at_once, Ending::Clean, active),
        Line::Holds { text } => {
            active.0.released.acquire().await.expect("never closed").forget();
            streamed(EVENTS, whole(&text), at_once, Ending::Clean, active)
        }
        Line::BreaksMidway { text } => streamed(EVENTS, dialect.beginning(&text), at_once, Ending::Broken, active),
        Line::EndsMidway { text } => streamed(EVENTS, dialect.beginning(&text), at_once, Ending::Clean, active),
        Line::Sends { content_type, pieces } => streamed(&content_type, pieces, APART, Ending::Clean, active),
        Line::Fails { status, headers, body } => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(body)).expect("a valid scripted answer")
        }
        Line::Repeats { before } => {
            streamed(EVENTS, whole(&format!("{before}{question}")), at_once, Ending::Clean, active)
        }
        Line::Hangs => std::future::pending().await,
    }
}

const EVENTS: &str = "text/event-stream";
/// Long enough for two pieces to arrive as two.
const APART: Duration = Duration::from_millis(5);

/// How the body of an answer ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// As HTTP wants it.
    Clean,
    /// The connection is cut.
    Broken,
}

fn streamed(content_type: &str, pieces: Vec<Vec<u8>>, pause: Duration, ending: Ending, active: Active) -> Response {
    let pieces = stream::iter(pieces).then(move |piece| async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok::<_, io::Error>(piece)
    });
    let end = stream::iter((ending == Ending::Broken).then_some(())).then(|()| async {
        tokio::time::sleep(APART).await; // so that what was sent before gets through
        Err(io::Error::other("the connection is cut"))
    });
    let body = pieces.chain(end).map(move |piece| {
        let _counts_until_the_body_ends = &active;
        piece
    });
    let response = Response::builder().header(header::CONTENT_TYPE, content_type).body(Body::from_stream(body));
    response.expect("a valid scripted answer")
}

fn event(choices: &Value) -> Vec<u8> {
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fake-1", "choices": choices,
    });
    format!("data: {chunk}\n\n").into_bytes()
}

fn delta(delta: &Value, finish_reason: Option<&str>) -> Vec<u8> {
    event(&json!([{ "index": 0, "delta": delta, "finish_reason": finish_reason }]))
}

/// One of Anthropic's events, which carries its name twice.
fn named(event: &Value) -> Vec<u8> {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()).into_bytes()
}

/// Arguments as they arrive: in three pieces.
fn in_pieces(arguments: &str) -> Vec<&str> {
    let third = arguments.floor_char_boundary(arguments.len() / 3);
    let (first, rest) = arguments.split_at(third);
    let (second, third) = rest.split_at(rest.floor_char_boundary(rest.len() / 2));
    vec![first, second, third]
}

impl Dialect {
    /// The events of an answer that never ends: its head, then the text word by word.
    fn beginning(self, text: &str) -> Vec<Vec<u8>> {
        let words = text.split_inclusive(' ');
        match self {
            Self::OpenAi => {
                let role = delta(&json!({ "role": "assistant", "content": "" }), None);
                std::iter::once(role).chain(words.map(|word| delta(&json!({ "content": word }), None))).collect()
            }
            Self::Anthropic => {
                let usage = json!({ "input_tokens": 5, "output_tokens": 1 });
                let message = json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "fake-1", "content": [],
                    "stop_reason": null, "usage": usage,
                });
                let block = json!({ "type": "text", "text": "" });
                let start = json!({ "type": "content_block_start", "index": 0, "content_block": block });
                let head = [
                    named(&json!({ "type": "message_start", "message": message })),
                    named(&start),
                    named(&json!({ "type": "ping" })),
                ];
                let words = words.map(|word| {
                    let delta = json!({ "type": "text_delta", "text": word });
                    named(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
                });
                head.into_iter().chain(words).collect()
            }
        }
    }

    /// The events of a whole answer.
    fn whole(self, text: &str, calls: &[Call]) -> Vec<Vec<u8>> {
        let mut events = self.beginning(text);
        match self {
            Self::OpenAi => {
                for (index, call) in calls.iter().enumerate() {
                    let function = json!({ "name": call.name, "arguments": "" });
                    let start = json!({ "index": index, "id": call.id, "type": "function", "function": function });
                    events.push(delta(&json!({ "tool_calls": [start] }), None));
                    for piece in in_pieces(&call.arguments) {
                        let piece = json!({ "index": index, "function": { "arguments": piece } });
                        events.push(delta(&json!({ "tool_calls": [piece] }), None));
                    }
                }
                let usage = json!({
                    "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fake-1", "choices": [],
                    "usage": { "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 },
                });
                let why = if calls.is_empty() { "stop" } else { "tool_calls" };
                events.push(delta(&json!({}), Some(why)));
                events.push(format!("data: {usage}\n\n").into_bytes());
                events.push(b"data: [DONE]\n\n".to_vec());
            }
            Self::Anthropic => {
                events.push(named(&json!({ "type": "content_block_stop", "index": 0 })));
                for (index, call) in (1..).zip(calls) {
                    let block = json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} });
                    events
                        .push(named(&json!({ "type": "content_block_start", "index": index, "content_block": block })));
                    for piece in in_pieces(&call.arguments) {
                        let delta = json!({ "type": "input_json_delta", "partial_json": piece });
                        events.push(named(&json!({ "type": "content_block_delta", "index": index, "delta": delta })));
                    }
                    events.push(named(&json!({ "type": "content_block_stop", "index": index })));
                }
                let why = if calls.is_empty() { "end_turn" } else { "tool_use" };
                let delta = json!({ "stop_reason": why, "stop_sequence": null });
                let usage = json!({ "output_tokens": 7 });
                events.push(named(&json!({ "type": "message_delta", "delta": delta, "usage": usage })));
                events.push(named(&json!({ "type": "message_stop" })));
            }
        }
        events
    }
}

fn messages_of(body: &Value) -> &[Value] {
    body["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The name of the tool that a call was for.
fn tool_of<'a>(body: &'a Value, id: &Value) -> &'a str {
    let made = messages_of(body).iter().rev().flat_map(|message| {
        let blocks = message["content"].as_array().into_iter().flatten();
        message["tool_calls"].as_array().into_iter().flatten().chain(blocks)
    });
    let name = |call: &'a Value| call["function"]["name"].as_str().or(call["name"].as_str());
    made.filter(|call| call["id"] == *id).find_map(name).unwrap_or("?")
}

/// What a request ends with: the texts of its last message, or the results of its last round of tools.
fn last_told(body: &Value) -> String {
    let messages = messages_of(body);
    let result =
        |id: &Value, content: &Value| format!("tool `{}`: {}", tool_of(body, id), content.as_str().unwrap_or_default());
    let after = messages.iter().rposition(|message| message["role"] == "assistant").map_or(0, |at| at + 1);
    let mut lines = Vec::new();
    for message in messages[after..].iter().filter(|message| message["role"] != "system") {
        match &message["content"] {
            content if message["role"] == "tool" => lines.push(result(&message["tool_call_id"], content)),
            Value::String(text) => lines.push(text.clone()),
            Value::Array(blocks) => {
                for block in blocks {
                    lines.push(match block["text"].as_str() {
                        Some(text) => text.to_owned(),
                        None => result(&block["tool_use_id"], &block["content"]),
                    });
                }
            }
            _ => {}
        }
    }
    lines.join("\n")
}

fn only_known_keys(body: &Value, known: &[&str]) -> Result<(), String> {
    let object = body.as_object().ok_or("the body is no JSON object")?;
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("unknown key: {key}"));
    }
    if body["model"].as_str().is_none_or(|model| model.trim().is_empty()) {
        return Err("model is missing".to_owned());
    }
    Ok(())
}

fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn is_plain_name(name: &Value) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.as_str().is_some_and(|name| (1..=64).contains(&name.len()) && name.chars().all(fits))
}

/// A tool's name, description and schema, wherever they stand.
fn check_tool(name: &Value, description: &Value, schema: &Value) -> Result<(), String> {
    if is_plain_name(name) && description.is_string() && schema["type"] == "object" {
        return Ok(());
    }
    Err(format!("an unusable tool: {name}, {description}, {schema}"))
}

/// What a strict server of chat completions insists on. Unknown keys are refused too.
fn check(body: &Value) -> Result<(), String> {
    only_known_keys(body, &["model", "messages", "stream", "stream_options", "tools", "tool_choice", "max_tokens"])?;
    if body["stream"] != json!(true) || body["stream_options"] != json!({ "include_usage": true }) {
        return Err("a stream with usage was expected".to_owned());
    }
    if let Some(tools) = body.get("tools") {
        let tools =
            tools.as_array().filter(|tools| !tools.is_empty()).ok_or("tools must be a list with something in it")?;
        for tool in tools {
            let function = &tool["function"];
            check_tool(&function["name"], &function["description"], &function["parameters"])?;
        }
    }
    let messages = body["messages"].as_array().ok_or("messages is missing")?;
    let mut expected = ["system", "user"].as_slice();
    let mut unanswered: Vec<Value> = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if !expected.contains(&role) {
            return Err(format!("role {role:?} where one of {expected:?} belongs"));
        }
        let calls = message.get("tool_calls").map(|calls| calls.as_array().cloned().unwrap_or_default());
        if calls.as_ref().is_some_and(|calls| calls.is_empty() || role != "assistant") {
            return Err(format!("tool_calls without calls, or of a {role} message"));
        }
        if !has_text(&message["content"]) && calls.is_none() {
            return Err(format!("a {role} message without content"));
        }
        if role == "tool" {
            let Some(at) = unanswered.iter().position(|id| *id == message["tool_call_id"]) else {
                return Err(format!("a tool message without its call: {}", message["tool_call_id"]));
            };
            unanswered.remove(at);
        }
        for call in calls.iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().map(serde_json::from_str::<Value>);
            let is_object = matches!(arguments, Some(Ok(Value::Object(_))));
            if call["type"] != "function"
                || !has_text(&call["id"])
                || !is_plain_name(&call["function"]["name"])
                || !is_object
            {
                return Err(format!("an unusable call: {call}"));
            }
            unanswered.push(call["id"].clone());
        }
        expected = match role {
            "user" => &["assistant"],
            "assistant" if calls.is_some() => &["tool"],
            "tool" if !unanswered.is_empty() => &["tool"],
            "tool" => &["assistant", "user"],
            _ => &["user"],
        };
    }
    if !expected.contains(&"assistant") {
        return Err("the last message must be the user's, or a tool's".to_owned());
    }
    Ok(())
}

/// What a strict server of Messages insists on. Unknown keys are refused too.
fn check_messages(body: &Value) -> Result<(), String> {
    only_known_keys(body, &["model", "messages", "stream", "system", "tools", "tool_choice", "max_tokens"])?;
    if body["stream"] != json!(true) {
        return Err("a stream was expected".to_owned());
    }
    if body["max_tokens"].as_u64().is_none_or(|limit| limit == 0) {
        return Err("max_tokens: Field required".to_owned());
    }
    if body.get("system").is_some_and(|system| !has_text(system)) {
        return Err("system: text content must not be blank".to_owned());
    }
    for tool in body.get("tools").map(|tools| tools.as_array().cloned().unwrap_or_default()).iter().flatten() {
        check_tool(&tool["name"], &tool["description"], &tool["input_schema"])?;
    }
    let messages = body["messages"].as_array().ok_or("messages: Field required")?;
    let mut expected = "user";
    let mut ids: Vec<String> = Vec::new();
    let mut unanswered: Vec<Value> = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role != expected {
            return Err(format!("role {role:?} where {expected:?} belongs"));
        }
        let blocks = match &message["content"] {
            Value::Array(blocks) => blocks.clone(),
            text => vec![json!({ "type": "text", "text": text })],
        };
        if blocks.is_empty() {
            return Err(format!("a {role} message without content"));
        }
        let mut texts_began = false;
        for block in &blocks {
            match (role, block["type"].as_str().unwrap_or_default()) {
                (_, "text") if has_text(&block["text"]) => texts_began = true,
                ("assistant", "tool_use") => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    let is_usable = is_plain_name(&block["id"]) && is_plain_name(&block["name"]);
                    if !is_usable || !block["input"].is_object() || ids.contains(&id) {
                        return Err(format!("an unusable tool_use: {block}"));
                    }
                    ids.push(id);
                    unanswered.push(block["id"].clone());
                }
                ("user", "tool_result") => {
                    let at = unanswered.iter().position(|id| *id == block["tool_use_id"]);
                    let at = at.ok_or_else(|| format!("a tool_result without its tool_use: {block}"))?;
                    if texts_began || block.get("content").is_some_and(|content| !has_text(content)) {
                        return Err(format!("a tool_result after a text, or empty: {block}"));
                    }
                    unanswered.remove(at);
                }
                _ => return Err(format!("an unusable block of a {role} message: {block}")),
            }
        }
        if role == "user" && !unanswered.is_empty() {
            return Err(format!("tool_use without tool_result right after it: {unanswered:?}"));
        }
        expected = if role == "user" { "assistant" } else { "user" };
    }
    if expected != "assistant" {
        return Err("the last message must be the user's".to_owned());
    }
    Ok(())
}
