//! A model server on loopback that speaks chat completions over plain HTTP, as strictly as the strictest real one, and
//! answers by script. What it was asked is kept in order. Works for agents in this process and in others.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
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
}

/// What is done with one request.
#[derive(Debug, Clone)]
enum Line {
    Says { text: String, pause: Duration },
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

    /// The last user message of every request so far.
    pub(crate) fn was_told(&self) -> Vec<String> {
        self.requests().iter().map(|asked| last_user_text(&asked.body).to_owned()).collect()
    }

    /// The last user message of the last request.
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
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    shared.asked.lock().unwrap().push(Asked { body: body.clone(), authorization });
    let active = Active::new(&shared);
    let refuse = |status: StatusCode, problem: String| {
        let error = json!({ "error": { "message": problem, "type": "invalid_request_error" } });
        shared.problems.lock().unwrap().push(problem);
        (status, axum::Json(error)).into_response()
    };
    if uri.path() != "/v1/chat/completions" {
        return refuse(StatusCode::NOT_FOUND, format!("no such path: {}", uri.path()));
    }
    if let Err(problem) = check(&body) {
        return refuse(StatusCode::BAD_REQUEST, problem);
    }
    let line = shared.script.lock().unwrap().pop_front();
    let line = match line {
        Some(line) => line,
        None if shared.echoes => Line::Repeats { before: "echo: ".to_owned() },
        None => return refuse(StatusCode::BAD_REQUEST, format!("no line left for: {}", last_user_text(&body))),
    };
    play(line, last_user_text(&body), active).await
}

async fn play(line: Line, question: &str, active: Active) -> Response {
    let at_once = Duration::ZERO;
    match line {
        Line::Says { text, pause } => streamed(EVENTS, whole(&text), pause, Ending::Clean, active),
        Line::Holds { text } => {
            active.0.released.acquire().await.expect("never closed").forget();
            streamed(EVENTS, whole(&text), at_once, Ending::Clean, active)
        }
        Line::BreaksMidway { text } => streamed(EVENTS, beginning(&text), at_once, Ending::Broken, active),
        Line::EndsMidway { text } => streamed(EVENTS, beginning(&text), at_once, Ending::Clean, active),
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

/// The events of an answer that never ends: the role, then the text word by word.
fn beginning(text: &str) -> Vec<Vec<u8>> {
    let role = delta(&json!({ "role": "assistant", "content": "" }), None);
    let words = text.split_inclusive(' ').map(|word| delta(&json!({ "content": word }), None));
    std::iter::once(role).chain(words).collect()
}

/// The events of a whole answer.
fn whole(text: &str) -> Vec<Vec<u8>> {
    let usage = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fake-1", "choices": [],
        "usage": { "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 },
    });
    let end =
        [delta(&json!({}), Some("stop")), format!("data: {usage}\n\n").into_bytes(), b"data: [DONE]\n\n".to_vec()];
    beginning(text).into_iter().chain(end).collect()
}

fn last_user_text(body: &Value) -> &str {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    last.and_then(|message| message["content"].as_str()).unwrap_or_default()
}

/// What a strict server insists on. Unknown keys are refused too.
fn check(body: &Value) -> Result<(), String> {
    let object = body.as_object().ok_or("the body is no JSON object")?;
    let known = ["model", "messages", "stream", "stream_options", "tools", "tool_choice", "max_tokens"];
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("unknown key: {key}"));
    }
    if body["model"].as_str().is_none_or(|model| model.trim().is_empty()) {
        return Err("model is missing".to_owned());
    }
    if body["stream"] != json!(true) || body["stream_options"] != json!({ "include_usage": true }) {
        return Err("a stream with usage was expected".to_owned());
    }
    let messages = body["messages"].as_array().ok_or("messages is missing")?;
    let mut expected = ["system", "user"].as_slice();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if !expected.contains(&role) {
            return Err(format!("role {role:?} where one of {expected:?} belongs"));
        }
        if message["content"].as_str().is_none_or(|content| content.trim().is_empty()) {
            return Err(format!("a {role} message without content"));
        }
        expected = if role == "user" { &["assistant"] } else { &["user"] };
    }
    if expected != ["assistant"] {
        return Err("the last message must be the user's".to_owned());
    }
    Ok(())
}
