//! `docs/cli.md`, written from the command line as clap has it.

use clap::{Arg, Command, CommandFactory as _};

const INTRO: &str = "# Command line

Generated from the commands in `src/cli`; `HOOKGATE_UPDATE_DOCS=1 cargo test --lib` writes it again. `hookgate help COMMAND` and
`--help` show the same.

Exit codes: 0 only on success, 1 failed, 2 usage, 75 restart wanted, 78 unusable configuration. Results go to standard output,
everything else to standard error.
";

/// The whole document.
fn reference() -> String {
    let mut root = super::Cli::command();
    root.build();
    let mut text = INTRO.to_owned();
    text.push_str("\n## Everywhere\n\n");
    text.push_str(&table(root.get_arguments().filter(|arg| arg.is_global_set())));
    for command in commands(&root) {
        let is_top = command.get_bin_name().is_some_and(|name| name.matches(' ').count() == 1);
        let depth = if is_top { "##" } else { "###" };
        section(command, depth, &mut text);
    }
    text
}

/// Every command below one, each before its own.
fn commands(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|one| one.get_name() != "help" && !one.is_hide_set());
    below.flat_map(|one| std::iter::once(one).chain(commands(one))).collect()
}

fn has_commands(command: &Command) -> bool {
    command.get_subcommands().next().is_some()
}

fn section(command: &Command, depth: &str, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_default();
    text.push_str(&format!(
        "\n{depth} {name}\n\n{}.\n",
        command.get_about().map(ToString::to_string).unwrap_or_default()
    ));
    if has_commands(command) {
        return;
    }
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("Also: {}.\n", aliases.join(", ")));
    }
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| is_own(arg)).collect();
    let usage = own.iter().filter(|arg| arg.is_positional() || arg.is_required_set()).map(|arg| form(arg));
    let options = own.iter().any(|arg| !arg.is_positional()).then(|| "[OPTIONS]".to_owned());
    let usage: Vec<String> = std::iter::once(name.to_owned()).chain(options).chain(usage).collect();
    text.push_str(&format!("\n```text\n{}\n```\n", usage.join(" ")));
    if !own.is_empty() {
        text.push_str(&format!("\n{}", table(own.into_iter())));
    }
}

fn is_own(arg: &Arg) -> bool {
    !arg.is_global_set() && !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

fn table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let row = |arg: &Arg| format!("| `{}` | {} |\n", form(arg), meaning(arg));
    let rows: String = arguments.map(row).collect();
    format!("| argument | meaning |\n|---|---|\n{rows}")
}

/// As it is written: `<NAME>`, `[NAME]`, `-s, --long VALUE`.
fn form(arg: &Arg) -> String {
    let values: Vec<&str> = arg.get_value_names().into_iter().flatten().map(clap::builder::Str::as_str).collect();
    let more = if arg.get_num_args().is_some_and(|count| count.max_values() > 1) { "..." } else { "" };
    if arg.is_positional() {
        let name = format!("{}{more}", values.join(" "));
        return if arg.is_required_set() { format!("<{name}>") } else { format!("[{name}]") };
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = short.into_iter().chain(arg.get_long().map(|long| format!("--{long}"))).collect();
    let takes = arg.get_action().takes_values();
    let value = if takes { format!(" {}{more}", values.join(" ")) } else { String::new() };
    format!("{}{value}", names.join(", "))
}

/// The help, and what it does not say itself: the default and the choices.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults = arg.get_default_values().iter().filter_map(|value| value.to_str());
    let defaults: Vec<&str> = defaults.filter(|value| !value.is_empty()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        text.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    let choices = arg.get_possible_values();
    if arg.get_action().takes_values() && choices.len() > 1 && !choices.iter().all(|one| text.contains(one.get_name()))
    {
        let names: Vec<&str> = choices.iter().map(clap::builder::PossibleValue::get_name).collect();
        text.push_str(&format!(" [one of: {}]", names.join(", ")));
    }
    text.replace('|', "\\|").replace('\n', " ")
}

#[test]
fn the_documentation_shows_every_command() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
    if std::env::var_os("HOOKGATE_UPDATE_DOCS").is_some() {
        std::fs::write(path, reference()).expect("written");
    }
    let shown = std::fs::read_to_string(path).unwrap_or_default();
    assert!(shown == reference(), "docs/cli.md is out of date: run the tests with HOOKGATE_UPDATE_DOCS=1");
}

#[test]
fn commands_and_their_flags_are_in_it() {
    let text = reference();
    for part in
        ["hookgate webhook rotate [OPTIONS] <NAME>", "`--keep-old`", "`--limit N`", "[default: 50]", "Also: `rm`."]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
