//! Wires everything from a [`Config`] and runs it until it is told to stop. The same build serves `main` and the tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;

use hookgate_adapters::{Adapter, AdapterState, Inbound, LocalAdapter, Platform, TelegramAdapter, TelegramOptions};
use hookgate_hooks::payload::{GatewayShutdown, GatewayStartup};
use hookgate_hooks::process::end_leftovers;
use hookgate_hooks::{Event, Registry};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::tools::Toolbox;
use crate::agent::{Agent, Budget, Guard, Prices, Steps};
use crate::clock::Clock;
use crate::config::{self, Config, OnTimeout, Provider};
use crate::console::{self, Console, ConsoleFile};
use crate::error::UserError;
use crate::gateway::{ApprovalRules, Budgets, Gateway, Parts, Rules};
use crate::server;
use crate::status::{Ready, StatusSource};
use crate::store::lock::{HomeLock, LockError};
use crate::store::{OpenOptions, SqlStore, Store, StoreError};
use crate::webhook::subscriptions::{FILE_NAME, Subscriptions};
use crate::webhook::{self, BodyBudget, Limits, MissingTold, Webhooks};

/// Observers get so long to hear the last events.
const HOOKS_AT_STOP: Duration = Duration::from_secs(2);
/// How often finished rows are looked over for deletion.
const RETAIN_EVERY: Duration = Duration::from_secs(3600);
/// How often conversations that are over are looked for.
const END_EVERY: Duration = Duration::from_secs(60);
/// How often a store that failed is tried.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often one that works is tried, so that it is noticed before a message comes when it went away.
const PROBE_IDLE_EVERY: Duration = Duration::from_secs(30);
const GIB: u64 = 1 << 30;

/// What differs between a gateway and a chat in one process.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only the local chat: no platform is connected and no webhook served (`hookgate chat` without a gateway).
    pub only_local: bool,
    /// The wall clock.
    pub clock: Clock,
    /// In-process hooks.
    pub hooks: Arc<Registry>,
}

impl Default for Options {
    fn default() -> Self {
        Self { only_local: false, clock: Clock::system(), hooks: Arc::new(Registry::new()) }
    }
}

/// A built gateway: the home is locked, the store open, the addresses bound. Nothing is heard or sent before
/// [`App::run`].
pub struct App {
    gateway: Gateway,
    store: Arc<dyn Store>,
    hooks: Arc<Registry>,
    adapters: Vec<Arc<dyn Adapter>>,
    status: Arc<StatusSource>,
    public: Option<(TcpListener, Router)>,
    private: Option<(TcpListener, Router)>,
    /// Ends the event streams of the chat page, which would hold up the listener's end.
    streams: CancellationToken,
    drain_timeout: Duration,
    retention: (u32, u64),
    summary: Summary,
    _lock: HomeLock,
}

/// What is on and where, for the start's lines.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The home directory.
    pub home: PathBuf,
    /// The chat page with its token, if it is on.
    pub console_url: Option<SecretString>,
    /// Where webhooks are received, if they are.
    pub webhook_address: Option<SocketAddr>,
    /// The routes served at the start.
    pub routes: Vec<String>,
    /// Routes that are off, and why.
    pub routes_off: Vec<String>,
    /// The Telegram bots that are on, by their accounts: `telegram`, `telegram@support`.
    pub telegram: Vec<String>,
    /// Which model answers.
    pub model: String,
    /// Whether it is the built-in echo.
    pub echo: bool,
    /// What opening the store had to tell.
    pub notes: Vec<String>,
}

/// Why the gateway ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// The database turned out to be damaged or another's; the next start opens it anew and repairs it.
    Damaged,
}

