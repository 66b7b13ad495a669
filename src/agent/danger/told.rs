//! Programs that run what they are told to, in ways of their own: an option, a word of their own language, a file.

use super::rules::{after, base, has, targets};
use super::walk::{Call, Input, Walk};

/// What is found where a program could run anything.
const TOLD: &str = "a program that is told to run commands";
/// Programs, and their options whose value a shell runs.
const OPTIONS: [(&str, &[&str]); 9] = [
    ("split", &["--filter"]),
    ("sort", &["--compress-program"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("man", &["-P", "--pager"]),
    ("zip", &["-TT", "--unzip-command"]),
    ("mapfile", &["-C"]),
    ("readarray", &["-C"]),
    ("complete", &["-C"]),
    ("compgen", &["-C"]),
];
/// What the shell of SQLite does that runs and writes nothing; others, and their beginnings, do.
const QUIET_SQLITE: [&str; 22] = [
    "tables",
    "schema",
    "headers",
    "header",
    "mode",
    "width",
    "help",
    "databases",
    "indexes",
    "indices",
    "dump",
    "quit",
    "exit",
    "timer",
    "echo",
    "nullvalue",
    "separator",
    "show",
    "stats",
    "changes",
    "explain",
    "timeout",
];

impl Walk<'_> {
    /// Looks at programs that are told what to run. Whether it was one, and all is said of it.
    pub(super) fn told(&mut self, name: &str, args: &[String], input: &Input, made_file: Option<bool>) -> bool {
        if let Some((_, options)) = OPTIONS.iter().find(|(known, _)| *known == name)
            && let Some(script) = after(args, options)
        {
            self.inner(&script, &Input::None);
        }
        let any = |words: &[&str]| args.iter().any(|arg| words.iter().any(|word| arg.to_lowercase().contains(word)));
        match name {
            "jobs" => {
                if let Some(at) = args.iter().position(|arg| arg == "-x") {
                    self.call(Call { words: args[at + 1..].to_vec(), input: Input::None, made_file: None });
                }
            }
            // The list is expanded, substitutions and all.
            "compgen" | "complete" => {
                if let Some(list) = after(args, &["-W"]) {
                    self.literal(&list);
                }
            }
            "hash" => {
                if let Some(at) = args.iter().position(|arg| arg == "-p")
                    && let (Some(path), Some(name)) = (args.get(at + 1), args.get(at + 2))
                {
                    self.aliases.insert(base(name), path.clone());
                }
            }
            "bind" if has(args, "x", &[]) => self.judgement.find(TOLD),
            "enable" if has(args, "f", &[]) => self.judgement.find("loads code into the shell"),
            // Their words are evaluated: a subscript may hold a substitution.
            "let" | "unset" | "read" | "wait" => args.iter().for_each(|arg| self.literal(arg)),
            "sed" | "gsed" => {
                self.sed(args, made_file);
                if has(args, "i", &["--in-place"]) {
                    for path in targets(args).cloned().collect::<Vec<_>>() {
                        if let Some(why) = self.sensitive(&path, true) {
                            self.judgement.find(why);
                        }
                    }
                }
            }
            "awk" | "gawk" | "mawk" | "nawk" => {
                if any(&["system(", "| \"", "|\"", "|&", "| getline", "|getline", "@load"]) {
                    self.judgement.find("cannot be judged: an awk program runs commands");
                }
                self.program_file(args, &["-f", "--file", "-i", "--include", "-E", "--exec"], made_file);
            }
            "make" | "gmake" => {
                if any(&["--eval", "shell=", ".shellflags="]) || *input != Input::None {
                    self.judgement.find(TOLD);
                }
                self.program_file(args, &["-f", "--file", "--makefile"], made_file);
                if ["Makefile", "makefile", "GNUmakefile"].iter().any(|name| self.was_written(name).is_some()) {
                    self.judgement.find("cannot be judged: it runs a file that it has just written");
                }
            }
            "sqlite3" | "sqlite" => {
                let does_more = |line: &str| {
                    line.trim_start().strip_prefix('.').is_some_and(|command| {
                        let command = command.split_whitespace().next().unwrap_or_default();
                        !QUIET_SQLITE.contains(&command)
                    })
                };
                let given = match input {
                    Input::Text(text) => text.as_str(),
                    _ => "",
                };
                if args.iter().map(String::as_str).chain([given]).any(|text| text.lines().any(does_more))
                    || any(&["load_extension(", "writefile(", "edit("])
                {
                    self.judgement.find(TOLD);
                }
                return false; // the SQL is looked at, too
            }
            "psql" | "mysql" | "mariadb" => {
                let given = match input {
                    Input::Text(text) => text.to_lowercase(),
                    _ => String::new(),
                };
                let words = ["\\!", "system ", "program", "\\gexec", "\\o |", "\\o|", "\\g |", "\\g|", "pager "];
                if any(&words) || words.iter().any(|word| given.contains(word)) {
                    self.judgement.find(TOLD);
                }
                return false;
            }
            "vim" | "vi" | "nvim" | "ex" | "view" | "gvim" | "vimdiff" | "emacs" | "ed" | "nano" | "less" | "more"
            | "man" | "ftp" | "sftp" | "dc" | "bc" | "m4"
                if any(&["!", "system(", "--eval", "--command", "--cmd", "-es", "syscmd"])
                    || matches!(name, "ed" | "ex" | "dc" | "bc" | "m4") && *input != Input::None =>
            {
                self.judgement.find(TOLD);
            }
            "gdb" | "lldb" if !args.is_empty() => self.judgement.find(TOLD),
            "expect" | "socat" | "tmux" | "screen" | "xterm" | "run-parts" | "start-stop-daemon" | "capsh"
            | "telnet" | "cpulimit" | "logrotate" | "dtach" | "abduco" | "zellij"
                if !args.is_empty() =>
            {
                self.judgement.find(TOLD);
            }
            "nc" | "ncat" | "netcat" if has(args, "ec", &["--exec", "--sh-exec", "--lua-exec"]) => {
                self.judgement.find(TOLD);
            }
            "tar" | "bsdtar"
                if args.iter().any(|arg| {
                    ["--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command", "--info-script"]
                        .iter()
                        .any(|option| arg.starts_with(option))
                        || arg.starts_with("-I")
                        || arg.starts_with("-F")
                }) =>
            {
                self.judgement.find("tar with a command of its own");
            }
            "kubectl" | "oc" | "lxc" | "incus" | "vagrant" => {
                if let Some(at) = args.iter().position(|arg| arg == "--") {
                    self.call(Call { words: args[at + 1..].to_vec(), input: Input::None, made_file: None });
                } else if let Some(script) = after(args, &["-c", "--command"]) {
                    self.inner(&script, &Input::None);
                }
            }
            _ => return false,
        }
        true
    }

    /// A file of these options that the line itself makes.
    fn program_file(&mut self, args: &[String], options: &[&str], made_file: Option<bool>) {
        if made_file.is_some() {
            self.judgement.find("cannot be judged: the script is what another command prints");
        }
        if after(args, options).is_some_and(|file| self.was_written(&file).is_some()) {
            self.judgement.find("cannot be judged: it runs a script that it has just written");
        }
    }

    fn sed(&mut self, args: &[String], made_file: Option<bool>) {
        self.program_file(args, &["-f", "--file"], made_file);
        let is_option = |arg: &&String| ["-e", "--expression"].contains(&arg.as_str());
        let mut scripts: Vec<String> =
            args.windows(2).filter(|two| is_option(&&two[0])).map(|two| two[1].clone()).collect();
        let joined =
            |arg: &String| ["--expression=", "-e"].iter().find_map(|own| arg.strip_prefix(own).map(str::to_owned));
        scripts.extend(args.iter().filter_map(joined).filter(|script| !script.is_empty()));
        if scripts.is_empty() {
            scripts.extend(targets(args).next().cloned());
        }
        for script in scripts {
            let told = sed_script(&script);
            if told.runs {
                self.judgement.find("cannot be judged: a sed script runs commands");
            }
            told.writes.iter().for_each(|path| self.writes(path));
        }
    }
}

/// What a script of sed does besides editing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sed {
    runs: bool,
    writes: Vec<String>,
}

