//! Turns of the agent against a model server on loopback.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hookgate::agent::model::{Anthropic, Message, Model, ModelReply, ModelRequest, OpenAi, ToolResult, ToolSpec};
use hookgate::agent::{Agent, Attempts, Means, TurnOutcome, TurnRequest};
use hookgate::config;
use hookgate::session::{Remembered, Role, TurnStatus};
use hookgate_adapters::Proxies;
use hookgate_hooks::{Directive, Event, Hook, HookError, Registry};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::fake_model::FakeModel;
use crate::support::world::{MODEL_KEY, World, run_test};

const KEY: &str = "sk-fake-4711";

fn config(base_url: &str) -> config::Model {
    config::Model {
        provider: config::Provider::OpenAi,
        name: "fake-1".to_owned(),
        base_url: base_url.to_owned(),
        api_key: Some(SecretString::from(KEY)),
        timeout: Duration::from_secs(3),
        ..config::Model::default()
    }
}

/// The same fake in its other dialect.
fn anthropic(model: &FakeModel) -> config::Model {
    config::Model { provider: config::Provider::Anthropic, ..config(model.base_url().trim_end_matches("/v1")) }
}

fn agent_of(model: &config::Model, hooks: Arc<Registry>) -> Agent {
    let quick = Attempts { base: Duration::from_millis(2), ..Attempts::default() };
    Agent::from_config(model, hooks).expect("usable settings").with_attempts(quick)
}

fn agent(model: &FakeModel) -> Agent {
    agent_of(&config(&model.base_url()), Arc::default())
}

fn turn(text: &str) -> TurnRequest {
    TurnRequest {
        session_id: "s-1".to_owned(),
        session_key: "agent:main:telegram:dm:42".to_owned(),
        turn_id: "t-1".to_owned(),
        platform: "telegram".to_owned(),
        sender_id: Some("42".to_owned()),
        history: Vec::new(),
        text: text.to_owned(),
        plain_text: text.to_owned(),
        is_first_turn: true,
    }
}

fn remembered(role: Role, text: &str) -> Remembered {
    Remembered { role, text: text.to_owned(), status: TurnStatus::Completed, at: 0 }
}

async fn run(agent: &Agent, request: TurnRequest) -> TurnOutcome {
    agent.run_turn(request, &Means::none(), &|_| {}, &CancellationToken::new()).await
}

/// Asks and keeps what was shown on the way.
async fn ask(agent: &Agent, text: &str) -> (TurnOutcome, Vec<String>) {
    let shown = Mutex::new(Vec::new());
    let partial = |so_far: &str| shown.lock().unwrap().push(so_far.to_owned());
    let outcome = agent.run_turn(turn(text), &Means::none(), &partial, &CancellationToken::new()).await;
    (outcome, shown.into_inner().unwrap())
}

fn answer(text: &str) -> TurnOutcome {
    TurnOutcome::Answer(text.to_owned())
}

