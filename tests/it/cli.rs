//! The command line: the real binary on homes of its own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::fake_model::FakeModel;
use crate::support::fake_telegram::{FakeTelegram, Fault, TOKEN};
use crate::support::process::{Place, Ran, hookgate, run};
use crate::support::world::{CONSOLE_TOKEN, MODEL_KEY, SECRET, World};

/// A home with this configuration and free ports.
fn home(yaml: &str) -> Result<TempDir> {
    let home = tempfile::tempdir()?;
    fs::write(home.path().join("config.yaml"), yaml)?;
    Ok(home)
}

const FREE_PORTS: &str = "console: {port: 0}\nplatforms: {webhook: {extra: {port: 0}}}\n";

async fn on(home: &TempDir, args: &[&str], input: &str) -> Result<Ran> {
    let mut command = hookgate(home.path());
    command.args(args);
    run(command, input).await
}

#[tokio::test]
async fn chat_without_a_gateway_answers_each_line_in_order() -> Result<()> {
    let home = tempfile::tempdir()?;
    let lines: String = (0..150).map(|n| format!("line {n}\n")).collect();
    let ran = on(&home, &["chat"], &lines).await?;
    assert_eq!((ran.code, ran.out, ran.err), (0, lines, String::new()));
    let ran = on(&home, &["chat", "--json"], "one\n\n  \ntwo\r\nlast").await?.ok()?;
    assert_eq!(ran.json()?, json!([{ "text": "one" }, { "text": "two" }, { "text": "last" }]));
    let ran = on(&home, &["chat", "--json"], "/help\n/start\n/nosuch\n").await?.ok()?.json()?;
    assert_eq!(ran[1]["text"], "Unknown command /nosuch. /help lists the commands.");
    for (args, out) in [(vec!["chat"], ""), (vec!["chat", "--json"], "[]\n")] {
        let ran = on(&home, &args, "").await?;
        assert_eq!((ran.code, ran.out.as_str()), (0, out));
    }
    let ran = on(&home, &["chat", "--chat", "a b"], "hello\n").await?;
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("A chat's name has 1 to 64 letters"), "{}", ran.err);
    Ok(())
}

