//! A complete small world around the whole gateway, built as `main` builds it: Alice (7) is allowed, Mallory (66) is not;
//! one Telegram bot, one model, the local chat, one GitHub route. [`run_test`] owns the ending: nothing may be unread,
//! unused, logged as an error, or still running.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use hookgate::app::{App, Ended, Options};
use hookgate::config::{self, LoadOptions};
use hookgate::gateway::Gateway;
use hookgate::status::Ready;
use hookgate_hooks::{Hook, Registry};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::MakeWriter;

use super::fake_model::FakeModel;
use super::fake_telegram::{FakeTelegram, TOKEN};
use super::local::LocalChat;
use super::process::{Ran, hookgate, run};
use super::sender::Sender;

/// The secret of the world's GitHub route.
pub(crate) const SECRET: &str = "the-github-secret";
/// The model's key.
pub(crate) const MODEL_KEY: &str = "sk-the-model-key";
/// The console's token.
pub(crate) const CONSOLE_TOKEN: &str = "the-console-token-of-tests";
/// The longest a stop may take when nothing holds it up.
const STOP: Duration = Duration::from_secs(5);

/// What a test changes about the world before it begins.
pub(crate) struct World {
    settings: Vec<String>,
    webhook: Vec<String>,
    routes: Vec<String>,
    env: BTreeMap<String, String>,
    echo: bool,
    anthropic: bool,
    model_echoes: bool,
    telegram: bool,
    telegram_at: Option<String>,
    hooks: Arc<Registry>,
    home: Option<Arc<TempDir>>,
    warnings: bool,
}

impl Default for World {
    fn default() -> Self {
        let route = format!(
            "github: {{secret: {SECRET}, events: [], prompt: '{{action}} #{{issue.number}}: {{issue.title}}', \
             deliver: telegram, deliver_extra: {{chat_id: '7'}}}}"
        );
        Self {
            settings: Vec::new(),
            webhook: Vec::new(),
            routes: vec![route],
            env: BTreeMap::from([("TELEGRAM_ALLOWED_USERS".to_owned(), "7".to_owned())]),
            echo: false,
            anthropic: false,
            model_echoes: false,
            telegram: true,
            telegram_at: None,
            hooks: Arc::new(Registry::new()),
            home: None,
            warnings: false,
        }
    }
}

impl World {
    /// The built-in echo answers instead of the fake model.
    pub(crate) fn echo(mut self) -> Self {
        self.echo = true;
        self
    }

    /// The fake model is asked in Anthropic's dialect.
    pub(crate) fn anthropic(mut self) -> Self {
        self.anthropic = true;
        self
    }

    /// The model answers `echo: <last user text>` when it has no line left.
    pub(crate) fn model_echoes(mut self) -> Self {
        self.model_echoes = true;
        self
    }

    /// There is no Telegram bot.
    pub(crate) fn without_telegram(mut self) -> Self {
        self.telegram = false;
        self.routes.clear();
        self
    }

    /// The Bot API is at this address and not at the fake's own.
    pub(crate) fn telegram_at(mut self, base_url: &str) -> Self {
        self.telegram_at = Some(base_url.to_owned());
        self
    }

    /// Adds top-level lines to config.yaml.
    pub(crate) fn setting(mut self, yaml: &str) -> Self {
        self.settings.push(yaml.to_owned());
        self
    }

    /// Adds a key below `platforms.webhook.extra`.
    pub(crate) fn webhook(mut self, yaml: &str) -> Self {
        self.webhook.push(yaml.to_owned());
        self
    }

    /// Adds a route, `name: {…}`.
    pub(crate) fn route(mut self, yaml: &str) -> Self {
        self.routes.push(yaml.to_owned());
        self
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Registers an in-process hook.
    pub(crate) fn hook(self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.register(hook);
        self
    }

    /// Uses the home of another world, for a second life.
    pub(crate) fn at_home_of(mut self, town: &Town) -> Self {
        self.home = Some(Arc::clone(&town.home));
        self
    }

    /// The configuration may have warnings.
    pub(crate) fn with_warnings(mut self) -> Self {
        self.warnings = true;
        self
    }

    /// The text of config.yaml.
    pub(crate) fn config_yaml(&self, telegram: &FakeTelegram, model: &FakeModel) -> String {
        let mut yaml = String::from("platforms:\n");
        if self.telegram {
            yaml.push_str(&format!(
                "  telegram: {{token: '{TOKEN}', extra: {{base_url: '{}'}}}}\n",
                self.telegram_at.clone().unwrap_or_else(|| telegram.base_url())
            ));
        }
        yaml.push_str("  webhook:\n    extra:\n      port: 0\n");
        for line in &self.webhook {
            yaml.push_str(&format!("      {line}\n"));
        }
        if self.routes.is_empty() {
            yaml.push_str("      routes: {}\n");
        } else {
            yaml.push_str("      routes:\n");
        }
        for route in &self.routes {
            yaml.push_str(&format!("        {route}\n"));
        }
        yaml.push_str(&format!("console: {{port: 0, token: {CONSOLE_TOKEN}}}\n"));
        if !self.echo {
            let provider = if self.anthropic { "anthropic" } else { "openai" };
            yaml.push_str(&format!(
                "model: {{provider: {provider}, default: fake, base_url: '{}', api_key: {MODEL_KEY}}}\n",
                model.base_url()
            ));
        }
        for line in &self.settings {
            yaml.push_str(line);
            yaml.push('\n');
        }
        yaml
    }

    /// The variables the gateway gets.
    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.env
    }
}

