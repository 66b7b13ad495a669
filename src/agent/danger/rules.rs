//! The rules for single commands: by name, options and targets.

use base64::Engine as _;
use regex::Regex;
use std::sync::LazyLock;

use super::paths::{is_disk, protected};
use super::prefixes::{Left, strip};
use super::walk::{Call, Input, Walk};
use super::words::UNKNOWN;

const SHELLS: [&str; 18] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "csh", "tcsh", "rbash", "yash", "posh", "oksh", "nu",
    "elvish", "xonsh", "rc",
];
/// Interpreters, and the options that give them a program on the line.
const INTERPRETERS: [(&str, &[&str]); 24] = [
    ("python", &["c"]),
    ("pypy", &["c"]),
    ("node", &["e", "p", "--eval", "--print"]),
    ("nodejs", &["e", "p", "--eval", "--print"]),
    ("bun", &["e", "--eval"]),
    ("deno", &["eval"]),
    ("perl", &["e", "E"]),
    ("ruby", &["e"]),
    ("php", &["r", "B", "R", "E"]),
    ("lua", &["e"]),
    ("rscript", &["e"]),
    ("osascript", &["e"]),
    ("tclsh", &["c"]),
    ("guile", &["c"]),
    ("julia", &["e", "E", "--eval"]),
    ("elixir", &["e", "--eval"]),
    ("raku", &["e"]),
    ("scala", &["e"]),
    ("groovy", &["e"]),
    ("swift", &["e"]),
    ("racket", &["e", "--eval"]),
    ("sbcl", &["--eval"]),
    ("erl", &["-eval"]),
    ("r", &["e"]),
];
const SQL_CLIENTS: [&str; 11] = [
    "psql",
    "mysql",
    "mariadb",
    "sqlite3",
    "sqlite",
    "sqlcmd",
    "cockroach",
    "clickhouse-client",
    "duckdb",
    "sqlplus",
    "bq",
];

static SQL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let drop = r"drop\s+(table|database|schema|user|role|index|view)\b";
    Regex::new(&format!(r"(?i)\b({drop}|truncate\s+(table\s+)?\w|alter\s+table\s+\S+\s+drop\b)")).ok()
});
static SQL_DELETE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\bdelete\s+from\s+[^;]*").ok());
static SQL_WHERE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\bwhere\b").ok());

/// Whether a command, its words with blanks between, fetches something from elsewhere.
pub(super) fn downloads(line: &str) -> bool {
    let name = line.split(' ').map(base).find(|word| !word.starts_with('-')).unwrap_or_default();
    ["curl", "wget", "fetch", "aria2c", "nc", "ncat", "netcat", "http", "https", "lynx", "scp", "ftp"]
        .contains(&name.as_str())
}

/// The name of a program without its directory, in lower case: file systems may not tell the cases apart.
pub(super) fn base(word: &str) -> String {
    let name = word.rsplit('/').next().unwrap_or(word).to_lowercase();
    name.strip_suffix(".exe").map_or(name.clone(), str::to_owned)
}

/// Whether one of the options is there, alone or among others: `-rf` has `r`. What follows `--` are no options.
pub(super) fn has(args: &[String], letters: &str, long: &[&str]) -> bool {
    args.iter().take_while(|arg| *arg != "--").any(|arg| match arg.strip_prefix("--") {
        Some(_) => long.iter().any(|name| arg == name || arg.starts_with(&format!("{name}="))),
        None => arg.strip_prefix('-').is_some_and(|own| own.chars().any(|c| letters.contains(c))),
    })
}

/// What is no option.
pub(super) fn targets(args: &[String]) -> impl Iterator<Item = &String> {
    let mut ended = false;
    args.iter().filter(move |arg| {
        if !ended && *arg == "--" {
            ended = true;
            return false;
        }
        ended || !arg.starts_with('-') || arg.len() == 1
    })
}