/// The sentence for the user and the cause for the log of a turn that must have failed.
#[track_caller]
fn failure(outcome: TurnOutcome) -> (String, String) {
    match outcome {
        TurnOutcome::Failed { for_user, cause } => {
            assert!(!for_user.contains(KEY) && !cause.contains(KEY), "{for_user} / {cause}");
            (for_user, cause)
        }
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// Nothing scripted is left over and the model had nothing to complain about.
#[track_caller]
fn all_said(model: &FakeModel) {
    assert_eq!(model.unused(), [""; 0]);
    assert_eq!(model.problems(), [""; 0]);
}

fn chunk(content: &str) -> String {
    json!({ "choices": [{ "index": 0, "delta": { "content": content } }] }).to_string()
}

#[tokio::test]
async fn an_answer_is_shown_as_it_grows() {
    let model = FakeModel::start().await;
    model.says("Hello my friend.");
    let (outcome, shown) = ask(&agent(&model), "hi").await;
    assert_eq!(outcome, answer("Hello my friend."));
    assert_eq!(shown, ["Hello ", "Hello my ", "Hello my friend."]);
    let asked = &model.requests()[0];
    assert_eq!(asked.authorization.as_deref(), Some("Bearer sk-fake-4711"));
    assert_eq!(asked.body["model"], "fake-1");
    assert_eq!(asked.body["messages"][0]["role"], "system");
    assert_eq!(asked.body["messages"][1], json!({ "role": "user", "content": "hi" }));
    all_said(&model);
}

#[tokio::test]
async fn a_proxy_is_asked_for_what_only_it_reaches() {
    // Plain HTTP goes through a proxy with whole addresses, which the fake serves as its own.
    let model = FakeModel::echo().await;
    let base_url = model.base_url();
    let origin = base_url.trim_end_matches("/v1");
    let proxies = Proxies { http: Some(SecretString::from(origin)), ..Proxies::default() };
    let behind = config::Model { proxies, ..config(&base_url.replace(origin, "http://model.invalid")) };
    assert_eq!(ask(&agent_of(&behind, Arc::default()), "hi").await.0, answer("echo: hi"));
    all_said(&model);
}

#[tokio::test]
async fn without_a_key_none_is_sent_and_the_full_address_works_too() {
    let model = FakeModel::echo().await;
    let keyless = config::Model { api_key: None, ..config(&format!("{}/chat/completions/", model.base_url())) };
    assert_eq!(ask(&agent_of(&keyless, Arc::default()), "hi").await.0, answer("echo: hi"));
    assert_eq!(model.requests()[0].authorization, None);
    all_said(&model);
}

#[tokio::test]
async fn the_system_prompt_can_be_replaced_or_left_out() {
    let model = FakeModel::echo().await;
    for (prompt, sent) in [("Speak like a pirate.", json!("Speak like a pirate.")), ("", Value::Null)] {
        let config = config::Model { system_prompt: Some(prompt.to_owned()), ..config(&model.base_url()) };
        ask(&agent_of(&config, Arc::default()), "hi").await;
        let asked = model.requests().pop().unwrap();
        let system = asked.body["messages"].as_array().unwrap().iter().find(|message| message["role"] == "system");
        assert_eq!(system.map_or(Value::Null, |message| message["content"].clone()), sent);
    }
    all_said(&model);
}

#[tokio::test]
async fn unanswered_questions_of_the_past_do_not_break_the_alternation() {
    let model = FakeModel::echo().await;
    let mut request = turn("and now?");
    request.history = vec![
        remembered(Role::User, "one"),
        remembered(Role::Assistant, "1"),
        remembered(Role::User, "two"),
        remembered(Role::User, "three"),
    ];
    assert_eq!(run(&agent(&model), request).await, answer("echo: two\n\nthree\n\nand now?"));
    assert_eq!(model.was_told_last(), "two\n\nthree\n\nand now?");
    all_said(&model);
}

#[tokio::test]
async fn the_echo_model_needs_nothing_and_answers_without_the_fence() {
    let config = config::Model { provider: config::Provider::Echo, ..config("") };
    let mut request = turn("<data>grüße 👋🏽</data>");
    request.plain_text = "grüße 👋🏽".to_owned();
    let shown = Mutex::new(Vec::new());
    let partial = |so_far: &str| shown.lock().unwrap().push(so_far.to_owned());
    let outcome =
        agent_of(&config, Arc::default()).run_turn(request, &Means::none(), &partial, &CancellationToken::new()).await;
    assert_eq!(outcome, answer("grüße 👋🏽"));
    let shown = shown.into_inner().unwrap();
    assert!((2..=4).contains(&shown.len()), "{shown:?}");
    assert_eq!(shown.last().unwrap(), "grüße 👋🏽");
}

#[tokio::test]
async fn a_broken_stream_is_asked_again_from_the_start() {
    let model = FakeModel::start().await;
    model.breaks_midway("The first ").ends_midway("The second ").says("The third.");
    let (outcome, shown) = ask(&agent(&model), "hi").await;
    assert_eq!(outcome, answer("The third."));
    assert_eq!(shown, ["The ", "The first ", "The ", "The second ", "The ", "The third."]);
    assert_eq!(model.was_told(), ["hi"; 3]);
    all_said(&model);
}

#[tokio::test]
async fn a_model_in_trouble_is_asked_four_times_and_then_given_up() {
    let model = FakeModel::start().await;
    model.fails(500, &[], "").fails(502, &[], "<html>bad gateway</html>").fails(409, &[], "{}").fails(503, &[], "down");
    let (for_user, cause) = failure(ask(&agent(&model), "hi").await.0);
    assert_eq!(for_user, "The model's server has trouble of its own; try again in a minute.");
    assert_eq!(cause, "the model's server answered 503: down");
    all_said(&model);
}

#[tokio::test]
async fn garbage_is_asked_again_and_never_becomes_an_answer() {
    let model = FakeModel::start().await;
    model.garbage().sends("application/json", &[b"{\"choices\""]).sends("application/json", &[b"{\"hello\": 1}"]);
    model.sends("text/plain", &[b"busy, ", b"come back later"]);
    let (for_user, cause) = failure(ask(&agent(&model), "hi").await.0);
    assert_eq!(for_user, "The model's answer broke off or could not be read; try again in a minute.");
    assert!(cause.ends_with("it began with: busy,"), "{cause}");
    all_said(&model);
}

#[tokio::test]
async fn retry_after_is_kept_exactly() {
    let model = FakeModel::start().await;
    model.fails(429, &[("retry-after", "1")], "{}").says("Now.");
    let asked = Instant::now();
    assert_eq!(ask(&agent(&model), "hi").await.0, answer("Now."));
    assert!((1000..4000).contains(&asked.elapsed().as_millis()), "{:?}", asked.elapsed());

    model.fails(503, &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], "").says("The date has passed.");
    assert_eq!(ask(&agent(&model), "hi").await.0, answer("The date has passed."));
    all_said(&model);
}

#[tokio::test]
async fn a_wait_beyond_a_minute_is_told_to_the_user() {
    let model = FakeModel::start().await;
    model.fails(429, &[("retry-after", "240")], "{}");
    let (for_user, _) = failure(ask(&agent(&model), "hi").await.0);
    assert_eq!(for_user, "The model is busy (rate limit); try again in 4 minutes.");
    all_said(&model);
}

#[tokio::test]
async fn what_cannot_get_better_is_not_tried_again() {
    let model = FakeModel::start().await;
    let too_long = r#"{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
    let quota = r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#;
    for (status, headers, body, sentence) in [
        (
            400,
            [].as_slice(),
            too_long,
            "This conversation is too long for the model; start a new one with /new, or send a shorter message.",
        ),
        (
            401,
            &[],
            "{\"error\":{\"message\":\"Incorrect API key provided: sk-fake-4711\"}}",
            "The model's provider refused the key; \
             check model.api_key (or OPENAI_API_KEY) in the gateway's configuration.",
        ),
        (
            404,
            &[],
            "<!doctype html><p>nothing here</p>",
            "The model \"fake-1\" was not found at the configured address; \
             check model.default and model.base_url in the gateway's configuration.",
        ),
        (
            429,
            &[],
            quota,
            "The account at the model's provider has no credit left; top it up or raise its limit, then try again.",
        ),
        (422, &[], "no", "The model's server did not accept the request; its reason is in the gateway's log."),
        (
            307,
            &[("location", "http://127.0.0.1:1/v1/chat/completions")],
            "",
            "The model's address redirects to another one; \
             set model.base_url in the gateway's configuration to the final address.",
        ),
        (
            200,
            &[("content-type", "text/html")],
            "\n<html>Welcome</html>",
            "What answers at the model's address is a web page and no model; \
             check model.base_url in the gateway's configuration.",
        ),
    ] {
        model.fails(status, headers, body);
        let (for_user, cause) = failure(ask(&agent(&model), "hi").await.0);
        assert_eq!(for_user, sentence, "{cause}");
    }
    assert_eq!(model.requests().len(), 7);
    all_said(&model);
}

#[tokio::test]
async fn a_long_refusal_is_cut_in_the_log() {
    let model = FakeModel::start().await;
    model.fails(400, &[], &"long and\n".repeat(20_000));
    let (_, cause) = failure(ask(&agent(&model), "hi").await.0);
    assert!(cause.chars().count() <= 501 && !cause.contains('\n'), "{cause}");
    all_said(&model);
}

#[tokio::test]
async fn an_empty_answer_is_a_failure_that_says_so() {
    let model = FakeModel::start().await;
    let ended = |why: &str| format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [{"finish_reason": why}]}));
    for (why, sentence) in [
        ("stop", "The model gave an empty answer; try again, or ask in other words."),
        ("length", "The model reached its length limit before it said anything; ask for less, or raise its limit."),
        ("content_filter", "The provider's content filter held the answer back; ask in other words."),
    ] {
        model.sends("text/event-stream", &[ended(why).as_bytes()]);
        assert_eq!(failure(ask(&agent(&model), "hi").await.0).0, sentence);
    }
    for invisible in ["\u{200b}", "\u{0}", " \n\u{feff}"] {
        model.says(invisible);
        assert!(failure(ask(&agent(&model), "hi").await.0).0.starts_with("The model gave an empty answer"));
    }
    all_said(&model);
}