/// Reads a script of sed: its addresses, and of its commands `e`, `w`, `W` and the flags of `s`. What is not understood is
/// passed over by character, so that at worst too much is found.
fn sed_script(script: &str) -> Sed {
    let mut sed = Sed::default();
    let chars: Vec<char> = script.chars().collect();
    let mut at = 0;
    let rest_of_line =
        |from: usize| chars[from..].iter().take_while(|c| **c != '\n').collect::<String>().trim().to_owned();
    let line_end = |from: usize| from + chars[from..].iter().take_while(|c| **c != '\n').count();
    // Behind the `n`th further delimiter that is not escaped.
    let skip = |from: usize, delimiter: char, mut n: usize| {
        let mut at = from;
        while at < chars.len() && n > 0 {
            match chars[at] {
                '\\' => at += 1,
                c if c == delimiter => n -= 1,
                _ => {}
            }
            at += 1;
        }
        at.min(chars.len())
    };
    while at < chars.len() {
        match chars[at] {
            '/' => at = skip(at + 1, '/', 1),
            '\\' if at + 1 < chars.len() => at = skip(at + 2, chars[at + 1], 1),
            's' | 'y' if at + 1 < chars.len() => {
                let is_substitution = chars[at] == 's';
                at = skip(at + 2, chars[at + 1], 2);
                while is_substitution && at < chars.len() && (chars[at].is_ascii_alphanumeric()) {
                    match chars[at] {
                        'e' => sed.runs = true,
                        'w' => {
                            sed.writes.push(rest_of_line(at + 1));
                            at = line_end(at + 1);
                            break;
                        }
                        _ => {}
                    }
                    at += 1;
                }
            }
            'e' => {
                sed.runs = true;
                at += 1;
            }
            'w' | 'W' => {
                sed.writes.push(rest_of_line(at + 1));
                at = line_end(at + 1);
            }
            // Text, labels and file names up to the end of the line.
            'a' | 'i' | 'c' | 'b' | 't' | 'T' | ':' | 'r' | 'R' | '#' => at = line_end(at),
            _ => at += 1,
        }
    }
    sed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sed_script_does_besides_editing() {
        for script in
            ["1e rm x", "e", "s/a/rm x/e", "s|a|b|ge", "/x/{s,a,b,;e ls\n}", "$!e ls", "\\,x,e ls", "s/a\\/b/c/2e"]
        {
            assert!(sed_script(script).runs, "{script}");
        }
        for script in
            ["s/e/e/g", "/e/d", "2,5p", "y/e/w/", "s/e\\/w/e/;p", "/^e/!d", "a evil", "s/a/w e/p", ":e\ns/x/y/\nte"]
        {
            assert_eq!(sed_script(script), Sed::default(), "{script}");
        }
        assert_eq!(sed_script("s/a/b/w /etc/x\nw y").writes, ["/etc/x", "y"]);
    }
}
