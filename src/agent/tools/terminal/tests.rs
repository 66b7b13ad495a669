//! Commands as a model gives them, and what it reads of them.

use std::path::Path;
use std::sync::Mutex;

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::agent::tools::process::BackgroundSettings;
use crate::agent::tools::{Approval, ApprovalRequest, Host, Standing, ToolTurn};
use crate::redact;

/// A gateway whose hooks only look, unless told to answer.
#[derive(Default)]
pub(in crate::agent::tools) struct FakeHost {
    seen: Mutex<Vec<(String, String, i32)>>,
    answer: Option<String>,
}

#[async_trait]
impl Host for FakeHost {
    async fn note_effect(&self, _what: &str) -> Result<(), String> {
        Ok(())
    }

    fn standing(&self, _request: &ApprovalRequest) -> Standing {
        Standing::AskPerson
    }

    async fn approve(&self, _request: ApprovalRequest) -> Approval {
        Approval::Unasked("nobody is here".to_owned())
    }

    async fn send_message(&self, _target: Option<&str>, _text: &str) -> Result<String, String> {
        Err("not here".to_owned())
    }

    async fn clarify(&self, _question: &str, _options: &[String]) -> Result<String, String> {
        Err("not here".to_owned())
    }

    async fn transform_terminal_output(&self, command: &str, _cwd: &Path, output: String, exit_code: i32) -> String {
        self.seen.lock().unwrap().push((command.to_owned(), output.clone(), exit_code));
        self.answer.clone().unwrap_or(output)
    }
}

/// A turn with both tools.
pub(in crate::agent::tools) struct World {
    pub(in crate::agent::tools) dir: tempfile::TempDir,
    pub(in crate::agent::tools) terminal: Terminal,
    pub(in crate::agent::tools) background: Arc<BackgroundProcesses>,
    pub(in crate::agent::tools) turn: ToolTurn,
    host: Arc<FakeHost>,
}

pub(in crate::agent::tools) fn world(settings: TerminalSettings, bounds: BackgroundSettings) -> World {
    world_with(settings, bounds, FakeHost::default())
}

fn world_with(settings: TerminalSettings, bounds: BackgroundSettings, host: FakeHost) -> World {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(host);
    let turn = ToolTurn {
        session_id: "s1".to_owned(),
        turn_id: "t1".to_owned(),
        cwd: dir.path().to_owned(),
        stop: CancellationToken::new(),
        host: Arc::clone(&host) as Arc<dyn Host>,
    };
    let background = Arc::new(BackgroundProcesses::new(bounds));
    let terminal = Terminal::new(settings, Processes::new(4), Arc::clone(&background));
    World { dir, terminal, background, turn, host }
}

fn small() -> World {
    world(quick(), BackgroundSettings::default())
}

/// The grace is short, for tests that wait for it.
pub(in crate::agent::tools) fn quick() -> TerminalSettings {
    TerminalSettings { grace: Duration::from_millis(100), ..TerminalSettings::default() }
}

impl World {
    pub(in crate::agent::tools) async fn call(&self, tool: &dyn Tool, args: Value) -> Result<Value, ToolError> {
        let Value::Object(args) = args else { panic!("arguments are an object") };
        tool.call(&ToolCall { args: &args, turn: &self.turn }).await
    }

    async fn run(&self, args: Value) -> Result<Value, ToolError> {
        self.call(&self.terminal, args).await
    }