#[tokio::test]
async fn what_is_not_utf8_is_no_end_of_the_input() -> Result<()> {
    let home = tempfile::tempdir()?;
    let mut child = hookgate(home.path()).arg("chat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("a pipe")?.write_all(b"caf\xe9\nnext\n")?;
    assert_eq!(String::from_utf8(child.wait_with_output()?.stdout)?, "caf\u{fffd}\nnext\n");
    Ok(())
}

#[tokio::test]
async fn chat_joins_a_running_gateway() -> Result<()> {
    let place =
        Place::with(&World::default().without_telegram(), FakeTelegram::start().await, FakeModel::echo().await)?;
    let gateway = place.start().await?;
    let ran = run(place.command(&["chat"]), "one\ntwo\n").await?.ok()?;
    assert_eq!(ran.out, "echo: one\necho: two\n");
    assert_eq!(gateway.local.hears("cli", 2).await?, ["echo: one", "echo: two"]);
    let ran = run(place.command(&["--json", "chat", "--chat", "other"]), "three\n").await?.ok()?;
    assert_eq!(ran.json()?, json!([{ "text": "echo: three" }]));
    let listed = place.run(&["sessions", "list", "--json"]).await?.ok()?.json()?;
    let keys: Vec<_> = listed.as_array().context("a list")?.iter().map(|session| &session["key"]).collect();
    assert_eq!(keys, ["agent:main:local:dm:other", "agent:main:local:dm:cli"]);
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn chat_ends_when_a_reset_closes_what_waits() -> Result<()> {
    let place =
        Place::with(&World::default().without_telegram(), FakeTelegram::start().await, FakeModel::start().await)?;
    place.model.holds("never said");
    let gateway = place.start().await?;
    let mut child = place.command(&["chat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    input.write_all(b"one\n")?;
    place.model.is_asked(1).await;
    input.write_all(b"two\nthree\n/new\n")?;
    drop(input);
    let output = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = tokio::time::timeout(Duration::from_secs(5), output).await.context("the chat goes on")???;
    let said = String::from_utf8(output.stdout)?;
    assert!(output.status.success() && said.contains('2') && said.lines().count() == 1, "{said:?}");
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn chat_waits_for_a_gateway_that_is_started_again() -> Result<()> {
    let place =
        Place::with(&World::default().without_telegram(), FakeTelegram::start().await, FakeModel::echo().await)?;
    let gateway = place.start().await?;
    let mut child = place.command(&["chat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    input.write_all(b"one\n")?;
    gateway.local.hears("cli", 1).await?;
    assert_eq!(gateway.stop().await?, 0);
    input.write_all(b"two\nthree\n")?;
    drop(input);
    let gateway = place.start().await?;
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await??;
    assert_eq!(
        (output.status.code(), String::from_utf8(output.stdout)?.as_str()),
        (Some(0), "echo: one\necho: two\necho: three\n")
    );
    assert_eq!(gateway.local.hears("cli", 3).await?.len(), 3);
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn chat_hears_of_what_was_settled_while_it_was_not_told() -> Result<()> {
    let place =
        Place::with(&World::default().without_telegram(), FakeTelegram::start().await, FakeModel::start().await)?;
    place.model.hangs().says("[SILENT]").says("Two.");
    let gateway = place.start().await?;
    let mut child = place.command(&["chat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("a pipe")?.write_all(b"one\ntwo\n")?;
    place.model.is_asked(1).await;
    place.stored("select count(*) = 2 from inbox").await?;
    let chat = Pid::from_raw(child.id().cast_signed());
    kill(chat, Signal::SIGSTOP)?;
    gateway.kill()?;
    let gateway = place.start().await?;
    gateway.local.hears("cli", 1).await?;
    place.rests().await?;
    kill(chat, Signal::SIGCONT)?;
    let output = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = tokio::time::timeout(Duration::from_secs(5), output).await.context("the chat goes on")???;
    assert_eq!((output.status.code(), String::from_utf8(output.stdout)?.as_str()), (Some(0), "Two.\n"));
    assert_eq!(gateway.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn config_check_says_where_and_what_was_meant() -> Result<()> {
    let good = home("model: {provider: echo}\n")?;
    assert_eq!(on(&good, &["config", "check"], "").await?.ok()?.out, "The configuration has no problems.\n");
    assert_eq!(
        on(&good, &["config", "check", "--json", "--strict"], "").await?.ok()?.json()?,
        json!({ "ok": true, "problems": [] })
    );

    let warned = home("model: {provider: echo}\nlimts: {turns: 3}\n")?;
    let ran = on(&warned, &["config", "check"], "").await?.ok()?;
    assert!(ran.out.contains(":2:1: limts: ") && ran.out.contains("did you mean `limits`?"), "{}", ran.out);
    let ran = on(&warned, &["config", "check", "--strict"], "").await?;
    assert_eq!(ran.code, 1);
    assert!(ran.out.starts_with("error: "), "{}", ran.out);

    let bad = home("model: {provider: opnai}\nlimits:\n  turns: many\n")?;
    let ran = on(&bad, &["config", "check"], "").await?;
    let place = bad.path().join("config.yaml").display().to_string();
    assert_eq!(ran.code, 1);
    let expected = [format!("error: {place}:1:9: model.provider: "), format!("error: {place}:3:10: limits.turns: ")];
    for (line, expected) in ran.out.lines().zip(&expected) {
        assert!(line.starts_with(expected), "{line}");
    }
    assert!(ran.out.contains("did you mean `openai`?"), "{}", ran.out);
    let report = on(&bad, &["config", "check", "--json"], "").await?;
    assert_eq!((report.code, &report.json()?["ok"]), (1, &json!(false)));
    assert_eq!(
        (&report.json()?["problems"][1]["line"], &report.json()?["problems"][1]["column"]),
        (&json!(3), &json!(10))
    );

    // The gateway does not start on it and says the same; other commands point to the check.
    let list: String =
        ran.out.lines().filter_map(|line| line.strip_prefix("error: ")).map(|line| format!("{line}\n")).collect();
    let started = on(&bad, &["gateway", "run"], "").await?;
    assert_eq!((started.code, started.out.as_str()), (78, ""));
    assert_eq!(started.err, format!("hookgate: The configuration cannot be used:\n{list}"));
    let started = on(&bad, &["gateway", "run", "--json"], "").await?;
    assert_eq!((started.code, started.json()?["error"].is_string()), (78, true));
    for command in [&["chat"][..], &["sessions", "list"]] {
        let ran = on(&bad, command, "").await?;
        assert_eq!((ran.code, ran.out.as_str()), (78, ""), "{command:?}");
        assert!(ran.err.contains("hookgate config check"), "{}", ran.err);
    }
    // A gateway that runs on what the file was before can still be asked and stopped.
    let status = on(&bad, &["gateway", "status"], "").await?;
    assert_eq!(status.code, 1, "none runs");
    assert!(status.err.contains("hookgate config check"), "{}", status.err);
    Ok(())
}

#[tokio::test]
async fn a_running_gateway_is_asked_and_stopped_although_the_file_was_broken_since() -> Result<()> {
    let place = Place::new(&World::default().echo()).await?;
    let mut gateway = place.start().await?;
    fs::write(place.home.path().join("config.yaml"), "console: {port: many}\n")?;
    let status = place.run(&["gateway", "status", "--json"]).await?;
    assert_eq!((status.code, &status.json()?["running"]), (0, &json!(true)), "{status:?}");
    let stopped = place.run(&["gateway", "stop"]).await?;
    assert_eq!((stopped.code, gateway.ended().await?.code()), (0, Some(0)), "{stopped:?}");
    Ok(())
}

#[tokio::test]
async fn code_of_the_reference_that_does_not_run_is_named() -> Result<()> {
    let home = home("")?;
    fs::create_dir_all(home.path().join("hooks/guard"))?;
    fs::write(home.path().join("hooks/guard/HOOK.yaml"), "events: [agent:start]\n")?;
    let checked = on(&home, &["config", "check"], "").await?.ok()?;
    assert!(
        checked.out.contains("gateway hooks are not supported yet") && checked.out.contains("NOT blocked"),
        "{}",
        checked.out
    );
    Ok(())
}

#[tokio::test]
async fn config_show_masks_secrets_and_reads_back() -> Result<()> {
    let place = Place::new(&World::default()).await?;
    fs::write(place.home.path().join(".env"), "EXTRA=1\n")?;
    let shown = place.run(&["config", "show"]).await?.ok()?.out;
    let json = place.run(&["config", "show", "--json"]).await?.ok()?;
    assert!(shown.contains("turns: 32") && shown.contains("provider: openai"), "{shown}");
    assert_eq!(json.json()?["limits"]["turns"], 32);
    for secret in [TOKEN, MODEL_KEY, SECRET, CONSOLE_TOKEN] {
        assert!(!shown.contains(secret) && !json.out.contains(secret), "{shown}");
    }
    let again = home(&shown)?;
    let checked = on(&again, &["config", "check"], "").await?;
    assert!(!checked.out.contains("cannot be read") && checked.code <= 1, "{}", checked.out);

    let paths = place.run(&["config", "path"]).await?.ok()?.out;
    let expected = ["config.yaml", ".env"].map(|name| format!("{}\n", place.home.path().join(name).display()));
    assert_eq!(paths, expected.concat());
    let empty = tempfile::tempdir()?;
    let paths = on(&empty, &["config", "path", "--json"], "").await?.ok()?.json()?;
    let exists: Vec<_> = paths.as_array().context("a list")?.iter().map(|file| &file["exists"]).collect();
    assert_eq!(exists, [false, false]);
    Ok(())
}

#[tokio::test]
async fn sessions_are_listed_shown_and_reset_with_and_without_a_gateway() -> Result<()> {
    let home = home(FREE_PORTS)?;
    assert_eq!(on(&home, &["sessions", "list"], "").await?.ok()?.out, "No conversations yet.\n");
    assert_eq!(on(&home, &["sessions", "list", "--json"], "").await?.ok()?.out, "[]\n");
    let place = Place::with(
        &World::default().without_telegram().echo(),
        FakeTelegram::start().await,
        FakeModel::start().await,
    )?;
    run(place.command(&["chat"]), "hello\n").await?.ok()?;
    for running in [false, true] {
        let gateway = if running { Some(place.start().await?) } else { None };
        let listed = place.run(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        let id = listed[0]["id"].as_str().context("an id")?.to_owned();
        let table = place.run(&["sessions", "list"]).await?.ok()?.out;
        assert!(
            table.starts_with("SESSION ") && table.contains(&id) && table.contains("agent:main:local:dm:cli"),
            "{table}"
        );
        for name in [id.as_str(), "agent:main:local:dm:cli"] {
            let shown = place.run(&["sessions", "show", name, "--json"]).await?.ok()?.json()?;
            let texts: Vec<_> =
                shown["messages"].as_array().context("a list")?.iter().map(|message| &message["text"]).collect();
            assert_eq!(texts, ["hello", "hello"]);
            assert_eq!(shown["session"]["id"], json!(id));
        }
        assert!(place.run(&["sessions", "show", &id]).await?.ok()?.out.contains("] user:\nhello\n"));
        let reset = place.run(&["sessions", "reset", &id, "--json"]).await?.ok()?.json()?;
        assert_eq!(reset, json!({ "reset": true, "session_id": id }));
        for unknown in [&["sessions", "show", "nope"][..], &["sessions", "reset", "nope"], &["sessions", "reset", &id]]
        {
            let ran = place.run(unknown).await?;
            assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{unknown:?}");
            assert!(ran.err.contains("`hookgate sessions list` shows them"), "{}", ran.err);
            let mut command = place.command(unknown);
            command.arg("--json");
            assert!(run(command, "").await?.json()?["error"].is_string());
        }
        run(place.command(&["chat"]), "hello\n").await?.ok()?;
        let listed = place.run(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        assert_eq!((&listed[0]["end_reason"], &listed[1]["end_reason"]), (&Value::Null, &json!("reset")));
        assert_ne!(listed[0]["id"], json!(id));
        if let Some(gateway) = gateway {
            assert_eq!(gateway.stop().await?, 0);
        }
    }
    Ok(())
}

#[tokio::test]
async fn doctor_says_what_is_well_and_what_is_not() -> Result<()> {
    let fine = home(FREE_PORTS)?;
    let ran = on(&fine, &["doctor"], "").await?.ok()?;
    assert!(ran.out.lines().all(|line| line.starts_with("ok ")), "{}", ran.out);
    let place = Place::new(&World::default()).await?;
    let report = place.run(&["doctor", "--json"]).await?.ok()?.json()?;
    assert_eq!(report["ok"], true);
    let of = |report: &Value, name: &str| {
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        findings.into_iter().find(|finding| finding["name"] == name).unwrap_or_default()
    };
    assert_eq!(of(&report, "telegram")["message"], "the token is @hookgate_bot's");
    place.telegram.fail("getMe", [Fault::Refuse(401, "Unauthorized".into())]);
    let ran = place.run(&["doctor"]).await?;
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.contains(
            "FAILED   telegram  Telegram refuses the bot token; check TELEGRAM_BOT_TOKEN (or the account's token)"
        ),
        "{}",
        ran.out
    );
    place.telegram.goes_away();
    let ran = place.run(&["--json", "doctor"]).await?;
    assert_eq!((ran.code, &ran.json()?["ok"]), (1, &json!(false)));
    let telegram = of(&ran.json()?, "telegram");
    assert!(
        telegram["state"] == "failed" && telegram["message"].to_string().contains("cannot be reached"),
        "{telegram}"
    );
    assert!(!ran.out.contains(TOKEN));
    Ok(())
}

#[tokio::test]
async fn global_flags_stand_anywhere_and_usage_errors_are_2() -> Result<()> {
    let home = tempfile::tempdir()?;
    let path = home.path().display().to_string();
    for args in [
        vec!["--json", "sessions", "list"],
        vec!["sessions", "--json", "list"],
        vec!["sessions", "list", "--json"],
        vec!["--home", &path, "sessions", "list", "--json"],
        vec!["sessions", "list", "--json", "--home", &path],
    ] {
        assert_eq!(on(&home, &args, "").await?.ok()?.json()?, json!([]), "{args:?}");
    }
    for args in [
        vec![],
        vec!["nosuch"],
        vec!["sessions"],
        vec!["sessions", "show"],
        vec!["--nosuch"],
        vec!["gateway", "run", "--log", "a=b=c"],
    ] {
        let ran = on(&home, &args, "").await?;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(!ran.err.is_empty());
    }
    let version = on(&home, &["--version"], "").await?.ok()?.out;
    assert_eq!(version, format!("hookgate {}\n", env!("CARGO_PKG_VERSION")));
    let help = on(&home, &["--help"], "").await?.ok()?.out;
    for command in ["gateway", "chat", "config", "webhook", "sessions", "doctor"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command}: {help}");
        assert!(on(&home, &[command, "--help"], "").await?.ok()?.out.contains("--json"));
    }
    Ok(())
}

#[tokio::test]
async fn every_listing_is_one_json_document_and_nothing_else() -> Result<()> {
    let place = Place::new(&World::default().setting("limts: {}")).await?; // a warning must not get in between
    let gateway = place.start().await?;
    for args in [
        &["gateway", "status"][..],
        &["config", "check"],
        &["config", "show"],
        &["config", "path"],
        &["sessions", "list"],
        &["webhook", "list"],
        &["webhook", "show", "github"],
        &["webhook", "subscribe", "news"],
        &["webhook", "test", "news"],
        &["webhook", "remove", "news"],
        &["doctor"],
        &["chat"],
    ] {
        let mut command = place.command(args);
        command.arg("--json");
        let ran = run(command, "").await?;
        ran.json().with_context(|| format!("{args:?}"))?;
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        let out = ran.out + &ran.err;
        for secret in [TOKEN, MODEL_KEY, SECRET, CONSOLE_TOKEN] {
            assert!(!out.contains(secret), "{args:?}: {out}");
        }
    }
    let stopped = place.run(&["gateway", "stop", "--json"]).await?.ok()?.json()?;
    assert_eq!(stopped, json!({ "stopped": true, "pid": gateway.pid() }));
    assert_eq!(place.run(&["gateway", "stop"]).await?.code, 1);
    let status = place.run(&["gateway", "status", "--json"]).await?;
    assert_eq!((status.code, &status.json()?["running"]), (1, &json!(false)));
    drop(gateway);
    Ok(())
}

#[tokio::test]
async fn the_home_is_chosen_as_documented() -> Result<()> {
    async fn home_of(user: &Path, variables: &[(&str, &Path)], args: &[&str]) -> Result<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hookgate"));
        command.env_clear().env("HOME", user).args(args).args(["config", "path", "--json"]);
        command.envs(variables.iter().map(|(name, path)| (name, path)));
        let files = run(command, "").await?.ok()?.json()?;
        Ok(files[0]["path"].as_str().unwrap_or_default().trim_end_matches("/config.yaml").to_owned())
    }
    let user = tempfile::tempdir()?;
    let user = user.path();
    let [a, b, c] = ["a", "b", "c"].map(|name| user.join(name));
    let shown = |path: &Path| path.display().to_string();
    let both = [("HOOKGATE_HOME", b.as_path()), ("HERMES_HOME", c.as_path())];
    assert_eq!(home_of(user, &both, &["--home", &shown(&a)]).await?, shown(&a));
    assert_eq!(home_of(user, &both, &[]).await?, shown(&b));
    assert_eq!(home_of(user, &both[1..], &[]).await?, shown(&c));
    fs::create_dir(user.join(".hermes"))?;
    fs::write(user.join(".hermes/config.yaml"), "model: {provider: nosuch}\n")?;
    assert_eq!(home_of(user, &[], &[]).await?, shown(&user.join(".hermes")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookgate"));
    command.env_clear().env("HOME", user).args(["gateway", "run"]);
    let start = run(command, "").await?;
    assert_eq!(start.code, 78);
    assert!(
        start.out.starts_with(&format!("using the existing home {}", shown(&user.join(".hermes")))),
        "{}",
        start.out
    );
    fs::create_dir(user.join(".hookgate"))?;
    assert_eq!(home_of(user, &[], &[]).await?, shown(&user.join(".hookgate")));
    fs::remove_dir(user.join(".hookgate"))?;
    fs::remove_dir_all(user.join(".hermes"))?;
    assert_eq!(home_of(user, &[], &[]).await?, shown(&user.join(".hookgate")), "it is created");
    assert!(user.join(".hookgate").is_dir());
    Ok(())
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_crash() -> Result<()> {
    let home = home(FREE_PORTS)?;
    let mut child =
        hookgate(home.path()).args(["config", "show"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().context("a pipe")?.read_to_string(&mut err)?;
    assert_eq!((child.wait()?.code(), err.as_str()), (Some(0), ""));
    // A disk that is full is told, and is no success.
    let full = fs::File::options().write(true).open("/dev/full")?;
    let output = hookgate(home.path()).args(["config", "show"]).stdout(full).output()?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr)?.contains("standard output cannot be written"));
    Ok(())
}

#[tokio::test]
async fn a_gateway_whose_terminal_is_gone_works_on() -> Result<()> {
    let place = Place::with(&World::default(), FakeTelegram::start().await, FakeModel::echo().await)?;
    let mut command = place.command(&["gateway", "run", "--log", "debug"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop((child.stdout.take(), child.stderr.take()));
    let alice = place.telegram.alice();
    alice.says("anybody there?");
    assert_eq!(alice.hears().await?.text, "echo: anybody there?");
    place.telegram.mallory().says("me too");
    alice.says("still there?");
    assert_eq!(alice.hears().await?.text, "echo: still there?");
    assert_eq!(place.run(&["gateway", "stop"]).await?.code, 0);
    assert_eq!(child.wait()?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn no_output_tells_a_secret_whatever_fails_and_at_any_log_level() -> Result<()> {
    let direct = format!(
        "direct: {{secret: {SECRET}, deliver_only: true, prompt: 'news {{n}}', deliver: telegram, deliver_extra: {{chat_id: '{{chat}}'}}}}"
    );
    let place = Place::new(&World::default().route(&direct)).await?;
    let leaky = || Fault::Refuse(400, format!("Bad Request: https://api.telegram.org/bot{TOKEN}/x"));
    let faults = [Fault::DropBefore, Fault::Page(500), Fault::Page(403), Fault::Garbage, leaky()];
    place.telegram.fail("getMe", [Fault::Page(502)]);
    let gateway = place.start_with(&["--log", "trace"]).await?;
    place.telegram.fail("getUpdates", [Fault::Garbage, leaky()]);
    // One chat each, so that no send waits for another's second try.
    let deliveries = (0..faults.len()).map(async |n| {
        let chat = place.telegram.user(100 + i64::try_from(n)?, "Somebody").chat_id;
        gateway.webhooks.github("direct", "push", &format!("d-{n}"), &json!({ "n": n, "chat": chat })).await
    });
    place.telegram.fail("sendMessage", faults.clone());
    for answer in futures_util::future::join_all(deliveries).await {
        let answer = answer?;
        assert!([200, 202, 502].contains(&answer.status), "{answer:?}");
        assert!(!answer.text.contains(TOKEN));
    }
    // The model's server repeats the key it does not like, and a model repeats what it was never told.
    place.model.fails(401, &[], &format!("Incorrect API key provided: {MODEL_KEY}"));
    place.model.says(&format!("The token is {TOKEN}, the key {MODEL_KEY}."));
    let alice = place.telegram.alice();
    alice.says("hello");
    alice.says("what is your token?");
    place
        .telegram
        .wait_until("all is told", |telegram| {
            telegram.sent().iter().any(|message| message.text.starts_with("The token is"))
        })
        .await?;
    let sent = place.telegram.sent();
    assert_eq!(sent.last().context("an answer")?.text, "The token is [redacted], the key [redacted].");
    assert!(sent.iter().all(|message| !message.raw.contains(MODEL_KEY)));
    let mut said = place.run(&["gateway", "status", "--json"]).await?.out;
    place.telegram.goes_away();
    for args in [
        &["doctor"][..],
        &["gateway", "status"],
        &["webhook", "list"],
        &["sessions", "list"],
        &["sessions", "show", "agent:main:telegram:dm:7"],
    ] {
        let ran = place.run(args).await?;
        said += &(ran.out + &ran.err);
    }
    tokio::time::timeout(Duration::from_secs(20), async {
        while !gateway.log().contains("Telegram cannot be reached") && !gateway.log().contains("onnect") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await?;
    let log = gateway.log();
    assert!(log.contains("TRACE") && said.contains("FAILED"));
    let page = format!("?token={CONSOLE_TOKEN}\n");
    assert_eq!(log.matches(&page).count(), 1, "the start tells the page's address");
    let all = said + &log.replace(&page, "");
    for secret in [TOKEN, TOKEN.split_once(':').context("a token")?.1, SECRET, MODEL_KEY, CONSOLE_TOKEN] {
        let at = all.find(secret).unwrap_or(0);
        assert!(!all.contains(secret), "{secret}: {}", &all[at.saturating_sub(300)..at + 100]);
    }
    drop(gateway);
    Ok(())
}

#[tokio::test]
async fn completions_and_the_schema_are_printed_whole() -> Result<()> {
    let home = tempfile::tempdir()?;
    for (shell, sign) in [("bash", "_hookgate()"), ("zsh", "#compdef hookgate"), ("fish", "complete -c hookgate")] {
        let mut command = hookgate(home.path());
        command.args(["completions", shell]);
        let ran = run(command, "").await?.ok()?;
        assert!(ran.out.contains(sign) && ran.out.contains("subscribe"), "{shell}");
    }
    let mut command = hookgate(home.path());
    command.args(["config", "schema"]);
    let schema = run(command, "").await?.ok()?.json()?;
    assert_eq!(schema["properties"]["storage"]["properties"]["retention_days"]["default"], 30);
    Ok(())
}

#[tokio::test]
async fn setup_checks_the_token_and_writes_it_beside_what_was_there() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let home = home(&format!("telegram: {{extra: {{base_url: '{}'}}}}\n", telegram.base_url()))?;
    let before = "# mine\nTELEGRAM_BOT_TOKEN=1:old\nOTHER=1\n";
    fs::write(home.path().join(".env"), before)?;
    let setup = |input: &'static str| {
        let mut command = hookgate(home.path());
        command.arg("setup");
        run(command, input)
    };
    let refused = setup("1:wrong\n1:wrong\n1:wrong\n").await?;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert_eq!(fs::read_to_string(home.path().join(".env"))?, before);
    let input: &'static str = Box::leak(format!("{TOKEN}\nAlice\n7, 8\n").into_boxed_str());
    let done = setup(input).await?.ok()?;
    assert!(
        done.out.contains("hookgate gateway run") && !done.out.contains(TOKEN) && !done.err.contains(TOKEN),
        "{done:?}"
    );
    let written = fs::read_to_string(home.path().join(".env"))?;
    assert_eq!(written, format!("# mine\nTELEGRAM_BOT_TOKEN={TOKEN}\nOTHER=1\nTELEGRAM_ALLOWED_USERS=7,8\n"));
    assert_eq!(fs::metadata(home.path().join(".env"))?.permissions().mode() & 0o777, 0o600);
    assert!(setup("\n\n").await?.ok()?.out.contains("Nothing was changed."));
    for (input, why) in
        [("", "The input ended"), ("1:wrong\n", "The input ended"), ("1:wrong\n\n\n", "No token was accepted")]
    {
        let nothing = setup(input).await?;
        assert_eq!(nothing.code, 1, "{nothing:?}");
        assert!(nothing.err.contains(why) && nothing.err.contains("nothing was written"), "{nothing:?}");
    }
    assert_eq!(fs::read_to_string(home.path().join(".env"))?, written);
    Ok(())
}

#[tokio::test]
async fn a_first_setup_asks_the_configured_server_through_the_proxy() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let home = home("telegram: {extra: {base_url: 'http://telegram.invalid'}}\n")?;
    // Plain HTTP goes through a proxy with whole addresses, which the fake serves as its own.
    fs::write(home.path().join(".env"), format!("http_proxy={}\n", telegram.base_url()))?;
    let mut command = hookgate(home.path());
    command.arg("setup");
    let done = run(command, Box::leak(format!("{TOKEN}\n7\n").into_boxed_str())).await?.ok()?;
    assert!(done.out.contains("TELEGRAM_BOT_TOKEN"), "{done:?}");
    Ok(())
}

#[tokio::test]
async fn a_proxy_that_is_no_address_is_named_without_its_password() -> Result<()> {
    let home = home("")?;
    fs::write(home.path().join(".env"), "HTTPS_PROXY=sucks://user:pass-word@proxy:1080\n")?;
    let mut command = hookgate(home.path());
    command.args(["config", "check"]);
    let told = run(command, "").await?;
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.out.contains("HTTPS_PROXY: this is not the address of a proxy"), "{told:?}");
    assert!(!format!("{told:?}").contains("pass-word"));
    Ok(())
}

#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_nothing() -> Result<()> {
    /// Ends with the test, however that ends.
    struct Guarded(Child);
    impl Drop for Guarded {
        fn drop(&mut self) {
            let _ = self.0.kill();
        }
    }
    let limits = World::default()
        .without_telegram()
        .setting("limits: {failed_signatures_per_minute: 100000}")
        .route("note: {secret: the-github-secret, prompt: x, deliver: log, deliver_only: true}");
    let place = Place::with(&limits, FakeTelegram::start().await, FakeModel::echo().await)?;
    let mut command = place.command(&["gateway", "run", "--log", "debug"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut child = Guarded(child);
    let file = place.home.path().join("console.json");
    let url = loop {
        let told: Option<Value> = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(url) = told.as_ref().and_then(|told| told["webhook_url"].as_str()) {
            break url.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
    for _ in 0..1_000 {
        let post = client.post(format!("{url}/webhooks/note")).header("X-Hub-Signature-256", "sha256=00").body("{}");
        assert_eq!(post.send().await?.status(), 401);
    }
    assert_eq!(client.get(format!("{url}/health")).send().await?.status(), 200);
    kill(Pid::from_raw(child.0.id().cast_signed()), Signal::SIGTERM)?;
    let ended = tokio::task::spawn_blocking(move || child.0.wait());
    let ended = tokio::time::timeout(Duration::from_secs(5), ended).await.context("it does not end")???;
    assert_eq!(ended.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn standard_output_that_is_full_is_no_failed_run() -> Result<()> {
    let place =
        Place::with(&World::default().without_telegram(), FakeTelegram::start().await, FakeModel::echo().await)?;
    let full = fs::File::options().write(true).open("/dev/full")?;
    let mut child = place.command(&["gateway", "run"]).stdin(Stdio::null()).stdout(full).spawn()?;
    while !place.home.path().join("console.json").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    place.run(&["gateway", "stop"]).await?.ok()?;
    assert_eq!(child.wait()?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_configured_secret_in_a_conversation_is_not_shown() -> Result<()> {
    let place = Place::with(
        &World::default().without_telegram().echo(),
        FakeTelegram::start().await,
        FakeModel::start().await,
    )?;
    fs::write(place.home.path().join(".env"), "DEPLOY_TOKEN=a-secret-of-mine\n")?;
    let mut command = place.command(&["chat"]);
    command.stdin(Stdio::piped());
    run(command, "my token is a-secret-of-mine\n").await?;
    let list = place.run(&["sessions", "list", "--json"]).await?.ok()?.json()?;
    let id = list[0]["id"].as_str().context("an id")?.to_owned();
    for json in [&[][..], &["--json"]] {
        let shown = place.run(&[&["sessions", "show", &id][..], json].concat()).await?.ok()?.out;
        assert!(shown.contains("my token is [redacted]") && !shown.contains("a-secret-of-mine"), "{shown}");
    }
    Ok(())
}

#[tokio::test]
async fn doctor_asks_the_model_and_says_what_is_wrong_with_it() -> Result<()> {
    let of = async |model: &str| {
        let provider = if model.contains("provider: ") { "" } else { "provider: openai, " };
        let home = home(&format!("{FREE_PORTS}model: {{{provider}default: m, {model}}}\n"))?;
        let ran = on(&home, &["doctor"], "").await?;
        let line = ran.out.lines().find(|line| line.contains("  model")).context("a line")?.to_owned();
        Ok::<_, anyhow::Error>((ran.code, line))
    };
    let (code, line) = of("base_url: 'http://127.0.0.1:1/v1', api_key: sk-hidden-key").await?;
    assert!(code == 1 && line.starts_with("FAILED") && line.contains("the server cannot be reached"), "{line}");
    assert!(!line.contains("sk-hidden-key"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("base_url: 'http://{}/v1'", listener.local_addr()?);
    let answers = tokio::spawn(async move {
        for status in ["401 Unauthorized", "404 Not Found", "401 Unauthorized", "200 OK"] {
            let (mut stream, _) = listener.accept().await?;
            let mut head = vec![0; 4096];
            let read = tokio::io::AsyncReadExt::read(&mut stream, &mut head).await?;
            assert!(head[..read].starts_with(b"GET /v1/models "), "{}", String::from_utf8_lossy(&head));
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer.as_bytes()).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    let (code, line) = of(&format!("{server}, api_key: sk-hidden-key")).await?;
    assert!(code == 1 && line.contains("the server refuses the key; check model.api_key (OPENAI_API_KEY)"), "{line}");
    let (code, line) = of(&server).await?;
    assert!(code == 0 && line.starts_with("warning") && line.contains("without a key"), "{line}");
    let anthropic = format!("provider: anthropic, {server}, api_key: sk-hidden-key");
    let (code, line) = of(&anthropic).await?;
    assert!(
        code == 1 && line.contains("the server refuses the key; check model.api_key (ANTHROPIC_API_KEY)"),
        "{line}"
    );
    let (code, line) = of(&anthropic).await?;
    assert!(code == 0 && line.starts_with("ok") && line.contains("m at http://127.0.0.1:"), "{line}");
    answers.await??;
    let (code, line) = of("provider: replay, replay: nosuch.jsonl").await?;
    assert!(code == 1 && line.contains("model.replay: cannot read ") && line.contains("nosuch.jsonl"), "{line}");
    Ok(())
}

#[tokio::test]
async fn what_scripts_of_the_reference_say_is_understood() -> Result<()> {
    let fine = home(FREE_PORTS)?;
    on(&fine, &["--accept-hooks", "config", "check"], "").await?.ok()?;
    on(&fine, &["config", "check", "--accept-hooks"], "").await?.ok()?;
    let setup = on(&fine, &["gateway", "setup"], "").await?;
    assert!(setup.code == 1 && setup.err.contains("hookgate setup writes"), "{setup:?}");
    Ok(())
}