#[tokio::test]
async fn servers_that_bend_the_format_are_understood() {
    let model = FakeModel::start().await;
    let plain = json!({"choices": [{"message": {"role": "assistant", "content": "grün"}, "finish_reason": "stop"}]});
    let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string();
    let whole = |text: &str| format!("data: {}\n\n", chunk(text));
    let split = whole("grün").into_bytes();
    let middle = split.iter().position(|byte| *byte == 0xc3).unwrap() + 1;

    // One object in place of a stream, also when it says it is one.
    model.sends("application/json", &[plain.to_string().as_bytes()]);
    model.sends("text/event-stream", &[b"\n", plain.to_string().as_bytes()]);
    // No space, no [DONE], no blank line at the end.
    model.sends("text/event-stream", &[format!("data:{}\n\ndata:{stop}", chunk("grün")).as_bytes()]);
    // No finish_reason.
    model.sends("text/plain", &[format!("{}data:[DONE]\n", whole("grün")).as_bytes()]);
    // Signs of life, null content, thoughts, other events, and lines that end as in HTTP.
    let lively = [
        ": still thinking",
        "",
        "event: ping",
        "data: {}",
        "",
        r#"data: {"choices":[{"delta":{"role":"assistant","content":null,"reasoning_content":"hm"}}]}"#,
        "",
        &format!("data: {}", chunk("grün")),
        "",
        &format!("data: {stop}"),
        "",
        "",
    ];
    model.sends("text/event-stream", &[lively.join("\r\n").as_bytes()]);
    // A piece of the body that ends within a letter.
    model.sends("text/event-stream", &[&split[..middle], &split[middle..], b"data: [DONE]\n\n"]);
    // Every byte on its own.
    let bytes = format!(": hi\r\ndata: {}\r\n\r\ndata: [DONE]\r\n\r\n", chunk("grün")).into_bytes();
    model.sends("text/event-stream", &bytes.chunks(1).collect::<Vec<_>>());
    // An error after the end of the answer.
    model.sends("text/event-stream", &[format!("{}data: {stop}\n\n", whole("grün")).as_bytes(), b"\xff\xff"]);

    for _ in 0..8 {
        assert_eq!(ask(&agent(&model), "hi").await, (answer("grün"), vec!["grün".to_owned()]));
    }
    assert_eq!(model.requests().len(), 8);
    all_said(&model);
}