    async fn says(&self, command: &str) -> String {
        self.run(json!({ "command": command })).await.unwrap()["output"].as_str().unwrap().to_owned()
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

#[tokio::test]
async fn output_and_exit_code_are_told() {
    let world = small();
    let result = world.run(json!({ "command": "echo a; echo b >&2; echo c; exit 3" })).await.unwrap();
    assert_eq!(result, json!({ "output": "a\nb\nc", "exit_code": 3 }));
    assert_eq!(world.run(json!({ "command": "kill -9 $$" })).await.unwrap(), json!({ "output": "", "exit_code": 137 }));
    let seen = world.host.seen.lock().unwrap();
    assert_eq!(seen[0], ("echo a; echo b >&2; echo c; exit 3".to_owned(), "a\nb\nc\n".to_owned(), 3));
}

#[tokio::test]
async fn a_command_runs_where_it_is_told_and_the_next_where_the_session_is() {
    let world = small();
    std::fs::create_dir(world.path().join("sub")).unwrap();
    let dir = world.path().canonicalize().unwrap().display().to_string();
    assert_eq!(world.says("cd sub; pwd -P").await, format!("{dir}/sub"));
    assert_eq!(world.says("pwd -P").await, dir);
    let result = world.run(json!({ "command": "pwd -P", "cwd": "sub" })).await.unwrap();
    assert_eq!(result["output"], format!("{dir}/sub"));
    assert_eq!(world.run(json!({ "command": "pwd -P", "cwd": "/" })).await.unwrap()["output"], "/");
    let home = world.run(json!({ "command": "pwd -P", "cwd": "~" })).await.unwrap();
    assert_eq!(home["output"], std::fs::canonicalize(std::env::var("HOME").unwrap()).unwrap().display().to_string());
    let error = world.run(json!({ "command": "pwd", "cwd": "missing" })).await.unwrap_err().to_string();
    assert!(error.starts_with("the working directory ") && error.contains("missing cannot be entered"), "{error}");
}

#[tokio::test]
async fn there_is_no_input_no_pager_and_no_variable_but_those_passed_on() {
    let env = vec![("PASSED_ON".to_owned(), "yes".to_owned())];
    let world = world(TerminalSettings { env, ..quick() }, BackgroundSettings::default());
    assert_eq!(
        world.says("cat; echo $TERM $PAGER $PASSED_ON; test -t 1 || echo no terminal").await,
        "dumb cat yes\nno terminal"
    );
    // The shell sets the last few.
    let known = ["TERM", "PAGER", "PASSED_ON", "HOOKGATE_PROCESS_ID", "PWD", "OLDPWD", "SHLVL", "_"];
    let inherited = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER"];
    for line in world.says("env").await.lines() {
        let name = line.split_once('=').unwrap().0;
        assert!(known.contains(&name) || inherited.contains(&name) || name.starts_with("LC_"), "{line}");
    }
}

#[tokio::test]
async fn a_command_that_is_not_done_in_time_is_ended_and_its_output_told() {
    let world = small();
    let script = "trap '' TERM; sleep 300 & echo $! > pid; echo started; wait; while :; do sleep 1; done";
    let ToolError::TimedOut(told) = world.run(json!({ "command": script, "timeout": 1 })).await.unwrap_err() else {
        panic!("it was done")
    };
    let expected = "the command was not done after 1 s and was ended; allow it more time (`timeout`, at most 600), or run \
                    it in the background; its output so far:\nstarted";
    assert_eq!(told, expected);
    assert_eq!(world.host.seen.lock().unwrap()[0].2, 124);
    let pid = std::fs::read_to_string(world.path().join("pid")).unwrap();
    let probe = world.run(json!({ "command": format!("kill -0 {pid}") })).await.unwrap();
    assert_eq!(probe["exit_code"], 1);
}

#[tokio::test]
async fn the_longest_time_holds_whatever_is_asked_for() {
    let longest_timeout = Duration::from_secs(1);
    let world = world(TerminalSettings { longest_timeout, ..quick() }, BackgroundSettings::default());
    let script = "seq 10000; sleep 300";
    let error = world.run(json!({ "command": script, "timeout": "9999" })).await.unwrap_err().to_string();
    assert!(error.starts_with("the command was not done after 1 s and was ended; split it, or run"), "{error}");
    assert!(error.contains("; the end of its output so far:\n") && error.ends_with("\n10000"), "{error}");
    assert!(error.len() < 9000);
}

#[tokio::test]
async fn an_interrupted_turn_ends_the_command() {
    let world = small();
    let stop = world.turn.stop.clone();
    let (result, ()) = tokio::join!(world.run(json!({ "command": "sleep 300" })), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
    });
    assert_eq!(result.unwrap_err(), ToolError::Failed("the turn was interrupted".to_owned()));
}

#[tokio::test]
async fn wrong_arguments_are_told() {
    let world = small();
    for (args, expected) in [
        (json!({}), "the argument `command` is missing"),
        (json!({ "command": " \n" }), "the argument `command` is empty"),
        (json!({ "command": "true", "timeout": 0 }), "the argument `timeout` must be at least 1 second"),
        (json!({ "command": "a\0b" }), "the command cannot be passed on: nul byte found in provided data"),
    ] {
        assert_eq!(world.run(args).await.unwrap_err().to_string(), expected);
    }
}

#[tokio::test]
async fn long_output_is_cut_in_the_middle() {
    let world = small();
    let output = world.says("seq 100000").await;
    assert!(output.starts_with("1\n2\n") && output.ends_with("\n100000"), "{output}");
    assert!(output.len() < 50_100 && output.contains("\n[... 538895 bytes cut ...]\n"), "{output}");
}

#[tokio::test]
async fn secrets_are_masked_in_colour_at_the_cut_and_in_what_a_hook_says() {
    let value = "terminal-secret-0123456789";
    redact::add(&[SecretString::from(value)]);
    let world = small();
    assert_eq!(world.says(&format!("echo key={value}")).await, "key=[redacted]");
    assert_eq!(
        world.says(r"printf 'terminal-\033[31msecret-\033[0m0123456789 \377 end'").await,
        "[redacted] \u{fffd} end"
    );

    let world = super::tests::world(TerminalSettings { output_bytes: 100, ..quick() }, BackgroundSettings::default());
    for before in 0..60 {
        // The cut is at 40, and 60 from the end.
        let command = format!(
            "printf '%{before}s' ''; printf {value}; printf '%200s' ''; printf {value}; printf '%{before}s' ''"
        );
        let output = world.says(&command).await.replace("[redacted]", "");
        let (head, tail) = output.split_once("[... ").unwrap();
        let rest = format!("{head}{}", tail.split_once("...]").unwrap().1);
        let rest = rest.replace([' ', '\n'], "");
        assert!(rest.len() <= 6, "{before}: {output:?}");
        assert!(!world.host.seen.lock().unwrap().is_empty());
    }

    let host = FakeHost { answer: Some(format!("\x1b[1m changed {value} \n")), ..FakeHost::default() };
    let world = world_with(quick(), BackgroundSettings::default(), host);
    assert_eq!(world.says("true").await, "changed [redacted]");
}

#[tokio::test]
async fn the_shell_is_named() {
    let world = small();
    let shell = world.says("echo $0").await;
    assert!(world.terminal.description().contains(&format!("with {shell} ")), "{shell}");
    assert_eq!(world.terminal.parameters()["required"], json!(["command"]));
}