impl App {
    /// Locks the home, opens the store, builds every part and binds the addresses.
    pub async fn build(config: Config, options: Options) -> Result<Self, UserError> {
        let Options { only_local, clock, hooks } = options;
        crate::redact::add(&config.secrets);
        let lock = lock_home(&config)?;
        let open = OpenOptions::new(&config.home, &config.storage.url).clock(clock.clone());
        let opened = SqlStore::open(open).await.map_err(|error| store_error(&error))?;
        let (store, notes): (Arc<dyn Store>, _) = (opened.store.into(), opened.notes);

        let local = Arc::new(LocalAdapter::new());
        let mut adapters: Vec<Arc<dyn Adapter>> = Vec::new();
        for (account, telegram) in config.telegram.iter().filter(|_| !only_local) {
            adapters.push(Arc::new(telegram_adapter(account, telegram, &config)?));
        }
        if config.console.enabled || only_local {
            adapters.push(Arc::clone(&local) as Arc<dyn Adapter>);
        }

        let unusable = |error: anyhow::Error| UserError::config(error.to_string());
        let agent = Agent::from_config(&config.model, Arc::clone(&hooks)).map_err(unusable)?;
        let agent = agent
            .with_guard(guard(&config))
            .with_steps(Steps { most: config.agent.max_turns, verifications: config.agent.max_verify_nudges });
        let toolbox = Toolbox::from_config(&config).map_err(unusable)?;
        let platforms = [Platform::Telegram, Platform::Local, Platform::Webhook];
        let toolsets = platforms.into_iter().map(|platform| (platform, config.tools_of(platform))).collect();
        let serves_webhooks = config.webhook.enabled && !only_local;
        let gateway = Gateway::new(Parts {
            store: Arc::clone(&store),
            hooks: Arc::clone(&hooks),
            agent,
            toolbox,
            toolsets,
            adapters: adapters.clone(),
            serves_webhooks,
            rules: rules(&config),
            clock: clock.clone(),
        });
        let status = Arc::new(StatusSource::new(gateway.clone(), adapters.clone(), serves_webhooks));

        let mut summary = Summary {
            home: config.home.clone(),
            console_url: None,
            webhook_address: None,
            routes: Vec::new(),
            routes_off: Vec::new(),
            telegram: match only_local {
                true => Vec::new(),
                false => config.telegram.keys().map(|account| Platform::Telegram.with_account(account)).collect(),
            },
            model: model_name(&config),
            echo: config.model.provider == Provider::Echo,
            notes,
        };
        let public = if serves_webhooks {
            let listener =
                server::bind("webhooks", &config.webhook.host, config.webhook.port).await.map_err(bind_error)?;
            summary.webhook_address = listener.local_addr().ok();
            let webhooks = Arc::new(webhooks(&config, &gateway, &store, &clock));
            let routes = webhooks.subscriptions.current().await;
            summary.routes = routes.names();
            summary.routes_off = routes.off_lines();
            Some((listener, webhook::routes(webhooks).merge(server::health_routes(Arc::clone(&status)))))
        } else {
            None
        };

        let streams = CancellationToken::new();
        let token = console::token(&config.home, config.console.token.as_ref());
        crate::redact::add([&token]);
        let mut file = ConsoleFile::new(&token, summary.webhook_address);
        let private = if config.console.enabled || only_local {
            let port = if only_local { 0 } else { config.console.port };
            let listener = server::bind("console", &config.console.host, port).await.map_err(bind_error)?;
            let address = listener.local_addr().map_err(|error| UserError::failed(error.to_string()))?;
            file.set_address(address);
            let console =
                Console::new(gateway.clone(), Arc::clone(&store), local, token.clone(), clock.clone(), streams.clone());
            Some((listener, console.routes().merge(server::health_routes(Arc::clone(&status)))))
        } else {
            None
        };
        summary.console_url = file.page().map(SecretString::from);
        if !only_local {
            file.write(&config.home)?;
        }
        Ok(Self {
            gateway,
            store,
            hooks,
            adapters,
            status,
            public,
            private,
            streams,
            drain_timeout: config.drain_timeout,
            retention: (config.storage.retention_days, config.storage.max_gb.saturating_mul(GIB)),
            summary,
            _lock: lock,
        })
    }

    /// What is on and where.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The message path.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The state that `/ready` tells.
    pub fn ready(&self) -> Ready {
        self.status.ready()
    }