#[tokio::test]
async fn an_error_inside_the_stream_counts_as_one() {
    let model = FakeModel::start().await;
    let error = br#"data: {"error":{"code":429,"message":"slow down"}}"#;
    model.sends("text/event-stream", &[format!("data: {}\n\n", chunk("Well")).as_bytes(), error, b"\n\n"]);
    model.sends("application/json", &[br#"{"error":{"message":"overloaded"}}"#]);
    model.says("Well then.");
    let (outcome, shown) = ask(&agent(&model), "hi").await;
    assert_eq!(outcome, answer("Well then."));
    assert_eq!(shown, ["Well", "Well ", "Well then."]);
    all_said(&model);
}

#[tokio::test]
async fn an_endless_answer_is_dropped() {
    let model = FakeModel::start().await;
    let half = format!("data: {}\n\n", chunk(&"x".repeat(600 << 10)));
    model.sends("text/event-stream", &[half.as_bytes(), half.as_bytes(), half.as_bytes()]);
    let (for_user, _) = failure(ask(&agent(&model), "hi").await.0);
    assert_eq!(for_user, "The model's answer grew too long and was dropped; ask for something shorter.");

    let line = vec![b'x'; 1 << 20];
    model.sends("text/event-stream", &[b"data: ", &line, &line, &line, &line, &line]);
    let (_, cause) = failure(ask(&agent(&model), "hi").await.0);
    assert!(cause.starts_with("the model's stream is too large"), "{cause}");
    all_said(&model);
}

#[tokio::test]
async fn a_silent_model_is_given_up_and_a_slow_one_is_not() {
    let model = FakeModel::start().await;
    let config = config::Model { timeout: Duration::from_millis(300), ..config(&model.base_url()) };
    let agent = agent_of(&config, Arc::default());
    model.hangs().hangs().hangs().hangs();
    let (for_user, cause) = failure(ask(&agent, "hi").await.0);
    assert_eq!(for_user, "The model was silent for 1 s; try again, or raise model.timeout if it is a slow one.");
    assert_eq!(cause, "no byte from the model's server for 0.3 s");

    model.says_slowly("a b c d", Duration::from_millis(100));
    assert_eq!(ask(&agent, "hi").await.0, answer("a b c d"));
    all_said(&model);
}

#[tokio::test]
async fn a_server_that_does_not_run_cannot_be_reached() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let agent = agent_of(&config(&format!("http://{free}/v1?secret=abc")), Arc::default());
    let (for_user, cause) = failure(ask(&agent, "hi").await.0);
    assert!(for_user.starts_with("The model's server cannot be reached; try again in a minute."), "{for_user}");
    assert!(cause.contains("refused") && !cause.contains("abc"), "{cause}");
}

#[tokio::test]
async fn stop_ends_a_turn_at_once_wherever_it_is() {
    let model = FakeModel::start().await;
    model.hangs();
    model.says_slowly("a b c d e f g h", Duration::from_millis(200));
    model.fails(429, &[("retry-after", "30")], "");
    for count in 1..=3 {
        let agent = agent(&model);
        let stop = CancellationToken::new();
        let means = Means::none();
        let running = agent.run_turn(turn("hi"), &means, &|_| {}, &stop);
        let stopping = async {
            model.is_asked(count).await;
            if count == 3 {
                model.is_idle().await; // so that the turn is waiting for its next attempt
            }
            stop.cancel();
        };
        let asked = Instant::now();
        let (outcome, ()) = tokio::join!(running, stopping);
        assert_eq!(outcome, TurnOutcome::Interrupted);
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        model.is_idle().await;
    }
    let stopped = CancellationToken::new();
    stopped.cancel();
    assert_eq!(agent(&model).run_turn(turn("hi"), &Means::none(), &|_| {}, &stopped).await, TurnOutcome::Interrupted);
    assert_eq!(model.requests().len(), 3);
    all_said(&model);
}

#[tokio::test]
async fn turns_run_side_by_side() {
    let model = FakeModel::start().await;
    model.holds("one").holds("two");
    let agent = agent(&model);
    let both = async { tokio::join!(ask(&agent, "a"), ask(&agent, "b")) };
    let releasing = async {
        model.is_asked(2).await;
        model.release();
        model.release();
    };
    let ((first, second), ()) = tokio::join!(both, releasing);
    let mut answers = [first.0, second.0];
    answers.sort_by_key(|outcome| format!("{outcome:?}"));
    assert_eq!(answers, [answer("one"), answer("two")]);
    assert_eq!(model.active_max(), 2);
    all_said(&model);
}

#[tokio::test]
async fn a_blank_question_is_not_sent() {
    let model = FakeModel::start().await;
    let (for_user, _) = failure(ask(&agent(&model), " \n").await.0);
    assert_eq!(for_user, "There is no text in your message that the model could read; write it in words.");
    assert_eq!(model.requests().len(), 0);
}

/// Keeps what it is told and answers what it was given to answer.
struct Recorder {
    subscriptions: Vec<String>,
    answers: Vec<(&'static str, Directive)>,
    told: Mutex<Vec<(String, Value)>>,
    news: tokio::sync::Notify,
}

impl Recorder {
    fn new(answers: Vec<(&'static str, Directive)>) -> Arc<Self> {
        let events = "on_session_start pre_llm_call agent:step pre_api_request post_api_request api_request_error \
                      transform_llm_output post_llm_call on_session_end";
        let subscriptions = events.split_whitespace().map(str::to_owned).collect();
        Arc::new(Self { subscriptions, answers, told: Mutex::default(), news: tokio::sync::Notify::new() })
    }

    fn keep(&self, event: &Event, payload: &Value) {
        self.told.lock().unwrap().push((event.to_string(), payload.clone()));
        self.news.notify_one();
    }

    /// Waits for the end of the turn, then gives all that was told, in order.
    async fn all(&self) -> Vec<(String, Value)> {
        loop {
            {
                let told = self.told.lock().unwrap();
                if told.iter().any(|(event, _)| event == "on_session_end") {
                    return told.clone();
                }
            }
            self.news.notified().await;
        }
    }

    async fn events(&self) -> Vec<String> {
        self.all().await.into_iter().map(|(event, _)| event).collect()
    }
}

/// Subscribes a [`Recorder`].
struct Recording(Arc<Recorder>);

#[async_trait]
impl Hook for Recording {
    fn name(&self) -> &str {
        "recorder"
    }

    fn subscriptions(&self) -> &[String] {
        &self.0.subscriptions
    }

    fn decides(&self) -> bool {
        !self.0.answers.is_empty() // else everything comes in one queue, in order
    }

    async fn observe(&self, event: &Event, payload: Arc<Value>) -> Result<(), HookError> {
        self.0.keep(event, &payload);
        Ok(())
    }

    async fn decide(&self, event: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        self.0.keep(event, &payload);
        let answer = self.0.answers.iter().find(|(name, _)| *name == event.to_string());
        Ok(answer.map(|(_, directive)| directive.clone()))
    }
}

fn hooked(model: &FakeModel, answers: Vec<(&'static str, Directive)>) -> (Agent, Arc<Recorder>) {
    let recorder = Recorder::new(answers);
    let hooks = Registry::default();
    hooks.register(Arc::new(Recording(Arc::clone(&recorder))));
    (agent_of(&config(&model.base_url()), Arc::new(hooks)), recorder)
}

fn of<'a>(told: &'a [(String, Value)], event: &str) -> &'a Value {
    &told.iter().find(|(name, _)| name == event).unwrap_or_else(|| panic!("{event} was not told")).1
}

#[tokio::test]
async fn hooks_are_told_of_a_turn_in_order() {
    let model = FakeModel::start().await;
    model.fails(500, &[], "oops").says("Hello.");
    let (agent, hooks) = hooked(&model, vec![]);
    let mut request = turn("hi");
    request.history = vec![remembered(Role::User, "a"), remembered(Role::Assistant, "b")];
    assert_eq!(run(&agent, request).await, answer("Hello."));
    assert_eq!(
        hooks.events().await,
        [
            "on_session_start",
            "pre_llm_call",
            "agent:step",
            "pre_api_request",
            "api_request_error",
            "pre_api_request",
            "post_api_request",
            "transform_llm_output",
            "post_llm_call",
            "on_session_end",
        ]
    );
    let told = hooks.all().await;
    let history = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }]);

    let start = of(&told, "on_session_start");
    assert_eq!(
        (&start["session_id"], &start["model"], &start["platform"]),
        (&json!("s-1"), &json!("fake-1"), &json!("telegram"))
    );
    let pre = of(&told, "pre_llm_call");
    assert_eq!((&pre["user_message"], &pre["conversation_history"]), (&json!("hi"), &history));
    assert_eq!(
        (&pre["sender_id"], &pre["is_first_turn"], &pre["turn_id"]),
        (&json!("42"), &json!(true), &json!("t-1"))
    );
    let step = of(&told, "agent:step");
    assert_eq!((&step["iteration"], &step["tool_names"], &step["tools"]), (&json!(1), &json!([]), &json!([])));
    let api = of(&told, "pre_api_request");
    assert_eq!(api["base_url"], json!(model.base_url()));
    assert_eq!((&api["message_count"], &api["request"]["body"]), (&json!(4), &model.requests()[0].body));
    assert!(!api.to_string().contains(KEY));
    let error = of(&told, "api_request_error");
    assert_eq!(
        (&error["status_code"], &error["retry_count"], &error["max_retries"]),
        (&json!(500), &json!(0), &json!(3))
    );
    assert_eq!((&error["retryable"], &error["reason"]), (&json!(true), &json!("server_error")));
    assert_eq!(error["api_request_id"], api["api_request_id"]);
    let done = of(&told, "post_api_request");
    assert_eq!((&done["finish_reason"], &done["response_model"]), (&json!("stop"), &json!("fake-1")));
    assert_eq!((&done["usage"]["total_tokens"], &done["assistant_content_chars"]), (&json!(12), &json!(6)));
    assert!(done["ended_at"].as_f64() >= done["started_at"].as_f64());
    assert_eq!(of(&told, "transform_llm_output")["response_text"], "Hello.");
    let post = of(&told, "post_llm_call");
    assert_eq!(
        (&post["assistant_response"], &post["conversation_history"][3]["content"]),
        (&json!("Hello."), &json!("Hello."))
    );
    let end = of(&told, "on_session_end");
    assert_eq!((&end["completed"], &end["interrupted"], &end["failed"]), (&json!(true), &json!(false), &json!(false)));
    all_said(&model);
}

