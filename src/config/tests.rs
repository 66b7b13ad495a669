//! The configuration as its users meet it: files in, effective values and the text of every problem out.
//! The example and the tables of keys are held together here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::*;

const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/config.example.yaml"));
const TOKEN: &str = "platforms: {telegram: {token: \"1:abcdef\"}}\n";

struct Files<'a> {
    yaml: &'a str,
    env: &'a str,
    process: &'a [(&'a str, &'a str)],
}

impl Files<'_> {
    fn load(&self) -> Loaded {
        let home = tempfile::tempdir().unwrap();
        if !self.yaml.is_empty() {
            fs::write(home.path().join("config.yaml"), self.yaml).unwrap();
        }
        if !self.env.is_empty() {
            fs::write(home.path().join(".env"), self.env).unwrap();
        }
        let environment = self.process.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut loaded = load(LoadOptions { home: Some(home.path().to_owned()), environment });
        let prefix = format!("{}/", home.path().display());
        for problem in &mut loaded.problems {
            problem.origin = problem.origin.replace(&prefix, "");
        }
        loaded
    }
}

fn from_yaml(yaml: &str) -> Loaded {
    Files { yaml, env: "", process: &[] }.load()
}

fn from_env(env: &str) -> Loaded {
    Files { yaml: "", env, process: &[] }.load()
}

/// The problems as people see them, with `!` before errors.
fn told(loaded: &Loaded) -> Vec<String> {
    let mark = |problem: &Problem| if problem.severity == Severity::Error { "! " } else { "" };
    let told: Vec<_> = loaded.problems.iter().map(|problem| format!("{}{problem}", mark(problem))).collect();
    assert_eq!(loaded.config.is_none(), told.iter().any(|line| line.starts_with('!')), "{told:#?}");
    told
}

fn problems(yaml: &str) -> Vec<String> {
    told(&from_yaml(yaml))
}

fn config(loaded: &Loaded) -> &Config {
    assert_eq!(told(loaded), Vec::<String>::new());
    loaded.config.as_ref().unwrap()
}

fn value_at(loaded: &Loaded, path: &str) -> Value {
    let config = loaded.config.as_ref().unwrap_or_else(|| panic!("{:#?}", told(loaded)));
    path.split('.').fold(redacted_json(config), |value, key| value[key].clone())
}

#[test]
fn nothing_configured_works_offline_and_lets_nobody_in() {
    let loaded = from_yaml("");
    let config = config(&loaded);
    assert_eq!(config.model.provider, Provider::Echo);
    assert!(config.telegram.is_empty());
    assert_eq!((config.webhook.enabled, config.webhook.host.as_str(), config.webhook.port), (true, "127.0.0.1", 8644));
    assert_eq!((config.console.enabled, config.console.host.as_str(), config.console.port), (true, "127.0.0.1", 8642));
    assert_eq!(config.storage.url, "sqlite:hookgate.db".into());
    assert_eq!(config.allowed, Allowed::default());
    assert_eq!(config.drain_timeout, Duration::from_secs(20));
    assert_eq!(config.max_update_age, Duration::from_secs(86_400));
    assert_eq!(config.sharing, Sharing::default());
    assert!(config.secrets.is_empty());
    let files: Vec<_> =
        loaded.files.iter().map(|file| (file.path.file_name().unwrap().to_owned(), file.exists)).collect();
    assert_eq!(files, [("config.yaml".into(), false), (".env".into(), false)]);
}

/// The example with every `#key:` line in force.
fn uncommented_example() -> String {
    EXAMPLE
        .lines()
        .filter(|line| !line.trim_start().starts_with("#  "))
        .map(|line| {
            let body = line.trim_start();
            let is_key = body.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
            if is_key { line.replacen('#', "", 1) + "\n" } else { line.to_owned() + "\n" }
        })
        .collect()
}

fn keys_in(node: &yaml::Node, path: &str, keys: &mut BTreeSet<String>) {
    match node.entries() {
        Some(entries) if keys::find(path).is_none() => {
            for entry in entries {
                let below = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                keys_in(&entry.value, &below, keys);
            }
        }
        _ => assert!(keys.insert(path.to_owned())),
    }
}

#[test]
fn the_example_has_no_problem_and_changes_nothing() {
    let example = from_yaml(EXAMPLE);
    assert_eq!(redacted_json(config(&example)), redacted_json(config(&from_yaml(""))));
    assert_eq!(problems(&uncommented_example()), Vec::<String>::new());
}

#[test]
fn the_example_holds_exactly_the_keys_that_take_effect() {
    let root = yaml::parse(&uncommented_example()).unwrap().root.unwrap();
    let mut in_example = BTreeSet::new();
    keys_in(&root, "", &mut in_example);
    let known: BTreeSet<String> = keys::KEYS.iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(in_example, known);
}

#[test]
fn the_example_names_every_variable() {
    for variable in keys::VARIABLES {
        assert!(EXAMPLE.contains(variable.name), "{}", variable.name);
    }
}

/// Path, value in the file, effective value.
fn samples() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("storage.url", "sqlite:other.db", json!("sqlite:other.db")),
        ("storage.retention_days", "7", json!(7)),
        ("storage.max_gb", "9", json!(9)),
        ("console.enabled", "off", json!(false)),
        ("console.host", "\"::1\"", json!("::1")),
        ("console.port", "0", json!(0)),
        ("console.token", "a-long-console-token", json!("***")),
        ("model.default", "gpt-x", json!("gpt-x")),
        ("model.provider", "custom", json!("openai")),
        ("model.api_mode", "anthropic_messages", json!("anthropic_messages")),
        ("model.base_url", "http://127.0.0.1:1/v1/", json!("http://127.0.0.1:1/v1")),
        ("model.api_key", "sk-12345678", json!("***")),
        ("model.system_prompt", "Be brief.", json!("Be brief.")),
        ("model.timeout", "2.5", json!(2.5)),
        ("model.max_tokens", "\"4_096\"", json!(4096)),
        ("model.context_length", "32000", json!(32_000)),
        ("model.record", "/var/tmp/model.jsonl", json!("/var/tmp/model.jsonl")),
        ("model.replay", "/var/tmp/model.jsonl", json!("/var/tmp/model.jsonl")),
        ("model.prices.input", "2.5", json!(2.5)),
        ("model.prices.output", "'10'", json!(10)),
        ("fallback_providers", "[{model: m-2, base_url: 'http://127.0.0.1:4'}]", json!(["m-2"])),
        ("allowed_users", "[7, \"8\"]", json!(["7", "8"])),
        ("allow_all_users", "yes", json!(true)),
        ("roles.owner", "telegram:1", json!(["telegram:1"])),
        ("roles.admin", "[telegram:2]", json!(["telegram:2"])),
        ("roles.guest", "[\"telegram:3\"]", json!(["telegram:3"])),
        ("platforms.telegram.enabled", "false", json!(false)),
        ("platforms.telegram.token", "\"2:ghijkl\"", json!("***")),
        ("platforms.telegram.allow_from", "[42]", json!(["42"])),
        ("platforms.telegram.allow_all_users", "true", json!(true)),
        ("platforms.telegram.group_allow_from", "[42, -7]", json!(["42", "-7"])),
        ("platforms.telegram.group_allowed_chats", "-100123", json!(["-100123"])),
        ("platforms.telegram.allowed_chats", "[-529, \"-100529\"]", json!(["-529", "-100529"])),
        ("platforms.telegram.allowed_topics", "[\"-100529:5\", 7]", json!(["-100529:5", "7"])),
        ("platforms.telegram.ignored_threads", "9", json!(["9"])),
        ("platforms.telegram.require_mention", "true", json!(true)),
        ("platforms.telegram.free_response_chats", "\"*\"", json!(["*"])),
        ("platforms.telegram.free_response_topics", "[1]", json!(["1"])),
        ("platforms.telegram.mention_patterns", "[\"^hey, bot\"]", json!(["^hey, bot"])),
        ("platforms.telegram.exclusive_bot_mentions", "false", json!(false)),
        ("platforms.telegram.allow_bots", "mentions", json!("mentions")),
        ("platforms.telegram.allow_admin_from", "[1]", json!(["1"])),
        ("platforms.telegram.group_allow_admin_from", "2", json!(["2"])),
        ("platforms.telegram.user_allowed_commands", "[status]", json!(["status"])),
        ("platforms.telegram.group_user_allowed_commands", "new", json!(["new"])),
        ("platforms.telegram.home_channel.chat_id", "-100123", json!("-100123")),
        ("platforms.telegram.home_channel.thread_id", "7", json!("7")),
        ("platforms.telegram.reply_to_mode", "off", json!("off")),
        ("platforms.telegram.typing_indicator", "no", json!(false)),
        ("platforms.telegram.proxy", "\"socks5h://user:pass-word@127.0.0.1:1080\"", json!("***")),
        ("platforms.telegram.extra.webhook_url", "\"https://example.org/t/\"", json!("https://example.org/t")),
        ("platforms.telegram.extra.webhook_host", "0.0.0.0", json!("0.0.0.0")),
        ("platforms.telegram.extra.webhook_port", "88", json!(88)),
        ("platforms.telegram.extra.webhook_secret", "an-example-secret", json!("***")),
        ("platforms.telegram.extra.command_menu", "false", json!(false)),
        ("platforms.telegram.extra.base_url", "http://127.0.0.1:2/bot/", json!("http://127.0.0.1:2")),
        (keys::ACCOUNTS, "{ops: {token: \"2:x\"}}", json!(["ops"])),
        ("platforms.webhook.enabled", "false", json!(false)),
        ("platforms.webhook.extra.host", "localhost", json!("localhost")),
        ("platforms.webhook.extra.port", "\"9000\"", json!(9000)),
        ("platforms.webhook.extra.secret", "a-long-secret", json!("***")),
        ("platforms.webhook.extra.rate_limit", "5", json!(5)),
        ("platforms.webhook.extra.max_body_bytes", "2000", json!(2000)),
        ("platforms.webhook.extra.deliver_wait", "0.5", json!(0.5)),
        ("platforms.webhook.extra.trusted_proxies", "10.0.0.2", json!(["10.0.0.2"])),
        ("platforms.webhook.extra.public_url", "https://hooks.example.org/", json!("https://hooks.example.org")),
        ("platforms.webhook.extra.routes", "{ci: {secret: s3cret-s3cret, prompt: hi}}", json!({"ci": {}})),
        ("drain_timeout", "3", json!(3)),
        ("max_update_age", "1:00:00", json!(3600)),
        ("edits", "turn", json!("turn")),
        ("uncertain_sends", "hold", json!("hold")),
        ("session_reset.mode", "both", json!("both")),
        ("session_reset.at_hour", "5", json!(5)),
        ("session_reset.idle_minutes", "30", json!(30)),
        ("session_reset.notify", "true", json!(true)),
        ("session_reset.notify_exclude_platforms", "[local]", json!(["local"])),
        ("timezone", "Europe/Berlin", json!("Europe/Berlin")),
        ("group_sessions_per_user", "false", json!(false)),
        ("thread_sessions_per_user", "true", json!(true)),
        ("agent.max_turns", "5", json!(5)),
        ("agent.max_verify_nudges", "0", json!(0)),
        ("agent.disabled_toolsets", "[terminal, todo]", json!(["terminal", "todo"])),
        ("platform_toolsets", "{telegram: [web, todo]}", json!({"telegram": ["web_search", "web_extract", "todo"]})),
        ("approvals.mode", "off", json!("off")),
        ("approvals.timeout", "90", json!(90)),
        ("approvals.on_timeout", "halt", json!("halt")),
        ("approvals.deny", "['git push*']", json!(["git push*"])),
        ("approvals.destructive_slash_confirm", "yes", json!(true)),
        ("command_allowlist", "[recursive delete]", json!(["recursive delete"])),
        ("terminal.cwd", "/var/tmp", json!("/var/tmp")),
        ("terminal.timeout", "90", json!(90)),
        ("terminal.max_timeout", "900", json!(900)),
        ("files.roots", "[., /var/tmp]", json!([".", "/var/tmp"])),
        ("files.deny", "['*.pem']", json!(["*.pem"])),
        ("web.search_url", "https://search.example.org/", json!("https://search.example.org")),
        ("web.search_api_key", "a-search-key", json!("***")),
        ("web.allow_private", "['[::1]:80', 'Wiki.internal:443']", json!(["[::1]:80", "wiki.internal:443"])),
        ("secrets.pass_to_tools", "[PASSED_ON]", json!(["PASSED_ON"])),
        ("secrets.pass_to_hooks", "PASSED_ON", json!(["PASSED_ON"])),
        ("budgets.turn.tokens", "1000", json!(1000)),
        ("budgets.turn.tool_calls", "2", json!(2)),
        ("budgets.turn.cost", "0.25", json!(0.25)),
        ("budgets.user.tokens", "1000", json!(1000)),
        ("budgets.user.tool_calls", "2", json!(2)),
        ("budgets.user.cost", "3", json!(3)),
        ("budgets.route.tokens", "1000", json!(1000)),
        ("budgets.route.tool_calls", "2", json!(2)),
        ("budgets.route.cost", "1.000001", json!(1.000_001)),
        ("limits.turns", "1", json!(1)),
        ("limits.waiting_per_chat", "2", json!(2)),
        ("limits.failed_signatures_per_minute", "3", json!(3)),
        ("limits.hook_processes", "4", json!(4)),
        ("limits.tool_output_bytes", "1_000", json!(1000)),
    ]
}