    /// Runs until `shutdown`, then stops: adapters no longer hear, turns get the drain time, replies are sent or kept.
    pub async fn run(self, shutdown: CancellationToken) -> Result<Ended, UserError> {
        tokio::task::spawn_blocking(|| match end_leftovers() {
            0 => {}
            processes => tracing::warn!(processes, "Processes that a killed gateway had left running were ended."),
        });
        match self.gateway.recover().await {
            Ok(()) => {}
            Err(StoreError::Damaged(why)) => {
                tracing::error!(%why, "The database is damaged; the next start repairs it.");
                return Ok(Ended::Damaged);
            }
            Err(error) => return Err(store_error(&error)),
        }
        let listening = CancellationToken::new();
        let serving = CancellationToken::new();
        let tasks = TaskTracker::new();
        let inbound: Arc<dyn Inbound> = Arc::new(self.gateway.clone());
        for adapter in &self.adapters {
            let (adapter, inbound, listening) = (Arc::clone(adapter), Arc::clone(&inbound), listening.clone());
            tasks.spawn(async move { adapter.listen(inbound, listening).await });
        }
        for (listener, router) in [self.public, self.private].into_iter().flatten() {
            tasks.spawn(server::serve(listener, router, serving.clone()));
        }
        tasks.spawn(probe(self.gateway.clone(), Arc::clone(&self.store), listening.clone()));
        tasks.spawn(end_conversations(self.gateway.clone(), listening.clone()));
        tasks.spawn(retain(Arc::clone(&self.store), self.retention, listening.clone()));
        tasks.spawn(announce(Arc::clone(&self.hooks), self.adapters.clone(), listening.clone()));

        let ended = tokio::select! {
            () = shutdown.cancelled() => Ended::Stopped,
            () = self.gateway.store_health().damaged() => Ended::Damaged,
        };
        let drain_timeout = match ended {
            Ended::Stopped => {
                tracing::info!("The gateway stops.");
                self.drain_timeout
            }
            Ended::Damaged => {
                tracing::error!("The gateway ends because its database is damaged; the next start repairs it.");
                Duration::ZERO // Nothing that is under way could be stored.
            }
        };
        let deadline = Instant::now() + drain_timeout;
        let platforms = connected(&self.adapters);
        self.hooks.emit(&Event::GATEWAY_SHUTDOWN, || GatewayShutdown {
            platforms,
            reason: if ended == Ended::Stopped { "signal" } else { "damaged" }.into(),
        });
        listening.cancel();
        if !self.gateway.stop(deadline).await {
            tracing::warn!("The drain time is over; what was under way goes on at the next start.");
        }
        self.hooks.drain(HOOKS_AT_STOP).await;
        self.hooks.close();
        self.streams.cancel();
        serving.cancel();
        tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(5), tasks.wait()).await;
        self.store.close().await;
        Ok(ended)
    }
}

fn lock_home(config: &Config) -> Result<HomeLock, UserError> {
    HomeLock::acquire(&config.home).map_err(|error| match error {
        LockError::Held { pid } => {
            let who = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            UserError::failed(format!(
                "A gateway ({who}) already runs on {}; stop it with `hookgate gateway stop`, or use another --home.",
                config.home.display()
            ))
        }
        LockError::Io(error) => UserError::unwritable(&config.home, &error),
    })
}

