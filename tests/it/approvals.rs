//! Approvals: who is asked, how they answer, and what follows; questions of the model go the same way.

use std::time::{Duration, Instant};

use anyhow::Result;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::fake_telegram::{BotMessage, Fault};
use crate::support::process::survive;
use crate::support::world::{Town, World, run_test};
use crate::tools::{results, world};

const GROUP: i64 = -1_000_200;

/// A directory with something to lose.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("build")).unwrap();
    dir
}

fn is_there(dir: &tempfile::TempDir) -> bool {
    dir.path().join("build").exists()
}

fn rm() -> Value {
    json!({ "command": "rm -r build" })
}

/// Alice asks for what needs approval; the request, as it reaches her.
async fn asked(t: &Town) -> Result<BotMessage> {
    t.telegram.alice().says("clean up");
    t.telegram.alice().hears().await
}

#[tokio::test]
async fn a_button_lets_a_command_run_once() {
    let dir = place();
    run_test(world(&dir), async |t| {
        t.model.calls_tool("terminal", rm()).says("Cleaned.");
        let card = asked(t).await?;
        assert_snapshot!(card.text, @"
        Approval needed: recursive delete
        rm -r build
        Answer with /approve, /approve session, /approve always or /deny (with a reason, if you like) within 60 s.
        ");
        assert_eq!(card.labels(), [vec!["Approve once", "This session"], vec!["Always", "Deny"]]);
        assert!(is_there(&dir), "nothing runs before");
        assert_eq!(t.telegram.alice().presses(&card, "Approve once").await?.as_deref(), Some("Approved."));
        assert_eq!(t.telegram.alice().hears().await?.text, "Cleaned.");
        assert!(!is_there(&dir));
        assert_eq!(results(&t.model)[0]["exit_code"], 0);
        t.idle().await?;
        let now = t.telegram.shows(&card).unwrap();
        assert!(now.text.starts_with("Approved once by") && now.buttons.is_empty(), "{now}");
        // The second press of the same button finds nothing open.
        let data = card.buttons[0][0].1.clone();
        let again = t.telegram.alice().forges(&card, &data);
        assert_eq!(t.telegram.answers(&again).await?.as_deref(), Some("This button is no longer valid."));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_denial_reaches_the_model_with_its_reason() {
    let dir = place();
    run_test(world(&dir), async |t| {
        for (answer, told) in [
            ("/deny because I need it", "BLOCKED: denied by the user: because I need it"),
            ("no", "BLOCKED: denied by the user"),
            ("👎", "BLOCKED: denied by the user"),
        ] {
            t.model.calls_tool("terminal", rm()).says("I left it.");
            let card = asked(t).await?;
            t.telegram.alice().says(answer);
            assert_eq!(t.telegram.alice().hears().await?.text, "I left it.");
            assert_eq!(results(&t.model).last(), Some(&json!({ "error": told })));
            t.idle().await?;
            assert!(t.telegram.shows(&card).unwrap().text.starts_with("Denied by"));
        }
        assert!(is_there(&dir));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn words_and_commands_act_while_the_turn_waits_and_other_text_waits_its_turn() {
    let dir = place();
    run_test(world(&dir), async |t| {
        t.model.calls_tool("terminal", rm()).says("Cleaned.").says("Later.");
        let _card = asked(t).await?;
        t.telegram.alice().says("what is it about?");
        let began = Instant::now();
        t.telegram.alice().says("yes");
        assert_eq!(t.telegram.alice().hears().await?.text, "Cleaned.");
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!(t.telegram.alice().hears().await?.text, "Later.");
        assert_eq!(t.model.was_told_last(), "what is it about?");
        t.telegram.alice().says("/approve");
        assert_eq!(t.telegram.alice().hears().await?.text, "There is nothing to approve or deny here.");
        t.model.says("An ordinary word.");
        t.telegram.alice().says("yes");
        assert_eq!(t.telegram.alice().hears().await?.text, "An ordinary word.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn several_wait_at_once_and_all_can_be_answered() {
    let dir = place();
    run_test(world(&dir), async |t| {
        let calls: Vec<(&str, Value)> =
            ["a", "b", "c"].iter().map(|name| ("terminal", json!({ "command": format!("rm -r {name}") }))).collect();
        for name in ["a", "b", "c"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        t.model.calls_tools(&calls).says("Done.");
        t.telegram.alice().says("go");
        for _ in 0..3 {
            t.telegram.alice().hears().await?;
        }
        t.telegram.alice().says("/deny only two of them");
        t.telegram.alice().says("/approve all");
        assert_eq!(t.telegram.alice().hears().await?.text, "Done.");
        let denied = results(&t.model).iter().filter(|result| result["error"].is_string()).count();
        assert_eq!(denied, 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_approval_for_the_session_or_for_ever_is_remembered() {
    let dir = place();
    run_test(world(&dir), async |t| {
        let again = || std::fs::create_dir(dir.path().join("build"));
        t.model.calls_tool("terminal", rm()).says("One.").calls_tool("terminal", rm()).says("Two.");
        let card = asked(t).await?;
        t.telegram.alice().presses(&card, "This session").await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "One.");
        again()?;
        t.telegram.alice().says("again");
        assert_eq!(t.telegram.alice().hears().await?.text, "Two.", "the same rule is not asked about again");
        // Another session is asked anew; another rule, too.
        again()?;
        t.telegram.alice().says("/new");
        t.telegram.alice().hears().await?;
        t.model.calls_tool("terminal", rm()).says("Three.");
        let card = asked(t).await?;
        t.telegram.alice().says("/approve always");
        assert_eq!(t.telegram.alice().hears().await?.text, "Three.");
        t.idle().await?;
        assert!(t.telegram.shows(&card).unwrap().text.starts_with("Approved from now on by"));
        t.live_again(world(&dir)).await?;
        again()?;
        t.model.calls_tool("terminal", rm()).says("Four.");
        t.telegram.alice().says("after a restart");
        assert_eq!(t.telegram.alice().hears().await?.text, "Four.");

        // It is listed, and can be taken back.
        let listed = t.cli(&["approvals", "list", "--json"]).await?.ok()?.json()?;
        assert_eq!((&listed[0]["key"], &listed[0]["scope"]), (&json!("recursive delete"), &json!("telegram:7")));
        let id = listed[0]["id"].to_string();
        t.cli(&["approvals", "revoke", &id]).await?.ok()?;
        assert_eq!(t.cli(&["approvals", "revoke", &id]).await?.code, 1);
        again()?;
        t.model.calls_tool("terminal", rm()).says("Five.");
        asked(t).await?;
        t.telegram.alice().says("ok");
        assert_eq!(t.telegram.alice().hears().await?.text, "Five.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn yolo_asks_for_nothing_but_what_never_runs_still_does_not() {
    let dir = place();
    run_test(world(&dir), async |t| {
        t.telegram.alice().says("/yolo");
        assert!(t.telegram.alice().hears().await?.text.starts_with("Yolo is on"));
        t.model.calls_tools(&[("terminal", rm()), ("terminal", json!({ "command": "rm -rf /" }))]).says("Done.");
        t.telegram.alice().says("go");
        assert_eq!(t.telegram.alice().hears().await?.text, "Done.");
        assert!(!is_there(&dir));
        assert!(results(&t.model)[1]["error"].as_str().unwrap().starts_with("BLOCKED: "));
        t.telegram.alice().says("/yolo");
        assert!(t.telegram.alice().hears().await?.text.starts_with("Yolo is off"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn nobody_else_may_press_and_nothing_else_may_be_pressed() {
    let dir = place();
    let world = world(&dir).env("TELEGRAM_ALLOWED_USERS", "7,8").setting("roles: {owner: ['telegram:7']}");
    run_test(world, async |t| {
        let group = |id: i64| t.telegram.user_in_group(id, "Somebody", GROUP);
        t.model.calls_tool("terminal", rm());
        group(8).says("@hookgate_bot clean up");
        let card = group(8).hears().await?;
        for id in [8, 66] {
            let pressed = group(id).presses(&card, "Approve once").await?;
            assert_eq!(pressed.as_deref(), Some("This is not for you to decide."), "{id}");
        }
        let data = card.buttons[0][0].1.clone();
        for forged in ["ap:0000000000000000:once", "ap::", "ap", &data.replace("once", "often"), "cl:x:0"] {
            let press = group(7).forges(&card, forged);
            let toast = t.telegram.answers(&press).await?;
            assert_eq!(toast.as_deref(), Some("This button is no longer valid."), "{forged}");
        }
        // From another chat, with the data of this one.
        let elsewhere = t.telegram.alice();
        t.model.says("hello");
        elsewhere.says("hi");
        let own = elsewhere.hears().await?;
        let press = elsewhere.forges(&own, &data);
        assert_eq!(t.telegram.answers(&press).await?.as_deref(), Some("This button is no longer valid."));
        group(8).says("/approve@hookgate_bot");
        assert_eq!(group(8).hears().await?.text, "Only an owner or admin may approve or deny.");
        assert!(is_there(&dir));
        t.model.says("Cleaned.");
        assert_eq!(group(7).presses(&card, "Approve once").await?.as_deref(), Some("Approved."));
        assert_eq!(group(8).hears().await?.text, "Cleaned.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn where_nobody_may_approve_it_is_refused_at_once_and_why_is_told() {
    let dir = place();
    let world = world(&dir).setting("roles: {owner: ['telegram:1']}");
    run_test(world, async |t| {
        t.model.calls_tool("terminal", rm()).says("I may not.");
        t.telegram.alice().says("clean up");
        assert_eq!(t.telegram.alice().hears().await?.text, "I may not.");
        let told = results(&t.model)[0]["error"].as_str().unwrap().to_owned();
        assert!(told.starts_with("BLOCKED: ") && told.contains("only owners and admins may approve"), "{told}");
        assert!(t.log.text().contains("An approval could not be asked for"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_is_a_refusal() {
    let dir = place();
    run_test(world(&dir), async |t| {
        t.telegram.fail("sendMessage", [Fault::Refuse(400, "Bad Request: chat not found".into())]);
        t.expect_error("A reply could not be delivered.");
        t.model.calls_tool("terminal", rm()).says("I could not ask.");
        t.telegram.alice().says("clean up");
        assert_eq!(t.telegram.alice().hears().await?.text, "I could not ask.");
        let told = results(&t.model)[0]["error"].as_str().unwrap().to_owned();
        assert!(told.contains("nobody could be asked (") && told.contains("chat not found"), "{told}");
        assert!(is_there(&dir));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_unanswered_request_expires_visibly() {
    let dir = place();
    for (halt, answer) in [("continue", "It was not run."), ("halt", "Nobody answered the request")] {
        let world = world(&dir).setting(&format!("approvals: {{timeout: 1, on_timeout: {halt}}}"));
        run_test(world, async |t| {
            t.model.calls_tool("terminal", rm());
            if halt == "continue" {
                t.model.says("It was not run.");
            } else {
                t.expect_error("A turn failed.");
            }
            let card = asked(t).await?;
            let heard = t.telegram.alice().hears().await?;
            assert!(heard.text.starts_with(answer), "{heard}");
            if halt == "continue" {
                assert_eq!(results(&t.model)[0], json!({ "error": "BLOCKED: approval timed out; it was not run" }));
            }
            t.idle().await?;
            let now = t.telegram.shows(&card).unwrap();
            assert!(now.text.starts_with("Expired") && now.buttons.is_empty(), "{now}");
            assert!(is_there(&dir));
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn stop_withdraws_a_request() {
    let dir = place();
    run_test(world(&dir), async |t| {
        t.model.calls_tool("terminal", rm());
        let card = asked(t).await?;
        t.telegram.alice().says("/stop");
        assert_eq!(t.telegram.alice().hears().await?.text, "Stopped.");
        t.idle().await?;
        let now = t.telegram.shows(&card).unwrap();
        assert!(now.text.starts_with("Withdrawn") && now.buttons.is_empty(), "{now}");
        assert!(is_there(&dir));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_whole_command_is_seen_hidden_characters_too() {
    let dir = place();
    run_test(world(&dir), async |t| {
        let command = format!("rm -r build # {} \u{202e}txt.exe\u{200b} ``` <&>", "<&>".repeat(2_000));
        t.model.calls_tool("terminal", json!({ "command": command })).says("Cleaned.");
        t.telegram.alice().says("clean up");
        let mut text = String::new();
        let card = loop {
            let heard = t.telegram.alice().hears().await?;
            text.push_str(&heard.text);
            if !heard.buttons.is_empty() {
                break heard;
            }
        };
        assert_eq!(text.matches("<&>").count(), 2_001, "all of it is shown");
        assert!(text.contains("\\u{202e}") && text.contains("\\u{200b}"), "hidden characters are shown");
        t.telegram.alice().presses(&card, "Deny").await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "Cleaned.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_request_of_an_earlier_life_is_visibly_over() {
    let dir = place();
    survive(world(&dir), async |t| {
        let alice = t.telegram.alice();
        t.model.calls_tool("terminal", rm()).calls_tool("terminal", rm()).says("Cleaned.");
        let first = t.start_listening().await?;
        let said = alice.says("clean up");
        let old = alice.hears().await?;
        t.stored("select exists (select 1 from outbox where state = 'sent')").await?;
        first.kill()?;
        let second = t.start_listening().await?;
        // The turn had done nothing yet, so it begins anew and asks again.
        let new = alice.hears().await?;
        let is_over = |telegram: &crate::support::fake_telegram::FakeTelegram| {
            telegram.shows(&old).is_some_and(|now| now.buttons.is_empty() && now.text.contains("no longer valid"))
        };
        t.telegram.wait_until("the old request is over", is_over).await?;
        assert!(dir.path().join("build").exists());
        alice.presses(&new, "Approve once").await?;
        let heard = alice.hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("Cleaned.", Some(said.message_id)));
        t.rests().await?;
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_webhooks_turn_asks_in_the_chat_it_answers() {
    let dir = place();
    let more = "prompt: '{text}', tools: [terminal]";
    let world = world(&dir)
        .route(&format!(
            "chat: {{secret: the-github-secret, {more}, deliver: telegram, deliver_extra: {{chat_id: '7'}}}}"
        ))
        .route(&format!("log: {{secret: the-github-secret, {more}}}"));
    run_test(world, async |t| {
        t.model.calls_tool("terminal", rm()).says("Nobody to ask.");
        t.webhooks.github("log", "push", "d-1", &json!({ "text": "clean" })).await?;
        t.idle().await?;
        assert!(results(&t.model)[0]["error"].as_str().unwrap().contains("goes to no chat"));
        assert!(is_there(&dir));
        t.model.calls_tool("terminal", rm()).says("Cleaned.");
        t.webhooks.github("chat", "push", "d-2", &json!({ "text": "clean" })).await?;
        let card = t.telegram.alice().hears().await?;
        t.telegram.alice().presses(&card, "Approve once").await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "Cleaned.");
        assert!(!is_there(&dir));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_model_may_judge_and_people_are_asked_where_it_is_not_sure() {
    let dir = place();
    run_test(world(&dir).setting("approvals: {mode: smart}"), async |t| {
        let approvals = t.hooks_of(&["pre_approval_request", "post_approval_response"]);
        t.model.calls_tool("terminal", rm()).says("deny").says("It said no.");
        t.telegram.alice().says("clean up");
        assert_eq!(t.telegram.alice().hears().await?.text, "It said no.");
        assert!(is_there(&dir));
        t.model.calls_tool("terminal", rm()).says("approve").says("It said yes.");
        t.telegram.alice().says("clean up");
        assert_eq!(t.telegram.alice().hears().await?.text, "It said yes.");
        assert!(!is_there(&dir));
        std::fs::create_dir(dir.path().join("build"))?;
        t.model.calls_tool("terminal", rm()).says("escalate").says("A person said yes.");
        let card = asked(t).await?;
        t.telegram.alice().presses(&card, "Approve once").await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "A person said yes.");
        t.hooks_rest().await?;
        let told: Vec<String> = approvals
            .lock()
            .unwrap()
            .iter()
            .map(|(_, told)| format!("{} {}", told["surface"], told.get("choice").unwrap_or(&Value::Null)))
            .collect();
        assert_snapshot!(told.join("\n"), @r#"
        "smart" null
        "smart" "smart_deny"
        "smart" null
        "smart" "smart_approve"
        "smart" null
        "smart" "smart_escalate"
        "gateway" null
        "gateway" "once"
        "#);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn off_asks_nobody_and_denied_globs_and_hard_lines_hold_all_the_same() {
    let dir = place();
    run_test(world(&dir).setting("approvals: {mode: off, deny: ['*drop*table*']}"), async |t| {
        t.model
            .calls_tools(&[
                ("terminal", rm()),
                ("terminal", json!({ "command": "echo DROP the TABLE" })),
                ("terminal", json!({ "command": "mkfs.ext4 /dev/sda" })),
            ])
            .says("Done.");
        t.telegram.alice().says("go");
        assert_eq!(t.telegram.alice().hears().await?.text, "Done.");
        assert!(!is_there(&dir));
        let told = results(&t.model);
        assert!(told[1]["error"].as_str().unwrap().contains("approvals.deny"), "{told:?}");
        assert!(told[2]["error"].as_str().unwrap().contains("never runs"), "{told:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_model_can_ask_a_question() {
    run_test(World::default(), async |t| {
        let ask = json!({ "question": "Which colour?", "options": ["red", "blue"] });
        t.model.calls_tool("clarify", ask.clone()).says("Red it is.");
        t.telegram.alice().says("paint it");
        let card = t.telegram.alice().hears().await?;
        assert_eq!(card.text, "Which colour?\n1. red\n2. blue");
        t.telegram.alice().presses(&card, "red").await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "Red it is.");
        t.model.calls_tool("clarify", ask).says("Green, then.");
        t.telegram.alice().says("paint it");
        t.telegram.alice().hears().await?;
        t.telegram.alice().says("neither, green");
        assert_eq!(t.telegram.alice().hears().await?.text, "Green, then.");
        assert!(results(&t.model).last().unwrap().to_string().contains("neither, green"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn turns_that_wait_for_people_hold_up_no_other() {
    let dir = place();
    let world = world(&dir).env("TELEGRAM_ALLOWED_USERS", "7,8").setting("limits: {turns: 1}");
    run_test(world, async |t| {
        t.model.calls_tool("terminal", rm()).says("Hello Bob.").says("I left it.");
        let card = asked(t).await?;
        let bob = t.telegram.user(8, "Bob");
        bob.says("hi");
        assert_eq!(bob.hears().await?.text, "Hello Bob.");
        t.telegram.alice().presses(&card, "Deny").await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "I left it.");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_new_session_is_confirmed_where_that_is_wanted() {
    run_test(World::default().setting("approvals: {destructive_slash_confirm: true}"), async |t| {
        let alice = t.telegram.alice();
        alice.says("/new");
        assert!(alice.hears().await?.text.starts_with("A new session"), "there is nothing to lose");
        t.model.says("Hello.").says("Still here.");
        alice.says("hi");
        alice.hears().await?;
        alice.says("/new");
        let card = alice.hears().await?;
        assert_snapshot!(card.text, @"
        Begin a new session? The one so far is kept, but not gone on with.
        1. Yes
        2. No
        ");
        alice.says("no");
        assert_eq!(alice.hears().await?.text, "The session goes on as it was.");
        alice.says("are you there?");
        assert_eq!(alice.hears().await?.text, "Still here.");
        assert_eq!(t.model.requests()[1].body["messages"].as_array().unwrap().len(), 4, "it remembers");
        alice.says("/new");
        let card = alice.hears().await?;
        alice.presses(&card, "Yes").await?;
        assert!(alice.hears().await?.text.starts_with("A new session"));
        Ok(())
    })
    .await;
}