/// A file with one key, and what that key needs beside it to be seen.
fn file_with(path: &str, value: &str) -> String {
    let mut keys = BTreeMap::new();
    if path.starts_with("model.") {
        keys.insert("model.default", "gpt-x");
        keys.insert("model.base_url", "http://127.0.0.1:3");
    }
    if path.starts_with("model.prices.") || path.ends_with(".cost") {
        keys.extend([("model.prices.input", "1"), ("model.prices.output", "1")]);
    }
    if path.starts_with("platforms.telegram.") {
        keys.insert("platforms.telegram.token", "\"1:abcdef\"");
        keys.insert("platforms.telegram.home_channel.chat_id", "5");
    }
    if path.starts_with("platforms.telegram.extra.webhook") {
        keys.insert("platforms.telegram.extra.webhook_url", "\"https://example.org\"");
        keys.insert("platforms.telegram.extra.webhook_secret", "the-secret-beside");
    }
    keys.insert(path, value);
    let keys: Vec<(Vec<&str>, &str)> =
        keys.into_iter().map(|(path, value)| (path.split('.').collect(), value)).collect();
    nested(&keys)
}

/// A flow mapping of sorted paths.
fn nested(keys: &[(Vec<&str>, &str)]) -> String {
    let members = keys.chunk_by(|one, other| one.0[0] == other.0[0]).map(|group| match group {
        [(path, value)] if path.len() == 1 => format!("{}: {value}", path[0]),
        group => {
            let below: Vec<_> = group.iter().map(|(path, value)| (path[1..].to_vec(), *value)).collect();
            format!("{}: {}", group[0].0[0], nested(&below))
        }
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

#[test]
fn every_documented_key_takes_effect_from_the_file_alone() {
    let samples = samples();
    let sampled: Vec<&str> = samples.iter().map(|(path, ..)| *path).collect();
    let known: Vec<&str> = keys::KEYS.iter().map(|key| key.path).collect();
    assert_eq!(sampled, known);
    let defaults = from_yaml("");
    for (path, value, wanted) in samples {
        let yaml = file_with(path, value);
        // Only what the file names is passed on.
        let load = |yaml: &str| Files { yaml, env: "", process: &[("PASSED_ON", "x")] }.load();
        let loaded = load(&yaml);
        assert_eq!(told(&loaded), Vec::<String>::new(), "{yaml}");
        let names = |value: Value| value.as_object().map_or(json!([]), |map| map.keys().cloned().collect());
        let value_at = |loaded: &Loaded, path: &str| match value_at(loaded, path) {
            accounts if path == keys::ACCOUNTS => names(accounts),
            Value::Array(models) if path == "fallback_providers" => {
                models.iter().map(|model| model["model"].clone()).collect()
            }
            value => value,
        };
        let shown = value_at(&loaded, path);
        if path.ends_with("routes") {
            assert_eq!(shown["ci"]["prompt"], "hi");
        } else {
            assert_eq!(shown, wanted, "{yaml}");
        }
        let without = ["model.provider", "platforms.telegram.enabled"];
        assert!(without.contains(&path) || shown != value_at(&defaults, path), "{path} is only its default");
        if !path.starts_with("platforms.") {
            let nested = load(&format!("gateway: {yaml}"));
            assert_eq!(value_at(&nested, path), shown, "below gateway: {yaml}");
        }
    }
}

#[test]
fn the_shown_keys_are_the_known_keys() {
    let loaded = from_yaml("");
    let shown = redacted_json(config(&loaded));
    let root = yaml::parse(&shown.to_string()).unwrap().root.unwrap();
    let mut keys = BTreeSet::new();
    keys_in(&root, "", &mut keys);
    assert_eq!(keys, keys::KEYS.iter().map(|key| key.path.to_owned()).collect());
    let yaml = redacted_yaml(loaded.config.as_ref().unwrap());
    assert!(yaml.starts_with("storage:\n  url: "), "{yaml}");
    assert_eq!(redacted_json(config(&from_yaml(&yaml))), shown);
}

#[test]
fn the_environment_wins_over_env_file_over_file_over_default() {
    for (name, path, values) in [
        ("TELEGRAM_ALLOWED_USERS", "platforms.telegram.allow_from", ["1,2", "3", "4"]),
        ("TELEGRAM_REPLY_TO_MODE", "platforms.telegram.reply_to_mode", ["all", "off", "first"]),
        ("TELEGRAM_HOME_CHANNEL", "platforms.telegram.home_channel.chat_id", ["1", "2", "3"]),
        ("TELEGRAM_HOME_CHANNEL_THREAD_ID", "platforms.telegram.home_channel.thread_id", ["1", "2", "3"]),
        ("GATEWAY_ALLOWED_USERS", "allowed_users", ["a, b", "c", "d"]),
        ("OPENAI_BASE_URL", "model.base_url", ["http://a", "http://b", "http://c"]),
        ("HERMES_RESTART_DRAIN_TIMEOUT", "drain_timeout", ["1", "2", "3"]),
        ("HERMES_MAX_ITERATIONS", "agent.max_turns", ["1", "2", "3"]),
    ] {
        let shown = |value: &str| match path {
            "allowed_users" | "platforms.telegram.allow_from" => {
                json!(value.split(',').map(str::trim).collect::<Vec<_>>())
            }
            "drain_timeout" | "agent.max_turns" => json!(value.parse::<u64>().unwrap()),
            _ => json!(value),
        };
        let yaml = file_with(path, values[2]);
        let env = format!("{name}={}\n", values[1]);
        let process = [(name, values[0])];
        let all = Files { yaml: &yaml, env: &env, process: &process }.load();
        assert_eq!(value_at(&all, path), shown(values[0]), "{name}");
        let two = Files { yaml: &yaml, env: &env, process: &[(name, "")] }.load();
        assert_eq!(value_at(&two, path), shown(values[1]), "{name}");
        let one = Files { yaml: &yaml, env: "", process: &[] }.load();
        assert_eq!(value_at(&one, path), shown(values[2]), "{name}");
        let as_key = from_yaml(&yaml.replacen('{', &format!("{{{name}: \"{}\", ", values[1]), 1));
        assert_eq!(value_at(&as_key, path), shown(values[1]), "{name} as a key of the file");
    }
}

#[test]
fn switches_of_the_environment_take_effect() {
    let loaded = from_env("TELEGRAM_BOT_TOKEN=1:abcdef\nTELEGRAM_ALLOW_ALL_USERS=Yes\nGATEWAY_ALLOW_ALL_USERS=1\n");
    let all = config(&loaded);
    assert!(all.allowed.all && all.telegram[""].allowed.all);
    let loaded = from_env("TELEGRAM_BOT_TOKEN=1:abcdef\nTELEGRAM_ALLOW_ALL_USERS=sure\n");
    assert_eq!(
        told(&loaded),
        [".env:2: TELEGRAM_ALLOW_ALL_USERS: true or false is wanted, not this value; it is ignored"]
    );
    assert!(!loaded.config.unwrap().telegram[""].allowed.all);
}

#[test]
fn the_webhook_variables_need_webhook_enabled() {
    let on = from_env("WEBHOOK_ENABLED=true\nWEBHOOK_PORT=9001\nWEBHOOK_SECRET=s3cret-s3cret\n");
    let webhook = &config(&on).webhook;
    assert_eq!((webhook.enabled, webhook.port), (true, 9001));
    assert_eq!(webhook.route_defaults.secret.as_ref().unwrap().expose_secret(), "s3cret-s3cret");
    let without = from_env("WEBHOOK_PORT=9001\nWEBHOOK_SECRET=s3cret-s3cret\n");
    assert_eq!(
        told(&without),
        [
            ".env:1: WEBHOOK_PORT: WEBHOOK_PORT has no effect unless WEBHOOK_ENABLED is true (set WEBHOOK_ENABLED=true too)",
            ".env:2: WEBHOOK_SECRET: WEBHOOK_SECRET has no effect unless WEBHOOK_ENABLED is true (set WEBHOOK_ENABLED=true too)",
        ]
    );
    let webhook = without.config.unwrap().webhook;
    assert_eq!((webhook.port, webhook.route_defaults.secret.is_none()), (8644, true));
    let bad = Files { yaml: "", env: "", process: &[("WEBHOOK_ENABLED", "1"), ("WEBHOOK_PORT", "abc")] }.load();
    assert_eq!(
        told(&bad),
        ["WEBHOOK_PORT: platforms.webhook.extra.port: a whole number is wanted, not this value; it is ignored"]
    );
    assert_eq!(bad.config.unwrap().webhook.port, 8644);
    let off = Files { yaml: "", env: "", process: &[("WEBHOOK_ENABLED", "no")] }.load();
    assert!(!config(&off).webhook.enabled);
}

#[test]
fn a_platform_block_may_stand_in_three_places() {
    for yaml in [
        "platforms:\n  telegram:\n    token: 1:abcdef\n    extra: {base_url: 'http://x'}\n",
        "gateway:\n  platforms:\n    telegram:\n      token: 1:abcdef\n      extra: {base_url: 'http://x'}\n",
        "telegram:\n  token: 1:abcdef\n  extra: {base_url: 'http://x'}\n",
    ] {
        let loaded = from_yaml(yaml);
        let telegram = &config(&loaded).telegram[""];
        assert_eq!((telegram.token.expose_secret(), telegram.base_url.as_str()), ("1:abcdef", "http://x"), "{yaml}");
    }
    let twice = from_yaml("gateway: {drain_timeout: 1}\ndrain_timeout: 2\nagent: {restart_drain_timeout: 3}\n");
    assert_eq!(
        told(&twice),
        [
            "config.yaml:1:11: gateway.drain_timeout: this has no effect, because `drain_timeout` is set and wins (keep one of the two)",
            "config.yaml:3:9: agent.restart_drain_timeout: this has no effect, because `drain_timeout` is set and wins (keep one of the two)",
        ]
    );
    assert_eq!(twice.config.unwrap().drain_timeout, Duration::from_secs(2));
    assert_eq!(config(&from_yaml("agent: {restart_drain_timeout: 0}")).drain_timeout, Duration::ZERO);
}

#[test]
fn misspelt_and_misplaced_keys_are_told_with_place_and_suggestion() {
    assert_eq!(
        problems(
            "gatway: {}\nplatforms:\n  telegram:\n    tokn: x\n    base_url: http://x\n  telegarm: {}\nport: 1\nstorage.url: x\n"
        ),
        [
            "config.yaml:1:1: gatway: unknown key `gatway`; it has no effect (did you mean `gateway`?)",
            "config.yaml:4:5: platforms.telegram.tokn: unknown key `tokn`; it has no effect (did you mean `token`?)",
            "config.yaml:5:5: platforms.telegram.base_url: unknown key `base_url`; it has no effect (it belongs at `platforms.telegram.extra.base_url`)",
            "config.yaml:6:3: platforms.telegarm: unknown key `telegarm`; it has no effect (did you mean `telegram`?)",
            "config.yaml:7:1: port: unknown key `port`; it has no effect (it belongs at `console.port` or `platforms.webhook.extra.port`)",
            "config.yaml:8:1: storage.url: unknown key `storage.url`; it has no effect (write each part on a line of its own, indented below the one before)",
        ]
    );
    assert_eq!(
        problems("retention_day: 3\nzzzzzz: 1\nagent:\n  restart_drain_timeot: 1\n"),
        [
            "config.yaml:1:1: retention_day: unknown key `retention_day`; it has no effect (did you mean `storage.retention_days`?)",
            "config.yaml:2:1: zzzzzz: unknown key `zzzzzz`; it has no effect",
            "config.yaml:4:3: agent.restart_drain_timeot: unknown key `restart_drain_timeot`; it has no effect (did you mean `restart_drain_timeout`?)",
        ]
    );
}

#[test]
fn wrong_types_and_ranges_are_errors_with_the_place_of_the_value() {
    assert_eq!(
        problems(
            "console:\n  port: abc\n  enabled: maybe\n  host: [a]\nlimits: {turns: 0, waiting_per_chat: 1.5}\nstorage: 5\n"
        ),
        [
            "! config.yaml:2:9: console.port: a whole number is wanted, not `abc`",
            "! config.yaml:3:12: console.enabled: true or false is wanted, not `maybe`",
            "! config.yaml:4:9: console.host: text is wanted, not a list",
            "! config.yaml:5:17: limits.turns: `0` is not from 1 to 4096",
            "! config.yaml:5:38: limits.waiting_per_chat: a whole number is wanted, not `1.5`",
            "! config.yaml:6:10: storage: this holds keys of its own, but a number stands here (write `storage:` and below it, indented, keys such as `max_gb`)",
        ]
    );
    assert_eq!(
        problems(
            "allowed_users: {a: 1}\ndrain_timeout: -1\nuncertain_sends: holt\nconsole: {port: 65536}\nmodel: {timeout: soon}\n"
        ),
        [
            "! config.yaml:1:16: allowed_users: a list is wanted, not a mapping (write it as `[one, two]`)",
            "! config.yaml:2:16: drain_timeout: `-1` seconds is not from 0 to 86400",
            "! config.yaml:3:18: uncertain_sends: `holt` is not one of resend, hold (did you mean `hold`?)",
            "! config.yaml:4:17: console.port: `65536` is not from 0 to 65535",
            "! config.yaml:5:18: model.timeout: a number of seconds is wanted, not `soon`",
        ]
    );
    assert_eq!(problems("- a\n"), ["! config.yaml:1:1: the file must hold `key: value` lines, but it holds a list"]);
}

#[test]
fn numbers_may_be_quoted_and_lists_may_be_single_values() {
    for (port, wanted) in
        [("'8000'", 8000), ("\" 8_000 \"", 8000), ("8000.0", 8000), ("0x10", 16), ("2:00", 120), ("", 8642)]
    {
        let loaded = from_yaml(&format!("console: {{port: {port}}}"));
        assert_eq!(config(&loaded).console.port, wanted, "{port}");
    }
    for port in ["'0x10'", "true", "'_1'", "2026-01-01", "80 00"] {
        assert_eq!(problems(&format!("console: {{port: {port}}}")).len(), 1, "{port}");
    }
    for (list, wanted) in [
        ("123", &["123"][..]),
        ("0123", &["0123"]),
        ("a, b", &["a", "b"]),
        ("[a, ' b ', ~]", &["a", "b"]),
        ("'*'", &["*"]),
        ("", &[]),
    ] {
        assert_eq!(config(&from_yaml(&format!("allowed_users: {list}"))).allowed.users, wanted, "{list}");
    }
    assert_eq!(
        problems("allowed_users: [1, [2]]"),
        ["! config.yaml:1:20: allowed_users: text is wanted, not a list (write the items as `[one, two]`)"]
    );
}

#[test]
fn a_broken_file_is_one_error_with_its_line() {
    assert_eq!(
        problems("console:\n\tport: 1\n"),
        ["! config.yaml:2:1: a tab indents this line, and YAML allows only spaces there (indent with spaces)"]
    );
    assert_eq!(
        problems("console: {port: 1}\nconsole: {port: 2}\n"),
        ["config.yaml:2:1: console: this key stood on line 1 already; the value here wins (keep one of the two)"]
    );
    assert_eq!(from_yaml("console: {port: 1}\nconsole: {port: 2}\n").config.unwrap().console.port, 2);
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("config.yaml"), b"a: 1\nb: \xff\n").unwrap();
    fs::create_dir(home.path().join(".env")).unwrap();
    let loaded = load(LoadOptions { home: Some(home.path().to_owned()), ..LoadOptions::default() });
    let told = told(&loaded);
    assert!(told[0].contains(".env: cannot read the file"), "{told:?}");
    assert!(told[1].ends_with("config.yaml:2: the file is not UTF-8 text (save it as UTF-8)"), "{told:?}");
}

#[test]
fn a_proxy_a_pattern_or_a_webhook_that_cannot_work_is_an_error_without_its_secret() {
    for (key, told_about) in [
        ("proxy: 'ftp://user:pass-word@host'", "not the address of a proxy"),
        ("proxy: 'pass-word'", "not the address of a proxy"),
        ("mention_patterns: ['ok', '(']", "not a regular expression"),
        ("extra: {webhook_url: 'https://example.org'}", "TELEGRAM_WEBHOOK_SECRET"),
        ("extra: {webhook_url: 'https://example.org', webhook_secret: 'pass word'}", "TELEGRAM_WEBHOOK_SECRET"),
        ("extra: {webhook_url: 'https://example.org', webhook_secret: 'changeme'}", "TELEGRAM_WEBHOOK_SECRET"),
    ] {
        let loaded = from_yaml(&format!("telegram: {{token: '1:abcdef', {key}}}\n"));
        assert!(loaded.config.is_none(), "{key}");
        let told = told(&loaded);
        assert!(told.len() == 1 && told[0].contains(told_about), "{told:?}");
        assert!(!told[0].contains("pass-word") && !told[0].contains("pass word"), "{told:?}");
    }
    let env = from_env("TELEGRAM_BOT_TOKEN=1:abcdef\nTELEGRAM_MENTION_PATTERNS='[\"a,b\", \"c\"]'\n");
    assert_eq!(value_at(&env, "platforms.telegram.mention_patterns"), json!(["a,b", "c"]));
}

#[test]
fn proxies_are_read_from_both_environments() {
    let env = "HTTPS_PROXY=http://user:pass-word@one:1\nall_proxy='two:2'\nNO_PROXY=a.example\nHTTP_PROXY=\n";
    let loaded = Files { yaml: "", env, process: &[("https_proxy", "socks5://three"), ("HTTP_PROXY", " ")] }.load();
    assert_eq!(told(&loaded), [""; 0]);
    let proxies = &config(&loaded).proxies;
    let shown = |proxy: &Option<SecretString>| proxy.as_ref().map(|proxy| proxy.expose_secret().to_owned());
    assert_eq!(shown(&proxies.https).as_deref(), Some("socks5://three"), "the process wins, however it is written");
    assert_eq!((shown(&proxies.all).as_deref(), shown(&proxies.http)), (Some("two:2"), None));
    assert_eq!(proxies.direct, "a.example");
    assert_eq!(shown(&config(&loaded).model.proxies.all).as_deref(), Some("two:2"));

    let alone = from_env("HTTPS_PROXY=http://user:pass-word@one:1\n");
    let secrets: Vec<&str> = config(&alone).secrets.iter().map(|secret| secret.expose_secret()).collect();
    assert!(secrets.contains(&"pass-word"), "{secrets:?}");
    assert!(!redacted_yaml(config(&alone)).contains("pass-word"));
}

#[test]
fn a_variable_that_is_no_proxy_is_an_error_without_its_password() {
    for (env, process, expected) in [
        (
            "X=1\nHTTPS_PROXY=ftp://user:pass-word@h\n",
            None,
            "! .env:2: HTTPS_PROXY: this is not the address of a proxy",
        ),
        ("", Some(("all_proxy", "sucks://user:pass-word@h:1")), "! all_proxy: this is not the address of a proxy"),
        ("HTTP_PROXY=http://${NOWHERE}:1\n", None, "! .env:1: HTTP_PROXY: "),
    ] {
        let loaded = Files { yaml: "", env, process: process.as_slice() }.load();
        let told = told(&loaded);
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
        assert!(!told[0].contains("pass-word"), "{told:?}");
    }
}

#[test]
fn where_telegram_is_asked_is_known_without_a_bot() {
    let loaded = from_yaml("telegram: {extra: {base_url: 'http://bots.example/bot'}, proxy: 'http://proxy:1'}\n");
    let config = config(&loaded);
    assert!(config.telegram.is_empty());
    assert_eq!(config.telegram_server.base_url, "http://bots.example");
    assert!(config.telegram_server.proxy.is_some());
}

#[test]
fn a_password_in_an_address_is_a_secret() {
    let query =
        from_yaml("model: {provider: openai, default: m, base_url: 'https://models.example/v1?key=hidden-key'}\n");
    assert_eq!(value_at(&query, "model.base_url"), "https://models.example/v1?***");
    let told = problems("telegram: {token: '1:abcdef', extra: {base_url: 'http://h/?x=1'}}\n");
    assert!(told.len() == 1 && told[0].contains("takes no `?`"), "{told:?}");
    let loaded = from_yaml(concat!(
        "webhook: {extra: {public_url: 'https://u:pass-word@me.example/hooks'}}\n",
        "model: {provider: openai, default: m, base_url: 'https://u:pass-word@models.example/v1'}\n",
        "telegram: {token: '1:abcdef', extra: {base_url: 'https://u:pass-word@bots.example', ",
        "webhook_url: 'https://u:pass-word@me.example/hook', webhook_secret: the-secret-of-posts}}\n",
    ));
    assert_eq!(value_at(&loaded, "model.base_url"), "https://u:***@models.example/v1");
    assert_eq!(value_at(&loaded, "platforms.webhook.extra.public_url"), "https://u:***@me.example/hooks");
    assert_eq!(value_at(&loaded, "platforms.telegram.extra.base_url"), "https://u:***@bots.example/");
    assert_eq!(value_at(&loaded, "platforms.telegram.extra.webhook_url"), "https://u:***@me.example/hook");
    let secrets = loaded.config.unwrap().secrets;
    assert!(secrets.iter().any(|secret| secret.expose_secret() == "pass-word"));
}

const TWO_BOTS: &str = "\
telegram:
  token: '1:abcdef'
  allow_from: ['7']
  require_mention: true
  home_channel: '-100'
  proxy: http://127.0.0.1:1
  extra: {base_url: 'http://bots.example'}
  accounts:
    support:
      token: ${SUPPORT_TOKEN}
      allow_from: ['8', '9']
      reply_to_mode: off
    ops: {token: '3:ghijkl', home_channel: {chat_id: '-200', thread_id: '4'}, require_mention: false}
    off: {enabled: false}
";

#[test]
fn several_bots_share_what_is_not_their_own() {
    let files = Files { yaml: TWO_BOTS, env: "SUPPORT_TOKEN=2:secret-of-support\n", process: &[] };
    let loaded = files.load();
    assert_eq!(told(&loaded), [""; 0]);
    let config = config(&loaded);
    assert_eq!(config.telegram.keys().collect::<Vec<_>>(), ["", "ops", "support"]);
    let (main, support, ops) = (&config.telegram[""], &config.telegram["support"], &config.telegram["ops"]);
    assert_eq!(support.token.expose_secret(), "2:secret-of-support");
    assert_eq!(
        (&*main.allowed.users, &*support.allowed.users, &*ops.allowed.users),
        (&["7".to_owned()][..], &["8".to_owned(), "9".to_owned()][..], &["7".to_owned()][..])
    );
    assert_eq!((&support.base_url, support.proxy.is_some()), (&"http://bots.example".to_owned(), true));
    assert_eq!((support.groups.require_mention, ops.groups.require_mention), (true, false));
    assert_eq!((main.reply_to_mode, support.reply_to_mode), (ReplyToMode::First, ReplyToMode::Off));
    assert_eq!(support.home_channel, None, "a home channel is one bot's own");
    assert_eq!(ops.home_channel.as_ref().unwrap().to_string(), "telegram@ops:-200:4");
    let shown = redacted_json(config);
    assert_eq!(shown["platforms"]["telegram"]["accounts"]["support"]["token"], "***");
    assert_eq!(shown["platforms"]["telegram"]["accounts"]["support"]["allow_from"], json!(["8", "9"]));
    assert!(config.secrets.iter().any(|secret| secret.expose_secret() == "3:ghijkl"));
    // The environment sets what all share, and not what an account says itself.
    let process =
        [("TELEGRAM_ALLOWED_USERS", "42"), ("SUPPORT_TOKEN", "2:x-secret"), ("TELEGRAM_BOT_TOKEN", "9:other")];
    let loaded = Files { process: &process, env: "", ..files }.load();
    let telegram = &loaded.config.unwrap().telegram;
    assert_eq!((&telegram["ops"].allowed.users[0], &telegram["support"].allowed.users[0]), (&"42".into(), &"8".into()));
    assert_eq!(telegram["ops"].token.expose_secret(), "3:ghijkl");
}

#[test]
fn what_is_wrong_with_an_account_is_told_at_its_place() {
    for (accounts, expected) in [
        (
            "a: {}",
            "! config.yaml:4:5: telegram.accounts.a: the account has no bot token (get a token from @BotFather and write it as `token: ${NAME}`, with NAME in .env)",
        ),
        (
            "a: {token: '1:abcdef'}",
            "! config.yaml:4:5: telegram.accounts.a: the bot token is that of telegram too (give each account its own; Telegram serves one listener per bot)",
        ),
        (
            "Big: {token: '2:abcdef'}",
            "! config.yaml:4:5: telegram.accounts.Big: an account's name has 1 to 32 lower-case letters, digits, `-` and `_`",
        ),
        (
            "a: {token: '2:abcdef', tokn: x}",
            "config.yaml:4:28: telegram.accounts.a.tokn: unknown key `tokn`; it has no effect (did you mean `token`?)",
        ),
        (
            "a: {token: '2:abcdef', accounts: {b: {token: '3:x'}}}",
            "config.yaml:4:28: telegram.accounts.a.accounts: an account has no accounts of its own; it has no effect",
        ),
        ("a: {token: '2:abcdef', reply_to_mode: loud}", "! config.yaml:4:43: telegram.accounts.a.reply_to_mode: "),
        ("a: 5", "! config.yaml:4:8: telegram.accounts.a: this holds keys of its own, but"),
    ] {
        let told = problems(&format!("telegram:\n  token: '1:abcdef'\n  accounts:\n    {accounts}\n"));
        assert!(told.first().is_some_and(|first| first.starts_with(expected)), "{accounts}: {told:?}");
    }
    let told = problems("telegram:\n  token: '1:abcdef'\n  accounts: [x]\n");
    assert!(
        told[0].starts_with("! config.yaml:3:13: telegram.accounts: this holds accounts by their names"),
        "{told:?}"
    );
    // Something wrong above is told once, however many bots share it.
    let told = problems(
        "telegram: {token: '1:a', typing_indicator: maybe, accounts: {a: {token: '2:a'}, b: {token: '3:a'}}}\n",
    );
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn a_zone_that_is_not_there_is_an_error_and_odd_numbers_of_the_reference_are_not() {
    let wrong = problems("timezone: Europe/Berlim\n");
    assert!(
        wrong.len() == 1 && wrong[0].starts_with("! config.yaml:1:11: timezone: `Europe/Berlim` is not a time zone")
    );
    let loaded = from_yaml("session_reset: {mode: daily, at_hour: 25, idle_minutes: 0}\n");
    let reset = &loaded.config.as_ref().unwrap().reset;
    assert_eq!((reset.hour, reset.idle), (4, Duration::from_secs(86_400)));
    assert_eq!(told(&loaded).len(), 2);
    let env = from_env("SESSION_RESET_HOUR=6\nSESSION_IDLE_MINUTES=10\n");
    assert_eq!(
        (value_at(&env, "session_reset.at_hour"), value_at(&env, "session_reset.idle_minutes")),
        (json!(6), json!(10))
    );
}

#[test]
fn what_is_known_but_not_supported_is_named_once_and_lets_the_gateway_start() {
    assert_eq!(
        problems(concat!(
            "hooks: {pre_tool_call: [{command: deny.sh}]}\npolicies: [{name: x}]\ndisplay: {busy_input_mode: steer, a: 1}\n",
            "discord: {token: x}\ngateway: {streaming: {enabled: true}}\nagent: {api_max_retries: 3, verbose: true}\n",
            "telegram: {guest_mode: true, extra: {rich_messages: true}}\nquick_commands: {x: {type: exec, command: '${UNSET}'}}\n",
            "TELEGRAM_FALLBACK_IPS: 1.2.3.4\nedits: turn\n",
        )),
        [
            "config.yaml:1:1: hooks: not supported yet: no shell hook runs: what these hooks would block is NOT blocked",
            "config.yaml:2:1: policies: not supported yet: no policy is applied: what these policies would skip, limit or rewrite is handled like anything else",
            "config.yaml:3:1: display: not supported yet; it has no effect",
            "config.yaml:4:1: discord: not supported yet; it has no effect",
            "config.yaml:5:11: gateway.streaming: not supported yet; it has no effect",
            "config.yaml:6:9: agent.api_max_retries: not supported yet; it has no effect",
            "config.yaml:6:29: agent.verbose: not supported yet; it has no effect",
            "config.yaml:7:12: telegram.guest_mode: not supported yet; it has no effect",
            "config.yaml:7:38: telegram.extra.rich_messages: not supported yet; it has no effect",
            "config.yaml:8:1: quick_commands: not supported yet; it has no effect",
            "config.yaml:9:1: TELEGRAM_FALLBACK_IPS: not supported yet; it has no effect",
        ]
    );
    let off = "hooks: {}\npolicies: []\nstreaming: {enabled: false}\ndiscord: {enabled: off, token: x}\nbudgets:\n";
    assert_eq!(problems(off), Vec::<String>::new());
    for own in ["gateway_hooks", "hooks_consent", "hooks_json", "streaming", "policies"] {
        assert_eq!(problems(&format!("{own}: [something]")).len(), 1, "{own}");
    }
    let env = from_env(
        "DISCORD_BOT_TOKEN=abcdef\nTELEGRAM_GUEST_MODE=true\nTELEGRAM_REACTIONS=false\nTELEGRAM_BOT_TOKN=x\nMY_OWN=1\n",
    );
    assert_eq!(
        told(&env),
        [
            ".env:1: DISCORD_BOT_TOKEN: not supported yet: Discord is not connected",
            ".env:2: TELEGRAM_GUEST_MODE: not supported yet; it has no effect",
            ".env:4: TELEGRAM_BOT_TOKN: hookgate knows no variable of this name (did you mean `TELEGRAM_BOT_TOKEN`?)",
        ]
    );
}

#[test]
fn dangerous_commands_wait_for_a_person_unless_it_is_switched_off_in_so_many_words() {
    for (mode, wanted) in [
        ("", ApprovalMode::Manual),
        ("manual", ApprovalMode::Manual),
        ("Smart", ApprovalMode::Smart),
        ("off", ApprovalMode::Off),
        ("'off'", ApprovalMode::Off),
        ("false", ApprovalMode::Off),
        ("no", ApprovalMode::Off),
    ] {
        let loaded = from_yaml(&format!("approvals: {{mode: {mode}}}"));
        assert_eq!(config(&loaded).approvals.mode, wanted, "{mode}");
    }
    for (mode, suggestion) in [
        ("manuel", "did you mean `manual`?"),
        ("smrt", "did you mean `smart`?"),
        ("'false'", "write one of the three"),
        ("true", "write one of the three"),
        ("0", "write one of the three"),
    ] {
        let loaded = from_yaml(&format!("approvals: {{mode: {mode}}}"));
        let shown = mode.trim_matches('\'');
        let wanted = format!(
            "config.yaml:1:13: approvals.mode: `{shown}` is not one of manual, smart, off; manual counts ({suggestion})"
        );
        assert_eq!(told(&loaded), [wanted]);
        assert_eq!(loaded.config.unwrap().approvals.mode, ApprovalMode::Manual, "{mode}");
    }
    let loaded = from_yaml("approvals: {deny: 'rm {a,b}*', cron_mode: deny}\ncommand_allowlist: 'one, two'\n");
    assert_eq!(config(&loaded).approvals.deny, ["rm {a,b}*"], "a glob is not parted at its commas");
    assert_eq!(config(&loaded).command_allowlist, ["one, two"]);
    assert_eq!(
        problems(
            "approvals:\n  cron_mode: approve\n  mcp_reload_confirm: true\n  on_timeout: hold\n  timeout: 0\n  denny: [x]\n"
        ),
        [
            "config.yaml:2:3: approvals.cron_mode: not supported yet: there are no scheduled jobs",
            "config.yaml:3:3: approvals.mcp_reload_confirm: not supported yet; it has no effect",
            "! config.yaml:4:15: approvals.on_timeout: `hold` is not one of continue, halt",
            "! config.yaml:5:12: approvals.timeout: `0` seconds is not from 1 to 86400",
            "config.yaml:6:3: approvals.denny: unknown key `denny`; it has no effect (did you mean `deny`?)",
        ]
    );
}

#[test]
fn each_platform_has_its_tools_and_what_is_disabled_nobody_has() {
    let all: Vec<&str> = crate::agent::toolset::TOOLS.to_vec();
    let safe = ["web_search", "web_extract", "clarify"];
    let nothing = from_yaml("");
    let nothing = config(&nothing);
    assert_eq!(
        (nothing.tools_of(Platform::Telegram), nothing.tools_of(Platform::Webhook)),
        (owned(&all), owned(&safe))
    );

    let loaded = from_yaml(concat!(
        "agent: {disabled_toolsets: [web, process, browser]}\n",
        "platform_toolsets: {telegram: [hermes-telegram], webhook: none, cli: 'file, web'}\n",
        "webhook: {extra: {secret: s3cret-s3cret, routes: {a: {tools: [web, todo]}, b: {}}}}\n",
    ));
    let config_of_all = config(&loaded);
    let telegram: Vec<&str> =
        all.iter().copied().filter(|tool| !["web_search", "web_extract", "process"].contains(tool)).collect();
    assert_eq!(config_of_all.tools_of(Platform::Telegram), owned(&telegram));
    assert_eq!(config_of_all.tools_of(Platform::Webhook), owned(&[]));
    assert_eq!(
        config_of_all.tools_of(Platform::Local),
        owned(&["read_file", "write_file", "patch", "search_files"]),
        "the reference's `cli` is our local chat"
    );
    let of_route = |name: &str| config_of_all.tools_of_route(&config_of_all.webhook.routes[name]);
    assert_eq!((of_route("a"), of_route("b")), (owned(&["todo"]), owned(&[])));
    let loaded = from_yaml("agent: {disabled_toolsets: web}");
    assert_eq!(config(&loaded).tools_of(Platform::Webhook), owned(&["clarify"]), "of the defaults too");
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn toolsets_and_platforms_that_are_not_there_are_named() {
    assert_eq!(
        problems(concat!(
            "platform_toolsets:\n  telegram: [web, vision, skills, termnal]\n  discord: [hermes-discord]\n",
            "  cron: [all]\n  webhok: [web]\n  local: [vision, tts]\n  cli: [web]\n  webhook: {web: true}\n",
        )),
        [
            "config.yaml:2:3: platform_toolsets: platforms that are not supported yet: discord, cron",
            "config.yaml:2:3: platform_toolsets: toolsets that are not supported yet: vision, skills, tts",
            "config.yaml:2:35: platform_toolsets.telegram: there is no toolset or tool `termnal` (did you mean `terminal`?)",
            "config.yaml:5:3: platform_toolsets.webhok: unknown platform `webhok`; it has no effect (did you mean `webhook`?)",
            "config.yaml:7:3: platform_toolsets.cli: this has no effect, because `platform_toolsets.local` is set and wins (keep one of the two)",
            "! config.yaml:8:12: platform_toolsets.webhook: a list is wanted, not a mapping (write it as `[one, two]`)",
        ]
    );
    // What is misspelt here would stay on.
    assert_eq!(
        problems("agent: {disabled_toolsets: [termnal, browser, my_plugin]}"),
        [
            "! config.yaml:1:29: agent.disabled_toolsets: there is no toolset or tool `termnal` (did you mean `terminal`?)",
            "config.yaml:1:47: agent.disabled_toolsets: there is no toolset or tool `my_plugin`",
        ]
    );
    assert_eq!(
        problems("platform_toolsets: [web]"),
        [
            "! config.yaml:1:20: platform_toolsets: platforms with their toolsets are wanted, not a list (write `platform_toolsets:` and below it, indented, lines such as `telegram: [web, file]`)"
        ]
    );
    let route = "webhook: {extra: {routes: {a: {secret: s3cret-s3cret, tools: [web, fil]}}}}";
    assert_eq!(
        problems(route),
        ["! config.yaml:1:55: webhook.extra.routes.a.tools: there is no toolset or tool `fil` (did you mean `file`?)"]
    );
    let told = problems("agent: {max_turns: 1001}\nHERMES_MAX_ITERATIONS: 0\n");
    assert_eq!(told, ["! config.yaml:2:24: HERMES_MAX_ITERATIONS: `0` is not from 1 to 1000"]);
}

#[test]
fn commands_run_where_and_as_long_as_it_is_written() {
    let started_in = std::env::current_dir().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("work")).unwrap();
    let process = [("HOME", home.path().to_str().unwrap())];
    for (cwd, wanted) in [
        ("", started_in.clone()),
        (".", started_in.clone()),
        ("src", started_in.join("src")),
        ("~", home.path().to_owned()),
        ("~/work", home.path().join("work")),
        ("/", PathBuf::from("/")),
    ] {
        let yaml = format!("terminal: {{cwd: '{cwd}'}}");
        assert_eq!(config(&Files { yaml: &yaml, env: "", process: &process }.load()).terminal.cwd, wanted, "{cwd}");
    }
    let limits = |yaml: &str| {
        let terminal = from_yaml(yaml).config.unwrap().terminal;
        (terminal.timeout.as_secs(), terminal.max_timeout.as_secs())
    };
    assert_eq!(limits(""), (60, 600));
    assert_eq!(limits("terminal: {timeout: 900}"), (900, 900));
    assert_eq!(limits("terminal: {timeout: 900, max_timeout: 300}"), (300, 300));
    assert_eq!(
        problems(
            "terminal:\n  backend: docker\n  docker_image: x\n  cwd: /nowhere/at/all\n  timeout: 900\n  max_timeout: 300\n  timeot: 3\n"
        ),
        [
            "config.yaml:2:3: terminal.backend: not supported yet: commands run on this machine as the gateway's user, in NO container",
            "config.yaml:3:3: terminal.docker_image: not supported yet; it has no effect",
            "config.yaml:4:3: terminal.cwd: there is no such directory; until it is made, no command can run (create it, or correct the path)",
            "config.yaml:6:3: terminal.max_timeout: this is less than terminal.timeout, and counts for every command (lower terminal.timeout too)",
            "config.yaml:7:3: terminal.timeot: unknown key `timeot`; it has no effect (did you mean `timeout`?)",
        ]
    );
    assert_eq!(problems("terminal: {backend: local}"), Vec::<String>::new(), "that is what happens anyway");
}

#[test]
fn output_is_bounded_by_the_references_key_unless_ours_is_there() {
    let bytes = |yaml: &str| config(&from_yaml(yaml)).limits.tool_output_bytes;
    assert_eq!(bytes("tool_output: {max_bytes: 2000}"), 2000);
    let both = from_yaml("tool_output: {max_bytes: 2000, max_lines: 3}\nlimits: {tool_output_bytes: 3000}\n");
    assert_eq!(
        told(&both),
        [
            "config.yaml:1:15: tool_output.max_bytes: this has no effect, because `limits.tool_output_bytes` is set and wins (keep one of the two)",
            "config.yaml:1:32: tool_output.max_lines: not supported yet; it has no effect",
        ]
    );
    assert_eq!(both.config.unwrap().limits.tool_output_bytes, 3000);
}

#[test]
fn file_tools_reach_what_is_written_and_nothing_else() {
    let files = |yaml: &str| {
        let loaded = Files { yaml, env: "", process: &[("HOME", "/home/alice")] }.load();
        config(&loaded).files.clone()
    };
    assert_eq!(files(""), FileAccess { roots: vec![".".into()], deny: Vec::new() });
    assert_eq!(files("files: {roots: []}").roots, Vec::<PathBuf>::new(), "an empty list is nothing, not the default");
    let written = files("files: {roots: [., ~/notes], deny: [~/notes/private, '*.pem']}");
    assert_eq!(written.roots, [PathBuf::from("."), PathBuf::from("/home/alice/notes")]);
    assert_eq!(written.deny, ["/home/alice/notes/private", "*.pem"]);
    assert!(problems("files: {deny: ['${NOPE}']}")[0].starts_with("! config.yaml:1:16: files.deny[0]: "));
}

#[test]
fn variables_are_passed_on_by_name_and_are_secrets() {
    let yaml = "secrets:\n  pass_to_tools: [GH_TOKEN, PLAIN, GH_TOKEN, NOPE, EMPTY]\n  pass_to_hooks: PLAIN\n";
    let files =
        Files { yaml, env: "GH_TOKEN=from-env-file\nPLAIN=plain-value\n", process: &[("PLAIN", "from-process")] };
    let loaded = files.load();
    assert_eq!(
        told(&loaded),
        [
            "config.yaml:2:3: secrets.pass_to_tools: the variable `NOPE` is not set, so it is not passed on (set it in .env, or remove the name)",
            "config.yaml:2:3: secrets.pass_to_tools: the variable `EMPTY` is not set, so it is not passed on (set it in .env, or remove the name)",
        ]
    );
    let config = loaded.config.unwrap();
    let pairs = |env: &[(String, SecretString)]| -> Vec<String> {
        env.iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect()
    };
    assert_eq!(pairs(&config.tool_env), ["GH_TOKEN=from-env-file", "PLAIN=from-process"]);
    assert_eq!(pairs(&config.hook_env), ["PLAIN=from-process"]);
    assert!(config.secrets.iter().any(|secret| secret.expose_secret() == "from-process"));
    assert_eq!(
        problems("secrets: {pass_to_tools: ['A=1']}"),
        [
            "! config.yaml:1:27: secrets.pass_to_tools: this is not the name of a variable (write names such as `[GITHUB_TOKEN]`, no values)"
        ]
    );
}

#[test]
fn budgets_are_more_than_nothing_and_costs_need_prices() {
    let loaded = from_yaml(concat!(
        "model: {prices: {input: 0.15, output: '0.6'}}\n",
        "budgets: {turn: {cost: 0.1, tokens: 5}, user: {cost: 12}, route: {tool_calls: 7}}\n",
    ));
    let of = config(&loaded);
    assert_eq!(of.model.prices, Some(Prices { input_micros: 150_000, output_micros: 600_000 }));
    assert_eq!(of.budgets.turn, Budget { tokens: Some(5), tool_calls: None, cost_micros: Some(100_000) });
    assert_eq!(of.budgets.user.cost_micros, Some(12_000_000));
    assert_eq!(of.budgets.route, Budget { tool_calls: Some(7), ..Budget::default() });
    assert!(config(&from_yaml("budgets: {}")).budgets.turn.is_empty());
    assert_eq!(
        problems("budgets:\n  turn: {tokens: 0, tool_calls: -1, cost: 0}\n  user: {cost: 1, calls: 3}\n  rute: {}\n"),
        [
            "! config.yaml:2:18: budgets.turn.tokens: `0` is not from 1 to 1000000000000",
            "! config.yaml:2:33: budgets.turn.tool_calls: `-1` is not from 1 to 1000000000000",
            "! config.yaml:2:43: budgets.turn.cost: `0` is not more than 0",
            "! config.yaml:3:10: budgets.user.cost: a budget of costs needs the prices of the model (set model.prices.input and model.prices.output)",
            "config.yaml:3:19: budgets.user.calls: unknown key `calls`; it has no effect (did you mean `tool_calls`?)",
            "config.yaml:4:3: budgets.rute: unknown key `rute`; it has no effect (did you mean `route`?)",
        ]
    );
    for (prices, wanted) in [
        (
            "{input: 1}",
            "! config.yaml:1:18: model.prices.input: the price of what the model reads needs that of what it writes",
        ),
        (
            "{output: 1}",
            "! config.yaml:1:18: model.prices.output: the price of what the model writes needs that of what it reads",
        ),
        ("{input: -1, output: 1}", "! config.yaml:1:25: model.prices.input: `-1` is not from 0 to 1000000000"),
        ("{input: 1, output: .nan}", "! config.yaml:1:36: model.prices.output: `.nan` is not from 0 to 1000000000"),
        (
            "{input: 1, output: cheap}",
            "! config.yaml:1:36: model.prices.output: an amount of money is wanted, not `cheap`",
        ),
    ] {
        let told = problems(&format!("model: {{prices: {prices}}}"));
        assert!(told[0].starts_with(wanted), "{told:?}");
    }
    let first = "model: {provider: custom, default: m, base_url: 'http://x', prices: {input: 1, output: 2}}\n";
    let fallbacks = from_yaml(&format!(
        "{first}fallback_providers: [{{model: m-2}}, {{model: m-3, prices: {{input: 3, output: 4}}}}]\n"
    ));
    let prices: Vec<u64> =
        config(&fallbacks).model.fallbacks.iter().map(|one| one.prices.unwrap().output_micros).collect();
    assert_eq!(prices, [2_000_000, 4_000_000]);
    assert!(
        problems(&format!("{first}fallback_providers: [{{model: m, prices: 3}}]\n"))[0]
            .starts_with("! config.yaml:2:41: fallback_providers[0].prices: the prices of a model are wanted")
    );
}

#[test]
fn the_web_is_searched_at_a_server_and_private_places_are_exact() {
    let loaded = from_yaml(
        "web: {search_url: 'https://u:pass-word@s.example/q', search_api_key: a-search-key, allow_private: ['A.b:80', '[::1]:8080']}",
    );
    let of = config(&loaded);
    assert_eq!(of.web.allow_private, [("a.b".to_owned(), 80), ("::1".to_owned(), 8080)]);
    assert_eq!(value_at(&loaded, "web.search_url"), "https://u:***@s.example/q");
    for secret in ["pass-word", "a-search-key"] {
        assert!(of.secrets.iter().any(|known| known.expose_secret() == secret), "{secret}");
    }
    for place in ["a.b", "a.b:0", "a.b:x", ":80", "http://a.b:80", "::1:80", "[a.b]:80", "a b:80", "a.b:70000"] {
        let told = problems(&format!("web: {{allow_private: ['{place}']}}"));
        assert!(
            told[0].starts_with("! config.yaml:1:23: web.allow_private: a private place is a host and"),
            "{told:?}"
        );
    }
    assert_eq!(
        problems("web: {backend: firecrawl, serch_url: x, search_url: x, search_api_key: changeme}"),
        [
            "config.yaml:1:7: web.backend: not supported yet; it has no effect",
            "config.yaml:1:27: web.serch_url: unknown key `serch_url`; it has no effect (did you mean `search_url`?)",
            "! config.yaml:1:53: web.search_url: `x` is not an http or https address (write it as `https://host` or `http://host:port`)",
            "config.yaml:1:56: web.search_api_key: this is a placeholder, not a key; it is not used (write the key, or remove it)",
        ]
    );
}

#[test]
fn references_are_replaced_or_told_and_never_a_secret_themselves() {
    let yaml = concat!(
        "console: {port: \"${PORT:-60}\", token: 'a-${WORD}-token'}\nmodel: {system_prompt: '$X ${} $${X} ${NOPE}'}\n",
        "allowed_users: ['${WORD}', '${NOBODY:-7}']\n",
    );
    let loaded = Files { yaml, env: "WORD=from-env-file\n", process: &[("PORT", "")] }.load();
    let unresolved = "set the variable, give a default with `${NAME:-default}`, or write `$${` for a plain `${`";
    assert_eq!(
        told(&loaded),
        [
            format!("config.yaml:2:24: model.system_prompt: `${{}}` is not a reference to a variable ({unresolved})"),
            format!("config.yaml:2:24: model.system_prompt: the variable `NOPE` is not set ({unresolved})"),
        ]
    );
    let config = loaded.config.unwrap();
    assert_eq!(config.console.port, 60);
    assert_eq!(config.console.token.unwrap().expose_secret(), "a-from-env-file-token");
    assert_eq!(config.model.system_prompt.as_deref(), Some("$X ${} ${X} ${NOPE}"));
    assert_eq!(config.allowed.users, ["from-env-file", "7"]);

    for (yaml, path) in [
        ("platforms: {telegram: {token: '${NOPE}'}}", "1:31: platforms.telegram.token"),
        ("model: {api_key: '${}'}", "1:18: model.api_key"),
        ("model: {base_url: 'http://${NOPE}/v1'}", "1:19: model.base_url"),
        ("console: {token: 'x${NOPE'}", "1:18: console.token"),
        (
            "platforms: {webhook: {extra: {routes: {ci: {secret: '${NOPE}'}}}}}",
            "1:53: platforms.webhook.extra.routes.ci.secret",
        ),
        (
            "platforms: {webhook: {extra: {routes: {ci: {secret: ['${NOPE}']}}}}}",
            "1:54: platforms.webhook.extra.routes.ci.secret[0]",
        ),
        (
            "webhook: {extra: {routes: {ci: {secret: s3cret-s3cret, deliver_extra: {chat_id: '${NOPE}'}}}}}",
            "1:81: webhook.extra.routes.ci.deliver_extra.chat_id",
        ),
    ] {
        let told = problems(yaml);
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].starts_with(&format!("! config.yaml:{path}: ")), "{told:#?}");
    }
    let env = from_env("TELEGRAM_BOT_TOKEN=${NOPE}\nOTHER=${NOPE}\n");
    let told = told(&env);
    assert!(told[0].starts_with("! .env:1: TELEGRAM_BOT_TOKEN: the variable `NOPE` is not set"), "{told:?}");
    assert!(told[1].starts_with(".env:2: OTHER: the variable `NOPE` is not set"), "{told:?}");
}

#[test]
fn placeholders_turn_telegram_off_with_a_warning() {
    for token in ["''", "your-token-here", "changeme", "<token>", "YOUR_BOT_TOKEN", "xxx", "replace-me"] {
        let loaded = from_yaml(&format!("platforms: {{telegram: {{token: {token}}}}}"));
        let told = told(&loaded);
        assert_eq!(told.len(), 1, "{token}: {told:?}");
        assert!(told[0].contains("the bot token is empty or a placeholder, so Telegram stays off"), "{told:?}");
        assert!(loaded.config.unwrap().telegram.is_empty(), "{token}");
    }
    assert!(!config(&from_yaml(TOKEN)).telegram.is_empty());
    let off = Files { yaml: "telegram: {enabled: false}", env: "TELEGRAM_BOT_TOKEN=1:abcdef", process: &[] }.load();
    assert!(config(&off).telegram.is_empty());
    let no_token = problems("telegram: {enabled: true}");
    assert!(no_token[0].contains("Telegram is enabled but has no token"), "{no_token:?}");
    assert!(problems("telegram: {token: '1:ab cd'}")[0].starts_with("! config.yaml:1:12: telegram.token: "));
}

#[test]
fn the_home_channel_has_a_short_and_a_long_form() {
    let home = |yaml: &str, env: &str| {
        let loaded = Files { yaml, env, process: &[("TELEGRAM_BOT_TOKEN", "1:abcdef")] }.load();
        config(&loaded).telegram[""].home_channel.as_ref().map(ToString::to_string)
    };
    let long = "telegram: {home_channel: {platform: telegram, chat_id: -5, name: Home, thread_id: 7}}";
    assert_eq!(home("telegram: {home_channel: -100}", "").as_deref(), Some("telegram:-100"));
    assert_eq!(home("telegram: {home_channel: '@news'}", "").as_deref(), Some("telegram:@news"));
    assert_eq!(home(long, "").as_deref(), Some("telegram:-5:7"));
    assert_eq!(home(long, "TELEGRAM_HOME_CHANNEL_THREAD_ID=8").as_deref(), Some("telegram:-5:8"));
    assert_eq!(home(long, "TELEGRAM_HOME_CHANNEL=9").as_deref(), Some("telegram:9"));
    assert_eq!(home("", "TELEGRAM_HOME_CHANNEL=9\nTELEGRAM_HOME_CHANNEL_THREAD_ID=8").as_deref(), Some("telegram:9:8"));
    assert_eq!(home("", "TELEGRAM_HOME_CHANNEL="), None);
    let bad = problems("telegram: {token: '1:abcdef', home_channel: 'telegram:5'}");
    assert!(
        bad[0].starts_with("! config.yaml:1:45: telegram.home_channel: `telegram:5` is not a Telegram chat"),
        "{bad:?}"
    );
}

#[test]
fn the_model_is_what_the_settings_imply() {
    let model = |yaml: &str, process: &[(&str, &str)]| {
        let loaded = Files { yaml, env: "", process }.load();
        let model = config(&loaded).model.clone();
        (model.provider, model.name, model.base_url, model.api_key.map(|key| key.expose_secret().to_owned()))
    };
    let key = Some("sk-123456".to_owned());
    let env = &[("OPENAI_API_KEY", "sk-123456")][..];
    let openai =
        |name: &str, url: &str, key: &Option<String>| (Provider::OpenAi, name.to_owned(), url.to_owned(), key.clone());
    assert_eq!(model("", env).0, Provider::Echo);
    assert_eq!(model("model: gpt-x", env), openai("gpt-x", super::model::OPENAI_API, &key));
    assert_eq!(model("model: {name: gpt-x}", env), openai("gpt-x", super::model::OPENAI_API, &key));
    assert_eq!(model("model: {model: m, base_url: 'http://x/v1'}", &[]), openai("m", "http://x/v1", &None));
    assert_eq!(
        model("model: {default: m, provider: custom, base_url: 'http://x'}", &[]),
        openai("m", "http://x", &None)
    );
    assert_eq!(model("model: {default: m, provider: openai}", env), openai("m", super::model::OPENAI_API, &key));
    assert_eq!(model("model: m", &[("OPENAI_BASE_URL", "http://y")]), openai("m", "http://y", &None));
    assert_eq!(model("model: {provider: echo, default: m, api_key: sk-123456}", &[]).0, Provider::Echo);
    assert_eq!(model("model: echo", &[]).0, Provider::Echo);

    for (yaml, wanted) in [
        ("model: gpt-x", "! config.yaml:1:1: model: a model is named, but there is neither a key nor a server for it"),
        (
            "model: {provider: anthropic, default: m}",
            "! config.yaml:1:9: model.provider: Anthropic's own server needs a key (set ANTHROPIC_API_KEY in .env)",
        ),
        (
            "model: {provider: opnai}",
            "! config.yaml:1:9: model.provider: this provider is not known; there are echo, openai, anthropic, custom and replay (did you mean `openai`?)",
        ),
        (
            "model: {provider: antropic, default: m, api_key: sk-123456}",
            "! config.yaml:1:9: model.provider: this provider is not known; there are echo, openai, anthropic, custom and replay (did you mean `anthropic`?)",
        ),
        (
            "model: {provider: openai, default: m, api_key: sk-123456, api_mode: anthropic_messages}",
            "! config.yaml:1:59: model.api_mode: this provider's own server speaks another dialect (remove it, or set model.base_url)",
        ),
        (
            "model: {default: m, base_url: 'http://x', api_mode: codex_responses}",
            "! config.yaml:1:53: model.api_mode: `codex_responses` is not one of chat_completions, anthropic_messages, auto",
        ),
        (
            "model: {provider: replay}",
            "! config.yaml:1:9: model.provider: replay needs a file to answer from (set model.replay)",
        ),
        (
            "model: {default: m, base_url: 'http://x', max_tokens: 0}",
            "! config.yaml:1:55: model.max_tokens: `0` is not from 1 to 100000000",
        ),
        (
            "model: {default: m, base_url: 'http://x', max_token: 5}",
            "config.yaml:1:43: model.max_token: unknown key `max_token`; it has no effect (did you mean `max_tokens`?)",
        ),
        (
            "model: {provider: custom, default: m}",
            "! config.yaml:1:9: model.provider: a custom provider needs the address of its server (set model.base_url)",
        ),
        ("model: {provider: openai, default: m}", "! config.yaml:1:9: model.provider: OpenAI's own server needs a key"),
        ("model: {provider: openai, api_key: sk-123456}", "! config.yaml: model.default: no model is named"),
        (
            "model: {base_url: 'localhost:1', default: m}",
            "! config.yaml:1:19: model.base_url: `localhost:1` is not an http or https address",
        ),
        (
            "model: {provider: openrouter, default: m, base_url: 'http://x'}",
            "config.yaml:1:9: model.provider: this provider is not known, so its server is spoken to as an OpenAI-compatible one",
        ),
        ("model: {provider: openrouter, default: m}", "! config.yaml:1:9: model.provider: this provider is not known"),
        (
            "model: {base_url: 'http://x'}",
            "config.yaml: model.default: no model is named; the server is asked for `default`",
        ),
        (
            "model: {default: m, base_url: 'http://x', api_key: your-key}",
            "config.yaml:1:43: model.api_key: this is a placeholder",
        ),
    ] {
        let told = problems(yaml);
        assert!(told.first().is_some_and(|first| first.starts_with(wanted)), "{yaml}: {told:#?}");
    }
    let env_file = from_env("ANTHROPIC_API_KEY=sk-ant-123456\n");
    assert_eq!(
        told(&env_file),
        [
            ".env:1: ANTHROPIC_API_KEY: a key is set but no model is named, so the built-in echo answers (set model.provider to anthropic and model.default in config.yaml)"
        ]
    );
    let env_file = from_env("OPENAI_API_KEY=sk-123456\n");
    assert!(told(&env_file)[0].starts_with(".env:1: OPENAI_API_KEY: a key is set but no model is named"));
    let yaml = "model: {default: m, base_url: 'http://x', api_key: own-key-1}";
    let both = Files { yaml, env: "", process: env }.load();
    assert!(told(&both)[0].contains("OPENAI_API_KEY wins over model.api_key and is sent to model.base_url"));
    let yaml = "model: {default: m, base_url: 'http://x', api_key: '${OPENAI_API_KEY}'}";
    assert_eq!(told(&Files { yaml, env: "", process: env }.load()), Vec::<String>::new(), "the same key twice is one");
}

#[test]
fn each_key_goes_to_its_own_provider() {
    let both = &[("OPENAI_API_KEY", "sk-123456"), ("ANTHROPIC_API_KEY", "sk-ant-123"), ("OPENAI_BASE_URL", "http://y")];
    let of = |yaml: &str| {
        let loaded = Files { yaml, env: "", process: both }.load();
        let model = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.problems)).model;
        (model.provider, model.base_url, model.api_key.map(|key| key.expose_secret().to_owned()).unwrap_or_default())
    };
    let is = |provider, url: &str, key: &str| (provider, url.to_owned(), key.to_owned());
    let anthropic = is(Provider::Anthropic, super::model::ANTHROPIC_API, "sk-ant-123");
    assert_eq!(of("model: {provider: Anthropic, default: claude-x}"), anthropic);
    assert_eq!(of("model: {provider: openai, default: m}"), is(Provider::OpenAi, "http://y", "sk-123456"));
    assert_eq!(
        of("model: {provider: custom, default: m, base_url: 'http://x/v1/messages', api_mode: anthropic_messages}"),
        is(Provider::Anthropic, "http://x/v1/messages", "sk-ant-123")
    );
    // The environment wins over the file, as everywhere.
    assert_eq!(
        of("model: {provider: anthropic, default: m, base_url: 'http://x', api_mode: chat_completions}"),
        is(Provider::OpenAi, "http://y", "sk-123456")
    );
    assert_eq!(of("model: {default: m}").2, "sk-123456");
    assert_eq!(of("").0, Provider::Echo);
    let yaml = "model: {provider: anthropic, default: m, base_url: 'http://x', api_key: own-key-1}";
    let told = told(&Files { yaml, env: "", process: both }.load());
    assert!(told[0].contains("ANTHROPIC_API_KEY wins over model.api_key and is sent to model.base_url"), "{told:?}");
}

