//! One started process: its start, its pipes, and that it does not outlive who asked for it.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::Spec;
use super::family::{self, Family, MARK};

/// How often a start is tried again while somebody still has the program open for writing, and how long we wait.
const BUSY_TRIES: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long we wait for a process after SIGKILL before that is left to the background.
const LONGEST_REAP: Duration = Duration::from_secs(5);
/// How often we look whether the members of a family have obeyed SIGTERM.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither in `PATH` nor where its name says; or the interpreter in its first line is missing.
    #[error("command not found: {0}")]
    NotFound(String),
    /// It is there and may not be run.
    #[error("command not executable: {0}")]
    NotExecutable(String),
    /// It is neither a program for this machine nor a script that names its interpreter.
    #[error("exec format error: {0} is no program, or a script without a `#!` line")]
    ExecFormat(String),
    /// Where it was to run is no directory, or may not be entered.
    #[error("the working directory {dir} cannot be entered: {1}", dir = .0.display())]
    Directory(PathBuf, io::Error),
    /// An argument or a variable is too long, or holds a NUL byte.
    #[error("the command cannot be passed on: {0}")]
    Arguments(String),
    /// As many processes run as may.
    #[error("too many processes are running: at most {0} may")]
    NoPlace(usize),
    /// The system did not start it.
    #[error("the process could not be started: {0}")]
    System(#[source] io::Error),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Exit {
    /// As shells tell it: the exit code, or 128 and the signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// Whether it ended by itself, with 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => match Signal::try_from(*signal) {
                Ok(name) => write!(f, "signal {name}"),
                Err(_) => write!(f, "signal {signal}"),
            },
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        status.code().map_or_else(|| Self::Signal(status.signal().unwrap_or_default()), Self::Code)
    }
}

/// Our ends of its pipes. Standard error is `None` where it goes into standard output.
pub(super) struct Pipes {
    pub(super) stdin: Option<pipe::Sender>,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: Option<pipe::Receiver>,
}

/// A running process. Dropped before [`Child::end`], its whole family is killed.
pub(super) struct Child {
    parts: Option<Parts>,
    pub(super) started: Instant,
    detach: bool,
}

struct Parts {
    process: tokio::process::Child,
    family: Arc<Family>,
    place: OwnedSemaphorePermit,
}

impl Child {
    /// Starts what is asked for, with a pipe for standard input where `with_stdin`.
    pub(super) async fn start(
        spec: Spec,
        with_stdin: bool,
        place: OwnedSemaphorePermit,
    ) -> Result<(Self, Pipes), StartError> {
        // A start waits until the program is loaded, from wherever that is. If nobody waits for it any more, what was
        // started is dropped with the result, and so is killed.
        let started = spawn_blocking(move || start(&spec, with_stdin, place)).await;
        started.unwrap_or_else(|error| Err(StartError::System(error.into())))
    }

    /// Waits until the process we started has ended. May be asked again.
    pub(super) async fn wait(&mut self) -> Exit {
        match &mut self.parts {
            // An error would mean that somebody else reaped it: there is nothing more to learn then.
            Some(parts) => parts.process.wait().await.map_or(Exit::Signal(Signal::SIGKILL as i32), Exit::from),
            None => std::future::pending().await,
        }
    }

    /// Ends the whole family, the polite way first where there is a grace.
    pub(super) async fn stop(&mut self, grace: Duration) -> Exit {
        if let Some(parts) = &mut self.parts {
            let family = &parts.family;
            if grace > Duration::ZERO {
                with(family, |family| family.signal(Signal::SIGTERM)).await;
                let gone = async {
                    let _ = parts.process.wait().await;
                    while with(family, Family::is_alive).await == Some(true) {
                        sleep(LOOK_AGAIN).await;
                    }
                };
                let _ = timeout(grace, gone).await;
            }
            with(family, Family::kill).await;
        }
        timeout(LONGEST_REAP, self.wait()).await.unwrap_or(Exit::Signal(Signal::SIGKILL as i32))
    }

