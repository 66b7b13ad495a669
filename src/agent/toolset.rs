//! Which tools a platform's turns get: names of tools and of sets of them, as configurations write them, become a list of
//! tools. Whether a tool exists in this build, or may be called, is decided elsewhere.

use hookgate_adapters::Platform;

use crate::config::suggest::nearest;

/// Every tool by its name, in the order in which the model is shown them.
pub const TOOLS: &[&str] = &[
    "terminal",
    "process",
    "read_file",
    "write_file",
    "patch",
    "search_files",
    "web_search",
    "web_extract",
    "send_message",
    "clarify",
    "todo",
];

/// What a toolset holds when it holds everything.
const EVERYTHING: &[&str] = TOOLS;
/// What somebody may use whose words come from outside: nothing that runs, writes or sends.
const SAFE: &[&str] = &["web_search", "web_extract", "clarify"];

/// The toolsets and their tools; the reference's names (`spec/hermes-gateway.md` §3), and `none`.
///
/// `hermes-<platform>` is what the reference gives a platform when nothing is configured: everything, and for webhooks the
/// safe few.
pub const TOOLSETS: &[(&str, &[&str])] = &[
    ("terminal", &["terminal", "process"]),
    ("file", &["read_file", "write_file", "patch", "search_files"]),
    ("web", &["web_search", "web_extract"]),
    ("messaging", &["send_message"]),
    ("clarify", &["clarify"]),
    ("todo", &["todo"]),
    ("safe", SAFE),
    ("all", EVERYTHING),
    ("core", EVERYTHING),
    ("none", &[]),
    ("hermes-telegram", EVERYTHING),
    ("hermes-local", EVERYTHING),
    ("hermes-webhook", SAFE),
    ("hermes-acp", EVERYTHING),
    ("hermes-api-server", EVERYTHING),
    ("hermes-bluebubbles", EVERYTHING),
    ("hermes-cli", EVERYTHING),
    ("hermes-cron", EVERYTHING),
    ("hermes-dingtalk", EVERYTHING),
    ("hermes-discord", EVERYTHING),
    ("hermes-email", EVERYTHING),
    ("hermes-feishu", EVERYTHING),
    ("hermes-gateway", EVERYTHING),
    ("hermes-homeassistant", EVERYTHING),
    ("hermes-matrix", EVERYTHING),
    ("hermes-mattermost", EVERYTHING),
    ("hermes-qqbot", EVERYTHING),
    ("hermes-signal", EVERYTHING),
    ("hermes-slack", EVERYTHING),
    ("hermes-sms", EVERYTHING),
    ("hermes-wecom", EVERYTHING),
    ("hermes-weixin", EVERYTHING),
    ("hermes-whatsapp", EVERYTHING),
    ("hermes-yuanbao", EVERYTHING),
];

/// Toolsets and tools of the reference that hookgate does not have yet.
const NOT_YET: &[&str] = &[
    "browser",
    "code_execution",
    "computer_use",
    "context_engine",
    "cronjob",
    "debugging",
    "delegate_task",
    "delegation",
    "discord",
    "discord_admin",
    "execute_code",
    "feishu_doc",
    "feishu_drive",
    "homeassistant",
    "image_gen",
    "image_generate",
    "kanban",
    "memory",
    "moa",
    "project",
    "search",
    "session_search",
    "skill_manage",
    "skill_view",
    "skills",
    "skills_list",
    "spotify",
    "stt",
    "text_to_speech",
    "tts",
    "video",
    "video_gen",
    "vision",
    "vision_analyze",
    "x_search",
    "yuanbao",
];
/// Tools that begin like this come later too: those of MCP servers and of the browser.
const NOT_YET_PREFIXES: &[&str] = &["mcp_", "mcp-", "browser_"];

/// What a list of names stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expanded {
    /// The tools, each once, in the order of the known ones.
    pub tools: Vec<String>,
    /// Names of the reference that hookgate has no tools for yet.
    pub not_yet: Vec<String>,
    /// Names nobody knows, each with the one that was probably meant.
    pub unknown: Vec<(String, Option<&'static str>)>,
}

