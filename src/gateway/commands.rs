//! Slash commands: how a text is read as one, and which there are. What they do is in `handle`.

/// A text read as a command (binding: `vectors/command_parse.json`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    /// Lower-cased, without the slash and the bot's name; `None` for paths such as `/tmp/file`.
    pub(super) name: Option<String>,
    /// What follows the name; dashes that phones make of `--` are turned back.
    pub(super) args: String,
}

/// Reads a text that starts with a slash. Paths and other texts that merely start so have no name.
pub(super) fn parse(text: &str) -> Option<Parsed> {
    if !text.starts_with('/') {
        return None;
    }
    let (word, rest) = match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim()),
        None => (text, ""),
    };
    let name = word[1..].split('@').next().unwrap_or_default().to_lowercase();
    let name = (!name.contains('/')).then_some(name);
    let args = rest.replace("——", "--").replace('—', "--").replace('–', "-");
    Some(Parsed { name, args })
}

/// The commands there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// Begins a new session.
    New,
    /// Stops the running turn.
    Stop,
    /// Tells what the session is doing.
    Status,
    /// Agrees to what a turn asks for.
    Approve,
    /// Refuses it.
    Deny,
    /// Asks for nothing more in this session.
    Yolo,
    /// Lists the commands.
    Help,
    /// What Telegram sends when a person opens the bot; nothing is answered.
    Start,
}

/// A command with the names people type and what `/help` says.
pub(super) struct Entry {
    /// The command.
    pub(super) command: Command,
    /// The name in events and hooks.
    pub(super) name: &'static str,
    aliases: &'static [&'static str],
    help: &'static str,
}

/// All commands, in the order of `/help`.
pub(super) const COMMANDS: &[Entry] = &[
    Entry { command: Command::New, name: "new", aliases: &["reset"], help: "begin a new session; the old one is kept" },
    Entry { command: Command::Stop, name: "stop", aliases: &[], help: "stop the answer under way" },
    Entry { command: Command::Status, name: "status", aliases: &[], help: "what this session is doing" },
    Entry {
        command: Command::Approve,
        name: "approve",
        aliases: &[],
        help: "agree to what waits for approval: [all] [session|always]",
    },
    Entry {
        command: Command::Deny,
        name: "deny",
        aliases: &[],
        help: "refuse what waits for approval: [all] [reason]",
    },
    Entry {
        command: Command::Yolo,
        name: "yolo",
        aliases: &[],
        help: "ask for no approvals in this session, or do again",
    },
    Entry { command: Command::Help, name: "help", aliases: &[], help: "this list" },
    Entry { command: Command::Start, name: "start", aliases: &[], help: "nothing; the bot is always on" },
];

/// The command of a typed name or alias.
pub(super) fn find(name: &str) -> Option<&'static Entry> {
    COMMANDS.iter().find(|entry| entry.name == name || entry.aliases.contains(&name))
}

/// Whether a text is meant as a command, known or not. A lone slash and paths are ordinary text.
pub(super) fn is_command(text: &str) -> bool {
    parse(text).and_then(|parsed| parsed.name).is_some_and(|name| !name.is_empty())
}

/// The commands as platforms show them in a menu: name and help.
pub fn menu() -> Vec<(String, String)> {
    let useful = COMMANDS.iter().filter(|entry| entry.command != Command::Start);
    useful.map(|entry| (entry.name.to_owned(), entry.help.to_owned())).collect()
}

/// The text of `/help`.
pub(super) fn help() -> String {
    let mut text = String::from("Commands:\n");
    for entry in COMMANDS {
        let aliases: String = entry.aliases.iter().map(|alias| format!(" (/{alias})")).collect();
        text.push_str(&format!("\n/{}{aliases} - {}", entry.name, entry.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        text: String,
        is_command: bool,
        command: Option<String>,
        args: Option<String>,
    }

    #[test]
    fn the_vectors_hold() {
        #[derive(serde::Deserialize)]
        struct File {
            cases: Vec<Case>,
        }
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/command_parse.json"));
        let file: File = serde_json::from_str(text).unwrap();
        assert!(file.cases.len() > 10);
        for case in file.cases {
            let parsed = parse(&case.text);
            assert_eq!(parsed.is_some(), case.is_command, "{:?}", case.text);
            assert_eq!(parsed.as_ref().and_then(|p| p.name.clone()), case.command, "{:?}", case.text);
            assert_eq!(parsed.map(|p| p.args), case.args, "{:?}", case.text);
        }
    }

    #[test]
    fn a_lone_slash_and_a_path_are_ordinary_text() {
        assert!(!is_command("/"));
        assert!(!is_command("/ x"));
        assert!(!is_command("/tmp/file look"));
        assert!(is_command("/nosuch x"));
    }

    #[test]
    fn help_names_every_command_and_alias() {
        for entry in COMMANDS {
            assert!(help().contains(&format!("/{}", entry.name)));
            assert!(entry.aliases.iter().all(|alias| help().contains(&format!("/{alias}"))));
        }
        assert_eq!(find("reset").map(|entry| entry.command), Some(Command::New));
    }
}