impl Walk<'_> {
    /// Looks at one command. What it prints, if that can be known.
    pub(super) fn run(&mut self, call: Call) -> Option<String> {
        let Call { words, input, made_file } = call;
        let (first, args) = words.split_first()?;
        if first.contains(UNKNOWN) && base(first).contains(UNKNOWN) {
            self.judgement.find("cannot be judged: the name of the command is computed when it runs");
            // What is known of the rest may be the command all the same.
            if !args.is_empty() {
                self.call(Call { words: args.to_vec(), input, made_file });
            }
            return None;
        }
        let name = base(first);
        if name.contains(['*', '?', '[']) && name != "[" {
            self.judgement.find("cannot be judged: the name of the command is computed when it runs");
            for meant in ["rm", "dd", "mkfs", "kill", "shutdown", "reboot", "sh", "bash"] {
                if super::glob_of(&super::paths::without_sets(&name)).is_some_and(|glob| glob.is_match(meant)) {
                    let words = std::iter::once(meant.to_owned()).chain(args.iter().cloned()).collect();
                    self.call(Call { words, input: input.clone(), made_file });
                }
            }
            return None;
        }
        if let Some(script) = self.aliases.remove(&name) {
            let printed = self.inner(&format!("{script} {}", args.join(" ")), &input);
            self.aliases.insert(name, script);
            return printed;
        }
        let may_be_made = first.contains('/') || self.sets_path;
        if let Some(source) = self.links.get(&name).cloned().filter(|_| may_be_made) {
            let words = std::iter::once(source).chain(args.iter().cloned()).collect();
            self.call(Call { words, input: input.clone(), made_file });
        }
        if may_be_made {
            match self.was_written(first) {
                Some(Some(text)) => drop(self.inner(&text, &Input::None)),
                Some(None) => self.judgement.find("cannot be judged: it runs a file that it has just written"),
                None => {}
            }
        }
        if let Some(left) = strip(&name, args, &mut self.judgement) {
            return match left {
                Left::Words(words) => self.call(Call { words, input, made_file }),
                Left::Any(all) => {
                    let mut printed = None;
                    for words in all.into_iter().rev() {
                        printed = self.call(Call { words, input: input.clone(), made_file });
                    }
                    printed
                }
                Left::Script(script) => self.inner(&script, &input),
                Left::Nothing => None,
            };
        }
        match name.as_str() {
            "echo" => return known(args, " ", true),
            "printf" => {
                if let Some(variable) = after(args, &["-v"]) {
                    self.literal(&variable);
                }
                return printf(args);
            }
            "cat" if targets(args).next().is_none() => {
                return match input {
                    Input::Text(text) => Some(text),
                    _ => None,
                };
            }
            "tee" if matches!(input, Input::Text(_)) => {
                self.by_name(&name, args, &input, made_file);
                return match input {
                    Input::Text(text) => Some(text),
                    _ => None,
                };
            }
            "true" | ":" | "false" | "test" | "[" => {
                args.iter().for_each(|arg| self.literal(arg));
                return Some(String::new());
            }
            "base64" | "base32" if has(args, "dD", &["--decode"]) => return decoded(&input),
            "eval" => return self.inner(&args.join(" "), &input),
            "trap" if args.len() > 1 => return self.inner(&args[0], &Input::None),
            "alias" => {
                for (name, script) in args.iter().filter_map(|arg| arg.split_once('=')) {
                    self.inner(script, &Input::None);
                    self.aliases.insert(base(name), script.to_owned());
                }
            }
            "cd" | "pushd" => self.directory = targets(args).next().cloned().or(Some("~".to_owned())),
            "cmd" if args.iter().any(|arg| arg.eq_ignore_ascii_case("/c") || arg.eq_ignore_ascii_case("/k")) => {
                let script: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
                return self.inner(&script.join(" "), &input);
            }
            "source" | "." => self.shell_file(targets(args).next(), &input, made_file),
            "xargs" | "parallel" => self.xargs(&name, args, &input),
            "find" | "fd" => self.find(args),
            "ssh" => self.ssh(args, &input),
            _ if SHELLS.contains(&name.as_str()) => return self.shell(args, &input, made_file),
            _ => self.by_name(&name, args, &input, made_file),
        }
        None
    }

    /// Text that a shell runs.
    pub(super) fn inner(&mut self, script: &str, input: &Input) -> Option<String> {
        if script.contains(UNKNOWN) {
            let what = match self.fetches {
                true => "runs remote content as a script",
                false => "cannot be judged: the script is computed when it runs",
            };
            self.judgement.find(what);
        }
        self.script(script, Some(input))
    }

    fn shell(&mut self, args: &[String], input: &Input, made_file: Option<bool>) -> Option<String> {
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if arg == "--" || arg == "-" {
                break;
            }
            let is_option = arg.starts_with('-') || arg.starts_with('+');
            if !is_option {
                self.shell_file(Some(arg), input, made_file);
                return None;
            }
            if !arg.starts_with("--") && arg.starts_with('-') && arg.contains('c') {
                // Options may come between `-c` and its script.
                let script = rest.find(|arg| !arg.starts_with('-'))?;
                return self.inner(&script.clone(), input);
            }
            if ["-o", "-O", "+O", "+o", "--rcfile", "--init-file"].contains(&arg.as_str()) {
                rest.next();
            }
        }
        match rest.next() {
            Some(file) => self.shell_file(Some(file), input, made_file),
            None => return self.standard_input(input),
        }
        None
    }

    /// A shell that reads what it runs.
    fn standard_input(&mut self, input: &Input) -> Option<String> {
        match input {
            Input::None => {}
            Input::Text(text) => return self.inner(&text.clone(), &Input::None),
            Input::Made { downloads: true } => self.judgement.find("pipe remote content to a shell"),
            Input::Made { downloads: false } => {
                self.judgement.find("cannot be judged: a shell runs what another command prints");
            }
        }
        None
    }

    fn shell_file(&mut self, file: Option<&String>, input: &Input, made_file: Option<bool>) {
        match made_file {
            Some(true) => self.judgement.find("runs remote content as a script"),
            Some(false) => self.judgement.find("cannot be judged: the script is what another command prints"),
            None => {}
        }
        let Some(file) = file else { return };
        if ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].contains(&file.as_str()) {
            self.standard_input(input);
        }
        match self.was_written(file) {
            Some(Some(text)) => drop(self.inner(&text, &Input::None)),
            Some(None) => self.judgement.find("cannot be judged: it runs a script that it has just written"),
            None => {}
        }
    }

    fn xargs(&mut self, name: &str, args: &[String], input: &Input) {
        let with_value = if name == "xargs" { "nIPdLsaE" } else { "jNSI" };
        let mut rest = args.iter().peekable();
        while let Some(arg) = rest.peek().filter(|arg| arg.starts_with('-')) {
            let takes = arg.len() == 2 && arg.chars().last().is_some_and(|last| with_value.contains(last));
            rest.next();
            if takes {
                rest.next();
            }
        }
        let mut words: Vec<String> = rest.cloned().collect();
        if words.is_empty() {
            // `xargs` alone echoes; `parallel` alone runs what it reads.
            if name == "parallel" {
                self.standard_input(input);
            }
            return;
        }
        if let Some(end) = words.iter().position(|word| word.starts_with(":::")) {
            words.truncate(end);
        }
        if words.first().is_some_and(|word| base(word) == "rm") {
            self.judgement.find("xargs with rm");
        }
        if words.first().is_some_and(|word| SHELLS.contains(&base(word).as_str())) {
            self.judgement.find("cannot be judged: a shell runs what another command prints");
        }
        match input {
            Input::Text(text) => words.extend(text.split_whitespace().map(str::to_owned)),
            _ => words.push(UNKNOWN.to_string()),
        }
        self.call(Call { words, input: Input::None, made_file: None });
    }

    fn find(&mut self, args: &[String]) {
        let start = |arg: &&String| !arg.starts_with('-') && !["(", "!", ")"].contains(&arg.as_str());
        let roots: Vec<String> = args.iter().take_while(start).cloned().collect();
        let is_filtered = args.iter().any(|arg| {
            [
                "-name",
                "-iname",
                "-path",
                "-type",
                "-mtime",
                "-mmin",
                "-size",
                "-regex",
                "-user",
                "-empty",
                "-newer",
                "-maxdepth",
            ]
            .contains(&arg.as_str())
        });
        if args.iter().any(|arg| arg == "-delete") {
            self.judgement.find("find with -delete");
            if !is_filtered && let Some(what) = roots.iter().find_map(|root| protected(root, self.place)) {
                self.judgement.never(format!("recursive delete of {what}"));
            }
        }
        for at in 0..args.len() {
            if self.is_spent() {
                return;
            }
            if !["-exec", "-execdir", "-ok", "-okdir", "-x", "--exec", "-X", "--exec-batch"]
                .contains(&args[at].as_str())
            {
                continue;
            }
            let command = args[at + 1..].iter().take_while(|arg| !matches!(arg.as_str(), ";" | "+"));
            let root = roots.first().map_or(".", String::as_str);
            // What it finds first is where it begins.
            let words: Vec<String> = command.map(|word| word.replace("{}", root)).collect();
            if words.first().is_some_and(|word| base(word) == "rm") {
                self.judgement.find("find with -exec rm");
            }
            if !words.is_empty() {
                self.call(Call { words, input: Input::None, made_file: None });
            }
        }
        if let Some(path) = after(args, &["-fprint", "-fprintf", "-fls", "-fprint0"]) {
            self.writes(&path);
        }
    }

    fn ssh(&mut self, args: &[String], input: &Input) {
        if args.iter().any(|arg| arg.to_lowercase().contains("proxycommand")) {
            self.judgement.find("ssh with a command of its own (ProxyCommand)");
        }
        let mut rest = args.iter().peekable();
        while let Some(arg) = rest.peek().filter(|arg| arg.starts_with('-')) {
            let takes = arg.len() == 2 && arg.chars().last().is_some_and(|last| "bcDEeFIiJLlmOopQRSWw".contains(last));
            rest.next();
            if takes {
                rest.next();
            }
        }
        rest.next();
        let script: Vec<&str> = rest.map(String::as_str).collect();
        match script.is_empty() {
            true => drop(self.standard_input(input)),
            false => drop(self.inner(&script.join(" "), input)),
        }
    }

    fn by_name(&mut self, name: &str, args: &[String], input: &Input, made_file: Option<bool>) {
        if let Some((_, flags)) = INTERPRETERS.iter().find(|(known, _)| {
            name == *known
                || name
                    .strip_prefix(known)
                    .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
        }) {
            self.interpreter(args, flags, input, made_file);
        }
        if self.told(name, args, input, made_file) {
            return;
        }
        match name {
            "rm" => self.rm(args),
            "unlink" if targets(args).any(|path| is_absolute(path)) => {
                self.judgement.find("delete by an absolute path")
            }
            "shred" | "wipe" | "srm" => {
                self.judgement.find("shred (destroys what is in files)");
                self.disks(args, "overwrite");
            }
            "mkfs" | "mke2fs" | "mkdosfs" | "newfs" | "wipefs" | "blkdiscard" | "mkswap" => {
                self.judgement.never(format!("{name} (formats a disk)"))
            }
            _ if name.starts_with("mkfs.") => self.judgement.never(format!("{name} (formats a disk)")),
            "fdisk" | "sfdisk" | "gdisk" | "sgdisk" | "parted" | "cfdisk" | "cryptsetup" | "lvremove" | "vgremove"
            | "pvremove"
                if !has(args, "l", &["--list"]) =>
            {
                self.judgement.find("changes disks or their parts");
            }
            "diskutil" | "zpool" | "zfs"
                if args.iter().any(|arg| {
                    ["erasedisk", "erasevolume", "destroy", "partitiondisk"].contains(&arg.to_lowercase().as_str())
                }) =>
            {
                self.judgement.find("changes disks or their parts");
            }
            "dd" => self.dd(args),
            "kill" => self.kill(args),
            "pkill" | "killall" | "skill" | "killall5" => {
                if has(args, "9", &["--signal=9"])
                    || args.iter().any(|arg| arg.to_uppercase().contains("KILL") && arg.starts_with('-'))
                    || after(args, &["-s", "--signal"])
                        .is_some_and(|signal| signal == "9" || signal.to_uppercase().contains("KILL"))
                    || name.starts_with("killall")
                {
                    self.judgement.find("kill processes by name with force");
                }
                if args.iter().any(|arg| names_gateway(arg)) {
                    self.judgement.find("stop or kill the gateway");
                }
            }
            "shutdown" if !has(args, "c", &["--help", "--show"]) => {
                self.judgement.never("shutdown of the machine".to_owned())
            }
            "reboot" | "halt" | "poweroff" if !has(args, "", &["--help"]) => {
                self.judgement.never(format!("{name} of the machine"))
            }
            "init" | "telinit" if args.iter().any(|arg| arg == "0" || arg == "6") => {
                self.judgement.never(format!("{name} {} (switches the machine off)", args.join(" ")));
            }
            "systemctl" | "service" | "rc-service" | "loginctl" | "sv" | "initctl" => self.systemctl(args),
            "launchctl"
                if args
                    .iter()
                    .any(|arg| ["unload", "remove", "bootout", "disable", "stop", "kill"].contains(&arg.as_str())) =>
            {
                self.judgement.find("stop or disable a service (launchctl)");
            }
            "chmod" => self.chmod(args),
            "chown" | "chgrp"
                if has(args, "R", &["--recursive"])
                    && targets(args)
                        .next()
                        .is_some_and(|owner| owner.starts_with("root") || owner.starts_with('0')) =>
            {
                self.judgement.find("recursive chown to root");
            }
            "tee" | "sponge" => targets(args).cloned().collect::<Vec<_>>().iter().for_each(|path| {
                self.writes(path);
                self.written.insert(path.clone(), None);
            }),
            "cp" | "mv" | "install" | "ln" | "rsync" | "scp" => self.copy(args),
            "curl" | "wget" => {
                if let Some(path) = after(args, &["-o", "-O", "--output", "--output-document"]) {
                    self.writes(&path);
                    self.written.insert(path, None);
                }
            }
            "crontab" if targets(args).next().is_some() || matches!(input, Input::Text(_) | Input::Made { .. }) => {
                self.judgement.find("write to what is started by the system");
            }
            "at" | "batch" => drop(self.standard_input(input)),
            "git" => self.git(args),
            "docker" | "podman" | "nerdctl" | "docker-compose" | "podman-compose" => self.docker(name, args),
            "hookgate" | "hermes" => self.gateway(args),
            "powershell" | "pwsh" => self.judgement.find("script given to powershell on the command line"),
            "del" | "erase" | "rd" | "rmdir"
                if args.iter().any(|arg| ["/s", "/q", "/f"].contains(&arg.to_lowercase().as_str())) =>
            {
                self.judgement.find("recursive delete (Windows)");
            }
            "remove-item" | "ri"
                if args
                    .iter()
                    .any(|arg| arg.to_lowercase().starts_with("-rec") || arg.to_lowercase().starts_with("-fo")) =>
            {
                self.judgement.find("recursive delete (PowerShell)");
            }
            "format" | "format.com" if args.iter().any(|arg| arg.ends_with(':')) => {
                self.judgement.find("formats a disk (Windows)")
            }
            _ if SQL_CLIENTS.contains(&name) => self.sql(args, input),
            _ => {}
        }
    }

    fn rm(&mut self, args: &[String]) {
        let is_recursive = has(args, "rR", &[]) || args.iter().any(|arg| abbreviates(arg, "--recursive", 3));
        let named: Vec<String> = targets(args).cloned().collect();
        if has(args, "", &["--no-preserve-root"]) {
            self.judgement.find("rm without the guard of /");
        }
        if named.iter().any(|path| path.contains(UNKNOWN)) {
            self.judgement.find("delete of what is only known when it runs");
        }
        if !is_recursive {
            if named.iter().any(|path| is_absolute(path)) {
                self.judgement.find("delete by an absolute path");
            }
            return;
        }
        self.judgement.find("recursive delete");
        if let Some(what) = named.iter().find_map(|path| protected(path, self.place)) {
            self.judgement.never(format!("recursive delete of {what}"));
        }
    }

    fn dd(&mut self, args: &[String]) {
        if let Some(path) = args.iter().find_map(|arg| arg.strip_prefix("of=")) {
            if is_disk(path) {
                return self.judgement.never(format!("dd onto the raw disk {path}"));
            }
            let path = path.to_owned();
            self.writes(&path);
        }
        if args.iter().any(|arg| arg.starts_with("if=") || arg.starts_with("of=")) {
            self.judgement.find("dd (copies raw data)");
        }
    }

    fn disks(&mut self, args: &[String], what: &str) {
        if let Some(path) = targets(args).find(|path| is_disk(path)) {
            let what = format!("{what} the raw disk {path}");
            self.judgement.never(what);
        }
    }

    fn kill(&mut self, args: &[String]) {
        if args.last().is_some_and(|last| last == "-1") {
            self.judgement.never("kill of every process".to_owned());
        }
        let asks_who = |line: &String| {
            (line.starts_with("pgrep") || line.starts_with("pidof") || line.starts_with("cat")) && names_gateway(line)
        };
        if args.iter().any(|arg| names_gateway(arg))
            || args.iter().any(|arg| arg.contains(UNKNOWN)) && self.commands.iter().any(asks_who)
        {
            self.judgement.find("stop or kill the gateway");
        }
    }

    fn systemctl(&mut self, args: &[String]) {
        let verbs = ["stop", "restart", "disable", "mask", "kill", "try-restart", "condrestart"];
        if args.iter().any(|arg| {
            ["poweroff", "reboot", "halt", "kexec", "soft-reboot"].contains(&arg.trim_end_matches(".target"))
        }) {
            self.judgement.never("switching the machine off (systemctl)".to_owned());
        }
        if let Some(verb) = args.iter().find(|arg| verbs.contains(&arg.as_str())) {
            let what = format!("{verb} of a service");
            self.judgement.find(&what);
        }
    }

    fn chmod(&mut self, args: &[String]) {
        let Some(mode) =
            args.iter().find(|arg| !arg.starts_with("--") && !["-R", "-v", "-c", "-f"].contains(&arg.as_str()))
        else {
            return;
        };
        let is_octal = !mode.is_empty() && mode.chars().all(|c| c.is_digit(8));
        let open = match is_octal {
            true => mode.chars().last().and_then(|c| c.to_digit(8)).is_some_and(|others| others & 2 != 0),
            false => mode.split(',').any(|part| {
                part.find(['+', '=']).is_some_and(|at| {
                    let (who, what) = part.split_at(at);
                    who.contains(['o', 'a']) && what.contains('w')
                })
            }),
        };
        if open {
            self.judgement.find("world-writable permissions");
        }
        if has(args, "R", &["--recursive"])
            && let Some(what) = targets(args).skip(1).find_map(|path| protected(path, self.place))
        {
            let what = format!("recursive chmod of {what}");
            self.judgement.find(&what);
        }
    }

    fn copy(&mut self, args: &[String]) {
        let named: Vec<String> = targets(args).cloned().collect();
        let into = after(args, &["-t", "--target-directory"]).or_else(|| named.last().cloned());
        let Some(into) = into.filter(|into| !into.contains(':')) else { return };
        self.writes(&into);
        // A directory of that name gets files of the sources' names.
        for source in named.iter().take(named.len().saturating_sub(1)) {
            let name = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            self.written.insert(into.clone(), None);
            self.links.insert(base(&into), source.clone());
            if self.sensitive(&into, false).is_none() && into.ends_with(['/', '~', '.']) {
                self.writes(&format!("{}/{name}", into.trim_end_matches('/')));
            }
        }
    }

    fn git(&mut self, args: &[String]) {
        let mut rest = args.iter().peekable();
        while let Some(arg) = rest.peek().filter(|arg| arg.starts_with('-')) {
            let (key, takes) = (
                arg.as_str(),
                ["-c", "-C", "--git-dir", "--work-tree", "--namespace", "--exec-path"].contains(&arg.as_str()),
            );
            let is_config = key == "-c" || key.starts_with("--config-env");
            rest.next();
            let value = if takes { rest.next() } else { None };
            if let Some((name, script)) = value.filter(|_| is_config).and_then(|value| value.split_once('=')) {
                let name = name.to_lowercase();
                if let Some(script) = script.strip_prefix('!') {
                    self.inner(script, &Input::None);
                    self.judgement.find("git settings that run a command");
                } else if ["pager", "editor", "command", "fsmonitor", "hookspath", "alias.", "helper", "program"]
                    .iter()
                    .any(|word| name.contains(word))
                {
                    self.judgement.find("git settings that run a command");
                }
            }
        }
        let Some(verb) = rest.next() else { return };
        let rest: Vec<String> = rest.cloned().collect();
        let what = match verb.as_str() {
            "reset" if rest.iter().any(|arg| abbreviates(arg, "--hard", 4)) => {
                "git reset --hard (destroys uncommitted changes)"
            }
            "push"
                if has(&rest, "f", &["--force", "--force-with-lease", "--mirror", "--delete"])
                    || rest.iter().any(|arg| abbreviates(arg, "--force-with-lease", 4))
                    || rest.iter().any(|arg| arg.starts_with('+')) =>
            {
                "git force push (rewrites remote history)"
            }
            "clean" if has(&rest, "f", &["--force"]) && !has(&rest, "n", &["--dry-run"]) => {
                "git clean (deletes untracked files)"
            }
            "branch" if has(&rest, "D", &[]) || has(&rest, "d", &["--delete"]) && has(&rest, "f", &["--force"]) => {
                "git branch -D (deletes a branch with its work)"
            }
            "config"
                if rest.iter().any(|arg| arg.starts_with('!') || arg.to_lowercase().starts_with("core.hookspath")) =>
            {
                "git settings that run a command"
            }
            "rebase" | "bisect" | "submodule" | "filter-branch" => {
                if let Some(script) =
                    after(&rest, &["-x", "--exec", "run", "foreach", "--tree-filter", "--index-filter"])
                {
                    self.inner(&script, &Input::None);
                }
                return;
            }
            _ => return,
        };
        self.judgement.find(what);
    }

    fn docker(&mut self, name: &str, args: &[String]) {
        let words: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with('-')).collect();
        let is_compose = name.ends_with("-compose") || words.first() == Some(&"compose");
        let stops = if is_compose {
            ["down", "stop", "kill", "rm", "restart"]
        } else {
            ["stop", "kill", "restart", "rm", "pause"]
        };
        let others =
            ["up", "run", "exec", "logs", "ps", "build", "pull", "config", "images", "inspect", "start", "create"];
        let verb = words.iter().find(|word| stops.contains(word) || others.contains(word));
        if verb.is_some_and(|verb| stops.contains(verb)) {
            self.judgement.find("stop, kill or remove containers");
        }
        if verb == Some(&"exec") || verb == Some(&"run") {
            if args.iter().any(|arg| arg == "--privileged" || arg.starts_with("/:") || arg.contains("source=/,")) {
                self.judgement.find("a container with the machine's own files or rights");
            }
            // What runs in it is looked at as if it ran here: behind the options, and the name of the container or image.
            let at = args.iter().position(|arg| arg == "exec" || arg == "run").map_or(args.len(), |at| at + 1);
            let mut rest = args[at..].iter().peekable();
            while let Some(arg) = rest.peek().filter(|arg| arg.starts_with('-')) {
                let takes = match arg.strip_prefix("--") {
                    Some(long) => {
                        !long.contains('=')
                            && !["rm", "interactive", "tty", "detach", "privileged", "init", "read-only"]
                                .contains(&long)
                    }
                    None => arg.len() == 2 && arg.chars().last().is_some_and(|last| "euwvpnlmhc".contains(last)),
                };
                rest.next();
                if takes {
                    rest.next();
                }
            }
            let words: Vec<String> = rest.skip(1).cloned().collect();
            if !words.is_empty() {
                self.call(Call { words, input: Input::None, made_file: None });
            }
        }
    }

    fn gateway(&mut self, args: &[String]) {
        let words: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with('-')).collect();
        let stops = words.windows(2).any(|two| matches!(two, ["gateway", "stop" | "restart" | "uninstall"]))
            || matches!(words.as_slice(), ["update" | "uninstall", ..]);
        let changes = matches!(
            words.as_slice(),
            ["approvals", "revoke", ..]
                | ["hooks", "allow" | "revoke", ..]
                | ["pairing", "approve", ..]
                | ["webhook", "subscribe" | "remove" | "rotate", ..]
                | ["config", "set", ..]
                | ["setup", ..]
        );
        if stops {
            self.judgement.find("stop or kill the gateway");
        } else if changes {
            self.judgement.find("changes the gateway's own settings");
        }
    }

    fn sql(&mut self, args: &[String], input: &Input) {
        let mut texts: Vec<&str> = args.iter().map(String::as_str).collect();
        if let Input::Text(text) = input {
            texts.push(text);
        }
        for text in texts {
            let text = &without_comments(text);
            if SQL.as_ref().is_some_and(|sql| sql.is_match(text)) {
                self.judgement.find("SQL DROP or TRUNCATE");
            }
            let without_where =
                |found: regex::Match<'_>| !SQL_WHERE.as_ref().is_some_and(|sql| sql.is_match(found.as_str()));
            if SQL_DELETE.as_ref().is_some_and(|sql| sql.find_iter(text).any(without_where)) {
                self.judgement.find("SQL DELETE without WHERE");
            }
        }
        if matches!(input, Input::Made { .. }) {
            self.judgement.find("cannot be judged: a database is told what another command prints");
        }
    }

    fn interpreter(&mut self, args: &[String], flags: &[&str], input: &Input, made_file: Option<bool>) {
        let letters: String = flags.iter().filter(|flag| flag.len() == 1).copied().collect();
        let long: Vec<&str> = flags.iter().filter(|flag| flag.len() > 1).copied().collect();
        // Only options before the script are the interpreter's.
        let mut own: Vec<String> = Vec::new();
        for arg in args {
            let is_word = long.contains(&arg.as_str());
            if !arg.starts_with('-') && !is_word {
                break;
            }
            own.push(arg.clone());
        }
        let file = args.get(own.len());
        if has(&own, &letters, &long) || own.iter().any(|arg| long.contains(&arg.as_str())) {
            self.judgement.find("script given to an interpreter on the command line (-c, -e)");
        } else if made_file.is_some() {
            self.shell_file(None, input, made_file);
        } else if file.is_none() && *input != Input::None {
            self.judgement.find("script given to an interpreter on its standard input");
        } else if file.is_some_and(|file| self.was_written(file).is_some()) {
            self.judgement.find("cannot be judged: it runs a script that it has just written");
        }
    }
}

