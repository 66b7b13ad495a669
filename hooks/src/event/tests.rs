use super::*;

fn command(name: &str) -> Event {
    Event::command(name)
}

#[test]
fn subscriptions_match_by_name_and_by_whole_segments() {
    for (subscription, event, expected) in [
        ("agent:start", Event::AGENT_START, true),
        ("agent:*", Event::AGENT_START, true),
        ("agent:start", Event::AGENT_STEP, false),
        ("agent", Event::AGENT_START, false),
        ("agent:st*", Event::AGENT_START, false),
        ("agen:*", Event::AGENT_START, false),
        ("agent:start:*", Event::AGENT_START, false),
        ("*", Event::AGENT_START, false),
        (":*", Event::AGENT_START, false),
        ("", Event::AGENT_START, false),
        ("Agent:*", Event::AGENT_START, false),
        ("agent:turn_start", Event::fixed("agent:turn_start"), true),
        ("agent:*", Event::fixed("agent:turn_start"), false),
        ("agent:*", Event::fixed("agent:turn_end"), false),
        ("session:*", Event::SESSION_RESET, true),
        ("message:*", Event::MESSAGE_SENT, true),
        ("webhook:*", Event::WEBHOOK_FAILED, true),
        ("gateway:*", Event::GATEWAY_SHUTDOWN, true),
        ("command:*", command("new"), true),
        ("command:new", command("new"), true),
        ("command:newer", command("new"), false),
        ("command:*", Event::command_before("new"), false),
        ("command:new", Event::command_before("new"), false),
        ("command:before:*", Event::command_before("new"), true),
        ("command:before:new", Event::command_before("new"), true),
        ("command:before:*", command("new"), false),
        ("command:before:*", command("before"), false),
        ("command:*", command("before"), true),
        ("command:reset", command("new"), false),
        ("command:reset", command("new").typed_as("reset"), true),
        ("command:reset", Event::command_before("new").typed_as("reset"), false),
        ("command:before:reset", Event::command_before("new").typed_as("reset"), true),
        ("pre_llm_call", Event::PRE_LLM_CALL, true),
        ("pre_llm_call:*", Event::PRE_LLM_CALL, false),
        ("pre_*", Event::PRE_LLM_CALL, false),
    ] {
        assert_eq!(matches(subscription, &event), expected, "{subscription} and {event}");
    }
}

#[test]
fn a_hook_sees_an_event_once_under_the_closest_name() {
    let seen = |subscriptions: &[&str], event: Event| {
        let subscriptions: Vec<String> = subscriptions.iter().map(|name| (*name).to_owned()).collect();
        let seen = event.seen_by(&subscriptions);
        (seen.first.map(|(_, event)| event.to_string()), seen.second.map(|event| event.to_string()))
    };
    let new = || command("new").typed_as("reset");
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(seen(&["command:*", "command:reset", "command:new"], new()), (some("command:new"), None));
    assert_eq!(seen(&["command:*", "command:reset"], new()), (some("command:reset"), None));
    assert_eq!(seen(&["command:*"], new()), (some("command:new"), None));
    assert_eq!(seen(&["command:stop"], new()), (None, None));
    assert_eq!(seen(&["agent:*"], Event::AGENT_START), (some("agent:start"), None));
    assert_eq!(seen(&["agent:turn_start"], Event::AGENT_START), (None, some("agent:turn_start")));
    assert_eq!(seen(&["agent:turn_end", "agent:*"], Event::AGENT_END), (some("agent:end"), some("agent:turn_end")));
    assert_eq!(seen(&["agent:turn_end"], Event::AGENT_START), (None, None));
}

#[test]
fn an_alias_that_is_the_name_itself_or_no_command_is_none() {
    assert_eq!(command("new").typed_as("new"), command("new"));
    assert_eq!(Event::AGENT_START.typed_as("reset"), Event::AGENT_START);
}

#[test]
fn every_event_that_fires_has_a_constant_or_a_variable_part() {
    let fires: Vec<&str> = EVENTS
        .iter()
        .filter(|row| row.fires == Fires::Now && !row.name.contains('<') && !row.name.starts_with("agent:turn_"))
        .map(|row| row.name)
        .collect();
    let (mut fires, mut constants) = (fires, CONSTANTS.to_vec());
    fires.sort_unstable();
    constants.sort_unstable();
    assert_eq!(fires, constants);
}

#[test]
fn names_are_unique_and_their_form_tells_the_system() {
    let mut names: Vec<&str> = EVENTS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), EVENTS.len());
    for row in EVENTS {
        assert_eq!(row.name.contains(':'), row.system == System::Gateway, "{}", row.name);
        assert!(row.fires == Fires::Never || !row.keys.is_empty(), "{}", row.name);
    }
}

#[test]
fn the_names_existing_plugins_use_are_all_known() {
    for name in [
        "pre_tool_call",
        "post_tool_call",
        "pre_llm_call",
        "post_llm_call",
        "on_session_start",
        "on_session_end",
        "on_session_finalize",
        "on_session_reset",
        "subagent_stop",
        "pre_gateway_dispatch",
        "pre_approval_request",
        "post_approval_response",
        "transform_tool_result",
        "transform_terminal_output",
        "transform_llm_output",
        "pre_api_request",
        "post_api_request",
        "api_request_error",
        "subagent_start",
        "pre_verify",
        "kanban_task_claimed",
        "kanban_task_completed",
        "kanban_task_blocked",
        "on_stream_delta",
        "on_kanban_dispatch_tick",
    ] {
        assert!(is_known(name, System::Plugin), "{name}");
        assert!(!is_known(name, System::Gateway), "{name}");
    }
}