#[test]
fn fallbacks_take_over_what_is_the_same_and_nothing_else() {
    const FIRST: &str =
        "model: {provider: custom, default: m, base_url: 'http://x', api_key: own-key-1, max_tokens: 9}\n";
    let of = |fallbacks: &str, process: &[(&str, &str)]| {
        let loaded = Files { yaml: &format!("{FIRST}{fallbacks}"), env: "", process }.load();
        let one = |model: &Model| {
            let key = model.api_key.as_ref().map_or("-", |key| key.expose_secret());
            format!("{:?} {} {} {key} {:?}", model.provider, model.name, model.base_url, model.max_tokens)
        };
        let all: Vec<String> = config(&loaded).model.fallbacks.iter().map(one).collect();
        all
    };
    assert_eq!(of("fallback_providers: [{model: m-2}]", &[]), ["OpenAi m-2 http://x own-key-1 Some(9)"]);
    assert_eq!(
        of("fallback_model: {provider: custom, default: m-2, max_tokens: 5}", &[]),
        ["OpenAi m-2 http://x own-key-1 Some(5)"]
    );
    assert_eq!(
        of(
            "fallback_providers:\n- {provider: custom, model: m-2, base_url: 'http://y'}\n- {name: m-3, base_url: 'http://z', api_key: '${K}', api_mode: anthropic_messages}",
            &[("K", "key-of-z")]
        ),
        ["OpenAi m-2 http://y - Some(9)", "Anthropic m-3 http://z key-of-z Some(9)"]
    );
    assert_eq!(
        of("fallback_providers: [{provider: anthropic, model: claude-x}]", &[("ANTHROPIC_API_KEY", "sk-ant-123")]),
        ["Anthropic claude-x https://api.anthropic.com sk-ant-123 Some(9)"]
    );
    let loaded =
        from_yaml(&format!("{FIRST}fallback_providers: [{{model: m-2, base_url: 'http://y', api_key: second-key}}]"));
    assert!(config(&loaded).secrets.iter().any(|secret| secret.expose_secret() == "second-key"));
    assert!(!redacted_yaml(config(&loaded)).contains("second-key"));

    for (yaml, wanted) in [
        ("fallback_providers: m-2", "! config.yaml:2:21: fallback_providers: a list of models is wanted, not `m-2`"),
        ("fallback_providers: [m-2]", "! config.yaml:2:22: fallback_providers[0]: a model is wanted here"),
        ("fallback_providers: [{}]", "! config.yaml:2:22: fallback_providers[0]: no model is named"),
        (
            "fallback_providers: [{provider: anthropic, model: m}]",
            "config.yaml:2:22: fallback_providers[0]: it is not asked: its server needs a key (set ANTHROPIC_API_KEY in .env, or its `api_key`)",
        ),
        (
            "fallback_providers: [{model: m, provider: antropic}]",
            "config.yaml:2:33: fallback_providers[0].provider: it is not asked: a fallback is at openai, anthropic or custom",
        ),
        (
            "fallback_providers: [{model: m, api_key: '${NOPE}'}]",
            "! config.yaml:2:42: fallback_providers[0].api_key: the variable `NOPE` is not set",
        ),
        (
            "fallback_providers: [{model: m, modle: m, temperature: 1}]",
            "config.yaml:2:33: fallback_providers[0].modle: unknown key `modle`; it has no effect (did you mean `model`?)",
        ),
        (
            "fallback_providers: [{model: m, base_url: 'http://y', api_key: your-key}]",
            "config.yaml:2:55: fallback_providers[0].api_key: this is a placeholder, not a key; it is not used",
        ),
        (
            "fallback_providers: [{model: m, base_url: x}]",
            "! config.yaml:2:43: fallback_providers[0].base_url: `x` is not an http or https address",
        ),
        (
            "fallback_providers: [{model: m}]\nfallback_model: {model: n}",
            "config.yaml:3:1: fallback_model: this has no effect, because `fallback_providers` is set and wins",
        ),
    ] {
        let told = problems(&format!("{FIRST}{yaml}\n"));
        assert!(told.first().is_some_and(|first| first.starts_with(wanted)), "{yaml}: {told:#?}");
    }
}