/// The world while a test runs in it.
pub(crate) struct Town {
    pub(crate) telegram: FakeTelegram,
    pub(crate) model: FakeModel,
    pub(crate) local: LocalChat,
    pub(crate) webhooks: Sender,
    pub(crate) home: Arc<TempDir>,
    pub(crate) gateway: Gateway,
    pub(crate) hooks: Arc<Registry>,
    pub(crate) log: Log,
    variables: BTreeMap<String, String>,
    expected_errors: Vec<String>,
    shutdown: CancellationToken,
    running: Option<JoinHandle<Result<Ended, hookgate::error::UserError>>>,
    log_guard: Option<tracing::subscriber::DefaultGuard>,
}

/// Runs a test in a world of its own, and ends that world strictly.
pub(crate) async fn run_test(world: World, test: impl AsyncFnOnce(&mut Town) -> Result<()>) {
    let mut town = Town::begin(world).await.unwrap();
    if let Err(error) = test(&mut town).await {
        panic!("{error:?}\n--- log ---\n{}", town.log.text());
    }
    if let Err(error) = town.end().await {
        panic!("after the test: {error:?}\n--- log ---\n{}", town.log.text());
    }
}

impl Town {
    /// Builds and starts the gateway. Needs a current-thread runtime, so that each test's log is its own.
    pub(crate) async fn begin(world: World) -> Result<Self> {
        let telegram = FakeTelegram::start().await;
        let model = if world.model_echoes { FakeModel::echo().await } else { FakeModel::start().await };
        Self::begin_with(world, telegram, model).await
    }

    /// The same among people who are there already.
    pub(crate) async fn begin_with(world: World, telegram: FakeTelegram, model: FakeModel) -> Result<Self> {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .finish();
        let log_guard = tracing::subscriber::set_default(subscriber);
        let home = match &world.home {
            Some(home) => Arc::clone(home),
            None => Arc::new(tempfile::tempdir()?),
        };
        std::fs::write(home.path().join("config.yaml"), world.config_yaml(&telegram, &model))?;
        let loaded = config::load(LoadOptions { home: Some(home.path().to_owned()), environment: world.env.clone() });
        let config = loaded.config.with_context(|| format!("{:#?}", loaded.problems))?;
        ensure!(world.warnings || loaded.problems.is_empty(), "{:#?}", loaded.problems);
        // Boxed, since every test's future would hold it.
        let build = Box::pin(App::build(config, Options { hooks: Arc::clone(&world.hooks), ..Options::default() }));
        let app = build.await?;
        let summary = app.summary().clone();
        let page = summary.page().context("the console is on")?.to_owned();
        let (url, token) = page.split_once("/?token=").context("the page has a token")?;
        let shutdown = CancellationToken::new();
        let gateway = app.gateway().clone();
        let webhooks = summary.webhook_address.context("the webhook listener is on")?;
        let running = tokio::spawn(app.run(shutdown.clone()));
        let town = Self {
            local: LocalChat::new(url, token),
            webhooks: Sender::new(&format!("http://{webhooks}")),
            telegram,
            model,
            home,
            gateway,
            hooks: world.hooks,
            log,
            variables: world.env,
            expected_errors: Vec::new(),
            shutdown,
            running: Some(running),
            log_guard: Some(log_guard),
        };
        if town.variables.contains_key("TELEGRAM_WEBHOOK_URL") {
            let is_set = |telegram: &FakeTelegram| telegram.calls_of("setWebhook").len() == 1;
            town.telegram.wait_until("the webhook is set", is_set).await?;
        } else if world.telegram {
            town.telegram.wait_until("the bot is polling", FakeTelegram::is_polled).await?;
        }
        Ok(town)
    }

    /// Every hook has been told what has happened so far.
    pub(crate) async fn hooks_rest(&self) -> Result<()> {
        self.idle().await?;
        ensure!(self.hooks.drain(Duration::from_secs(10)).await == 0, "the hooks did not rest");
        Ok(())
    }

