//! The whole gateway with its state in Postgres. Without a server on this machine there is nothing to tell.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::support::postgres::{PASSWORD, raw, shared, url};
use crate::support::process::{Place, hookgate};
use crate::support::wire::Wire;
use crate::support::world::{World, run_test};

fn world(url: &str) -> World {
    World::default().setting(&format!("storage: {{url: '{url}'}}"))
}

#[tokio::test]
async fn a_conversation_outlives_a_kill_and_nothing_is_lost_or_said_twice() -> Result<()> {
    let Some(server) = shared() else { return Ok(()) };
    let url = server.schema();
    let place = Place::new(&world(&url)).await?;
    let alice = place.telegram.alice();
    let gateway = place.start().await?;
    place.model.says("one");
    alice.says("first");
    ensure!(alice.hears().await?.text == "one");
    // The question is with the model when the kill comes.
    place.model.holds("never heard");
    alice.says("second");
    place.model.is_asked(2).await;
    gateway.kill()?;
    place.model.release();

    place.model.says("two");
    let gateway = place.start().await?;
    ensure!(alice.hears().await?.text == "two");
    let told = place.model.requests().last().context("it was asked")?.body.to_string();
    ensure!(told.contains("first") && told.contains("one") && told.contains("second"), "{told}");
    ensure!(!gateway.log().contains(PASSWORD), "the password was logged");
    ensure!(!place.home.path().join("hookgate.db").exists());
    ensure!(gateway.stop().await? == 0);
    let (inbox, outbox): (i64, i64) = sqlx::query_as(
        "select (select count(*) from inbox where state = 'done'), (select count(*) from outbox where state = 'sent')",
    )
    .fetch_one(&mut raw(&url).await)
    .await?;
    ensure!((inbox, outbox) == (2, 2), "{inbox} messages done, {outbox} replies sent");
    Ok(())
}

#[tokio::test]
async fn while_the_database_is_away_the_gateway_is_down_and_then_it_goes_on() {
    let Some(server) = shared() else { return };
    let wire = Wire::new(server.directory());
    let schema = server.schema();
    let (_, database) = schema.split_once(":5432/").unwrap();
    run_test(world(&url(wire.directory(), database)), async |t| {
        t.model.says("one").says("two");
        t.telegram.alice().says("first");
        t.telegram.alice().hears().await?;
        wire.cut();
        t.expect_error("The store failed");
        let said = t.telegram.alice().says("second");
        while t.ready().await?.store == "ok" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ensure!(t.ready().await?.is_down());
        ensure!(t.telegram.unconfirmed().len() == 1, "the message stays with Telegram");
        wire.mend();
        let heard = t.telegram.alice().hears().await?;
        ensure!(heard.text == "two" && heard.reply_to == Some(said.message_id), "{heard}");
        ensure!(!t.log.text().contains(PASSWORD), "the password was logged");
        while t.ready().await?.store != "ok" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn commands_read_beside_the_gateway_and_never_show_the_password() -> Result<()> {
    let Some(server) = shared() else { return Ok(()) };
    let place = Place::new(&world(&server.schema()).echo()).await?;
    let run = |args: &[&str]| -> Result<(i32, String)> {
        let output = place.command(args).output()?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(!text.contains(PASSWORD), "{args:?} shows the password: {text}");
        Ok((output.status.code().context("it was killed")?, text))
    };
    let (code, listed) = run(&["sessions", "list"])?;
    ensure!((code, listed.trim()) == (0, "No conversations yet."), "{listed}");

    let gateway = place.start().await?;
    place.telegram.alice().says("hello");
    place.telegram.alice().hears().await?;
    let (code, status) = run(&["gateway", "status", "--json"])?;
    ensure!(code == 0 && serde_json::from_str::<Value>(&status)?["store"] == "ok", "{status}");
    let (code, sessions) = run(&["sessions", "list", "--json"])?;
    ensure!(code == 0 && sessions.contains("agent:main:telegram:dm:7"), "{sessions}");
    let (_, doctor) = run(&["doctor"])?;
    ensure!(doctor.contains("postgres://hookgate:***@") && doctor.contains("is sound"), "{doctor}");
    let (code, shown) = run(&["config", "show"])?;
    ensure!(code == 0 && shown.contains("postgres://hookgate:***@"), "{shown}");
    run(&["config", "show", "--json"])?;
    run(&["config", "check"])?;

    // Another home with the same database is refused.
    let other = tempfile::tempdir()?;
    std::fs::copy(place.home.path().join("config.yaml"), other.path().join("config.yaml"))?;
    let output = hookgate(other.path()).args(["gateway", "run"]).output()?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{text}");
    ensure!(text.contains("another hookgate (at the same machine) uses the database postgres"), "{text}");
    ensure!(!text.contains(PASSWORD), "{text}");
    ensure!(gateway.stop().await? == 0);
    Ok(())
}

#[test]
fn a_start_tells_what_to_change_from_what_to_wait_for() -> Result<()> {
    let home = tempfile::tempdir()?;
    let start = |url: &str| -> Result<(Option<i32>, String)> {
        std::fs::write(home.path().join("config.yaml"), format!("storage: {{url: '{url}'}}\nconsole: {{port: 0}}\n"))?;
        let output = hookgate(home.path()).args(["gateway", "run"]).output()?;
        let text = String::from_utf8(output.stderr)?;
        ensure!(!text.contains("hunter2"), "{text}");
        Ok((output.status.code(), text))
    };
    let (code, text) = start("postgres://alice:hunter2@127.0.0.1:1/x")?;
    ensure!(code == Some(1) && text.contains("the database x at 127.0.0.1:1 cannot be reached"), "{text}");
    let (code, text) = start("postgres://alice:hunter2@127.0.0.1:1/x?sslmod=require")?;
    ensure!(code == Some(78) && text.contains("\"sslmod\""), "{text}");
    let (code, text) = start("postgres://alice:1/hunter2@127.0.0.1/x")?;
    ensure!(code == Some(78) && text.contains("%-codes"), "{text}");
    let Some(server) = shared() else { return Ok(()) };
    server.make_guarded_user();
    let guarded = url(server.directory(), "postgres").replace("hookgate:", "guarded:").replace(PASSWORD, "hunter2");
    let (code, text) = start(&guarded)?;
    ensure!(code == Some(78) && text.contains("correct the user and the password in storage.url"), "{text}");
    Ok(())
}