#[test]
fn a_listener_is_for_this_machine_unless_a_host_is_written() {
    for (host, wanted) in [("", "127.0.0.1"), ("null", "127.0.0.1"), ("0.0.0.0", "0.0.0.0"), ("'[::1]'", "::1")] {
        let loaded = from_yaml(&format!("platforms: {{webhook: {{extra: {{host: {host}}}}}}}"));
        assert_eq!(config(&loaded).webhook.host, wanted, "{host:?}");
    }
    let all = from_yaml("platforms: {webhook: {extra: {host: ''}}}");
    assert_eq!(
        told(&all),
        [
            "config.yaml:1:31: platforms.webhook.extra.host: an empty host listens on all interfaces (write `0.0.0.0` if that is meant, else `127.0.0.1`)"
        ]
    );
    assert_eq!(all.config.unwrap().webhook.host, "0.0.0.0");
    assert!(problems("console: {host: '127.0.0.1:8642'}")[0].contains("neither an address nor a host name"));
    assert!(problems("console: {token: changeme}")[0].starts_with("! "));
    for (host, wanted) in
        [("127.0.0.9", true), ("LocalHost", true), ("::1", true), ("0.0.0.0", false), ("example.org", false)]
    {
        assert_eq!(build::is_loopback(host), wanted, "{host}");
    }
}

