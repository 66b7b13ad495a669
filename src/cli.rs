//! The command line. One file per command family; what a command does lives in the module it concerns.
//!
//! Exit codes: 0 only on success, 1 failed, 2 usage, 75 restart wanted, 78 unusable configuration.

mod approvals;
mod chat;
mod config;
mod doctor;
mod gateway;
mod output;
#[cfg(test)]
mod reference;
mod sessions;
mod setup;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::config::{Config, LoadOptions, Loaded, Severity};
use crate::error::UserError;
use output::Output;

/// A self-hosted messaging gateway: chats and signed webhooks come in, an agent or a template answers, your hooks have
/// the say.
#[derive(Debug, Parser)]
#[command(
    name = "hookgate",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    /// The home directory [default: the variables `HOOKGATE_HOME` or `HERMES_HOME`, else ~/.hookgate, or ~/.hermes if only that exists]
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Accepted for scripts of the reference; no hook that would ask for consent is run yet
    #[arg(long, global = true, hide = true)]
    accept_hooks: bool,
    /// Print one JSON object (or array) on standard output, and nothing else there
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway, ask for its state, stop it
    #[command(subcommand)]
    Gateway(gateway::GatewayCommand),
    /// Talk to the gateway in this terminal; without a running one, a local one answers
    Chat(chat::ChatCommand),
    /// Check and show the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Manage webhook subscriptions
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// List, show and reset remembered conversations
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// List what people approved from now on, and take it back
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Ask for a Telegram bot's token and your user id, check them, and write them into .env
    Setup,
    /// Print the completions of a shell, for a file that it reads
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Check the configuration, the home, the store and the connections, and say what to do
    Doctor,
}

/// What every command is given.
struct Context {
    home: Option<PathBuf>,
    output: Output,
}

/// Reads the arguments and runs the command.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("hookgate: cannot start its threads: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // What a gateway prints at its start is no result: a full disk behind it is not a failed run.
    let prints_a_result = !matches!(cli.command, Command::Gateway(ref command) if command.runs());
    let context = Context { home: cli.home, output: Output { json: cli.json } };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Gateway(command) => gateway::run(&context, command).await,
            Command::Chat(command) => chat::run(&context, command).await,
            Command::Config(command) => config::run(&context, &command),
            Command::Webhook(command) => webhook::run(&context, command).await,
            Command::Sessions(command) => sessions::run(&context, command).await,
            Command::Approvals(command) => approvals::run(&context, command).await,
            Command::Setup => setup::run(&context).await,
            Command::Completions { shell } => Ok(completions(shell)),
            Command::Doctor => doctor::run(&context).await,
        }
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    crate::logging::finish();
    match outcome {
        Ok(0) if prints_a_result && output::failed() => ExitCode::FAILURE,
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            context.output.error(&crate::redact::redact(&error.message));
            ExitCode::from(error.exit_code)
        }
    }
}

/// The completions of a shell, on standard output.
fn completions(shell: clap_complete::Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hookgate", &mut script);
    output::raw(&script);
    0
}

/// What is wrong with the home directory itself, on one line: nothing of the configuration was read.
fn unusable_home(loaded: &Loaded) -> Option<UserError> {
    let problem = loaded.problems.iter().find(|problem| problem.severity == Severity::Error);
    problem.filter(|_| loaded.home.is_none()).map(|problem| UserError::config(format!("{problem}.")))
}

impl Context {
    /// Reads the configuration; its secrets are masked from here on.
    fn load(&self) -> Loaded {
        let loaded = crate::config::load(LoadOptions::from_process(self.home.clone()));
        if let Some(config) = &loaded.config {
            crate::redact::add(&config.secrets);
        }
        loaded
    }

    /// The configuration, or its problems as an error (exit 78). Warnings are printed on standard error.
    fn config(&self) -> Result<Config, UserError> {
        let loaded = self.load();
        for problem in loaded.problems.iter().filter(|problem| problem.severity == Severity::Warning) {
            output::note(&format!("warning: {}", crate::redact::redact(&problem.to_string())));
        }
        let unusable_home = unusable_home(&loaded);
        loaded.config.ok_or_else(|| {
            if let Some(error) = unusable_home {
                return error;
            }
            let errors = loaded.problems.iter().filter(|problem| problem.severity == Severity::Error);
            let lines: Vec<String> = errors.map(ToString::to_string).collect();
            UserError::config(format!("The configuration cannot be used:\n{}", lines.join("\n")))
        })
    }

    /// The configuration where it can be used, else only its home: a running gateway is asked and stopped although the
    /// file was broken since, or a variable is not set in this shell.
    fn lenient_config(&self) -> Result<(PathBuf, Option<Config>), UserError> {
        let loaded = self.load();
        match (loaded.home, loaded.config) {
            (Some(home), config) => Ok((home, config)),
            (None, _) => self.config().map(|config| (config.home.clone(), Some(config))),
        }
    }

    /// The same without a word about warnings, for commands that only look.
    fn quiet_config(&self) -> Result<Config, UserError> {
        let loaded = self.load();
        let unusable_home = unusable_home(&loaded);
        loaded.config.ok_or_else(|| {
            let listed = "The configuration cannot be used; `hookgate config check` lists why.";
            unusable_home.unwrap_or_else(|| UserError::config(listed))
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