#[test]
fn subscriptions_of_gateway_hooks_are_known_or_not() {
    for (subscription, expected) in [
        ("agent:start", true),
        ("agent:turn_end", true),
        ("agent:*", true),
        ("command:*", true),
        ("command:before:*", true),
        ("command:reset", true),
        ("command:before:reset", true),
        ("reaction:added", true),
        ("command:", false),
        ("command:a:b", false),
        ("agent:stop", false),
        ("agents:*", false),
        ("*", false),
        ("pre_tool_call", false),
    ] {
        assert_eq!(is_known(subscription, System::Gateway), expected, "{subscription}");
    }
    assert!(!is_known("agent:start", System::Plugin));
}

#[test]
fn events_can_be_named() {
    assert_eq!(Event::named("agent:start"), Some(Event::AGENT_START));
    assert_eq!(Event::named("command:new"), Some(Event::command("new")));
    assert_eq!(
        Event::named("command:before:new").and_then(|event| event.row()).map(|row| row.name),
        Some("command:before:<name>")
    );
    for name in ["", "command:*", "agent:*", "command:", "nonsense"] {
        assert_eq!(Event::named(name), None, "{name}");
    }
}

#[test]
fn misspelt_shell_hook_names_get_the_known_suggestions() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/did_you_mean.json")))
            .unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        assert_eq!(suggest(name, System::Plugin).as_deref(), case["suggestion"].as_str(), "{name}");
    }
    assert_eq!(suggest("session_start", System::Plugin).as_deref(), Some("on_session_start"));
    assert_eq!(suggest("agent:start", System::Plugin).as_deref(), Some("subagent_start"));
}

#[test]
fn misspelt_gateway_hook_names_get_suggestions() {
    for (name, expected) in [
        ("agent:strat", Some("agent:start")),
        ("agent:finish", Some("agent:end")),
        ("gateway_startup", Some("gateway:startup")),
        ("Session:Start", Some("session:start")),
        ("agnet:*", Some("agent:*")),
        ("comand:reset", Some("command:reset")),
        ("commands:reset", Some("command:reset")),
        ("command:befor:reset", Some("command:before:reset")),
        ("message:recieved", Some("message:received")),
        ("zzz", None),
        ("", None),
    ] {
        let suggestion = suggest(name, System::Gateway);
        assert_eq!(suggestion.as_deref(), expected, "{name}");
        assert!(suggestion.is_none_or(|name| is_known(&name, System::Gateway)));
    }
}

/// The reference of events, as `docs/events.md` shows it.
fn reference() -> String {
    let mut text = String::from(
        "# Events\n\n\
         Generated from the table in `hooks/src/event/table.rs`; `HOOKGATE_UPDATE_DOCS=1 cargo test -p hookgate-hooks` writes it again.\n\n\
         A subscription is an event's name, or for gateway hooks `prefix:*`, where the prefix is one or more whole segments of the\n\
         name. `command:*` leaves out `command:before:…`; `agent:*` leaves out `agent:turn_start` and `agent:turn_end`. Of a command\n\
         typed by an alias (`/reset` for `/new`), a hook that names only the alias is told under that name. However many of its\n\
         subscriptions fit, a hook is called once per event.\n\n\
         Answers count only from hooks that decide. They are asked in order, those that name the event before those with a\n\
         wildcard, each under its own deadline. When an answer has stopped the event, the remaining hooks are told and not asked.\n\
         A hook with `fail_closed` that does not answer blocks, whatever the event.\n",
    );
    for (system, title, intro) in [
        (System::Gateway, "Gateway hooks", ""),
        (
            System::Plugin,
            "Plugin and shell hooks",
            "\nEvery payload also has `telemetry_schema_version`, `\"hermes.observer.v1\"`.\n",
        ),
    ] {
        text.push_str(&format!("\n## {title}\n{intro}"));
        for row in rows_of(system).filter(|row| row.fires != Fires::Never) {
            let keys: Vec<String> = row.keys.iter().map(|key| format!("`{key}`")).collect();
            text.push_str(&format!("\n### `{}`\n\n", row.name));
            text.push_str(&format!("- Fires: {}", row.when));
            if let Fires::Later(part) = row.fires {
                text.push_str(&format!(" (not yet: comes with {part})"));
            }
            text.push_str(&format!("\n- Payload: {}\n- Answers: {}\n", keys.join(", "), row.answers));
        }
        text.push_str("\n### Names that never fire\n\nHooks for these load with a warning.\n\n");
        for row in rows_of(system).filter(|row| row.fires == Fires::Never) {
            text.push_str(&format!("- `{}`: {}\n", row.name, row.when));
        }
    }
    text
}

#[test]
fn the_documentation_shows_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.md");
    if std::env::var_os("HOOKGATE_UPDATE_DOCS").is_some() {
        std::fs::write(path, reference()).unwrap();
    }
    let shown = std::fs::read_to_string(path).unwrap_or_default();
    assert!(shown == reference(), "docs/events.md is out of date: run the tests with HOOKGATE_UPDATE_DOCS=1");
}
