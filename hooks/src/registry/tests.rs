use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::Semaphore;

use super::*;
use crate::HookError;
use crate::payload::{
    AgentEnd, AgentStart, Command, DispatchEvent, Excerpt, OnSessionStart, PreGatewayDispatch, PreLlmCall,
    TransformLlmOutput, TurnStatus,
};

mod set;

/// How a scripted hook behaves when it is called.
enum Behaviour {
    Answers(Option<Directive>),
    Fails,
    AnswersNonsense,
    Hangs,
    Panics,
}

use Behaviour::{Answers as Says, AnswersNonsense, Fails, Hangs, Panics};

/// A hook that behaves as told and writes down every call.
struct Scripted {
    name: &'static str,
    subscriptions: Vec<String>,
    decides: bool,
    fail_closed: bool,
    behaviour: Behaviour,
    /// If there is one, a call of `observe` needs a permit to go on.
    gate: Option<Arc<Semaphore>>,
    log: Log,
}

/// `(hook, how it was called, event, payload)`
type Log = Arc<Mutex<Vec<(String, &'static str, String, Value)>>>;

impl Scripted {
    fn observer(name: &'static str, subscriptions: &[&str], log: &Log) -> Self {
        Self {
            name,
            subscriptions: subscriptions.iter().map(|name| (*name).to_owned()).collect(),
            decides: false,
            fail_closed: false,
            behaviour: Says(None),
            gate: None,
            log: Arc::clone(log),
        }
    }

    fn decider(name: &'static str, subscription: &str, behaviour: Behaviour, log: &Log) -> Self {
        Self { decides: true, behaviour, ..Self::observer(name, &[subscription], log) }
    }

    fn fail_closed(self) -> Self {
        Self { fail_closed: true, ..self }
    }

    async fn behave(&self) -> Result<Option<Directive>, HookError> {
        match &self.behaviour {
            Says(answer) => Ok(answer.clone()),
            Fails => Err(HookError::Failed("exit code 1".to_owned())),
            AnswersNonsense => Err(HookError::InvalidAnswer("not JSON".to_owned())),
            Hangs => std::future::pending().await,
            Panics => panic!("scripted"),
        }
    }
}

#[async_trait]
impl Hook for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn subscriptions(&self) -> &[String] {
        &self.subscriptions
    }

    fn decides(&self) -> bool {
        self.decides
    }

    fn deadline(&self) -> Duration {
        // Short only where it is meant to pass: the machine may be slow.
        Duration::from_millis(if matches!(self.behaviour, Hangs) { 20 } else { 60_000 })
    }

    fn fail_closed(&self) -> bool {
        self.fail_closed
    }

    async fn observe(&self, event: &Event, payload: Arc<Value>) -> Result<(), HookError> {
        self.log.lock().unwrap().push((self.name.to_owned(), "told", event.to_string(), Value::clone(&payload)));
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        self.behave().await.map(|_| ())
    }

    async fn decide(&self, event: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        self.log.lock().unwrap().push((self.name.to_owned(), "asked", event.to_string(), Value::clone(&payload)));
        self.behave().await
    }
}

fn registry(hooks: Vec<Scripted>) -> Registry {
    let registry = Registry::new();
    for hook in hooks {
        registry.register(Arc::new(hook));
    }
    registry
}

/// `hook told|asked event` for every call so far.
fn calls(log: &Log) -> Vec<String> {
    log.lock().unwrap().iter().map(|(hook, how, event, _)| format!("{hook} {how} {event}")).collect()
}

async fn settled(registry: &Registry) {
    assert_eq!(registry.drain(Duration::from_secs(60)).await, 0);
}

fn session(id: &str) -> OnSessionStart {
    OnSessionStart { session_id: id.to_owned(), model: String::new(), platform: String::new() }
}

fn dispatch() -> PreGatewayDispatch {
    PreGatewayDispatch { event: DispatchEvent { text: "hello".to_owned(), ..DispatchEvent::default() } }
}