#[test]
fn the_addresses_and_databases_that_cannot_be_used_are_refused() {
    for (url, wanted) in [
        ("postgres://user:geheim@db", "the address names no database"),
        ("postgres://user:geheim/x@db/x", "cannot be read: invalid port number"),
        ("postgres://user:1/geheim@db/x", "has a `#` or `@` where none can be"),
        ("mysql://user:geheim@db/x", "not with \"mysql\""),
        ("hookgate.db", "the address of a database begins with `sqlite:`"),
        ("'sqlite:'", "the database's file is missing"),
    ] {
        let told = problems(&format!("storage: {{url: {url}}}"));
        assert!(told[0].contains(wanted) && !told[0].contains("geheim"), "{told:?}");
    }
    assert_eq!(
        problems("platforms: {webhook: {extra: {trusted_proxies: [127.0.0.1, 10.0.0.0/8]}}}"),
        [
            "! config.yaml:1:60: platforms.webhook.extra.trusted_proxies: a proxy is an exact IP address (write each as `10.0.0.2`, not as a name or a range)"
        ]
    );
}

#[test]
fn static_routes_are_checked_and_their_problems_have_places() {
    let yaml = concat!(
        "platforms:\n  telegram: {token: '1:abcdef'}\n  webhook:\n    extra:\n      host: 0.0.0.0\n      routes:\n",
        "        open:\n          secret: INSECURE_NO_AUTH\n",
        "        typo:\n          secret: s3cret-s3cret\n          deliver: telegarm\n",
        "        lost:\n          secret: s3cret-s3cret\n          deliver: telegram\n",
        "        none:\n          secret: s3cret-s3cret\n          deliver: telegram:5\n          deliver_extra: {chat_id: ''}\n",
        "        bare:\n          prompt: hi\n",
        "        text: 5\n",
    );
    let errors = problems(yaml);
    let root = "platforms.webhook.extra.routes";
    for (line, (place, path)) in errors.iter().zip([
        ("8:11", "open.secret"),
        ("11:11", "typo.deliver"),
        ("14:11", "lost.deliver"),
        ("18:27", "none.deliver_extra.chat_id"),
        ("19:9", "bare.secret"),
        ("21:9", "text"),
    ]) {
        assert!(line.starts_with(&format!("! config.yaml:{place}: {root}.{path}: ")), "{path}: {errors:#?}");
    }
    assert_eq!(errors.len(), 6, "{errors:#?}");

    let typo = "webhook: {extra: {routes: {ci: {secret: s3cret-s3cret, deliver_chat_d: 5}}}}";
    let warning = &problems(typo)[0];
    assert!(warning.starts_with("config.yaml:1:56: webhook.extra.routes.ci.deliver_chat_d: "), "{warning}");
    assert!(warning.ends_with("(did you mean `deliver_extra.chat_id`?)"), "{warning}");

    let local = from_yaml(
        "webhook: {extra: {routes: {a: {secret: INSECURE_NO_AUTH}, b: {secret: 012345, prompt: 1e3}, c: {secret: short}}}}",
    );
    let warnings = told(&local);
    assert!(warnings[0].starts_with("config.yaml:1:32: webhook.extra.routes.a.secret: "), "{warnings:?}");
    let config = local.config.unwrap();
    assert_eq!(config.webhook.routes["b"].secrets[0].expose_secret(), "012345");
    assert_eq!(config.webhook.routes["b"].prompt, "1e3");
    assert!(
        problems("webhook: {extra: {routes: [a]}}")[0]
            .starts_with("! config.yaml:1:27: webhook.extra.routes: routes are wanted")
    );
}

