//! `hookgate sessions list|show|reset`. Listing reads beside a running gateway; a reset goes through it.

use clap::Subcommand;
use serde_json::json;

use super::Context;
use super::output::{table, time};
use crate::app::store_error;
use crate::client::GatewayClient;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::UserError;
use crate::session::Session;
use crate::store::lock::HomeLock;
use crate::store::{OpenOptions, SqlStore};

#[derive(Debug, Subcommand)]
pub(super) enum SessionsCommand {
    /// List conversations, last used first
    List {
        /// How many at most
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u32,
    },
    /// Show one conversation
    Show {
        /// A session id, or a session key such as agent:main:telegram:dm:42
        session: String,
        /// How many of its newest messages
        #[arg(long, default_value_t = 200, value_name = "N")]
        limit: u32,
    },
    /// End the current conversation of a key; the next message begins a new one
    Reset {
        /// A session id, or a session key such as agent:main:telegram:dm:42
        session: String,
    },
}

pub(super) async fn run(context: &Context, command: SessionsCommand) -> Result<u8, UserError> {
    let config = context.quiet_config()?;
    match command {
        SessionsCommand::List { limit } => list(context, &config, limit).await,
        SessionsCommand::Show { session, limit } => show(context, &config, &session, limit).await,
        SessionsCommand::Reset { session } => reset(context, &config, &session).await,
    }
}

async fn read_only(config: &Config) -> Result<SqlStore, UserError> {
    SqlStore::open_read_only(&config.home, &config.storage.url).await.map_err(|error| store_error(&error))
}

async fn list(context: &Context, config: &Config, limit: u32) -> Result<u8, UserError> {
    let store = read_only(config).await?;
    let sessions = store.sessions(limit).await.map_err(|error| store_error(&error))?;
    context.output.told(&sessions, || {
        if sessions.is_empty() {
            return "No conversations yet.".into();
        }
        let row = |session: &Session| {
            vec![
                session.id.clone(),
                time(session.updated_at),
                session.messages.to_string(),
                session.end_reason.clone().unwrap_or_else(|| "current".into()),
                session.name.clone().unwrap_or_default(),
                session.key.to_string(),
            ]
        };
        let rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
        table(&["SESSION", "LAST USED (UTC)", "MESSAGES", "STATE", "NAME", "KEY"], &rows)
    });
    store.close().await;
    Ok(0)
}

async fn show(context: &Context, config: &Config, wanted: &str, limit: u32) -> Result<u8, UserError> {
    let store = read_only(config).await?;
    let found = store.find_session(wanted).await.map_err(|error| store_error(&error))?;
    let session = found.ok_or_else(|| {
        UserError::failed(format!("There is no conversation {wanted:?}; `hookgate sessions list` shows them."))
    })?;
    let messages = store.history(&session.id, limit, usize::MAX).await.map_err(|error| store_error(&error))?;
    store.close().await;
    context.output.told(&json!({ "session": session, "messages": messages }), || {
        let mut lines = vec![format!("{}  {}", session.id, session.key)];
        for message in &messages {
            let status = match message.status {
                crate::session::TurnStatus::Completed => String::new(),
                status => format!(" ({})", status.as_str()),
            };
            lines.push(format!("\n[{}] {}{status}:\n{}", time(message.at), message.role.as_str(), message.text));
        }
        lines.join("\n")
    });
    Ok(0)
}

async fn reset(context: &Context, config: &Config, wanted: &str) -> Result<u8, UserError> {
    let ended: Option<String> = if HomeLock::holder(&config.home).is_some() {
        GatewayClient::of(&config.home)?.reset_session(wanted).await?
    } else {
        let lock = HomeLock::acquire(&config.home);
        let _lock = lock.map_err(|error| UserError::failed(format!("The home cannot be locked: {error}.")))?;
        let open = OpenOptions::new(&config.home, &config.storage.url).clock(Clock::system());
        let store = SqlStore::open(open).await.map_err(|error| store_error(&error))?.store;
        let ended = store.end_session(wanted, "reset").await.map_err(|error| store_error(&error))?;
        store.close().await;
        ended.map(|session| session.id)
    };
    let ended = ended.ok_or_else(|| unknown(wanted))?;
    context.output.result(&json!({ "reset": true, "session_id": ended }), || {
        format!("{ended} has ended; the next message begins a new conversation.")
    });
    Ok(0)
}

fn unknown(wanted: &str) -> UserError {
    UserError::failed(format!("There is no current conversation {wanted:?}; `hookgate sessions list` shows them."))
}