fn start() -> AgentStart {
    AgentStart {
        platform: "telegram".to_owned(),
        user_id: None,
        chat_id: "42".to_owned(),
        thread_id: String::new(),
        chat_type: "dm".to_owned(),
        session_id: "s".to_owned(),
        message: Excerpt::of("hello"),
    }
}

fn llm_call() -> PreLlmCall {
    PreLlmCall {
        session_id: "s".to_owned(),
        task_id: String::new(),
        turn_id: String::new(),
        user_message: json!("hello"),
        conversation_history: vec![],
        is_first_turn: true,
        model: String::new(),
        platform: String::new(),
        sender_id: String::new(),
    }
}

fn output() -> TransformLlmOutput {
    TransformLlmOutput {
        response_text: "hi".to_owned(),
        session_id: "s".to_owned(),
        model: String::new(),
        platform: String::new(),
    }
}

fn help() -> Command {
    Command::new("telegram", Some("7"), "help", "help", "")
}

fn skip() -> Directive {
    Directive::Skip { reply: None }
}

fn rewrite(text: &str) -> Directive {
    Directive::Rewrite { text: text.to_owned() }
}

fn block(reason: &str) -> Directive {
    Directive::Block { reason: reason.to_owned() }
}

fn deny(message: &str) -> Directive {
    Directive::Deny { message: Some(message.to_owned()) }
}

const PRE_GATEWAY_DISPATCH: &str = "pre_gateway_dispatch";

async fn ask_message(behaviours: Vec<Behaviour>) -> Directive {
    let log = Log::default();
    let deciders = behaviours.into_iter().map(|it| Scripted::decider("d", PRE_GATEWAY_DISPATCH, it, &log)).collect();
    registry(deciders).ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await
}

#[tokio::test]
async fn without_a_hook_that_cares_no_payload_is_built() {
    fn never<P>() -> P {
        panic!("the payload was built")
    }
    let log = Log::default();
    for registry in [
        Registry::new(),
        registry(vec![
            Scripted::observer("o", &["agent:*"], &log),
            Scripted::decider("d", "pre_llm_call", Says(None), &log),
        ]),
    ] {
        assert!(!registry.wants(&Event::ON_SESSION_START));
        registry.emit(&Event::ON_SESSION_START, never::<OnSessionStart>);
        assert!(!registry.wants(&Event::PRE_GATEWAY_DISPATCH));
        let answer = registry.ask(&Event::PRE_GATEWAY_DISPATCH, never::<PreGatewayDispatch>).await;
        assert_eq!(answer, Directive::Allow);
    }
    assert_eq!(calls(&log), [""; 0]);
}

#[tokio::test]
async fn the_payload_is_built_once_for_all_hooks() {
    let log = Log::default();
    let registry = registry(vec![
        Scripted::observer("a", &["on_session_start"], &log),
        Scripted::observer("b", &["on_session_start"], &log),
    ]);
    assert!(registry.wants(&Event::ON_SESSION_START));
    let mut built = 0;
    registry.emit(&Event::ON_SESSION_START, || {
        built += 1;
        session("s")
    });
    settled(&registry).await;
    assert_eq!(built, 1);
    assert_eq!(calls(&log).len(), 2);
}

#[tokio::test]
async fn plugin_payloads_carry_the_telemetry_version_and_gateway_payloads_do_not() {
    let log = Log::default();
    let registry = registry(vec![Scripted::observer("o", &["on_session_start", "agent:start"], &log)]);
    registry.emit(&Event::ON_SESSION_START, || session("s"));
    registry.emit(&Event::AGENT_START, start);
    settled(&registry).await;
    let log = log.lock().unwrap();
    assert_eq!(
        log[0].3,
        json!({ "session_id": "s", "model": "", "platform": "", "telemetry_schema_version": "hermes.observer.v1" })
    );
    assert_eq!(log[1].3.get("telemetry_schema_version"), None);
}

