//! Hooks on the path of a message: everything documented is told, in its order, and what hooks decide is done.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use hookgate_hooks::{Directive, EVENTS, Event, Fires, Hook, HookError};
use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::world::{Town, World, run_test};

/// The name of every event that fires today; families of commands as wildcards.
fn documented() -> Vec<String> {
    let now = EVENTS.iter().filter(|row| row.fires == Fires::Now);
    now.map(|row| row.name.replace("<name>", "*")).collect()
}

/// Is told of everything and keeps it in order.
struct Recorder {
    subscriptions: Vec<String>,
    told: Mutex<Vec<(String, Value)>>,
    ever: Mutex<BTreeSet<String>>,
}

impl Recorder {
    fn new() -> Arc<Self> {
        Arc::new(Self { subscriptions: documented(), told: Mutex::default(), ever: Mutex::default() })
    }

    /// What was told since the last time.
    async fn news(&self, t: &Town) -> Result<Vec<(String, Value)>> {
        t.hooks_rest().await?;
        Ok(std::mem::take(&mut *self.told.lock().unwrap()))
    }

    /// Its names, one a line, and apart from them how many parts of replies were sent, which has no fixed place.
    async fn names(&self, t: &Town) -> Result<(String, usize)> {
        let names: Vec<String> = self.news(t).await?.into_iter().map(|(name, _)| name).collect();
        let (sent, rest): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == "message:sent");
        Ok((rest.join("\n"), sent.len()))
    }

    /// Of the documented events, those that never came.
    fn missing(&self) -> Vec<String> {
        let ever = self.ever.lock().unwrap();
        let came = |subscription: &String| match subscription.strip_suffix('*') {
            Some(stem) => ever.iter().any(|name| name.strip_prefix(stem).is_some_and(|rest| !rest.contains(':'))),
            None => ever.contains(subscription),
        };
        self.subscriptions.iter().filter(|subscription| !came(subscription)).cloned().collect()
    }
}

#[async_trait]
impl Hook for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn subscriptions(&self) -> &[String] {
        &self.subscriptions
    }

    async fn observe(&self, event: &Event, payload: Arc<Value>) -> Result<(), HookError> {
        self.ever.lock().unwrap().insert(event.to_string());
        self.told.lock().unwrap().push((event.to_string(), Value::clone(&payload)));
        Ok(())
    }
}

type Decision = dyn Fn(&str, &Value) -> Result<Option<Directive>, HookError> + Send + Sync;

/// Decides one event by a function of its name and payload.
struct Decider {
    subscriptions: Vec<String>,
    decision: Box<Decision>,
    takes: Duration,
    deadline: Duration,
    fail_closed: bool,
    asked: AtomicUsize,
}

impl Decider {
    fn of(
        event: &str,
        decision: impl Fn(&str, &Value) -> Result<Option<Directive>, HookError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            subscriptions: vec![event.to_owned()],
            decision: Box::new(decision),
            takes: Duration::ZERO,
            deadline: Duration::from_secs(30),
            fail_closed: false,
            asked: AtomicUsize::new(0),
        }
    }

    /// Decides messages by their text.
    fn message(decision: impl Fn(&str) -> Option<Directive> + Send + Sync + 'static) -> Self {
        Self::of("pre_gateway_dispatch", move |_, payload| Ok(decision(payload["event"]["text"].as_str().unwrap())))
    }

    fn fails(event: &str) -> Self {
        Self::of(event, |_, _| Err(HookError::Failed("broken".into())))
    }
}

#[async_trait]
impl Hook for Decider {
    fn name(&self) -> &str {
        "decider"
    }

    fn subscriptions(&self) -> &[String] {
        &self.subscriptions
    }

