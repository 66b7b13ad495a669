//! Stops and starts of the real process: signals and the drain, a second start, `gateway stop` and `status`, and
//! surroundings that are broken: unusable homes, full disks, damaged and busy databases.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use insta::assert_snapshot;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::fake_telegram::{FakeTelegram, FakeUser, Fault};
use crate::support::process::{Place, Process, hookgate, survive};
use crate::support::world::World;

/// A route whose text is the message.
const NOTE: &str = "note: {secret: the-github-secret, deliver_only: true, prompt: '{text}', \
                    deliver: telegram, deliver_extra: {chat_id: '7'}}";

/// Everybody may talk.
fn open_world() -> World {
    World::default().env("TELEGRAM_ALLOW_ALL_USERS", "true")
}

fn users(telegram: &FakeTelegram, count: i64) -> Vec<FakeUser> {
    (100..100 + count).map(|id| telegram.user(id, "User")).collect()
}

#[tokio::test]
async fn a_stop_lets_the_turn_end_and_takes_nothing_new() {
    survive(World::default().route(NOTE), async |t| {
        let alice = t.telegram.alice();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            t.model.holds("Just in time.").says("Later.");
            let first = t.start_listening().await?;
            alice.says("Hurry");
            t.model.is_asked(t.model.requests().len().next_multiple_of(2) + 1).await;
            t.telegram.wait_until("it is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
            first.signal(Signal::SIGUSR2)?; // asks for nothing
            first.signal(signal)?;
            first.drains().await?;

            let late = alice.says("Too late?");
            let id = signal.as_str();
            let refused = first.webhooks.github("note", "alert", id, &json!({ "text": "hello" })).await?;
            assert_eq!(refused.parts(), (503, json!({ "error": "The gateway is stopping" })));
            assert!(refused.header("retry-after").is_some());
            let said = first.local.request("POST", "/api/messages").json(&json!({ "id": "1", "text": "hello" }));
            assert_eq!(said.send().await?.status(), 503);
            assert_eq!(first.webhooks.get("/ready").await?.status, 503);
            t.model.release();
            assert_eq!(alice.hears().await?.text, "Just in time.");
            assert_eq!(first.exit_code().await?, 0);
            assert_eq!(t.telegram.unconfirmed(), [late.update_id], "it stays with Telegram");

            let second = t.start_listening().await?;
            assert_eq!(alice.hears().await?.text, "Later.");
            let again = second.webhooks.github("note", "alert", id, &json!({ "text": "hello" })).await?;
            assert_eq!(again.status, 200);
            assert_eq!(alice.hears().await?.text, "hello");
            t.rests().await?;
            assert_eq!(second.stop().await?, 0);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_never_ends_is_interrupted_without_a_word_and_answered_after_the_next_start() {
    survive(World::default().setting("drain_timeout: 1"), async |t| {
        let alice = t.telegram.alice();
        t.model.hangs();
        let first = t.start_listening().await?;
        let said: Vec<_> = (0..20).map(|n| alice.says(&format!("question {n}"))).collect();
        t.model.is_asked(1).await;
        t.telegram.wait_until("all are stored", |telegram| telegram.unconfirmed().is_empty()).await?;
        let began = Instant::now();
        assert_eq!(first.stop().await?, 0);
        assert!(began.elapsed() < Duration::from_secs(5), "the stop took {:?}", began.elapsed());
        assert!(t.telegram.sent().is_empty(), "nobody is told about a restart");
        assert_eq!(t.number("select count(*) from inbox where state = 'waiting' and attempts = 0").await?, 20);

        (0..20).for_each(|_| {
            t.model.repeats("re: ");
        });
        let second = t.start_listening().await?;
        for (n, said) in said.iter().enumerate() {
            let heard = alice.hears().await?;
            assert_eq!((heard.text, heard.reply_to), (format!("re: question {n}"), Some(said.message_id)));
        }
        t.rests().await?;
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn deliveries_wait_for_a_place_without_work_and_over_a_stop() {
    let route = "ask: {secret: the-github-secret, prompt: '{text}', deliver: telegram, deliver_extra: {chat_id: '7'}}";
    let world = World::default().route(route).setting("limits: {turns: 1}").setting("drain_timeout: 1");
    survive(world, async |t| {
        let alice = t.telegram.alice();
        t.model.hangs();
        let first = t.start_listening().await?;
        let send = async |process: &Process, n: u32| {
            let id = format!("d-{n}");
            process.webhooks.github("ask", "alert", &id, &json!({ "text": format!("question {n}") })).await
        };
        assert_eq!(send(&first, 0).await?.status, 202);
        t.model.is_asked(1).await;
        for n in 1..20 {
            assert_eq!(send(&first, n).await?.status, 202);
        }
        assert_eq!(t.number("select count(*) from inbox where state = 'running'").await?, 1);
        assert_eq!(t.number("select count(*) from sessions").await?, 1, "nothing is done for those that wait");
        assert_eq!(first.stop().await?, 0);
        assert_eq!(t.number("select count(*) from inbox where state = 'waiting' and attempts = 0").await?, 20);

        (0..20).for_each(|_| {
            t.model.says("Answered.");
        });
        let second = t.start_listening().await?;
        for _ in 0..20 {
            assert_eq!(alice.hears().await?.text, "Answered.");
        }
        let asked: Vec<String> = (1..=20).map(|n| format!("{:?}", t.model.requests()[n])).collect();
        for (n, asked) in asked.iter().enumerate() {
            assert!(asked.contains(&format!("question {n}")), "they are answered in the order they came: {asked}");
        }
        t.rests().await?;
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn replies_under_way_are_flushed_by_a_stop() {
    survive(open_world().echo(), async |t| {
        t.telegram.keep_failing("sendMessage", Fault::Slow(Duration::from_secs(1)));
        let users = users(&t.telegram, 12);
        let first = t.start_listening().await?;
        users.iter().for_each(|user| {
            user.says("Hi");
        });
        t.telegram.wait_until("all are sent", |telegram| telegram.calls_of("sendMessage").len() == 12).await?;
        assert_eq!(first.stop().await?, 0);
        t.telegram.heal("sendMessage");
        let second = t.start_listening().await?;
        for user in &users {
            assert_eq!(user.hears().await?.text, "Hi");
        }
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn replies_that_must_wait_are_kept_over_a_stop() {
    survive(open_world().echo(), async |t| {
        t.telegram.fail("sendMessage", vec![Fault::RetryAfter(2); 12]);
        let users = users(&t.telegram, 12);
        let first = t.start_listening().await?;
        users.iter().for_each(|user| {
            user.says("Hi");
        });
        t.stored("select count(*) = 12 from outbox where state = 'waiting' and attempts = 1").await?;
        let began = Instant::now();
        assert_eq!(first.stop().await?, 0);
        assert!(began.elapsed() < Duration::from_secs(2), "it waits for no reply that must wait itself");
        let second = t.start_listening().await?;
        for user in &users {
            assert_eq!(user.hears().await?.text, "Hi");
        }
        t.rests().await?;
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_send_that_telegram_does_not_answer_does_not_hold_up_a_stop() {
    survive(World::default().echo().setting("drain_timeout: 1"), async |t| {
        t.telegram.fail("sendMessage", [Fault::HangAfter]);
        let first = t.start_listening().await?;
        t.telegram.alice().says("Hi");
        assert_eq!(t.telegram.alice().hears().await?.text, "Hi");
        let began = Instant::now();
        assert_eq!(first.stop().await?, 0);
        assert!(began.elapsed() < Duration::from_secs(5), "the stop took {:?}", began.elapsed());
        let second = t.start_listening().await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "↻ Hi");
        t.rests().await?;
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_a_kill_during_the_stop_loses_nothing() {
    survive(World::default(), async |t| {
        t.model.hangs().hangs().hangs().says("Hello Alice.");
        let mut first = t.start_listening().await?;
        t.telegram.alice().says("Hi");
        t.model.is_asked(1).await;
        first.terminate()?;
        first.drains().await?;
        assert!(first.is_running()?);
        first.terminate()?;
        assert_eq!(first.exit_code().await?, 0);

        let second = t.start_listening().await?;
        t.model.is_asked(2).await;
        second.terminate()?;
        second.drains().await?;
        second.kill()?;

        let restarted = t.start_listening().await?;
        t.model.is_asked(3).await;
        restarted.signal(Signal::SIGUSR1)?;
        restarted.drains().await?;
        restarted.terminate()?;
        assert_eq!(restarted.exit_code().await?, 75);

        let third = t.start_listening().await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "Hello Alice.");
        t.rests().await?;
        assert_eq!(third.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_restart_signal_asks_for_a_restart() {
    survive(World::default(), async |t| {
        t.model.holds("Just in time.");
        let first = t.start_listening().await?;
        t.telegram.alice().says("Hi");
        t.model.is_asked(1).await;
        first.signal(Signal::SIGUSR1)?;
        first.drains().await?;
        t.model.release();
        assert_eq!(t.telegram.alice().hears().await?.text, "Just in time.");
        assert_eq!(first.exit_code().await?, 75);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_stop_while_it_starts_is_an_orderly_one() {
    survive(World::default().echo(), async |t| {
        t.start().await?.kill()?;
        // Another process keeps the database, so the start waits for it.
        let mut other = t.database().await?;
        sqlx::query("begin immediate").execute(&mut other).await?;
        for (signal, code) in [(Signal::SIGTERM, 0), (Signal::SIGINT, 0), (Signal::SIGUSR1, 75)] {
            let process = t.spawn()?;
            let lock = t.home.path().join("hookgate.lock");
            let pid = process.pid().to_string();
            let deadline = Instant::now() + Duration::from_secs(10);
            while !fs::read_to_string(&lock).unwrap_or_default().contains(&pid) {
                ensure!(Instant::now() < deadline, "it does not start");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            process.signal(signal)?;
            assert_eq!(process.exit_code().await?, code);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn messages_from_before_the_start_are_handled_in_order() {
    survive(World::default().echo(), async |t| {
        let alice = t.telegram.alice();
        let said: Vec<_> = (1..=6).map(|n| alice.says(&format!("message {n}"))).collect();
        let process = t.start().await?;
        for (n, said) in (1..).zip(said) {
            let heard = alice.hears().await?;
            assert_eq!((heard.text, heard.reply_to), (format!("message {n}"), Some(said.message_id)));
        }
        t.rests().await?;
        assert!(t.telegram.calls_of("deleteWebhook").is_empty());
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_second_start_is_refused_in_one_line_and_the_first_goes_on() {
    survive(World::default().echo(), async |t| {
        let mut first = t.start_listening().await?;
        let second = t.run(&["gateway", "run"]).await?;
        assert_eq!((second.code, second.out.as_str()), (1, ""));
        assert_eq!(
            second.err,
            format!(
                "hookgate: A gateway (process {}) already runs on {}; stop it with `hookgate gateway stop`, or use another \
                 --home.\n",
                first.pid(),
                t.home.path().display()
            )
        );
        assert!(first.is_running()?);
        t.telegram.alice().says("Still there?");
        assert_eq!(t.telegram.alice().hears().await?.text, "Still there?");
        t.rests().await?;
        let ready = first.webhooks.get("/ready").await?;
        assert_eq!(ready.status, 200, "{ready:?}");
        assert_eq!(first.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn status_and_stop_tell_what_is_the_case() {
    survive(World::default(), async |t| {
        let none = t.run(&["gateway", "status"]).await?;
        assert_eq!(none.code, 1);
        assert!(none.out.starts_with("No gateway runs on "), "{none:?}");
        let none = t.run(&["gateway", "status", "--json"]).await?;
        assert_eq!((none.code, none.json()?["running"].clone()), (1, json!(false)));
        let none = t.run(&["gateway", "stop"]).await?;
        assert_eq!((none.code, none.out.as_str()), (1, ""));
        assert!(none.err.starts_with("hookgate: No gateway runs on "), "{none:?}");
        let none = t.run(&["gateway", "stop", "--json"]).await?;
        assert!(none.json()?["error"].is_string() && none.code == 1, "{none:?}");

        // A file left behind by a process that is gone, or that has become another, is no obstacle.
        fs::write(t.home.path().join("hookgate.lock"), json!({ "pid": std::process::id() }).to_string())?;
        assert_eq!(t.run(&["gateway", "status", "--json"]).await?.json()?["running"], false);
        assert_eq!(t.run(&["gateway", "stop"]).await?.code, 1);

        t.model.holds("Hello Alice.");
        let process = t.start_listening().await?;
        t.telegram.alice().says("Hi");
        t.telegram.alice().says("And?");
        t.model.is_asked(1).await;
        t.telegram.wait_until("all are stored", |telegram| telegram.unconfirmed().is_empty()).await?;
        let status = t.run(&["gateway", "status", "--json"]).await?;
        assert_eq!(status.code, 0, "{status:?}");
        assert_eq!(
            status.json()?,
            json!({
                "running": true,
                "pid": process.pid(),
                "status": "ok",
                "platforms": {
                    "local": { "state": "connected", "error": null },
                    "telegram": { "state": "connected", "error": null },
                    "webhook": { "state": "connected", "error": null },
                },
                "store": "ok",
                "draining": false,
                "queues": { "waiting": 1, "running": 1 },
                "outbox": { "waiting": 0, "uncertain": 0, "dead": 0 },
            })
        );
        let status = t.run(&["gateway", "status"]).await?;
        assert_snapshot!(status.out.replace(&process.pid().to_string(), "PID"), @r"
        ok (process PID), store ok
          local     connected
          telegram  connected
          webhook   connected
        messages: 1 waiting, 1 being answered
        replies: 0 waiting, 0 uncertain, 0 dead
        ");
        t.model.says("So.");
        let stop = async { t.run(&["gateway", "stop"]).await };
        let release = async {
            process.drains().await?;
            let status = t.run(&["gateway", "status", "--json"]).await?;
            ensure!(status.code == 1 && status.json()?["status"] == "down", "{status:?}");
            t.model.release();
            Ok(())
        };
        let (stopped, released) = tokio::join!(stop, release);
        released?;
        let stopped = stopped?;
        assert_eq!((stopped.code, stopped.out.as_str(), stopped.err.as_str()), (0, "Stopped.\n", ""));
        assert_eq!(process.exit_code().await?, 0);
        assert_eq!(t.telegram.alice().hears().await?.text, "Hello Alice.");

        let next = t.start_listening().await?;
        assert_eq!(t.telegram.alice().hears().await?.text, "So.");
        t.rests().await?;
        let stopped = t.run(&["gateway", "stop", "--json"]).await?;
        assert_eq!(stopped.json()?, json!({ "stopped": true, "pid": next.pid() }));
        assert_eq!(next.exit_code().await?, 0);
        Ok(())
    })
    .await;
}

/// What `gateway run` says on a home, and its exit code.
fn refusal(home: &std::path::Path) -> Result<(Option<i32>, String)> {
    let output = hookgate(home).args(["gateway", "run"]).output()?;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn an_unusable_home_is_told_in_a_sentence_and_works_once_it_is_usable() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    for (home, sentence) in [
        (file.as_path(), "is not a directory"),
        (file.join("below").as_path(), "cannot create the home directory"),
        (std::path::Path::new("/proc"), "/proc cannot be written"),
    ] {
        let (code, said) = refusal(home).unwrap();
        assert_eq!(code, Some(78), "{said}");
        assert!(said.starts_with("hookgate: ") && said.contains(sentence), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
    survive(World::default().echo(), async |t| {
        for (name, sentence) in [
            ("console.json", "console.json cannot be written"),
            ("hookgate.db", "hookgate.db is not a file"),
            ("hookgate.lock", "cannot be written"),
            ("config.yaml", "config.yaml"),
        ] {
            let path = t.home.path().join(name);
            let aside = t.home.path().join("aside");
            let was_there = fs::rename(&path, &aside).is_ok();
            fs::create_dir(&path)?;
            let refused = t.run(&["gateway", "run"]).await?;
            assert_eq!(refused.code, 78, "{name}: {refused:?}");
            assert!(refused.err.contains(sentence), "{name}: {refused:?}");
            fs::remove_dir(&path)?;
            if was_there {
                fs::rename(&aside, &path)?;
            }
        }
        let process = t.start_listening().await?;
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_database_of_a_newer_hookgate_is_left_alone() {
    survive(World::default().echo(), async |t| {
        t.start().await?.kill()?;
        t.change("insert into _sqlx_migrations select 9999, description, installed_on, success, checksum, execution_time from _sqlx_migrations limit 1").await?;
        let refused = t.run(&["gateway", "run"]).await?;
        assert_eq!(refused.code, 78);
        assert_eq!(refused.err, "hookgate: hookgate.db was written by a newer hookgate (schema 9999, this build knows 6); upgrade hookgate or restore a backup\n");
        t.change("delete from _sqlx_migrations where version = 9999").await?;
        assert_eq!(t.start().await?.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_keeps_everything_with_its_sender_until_there_is_room() {
    survive(World::default().route(NOTE), async |t| {
        let alice = t.telegram.alice();
        t.model.holds("Hello Alice.");
        let process = t.start_listening().await?;
        let hi = alice.says("Hi");
        t.model.is_asked(1).await;
        t.telegram.wait_until("it is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;

        // Nothing can be written, the log included; the answer to the first question comes now.
        process.limit_files(Some(1))?;
        t.model.release();
        let body = json!({ "text": "disk 100% full" });
        let refused = process.webhooks.github("note", "alert", "d-1", &body).await?;
        assert_eq!(refused.parts(), (503, json!({ "error": "The gateway cannot store now" })));
        assert!(refused.header("retry-after").is_some());
        let ready = process.webhooks.get("/ready").await?;
        assert_eq!((ready.status, ready.json::<Value>()?["store"].clone()), (503, json!("failed")));
        let more = alice.says("Are you there?");
        t.telegram.wait_until("the update went out", |telegram| !telegram.is_polled()).await?;
        let status = t.run(&["gateway", "status"]).await?;
        assert_eq!(status.code, 1, "{status:?}");
        assert_eq!(t.telegram.unconfirmed(), [more.update_id]);
        assert!(t.telegram.sent().is_empty());

        process.limit_files(None)?;
        t.model.says("Yes.");
        let heard = alice.hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("Hello Alice.", Some(hi.message_id)));
        let heard = alice.hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("Yes.", Some(more.message_id)));
        let again = process.webhooks.github("note", "alert", "d-1", &body).await?;
        assert_eq!(again.status, 200, "{again:?}");
        assert_eq!(alice.hears().await?.text, "disk 100% full");
        t.rests().await?;
        assert_eq!(process.webhooks.get("/ready").await?.status, 200);
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_database_moved_away_under_the_gateway_takes_nothing_until_it_is_back() {
    survive(World::default().route(NOTE), async |t| {
        let alice = t.telegram.alice();
        let process = t.start_listening().await?;
        let aside = t.home.path().join("aside.db");
        fs::rename(t.database_file(), &aside)?;
        let body = json!({ "text": "disk 100% full" });
        for _ in 0..3 {
            let refused = process.webhooks.github("note", "alert", "d-1", &body).await?;
            assert_eq!(refused.parts(), (503, json!({ "error": "The gateway cannot store now" })));
            let ready = process.webhooks.get("/ready").await?;
            assert_eq!((ready.status, ready.json::<Value>()?["store"].clone()), (503, json!("failed")));
        }
        assert!(t.log().contains("was deleted or replaced while it was in use; put it back, or restart hookgate"));

        fs::rename(&aside, t.database_file())?;
        let again = process.webhooks.github("note", "alert", "d-1", &body).await?;
        assert_eq!(again.status, 200, "{again:?}");
        assert_eq!(alice.hears().await?.text, "disk 100% full");
        t.rests().await?;
        assert_eq!(process.webhooks.get("/ready").await?.status, 200);
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

/// Fills pages of the database that hold nothing but this text with something else; how many.
fn damage(place: &Place, text: &str) -> Result<usize> {
    const PAGE: usize = 4096;
    let mut bytes = fs::read(place.database_file())?;
    let mut damaged = 0;
    for page in bytes.chunks_mut(PAGE) {
        if String::from_utf8_lossy(page).matches(text).count() > PAGE / text.len() - 10 {
            page.fill(0x5a);
            damaged += 1;
        }
    }
    // In place: the gateway has the file open.
    let file = fs::File::options().write(true).open(place.database_file())?;
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0)?;
    Ok(damaged)
}

/// Starts the gateway as a supervisor does: again when it asks for it.
async fn supervised(place: &Place) -> Result<Process> {
    loop {
        // It may notice before it is ready, after that, or not at all.
        let mut process = place.spawn()?;
        if process.wait_until_ready(place.home.path()).await.is_ok()
            && place.telegram.wait_until("the bot is polling", FakeTelegram::is_polled).await.is_ok()
            && process.is_running()?
        {
            return Ok(process);
        }
        assert_eq!(process.exit_code().await?, 75);
    }
}

#[tokio::test]
async fn a_damaged_database_is_kept_aside_and_what_it_held_goes_on() {
    survive(World::default(), async |t| {
        let alice = t.telegram.alice();
        let words = "remember this. ";
        t.model.says("I will.").says("Certainly.");
        let process = t.start_listening().await?;
        alice.says(&words.repeat(1000));
        assert_eq!(alice.hears().await?.text, "I will.");
        assert_eq!(process.stop().await?, 0);

        // While it runs: the next question needs what was damaged, and the gateway ends to be started again.
        let process = t.start_listening().await?;
        ensure!(damage(t, words)? > 0, "nothing was damaged");
        let said = alice.says("Do you remember?");
        assert_eq!(process.exit_code().await?, 75);
        assert!(t.log().contains("The gateway ends because its database is damaged; the next start repairs it."));
        let process = supervised(t).await?;
        let heard = alice.hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("Certainly.", Some(said.message_id)));
        t.rests().await?;
        assert_eq!(kept_aside(t)?, 1);
        assert!(t.log().contains("was damaged (") && t.log().contains("were carried over"), "{}", t.log());

        // While it is stopped, with a question that waits.
        t.model.says("Once more.").hangs().says("Still here.");
        alice.says(&words.repeat(1000));
        assert_eq!(alice.hears().await?.text, "Once more.");
        let said = alice.says("And now?");
        t.model.is_asked(4).await;
        process.kill()?;
        t.change("pragma wal_checkpoint(truncate)").await?;
        ensure!(damage(t, words)? > 0, "nothing was damaged");
        let first = t.spawn()?;
        assert_eq!(first.exit_code().await?, 75);
        let process = supervised(t).await?;
        let heard = alice.hears().await?;
        assert_eq!((heard.text.as_str(), heard.reply_to), ("Still here.", Some(said.message_id)));
        t.rests().await?;
        assert_eq!(kept_aside(t)?, 2);
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

fn kept_aside(place: &Place) -> Result<usize> {
    let names = fs::read_dir(place.home.path())?.filter_map(|file| file.ok()?.file_name().into_string().ok());
    Ok(names
        .filter(|name| name.starts_with("hookgate.db.damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm"))
        .count())
}

#[tokio::test]
async fn another_process_that_writes_for_seconds_loses_nothing() {
    survive(open_world().echo().route(NOTE), async |t| {
        let users = users(&t.telegram, 20);
        let process = t.start_listening().await?;
        let mut other = t.database().await?;
        sqlx::query("begin immediate").execute(&mut other).await?;
        users.iter().for_each(|user| {
            user.says("Hi");
        });
        let webhook = process.webhooks.clone();
        let pending =
            tokio::spawn(async move { webhook.github("note", "alert", "d-1", &json!({ "text": "note" })).await });
        let released = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            ensure!(process.webhooks.get("/ready").await?.status == 200, "a busy store is no failed store");
            Ok(sqlx::query("rollback").execute(&mut other).await?)
        };
        released.await?;
        assert_eq!(pending.await??.status, 200);
        assert_eq!(t.telegram.alice().hears().await?.text, "note");
        for user in &users {
            assert_eq!(user.hears().await?.text, "Hi");
        }
        t.rests().await?;
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_gateway_whose_output_nobody_reads_any_more_goes_on() {
    survive(World::default().echo(), async |t| {
        let mut command = t.command(&["gateway", "run", "--log", "debug"]);
        let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn()?;
        drop((child.stdout.take(), child.stderr.take()));
        t.telegram.wait_until("the bot is polling", FakeTelegram::is_polled).await?;
        for text in ["one", "two"] {
            t.telegram.alice().says(text);
            assert_eq!(t.telegram.alice().hears().await?.text, text);
        }
        t.rests().await?;
        assert_eq!(t.run(&["gateway", "stop"]).await?.code, 0);
        assert_eq!(child.wait()?.code(), Some(0));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn many_chats_leave_nothing_behind() {
    survive(open_world().echo(), async |t| {
        let process = t.start_listening().await?;
        let (descriptors, threads) = process.descriptors_and_threads()?;
        assert!(descriptors < 48 && threads < 32, "{descriptors} descriptors, {threads} threads");
        for round in 0..2 {
            let users: Vec<_> = (0..250).map(|n| t.telegram.user(1000 + 250 * round + n, "User")).collect();
            users.iter().for_each(|user| {
                user.says("Hi");
            });
            for user in &users {
                assert_eq!(user.hears().await?.text, "Hi");
            }
            t.rests().await?;
            // Open connections to Telegram, for as many turns as there were at once.
            let (descriptors, threads) = process.descriptors_and_threads()?;
            assert!(descriptors < 128 && threads < 32, "{descriptors} descriptors, {threads} threads");
        }
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_gateway_may_open_as_many_files_as_the_system_lets_it() {
    survive(World::default().echo(), async |t| {
        let run = t.command(&["gateway", "run"]);
        let mut command = Command::new("sh");
        command.arg("-c").arg("ulimit -Sn 128; exec \"$0\" gateway run").arg(run.get_program());
        command.env_clear().envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut process = t.spawn_command(command)?;
        process.wait_until_ready(t.home.path()).await?;
        let limits = fs::read_to_string(format!("/proc/{}/limits", process.pid()))?;
        let line = limits.lines().find(|line| line.starts_with("Max open files")).context("a limit")?;
        let [soft, hard] = line.split_whitespace().skip(3).take(2).collect::<Vec<_>>()[..] else { bail!("{line}") };
        assert_eq!(soft, hard);
        process.kill()
    })
    .await;
}

#[tokio::test]
async fn a_hangup_is_ignored_where_it_was_ignored_before() {
    survive(World::default().echo(), async |t| {
        let run = t.command(&["gateway", "run"]);
        let mut command = Command::new("sh");
        command.arg("-c").arg("trap '' HUP; exec \"$0\" gateway run").arg(run.get_program());
        command.env_clear().envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut process = t.spawn_command(command)?;
        process.wait_until_ready(t.home.path()).await?;
        process.signal(Signal::SIGHUP)?;
        t.telegram.alice().says("still there?");
        assert_eq!(t.telegram.alice().hears().await?.text, "still there?");
        assert!(process.is_running()?);
        assert_eq!(process.stop().await?, 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_question_in_pieces_is_put_together_over_a_stop() {
    survive(World::default().echo(), async |t| {
        let first = t.start_listening().await?;
        let alice = t.telegram.alice();
        alice.says(&"a".repeat(4096));
        t.telegram.wait_until("it is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
        assert_eq!(first.stop().await?, 0);
        alice.says("the rest");
        let second = t.start_listening().await?;
        let said = alice.hears().await?.text + &alice.hears().await?.text;
        assert_eq!(said, "a".repeat(4096) + "the rest");
        t.rests().await?;
        assert_eq!(second.stop().await?, 0);
        Ok(())
    })
    .await;
}