    /// Kills what an ended process leaves behind, unless that may live.
    pub(super) async fn end(mut self) {
        let Some(parts) = &mut self.parts else { return };
        if self.detach {
            let _ = spawn_blocking(family::reap).await;
        } else {
            with(&parts.family, Family::kill).await;
        }
        // What has not ended is left to our drop.
        if !matches!(parts.process.try_wait(), Ok(None)) {
            self.parts = None;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(Parts { mut process, family, place }) = self.parts.take() else { return };
        // At once, for there may be no later: the second time for what was born during the first.
        if family.signal(Signal::SIGKILL) > 0 {
            family.signal(Signal::SIGKILL);
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ = process.wait().await;
                with(&family, Family::kill).await;
                drop(place);
            });
        }
    }
}

/// Does something that reads `/proc` where blocking is allowed. `None` when the runtime is going down.
async fn with<T: Send + 'static>(family: &Arc<Family>, work: impl FnOnce(&Family) -> T + Send + 'static) -> Option<T> {
    let family = Arc::clone(family);
    spawn_blocking(move || work(&family)).await.ok()
}

fn start(spec: &Spec, with_stdin: bool, place: OwnedSemaphorePermit) -> Result<(Child, Pipes), StartError> {
    let mut command = command(spec)?;
    let (stdout, writer) = io::pipe().map_err(StartError::System)?;
    let stderr = if spec.merged {
        command.stderr(writer.try_clone().map_err(StartError::System)?);
        None
    } else {
        let (stderr, writer) = io::pipe().map_err(StartError::System)?;
        command.stderr(writer);
        Some(stderr)
    };
    command.stdout(writer);
    let stdin = if with_stdin {
        let (reader, stdin) = io::pipe().map_err(StartError::System)?;
        command.stdin(reader);
        Some(stdin)
    } else {
        command.stdin(Stdio::null());
        None
    };
    let receiver = |end: io::PipeReader| pipe::Receiver::from_owned_fd(end.into()).map_err(StartError::System);
    let sender = |end: io::PipeWriter| pipe::Sender::from_owned_fd(end.into()).map_err(StartError::System);
    let stderr = stderr.map(receiver).transpose()?;
    let pipes = Pipes { stdin: stdin.map(sender).transpose()?, stdout: receiver(stdout)?, stderr };

    let mut family = Family::begin(spec.detach);
    command.env(MARK, family.mark());
    let process = spawn(&mut command).map_err(|error| why(spec, error))?;
    if let Some(leader) = process.id() {
        family.started(leader);
    }
    let parts = Parts { process, family: Arc::new(family), place };
    Ok((Child { parts: Some(parts), started: Instant::now(), detach: spec.detach }, pipes))
}

fn command(spec: &Spec) -> Result<Command, StartError> {
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().process_group(0);
    for (name, value) in spec.environment() {
        let bytes = name.as_encoded_bytes();
        if bytes.is_empty() || bytes.contains(&b'=') {
            return Err(StartError::Arguments(format!("a variable cannot be called {name:?}")));
        }
        command.env(name, value);
    }
    if let Some(cwd) = &spec.cwd {
        // Otherwise a missing directory looks like a missing program. The dot asks whether it may be entered.
        let meta = std::fs::metadata(cwd.join(".")).map_err(|error| StartError::Directory(cwd.clone(), error))?;
        if !meta.is_dir() {
            return Err(StartError::Directory(cwd.clone(), io::ErrorKind::NotADirectory.into()));
        }
        command.current_dir(cwd);
    }
    Ok(command)
}

fn spawn(command: &mut Command) -> io::Result<tokio::process::Child> {
    for _ in 0..BUSY_TRIES {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::sleep(BUSY_PAUSE),
            started => return started,
        }
    }
    command.spawn()
}

fn why(spec: &Spec, error: io::Error) -> StartError {
    let program = spec.program.to_string_lossy().into_owned();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => StartError::NotFound(program),
        Some(Errno::EACCES | Errno::EPERM | Errno::EISDIR) => StartError::NotExecutable(program),
        Some(Errno::ENOEXEC) => StartError::ExecFormat(program),
        Some(Errno::E2BIG) => StartError::Arguments("it is too long".to_owned()),
        None if error.kind() == io::ErrorKind::InvalidInput => StartError::Arguments(error.to_string()),
        _ => StartError::System(error),
    }
}