/// Whether an option is this one, shortened or not.
fn abbreviates(arg: &str, option: &str, at_least: usize) -> bool {
    let name = arg.split('=').next().unwrap_or_default();
    name.len() >= at_least && option.starts_with(name)
}

/// SQL without its `/* */`, which stand for blanks.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

fn is_absolute(path: &str) -> bool {
    path.starts_with(['/', '~'])
}

fn names_gateway(text: &str) -> bool {
    let text = text.to_lowercase();
    text.contains("hookgate") || text.contains("hermes")
}

/// The value of the first of these options.
pub(super) fn after(args: &[String], options: &[&str]) -> Option<String> {
    args.iter().enumerate().find_map(|(at, arg)| {
        if options.contains(&arg.as_str()) {
            return args.get(at + 1).cloned();
        }
        let own = options
            .iter()
            .filter(|option| option.starts_with("--"))
            .find_map(|option| arg.strip_prefix(&format!("{option}=")));
        own.map(str::to_owned)
    })
}

/// What `echo` prints.
fn known(args: &[String], between: &str, ends: bool) -> Option<String> {
    let skipped = args.iter().take_while(|arg| ["-n", "-e", "-E", "-ne", "-en"].contains(&arg.as_str())).count();
    let text = args[skipped..].join(between);
    if text.contains(UNKNOWN) {
        return None;
    }
    let reads_escapes = args[..skipped].iter().any(|arg| arg.contains('e'));
    let text = if reads_escapes { escapes(&text)? } else { text };
    Some(if ends { text + "\n" } else { text })
}

