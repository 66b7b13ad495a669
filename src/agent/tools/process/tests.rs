//! Commands in the background as a model works on them.

use secrecy::SecretString;

use super::*;
use crate::agent::tools::terminal::tests::{World, quick, world};
use crate::redact;

fn small() -> World {
    world(quick(), BackgroundSettings::default())
}

impl World {
    async fn start(&self, command: &str) -> Result<String, ToolError> {
        let started = self.call(&self.terminal, json!({ "command": command, "background": true })).await?;
        assert_eq!(started["status"], "running");
        Ok(started["id"].as_str().unwrap().to_owned())
    }

    async fn process(&self, args: Value) -> Result<Value, ToolError> {
        self.call(&Process::new(Arc::clone(&self.background)), args).await
    }

    /// Asks again until `until` is satisfied.
    async fn wait_for(&self, args: Value, until: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..1000 {
            let told = self.process(args.clone()).await.unwrap();
            if until(&told) {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{args} never tells what is waited for");
    }

    async fn ended(&self, id: &str) -> Value {
        self.wait_for(json!({ "action": "poll", "id": id }), |told| told["status"] != "running").await
    }
}

#[tokio::test]
async fn a_command_in_the_background_is_read_written_to_and_ends() {
    let world = small();
    let id = world.start("echo ready; while read line; do echo \"got $line\" >&2; done; exit 5").await.unwrap();
    assert_eq!(id, "p1");
    let said = world.wait_for(json!({ "action": "read", "id": id }), |told| told["output"] != "").await;
    assert_eq!(said, json!({ "id": "p1", "status": "running", "output": "ready\n" }));
    let written = world.process(json!({ "action": "write", "id": id, "text": "hello\n" })).await.unwrap();
    assert_eq!(written, json!({ "id": "p1", "status": "running", "written_bytes": 6 }));
    let said = world.wait_for(json!({ "action": "read", "id": id }), |told| told["output"] != "").await;
    assert_eq!(said["output"], "got hello\n");
    world.process(json!({ "action": "write", "id": id })).await.unwrap();
    assert_eq!(world.ended(&id).await, json!({ "id": "p1", "status": "exited", "exit_code": 5, "unread_bytes": 0 }));
    let error = world.process(json!({ "action": "write", "id": id, "text": "x" })).await.unwrap_err();
    assert_eq!(error.to_string(), "the process `p1` does not read its standard input any more");
    // Hooks of terminal output are not asked about what runs in the background.
    let listed = world.process(json!({ "action": "list" })).await.unwrap();
    assert_eq!((&listed["processes"][0]["id"], &listed["processes"][0]["status"]), (&json!("p1"), &json!("exited")));
}

#[tokio::test]
async fn a_command_is_killed_with_what_it_started() {
    let world = small();
    let id = world.start("trap '' TERM; setsid sleep 300 & echo $!; while :; do sleep 0.1; done").await.unwrap();
    let said = world.wait_for(json!({ "action": "read", "id": id }), |told| told["output"] != "").await;
    let killed = world.process(json!({ "action": "kill", "id": id })).await.unwrap();
    assert_eq!(killed, json!({ "id": "p1", "status": "killed", "exit_code": 137 }));
    let probe = format!("kill -0 {}", said["output"].as_str().unwrap());
    assert_eq!(world.call(&world.terminal, json!({ "command": probe })).await.unwrap()["exit_code"], 1);
}

#[tokio::test]
async fn a_session_sees_its_own_only() {
    let mut world = small();
    let id = world.start("sleep 300").await.unwrap();
    world.turn.session_id = "s2".to_owned();
    assert_eq!(world.process(json!({ "action": "list" })).await.unwrap(), json!({ "processes": [] }));
    let error = world.process(json!({ "action": "kill", "id": id })).await.unwrap_err().to_string();
    assert_eq!(error, "there is no process `p1` in this session; `list` shows those there are");
    let other = world.start("sleep 300").await.unwrap();
    world.background.end_session("s1").await;
    assert_eq!(world.background.running(), 1);
    assert_eq!(world.process(json!({ "action": "poll", "id": other })).await.unwrap()["status"], "running");
    world.background.stop().await;
    assert_eq!(world.background.running(), 0);
    assert_eq!(world.start("true").await.unwrap_err().to_string(), "the gateway is stopping");
}

#[tokio::test]
async fn their_number_is_bounded_in_a_session_and_in_all() {
    let bounds = BackgroundSettings { per_session: 2, in_all: 3, ..BackgroundSettings::default() };
    let mut world = world(quick(), bounds);
    for _ in 0..2 {
        world.start("sleep 300").await.unwrap();
    }
    let error = world.start("sleep 300").await.unwrap_err().to_string();
    assert_eq!(error, "2 processes of this session run in the background, more may not; end one with `process`");
    world.turn.session_id = "s2".to_owned();
    let id = world.start("sleep 300").await.unwrap();
    let error = world.start("sleep 300").await.unwrap_err().to_string();
    assert_eq!(error, "3 processes run in the background in all sessions, more may not; try again later");
    world.process(json!({ "action": "kill", "id": id })).await.unwrap();
    // Those that have ended are kept, as many.
    for _ in 0..4 {
        let id = world.start("true").await.unwrap();
        world.ended(&id).await;
    }
    let listed = world.process(json!({ "action": "list" })).await.unwrap();
    let ids: Vec<&Value> = listed["processes"].as_array().unwrap().iter().map(|told| &told["id"]).collect();
    assert_eq!(ids, ["p6", "p7"]);
}

#[tokio::test]
async fn one_may_run_for_so_long_and_one_that_ended_is_forgotten() {
    let bounds = BackgroundSettings {
        longest: Duration::from_millis(50),
        keep_ended: Duration::from_secs(2),
        ..Default::default()
    };
    let world = world(quick(), bounds);
    let id = world.start("sleep 300").await.unwrap();
    assert_eq!(world.ended(&id).await["status"], "timed out");
    world.wait_for(json!({ "action": "list" }), |told| told["processes"] == json!([])).await;
}

#[tokio::test]
async fn secrets_are_masked_in_what_is_read_and_listed() {
    let value = "background-secret-42";
    redact::add(&[SecretString::from(value)]);
    let world = small();
    let command = format!("printf background-; read go; printf 'secret-42 and '; read go; echo {value}");
    let id = world.start(&command).await.unwrap();
    world.wait_for(json!({ "action": "poll", "id": id }), |told| told["unread_bytes"] == 11).await;
    assert_eq!(world.process(json!({ "action": "read", "id": id })).await.unwrap()["output"], "");
    world.process(json!({ "action": "write", "id": id, "text": "\n" })).await.unwrap();
    let said = world.wait_for(json!({ "action": "read", "id": id }), |told| told["output"] != "").await;
    assert_eq!(said["output"], "[redacted] and ");
    world.process(json!({ "action": "write", "id": id, "text": "\n" })).await.unwrap();
    world.ended(&id).await;
    assert_eq!(world.process(json!({ "action": "read", "id": id })).await.unwrap()["output"], "[redacted]\n");
    let listed = world.process(json!({ "action": "list" })).await.unwrap()["processes"][0]["command"].clone();
    assert!(!listed.to_string().contains(value), "{listed}");
}

#[tokio::test]
async fn wrong_arguments_are_told() {
    let world = small();
    for (args, expected) in [
        (json!({}), "the argument `action` is missing"),
        (json!({ "action": "eat" }), "the argument `action` must be list, poll, read, write or kill, not `eat`"),
        (json!({ "action": "poll" }), "the argument `id` is missing"),
    ] {
        assert_eq!(world.process(args).await.unwrap_err().to_string(), expected);
    }
}