#[tokio::test]
async fn a_session_starts_once() {
    let model = FakeModel::echo().await;
    let (agent, hooks) = hooked(&model, vec![]);
    let request = TurnRequest { is_first_turn: false, ..turn("again") };
    run(&agent, request).await;
    assert!(!hooks.events().await.contains(&"on_session_start".to_owned()));
}

#[tokio::test]
async fn every_end_of_a_turn_is_told() {
    let model = FakeModel::start().await;
    model.fails(400, &[], "no");
    let (agent, hooks) = hooked(&model, vec![]);
    failure(run(&agent, turn("hi")).await);
    assert_eq!(of(&hooks.all().await, "on_session_end")["failed"], true);
    assert!(!hooks.events().await.contains(&"post_llm_call".to_owned()));

    model.hangs().hangs();
    let (agent, hooks) = hooked(&model, vec![]);
    let stop = CancellationToken::new();
    let stopping = async {
        model.is_asked(2).await;
        stop.cancel();
    };
    let means = Means::none();
    tokio::join!(agent.run_turn(turn("hi"), &means, &|_| {}, &stop), stopping);
    assert_eq!(of(&hooks.all().await, "on_session_end")["interrupted"], true);

    let (agent, hooks) = hooked(&model, vec![]);
    tokio::select! {
        _ = run(&agent, turn("hi")) => panic!("the model does not answer"),
        () = model.is_asked(3) => {} // and the turn is dropped
    }
    assert_eq!(of(&hooks.all().await, "on_session_end")["interrupted"], true);
    all_said(&model);
}