#[test]
fn a_route_uses_the_listeners_secret_and_the_home_channel() {
    let yaml = "webhook: {extra: {secret: s3cret-s3cret, routes: {a: {deliver: telegram}}}}\ntelegram: {token: '1:abcdef', home_channel: -7}\n";
    let loaded = from_yaml(yaml);
    let route = &config(&loaded).webhook.routes["a"];
    assert_eq!(route.secrets[0].expose_secret(), "s3cret-s3cret");
    let crate::webhook::route::Deliver::Chat(chat) = &route.deliver else { panic!("{route:?}") };
    assert_eq!(chat.chat_id, "-7");
}

#[test]
fn every_secret_is_known_for_redaction_and_none_is_shown() {
    let yaml = concat!(
        "platforms: {telegram: {token: '1:telegram-secret'}, webhook: {extra: {secret: webhook-secret, routes: ",
        "{a: {secret: route-secret, prompt: x}}}}}\nmodel: {default: m, base_url: 'http://x', api_key: 3f2b8c1e-uuid}\n",
        "console: {token: console-secret}\n",
    );
    let env = "DB_PASSWORD=password-secret\nGH_TOKEN=env-token\nSHORT_KEY=abc\nPLAIN=not-secret\nMADE_TOKEN=${GH_TOKEN}-more\nmy_key=lower-secret\n";
    let loaded = Files { yaml, env, process: &[] }.load();
    let config = config(&loaded);
    let mut secrets: Vec<&str> = config.secrets.iter().map(|secret| secret.expose_secret()).collect();
    assert!(secrets.windows(2).all(|pair| pair[0].len() >= pair[1].len()), "longest first");
    secrets.sort_unstable();
    let known = [
        "1:telegram-secret",
        "3f2b8c1e-uuid",
        "console-secret",
        "env-token",
        "env-token-more",
        "lower-secret",
        "password-secret",
        "route-secret",
        "webhook-secret",
    ];
    assert_eq!(secrets, known);
    let shown = redacted_json(config).to_string() + &redacted_yaml(config) + &format!("{config:?}");
    for secret in known {
        assert!(!shown.contains(secret), "{secret}");
    }
    let leaky = Files { yaml: "console: {port: '${GH_TOKEN}'}", env, process: &[] }.load();
    assert_eq!(told(&leaky), ["! config.yaml:1:17: console.port: a whole number is wanted, not this value"]);
}

