//! `hookgate gateway run|status|stop`.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Subcommand;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::output::note;
use crate::app::{App, Ended, Options, Summary};
use crate::config::Config;
use crate::console::ConsoleFile;
use crate::error::UserError;
use crate::status::{Overall, Ready};
use crate::store::lock::{HomeLock, reference_gateway};
use crate::store::{Counts, SqlStore};

/// Asking a running gateway takes no longer.
const ASK: Duration = Duration::from_secs(5);
/// What a stop may take beyond the drain time.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// `EX_TEMPFAIL`: the supervisor is asked to start the gateway again.
const RESTART: u8 = 75;

#[derive(Debug, Subcommand)]
pub(super) enum GatewayCommand {
    /// Run the gateway until it is told to stop (SIGINT, SIGTERM)
    Run {
        /// Which log lines to write on standard error: error, warn, info, debug, trace, or a filter such as
        /// hookgate=debug [default: the variable `RUST_LOG`, else info]
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
        /// Write log lines as JSON
        #[arg(long)]
        log_json: bool,
    },
    /// Tell what the running gateway is doing; exit 0 unless it is down
    Status,
    /// Stop the running gateway and wait until it has ended
    Stop,
    /// The same as `hookgate setup`
    #[command(hide = true)]
    Setup,
}

impl GatewayCommand {
    /// Whether it is the gateway itself.
    pub(super) fn runs(&self) -> bool {
        matches!(self, Self::Run { .. })
    }
}

pub(super) async fn run(context: &Context, command: GatewayCommand) -> Result<u8, UserError> {
    match command {
        GatewayCommand::Run { log, log_json } => run_gateway(context, log.as_deref(), log_json).await,
        GatewayCommand::Status => status(context).await,
        GatewayCommand::Stop => stop(context).await,
        GatewayCommand::Setup => super::setup::run(context).await,
    }
}

async fn run_gateway(context: &Context, log: Option<&str>, log_json: bool) -> Result<u8, UserError> {
    crate::logging::start(log, log_json)?;
    crate::server::raise_descriptor_limit();
    let loaded = context.load();
    if let Some(note) = &loaded.home_note {
        context.output.line(note);
    }
    let config = context.config()?;
    if let Some(what) = reference_gateway(&config.home) {
        tracing::warn!("{what}");
    }
    let shutdown = CancellationToken::new();
    let signals = tokio::spawn(hear_signals(shutdown.clone())?);
    let run = async {
        // Opening may take long (a repair); a kill meanwhile does no harm, so a stop need not wait.
        let build = Box::pin(App::build(config, Options::default()));
        let Some(app) = shutdown.run_until_cancelled(build).await.transpose()? else { return Ok(Ended::Stopped) };
        announce(context, app.summary());
        app.run(shutdown.clone()).await
    };
    let ended = run.await?;
    let restart = shutdown.is_cancelled() && signals.await.unwrap_or(false);
    Ok(exit_code(restart || ended == Ended::Damaged))
}

fn exit_code(restart_wanted: bool) -> u8 {
    if restart_wanted { RESTART } else { 0 }
}

/// Hears signals from now on. The future cancels `shutdown` at the first that asks to stop, and tells whether a restart is
/// wanted.
fn hear_signals(shutdown: CancellationToken) -> Result<impl Future<Output = bool>, UserError> {
    let (mut interrupt, mut terminate, mut restart) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::user_defined1())?);
    // A terminal that closes asks to stop, too. Nothing is asked for by the other one, which by default ends the process.
    let _ = listen(SignalKind::user_defined2())?;
    // Who started it under `nohup` does not mean that.
    let mut hangup = if is_ignored(Signal::SIGHUP) { None } else { Some(listen(SignalKind::hangup())?) };
    // A file that may not grow (`ulimit -f`) is then an error like a full disk; by default it ends the process.
    let _ = listen(SignalKind::from_raw(Signal::SIGXFSZ as i32))?;
    Ok(async move {
        let restart_wanted = tokio::select! {
            _ = interrupt.recv() => false,
            _ = terminate.recv() => false,
            () = async {
                match &mut hangup {
                    Some(hangup) => drop(hangup.recv().await),
                    None => std::future::pending().await,
                }
            } => false,
            _ = restart.recv() => true,
        };
        shutdown.cancel();
        // Who asks twice does not want to wait; everything accepted is stored.
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::warn!("Stopped at once; what was under way goes on at the next start.");
            crate::logging::finish();
            std::process::exit(i32::from(exit_code(restart_wanted)));
        });
        restart_wanted
    })
}

/// Whether the process was started with the signal ignored, as far as the system tells.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|ignored| ignored >> (signal as i32 - 1) & 1 == 1)
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, UserError> {
    signal(kind).map_err(|error| UserError::failed(format!("Signals cannot be received: {error}.")))
}