#[tokio::test]
async fn a_hook_adds_context_to_the_question_and_another_rewrites_the_answer() {
    let model = FakeModel::echo().await;
    let (agent, hooks) = hooked(
        &model,
        vec![
            ("pre_llm_call", Directive::Context("It is raining.".to_owned())),
            ("transform_llm_output", Directive::Replace("HI".to_owned())),
        ],
    );
    assert_eq!(run(&agent, turn("hi")).await, answer("HI"));
    assert_eq!(model.was_told_last(), "hi\n\nIt is raining.");
    let told = hooks.all().await;
    assert_eq!(of(&told, "pre_llm_call")["user_message"], "hi");
    assert_eq!(of(&told, "transform_llm_output")["response_text"], "echo: hi\n\nIt is raining.");
    assert_eq!(of(&told, "post_llm_call")["assistant_response"], "HI");
    all_said(&model);
}

#[tokio::test]
async fn anthropic_is_asked_in_its_own_dialect() {
    let model = FakeModel::start().await;
    model.says("Hello my friend.");
    let mut request = turn("and now?");
    request.history = vec![remembered(Role::User, "hi"), remembered(Role::Assistant, "Hello.")];
    let config = anthropic(&model);
    let shown = Mutex::new(Vec::new());
    let partial = |so_far: &str| shown.lock().unwrap().push(so_far.to_owned());
    let outcome =
        agent_of(&config, Arc::default()).run_turn(request, &Means::none(), &partial, &CancellationToken::new()).await;
    assert_eq!(outcome, answer("Hello my friend."));
    assert_eq!(shown.into_inner().unwrap(), ["Hello ", "Hello my ", "Hello my friend."]);
    let asked = &model.requests()[0];
    assert_eq!((asked.api_key.as_deref(), asked.authorization.as_deref()), (Some(KEY), None));
    assert_eq!(asked.body["model"], "fake-1");
    assert_eq!(asked.body["max_tokens"], 8192);
    assert!(asked.body["system"].as_str().unwrap().starts_with("You are an assistant"));
    assert_eq!(model.was_told_last(), "and now?");
    all_said(&model);
}