#[test]
fn files_that_are_not_read_are_named() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("gateway.json"), "{}").unwrap();
    fs::write(home.path().join("config.yml"), "").unwrap();
    let loaded = load(LoadOptions { home: Some(home.path().to_owned()), ..LoadOptions::default() });
    let told = told(&loaded);
    assert!(told[0].ends_with("gateway.json: this file is not read (move what you need into config.yaml)"), "{told:?}");
    assert!(told[1].ends_with("config.yml: this file is not read (rename it to config.yaml)"), "{told:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn no_file_panics(
        key in "(model|platforms|telegram|webhook|gateway|console|limits|allowed_users|storage|hooks|agent|approvals|budgets|tool_output|platform_toolsets|terminal|files|secrets|web|[a-z]{1,5})",
        below in "(extra|token|port|host|routes|home_channel|prices|mode|turn|cost|deny|cwd|local|[a-z.]{0,6})",
        value in "[\\[\\]{}:a-z0-9 ,'\"$*&-]{0,16}",
    ) {
        from_yaml(&format!("{key}: {value}\n{key}:\n  {below}: {value}\n"));
    }
}

#[test]
fn where_telegram_is_asked_is_known_while_other_things_are_wrong_and_never_guessed() {
    let server = "extra: {base_url: 'http://bots.example'}, proxy: 'http://proxy:1'";
    for (yaml, known) in [
        (format!("telegram: {{token: '${{UNSET}}', {server}}}\nlimits: {{turns: many}}\n"), true),
        (format!("telegram: {{{server}}}\nwebhook: {{extra: {{routes: {{a: {{deliver: 'telegram:42'}}}}}}}}\n"), true),
        ("telegram: {extra: {base_url: '${UNSET}'}}\n".to_owned(), false),
        ("telegram: {proxy: 'ftp://x'}\n".to_owned(), false),
        (format!("telegram: {{{server}}}\n: [\n"), false),
    ] {
        let loaded = from_yaml(&yaml);
        assert!(loaded.config.is_none(), "{yaml}");
        let asked = loaded.telegram.map(|(server, _)| (server.base_url, server.proxy.is_some()));
        assert_eq!(asked, known.then(|| ("http://bots.example".to_owned(), true)), "{yaml}");
    }
}