fn printf(args: &[String]) -> Option<String> {
    let (format, args) = args.split_first()?;
    if format.contains(UNKNOWN) || args.iter().any(|arg| arg.contains(UNKNOWN)) {
        return None;
    }
    let mut args = args.iter();
    let mut text = escapes(format)?;
    while let Some(at) = text.find("%s") {
        text.replace_range(at..at + 2, args.next().map_or("", String::as_str));
    }
    (!text.contains('%')).then_some(text)
}

/// Backslashes as `echo -e` and `printf` read them; `None` where they make more than plain text.
fn escapes(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let (mut out, mut chars) = (String::new(), text.chars().peekable());
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '\\' => out.push('\\'),
            'x' => {
                let mut digits = String::new();
                while digits.len() < 2 && chars.peek().is_some_and(char::is_ascii_hexdigit) {
                    digits.extend(chars.next());
                }
                out.push(char::from(u8::from_str_radix(&digits, 16).ok()?));
            }
            first @ '0'..='7' => {
                let mut digits = first.to_string();
                while digits.len() < 4 && chars.peek().is_some_and(|c| c.is_digit(8)) {
                    digits.extend(chars.next());
                }
                out.push(char::from_u32(u32::from_str_radix(&digits, 8).ok()?)?);
            }
            _ => return None,
        }
    }
    Some(out)
}

fn decoded(input: &Input) -> Option<String> {
    let Input::Text(text) = input else { return None };
    let text: String = text.split_whitespace().collect();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).ok()?).ok()
}