#[tokio::test]
async fn a_hook_is_told_in_the_order_of_the_events() {
    let log = Log::default();
    let registry = registry(vec![Scripted::observer("o", &["on_session_start"], &log)]);
    for n in 0..200 {
        registry.emit(&Event::ON_SESSION_START, || session(&n.to_string()));
    }
    settled(&registry).await;
    let told: Vec<String> =
        log.lock().unwrap().iter().map(|call| call.3["session_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(registry.stats()[0].calls, 200);
}

#[tokio::test]
async fn a_full_queue_drops_its_oldest_and_holds_nobody_else_up() {
    let log = Log::default();
    let gate = Arc::new(Semaphore::new(0));
    let registry = Registry::with_queue_limit(3);
    registry.register(Arc::new(Scripted {
        gate: Some(Arc::clone(&gate)),
        ..Scripted::observer("slow", &["on_session_start"], &log)
    }));
    registry.register(Arc::new(Scripted::observer("quick", &["agent:start"], &log)));

    registry.emit(&Event::ON_SESSION_START, || session("0"));
    while calls(&log).is_empty() {
        tokio::task::yield_now().await;
    }
    for n in 1..=5 {
        registry.emit(&Event::ON_SESSION_START, || session(&n.to_string()));
    }
    registry.emit(&Event::AGENT_START, start);
    while calls(&log).len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(registry.stats()[0].waiting, 4, "one is being told, three wait");

    gate.add_permits(10);
    settled(&registry).await;
    let told: Vec<Value> =
        log.lock().unwrap().iter().filter(|call| call.0 == "slow").map(|call| call.3["session_id"].clone()).collect();
    assert_eq!(told, ["0", "3", "4", "5"]);
    let stats = &registry.stats()[0];
    assert_eq!((stats.calls, stats.dropped, stats.waiting), (4, 2, 0));
}

#[tokio::test]
async fn turn_events_are_told_only_to_those_who_name_them() {
    let log = Log::default();
    let registry = registry(vec![
        Scripted::observer("wildcard", &["agent:*"], &log),
        Scripted::observer("turns", &["agent:turn_start", "agent:turn_end"], &log),
    ]);
    registry.emit(&Event::AGENT_START, start);
    registry.emit(&Event::AGENT_END, || AgentEnd {
        start: start(),
        response: Excerpt::of(""),
        status: TurnStatus::Interrupted,
        error: None,
    });
    settled(&registry).await;
    let mut calls = calls(&log);
    calls.sort();
    assert_eq!(
        calls,
        [
            "turns told agent:turn_end",
            "turns told agent:turn_start",
            "wildcard told agent:end",
            "wildcard told agent:start"
        ]
    );
}

#[tokio::test]
async fn hooks_that_name_a_command_are_asked_before_those_with_a_wildcard() {
    let log = Log::default();
    let registry = registry(vec![
        Scripted::decider("wildcard", "command:*", Says(None), &log),
        Scripted::decider("alias", "command:reset", Says(None), &log),
        Scripted::decider("name", "command:new", Says(None), &log),
        Scripted::decider("other", "command:stop", Says(None), &log),
        Scripted::decider("before", "command:before:*", Says(None), &log),
    ]);
    let event = Event::command("new").typed_as("reset");
    assert_eq!(registry.ask(&event, help).await, Directive::Allow);
    assert_eq!(calls(&log), ["name asked command:new", "alias asked command:reset", "wildcard asked command:new"]);
}

#[tokio::test]
async fn asking_tells_observers_once_and_asks_only_those_who_decide() {
    let log = Log::default();
    let registry = registry(vec![
        Scripted::observer("o", &["command:*", "command:help"], &log),
        Scripted::decider("d", "command:*", Says(None), &log),
    ]);
    registry.ask(&Event::command("help"), help).await;
    settled(&registry).await;
    let mut calls = calls(&log);
    calls.sort();
    assert_eq!(calls, ["d asked command:help", "o told command:help"]);
}

#[tokio::test]
async fn a_deciding_hook_is_told_about_what_cannot_be_decided() {
    let log = Log::default();
    let registry = registry(vec![Scripted::decider("d", "agent:start", Says(Some(block("no"))), &log)]);
    assert_eq!(registry.ask(&Event::AGENT_START, start).await, Directive::Allow);
    registry.emit(&Event::AGENT_START, start);
    settled(&registry).await;
    assert_eq!(calls(&log), ["d told agent:start", "d told agent:start"]);
    assert_eq!(registry.stats()[0].invalid_answers, 0);
}

#[tokio::test]
async fn the_first_answer_about_a_message_wins_and_a_block_outranks_what_lets_it_pass() {
    let say = |directive: Directive| Says(Some(directive));
    assert_eq!(ask_message(vec![Says(None), say(skip())]).await, skip());
    assert_eq!(ask_message(vec![say(rewrite("a")), say(rewrite("b"))]).await, rewrite("a"));
    assert_eq!(ask_message(vec![say(rewrite("")), say(skip())]).await, rewrite(""));
    assert_eq!(ask_message(vec![say(Directive::Allow), say(skip())]).await, Directive::Allow);
    assert_eq!(ask_message(vec![say(skip()), say(block("no"))]).await, skip());
    assert_eq!(ask_message(vec![say(Directive::Allow), say(block("no"))]).await, block("no"));
    assert_eq!(ask_message(vec![say(rewrite("a")), say(block("no"))]).await, block("no"));
    assert_eq!(ask_message(vec![say(block("no")), say(Directive::Allow)]).await, block("no"));
    assert_eq!(ask_message(vec![say(block("a")), say(block("b"))]).await, block("a"));
}

#[tokio::test]
async fn an_allow_does_not_end_the_search_for_an_answer_to_a_command() {
    let log = Log::default();
    let registry = registry(vec![
        Scripted::decider("a", "command:help", Says(Some(Directive::Allow)), &log),
        Scripted::decider("b", "command:help", Says(Some(deny("no"))), &log),
        Scripted::decider("c", "command:help", Says(Some(deny("never"))), &log),
    ]);
    assert_eq!(registry.ask(&Event::command("help"), help).await, deny("no"));
    settled(&registry).await;
    assert_eq!(calls(&log), ["a asked command:help", "b asked command:help", "c told command:help"]);
}

#[tokio::test]
async fn commands_can_be_rewritten_and_handled() {
    let log = Log::default();
    let status = Directive::RewriteCommand { name: "status".to_owned(), args: String::new() };
    let nameless = Directive::RewriteCommand { name: String::new(), args: String::new() };
    let handled = Directive::Handled { message: None };
    for (answers, expected) in [
        (vec![status.clone(), handled.clone()], status.clone()),
        (vec![handled.clone(), status.clone()], handled),
        (vec![nameless, status.clone()], status.clone()),
        (vec![status, block("no")], block("no")),
    ] {
        let hooks = answers
            .into_iter()
            .map(|answer| Scripted::decider("d", "command:before:*", Says(Some(answer)), &log))
            .collect();
        assert_eq!(registry(hooks).ask(&Event::command_before("help"), help).await, expected);
    }
}

#[tokio::test]
async fn contexts_are_joined_in_order() {
    let log = Log::default();
    let context = |text: &str| Says(Some(Directive::Context(text.to_owned())));
    let registry = registry(vec![
        Scripted::decider("a", "pre_llm_call", context("A"), &log),
        Scripted::decider("blank", "pre_llm_call", context(" \n"), &log),
        Scripted::decider("silent", "pre_llm_call", Says(None), &log),
        Scripted::decider("broken", "pre_llm_call", Fails, &log),
        Scripted::decider("b", "pre_llm_call", context(" B\n"), &log),
    ]);
    let answer = registry.ask(&Event::PRE_LLM_CALL, llm_call).await;
    assert_eq!(answer, Directive::Context("A\n\n B\n".to_owned()));
}

#[tokio::test]
async fn the_first_text_that_is_not_empty_replaces_an_answer() {
    let log = Log::default();
    let replace = |text: &str| Says(Some(Directive::Replace(text.to_owned())));
    let registry = registry(vec![
        Scripted::decider("a", "transform_llm_output", replace(""), &log),
        Scripted::decider("b", "transform_llm_output", replace("X"), &log),
        Scripted::decider("c", "transform_llm_output", replace("Y"), &log),
    ]);
    let answer = registry.ask(&Event::TRANSFORM_LLM_OUTPUT, output).await;
    assert_eq!(answer, Directive::Replace("X".to_owned()));
    assert_eq!(registry.stats().iter().map(|hook| hook.invalid_answers).sum::<u64>(), 0);
}

#[test]
fn an_empty_text_replaces_a_tools_result() {
    let empty = Directive::Replace(String::new());
    assert!(Answers::Replacement { may_be_empty: true }.settles(&empty));
    assert!(!Answers::Replacement { may_be_empty: false }.settles(&empty));
}

/// Failures, timeouts and invalid answers of the first hook.
fn troubles(registry: &Registry) -> (u64, u64, u64) {
    let stats = &registry.stats()[0];
    (stats.failures, stats.timeouts, stats.invalid_answers)
}

#[tokio::test]
async fn every_way_of_not_answering_is_counted_and_passes_unless_the_hook_is_fail_closed() {
    let name_of = |reason: &str| format!("hook `guard` did not answer: {reason}");
    for (behaviour, counted, reason) in [
        ((|| Fails) as fn() -> Behaviour, (1, 0, 0), "exit code 1"),
        (|| Panics, (1, 0, 0), "it panicked: scripted"),
        (|| Hangs, (0, 1, 0), "no answer within 20ms"),
        (|| AnswersNonsense, (0, 0, 1), "invalid answer: not JSON"),
        (|| Says(Some(deny("no"))), (0, 0, 1), "invalid answer: `deny` means nothing for this event"),
    ] {
        let log = Log::default();
        let guard = || Scripted::decider("guard", PRE_GATEWAY_DISPATCH, behaviour(), &log);
        let next = || Scripted::decider("next", PRE_GATEWAY_DISPATCH, Says(Some(rewrite("next"))), &log);

        let open = registry(vec![guard(), next()]);
        assert_eq!(open.ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await, rewrite("next"), "{reason}");
        assert_eq!(troubles(&open), counted, "{reason}");

        let closed = registry(vec![guard().fail_closed(), next()]);
        assert_eq!(closed.ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await, block(&name_of(reason)));
        assert_eq!(troubles(&closed), counted, "{reason}");
    }
}

#[tokio::test]
async fn an_earlier_rewrite_does_not_get_past_a_guard_that_fails() {
    let log = Log::default();
    let registry = registry(vec![
        Scripted::decider("rewriter", PRE_GATEWAY_DISPATCH, Says(Some(rewrite("x"))), &log),
        Scripted::decider("guard", PRE_GATEWAY_DISPATCH, Fails, &log).fail_closed(),
    ]);
    let answer = registry.ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await;
    assert_eq!(answer, block("hook `guard` did not answer: exit code 1"));
}

#[tokio::test]
async fn a_guard_that_fails_blocks_where_hooks_themselves_cannot() {
    let log = Log::default();
    let context = Directive::Context("A".to_owned());
    let registry = registry(vec![
        Scripted::decider("a", "pre_llm_call", Says(Some(context)), &log),
        Scripted::decider("guard", "pre_llm_call", Says(Some(block("by answer"))), &log).fail_closed(),
    ]);
    let answer = registry.ask(&Event::PRE_LLM_CALL, llm_call).await;
    assert_eq!(answer, block("hook `guard` did not answer: invalid answer: `block` means nothing for this event"));
}

#[tokio::test]
async fn silence_of_a_guard_passes() {
    let log = Log::default();
    let registry = registry(vec![Scripted::decider("guard", PRE_GATEWAY_DISPATCH, Says(None), &log).fail_closed()]);
    assert_eq!(registry.ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await, Directive::Allow);
}

#[tokio::test]
async fn observers_that_fail_hang_or_panic_are_counted_and_told_the_next_event() {
    for (behaviour, counted) in
        [((|| Fails) as fn() -> Behaviour, (3, 0, 0)), (|| Panics, (3, 0, 0)), (|| Hangs, (0, 3, 0))]
    {
        let log = Log::default();
        let registry =
            registry(vec![Scripted { behaviour: behaviour(), ..Scripted::observer("o", &["on_session_start"], &log) }]);
        for n in 0..3 {
            registry.emit(&Event::ON_SESSION_START, || session(&n.to_string()));
        }
        settled(&registry).await;
        assert_eq!(troubles(&registry), counted);
        assert_eq!(calls(&log).len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_blocks_its_thread_costs_its_deadline() {
    struct Blocking(Vec<String>, Mutex<std::sync::mpsc::Receiver<()>>);
    #[async_trait]
    impl Hook for Blocking {
        fn name(&self) -> &str {
            "blocking"
        }
        fn subscriptions(&self) -> &[String] {
            &self.0
        }
        fn decides(&self) -> bool {
            true
        }
        fn deadline(&self) -> Duration {
            Duration::from_millis(10)
        }
        async fn decide(&self, _: &Event, _: Arc<Value>) -> Result<Option<Directive>, HookError> {
            let _ = self.1.lock().unwrap().recv();
            Ok(Some(Directive::Skip { reply: None }))
        }
    }
    let (release, blocked) = std::sync::mpsc::channel();
    let registry = Registry::new();
    registry.register(Arc::new(Blocking(vec![PRE_GATEWAY_DISPATCH.to_owned()], Mutex::new(blocked))));
    assert_eq!(registry.ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await, Directive::Allow);
    assert_eq!(troubles(&registry), (0, 1, 0));
    drop(release);
}

#[tokio::test]
async fn draining_gives_up_at_its_deadline_and_says_what_is_left() {
    let log = Log::default();
    let gate = Arc::new(Semaphore::new(0));
    let registry = registry(vec![Scripted {
        gate: Some(Arc::clone(&gate)),
        ..Scripted::observer("slow", &["on_session_start"], &log)
    }]);
    for n in 0..3 {
        registry.emit(&Event::ON_SESSION_START, || session(&n.to_string()));
    }
    assert_eq!(registry.drain(Duration::from_millis(20)).await, 3);
    gate.add_permits(3);
    settled(&registry).await;
    assert_eq!(registry.stats()[0].calls, 3);
}

#[tokio::test]
async fn after_closing_nobody_is_told_and_guards_still_guard() {
    let log = Log::default();
    let registry = registry(vec![
        Scripted { gate: Some(Arc::new(Semaphore::new(0))), ..Scripted::observer("slow", &["on_session_start"], &log) },
        Scripted::decider("guard", PRE_GATEWAY_DISPATCH, Says(Some(skip())), &log),
    ]);
    for n in 0..3 {
        registry.emit(&Event::ON_SESSION_START, || session(&n.to_string()));
    }
    while calls(&log).is_empty() {
        tokio::task::yield_now().await;
    }
    registry.close();
    registry.emit(&Event::ON_SESSION_START, || session("late"));
    settled(&registry).await;
    assert_eq!(calls(&log), ["slow told on_session_start"]);
    assert_eq!(registry.stats()[0].dropped, 3);
    assert_eq!(registry.ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await, skip());
}

#[tokio::test]
async fn a_question_nobody_waits_for_any_more_is_dropped() {
    struct Told(Vec<String>, tokio::sync::mpsc::UnboundedSender<()>);
    #[async_trait]
    impl Hook for Told {
        fn name(&self) -> &str {
            "told"
        }
        fn subscriptions(&self) -> &[String] {
            &self.0
        }
        fn decides(&self) -> bool {
            true
        }
        async fn decide(&self, _: &Event, _: Arc<Value>) -> Result<Option<Directive>, HookError> {
            // The receiver learns that the call is gone when its clone of the sender is.
            let here = self.1.clone();
            let _ = here.send(());
            std::future::pending().await
        }
    }
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let registry = Arc::new(Registry::new());
    registry.register(Arc::new(Told(vec![PRE_GATEWAY_DISPATCH.to_owned()], tx)));
    let asking = tokio::spawn({
        let registry = Arc::clone(&registry);
        async move { registry.ask(&Event::PRE_GATEWAY_DISPATCH, dispatch).await }
    });
    rx.recv().await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    drop(registry);
    assert_eq!(rx.recv().await, None, "the call still runs");
}

#[test]
fn telling_without_a_runtime_is_counted_and_does_not_panic() {
    let log = Log::default();
    let registry = registry(vec![Scripted::observer("o", &["on_session_start"], &log)]);
    registry.emit(&Event::ON_SESSION_START, || session("s"));
    assert_eq!(registry.stats()[0].dropped, 1);
}

#[test]
fn futures_of_ask_can_move_between_threads_whatever_the_payload_is_built_from() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let text = std::rc::Rc::new("hello".to_owned());
    let registry = Registry::new();
    drop(is_send(registry.ask(&Event::PRE_GATEWAY_DISPATCH, || PreGatewayDispatch {
        event: DispatchEvent { text: String::clone(&text), ..DispatchEvent::default() },
    })));
}

fn tool_call() -> PreToolCall {
    let args = serde_json::from_value(json!({ "command": "ls", "timeout": 5 })).unwrap();
    PreToolCall { tool_name: "terminal".to_owned(), args, ..PreToolCall::default() }
}

fn modify(args: Value) -> Behaviour {
    Says(Some(Directive::Modify { args: serde_json::from_value(args).unwrap() }))
}

fn approve(rule_key: &str) -> Behaviour {
    Says(Some(Directive::Approve { message: None, rule_key: Some(rule_key.to_owned()) }))
}

async fn ask_tool_call(behaviours: Vec<Behaviour>) -> (ToolCallVerdict, Vec<Value>) {
    let log = Log::default();
    let deciders = behaviours.into_iter().map(|it| Scripted::decider("d", "pre_tool_call", it, &log)).collect();
    let registry = registry(deciders);
    let verdict = registry.ask_tool_call(tool_call).await;
    settled(&registry).await;
    let seen = log.lock().unwrap().iter().map(|(_, _, _, payload)| payload["args"].clone()).collect();
    (verdict, seen)
}

#[tokio::test]
async fn changed_arguments_add_up_and_later_hooks_see_them() {
    let (verdict, seen) =
        ask_tool_call(vec![modify(json!({ "timeout": 9 })), Says(None), modify(json!({ "cwd": "/tmp" }))]).await;
    assert_eq!(verdict.directive, Directive::Allow);
    assert_eq!(Value::from(verdict.args.unwrap()), json!({ "command": "ls", "timeout": 9, "cwd": "/tmp" }));
    assert_eq!(seen[1], json!({ "command": "ls", "timeout": 9 }));
    let (unchanged, _) = ask_tool_call(vec![Says(None)]).await;
    assert_eq!(unchanged, ToolCallVerdict::default());
}

#[tokio::test]
async fn a_block_outranks_an_approval_whoever_comes_first_and_the_first_approval_counts() {
    let (verdict, _) = ask_tool_call(vec![approve("a"), Says(Some(block("no"))), approve("b")]).await;
    assert_eq!(verdict.directive, block("no"));
    let (verdict, seen) = ask_tool_call(vec![Says(Some(block("no"))), approve("a"), modify(json!({ "x": 1 }))]).await;
    assert_eq!(verdict, ToolCallVerdict { args: None, directive: block("no") });
    assert_eq!(seen.len(), 3, "the others are told");
    let (verdict, _) = ask_tool_call(vec![Fails, approve("a"), approve("b"), modify(json!({ "x": 1 }))]).await;
    assert_eq!(verdict.directive, Directive::Approve { message: None, rule_key: Some("a".to_owned()) });
    assert!(verdict.args.is_some_and(|args| args["x"] == 1));
}

#[tokio::test]
async fn a_guard_of_tool_calls_that_does_not_answer_blocks() {
    for behaviour in [Fails, Panics, AnswersNonsense, Says(Some(rewrite("x")))] {
        let log = Log::default();
        let guard = Scripted::decider("guard", "pre_tool_call", behaviour, &log).fail_closed();
        let verdict = registry(vec![guard]).ask_tool_call(tool_call).await;
        assert!(matches!(verdict.directive, Directive::Block { .. }), "{verdict:?}");
    }
}