/// A store that cannot be used is a matter of configuration; one that failed may work at the next start.
pub(crate) fn store_error(error: &StoreError) -> UserError {
    match error {
        StoreError::Unusable(_) => UserError::config(error.to_string()),
        StoreError::Unavailable(why) => UserError::failed(format!("The store cannot be opened: {why}.")),
        _ => UserError::failed(format!("The store cannot be opened: {error}.")),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the form map_err wants")]
fn bind_error(error: anyhow::Error) -> UserError {
    UserError::failed(format!("{error:#}."))
}

fn telegram_adapter(
    account: &str,
    telegram: &crate::config::Telegram,
    config: &Config,
) -> Result<TelegramAdapter, UserError> {
    let options = TelegramOptions {
        account: account.to_owned(),
        base_url: telegram.base_url.clone(),
        max_update_age: config.max_update_age,
        typing: telegram.typing,
        reply_to_mode: telegram.reply_to_mode,
        groups: telegram.groups.clone(),
        webhook: telegram.webhook.clone(),
        proxies: config.proxies.or_through(telegram.proxy.as_ref()),
        edits: config.edits,
        commands: if telegram.command_menu { crate::gateway::menu() } else { Vec::new() },
        ..TelegramOptions::new(telegram.token.clone())
    };
    TelegramAdapter::new(options).map_err(|error| {
        UserError::config(format!("{} cannot be set up: {error}", Platform::Telegram.with_account(account)))
    })
}

fn model_name(config: &Config) -> String {
    match config.model.provider {
        Provider::Echo => "echo".into(),
        Provider::Replay => "replay".into(),
        Provider::OpenAi | Provider::Anthropic => config.model.name.clone(),
    }
}

fn rules(config: &Config) -> Rules {
    let telegram = config
        .telegram
        .iter()
        .map(|(account, telegram)| (Platform::Telegram, account.clone(), telegram.allowed.clone()));
    Rules {
        turns: config.limits.turns,
        waiting_per_chat: config.limits.waiting_per_chat,
        sharing: config.sharing,
        reset: config.reset.clone(),
        tells_of_reset: config.tells_of_reset,
        silent_of_reset: config.silent_of_reset.clone(),
        uncertain_sends: config.uncertain_sends,
        allowed: config.allowed.clone(),
        allowed_by_account: telegram.collect(),
        roles: config.roles.clone(),
        model: model_name(config),
        approvals: ApprovalRules {
            mode: config.approvals.mode,
            timeout: config.approvals.timeout,
            halt_on_timeout: config.approvals.on_timeout == OnTimeout::Halt,
            allowlist: config.command_allowlist.clone(),
            ..ApprovalRules::default()
        },
        confirms_new: config.approvals.destructive_slash_confirm,
        cwd: config.terminal.cwd.clone(),
        budgets: Budgets {
            turn: budget(&config.budgets.turn),
            user: budget(&config.budgets.user),
            route: budget(&config.budgets.route),
        },
        prices: config
            .model
            .prices
            .map_or_else(Prices::default, |prices| Prices { input: prices.input_micros, output: prices.output_micros }),
    }
}

fn budget(budget: &config::Budget) -> Budget {
    Budget { tokens: budget.tokens, tool_calls: budget.tool_calls, micros: budget.cost_micros }
}

fn guard(config: &Config) -> Guard {
    Guard { deny: config.approvals.deny.clone(), user_home: std::env::var_os("HOME").map(PathBuf::from) }
}

fn webhooks(config: &Config, gateway: &Gateway, store: &Arc<dyn Store>, clock: &Clock) -> Webhooks {
    Webhooks {
        gateway: gateway.clone(),
        store: Arc::clone(store),
        subscriptions: Subscriptions::open(
            config.home.join(FILE_NAME),
            config.webhook.routes.clone(),
            config.webhook.route_defaults.clone(),
        ),
        clock: clock.clone(),
        max_body_bytes: config.webhook.max_body_bytes,
        bodies: BodyBudget::new(config.webhook.max_body_bytes),
        rate_limit: config.webhook.rate_limit,
        deliver_wait: config.webhook.deliver_wait,
        trusted_proxies: config.webhook.trusted_proxies.clone(),
        limits: Limits::new(config.limits.failed_signatures_per_minute),
        missing_told: MissingTold::default(),
    }
}

/// Tries the store now and then, and often once it failed, until it works again.
async fn probe(gateway: Gateway, store: Arc<dyn Store>, stop: CancellationToken) {
    loop {
        let failed = async {
            gateway.store_health().failed().await;
            tokio::time::sleep(PROBE_EVERY).await;
        };
        tokio::select! {
            () = failed => {}
            () = tokio::time::sleep(PROBE_IDLE_EVERY) => {}
            () = stop.cancelled() => return,
        }
        let _ = gateway.store_health().watch(store.probe().await);
    }
}

/// Ends what is over by `session_reset`; each next message looks for itself, too.
async fn end_conversations(gateway: Gateway, stop: CancellationToken) {
    if !gateway.resets_conversations() {
        return;
    }
    loop {
        // A store that fails is told of elsewhere, and tried again in a minute.
        let _ = gateway.end_what_is_over().await;
        tokio::select! {
            () = tokio::time::sleep(END_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Deletes what is finished and old, a while after the start and then hourly.
async fn retain(store: Arc<dyn Store>, (days, max_bytes): (u32, u64), stop: CancellationToken) {
    let mut wait = Duration::from_secs(60);
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => return,
        }
        match store.retain(days, max_bytes).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "Finished rows beyond the retention were deleted."),
            Err(error) => tracing::warn!(%error, "Finished rows could not be deleted; it is tried again in an hour."),
        }
        wait = RETAIN_EVERY;
    }
}

/// `gateway:startup`, once every adapter's first attempt to connect has ended.
async fn announce(hooks: Arc<Registry>, adapters: Vec<Arc<dyn Adapter>>, stop: CancellationToken) {
    for adapter in &adapters {
        tokio::select! {
            () = adapter.first_attempt() => {}
            () = stop.cancelled() => return,
        }
    }
    let platforms = connected(&adapters);
    hooks.emit(&Event::GATEWAY_STARTUP, || GatewayStartup {
        platforms,
        hooks: hooks.stats().into_iter().map(|stats| stats.name).collect(),
        version: env!("CARGO_PKG_VERSION").into(),
    });
}

fn connected(adapters: &[Arc<dyn Adapter>]) -> Vec<String> {
    let connected = adapters.iter().filter(|adapter| adapter.status().state == AdapterState::Connected);
    connected.map(|adapter| adapter.platform().with_account(adapter.account())).collect()
}

impl Summary {
    /// The page's address with its token, for the person at the terminal only.
    pub fn page(&self) -> Option<&str> {
        self.console_url.as_ref().map(SecretString::expose_secret)
    }
}