    fn decides(&self) -> bool {
        true
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn fail_closed(&self) -> bool {
        self.fail_closed
    }

    async fn decide(&self, event: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        (self.decision)(event.as_str(), &payload)
    }
}

fn rewrite(text: &str) -> Option<Directive> {
    Some(Directive::Rewrite { text: text.to_owned() })
}

fn skip(reply: Option<&str>) -> Option<Directive> {
    Some(Directive::Skip { reply: reply.map(str::to_owned) })
}

const DIRECT: &str = "direct: {secret: the-github-secret, deliver_only: true, prompt: 'news', deliver: telegram, deliver_extra: {chat_id: '7'}}";

#[tokio::test]
async fn every_documented_event_is_told_as_often_and_in_the_order_that_is_documented() {
    let recorder = Recorder::new();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("build")).unwrap();
    let cwd = format!("terminal: {{cwd: '{}'}}", dir.path().display());
    let world = World::default().route(DIRECT).setting("drain_timeout: 1").setting(&cwd).hook(recorder.clone());
    run_test(world, async |t| {
        let (r, alice) = (&recorder, t.telegram.alice());
        assert_eq!(r.names(t).await?, ("gateway:startup".to_owned(), 0));

        t.model.says("Hello.");
        alice.says("Hi");
        alice.hears().await?;
        let first = r.names(t).await?;
        assert_snapshot!(first.0, @r"
        message:received
        pre_gateway_dispatch
        session:start
        agent:start
        agent:turn_start
        on_session_start
        pre_llm_call
        agent:step
        pre_api_request
        post_api_request
        transform_llm_output
        post_llm_call
        on_session_end
        agent:end
        agent:turn_end
        ");
        assert_eq!(first.1, 1);

        // A message that waits is told of when it is stored, and asked about when its turn comes.
        t.model.holds("one").says("two");
        alice.says("first");
        t.model.is_asked(2).await;
        alice.says("second");
        t.telegram.wait_until("all is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
        t.model.release();
        alice.hears().await?;
        alice.hears().await?;
        let busy = r.names(t).await?;
        assert_snapshot!(busy.0, @r"
        message:received
        pre_gateway_dispatch
        agent:start
        agent:turn_start
        pre_llm_call
        agent:step
        pre_api_request
        message:received
        post_api_request
        transform_llm_output
        post_llm_call
        on_session_end
        agent:end
        agent:turn_end
        pre_gateway_dispatch
        agent:start
        agent:turn_start
        pre_llm_call
        agent:step
        pre_api_request
        post_api_request
        transform_llm_output
        post_llm_call
        on_session_end
        agent:end
        agent:turn_end
        ");
        assert_eq!(busy.1, 2);

        alice.says("/status");
        alice.hears().await?;
        let command = r.names(t).await?;
        assert_snapshot!(command.0, @r"
        message:received
        pre_gateway_dispatch
        command:before:status
        command:status
        ");
        assert_eq!(command.1, 1);

        alice.says("/nosuch");
        alice.hears().await?;
        let unknown = r.names(t).await?;
        assert_snapshot!(unknown.0, @r"
        message:received
        pre_gateway_dispatch
        ");
        assert_eq!(unknown.1, 1);

        t.telegram.mallory().says("/status");
        assert_eq!(r.names(t).await?, ("message:received\npre_gateway_dispatch".to_owned(), 0));

        alice.says("/reset");
        alice.hears().await?;
        let reset = r.names(t).await?;
        assert_snapshot!(reset.0, @r"
        message:received
        pre_gateway_dispatch
        command:before:new
        command:new
        on_session_finalize
        session:end
        session:reset
        on_session_reset
        ");
        assert_eq!(reset.1, 1);

        // The first turn of the new session fails.
        t.expect_error("A turn failed.");
        t.model.fails(400, &[], "no");
        alice.says("after the reset");
        alice.hears().await?;
        let failed = r.names(t).await?;
        assert_snapshot!(failed.0, @r"
        message:received
        pre_gateway_dispatch
        session:start
        agent:start
        agent:turn_start
        on_session_start
        pre_llm_call
        agent:step
        pre_api_request
        api_request_error
        on_session_end
        agent:end
        agent:turn_end
        ");
        assert_eq!(failed.1, 1);

        t.model.holds("never");
        alice.says("a hard one");
        t.model.is_asked(5).await;
        alice.says("/stop");
        assert_snapshot!(alice.hears().await?, @"Stopped.");
        let stopped = r.names(t).await?;
        assert_snapshot!(stopped.0, @r"
        message:received
        pre_gateway_dispatch
        agent:start
        agent:turn_start
        pre_llm_call
        agent:step
        pre_api_request
        message:received
        pre_gateway_dispatch
        command:before:stop
        command:stop
        on_session_end
        agent:end
        agent:turn_end
        ");
        assert_eq!(stopped.1, 1);

        t.model.says("Seen.");
        let issue = json!({ "action": "opened", "issue": { "number": 1, "title": "Broken" } });
        assert_eq!(t.webhooks.github("github", "issues", "d-1", &issue).await?.status, 202);
        assert_snapshot!(alice.hears().await?, @"Seen.");
        let delivery = r.names(t).await?;
        assert_snapshot!(delivery.0, @r"
        webhook:received
        message:received
        pre_gateway_dispatch
        session:start
        agent:start
        agent:turn_start
        on_session_start
        pre_llm_call
        agent:step
        pre_api_request
        post_api_request
        transform_llm_output
        post_llm_call
        on_session_end
        agent:end
        agent:turn_end
        session:end
        webhook:delivered
        ");
        assert_eq!(delivery.1, 1);

        assert_eq!(t.webhooks.github("direct", "push", "d-2", &json!({})).await?.status, 200);
        assert_snapshot!(alice.hears().await?, @"news");
        assert_eq!(r.names(t).await?, ("webhook:received\nwebhook:delivered".to_owned(), 1));

        // Two rounds of tools, the second with an approval (`spec/hermes-hooks.md` §4).
        t.model.calls_tool("write_file", json!({ "path": "a.txt", "content": "x" }));
        t.model.calls_tool("terminal", json!({ "command": "rm -r build" })).says("Done.");
        alice.says("clean up");
        let card = alice.hears().await?;
        alice.presses(&card, "Approve once").await?;
        assert_snapshot!(alice.hears().await?, @"Done.");
        let tools = r.names(t).await?;
        assert_snapshot!(tools.0, @r"
        message:received
        pre_gateway_dispatch
        agent:start
        agent:turn_start
        pre_llm_call
        agent:step
        pre_api_request
        post_api_request
        pre_tool_call
        post_tool_call
        transform_tool_result
        agent:step
        pre_api_request
        post_api_request
        pre_tool_call
        pre_approval_request
        post_approval_response
        transform_terminal_output
        post_tool_call
        transform_tool_result
        agent:step
        pre_api_request
        post_api_request
        pre_verify
        transform_llm_output
        post_llm_call
        on_session_end
        agent:end
        agent:turn_end
        ");
        assert_eq!(tools.1, 2);

        t.expect_error("A reply could not be delivered.");
        alice.blocks_the_bot();
        assert_eq!(t.webhooks.github("direct", "push", "d-3", &json!({})).await?.status, 502);
        assert_eq!(r.names(t).await?, ("webhook:received\nwebhook:failed".to_owned(), 0));

        // The gateway stops in the middle of an answer.
        t.model.holds("never");
        alice.says("the last one");
        t.model.is_asked(10).await;
        t.telegram.wait_until("all is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
        r.told.lock().unwrap().clear();
        t.stop().await?;
        let told = std::mem::take(&mut *r.told.lock().unwrap());
        let end: Vec<_> =
            told.iter().map(|(name, _)| name.as_str()).skip_while(|name| *name != "gateway:shutdown").collect();
        assert_eq!(end, ["gateway:shutdown", "on_session_end", "agent:end", "agent:turn_end", "on_session_finalize"]);
        assert!(r.missing().is_empty(), "never told: {:?}", r.missing());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_told_says_what_happened() {
    let recorder = Recorder::new();
    run_test(World::default().hook(recorder.clone()), async |t| {
        let r = &recorder;
        let startup = r.news(t).await?.remove(0).1;
        assert_eq!(startup, json!({ "platforms": ["telegram", "local"], "hooks": ["recorder"], "version": env!("CARGO_PKG_VERSION") }));
        t.model.says("**Hello** Alice.");
        let alice = t.telegram.alice();
        let said = alice.says("Hi");
        let heard = alice.hears().await?;
        let told = r.news(t).await?;
        let of = |name: &str| told.iter().find(|(told, _)| told == name).map(|(_, payload)| payload.clone()).unwrap();
        let session = of("session:start")["session_id"].clone();
        let start = json!({
            "platform": "telegram", "user_id": "7", "session_id": session, "session_key": "agent:main:telegram:dm:7",
            "reason": "first",
        });
        assert_eq!(of("session:start"), start);
        let received = json!({
            "platform": "telegram", "chat_id": "7", "chat_type": "dm", "user_id": "7", "user_name": "Alice",
            "thread_id": null, "message_id": said.message_id.to_string(), "text": "Hi",
            "session_key": "agent:main:telegram:dm:7",
        });
        assert_eq!(of("message:received"), received);
        let end = json!({
            "platform": "telegram", "user_id": "7", "chat_id": "7", "thread_id": "", "chat_type": "dm",
            "session_id": session, "message": "Hi", "response": "**Hello** Alice.", "status": "completed", "error": null,
        });
        assert_eq!(of("agent:end"), end);
        let sent = json!({
            "platform": "telegram", "chat_id": "7", "thread_id": null, "message_id": heard.message_id.to_string(),
            "reply_to": said.message_id.to_string(), "text": "Hello Alice.", "part": 1, "parts": 1,
            "session_key": "agent:main:telegram:dm:7",
        });
        assert_eq!(of("message:sent"), sent);
        alice.says("/reset please");
        alice.hears().await?;
        let told = r.news(t).await?;
        let of = |name: &str| told.iter().find(|(told, _)| told == name).map(|(_, payload)| payload.clone()).unwrap();
        let command = json!({
            "platform": "telegram", "user_id": "7", "command": "new", "raw_command": "reset", "args": "please",
            "raw_args": "please",
        });
        assert_eq!(of("command:new"), command);
        assert_eq!((&of("session:end")["session_id"], &of("session:end")["reason"]), (&session, &json!("reset")));
        let new = of("on_session_reset")["new_session_id"].clone();
        assert!(new != session && of("on_session_reset")["old_session_id"] == session, "{told:#?}");
        t.model.says("Hello again.");
        alice.says("Hi");
        alice.hears().await?;
        let told = r.news(t).await?;
        let of = |name: &str| told.iter().find(|(told, _)| told == name).map(|(_, payload)| payload.clone()).unwrap();
        assert_eq!((&of("session:start")["session_id"], &of("session:start")["reason"]), (&new, &json!("reset")));
        t.stop().await?;
        let told = std::mem::take(&mut *r.told.lock().unwrap());
        let shutdown = json!({ "platforms": ["telegram", "local"], "reason": "signal" });
        assert_eq!(told, [("gateway:shutdown".to_owned(), shutdown)]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn messages_that_are_never_handled_are_told_of_all_the_same() {
    let recorder = Recorder::new();
    run_test(World::default().hook(recorder.clone()), async |t| {
        let alice = t.telegram.alice();
        t.model.holds("never");
        alice.says("one");
        t.model.is_asked(1).await;
        alice.says("two");
        alice.says("/new");
        alice.hears().await?;
        let told = recorder.news(t).await?;
        let received: Vec<_> =
            told.iter().filter(|(name, _)| name == "message:received").map(|(_, payload)| &payload["text"]).collect();
        assert_eq!(received, ["one", "two", "/new"]);
        let interrupted = told.iter().find(|(name, _)| name == "agent:end").unwrap();
        assert_eq!((&interrupted.1["status"], &interrupted.1["response"]), (&json!("interrupted"), &json!("")));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_policy_skips_silently_replies_or_rewrites_idle_and_busy_alike() {
    let policy = Decider::message(|text| match text {
        "drop" => skip(None),
        "closed" => skip(Some("Back at seven.")),
        "colour" => rewrite("color"),
        "what now" => rewrite("/status"),
        "nothing" => rewrite(""),
        _ => None,
    });
    run_test(World::default().model_echoes().hook(Arc::new(policy)), async |t| {
        let alice = t.telegram.alice();
        for busy in [false, true] {
            if busy {
                t.model.holds("done");
                alice.says("work");
                t.model.is_asked(2).await;
            }
            let asked = t.model.requests().len();
            let said: Vec<_> = ["drop", "closed", "colour", "what now", "nothing"].map(|text| alice.says(text)).into();
            if busy {
                t.model.release();
                assert_eq!(alice.hears().await?.text, "done");
            }
            let closed = alice.hears().await?;
            assert_eq!((closed.text.as_str(), closed.reply_to), ("Back at seven.", Some(said[1].message_id)));
            assert_eq!(alice.hears().await?.text, "echo: color");
            assert!(alice.hears().await?.text.starts_with("session: "));
            assert!(alice.hears().await?.text.starts_with("I can only read text"));
            t.idle().await?;
            assert_eq!(t.model.requests().len(), asked + 1);
        }
        for text in ["drop", "closed", "colour", "what now", "nothing"] {
            t.telegram.mallory().says(text);
        }
        t.idle().await?;
        assert_eq!(t.telegram.typing_count(66), 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_command_that_a_policy_makes_a_question_waits_for_its_turn() {
    let policy = Decider::message(|text| text.strip_prefix("/ask ").and_then(rewrite));
    let policy = Arc::new(policy);
    run_test(World::default().hook(policy.clone()), async |t| {
        let alice = t.telegram.alice();
        t.model.says("four");
        alice.says("/ask two and two?");
        assert_snapshot!(alice.hears().await?, @"four");
        t.model.holds("one").says("two").says("three");
        alice.says("first");
        t.model.is_asked(2).await;
        alice.says("/ask second");
        alice.says("third");
        t.telegram.wait_until("all is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
        alice.says("/status");
        let status = alice.hears().await?.text;
        assert!(status.contains("running: yes\nwaiting: 2"), "{status}");
        t.model.release();
        for answer in ["one", "two", "three"] {
            assert_eq!(alice.hears().await?.text, answer);
        }
        assert_eq!(t.model.was_told(), ["two and two?", "first", "second", "third"]);
        assert_eq!(t.model.active_max(), 1);
        t.idle().await?;
        assert_eq!(policy.asked.load(Ordering::Relaxed), 5, "each message is asked about once");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_hook_that_fails_loses_no_message_and_one_that_fails_closed_blocks() {
    let slow = Decider {
        takes: Duration::from_secs(60),
        deadline: Duration::from_millis(50),
        ..Decider::message(|_| skip(None))
    };
    let world =
        World::default().model_echoes().hook(Arc::new(Decider::fails("pre_gateway_dispatch"))).hook(Arc::new(slow));
    run_test(world, async |t| {
        t.telegram.alice().says("hello");
        assert_snapshot!(t.telegram.alice().hears().await?, @"echo: hello");
        Ok(())
    })
    .await;
    let guard = Decider { fail_closed: true, ..Decider::fails("pre_gateway_dispatch") };
    run_test(World::default().hook(Arc::new(guard)), async |t| {
        t.telegram.alice().says("hello");
        let heard = t.telegram.alice().hears().await?.text;
        assert!(heard.starts_with("This message was blocked: "), "{heard}");
        t.telegram.mallory().says("hello");
        t.idle().await?;
        assert!(t.model.requests().is_empty());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_first_policy_that_decides_wins() {
    let first = Decider::message(|text| (text == "a").then(|| Directive::Rewrite { text: "b".into() }));
    let second = Decider::message(|text| if text == "b" { skip(None) } else { skip(Some("second")) });
    run_test(World::default().model_echoes().hook(Arc::new(first)).hook(Arc::new(second)), async |t| {
        let alice = t.telegram.alice();
        alice.says("b");
        alice.says("c");
        assert_snapshot!(alice.hears().await?, @"second");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_slow_hook_holds_up_its_own_chat_only() {
    let slow = Arc::new(Slow(Duration::from_secs(2)));
    run_test(World::default().model_echoes().env("TELEGRAM_ALLOWED_USERS", "7,8").hook(slow), async |t| {
        let (alice, bob) = (t.telegram.alice(), t.telegram.user(8, "Bob"));
        alice.says("slow");
        bob.says("quick");
        let (quick, slow) = (bob.hears().await?, alice.hears().await?);
        assert!(slow.at - quick.at > Duration::from_secs(1));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_stop_held_up_by_a_hook_does_not_stop_what_was_said_after_it() {
    let gate = Arc::new(Gate { asked: Semaphore::new(0), opened: Semaphore::new(0) });
    run_test(World::default().hook(Arc::clone(&gate) as Arc<dyn Hook>), async |t| {
        let alice = t.telegram.alice();
        t.model.holds("one").holds("two");
        alice.says("first");
        t.model.is_asked(1).await;
        let stop = alice.says("/stop");
        gate.asked.acquire().await?.forget();
        t.model.release();
        assert_eq!(alice.hears().await?.text, "one");
        let second = alice.says("second");
        t.model.is_asked(2).await;
        gate.opened.add_permits(1);
        let heard = alice.hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("Nothing is running.", Some(stop.message_id)));
        t.model.release();
        let heard = alice.hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("two", Some(second.message_id)));
        Ok(())
    })
    .await;
}

/// Decides about `/stop` once it is opened.
struct Gate {
    asked: Semaphore,
    opened: Semaphore,
}

#[async_trait]
impl Hook for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn subscriptions(&self) -> &[String] {
        static EVENTS: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| vec!["command:stop".to_owned()]);
        &EVENTS
    }

    fn decides(&self) -> bool {
        true
    }

    async fn decide(&self, _event: &Event, _payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        self.asked.add_permits(1);
        self.opened.acquire().await.expect("never closed").forget();
        Ok(None)
    }
}

/// Takes its time for the text `slow`.
struct Slow(Duration);

#[async_trait]
impl Hook for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn subscriptions(&self) -> &[String] {
        static EVENTS: std::sync::LazyLock<Vec<String>> =
            std::sync::LazyLock::new(|| vec!["pre_gateway_dispatch".to_owned()]);
        &EVENTS
    }

    fn decides(&self) -> bool {
        true
    }

    async fn decide(&self, _event: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        if payload["event"]["text"] == "slow" {
            tokio::time::sleep(self.0).await;
        }
        Ok(None)
    }
}

#[tokio::test]
async fn hooks_of_commands_deny_handle_and_rewrite() {
    let before = Decider::of("command:before:*", |name, payload| {
        Ok(match (name, payload["args"].as_str()) {
            ("command:before:new", Some("please")) => None,
            ("command:before:new", _) => Some(Directive::Deny { message: None }),
            ("command:before:stop", _) => Some(Directive::Deny { message: Some("Say please.".into()) }),
            ("command:before:help", _) => {
                Some(Directive::RewriteCommand { name: "/Status".into(), args: String::new() })
            }
            _ => None,
        })
    });
    let by_name = Decider::of("command:*", |name, payload| {
        Ok(match (name, payload["args"].as_str()) {
            ("command:status", Some("quietly")) => Some(Directive::Handled { message: None }),
            ("command:status", Some("kindly")) => Some(Directive::Handled { message: Some("All is well.".into()) }),
            ("command:status", Some("strangely")) => {
                Some(Directive::RewriteCommand { name: "nosuch".into(), args: String::new() })
            }
            ("command:new", _) => Some(Directive::Block { reason: "not today".into() }),
            _ => None,
        })
    });
    let recorder = Recorder::new();
    let world = World::default().hook(Arc::new(before)).hook(Arc::new(by_name)).hook(recorder.clone());
    run_test(world, async |t| {
        let alice = t.telegram.alice();
        let mut heard = Vec::new();
        recorder.news(t).await?;
        for text in ["/new", "/stop", "/status kindly", "/status strangely", "/new please"] {
            alice.says(text);
            heard.push(alice.hears().await?.text);
        }
        assert_snapshot!(heard.join("\n"), @r"
        This command is not allowed here.
        Say please.
        All is well.
        Unknown command /nosuch. /help lists the commands.
        This message was blocked: not today
        ");
        alice.says("/status quietly");
        recorder.news(t).await?;
        alice.says("/help me");
        assert!(alice.hears().await?.text.starts_with("session: none yet"), "nothing was reset");
        let (told, _) = recorder.names(t).await?;
        assert_eq!(told, "message:received\npre_gateway_dispatch\ncommand:before:help", "no second command event");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn hooks_of_the_turn_add_context_that_is_not_remembered_and_replace_the_answer() {
    let context = Decider::of("pre_llm_call", |_, _| Ok(Some(Directive::Context("It is Monday.".into()))));
    let replace = Decider::of("transform_llm_output", |_, payload| {
        let text = payload["response_text"].as_str().unwrap().replace("damn", "d*mn");
        Ok(Some(Directive::Replace(text)))
    });
    run_test(World::default().hook(Arc::new(context)).hook(Arc::new(replace)), async |t| {
        t.model.says("damn Mondays").says("yes");
        let alice = t.telegram.alice();
        alice.says("what day is it?");
        assert_snapshot!(alice.hears().await?, @"d*mn Mondays");
        assert_eq!(t.model.was_told_last(), "what day is it?\n\nIt is Monday.");
        alice.says("really?");
        alice.hears().await?;
        let messages = t.model.requests().pop().unwrap().body["messages"].clone();
        assert_eq!(messages[1]["content"], "what day is it?");
        assert_eq!(messages[2]["content"], "d*mn Mondays");
        assert_eq!(messages[3]["content"], "really?\n\nIt is Monday.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_a_closed_hook_guards_is_not_run_when_the_hook_fails() {
    for event in ["pre_llm_call", "transform_llm_output"] {
        let guard = Decider { fail_closed: true, ..Decider::fails(event) };
        run_test(World::default().hook(Arc::new(guard)), async |t| {
            t.expect_error("A turn failed.");
            if event == "transform_llm_output" {
                t.model.says("secret");
            }
            t.telegram.alice().says("hello");
            let heard = t.telegram.alice().hears().await?.text;
            assert!(heard.starts_with("A hook of this gateway stopped the answer: "), "{heard}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_session_that_the_operator_ends_is_told() {
    let recorder = Recorder::new();
    run_test(World::default().hook(recorder.clone()), async |t| -> Result<()> {
        t.model.says("Hello.");
        t.telegram.alice().says("Hi");
        t.telegram.alice().hears().await?;
        t.idle().await?;
        recorder.news(t).await?;
        let key = "agent:main:telegram:dm:7";
        let ended = t.cli(&["sessions", "reset", key, "--json"]).await?.ok()?.json()?;
        let session = &ended["session_id"];
        let told = recorder.news(t).await?;
        let end = json!({ "platform": "telegram", "user_id": "7", "session_key": key, "session_id": session, "reason": "reset" });
        let reset = json!({ "platform": "telegram", "user_id": "7", "session_key": key, "reason": "reset" });
        let finalize = json!({
            "session_id": session, "platform": "telegram", "reason": "session_boundary",
            "telemetry_schema_version": "hermes.observer.v1",
        });
        let expected = [("on_session_finalize", finalize), ("session:end", end), ("session:reset", reset)];
        assert_eq!(told, expected.map(|(name, payload)| (name.to_owned(), payload)));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_conversation_that_rested_ends_before_the_next_message_and_is_told() {
    use sqlx::Connection as _;
    let recorder = Recorder::new();
    let rules = "session_reset: {mode: idle, idle_minutes: 60, notify: true}";
    run_test(World::default().hook(recorder.clone()).setting(rules), async |t| -> Result<()> {
        let alice = t.telegram.alice();
        t.model.says("Hello.").says("Again.").says("And again.");
        alice.says("xylophone");
        alice.hears().await?;
        t.idle().await?;
        let url = format!("sqlite:{}", t.file("hookgate.db").display());
        let mut other = sqlx::SqliteConnection::connect(&url).await?;
        sqlx::query("update sessions set updated_at = updated_at - 3600001").execute(&mut other).await?;
        recorder.news(t).await?;
        alice.says("two");
        assert_eq!(alice.hears().await?.text, "The conversation before rested for long; this is a new one.");
        assert_eq!(alice.hears().await?.text, "Again.");
        let names = recorder.names(t).await?.0;
        let at = |name: &str| names.lines().position(|line| line == name);
        assert!(at("on_session_finalize") < at("session:end") && at("session:end") < at("session:start"), "{names}");
        assert!(!t.model.requests()[1].body.to_string().contains("xylophone"), "nothing of the old one");
        alice.says("three");
        assert_eq!(alice.hears().await?.text, "And again.", "it is told once");
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        assert_eq!((&sessions[1]["end_reason"], sessions.as_array().map(Vec::len)), (&json!("idle"), Some(2)));
        Ok(())
    })
    .await;
}
