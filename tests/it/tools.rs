//! Turns that use tools: through the real wiring, with a model that asks for them.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use async_trait::async_trait;
use hookgate_hooks::{Directive, Event, Hook, HookError};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::fake_model::FakeModel;
use crate::support::world::{World, run_test};

/// What the model was told of the tools it called, in order: the content of the results.
pub(super) fn results(model: &FakeModel) -> Vec<Value> {
    let requests = model.requests();
    let Some(last) = requests.last() else { return Vec::new() };
    let messages = last.body["messages"].as_array().cloned().unwrap_or_default();
    messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            let content = message["content"].as_str().unwrap_or_default();
            serde_json::from_str(content).unwrap_or_else(|_| json!(content))
        })
        .collect()
}

/// A world whose tools begin in a directory of its own.
pub(super) fn world(dir: &tempfile::TempDir) -> World {
    World::default().setting(&format!("terminal: {{cwd: '{}'}}", dir.path().display()))
}

#[tokio::test]
async fn a_turn_runs_a_command_and_answers_with_what_it_saw() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes.txt"), "milk\n").unwrap();
    run_test(world(&dir), async |t| {
        t.model.calls_tool("terminal", json!({ "command": "cat notes.txt; exit 3" })).says("You need milk.");
        let said = t.telegram.alice().says("What do I need?");
        let heard = t.telegram.alice().hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("You need milk.", Some(said.message_id)));
        assert_eq!(results(&t.model), [json!({ "output": "milk", "exit_code": 3 })]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn calls_of_one_reply_run_side_by_side_and_what_edits_files_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    run_test(world(&dir), async |t| {
        let slow = json!({ "command": "sleep 0.5; date +%s" });
        let calls: Vec<(&str, Value)> = (0..6).map(|_| ("terminal", slow.clone())).collect();
        t.model.calls_tools(&calls).says("Done.");
        let began = std::time::Instant::now();
        t.telegram.alice().says("go");
        assert_eq!(t.telegram.alice().hears().await?.text, "Done.");
        assert!(began.elapsed().as_millis() < 2_500, "six of half a second one after the other: {:?}", began.elapsed());

        t.model
            .calls_tools(&[
                ("write_file", json!({ "path": "a.sh", "content": "echo one" })),
                ("terminal", json!({ "command": "sh a.sh" })),
                ("patch", json!({ "path": "a.sh", "old_string": "one", "new_string": "two" })),
                ("terminal", json!({ "command": "sh a.sh" })),
            ])
            .says("Both.");
        t.telegram.alice().says("again");
        assert_eq!(t.telegram.alice().hears().await?.text, "Both.");
        let outputs: Vec<Value> = results(&t.model).iter().map(|result| result["output"].clone()).collect();
        assert_eq!((&outputs[1], &outputs[3]), (&json!("one"), &json!("two")));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_a_model_calls_wrongly_it_is_told_and_goes_on() {
    run_test(World::default(), async |t| {
        t.model
            .calls_raw(
                "",
                &[
                    ("terminal", "{\"command\": "),
                    ("terminal", "[1]"),
                    ("teleport", "{}"),
                    ("terminal", "{}"),
                    ("", "{}"),
                ],
            )
            .says("I give up.");
        t.telegram.alice().says("go");
        assert_eq!(t.telegram.alice().hears().await?.text, "I give up.");
        let told: Vec<String> =
            results(&t.model).iter().map(|result| result["error"].as_str().unwrap_or_default().to_owned()).collect();
        assert!(told[0].starts_with("the arguments are not valid JSON"), "{told:?}");
        assert_eq!(told[1], "the arguments must be a JSON object");
        assert_eq!(told[2], "BLOCKED: there is no tool `teleport` here");
        assert_eq!(told[3], "the argument `command` is missing");
        assert_eq!(told[4], "not made: the call names no tool");

        let many = vec![("terminal", "{\"command\": \"touch made\"}"); 129];
        t.model.calls_raw("", &many).says("Fewer, then.");
        t.telegram.alice().says("again");
        assert_eq!(t.telegram.alice().hears().await?.text, "Fewer, then.");
        let told = results(&t.model);
        let too_many = "none of these calls was made: ask for at most 128 at once";
        assert!(told.len() == 128 && told.iter().all(|told| told["error"] == too_many), "{told:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn at_the_last_step_the_model_is_asked_for_a_summary_without_tools() {
    run_test(World::default().setting("agent: {max_turns: 2}"), async |t| {
        for _ in 0..2 {
            t.model.calls_tool("terminal", json!({ "command": "true" }));
        }
        t.model.says("I got this far.");
        t.telegram.alice().says("go");
        assert_eq!(t.telegram.alice().hears().await?.text, "I got this far.");
        let last = t.model.requests().last().unwrap().body.clone();
        assert_eq!(last["tool_choice"], "none");
        assert!(t.log.text().contains("A turn has used all its steps."));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn stop_ends_a_running_command_with_all_it_started() {
    let dir = tempfile::tempdir().unwrap();
    run_test(world(&dir), async |t| {
        let recorder = t.hooks_of(&["post_tool_call"]);
        t.model.calls_tool("terminal", json!({ "command": "sleep 61.25 & echo $! > pid; touch begun; wait" }));
        t.telegram.alice().says("wait for me");
        let begun = dir.path().join("begun");
        t.until("the command runs", || begun.exists()).await?;
        t.telegram.alice().says("/stop");
        assert_eq!(t.telegram.alice().hears().await?.text, "Stopped.");
        let pid = std::fs::read_to_string(dir.path().join("pid"))?;
        let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
        t.until("it is gone", || !process.exists()).await?;
        t.hooks_rest().await?;
        let told = recorder.lock().unwrap().clone();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0].1["status"], &told[0].1["error_type"]),
            (&json!("cancelled"), &json!("keyboard_interrupt"))
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_a_killed_gateway_left_running_ends_with_the_next_start() {
    use crate::support::process::survive;
    use crate::support::world::until;
    let dir = tempfile::tempdir().unwrap();
    survive(world(&dir), async |t| {
        let left = "(setsid sh -c 'echo $$ > inner; exec sleep 62.25' &); echo $$ > outer; sleep 62.25";
        t.model.calls_tool("terminal", json!({ "command": left }));
        let first = t.start_listening().await?;
        t.telegram.alice().says("Go.");
        // One that has ended and waits to be reaped has no command line.
        let lives = |name: &str| {
            let pid = std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
            let line = pid.trim().parse::<u32>().map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")));
            matches!(line, Ok(Ok(line)) if !line.is_empty())
        };
        until("both run", || lives("inner") && lives("outer")).await?;
        first.kill()?;
        assert!(lives("inner") && lives("outer"));
        let second = t.start_listening().await?;
        until("both are gone", || !lives("inner") && !lives("outer")).await?;
        assert!(t.telegram.alice().hears().await?.text.contains("interrupted"));
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_had_begun_to_act_is_reported_and_not_begun_anew() {
    use crate::support::process::survive;
    let dir = tempfile::tempdir().unwrap();
    survive(world(&dir), async |t| {
        let alice = t.telegram.alice();
        t.model.calls_tool("terminal", json!({ "command": "echo once >> did.txt" })).hangs();
        let first = t.start_listening().await?;
        let said = alice.says("Do it once.");
        t.model.is_asked(2).await;
        first.kill()?;
        t.model.says("Going on.");
        let second = t.start_listening().await?;
        let heard = alice.hears().await?;
        assert_eq!(heard.reply_to, Some(said.message_id));
        assert!(heard.text.contains("interrupted") && heard.text.contains("terminal"), "{heard}");
        assert_eq!(std::fs::read_to_string(dir.path().join("did.txt"))?, "once\n");
        alice.says("And now?");
        assert_eq!(alice.hears().await?.text, "Going on.");
        assert!(format!("{:?}", t.model.requests().last()).contains("I was interrupted in the middle of this"));
        t.rests().await?;
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_output_costs_no_memory() {
    use crate::support::process::survive;
    survive(World::default(), async |t| {
        let process = t.start_listening().await?;
        let peak = || -> Result<u64> {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        t.model.says("Hello.").calls_tool("terminal", json!({ "command": "yes | head -c 500M" })).says("Done.");
        let alice = t.telegram.alice();
        alice.says("hi");
        alice.hears().await?;
        let before = peak()?;
        alice.says("flood");
        assert_eq!(alice.hears().await?.text, "Done.");
        let grown = peak()? - before;
        assert!(grown < 20 << 10, "the gateway grew by {grown} KiB");
        let told = results(&t.model)[0]["output"].as_str().unwrap_or_default().len();
        assert!((40_000..60_000).contains(&told), "{told}");
        t.rests().await?;
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn secrets_reach_no_child_and_no_answer() {
    let world = World::default().env("MY_API_TOKEN", "sekrit-token-4711");
    run_test(world, async |t| {
        std::fs::write(t.file(".env"), "MY_API_TOKEN=sekrit-token-4711\n")?;
        let home = t.home().display().to_string();
        t.model.calls_tools(&[
            ("terminal", json!({ "command": "env; echo 123456:FAKE-hT9sQkVw2Lx0ZbN4" })),
            ("read_file", json!({ "path": format!("{home}/.env") })),
            ("read_file", json!({ "path": format!("{home}/config.yaml") })),
            ("read_file", json!({ "path": "/proc/self/environ" })),
            ("read_file", json!({ "path": "../../../../../../etc/passwd" })),
        ]);
        t.model.says("123456:FAKE-hT9sQkVw2Lx0ZbN4");
        t.telegram.alice().says("tell me your secrets");
        assert_eq!(t.telegram.alice().hears().await?.text, "[redacted]");
        let told = results(&t.model);
        let environment = told[0]["output"].as_str().unwrap_or_default();
        for secret in ["sekrit", "FAKE-hT9", "TELEGRAM", "API_KEY"] {
            assert!(!environment.contains(secret), "{environment}");
        }
        assert!(told[1..].iter().all(|result| result["error"].is_string()), "{told:#?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn webhooks_have_the_safe_few_and_a_route_may_say_otherwise() {
    let more = "prompt: '{text}', deliver: telegram, deliver_extra: {chat_id: '7'}";
    let world = World::default()
        .route(&format!("safe: {{secret: the-github-secret, {more}}}"))
        .route(&format!("more: {{secret: the-github-secret, tools: [terminal], {more}}}"));
    run_test(world, async |t| {
        let names = |t: &crate::support::world::Town| -> Vec<String> {
            let body = t.model.requests().last().unwrap().body.clone();
            let tools = body["tools"].as_array().cloned().unwrap_or_default();
            tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap_or_default().to_owned()).collect()
        };
        t.model.says("safe").says("more").says("chat");
        for route in ["safe", "more"] {
            t.webhooks.github(route, "push", route, &json!({ "text": "$(rm -rf /)" })).await?;
            assert_eq!(t.telegram.alice().hears().await?.text, route);
            let names = names(t);
            assert_eq!(names.contains(&"terminal".to_owned()), route == "more", "{names:?}");
            assert!(!names.contains(&"write_file".to_owned()) && !names.contains(&"send_message".to_owned()));
        }
        t.telegram.alice().says("hi");
        assert_eq!(t.telegram.alice().hears().await?.text, "chat");
        assert_snapshot!(names(t).join(" "), @"terminal process read_file write_file patch search_files send_message clarify todo web_extract");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn people_whom_only_an_open_door_lets_in_get_no_tools() {
    let world = World::default()
        .env("TELEGRAM_ALLOWED_USERS", "")
        .env("TELEGRAM_ALLOW_ALL_USERS", "true")
        .setting("roles: {admin: ['telegram:7']}");
    run_test(world, async |t| {
        t.model.says("to a stranger").says("to an admin");
        t.telegram.mallory().says("hi");
        assert_eq!(t.telegram.mallory().hears().await?.text, "to a stranger");
        assert_eq!(t.model.requests()[0].body.get("tools"), None);
        t.telegram.alice().says("hi");
        assert_eq!(t.telegram.alice().hears().await?.text, "to an admin");
        assert!(t.model.requests()[1].body["tools"].is_array());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn budgets_end_a_turn_with_a_word() {
    let world = World::default().setting("budgets: {turn: {tool_calls: 2}, user: {tool_calls: 3}}");
    run_test(world, async |t| {
        let call = json!({ "command": "true" });
        t.model.calls_tool("terminal", call.clone()).calls_tools(&[("terminal", call.clone()), ("terminal", call.clone())]);
        t.expect_error("A turn failed.");
        t.telegram.alice().says("go");
        assert_snapshot!(t.telegram.alice().hears().await?, @"I stopped here: the budget of this turn is 2 tool calls, and it is used up. The operator can raise it.");
        t.model.calls_tools(&[("terminal", call.clone()), ("terminal", call.clone())]).says("Two more.");
        t.telegram.alice().says("again");
        assert_eq!(t.telegram.alice().hears().await?.text, "Two more.");
        t.model.calls_tool("terminal", call.clone());
        t.expect_error("A turn failed.");
        t.telegram.alice().says("once more");
        assert_snapshot!(t.telegram.alice().hears().await?, @"I stopped here: your budget of today is 3 tool calls, and it is used up. The operator can raise it.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_message_can_be_sent_besides_the_answer() {
    run_test(World::default(), async |t| {
        t.model
            .calls_tools(&[
                ("send_message", json!({ "text": "a note" })),
                ("send_message", json!({ "text": "elsewhere", "target": "telegram:7" })),
                ("send_message", json!({ "text": "nowhere", "target": "telegarm:7" })),
            ])
            .says("Sent.");
        t.telegram.alice().says("go");
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(t.telegram.alice().hears().await?.text);
        }
        heard.sort();
        assert_eq!(heard, ["Sent.", "a note", "elsewhere"]);
        assert!(results(&t.model)[2]["error"].as_str().unwrap().contains("no target"));
        Ok(())
    })
    .await;
}

type Decide = dyn Fn(&Value) -> Option<Directive> + Send + Sync;

/// Decides about tool calls by a function, and keeps what it was asked.
struct Decider(&'static str, Box<Decide>, Vec<String>, Mutex<Vec<Value>>);

impl Decider {
    fn new(event: &'static str, decide: impl Fn(&Value) -> Option<Directive> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(event, Box::new(decide), vec![event.to_owned()], Mutex::default()))
    }
}

#[async_trait]
impl Hook for Decider {
    fn name(&self) -> &str {
        self.0
    }

    fn subscriptions(&self) -> &[String] {
        &self.2
    }

    fn decides(&self) -> bool {
        true
    }

    async fn decide(&self, _event: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        self.3.lock().unwrap().push(Value::clone(&payload));
        Ok((self.1)(&payload))
    }
}

#[tokio::test]
async fn hooks_block_change_and_replace() {
    let dir = tempfile::tempdir().unwrap();
    let guard = Decider::new("pre_tool_call", |payload| match payload["args"]["command"].as_str() {
        Some("echo secret") => Some(Directive::Block { reason: "not that".to_owned() }),
        Some("echo old") => {
            Some(Directive::Modify { args: serde_json::from_value(json!({ "command": "echo new" })).unwrap() })
        }
        _ => None,
    });
    let terminal = Decider::new("transform_terminal_output", |payload| {
        let output = payload["output"].as_str()?;
        (output.trim() == "loud").then(|| Directive::Replace("quiet".to_owned()))
    });
    let result = Decider::new("transform_tool_result", |payload| {
        (payload["args"]["command"] == "echo result").then(|| Directive::Replace(String::new()))
    });
    let world = world(&dir).hook(guard).hook(terminal.clone()).hook(result);
    run_test(world, async |t| {
        let echo = |word: &str| ("terminal", json!({ "command": format!("echo {word}") }));
        let elsewhere = ("terminal", json!({ "command": "pwd", "cwd": "/" }));
        t.model.calls_tools(&[echo("secret"), echo("old"), echo("loud"), echo("result"), elsewhere]).says("Done.");
        t.telegram.alice().says("go");
        assert_eq!(t.telegram.alice().hears().await?.text, "Done.");
        let told = results(&t.model);
        assert_eq!(told[0], json!({ "error": "BLOCKED: not that" }));
        assert_eq!(told[1], json!({ "output": "new", "exit_code": 0 }));
        assert_eq!(told[2], json!({ "output": "quiet", "exit_code": 0 }));
        assert_eq!(told[3], json!("(empty)"), "providers refuse a blank text");
        let seen = terminal.3.lock().unwrap().clone();
        assert!(seen.iter().any(|seen| seen["command"] == "pwd" && seen["cwd"] == "/"), "{seen:?}");
        let seen = seen[0].clone();
        assert_eq!(
            (&seen["returncode"], &seen["exit_code"], &seen["env_type"]),
            (&json!(0), &json!(0), &json!("local"))
        );
        assert_eq!(seen["cwd"], json!(dir.path().display().to_string()));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_edited_files_can_be_sent_on() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let verify = Decider::new("pre_verify", move |payload| {
        *counted.lock().unwrap() += 1;
        assert!(payload["changed_paths"][0].as_str().unwrap().ends_with("a.txt"), "{payload}");
        Some(Directive::Block { reason: format!("look again ({})", payload["attempt"]) })
    });
    run_test(world(&dir).hook(verify), async |t| {
        t.model.calls_tool("write_file", json!({ "path": "a.txt", "content": "x" }));
        t.model.says("Done 0.").says("Done 1.").says("Done 2.").says("Done 3.");
        t.telegram.alice().says("write it");
        assert_eq!(t.telegram.alice().hears().await?.text, "Done 3.");
        assert_eq!(*asked.lock().unwrap(), 3, "at most three times a turn");
        assert_eq!(t.model.was_told_last(), "look again (2)");
        Ok(())
    })
    .await;
}
