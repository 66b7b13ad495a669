//! The real binary as a process of its own, among fakes that outlive it: started, killed, stopped, started again.
#![expect(dead_code, reason = "a model of the world has more than the conversations of one day need")]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use super::fake_model::FakeModel;
use super::fake_telegram::FakeTelegram;
use super::local::LocalChat;
use super::sender::Sender;
use super::world::World;

/// How long a start or a stop may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A home with a configuration, and the fakes it names.
pub(crate) struct Place {
    pub(crate) telegram: FakeTelegram,
    pub(crate) model: FakeModel,
    pub(crate) home: TempDir,
    variables: Vec<(String, String)>,
}

impl Place {
    /// Writes the world's configuration into a new home.
    pub(crate) async fn new(world: &World) -> Result<Self> {
        let (telegram, model) = (FakeTelegram::start().await, FakeModel::start().await);
        Self::with(world, telegram, model)
    }

    /// The same among people who are there already.
    pub(crate) fn with(world: &World, telegram: FakeTelegram, model: FakeModel) -> Result<Self> {
        let home = tempfile::tempdir()?;
        std::fs::write(home.path().join("config.yaml"), world.config_yaml(&telegram, &model))?;
        let variables = world.variables().clone().into_iter().collect();
        Ok(Self { telegram, model, home, variables })
    }

    /// A command of the real binary on this home, with an environment of its own.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = hookgate(self.home.path());
        command.args(args).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command of the real binary to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<Ran> {
        run(self.command(args), "").await
    }

    /// Starts the gateway and waits until it is ready.
    pub(crate) async fn start(&self) -> Result<Process> {
        self.start_with(&["--log", "debug"]).await
    }

    /// The same with these arguments to `gateway run`.
    pub(crate) async fn start_with(&self, args: &[&str]) -> Result<Process> {
        let log = self.home.path().join("gateway.log");
        let file = File::options().create(true).append(true).open(&log)?;
        let _ = std::fs::remove_file(self.home.path().join("console.json"));
        let child = self
            .command(&["gateway", "run"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let mut process = Process { child, log, webhooks: Sender::new(""), local: LocalChat::new("", "") };
        process.wait_until_ready(self.home.path()).await?;
        Ok(process)
    }
}

/// A command of the real binary on a home, with nothing of the test's own environment.
pub(crate) fn hookgate(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookgate"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").env("HOOKGATE_HOME", home);
    command
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Standard output as one JSON document.
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("{self:#?}"))
    }

    /// The same, of a command that succeeded.
    pub(crate) fn ok(self) -> Result<Self> {
        anyhow::ensure!(self.code == 0, "{self:#?}");
        Ok(self)
    }
}

/// Runs a command to its end with this standard input, while the test's own tasks go on.
pub(crate) async fn run(mut command: Command, input: &str) -> Result<Ran> {
    let input = input.to_owned();
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("a pipe")?;
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        // A command that does not read its input closes the pipe.
        let _ = writer.join();
        anyhow::Ok(output)
    });
    let output = tokio::time::timeout(PATIENCE, ran).await.context("the command did not end")???;
    Ok(Ran {
        code: output.status.code().context("ended by a signal")?,
        out: String::from_utf8(output.stdout)?,
        err: String::from_utf8(output.stderr)?,
    })
}

/// A running gateway. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    pub(crate) webhooks: Sender,
    pub(crate) local: LocalChat,
}

impl Process {
    async fn wait_until_ready(&mut self, home: &Path) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended at its start with {status}:\n{}", self.log());
            }
            if let Ok(text) = std::fs::read(home.join("console.json")) {
                let file: Value = serde_json::from_slice(&text)?;
                let text = |key: &str| file[key].as_str().unwrap_or_default().to_owned();
                self.local = LocalChat::new(&text("url"), &text("token"));
                self.webhooks = Sender::new(&text("webhook_url"));
                if self.webhooks.get("/health").await.is_ok_and(|answer| answer.status == 200) {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the gateway was not ready in time:\n{}", self.log())
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it wrote, over all its lives on this home.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) -> Result<()> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        Ok(())
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the gateway did not end in time:\n{}", self.log())
    }

    /// Stops it and returns its exit code.
    pub(crate) async fn stop(mut self) -> Result<i32> {
        self.terminate()?;
        self.ended().await?.code().context("ended by a signal")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
