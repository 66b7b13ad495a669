//! Commands that run the command behind them: what they are asked about themselves, and what is left without them.

use super::Judgement;

/// What a wrapper leaves.
pub(super) enum Left {
    /// These words are run.
    Words(Vec<String>),
    /// One of these: which options take the word behind them is not always known.
    Any(Vec<Vec<String>>),
    /// This text is run by a shell.
    Script(String),
    /// It runs nothing of the line.
    Nothing,
}

/// Short options that take a value, as a string of their letters, and long ones.
struct Options {
    with_value: &'static str,
    long_with_value: &'static [&'static str],
    /// How many words come before the command.
    words: usize,
    /// `X=1` before the command.
    assignments: bool,
}

const fn options(
    with_value: &'static str,
    long_with_value: &'static [&'static str],
    words: usize,
    assignments: bool,
) -> Options {
    Options { with_value, long_with_value, words, assignments }
}

fn wrapper(name: &str) -> Option<Options> {
    Some(match name {
        "sudo" | "doas" | "pkexec" | "run0" | "gosu" | "su-exec" => options(
            "ughpCTrtUDRa",
            &[
                "--user",
                "--group",
                "--host",
                "--prompt",
                "--chdir",
                "--role",
                "--type",
                "--other-user",
                "--chroot",
                "--close-from",
            ],
            if matches!(name, "gosu" | "su-exec") { 1 } else { 0 },
            true,
        ),
        "env" => options("uC", &["--unset", "--chdir"], 0, true),
        "nice" => options("n", &["--adjustment"], 0, false),
        "ionice" => options("cnpPu", &["--class", "--classdata"], 0, false),
        "timeout" => options("sk", &["--signal", "--kill-after"], 1, false),
        "stdbuf" => options("ioe", &["--input", "--output", "--error"], 0, false),
        "time" => options("fo", &["--format", "--output"], 0, false),
        "chroot" => options("", &["--userspec", "--groups"], 1, false),
        "unshare" | "nsenter" => options("tSGw", &["--setuid", "--setgid", "--target"], 0, false),
        "strace" | "ltrace" => options("eosEapSuP", &[], 0, false),
        "taskset" => options("", &[], 1, false),
        "chrt" => options("TPD", &[], 1, false),
        "exec" => options("a", &[], 0, false),
        "caffeinate" => options("tw", &[], 0, false),
        "command" | "builtin" => options("", &[], 0, false),
        "faketime" => options("f", &[], 1, false),
        "nohup" | "setsid" | "busybox" | "toybox" | "catchsegv" | "torsocks" | "proxychains" | "proxychains4"
        | "rlwrap" | "unbuffer" | "chronic" | "ts" | "noglob" | "nocorrect" | "firejail" | "dbus-run-session"
        | "systemd-run" | "runcon" | "setpriv" | "fakeroot" | "eatmydata" | "ccache" | "then" | "do" | "else" | "!"
        | "coproc" => {
            options("upEqonmprtGMT", &["--unit", "--property", "--slice", "--setenv", "--reuid", "--regid"], 0, true)
        }
        _ => return None,
    })
}

