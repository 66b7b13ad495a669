//! `hookgate approvals list|revoke`: what people allowed for ever. Listing reads beside a running gateway; a revocation
//! goes through it, so that it holds at once.

use clap::Subcommand;
use serde_json::json;

use super::Context;
use super::output::{table, time};
use crate::app::store_error;
use crate::client::GatewayClient;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::UserError;
use crate::store::lock::HomeLock;
use crate::store::{OpenOptions, Rule, SqlStore};

#[derive(Debug, Subcommand)]
pub(super) enum ApprovalsCommand {
    /// List what was approved from now on
    List,
    /// Take such an approval back; it is asked for again
    Revoke {
        /// The number that `approvals list` shows
        #[arg(value_name = "ID")]
        id: i64,
    },
}

pub(super) async fn run(context: &Context, command: ApprovalsCommand) -> Result<u8, UserError> {
    let config = context.quiet_config()?;
    match command {
        ApprovalsCommand::List => list(context, &config).await,
        ApprovalsCommand::Revoke { id } => revoke(context, &config, id).await,
    }
}

async fn list(context: &Context, config: &Config) -> Result<u8, UserError> {
    let store = SqlStore::open_read_only(&config.home, &config.storage.url).await;
    let store = store.map_err(|error| store_error(&error))?;
    let rules = store.rules().await.map_err(|error| store_error(&error))?;
    store.close().await;
    context.output.told(&rules, || {
        if rules.is_empty() {
            return "Nothing was approved from now on.".into();
        }
        let place = |rule: &Rule| if rule.scope.is_empty() { "everywhere".to_owned() } else { rule.scope.clone() };
        let row = |rule: &Rule| {
            vec![rule.id.to_string(), time(rule.at), place(rule), rule.granted_by.clone(), rule.key.clone()]
        };
        let rows: Vec<Vec<String>> = rules.iter().map(row).collect();
        table(&["ID", "SINCE (UTC)", "WHERE", "BY", "WHAT"], &rows)
    });
    Ok(0)
}

async fn revoke(context: &Context, config: &Config, id: i64) -> Result<u8, UserError> {
    let revoked: Option<String> = if HomeLock::holder(&config.home).is_some() {
        GatewayClient::of(&config.home)?.revoke_approval(id).await?
    } else {
        let lock = HomeLock::acquire(&config.home);
        let _lock = lock.map_err(|error| UserError::failed(format!("The home cannot be locked: {error}.")))?;
        let open = OpenOptions::new(&config.home, &config.storage.url).clock(Clock::system());
        let store = SqlStore::open(open).await.map_err(|error| store_error(&error))?.store;
        let revoked = store.revoke(id).await.map_err(|error| store_error(&error))?;
        store.close().await;
        revoked.map(|rule| rule.key)
    };
    let key = revoked.ok_or_else(|| {
        UserError::failed(format!("There is no approval {id}; `hookgate approvals list` shows them."))
    })?;
    context.output.result(&json!({ "revoked": true, "id": id, "key": key }), || {
        format!("Revoked: {key}. It is asked for again.")
    });
    Ok(0)
}