/// What is on, where, and what to do next.
fn announce(context: &Context, summary: &Summary) {
    for note in &summary.notes {
        tracing::warn!("{note}");
    }
    if context.output.json {
        let address = summary.webhook_address.map(|address| address.to_string());
        let start = serde_json::json!({
            "home": summary.home,
            "console_url": summary.page(),
            "webhook_address": address,
            "routes": summary.routes,
            "routes_off": summary.routes_off,
            "telegram": !summary.telegram.is_empty(),
            "model": summary.model,
        });
        context.output.event(&start);
        return;
    }
    let line = |text: &str| context.output.line(text);
    line(&format!("hookgate {} on {}", env!("CARGO_PKG_VERSION"), summary.home.display()));
    match summary.page() {
        Some(page) => line(&format!("  chat page  {page}")),
        None => line("  chat page  off (console.enabled)"),
    }
    match summary.webhook_address {
        Some(address) => {
            let routes = match summary.routes.as_slice() {
                [] => "no routes yet".to_owned(),
                routes => format!("routes: {}", routes.join(", ")),
            };
            line(&format!("  webhooks   http://{address}/webhooks/<route> ({routes})"));
        }
        None => line("  webhooks   off (platforms.webhook.enabled)"),
    }
    for off in &summary.routes_off {
        line(&format!("             off: {off}"));
    }
    line(&format!(
        "  telegram   {}",
        match summary.telegram.as_slice() {
            [] => "off (set TELEGRAM_BOT_TOKEN)".to_owned(),
            [one] if one == "telegram" => "on".to_owned(),
            bots => format!("on: {}", bots.join(", ")),
        }
    ));
    line(&format!("  model      {}", summary.model));
    line("Next:");
    line("  hookgate chat                      talk to it in a terminal");
    if summary.webhook_address.is_some() && summary.routes.is_empty() {
        line("  hookgate webhook subscribe github  receive webhooks");
    }
    if summary.echo {
        line("  model: in config.yaml              let a model answer instead of the echo");
    }
    line("  hookgate doctor                    check what is set up");
}

/// What `gateway status` tells.
#[derive(Debug, Serialize)]
struct Report {
    running: bool,
    pid: Option<u32>,
    #[serde(flatten)]
    ready: Option<Ready>,
    queues: Queues,
    outbox: OutboxReport,
}

#[derive(Debug, Serialize)]
struct Queues {
    waiting: i64,
    running: i64,
}

#[derive(Debug, Serialize)]
struct OutboxReport {
    waiting: i64,
    uncertain: i64,
    dead: i64,
}

async fn status(context: &Context) -> Result<u8, UserError> {
    let (home, config) = context.lenient_config()?;
    let pid = HomeLock::holder(&home);
    let ready = if pid.is_some() { ask_ready(&home).await } else { None };
    let counts = match &config {
        Some(config) => counts(config).await.unwrap_or_default(),
        None => {
            note(
                "hookgate: the configuration cannot be used (`hookgate config check` lists why), so queues are not shown.",
            );
            Counts::default()
        }
    };
    let report = Report {
        running: pid.is_some(),
        pid,
        queues: Queues { waiting: counts.inbox_waiting, running: counts.inbox_running },
        outbox: OutboxReport {
            waiting: counts.outbox_waiting,
            uncertain: counts.outbox_uncertain,
            dead: counts.outbox_dead,
        },
        ready,
    };
    let code = u8::from(report.ready.as_ref().is_none_or(Ready::is_down));
    context.output.result(&report, || describe(&home, &report));
    Ok(code)
}

fn describe(home: &Path, report: &Report) -> String {
    let mut lines = match (&report.pid, &report.ready) {
        (None, _) => {
            vec![format!("No gateway runs on {}. Start it with `hookgate gateway run`.", home.display())]
        }
        (Some(pid), None) => vec![format!("The gateway (process {pid}) does not answer.")],
        (Some(pid), Some(ready)) => {
            let status = match ready.status {
                Overall::Ok => "ok",
                Overall::Degraded => "degraded",
                Overall::Down => "down",
            };
            let draining = if ready.draining { ", stopping" } else { "" };
            let mut lines = vec![format!("{status} (process {pid}{draining}), store {}", ready.store)];
            for (name, platform) in &ready.platforms {
                let error = platform.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                lines.push(format!("  {name:<9} {}{error}", platform.state));
            }
            lines
        }
    };
    let (queues, outbox) = (&report.queues, &report.outbox);
    lines.push(format!("messages: {} waiting, {} being answered", queues.waiting, queues.running));
    lines.push(format!("replies: {} waiting, {} uncertain, {} dead", outbox.waiting, outbox.uncertain, outbox.dead));
    lines.join("\n")
}

/// `/ready` of the running gateway, from whichever listener is on.
async fn ask_ready(home: &Path) -> Option<Ready> {
    let file = ConsoleFile::read(home)?;
    let client = crate::http::loopback_client(ASK);
    for url in [file.url, file.webhook_url].into_iter().flatten() {
        if let Ok(response) = client.get(format!("{url}/ready")).send().await
            && let Ok(ready) = response.json().await
        {
            return Some(ready);
        }
    }
    None
}

async fn counts(config: &Config) -> Option<Counts> {
    let store = SqlStore::open_read_only(&config.home, &config.storage.url).await.ok()?;
    let counts = store.counts().await.ok();
    store.close().await;
    counts
}

async fn stop(context: &Context) -> Result<u8, UserError> {
    let (home, config) = context.lenient_config()?;
    let drain_timeout = config.map_or(Duration::from_secs(20), |config| config.drain_timeout);
    let Some(pid) = HomeLock::holder(&home) else {
        return Err(UserError::failed(format!("No gateway runs on {}.", home.display())));
    };
    let process = i32::try_from(pid).map(Pid::from_raw).map_err(|_| UserError::failed("The lock names no process."))?;
    kill(process, Signal::SIGTERM)
        .map_err(|error| UserError::failed(format!("The gateway (process {pid}) cannot be told to stop: {error}.")))?;
    let deadline = Instant::now() + drain_timeout + STOP_GRACE;
    while HomeLock::holder(&home).is_some() {
        if Instant::now() > deadline {
            return Err(UserError::failed(format!(
                "The gateway (process {pid}) was told to stop and has not ended yet."
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    context.output.result(&serde_json::json!({ "stopped": true, "pid": pid }), || "Stopped.".into());
    Ok(0)
}