    /// What hooks are told of these events from now on, in order.
    pub(crate) fn hooks_of(&self, events: &[&str]) -> Arc<Mutex<Vec<(String, serde_json::Value)>>> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let subscriptions = events.iter().map(ToString::to_string).collect();
        self.hooks.register(Arc::new(Listener { subscriptions, told: Arc::clone(&told) }));
        told
    }

    /// Waits until something outside of the gateway is the case.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<()> {
        until(what, is_so).await
    }

    /// Runs a command of the real binary on the home.
    pub(crate) async fn cli(&self, args: &[&str]) -> Result<Ran> {
        let mut command = hookgate(self.home());
        command.args(args).envs(&self.variables);
        run(command, "").await
    }

    /// The home directory.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// A file in the home.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `/ready` as it is told over HTTP.
    pub(crate) async fn ready(&self) -> Result<Ready> {
        self.webhooks.get("/ready").await?.json()
    }

    /// A line logged as an error that contains this text is right in this test.
    pub(crate) fn expect_error(&mut self, part: &str) {
        self.expected_errors.push(part.to_owned());
    }

    /// Everything that was said has been handled, and everything that can be sent is sent.
    pub(crate) async fn idle(&self) -> Result<()> {
        self.telegram.wait_until("every update is confirmed", |telegram| telegram.unconfirmed().is_empty()).await?;
        tokio::time::timeout(Duration::from_secs(10), self.gateway.idle()).await.context("the gateway did not rest")?;
        Ok(())
    }

    /// Stops the gateway as SIGTERM does, and returns how it ended.
    pub(crate) async fn stop(&mut self) -> Result<Ended> {
        self.shutdown.cancel();
        let running = self.running.take().context("the gateway runs")?;
        let ended = tokio::time::timeout(Duration::from_secs(40), running).await.context("the gateway did not stop")?;
        Ok(ended??)
    }

    /// Stops the gateway if it runs, and starts another on the same home among the same people.
    pub(crate) async fn live_again(&mut self, world: World) -> Result<()> {
        if self.running.is_some() {
            self.stop().await?;
        }
        // The one guard goes before the other comes, or it would take the new log away.
        self.log_guard = None;
        let world = world.at_home_of(self);
        let model = std::mem::replace(&mut self.model, FakeModel::start().await);
        *self = Self::begin_with(world, self.telegram.clone(), model).await?;
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        if self.running.is_some() {
            self.idle().await?;
            let began = std::time::Instant::now();
            ensure!(self.stop().await? == Ended::Stopped, "the gateway ended by itself");
            ensure!(began.elapsed() < STOP, "the stop took {:?}", began.elapsed());
        }
        let unread: Vec<String> = self.telegram.unread().iter().map(ToString::to_string).collect();
        ensure!(unread.is_empty(), "the bot said more than was heard: {unread:#?}");
        let unanswered = self.telegram.unanswered();
        ensure!(unanswered.is_empty(), "presses were not answered: {unanswered:?}");
        ensure!(self.model.unused().is_empty(), "the model was to say more: {:#?}", self.model.unused());
        ensure!(self.model.problems().is_empty(), "the model was asked wrongly: {:#?}", self.model.problems());
        let errors = self.log.errors();
        if let Some(error) =
            errors.iter().find(|line| !self.expected_errors.iter().any(|expected| line.contains(expected)))
        {
            bail!("an error was logged: {error}");
        }
        if let Some(missing) =
            self.expected_errors.iter().find(|expected| !errors.iter().any(|line| line.contains(*expected)))
        {
            bail!("this error was expected and not logged: {missing}");
        }
        for secret in [TOKEN, SECRET, MODEL_KEY, CONSOLE_TOKEN] {
            ensure!(!self.log.text().contains(secret), "a secret was logged");
        }
        Ok(())
    }
}

/// What one test's gateway logs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<watch::Sender<Vec<u8>>>);

impl Log {
    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }

    /// Waits until a text has been logged so often.
    pub(crate) async fn shows(&self, part: &str, times: usize) -> Result<()> {
        let mut log = self.0.subscribe();
        let shown = log.wait_for(|log| String::from_utf8_lossy(log).matches(part).count() >= times);
        let shown = tokio::time::timeout(Duration::from_secs(10), shown).await;
        shown.with_context(|| format!("not logged: {part}"))??;
        Ok(())
    }

    /// The lines logged as errors.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(" ERROR ")).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.send_modify(|log| log.extend_from_slice(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Keeps what it is told.
struct Listener {
    subscriptions: Vec<String>,
    told: Arc<Mutex<Vec<(String, serde_json::Value)>>>,
}

#[async_trait::async_trait]
impl Hook for Listener {
    fn name(&self) -> &str {
        "listener"
    }

    fn subscriptions(&self) -> &[String] {
        &self.subscriptions
    }

    async fn observe(
        &self,
        event: &hookgate_hooks::Event,
        payload: Arc<serde_json::Value>,
    ) -> Result<(), hookgate_hooks::HookError> {
        self.told.lock().unwrap().push((event.to_string(), serde_json::Value::clone(&payload)));
        Ok(())
    }
}

/// Waits until something outside of the gateway is the case.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !is_so() {
        ensure!(std::time::Instant::now() < deadline, "it never was so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