#[tokio::test]
async fn anthropic_in_trouble_is_asked_again_as_any_other() {
    let model = FakeModel::start().await;
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let inside = format!("event: error\ndata: {overloaded}\n\n");
    model.fails(529, &[("retry-after", "0")], overloaded).sends("text/event-stream", &[inside.as_bytes()]);
    model.breaks_midway("The first ").says("At last.");
    let agent = agent_of(&anthropic(&model), Arc::default());
    assert_eq!(ask(&agent, "hi").await.0, answer("At last."));

    for (status, kind, sentence) in [
        (
            401,
            "authentication_error",
            "The model's provider refused the key; \
             check model.api_key (or ANTHROPIC_API_KEY) in the gateway's configuration.",
        ),
        (
            404,
            "not_found_error",
            "The model \"fake-1\" was not found at the configured address; \
             check model.default and model.base_url in the gateway's configuration.",
        ),
        (
            413,
            "request_too_large",
            "This conversation is too long for the model; start a new one with /new, or send a shorter message.",
        ),
    ] {
        model.fails(status, &[], &json!({ "type": "error", "error": { "type": kind, "message": KEY } }).to_string());
        assert_eq!(failure(ask(&agent, "hi").await.0).0, sentence);
    }
    model.fails(429, &[("retry-after", "240")], r#"{"type":"error","error":{"type":"rate_limit_error"}}"#);
    let (for_user, _) = failure(ask(&agent, "hi").await.0);
    assert_eq!(for_user, "The model is busy (rate limit); try again in 4 minutes.");
    let refusal = r#"data: {"type":"message_delta","delta":{"stop_reason":"refusal"}}"#;
    model.sends("text/event-stream", &[refusal.as_bytes(), b"\n\ndata: {\"type\":\"message_stop\"}\n\n"]);
    let (for_user, _) = failure(ask(&agent, "hi").await.0);
    assert_eq!(for_user, "The provider's content filter held the answer back; ask in other words.");
    all_said(&model);
}

/// Both dialects of one fake.
fn both(model: &FakeModel) -> [Box<dyn Model>; 2] {
    [Box::new(OpenAi::new(&config(&model.base_url())).unwrap()), Box::new(Anthropic::new(&anthropic(model)).unwrap())]
}

fn tools() -> Arc<[ToolSpec]> {
    let parameters = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let (name, description) = ("read_file".to_owned(), "Reads a file.".to_owned());
    [ToolSpec { name, description, parameters }].into()
}

/// Runs the tools of a reply as a loop would, with results that name the arguments.
fn continued(request: &ModelRequest, reply: &ModelReply) -> ModelRequest {
    let mut messages = request.messages.clone();
    messages.push(Message::Assistant { text: reply.text.clone(), calls: reply.tool_calls.clone() });
    let result = |call: &hookgate::agent::model::RequestedCall| ToolResult {
        tool_call_id: call.id.clone(),
        name: call.name.clone(),
        content: match call.parsed() {
            Ok(arguments) => json!({ "content": arguments }).to_string(),
            Err(error) => json!({ "error": error }).to_string(),
        },
    };
    messages.push(Message::ToolResults(reply.tool_calls.iter().map(result).collect()));
    ModelRequest { messages, ..request.clone() }
}

#[tokio::test]
async fn tools_are_asked_for_and_answered_in_every_dialect() {
    let model = FakeModel::start().await;
    for dialect in both(&model) {
        model.says_and_calls("Let me see.", &[("read_file", json!({ "path": "a" })), ("read_file", json!({}))]);
        model.calls_tool("list files!", json!({ "n": 1 }));
        model.calls_raw("", &[("read_file", "{\"path\": ")]);
        model.says("Done.");
        let mut request =
            ModelRequest { messages: vec![Message::user("look")], tools: tools(), ..ModelRequest::default() };
        let mut shown = String::new();
        let reply = dialect.complete(&request, &mut |piece| shown.push_str(piece)).await.unwrap();
        assert_eq!((reply.text.as_str(), shown.as_str()), ("Let me see.", "Let me see."));
        assert_eq!(reply.finish_reason.as_deref(), Some("tool_calls"));
        let usage = reply.usage.unwrap();
        assert_eq!((usage.input, usage.output, usage.total), (5, 7, 12));
        let calls: Vec<_> = reply.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("read_file", r#"{"path":"a"}"#), ("read_file", "{}")]);

        request = continued(&request, &reply);
        let reply = dialect.complete(&request, &mut |_| {}).await.unwrap();
        assert_eq!(
            model.was_told_last(),
            "tool `read_file`: {\"content\":{\"path\":\"a\"}}\ntool `read_file`: {\"content\":{}}"
        );
        assert_eq!((reply.text.as_str(), &*reply.tool_calls[0].name), ("", "list files!"));

        request = continued(&request, &reply);
        let reply = dialect.complete(&request, &mut |_| {}).await.unwrap();
        assert_eq!(model.was_told_last(), "tool `list_files_`: {\"content\":{\"n\":1}}");
        assert_eq!(reply.tool_calls[0].arguments, "{\"path\": ");

        request = continued(&request, &reply);
        assert_eq!(dialect.complete(&request, &mut |_| {}).await.unwrap().text, "Done.");
        assert!(model.was_told_last().starts_with("tool `read_file`: {\"error\":\"the arguments are not valid JSON"));
    }
    all_said(&model);
}

#[tokio::test]
async fn calls_of_tools_that_are_not_there_are_answered_and_the_model_goes_on() {
    let model = FakeModel::start().await;
    model.calls_tools(&[("a", json!({})), ("b", json!({}))]).says("Then not.");
    let (agent, hooks) = hooked(&model, vec![]);
    assert_eq!(run(&agent, turn("hi")).await, TurnOutcome::Answer("Then not.".to_owned()));
    assert!(model.was_told_last().ends_with("tool `b`: {\"error\":\"BLOCKED: there is no tool `b` here\"}"));
    let told = hooks.all().await;
    let done = of(&told, "post_api_request");
    assert_eq!((&done["finish_reason"], &done["assistant_tool_call_count"]), (&json!("tool_calls"), &json!(2)));
    assert_eq!(done["assistant_message"]["tool_calls"][1]["function"], json!({ "name": "b", "arguments": "{}" }));
    all_said(&model);
}

#[tokio::test]
async fn hooks_count_tokens_by_the_same_names_in_every_dialect() {
    let model = FakeModel::start().await;
    model.says("Hello.");
    let recorder = Recorder::new(vec![]);
    let hooks = Registry::default();
    hooks.register(Arc::new(Recording(Arc::clone(&recorder))));
    run(&agent_of(&anthropic(&model), Arc::new(hooks)), turn("hi")).await;
    let told = recorder.all().await;
    let pre = of(&told, "pre_api_request");
    assert_eq!((&pre["provider"], &pre["api_mode"]), (&json!("anthropic"), &json!("anthropic_messages")));
    assert_eq!((&pre["max_tokens"], &pre["request_char_count"]), (&json!(8192), &json!(2)));
    let usage = &of(&told, "post_api_request")["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(5), &json!(12)));
    assert_eq!(usage["input_tokens"], 5);
    all_said(&model);
}

#[tokio::test]
async fn the_next_model_is_asked_where_one_fails_for_good_or_too_often() {
    let (first, second, third) = (FakeModel::start().await, FakeModel::start().await, FakeModel::start().await);
    first.fails(401, &[], "no");
    second.fails(500, &[], "").fails(500, &[], "").breaks_midway("Well ").fails(503, &[], "");
    third.says("Hello.");
    let named = |name: &str, model: config::Model| config::Model { name: name.to_owned(), ..model };
    let chain = config::Model {
        fallbacks: vec![named("second", config(&second.base_url())), named("third", anthropic(&third))],
        ..named("first", config(&first.base_url()))
    };
    let recorder = Recorder::new(vec![]);
    let hooks = Registry::default();
    hooks.register(Arc::new(Recording(Arc::clone(&recorder))));
    assert_eq!(run(&agent_of(&chain, Arc::new(hooks)), turn("hi")).await, answer("Hello."));
    let told = recorder.all().await;
    let asked: Vec<_> = told.iter().map(|(event, payload)| (event.as_str(), payload["model"].as_str())).collect();
    let (one, two, three) = (Some("first"), Some("second"), Some("third"));
    let tried = |model| [("pre_api_request", model), ("api_request_error", model)];
    let mut wanted = vec![("on_session_start", one), ("pre_llm_call", one), ("agent:step", None)];
    wanted.extend(tried(one));
    wanted.extend([tried(two), tried(two), tried(two), tried(two)].concat());
    wanted.extend([
        ("pre_api_request", three),
        ("post_api_request", three),
        ("transform_llm_output", three),
        ("post_llm_call", three),
        ("on_session_end", three),
    ]);
    assert_eq!(asked, wanted);
    assert!(told.iter().filter_map(|(_, payload)| payload.get("api_call_count")).all(|count| *count == 1));
    for model in [&first, &second, &third] {
        all_said(model);
    }
}

#[tokio::test]
async fn where_all_models_fail_the_last_is_believed_and_the_next_turn_begins_anew() {
    let (first, second) = (FakeModel::start().await, FakeModel::start().await);
    first.fails(401, &[], "no").says("Back again.");
    second.fails(429, &[("retry-after", "240")], "{}");
    let chain = config::Model { fallbacks: vec![config(&second.base_url())], ..config(&first.base_url()) };
    let agent = agent_of(&chain, Arc::default());
    let (for_user, _) = failure(ask(&agent, "hi").await.0);
    assert_eq!(for_user, "The model is busy (rate limit); try again in 4 minutes.");
    assert_eq!(ask(&agent, "hi").await.0, answer("Back again."));
    all_said(&first);
    all_said(&second);
}

#[tokio::test]
async fn what_was_recorded_is_replayed_offline() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("model.jsonl");
    let model = FakeModel::start().await;
    model.says("Hello.").fails(500, &[], &format!("bad key {KEY}")).says(&format!("Your key is {KEY}."));
    let recording = config::Model { record: Some(file.clone()), ..config(&model.base_url()) };
    let agent = agent_of(&recording, Arc::default());
    assert_eq!(ask(&agent, "hi").await.0, answer("Hello."));
    ask(&agent, &format!("is it {KEY}?")).await;
    all_said(&model);
    let recorded = std::fs::read_to_string(&file).unwrap();
    assert_eq!(recorded.lines().count(), 3);
    assert!(!recorded.contains(KEY), "{recorded}");
    let first: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    assert_eq!(first["request"], model.requests()[0].body);
    assert_eq!((&first["last"]["content"], &first["reply"]["text"]), (&json!("hi"), &json!("Hello.")));
    drop(model);

    let replaying = config::Model {
        provider: config::Provider::Replay,
        replay: Some(file.clone()),
        ..config("http://127.0.0.1:1")
    };
    let agent = agent_of(&replaying, Arc::default());
    assert_eq!(ask(&agent, "hi").await, (answer("Hello."), vec!["Hello.".to_owned()]));
    let (for_user, cause) = failure(ask(&agent, "something else").await.0);
    assert_eq!(for_user, "The recording this gateway answers from has no answer to that; the log names its line.");
    let line = format!("line 3 of the recording {} answers ", file.display());
    assert!(cause.starts_with(&line) && cause.ends_with(r#"{"role":"user","content":"something else"}"#), "{cause}");
    assert_eq!(ask(&agent, &format!("is it {KEY}?")).await.0, answer("Your key is [key]."));
    let (_, cause) = failure(ask(&agent, "more").await.0);
    assert!(cause.contains("has nothing after line 3"), "{cause}");
}

#[tokio::test]
async fn an_old_beginning_is_left_out_where_the_model_can_read_little() {
    let model = FakeModel::echo().await;
    let config = config::Model {
        system_prompt: Some(String::new()),
        context_length: Some(1000),
        max_tokens: Some(50),
        ..config(&model.base_url())
    };
    let mut request = turn("and now?");
    request.history = vec![
        remembered(Role::User, &"x".repeat(3000)),
        remembered(Role::Assistant, "1"),
        remembered(Role::User, "two"),
    ];
    run(&agent_of(&config, Arc::default()), request).await;
    let body = &model.requests()[0].body;
    assert_eq!(body["messages"], json!([{ "role": "user", "content": "two\n\nand now?" }]));
    assert_eq!(body["max_tokens"], 50);
    all_said(&model);
}

#[tokio::test]
async fn a_chat_goes_on_with_the_next_model_and_the_log_names_it_once() {
    let second = FakeModel::start().await;
    second.says("Here I am.");
    let fallback =
        format!("fallback_providers: [{{provider: custom, model: second, base_url: '{}'}}]", second.base_url());
    run_test(World::default().anthropic().setting(&fallback), async |t| {
        t.model.says("Hello.").fails(402, &[], r#"{"type":"error","error":{"type":"billing_error"}}"#);
        t.telegram.alice().says("hi");
        assert_eq!(t.telegram.alice().hears().await?.text, "Hello.");
        t.telegram.alice().says("still there?");
        assert_eq!(t.telegram.alice().hears().await?.text, "Here I am.");
        assert_eq!(t.model.requests()[0].api_key.as_deref(), Some(MODEL_KEY));
        let asked = &second.requests()[0];
        assert_eq!((asked.authorization.as_deref(), &asked.body["model"]), (None, &json!("second")));
        assert_eq!(asked.body["messages"][1]["content"], "hi", "it is told what was said before");
        t.log.shows("the next of fallback_providers is asked", 1).await?;
        assert_eq!(t.log.text().matches("fallback=\"second\"").count(), 1, "{}", t.log.text());
        all_said(&second);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_chat_is_answered_from_a_recording_written_by_hand() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("model.jsonl");
    std::fs::write(
        &file,
        "{\"last\": {\"role\": \"user\", \"content\": \"hi\"}, \"reply\": {\"text\": \"Hello from before.\"}}\n",
    )
    .unwrap();
    let replay = format!("model: {{provider: replay, replay: {}}}", file.display());
    run_test(World::default().echo().setting(&replay), async |t| {
        t.telegram.alice().says("hi");
        assert_eq!(t.telegram.alice().hears().await?.text, "Hello from before.");
        Ok(())
    })
    .await;
}