/// Takes a wrapper off. `None`: the name is none.
pub(super) fn strip(name: &str, args: &[String], judgement: &mut Judgement) -> Option<Left> {
    match name {
        "su" | "runuser" => return Some(su(args)),
        "watch" => return Some(joined(args, "nd", judgement)),
        "flock" => return Some(flock(args)),
        "script" => return Some(option_of(args, "-c", "--command")),
        "command" if args.iter().any(|arg| arg == "-v" || arg == "-V") => return Some(Left::Nothing),
        "sudo" | "doas" => asked_of_sudo(args, judgement),
        "env" => {
            if let Some(text) = split_string(args) {
                return Some(Left::Script(text));
            }
        }
        _ => {}
    }
    // The loader of programs runs the one it is given.
    let is_loader = (name.starts_with("ld-") || name.starts_with("ld.")) && name.contains("so");
    let options =
        if is_loader { options("", &["--library-path", "--preload", "--argv0"], 0, false) } else { wrapper(name)? };
    let mut rest = args.iter().peekable();
    while let Some(arg) = rest.peek() {
        if *arg == "--" {
            rest.next();
            break;
        }
        if !arg.starts_with('-') || arg.len() < 2 {
            break;
        }
        let takes_value = match arg.strip_prefix("--") {
            Some(_) => options.long_with_value.contains(&arg.as_str()),
            None => arg.chars().last().is_some_and(|last| arg.len() == 2 && options.with_value.contains(last)),
        };
        rest.next();
        if takes_value {
            rest.next();
        }
    }
    for _ in 0..options.words {
        rest.next();
    }
    let is_assignment = |arg: &&String| {
        options.assignments
            && arg.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            })
    };
    let words: Vec<String> = rest.skip_while(is_assignment).cloned().collect();
    let mut all = vec![words];
    if options.words == 0 {
        // As if the options took no values, and as if the last did.
        let first = args.iter().take_while(|arg| arg.starts_with('-') && arg.len() > 1).count();
        all.push(args[first..].to_vec());
        if first > 0 {
            all.push(args.get(first + 1..).unwrap_or_default().to_vec());
        }
    }
    all.retain(|words| !words.is_empty());
    all.dedup();
    Some(match all.len() {
        0 => Left::Nothing,
        1 => Left::Words(all.swap_remove(0)),
        _ => Left::Any(all),
    })
}

/// A password from standard input or a program, or a shell of root's own, is asked about.
fn asked_of_sudo(args: &[String], judgement: &mut Judgement) {
    for arg in args.iter().take_while(|arg| arg.starts_with('-')) {
        let short = !arg.starts_with("--") && arg.chars().skip(1).any(|c| "SAsi".contains(c));
        if short || ["--stdin", "--askpass", "--shell", "--login"].contains(&arg.as_str()) {
            judgement.find("sudo with stdin, askpass or shell options");
        }
    }
}

fn su(args: &[String]) -> Left {
    match option_of(args, "-c", "--command") {
        Left::Nothing => {
            // `runuser -u name -- command`
            match args.iter().position(|arg| arg == "--").map(|at| args[at + 1..].to_vec()) {
                Some(words) if !words.is_empty() => Left::Words(words),
                _ => Left::Nothing,
            }
        }
        script => script,
    }
}

fn flock(args: &[String]) -> Left {
    match option_of(args, "-c", "--command") {
        Left::Nothing => {
            let words: Vec<String> = args.iter().skip_while(|arg| arg.starts_with('-')).skip(1).cloned().collect();
            if words.is_empty() { Left::Nothing } else { Left::Words(words) }
        }
        script => script,
    }
}

/// The value of an option that holds a script.
fn option_of(args: &[String], short: &str, long: &str) -> Left {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if let Some(script) = arg.strip_prefix(&format!("{long}=")) {
            return Left::Script(script.to_owned());
        }
        let letter = short.trim_start_matches('-');
        let is_short = arg.starts_with('-') && !arg.starts_with("--") && arg.ends_with(letter);
        if is_short || arg == long {
            return args.next().map_or(Left::Nothing, |script| Left::Script(script.clone()));
        }
    }
    Left::Nothing
}

/// What comes behind the options is one script.
fn joined(args: &[String], with_value: &str, _judgement: &mut Judgement) -> Left {
    let mut rest = args.iter().peekable();
    while let Some(arg) = rest.peek().filter(|arg| arg.starts_with('-')) {
        let takes = arg.len() == 2 && arg.chars().last().is_some_and(|last| with_value.contains(last));
        rest.next();
        if takes {
            rest.next();
        }
    }
    let words: Vec<&str> = rest.map(String::as_str).collect();
    if words.is_empty() { Left::Nothing } else { Left::Script(words.join(" ")) }
}

/// `env -S 'command'`.
fn split_string(args: &[String]) -> Option<String> {
    let at = args.iter().position(|arg| arg.starts_with("-S") || arg.starts_with("--split-string"))?;
    let own = args[at].strip_prefix("--split-string=").or_else(|| args[at].strip_prefix("-S")).unwrap_or_default();
    let own = own.trim_start_matches("plit-string");
    let mut words: Vec<&str> = Vec::new();
    if !own.is_empty() {
        words.push(own);
    }
    words.extend(args[at + 1..].iter().map(String::as_str));
    Some(words.join(" "))
}
