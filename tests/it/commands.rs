//! Commands in a chat: they act at once, also beside a running answer, and never reach the model.

use anyhow::Result;
use insta::assert_snapshot;

use crate::support::world::{Town, World, run_test};

/// Alice asks something the model does not answer before it is released.
async fn with_a_running_turn(t: &Town) {
    t.model.holds("too late");
    t.telegram.alice().says("a hard question");
    t.model.is_asked(1).await;
}

#[tokio::test]
async fn stop_ends_the_running_answer_and_what_waits_goes_on() {
    run_test(World::default(), async |t| {
        with_a_running_turn(t).await;
        t.model.says("a quick answer");
        let alice = t.telegram.alice();
        let waiting = alice.says("a quick question");
        let stop = alice.says("/stop");
        let (stopped, answer) = (alice.hears().await?, alice.hears().await?);
        let stopped_first = stopped.text == "Stopped.";
        let (stopped, answer) = if stopped_first { (stopped, answer) } else { (answer, stopped) };
        assert_snapshot!(stopped, @"Stopped.");
        assert_eq!(stopped.reply_to, Some(stop.message_id));
        assert_snapshot!(answer, @"a quick answer");
        assert_eq!(answer.reply_to, Some(waiting.message_id));
        alice.says("/stop");
        assert_snapshot!(alice.hears().await?, @"Nothing is running.");
        assert_eq!(t.model.was_told_last().lines().last(), Some("a quick question"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn new_stops_the_running_answer_and_leaves_what_waits_unanswered() {
    run_test(World::default(), async |t| {
        with_a_running_turn(t).await;
        let alice = t.telegram.alice();
        alice.says("and then?");
        alice.says("and after that?");
        alice.says("/new");
        assert_snapshot!(alice.hears().await?, @"A new session has begun. 2 messages that waited before it are left unanswered.");
        t.model.says("fresh");
        alice.says("who are you?");
        assert_snapshot!(alice.hears().await?, @"fresh");
        assert_eq!(t.model.was_told(), ["a hard question", "who are you?"]);
        let last = t.model.requests().pop().unwrap().body;
        assert_eq!(last["messages"].as_array().unwrap().len(), 2, "nothing is remembered: {last}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn new_is_the_same_under_its_other_names_and_keeps_the_old_session() {
    run_test(World::default().model_echoes(), async |t| {
        let alice = t.telegram.alice();
        for command in ["/new", "/reset", "/NEW", "/new@hookgate_bot", "/new a title"] {
            alice.says("hello");
            assert_eq!(alice.hears().await?.text, "echo: hello");
            alice.says(command);
            assert_eq!(alice.hears().await?.text, "A new session has begun.");
        }
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        let states: Vec<_> =
            sessions.as_array().unwrap().iter().map(|session| session["end_reason"].as_str()).collect();
        assert_eq!(states, [None, Some("reset"), Some("reset"), Some("reset"), Some("reset"), Some("reset")]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn status_tells_what_the_session_does() {
    run_test(World::default(), async |t| {
        let alice = t.telegram.alice();
        alice.says("/status");
        let version = env!("CARGO_PKG_VERSION");
        let idle = format!("session: none yet\nrunning: no\nwaiting: 0\nmodel: fake\nversion: hookgate {version}");
        assert_eq!(alice.hears().await?.text, idle);
        with_a_running_turn(t).await;
        alice.says("one");
        alice.says("two");
        alice.says("/status");
        let busy = alice.hears().await?.text;
        assert!(busy.contains("\nrunning: yes\nwaiting: 2\n"), "{busy}");
        t.model.says("1").says("2");
        t.model.release();
        for answer in ["too late", "1", "2"] {
            assert_eq!(alice.hears().await?.text, answer);
        }
        t.idle().await?;
        alice.says("/status");
        let after = alice.hears().await?.text;
        assert!(after.contains("(6 messages)\nrunning: no\nwaiting: 0\n"), "{after}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn help_lists_start_says_nothing_and_unknown_commands_are_named() {
    run_test(World::default(), async |t| {
        let alice = t.telegram.alice();
        alice.says("/start");
        alice.says("/help");
        assert_snapshot!(alice.hears().await?, @r"
        Commands:

        /new (/reset) - begin a new session; the old one is kept
        /stop - stop the answer under way
        /status - what this session is doing
        /approve - agree to what waits for approval: [all] [session|always]
        /deny - refuse what waits for approval: [all] [reason]
        /yolo - ask for no approvals in this session, or do again
        /help - this list
        /start - nothing; the bot is always on
        ");
        let said = alice.says("/nosuch x");
        let heard = alice.hears().await?;
        assert_snapshot!(heard, @"Unknown command /nosuch. /help lists the commands.");
        assert_eq!(heard.reply_to, Some(said.message_id));
        t.idle().await?;
        assert!(t.model.requests().is_empty());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn texts_that_merely_begin_with_a_slash_go_to_the_model() {
    run_test(World::default().model_echoes(), async |t| -> Result<()> {
        let alice = t.telegram.alice();
        for text in ["/tmp/file look", "/", "/ new", " /new"] {
            alice.says(text);
            alice.hears().await?;
            assert_eq!(t.model.was_told_last(), text);
        }
        Ok(())
    })
    .await;
}
