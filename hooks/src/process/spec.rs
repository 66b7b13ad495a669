//! What to start, and within which bounds: [`Spec`]. A process gets the environment it is given here and no other.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Keep;

/// The variables of our own environment that every process gets, and all that begin with `LC_`.
pub const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER"];

/// Where programs are looked for when our own environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A process to be started: a program with its arguments, never a line for a shell.
#[derive(Clone)]
pub struct Spec {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) inherit_all: bool,
    pub(super) stdin: Option<Vec<u8>>,
    pub(super) deadline: Duration,
    pub(super) grace: Duration,
    pub(super) stdout: Keep,
    pub(super) stderr: Keep,
    pub(super) merged: bool,
    pub(super) detach: bool,
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Variables and input may hold secrets.
        f.debug_struct("Spec")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("cwd", &self.cwd)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Spec {
    /// The program, looked for in `PATH` unless it has a slash, with: no arguments, our working directory, the inherited
    /// variables only, nothing on standard input, a deadline of 60 s, a grace of 2 s, and the first 64 KiB of each stream.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            env: Vec::new(),
            inherit_all: false,
            stdin: None,
            deadline: Duration::from_secs(60),
            grace: Duration::from_secs(2),
            stdout: Keep::Head(64 * 1024),
            stderr: Keep::Head(64 * 1024),
            merged: false,
            detach: false,
        }
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Where it runs.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Adds a variable, or replaces one.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Passes our whole environment on, secrets included. Only for an operator who says so.
    pub fn inherit_all(mut self) -> Self {
        self.inherit_all = true;
        self
    }

    /// What it reads from standard input, which is closed behind it. Without this it reads the end at once.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// How long it may run, counted from its start; waiting for a free place does not count.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long it may go on after SIGTERM, until SIGKILL. Zero: SIGKILL at once.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// What is kept of its standard output.
    pub fn stdout(mut self, keep: Keep) -> Self {
        self.stdout = keep;
        self
    }

    /// What is kept of its standard error.
    pub fn stderr(mut self, keep: Keep) -> Self {
        self.stderr = keep;
        self
    }

    /// Gives it one pipe for both streams, so that they arrive in the order they were written, as standard output.
    pub fn merged(mut self) -> Self {
        self.merged = true;
        self
    }

    /// Lets the processes live that it leaves behind when it ends. Those of one that is stopped die all the same.
    pub fn detach(mut self) -> Self {
        self.detach = true;
        self
    }

    /// The whole environment of the process, but for the mark of its family.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut all: Vec<_> = std::env::vars_os().filter(|(name, _)| self.inherit_all || is_inherited(name)).collect();
        if !all.iter().any(|(name, _)| name == "PATH") {
            all.push(("PATH".into(), DEFAULT_PATH.into()));
        }
        for (name, value) in &self.env {
            all.retain(|(there, _)| there != name);
            all.push((name.clone(), value.clone()));
        }
        all
    }
}

fn is_inherited(name: &OsStr) -> bool {
    INHERITED.iter().any(|inherited| name == *inherited) || name.as_encoded_bytes().starts_with(b"LC_")
}

/// Where a program that is named without a slash is found in our `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let runs = |file: &Path| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|file| runs(file))
}