/// The tools that `names` of toolsets and tools stand for, among `known_tools`. Blanks around a name and its case do not
/// count.
pub fn expand(names: &[String], known_tools: &[&str]) -> Expanded {
    let mut expanded = Expanded::default();
    let mut wanted: Vec<&str> = Vec::new();
    for written in names {
        let name = written.trim().to_ascii_lowercase();
        let set = TOOLSETS.iter().find(|(set, _)| *set == name).map(|(_, tools)| *tools);
        let named = |tool: &&str| *tool == name || set.is_some_and(|tools| tools.contains(tool));
        let tools: Vec<&str> = known_tools.iter().copied().filter(named).collect();
        let is_later = NOT_YET.contains(&name.as_str())
            || NOT_YET_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || TOOLS.contains(&name.as_str())
            || set.is_some_and(|tools| !tools.is_empty());
        if tools.is_empty() && is_later {
            expanded.not_yet.push(name);
        } else if tools.is_empty() && set.is_none() {
            let near = nearest(&name, TOOLSETS.iter().map(|(set, _)| *set).chain(TOOLS.iter().copied()));
            expanded.unknown.push((written.trim().to_owned(), near));
        }
        wanted.extend(tools);
    }
    let is_wanted = |tool: &&&str| wanted.contains(*tool);
    expanded.tools = known_tools.iter().filter(is_wanted).map(|tool| (*tool).to_owned()).collect();
    expanded
}

/// The toolset of a platform for which nothing is configured: what a webhook brings was written by anybody.
pub fn default_of(platform: Platform) -> &'static str {
    match platform {
        Platform::Telegram | Platform::Local => "all",
        Platform::Webhook => "safe",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(names: &[&str]) -> Expanded {
        expand(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), TOOLS)
    }

    #[test]
    fn every_set_holds_known_tools_and_no_name_is_two_things() {
        for (set, tools) in TOOLSETS {
            assert!(tools.iter().all(|tool| TOOLS.contains(tool)), "{set}");
            assert!(!NOT_YET.contains(set), "{set}");
            assert_eq!(TOOLSETS.iter().filter(|(other, _)| other == set).count(), 1, "{set}");
            // A set may have the name of a tool that it holds.
            assert!(!TOOLS.contains(set) || tools.contains(set), "{set}");
        }
        assert!(TOOLS.iter().all(|tool| !NOT_YET.contains(tool)));
    }

    #[test]
    fn sets_and_tools_may_be_mixed_and_come_once_and_in_order() {
        for (names, tools) in [
            (&["terminal"][..], &["terminal", "process"][..]),
            (&["file"], &["read_file", "write_file", "patch", "search_files"]),
            (&["web"], &["web_search", "web_extract"]),
            (&["messaging"], &["send_message"]),
            (&["clarify", "todo"], &["clarify", "todo"]),
            (&["safe"], &["web_search", "web_extract", "clarify"]),
            (&["hermes-webhook"], &["web_search", "web_extract", "clarify"]),
            (&["all"], TOOLS),
            (&["core"], TOOLS),
            (&["hermes-telegram"], TOOLS),
            (&["hermes-cli", "none", "safe"], TOOLS),
            (&["none"], &[]),
            (&[], &[]),
            (&["todo", " Web ", "read_file", "web_search"], &["read_file", "web_search", "web_extract", "todo"]),
        ] {
            let found = expanded(names);
            assert_eq!(found.tools, tools, "{names:?}");
            assert_eq!((found.not_yet.len(), found.unknown.len()), (0, 0), "{names:?}");
        }
    }

    #[test]
    fn what_is_not_here_yet_is_told_from_what_nobody_knows() {
        let found = expanded(&["vision", "todo", "mcp_files_read", "termnal", "read_fil", "hermes-webhok", "qqqq"]);
        assert_eq!(found.tools, ["todo"]);
        assert_eq!(found.not_yet, ["vision", "mcp_files_read"]);
        let unknown: Vec<_> = found.unknown.iter().map(|(name, near)| (name.as_str(), *near)).collect();
        assert_eq!(
            unknown,
            [
                ("termnal", Some("terminal")),
                ("read_fil", Some("read_file")),
                ("hermes-webhok", Some("hermes-webhook")),
                ("qqqq", None)
            ]
        );
    }

    #[test]
    fn a_build_without_a_tool_leaves_it_out() {
        let found = expand(&["web".to_owned(), "todo".to_owned()], &["web_extract"]);
        assert_eq!((found.tools, found.not_yet), (vec!["web_extract".to_owned()], vec!["todo".to_owned()]));
    }

    #[test]
    fn what_a_webhook_brings_runs_nothing() {
        let of = |platform| expanded(&[default_of(platform)]).tools;
        assert_eq!(of(Platform::Telegram), TOOLS);
        assert_eq!(of(Platform::Local), TOOLS);
        assert_eq!(of(Platform::Webhook), SAFE);
    }
}
