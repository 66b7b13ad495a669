//! The real binary as a process of its own, among fakes that outlive it: started, killed, stopped, started again.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;

use super::fake_model::FakeModel;
use super::fake_telegram::{FakeTelegram, TOKEN};
use super::local::LocalChat;
use super::sender::Sender;
use super::world::{MODEL_KEY, SECRET, World};

/// How long a start or a stop may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a test around a place, and then looks whether it was left as it should be: everything accepted is answered and
/// sent, nothing was said that nobody heard, the database is sound, and no secret was logged.
pub(crate) async fn survive(world: World, test: impl AsyncFnOnce(&Place) -> Result<()>) {
    let place = Place::new(&world).await.unwrap();
    if let Err(error) = test(&place).await {
        panic!("{error:?}\n--- log ---\n{}", place.log());
    }
    if let Err(error) = place.end().await {
        panic!("after the test: {error:?}\n--- log ---\n{}", place.log());
    }
}

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

    /// Where the database lies.
    pub(crate) fn database_file(&self) -> PathBuf {
        self.home.path().join("hookgate.db")
    }

    /// A connection of somebody else to the database.
    pub(crate) async fn database(&self) -> Result<SqliteConnection> {
        let options = SqliteConnectOptions::new().filename(self.database_file()).busy_timeout(PATIENCE);
        Ok(options.disable_statement_logging().connect().await?)
    }

    /// The number a query gives.
    pub(crate) async fn number(&self, sql: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(sql).fetch_one(&mut self.database().await?).await?)
    }

    /// Changes the database from outside.
    pub(crate) async fn change(&self, sql: &'static str) -> Result<()> {
        sqlx::query(sql).execute(&mut self.database().await?).await?;
        Ok(())
    }

    /// Waits until the database has what is counted.
    pub(crate) async fn stored(&self, sql: &'static str) -> Result<()> {
        let mut database = self.database().await?;
        let deadline = Instant::now() + PATIENCE;
        while sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut database).await? == 0 {
            ensure!(Instant::now() < deadline, "the database never had it: {sql}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Waits until every update is confirmed, and everything accepted is answered and sent.
    pub(crate) async fn rests(&self) -> Result<()> {
        self.telegram.wait_until("every update is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
        self.stored(
            "select not exists (select 1 from inbox where done_at is null) \
             and not exists (select 1 from outbox where left_queue_at is null)",
        )
        .await
    }

    /// Everything its gateways wrote.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.home.path().join("gateway.log")
    }

    async fn end(&self) -> Result<()> {
        let open = self.number("select count(*) from inbox where done_at is null").await?
            + self.number("select count(*) from outbox where left_queue_at is null").await?;
        ensure!(open == 0, "{open} rows are left undone");
        let verdict: String =
            sqlx::query_scalar("pragma integrity_check").fetch_one(&mut self.database().await?).await?;
        ensure!(verdict == "ok", "the database is not sound: {verdict}");
        let unread: Vec<String> = self.telegram.unread().iter().map(ToString::to_string).collect();
        ensure!(unread.is_empty(), "the bot said more than was heard: {unread:#?}");
        ensure!(self.model.unused().is_empty(), "the model was to say more: {:#?}", self.model.unused());
        ensure!(self.model.problems().is_empty(), "the model was asked wrongly: {:#?}", self.model.problems());
        ensure!(self.telegram.overlaps() == 0, "two polls at once");
        ensure!(!self.log().contains("panicked"), "a thread panicked");
        for secret in [TOKEN, SECRET, MODEL_KEY] {
            ensure!(!self.log().contains(secret), "a secret was logged");
        }
        Ok(())
    }

    /// Starts the gateway and waits until it listens to Telegram.
    pub(crate) async fn start_listening(&self) -> Result<Process> {
        let process = self.start().await?;
        self.telegram.wait_until("the bot is polling", FakeTelegram::is_polled).await?;
        Ok(process)
    }

    /// Starts the gateway and waits until it is ready.
    pub(crate) async fn start(&self) -> Result<Process> {
        self.start_with(&["--log", "debug"]).await
    }

    /// The same with these arguments to `gateway run`.
    pub(crate) async fn start_with(&self, args: &[&str]) -> Result<Process> {
        let mut process = self.spawn_with(args)?;
        process.wait_until_ready(self.home.path()).await?;
        Ok(process)
    }

    /// Starts the gateway and does not wait for it.
    pub(crate) fn spawn(&self) -> Result<Process> {
        self.spawn_with(&["--log", "debug"])
    }

    fn spawn_with(&self, args: &[&str]) -> Result<Process> {
        let mut command = self.command(&["gateway", "run"]);
        command.args(args);
        self.spawn_command(command)
    }

    /// Starts the gateway by a command of the test's own.
    pub(crate) fn spawn_command(&self, mut command: Command) -> Result<Process> {
        let log = self.log_file();
        let file = File::options().create(true).append(true).open(&log)?;
        let _ = std::fs::remove_file(self.home.path().join("console.json"));
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Process { child, log, webhooks: Sender::new(""), local: LocalChat::new("", "") })
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
    pub(crate) async fn wait_until_ready(&mut self, home: &Path) -> Result<()> {
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

    /// Waits until it wrote this: lines are written by a thread of their own.
    pub(crate) async fn logs(&self, part: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(part) {
            ensure!(Instant::now() < deadline, "it never logged {part:?}:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// How many descriptors it has open and how many threads it has.
    pub(crate) fn descriptors_and_threads(&self) -> Result<(usize, usize)> {
        let count =
            |what: &str| Ok::<_, std::io::Error>(std::fs::read_dir(format!("/proc/{}/{what}", self.pid()))?.count());
        Ok((count("fd")?, count("task")?))
    }

    /// No file may grow beyond so many bytes, as on a full disk; `None` makes room again.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid())?);
        rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit)?;
        Ok(())
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        Ok(())
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until it no longer takes anything in.
    pub(crate) async fn drains(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.webhooks.get("/ready").await?.json::<Value>()?["draining"] != true {
            ensure!(Instant::now() < deadline, "the gateway does not stop:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
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

    /// Waits for its end and returns its exit code.
    pub(crate) async fn exit_code(mut self) -> Result<i32> {
        self.ended().await?.code().context("ended by a signal")
    }

    /// Stops it and returns its exit code.
    pub(crate) async fn stop(self) -> Result<i32> {
        self.terminate()?;
        self.exit_code().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
